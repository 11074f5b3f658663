"""Corpora mounted once per test process, and what holds for every test on a mount.

Run with ``-n 2 --dist loadgroup``: the tests of one corpus stay in one process, which ingests and
mounts it for the first of them. A test on a mount is never skipped silently: without FUSE it fails,
unless CHROMAFUSE_TEST_ALLOW_NO_FUSE is set, and in CI every skip is a failure.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.odd_tree import build_odd_tree
from tests.mount.harness import (
    PROJECT,
    HarnessError,
    MountedCorpus,
    Site,
    complaints_in_logs,
    end_all_daemons,
    plain_environment,
    run,
)
from tests.support.ci import ALLOW_NO_FUSE, expected_lines, why_no_fuse

FETCH_DEADLINE = 600.0
TEST_DEADLINE = 300.0

# Tools of the tests and the Debian packages that have them; scripts/setup installs these.
TOOLS = {
    "file": "file",
    "fusermount3": "fuse3",
    "getfattr": "attr",
    "git": "git",
    "jq": "jq",
    "rg": "ripgrep",
    "rsync": "rsync",
    "tree": "tree",
}


@pytest.fixture(scope="session", autouse=True)
def _fuse_and_tools_are_there() -> None:
    missing = why_no_fuse()
    if missing and os.environ.get(ALLOW_NO_FUSE):
        pytest.skip(missing)
    if missing:
        pytest.fail(f"{missing}; set {ALLOW_NO_FUSE}=1 to do without the tests on a mount")
    packages = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if packages:
        pytest.fail(f"tools are missing, apt-get install {' '.join(packages)}")


@pytest.fixture(autouse=True)
def _hanging_calls_end() -> Iterator[None]:
    """End the daemons when a test lasts too long: a call that waits for one cannot be killed."""
    over, too_long = threading.Event(), threading.Event()

    def watch() -> None:
        if over.wait(TEST_DEADLINE):
            return
        too_long.set()
        # Again and again: the test goes on and may mount once more.
        while not over.wait(1):
            end_all_daemons()

    watchdog = threading.Thread(target=watch, daemon=True)
    watchdog.start()
    yield
    over.set()
    watchdog.join()
    if too_long.is_set():
        pytest.fail(f"lasted over {TEST_DEADLINE:.0f} s, so the daemons were killed")


@pytest.fixture(autouse=True)
def _daemons_log_no_warning(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    expected = expected_lines(request)
    unexpected = [
        line
        for line in complaints_in_logs()
        if not any(pattern.search(line) for pattern in expected)
    ]
    if unexpected:
        pytest.fail("logged by a daemon and not expected:\n" + "\n".join(unexpected))


class Corpora:
    """Ingests and mounts each corpus when it is first asked for."""

    def __init__(self, new_directory: Callable[[str], Path]) -> None:
        self._new_directory = new_directory
        self._mounted: dict[str, MountedCorpus] = {}

    def get(self, name: str) -> MountedCorpus:
        if name not in self._mounted:
            self._mounted[name] = self._make(name)
        return self._mounted[name]

    def _make(self, name: str) -> MountedCorpus:
        base = self._new_directory(name)
        if name == "odd":
            odd = build_odd_tree(base / "source")
            expected = odd.copy_of_what_is_stored(base / "expected")
            return MountedCorpus(name, expected, _mounted(base, odd.root, ingest_code=3), odd)
        if name == "docs":
            docs = PROJECT / "docs"
            site = _mounted(base, docs, mount_options=("--groups", "admin,billing"))
            return MountedCorpus(name, docs, site)
        source = fetched(name, base)
        return MountedCorpus(name, source, _mounted(base, source))

    def close(self) -> None:
        """Unmount all; fail if one did not go by itself or complained while going."""
        trouble = []
        for corpus in self._mounted.values():
            try:
                corpus.site.close()
            except HarnessError as error:
                trouble.append(f"{corpus.name}: {error}")
        trouble += complaints_in_logs()
        if trouble:
            raise HarnessError("\n".join(trouble))


def _mounted(
    base: Path, source: Path, *, ingest_code: int = 0, mount_options: tuple[str, ...] = ()
) -> Site:
    site = Site(base)
    try:
        site.ingest(source, expect=ingest_code)
        site.mount(*mount_options)
    except BaseException:
        site.close()
        raise
    return site


def fetched(name: str, base: Path) -> Path:
    """The directory of a corpus that comes through npm; fetched unless it is there already."""
    env = plain_environment(Path.home()) | {
        # npm reads its registry and proxies from here.
        key: value
        for key, value in os.environ.items()
        if key.lower().startswith("npm_") or key.lower().endswith("_proxy")
    }
    script = PROJECT / "scripts" / "fetch-corpora"
    run([sys.executable, str(script), name], env=env, cwd=base, deadline=FETCH_DEADLINE).expect(0)
    return PROJECT / ".corpora" / name


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpora]:
    corpora = Corpora(tmp_path_factory.mktemp)
    yield corpora
    corpora.close()


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(name, marks=pytest.mark.xdist_group(f"mount-{name}"))
        for name in ("next", "ai", "docs", "odd")
    ],
)
def corpus(request: pytest.FixtureRequest, corpora: Corpora) -> MountedCorpus:
    """Each of the corpora in turn, mounted."""
    return corpora.get(request.param)


@pytest.fixture(scope="session")
def ai(corpora: Corpora) -> MountedCorpus:
    """The corpus ``ai``, mounted; its tests belong to the group ``mount-ai``."""
    return corpora.get("ai")


@pytest.fixture(scope="session")
def odd(corpora: Corpora) -> MountedCorpus:
    """The odd tree, mounted; its tests belong to the group ``mount-odd``."""
    return corpora.get("odd")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site for one test to do with as it likes."""
    site = Site(tmp_path)
    yield site
    site.close()
