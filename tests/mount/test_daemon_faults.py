"""The daemon killed, out of descriptors or disk, and under very many readers."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Site, wait_until
from tests.support import chroma_server as chroma_servers
from tests.support.chroma_server import ChromaServer

pytestmark = pytest.mark.xdist_group("mount-daemon-faults")

PAGES = 40
GENEROUS = 60.0
OPEN_FILES = 10_000
DEAD = (errno.ENOTCONN, errno.ECONNABORTED)


def text(number: int, version: int = 0) -> str:
    return f"page {number} version {version}\n" * (50 + number)


def write(source: Path, version: int = 0) -> None:
    source.mkdir(exist_ok=True)
    for number in range(PAGES):
        (source / f"p{number}.mdx").write_text(text(number, version))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture
def stored(tmp_path: Path, source: Path, chroma_server: ChromaServer) -> Iterator[Site]:
    """A site on a server, ingested but not mounted."""
    name = f"faults-{os.getpid()}-{abs(hash(tmp_path))}"
    site = Site(tmp_path / "site", chroma=chroma_server.url, collection=name)
    site.ingest(source)
    try:
        yield site
    finally:
        site.close()


def shows(site: Site, version: int = 0) -> bool:
    return all(
        (site.mountpoint / f"p{number}.mdx").read_text() == text(number, version)
        for number in range(PAGES)
    )


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


# Killed


def _while_it_starts(site: Site, kill: Callable[[], None]) -> None:
    target = ["-c", site.collection, "--chroma", site.chroma]
    command = [str(COMMANDS / "chromafuse"), "mount", str(site.mountpoint), *target]
    with subprocess.Popen(
        command, env=site.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ):
        kill()


def _while_it_idles(site: Site, kill: Callable[[], None]) -> None:
    site.mount()
    kill()


def _while_it_is_read(site: Site, kill: Callable[[], None]) -> None:
    site.mount("--warm", "off")
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        chance = random.Random(threading.get_ident())
        while not done.is_set():
            number = chance.randrange(PAGES)
            try:
                if (site.mountpoint / f"p{number}.mdx").read_text() != text(number):
                    wrong.append(number)
            except OSError as error:
                if error.errno not in DEAD:
                    wrong.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    kill()
    # A reader whose pages are all in the kernel's cache would never notice.
    done.set()
    for reader in readers:
        reader.join(GENEROUS)
        assert not reader.is_alive()
    assert not wrong


def _while_it_refreshes(site: Site, kill: Callable[[], None]) -> None:
    site.mount("--refresh", "0.01")
    command = [str(COMMANDS / "chromafuse"), "refresh", str(site.mountpoint)]
    with subprocess.Popen(
        command, env=site.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ):
        kill()


@pytest.mark.parametrize(
    ("during", "most"),
    [
        (_while_it_starts, 0.7),
        (_while_it_idles, 0.3),
        (_while_it_is_read, 0.4),
        (_while_it_refreshes, 0.3),
    ],
)
def test_after_a_kill_at_any_moment_the_next_mount_works_at_once(
    stored: Site, during: Callable[[Site, Callable[[], None]], None], most: float
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)

    def kill() -> None:
        time.sleep(chance.uniform(0, most))
        stored.kill()

    for _ in range(2):
        during(stored, kill)
        assert wait_until(lambda: not stored.daemons(), GENEROUS)
        stored.mount()
        assert shows(stored)
        stored.umount()


# Out of descriptors and disk


@pytest.mark.expects_log("reads from Chroma fail", "commands are not answered")
def test_out_of_descriptors_is_one_clear_line_each_and_passes(tmp_path: Path, source: Path) -> None:
    port = chroma_servers.free_port()
    log = tmp_path / "server.log"
    server = chroma_servers._start(tmp_path / "server", port, log)
    site = Site(tmp_path / "site", chroma=f"http://127.0.0.1:{port}")
    try:
        assert chroma_servers._answers(server, port), log.read_text()
        site.ingest(source)
        site.mount("--warm", "off", "--refresh", "0")
        (daemon,) = site.daemons()
        assert (site.mountpoint / "p0.mdx").read_text() == text(0)
        # What it has open goes on; for a new connection there is no descriptor.
        server.kill()
        server.wait()
        server = chroma_servers._start(tmp_path / "server", port, log)
        assert chroma_servers._answers(server, port), log.read_text()
        soft, hard = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon, resource.RLIMIT_NOFILE, (3, hard))
        for number in (1, 2, 3):
            with pytest.raises(OSError, match="Input/output error"):
                (site.mountpoint / f"p{number}.mdx").read_text()
        assert (site.mountpoint / "p0.mdx").read_text() == text(0)
        assert len(os.listdir(site.mountpoint)) == PAGES
        command = [str(COMMANDS / "chromafuse"), "status", str(site.mountpoint)]
        with subprocess.Popen(command, env=site.env, stdout=subprocess.DEVNULL) as asking:
            assert wait_until(lambda: "commands are not" in site.log.read_text(), GENEROUS)
            resource.prlimit(daemon, resource.RLIMIT_NOFILE, (soft, hard))
            assert asking.wait(GENEROUS) == 0
        assert wait_until(lambda: _reads(site, 1), GENEROUS)
        assert shows(site)
        assert site.daemons() == [daemon]
    finally:
        site.close()
        server.kill()
        server.wait()
    told = site.log.read_text()
    assert told.count("reads from Chroma fail") == 1
    assert told.count("commands are not answered") == 1
    assert "Too many open files (allow this process more open files: `ulimit -n`)" in told
    assert "Traceback" not in told


def _reads(site: Site, number: int) -> bool:
    try:
        return (site.mountpoint / f"p{number}.mdx").read_text() == text(number)
    except OSError:
        return False


def test_too_few_descriptors_to_begin_with_are_said_so(stored: Site) -> None:
    command = [str(COMMANDS / "chromafuse"), "mount", str(stored.mountpoint)]
    command += ["-c", stored.collection, "--chroma", stored.chroma]
    for few in (16, 40):
        done = subprocess.run(
            ["bash", "-c", f'ulimit -n {few}; exec "$@"', "bash", *command],
            env=stored.env, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 5, done
        assert f"may open only {few} files".encode() in done.stderr
        assert b"\n" not in done.stderr.strip()
    assert not stored.is_mounted()


@contextmanager
def full_disk(place: Path) -> Iterator[None]:
    """A tiny file system at ``place`` without a free byte."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", place], check=True)
    try:
        filler = os.open(place / "filler", os.O_WRONLY | os.O_CREAT)
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        assert os.write(filler, b"x" * free) == free
        os.close(filler)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_costs_only_what_was_to_be_kept_on_it(stored: Site, source: Path) -> None:
    cache = Path(stored.env["XDG_CACHE_HOME"]) / "chromafuse"
    cache.mkdir(mode=0o700, exist_ok=True)
    with full_disk(cache):
        stored.mount("--refresh", "0")
        assert shows(stored)
        write(source, 1)
        stored.ingest(source)
        assert shows(stored, 1)
        told = stored.log.read_text()
        assert "the tree is not kept on disk: No space left on device" in told
        assert "Traceback" not in told
        stored.umount()


