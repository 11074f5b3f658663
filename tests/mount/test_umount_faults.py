"""Ending mounts whose daemon is dead, killed but unable to end, or hangs: nothing waits for it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mount.harness import Site, wait_until
from tests.support.chroma_server import running_chroma
from tests.support.holding import HOLDING

pytestmark = pytest.mark.xdist_group("mount-umount-faults")

GENEROUS = 30.0
TEXT = "some text\n" * 1_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "one.mdx").write_text(TEXT)
    return source


@contextmanager
def users(directory: Path) -> Iterator[None]:
    """Processes that have a working directory, an open directory and an open file in a mount."""
    line = "import sys; print(sys.argv, flush=True); sys.stdin.read()"
    program = [sys.executable, "-c", line]
    opened = [os.open(directory / "sub", os.O_RDONLY), os.open(directory / "sub/one.mdx", 0)]
    with subprocess.Popen(
        program,
        cwd=directory / "sub",
        pass_fds=opened,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        for descriptor in opened:
            os.close(descriptor)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def _waits(pid: int) -> bool:
    """Whether a process waits for the kernel."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "SD"


def test_a_dead_mount_goes_whoever_uses_it(site: Site, source: Path) -> None:
    site.ingest(source)
    site.mount()
    with users(site.mountpoint):
        site.kill()
        site.command("umount", site.mountpoint, deadline=GENEROUS).expect(0)
        assert not site.is_mounted()
        site.mount()
        assert (site.mountpoint / "sub/one.mdx").read_text() == TEXT
    with users(site.mountpoint):
        site.kill()
        site.mount()
        assert (site.mountpoint / "sub/one.mdx").read_text() == TEXT


def test_a_daemon_that_hangs_is_detached_and_its_readers_get_an_error(
    site: Site, source: Path
) -> None:
    site.ingest(source)
    site.mount("--warm", "off")
    (pid,) = site.daemons()
    with users(site.mountpoint):
        os.kill(pid, signal.SIGSTOP)
        with subprocess.Popen(
            ["cat", site.mountpoint / "sub/one.mdx"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as reader:
            there = site.command(
                "mount", site.mountpoint, "-c", site.collection, "--chroma", site.chroma
            ).expect(5)
            assert b"its daemon does not answer" in there.err
            assert b"umount --lazy" in there.err
            assert reader.poll() is None
            done = site.command("umount", "--lazy", site.mountpoint, deadline=GENEROUS).expect(0)
            assert f"kill -9 {pid}".encode() in done.out
            _, said = reader.communicate(timeout=GENEROUS)
            assert os.strerror(errno.ECONNABORTED).encode() in said
        assert not site.is_mounted()
        site.kill()
        assert wait_until(lambda: not site.daemons(), GENEROUS)
        site.mount()
        assert (site.mountpoint / "sub/one.mdx").read_text() == TEXT


def test_a_session_that_is_held_is_closed_and_a_killed_daemon_that_cannot_end_is_in_nobodys_way(
    tmp_path: Path, source: Path
) -> None:
    """The kernel waits for a page before it lets the daemon's thread go that forgets a name."""
    with running_chroma(tmp_path / "server") as server:
        site = Site(tmp_path / "site", chroma=server.url)
        try:
            site.ingest(source)
            site.hub("--warm", "off", "--deadline", "60")
            held, other = site.open_session(), site.open_session()
            page, directory = held / "sub/one.mdx", held / "sub"
            assert page.exists()
            os.kill(server.pid, signal.SIGSTOP)
            command = [sys.executable, "-c", HOLDING, str(page), str(directory)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
                assert holder.stdout is not None
                assert holder.stdout.readline() == b"listing\n"
                assert wait_until(lambda: _waits(holder.pid), GENEROUS)
                done = site.command("session", "close", held).expect(0)
                assert b"closed; a process inside" in done.out
                assert not held.exists()
                assert site.command("session", "close", other).expect(0).out == b""
                assert holder.poll() is None
                site.kill()
                told = site.command("status", site.mountpoint, deadline=GENEROUS).expect(1)
                assert b"daemon is gone" in told.out
                assert holder.poll() is None, "nothing was held"
                site.command("umount", site.mountpoint, deadline=GENEROUS).expect(0)
                assert not site.is_mounted()
                assert wait_until(lambda: not site.daemons(), GENEROUS)
            os.kill(server.pid, signal.SIGCONT)
            site.hub()
            assert (site.open_session() / "sub/one.mdx").read_text() == TEXT
        finally:
            os.kill(server.pid, signal.SIGCONT)
            site.close()
