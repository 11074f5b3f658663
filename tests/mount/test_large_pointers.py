"""Real specifications of 13 and 78 MB in a mount: every way to read them, and what it costs."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.conftest import fetched
from tests.mount.harness import Site
from tests.support.s3_server import CREDENTIALS, S3Server, running_s3

pytestmark = pytest.mark.xdist_group("mount-large-pointers")

FILES = {"api.github.com.json": 13_001_822, "ghec.deref.json": 78_349_140}
BLOCK = 1 << 20
CACHE_MIB = 128
"""Both files do not fit into it, one does."""


class Specs:
    """Both files in an S3 server, and a site whose tree points to them."""

    def __init__(self, site: Site, server: S3Server, originals: Path) -> None:
        self.site = site
        self.server = server
        self.originals = originals

    def path(self, name: str) -> Path:
        return self.site.mountpoint / "api-specs" / name

    def mount(self, *options: str) -> None:
        """Mount with empty caches."""
        if self.site.is_mounted():
            self.site.umount()
        where = ("--pointers-allowed", "s3://specs", "--s3-endpoint", self.server.url)
        self.site.mount(*where, "--cache-size", f"{CACHE_MIB}M", *options)
        self.server.requests.clear()


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Specs]:
    base = tmp_path_factory.mktemp("large")
    originals = fetched("octokit", base)
    site = Site(base / "site")
    try:
        with running_s3(base / "s3", etag_hash="crc32") as server:
            (server.root / "specs").mkdir()
            for name in FILES:
                os.link(originals / name, server.root / "specs" / name)
            site.env.update(CREDENTIALS)
            (base / "docs").mkdir()
            (base / "docs" / "index.md").write_text("home\n")
            site.ingest(base / "docs", "--pointers", "s3://specs", "--s3-endpoint", server.url)
            yield Specs(site, server, originals)
            # Before the server ends.
            site.umount()
    finally:
        site.close()


def _out(*command: str | Path) -> bytes:
    return subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout


def _ranges(path: Path, original: bytes) -> bool:
    chance = random.Random(1)
    with path.open("rb") as file:
        for _ in range(100):
            start, length = chance.randrange(len(original)), chance.randrange(100_000)
            if os.pread(file.fileno(), length, start) != original[start : start + length]:
                return False
    return True


MAP = """
import hashlib, mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
    print(hashlib.sha256(view).hexdigest())
"""


def _mapped(path: Path, original: bytes) -> bool:
    # Not here: who waits for a page of a mapping keeps the proxy's threads from running.
    return _out(sys.executable, "-c", MAP, path).decode().strip() == _digest(original)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


WAYS: dict[str, tuple[Callable[[Path, bytes], bool], int | None]] = {
    "stat": (lambda path, original: path.stat().st_size == len(original), 0),
    "head": (lambda path, original: _out("head", "-c", "100", path) == original[:100], 1),
    # The kernel reads ahead over the border between the last blocks.
    "tail": (lambda path, original: _out("tail", "-c", "100", path) == original[-100:], 2),
    "ranges": (_ranges, None),
    "mmap": (_mapped, None),
    "sha256": (
        lambda path, original: _out("sha256sum", path).decode()[:64] == _digest(original),
        None,
    ),
}
"""How to read a file and compare it, and the most blocks of it that this may take; None: all."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "size"), FILES.items())
def test_every_way_to_read_is_right_and_costs_no_block_twice(
    specs: Specs, name: str, size: int, way: str
) -> None:
    original = (specs.originals / name).read_bytes()
    assert len(original) == size
    specs.mount()
    read, most = WAYS[way]
    assert read(specs.path(name), original)
    blocks = -(-size // BLOCK)
    assert len(specs.server.reads) <= (blocks if most is None else most)
    assert specs.server.bytes_sent <= (size if most is None else most * BLOCK)
    if way == "sha256":
        assert specs.server.bytes_sent == size
        # One block, then four, sixteen and all the rest, as far as the cache bears it.
        assert len(specs.server.reads) <= 7
        specs.server.requests.clear()
        assert read(specs.path(name), original)
        assert specs.server.requests == []


@pytest.mark.parametrize(
    "command", [["jq", "-c", ".paths|keys"], ["grep", "-c", "operationId"], ["head", "-n", "5"]]
)
def test_tools_say_the_same_as_of_the_original(specs: Specs, command: list[str]) -> None:
    specs.mount()
    for name in list(FILES)[: 1 if command[0] == "jq" else 2]:
        assert _out(*command, specs.path(name)) == _out(*command, specs.originals / name)


def test_the_daemon_stays_within_its_memory(specs: Specs) -> None:
    """The cache's bound and 120 MB, when more is read than fits, some of it at once."""
    specs.mount()
    for name in [*FILES, *FILES]:
        readers = [
            subprocess.Popen(["cksum", specs.path(name)], stdout=subprocess.DEVNULL)
            for _ in range(3)
        ]
        assert [reader.wait() for reader in readers] == [0, 0, 0]
    status = Path(f"/proc/{specs.site.daemons()[0]}/status").read_text()
    most = int(status.split("VmHWM:")[1].split()[0]) * 1024
    assert most < (CACHE_MIB << 20) + 120_000_000