def test_a_log_on_a_full_disk_stops_nothing(stored: Site, source: Path) -> None:
    state = Path(stored.env["XDG_STATE_HOME"]) / "chromafuse"
    state.mkdir(mode=0o700, exist_ok=True)
    with full_disk(state):
        # A file is made without a block, as long as nothing is in it.
        done = stored.command(
            "mount", stored.mountpoint, "-c", stored.collection, "--chroma", stored.chroma
        ).expect(0)
        assert done.err == b""
        assert shows(stored)
        write(source, 1)
        stored.ingest(source)
        assert shows(stored, 1)
        stored.umount()


# Very many

OPENING = """
import os, resource, sys
mount, files, pages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (files + 64,) * 2)
opened = [os.open(f"{mount}/p{n % pages}.mdx", os.O_RDONLY) for n in range(files)]
print("opened", flush=True)
sys.stdin.readline()
for number, descriptor in enumerate(opened):
    page = number % pages
    line = b"page %d version 0\\n" % page
    size = len(line) * (50 + page)
    offset = number % size
    expected = (line * (50 + page))[offset : offset + 100]
    found = os.pread(descriptor, 100, offset)
    assert found == expected, (number, found, expected)
print("read", flush=True)
"""


def test_ten_thousand_open_files_cost_the_daemon_nothing_each(stored: Site) -> None:
    stored.mount()
    assert shows(stored)
    (daemon,) = stored.daemons()
    before, memory = descriptors(daemon), resident(daemon)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    each = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most - 64)
    processes = []
    for first in range(0, OPEN_FILES, each):
        files = min(each, OPEN_FILES - first)
        words = [str(stored.mountpoint), str(files), str(PAGES)]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", OPENING, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"opened\n"
        # One for each process that was looked at, some for the allocator.
        assert descriptors(daemon) - before < 10 + len(processes)
        assert resident(daemon) - memory < 8 << 20
        for process in processes:
            out, _ = process.communicate(b"\n", timeout=GENEROUS)
            assert out == b"read\n"
        assert shows(stored)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_two_hundred_processes_and_as_many_threads_read_at_once(stored: Site) -> None:
    stored.mount("--warm", "off")
    pages = [stored.mountpoint / f"p{number % PAGES}.mdx" for number in range(200)]
    processes = [subprocess.Popen(["cat", page], stdout=subprocess.PIPE) for page in pages]
    barrier = threading.Barrier(200)

    def read(page: Path) -> str:
        barrier.wait(GENEROUS)
        return page.read_text()

    with ThreadPoolExecutor(200) as pool:
        threads = list(pool.map(read, pages))
    printed = [process.communicate(timeout=GENEROUS)[0].decode() for process in processes]
    expected = [text(number % PAGES) for number in range(200)]
    assert threads == expected
    assert printed == expected


