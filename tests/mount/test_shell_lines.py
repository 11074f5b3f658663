"""Shell lines print the same on the mount as on a plain copy of the corpus.

Lines that do not sort print in the order of the file system: the mount's is the byte order of
names, and the copy is laid out so that its own order is that too.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import (
    HarnessError,
    MountedCorpus,
    Site,
    differences,
    plain_environment,
    run,
)

pytestmark = pytest.mark.xdist_group("mount-ai")

MEMORY = Path("/dev/shm")
LINES_FILE = Path(__file__).resolve().parents[1] / "data" / "shell-lines.txt"
LINES = [line for line in LINES_FILE.read_text().split("\n") if line and not line.startswith("#")]
LINE_DEADLINE = 60.0


@pytest.fixture(scope="session")
def reference(ai: MountedCorpus) -> Iterator[Path]:
    """A directory in memory that holds ``docs``, a copy that looks as the mount has to."""
    with tempfile.TemporaryDirectory(prefix="chromafuse-reference-", dir=MEMORY) as base:
        yield lay_out(ai.expected, Path(base))


def lay_out(source: Path, base: Path) -> Path:
    """Copy ``source`` to ``docs`` in a directory of ``base`` so that it lists in byte order.

    tmpfs lists what was made last first (Linux 6.6 and later; others turn that round), so names are
    made in reverse order, and in order if that turns out to be wrong.
    """
    for last_first in (True, False):
        work = base / ("reverse" if last_first else "forward")
        copy = os.fsencode(work / "docs")
        os.makedirs(copy)
        copy_in_order(os.fsencode(source), copy, last_first=last_first)
        if lists_in_byte_order(copy):
            return work
        shutil.rmtree(work)
    raise HarnessError(f"{MEMORY} lists neither what was made first nor last in order")


def copy_in_order(source: bytes, target: bytes, *, last_first: bool) -> None:
    """Copy what is in ``source``, with modes as a mount has them and the source's times."""
    for name in sorted(os.listdir(source), reverse=last_first):
        original, copy = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(original):
            os.mkdir(copy)
            copy_in_order(original, copy, last_first=last_first)
        else:
            shutil.copy2(original, copy)
            os.chmod(copy, 0o444)
    shutil.copystat(source, target)
    # The owner may still add to the directory: it is root, or removes the copy in the end.
    os.chmod(target, 0o755 if os.getuid() else 0o555)


def lists_in_byte_order(top: bytes) -> bool:
    return all(
        names == sorted(names) for names in (os.listdir(folder) for folder, _, _ in os.walk(top))
    )


def test_there_are_enough_lines_and_each_once() -> None:
    assert len(LINES) >= 60
    assert len(set(LINES)) == len(LINES)


def test_the_reference_holds_what_the_corpus_holds(ai: MountedCorpus, reference: Path) -> None:
    env = plain_environment(reference)
    run(["diff", "-r", str(ai.expected), "docs"], env=env, cwd=reference).expect(0)


@pytest.fixture(scope="module")
def cold(ai: MountedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A mount that keeps no page, so that each search asks Chroma."""
    site = Site(tmp_path_factory.mktemp("cold"), chroma=ai.site.chroma)
    try:
        site.mount("--warm", "off", "--cache-size", "1")
        yield site
    finally:
        site.close()


@pytest.mark.parametrize("line", [line for line in LINES if re.search(r"\b(grep|rg)\b", line)])
def test_a_search_prints_the_same_when_chroma_is_asked(
    line: str, cold: Site, reference: Path, tmp_path: Path
) -> None:
    env = plain_environment(tmp_path)
    command = ["bash", "--norc", "-c", line]
    expected, found = (
        run(command, env=env, cwd=work, deadline=LINE_DEADLINE) for work in (reference, cold.work)
    )
    parted = differences(expected, found)
    assert not parted, "\n".join([line, *map(str, parted)])


@pytest.mark.parametrize("line", LINES)
def test_prints_the_same_on_the_mount(
    line: str, ai: MountedCorpus, reference: Path, tmp_path: Path
) -> None:
    env = plain_environment(tmp_path)
    command = ["bash", "--norc", "-c", line]
    expected, found = (
        run(command, env=env, cwd=work, deadline=LINE_DEADLINE)
        for work in (reference, ai.site.work)
    )
    parted = differences(expected, found)
    assert not parted, "\n".join([line, *map(str, parted)])