@pytest.mark.parametrize("how", ["chromafuse", "system"])
def test_a_mount_detached_under_its_readers_serves_them_and_ends(stored: Site, how: str) -> None:
    stored.mount("--warm", "off")
    wrong: list[object] = []
    done, started = threading.Event(), threading.Barrier(9)
    counts = [0] * 8

    def read(at: int) -> None:
        directory = os.open(stored.mountpoint, os.O_RDONLY)
        started.wait(GENEROUS)
        try:
            while not done.is_set():
                number = (at + counts[at]) % PAGES
                descriptor = os.open(f"p{number}.mdx", os.O_RDONLY, dir_fd=directory)
                with open(descriptor, encoding="utf-8") as file:
                    if file.read() != text(number):
                        wrong.append(number)
                counts[at] += 1
        except OSError as error:
            wrong.append(error)
        finally:
            os.close(directory)

    readers = [threading.Thread(target=read, args=(at,)) for at in range(8)]
    for reader in readers:
        reader.start()
    started.wait(GENEROUS)
    if how == "chromafuse":
        detached = stored.command("umount", "--lazy", stored.mountpoint).expect(0)
        assert b"ends when nobody uses it" in detached.out
    else:
        subprocess.run(["fusermount3", "-u", "-z", stored.mountpoint], check=True)
    assert not stored.is_mounted()
    seen = list(counts)
    assert wait_until(lambda: all(a > b for a, b in zip(counts, seen, strict=True)), GENEROUS)
    done.set()
    for reader in readers:
        reader.join(GENEROUS)
        assert not reader.is_alive()
    assert not wrong
    assert wait_until(lambda: not stored.daemons(), GENEROUS)
    stored.mount()
    assert shows(stored)
