"""The daemon as a service: what it tells its manager, and what it tells on a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Site, wait_until

pytestmark = pytest.mark.xdist_group("mount-service")


@pytest.fixture
def stored(site: Site, tmp_path: Path) -> Site:
    """A site of one page, ingested but not mounted."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    site.ingest(source)
    return site


def test_sigusr1_writes_the_stacks_to_the_log_and_the_mount_goes_on(stored: Site) -> None:
    stored.mount("--log-level", "error")
    os.kill(stored.daemons()[0], signal.SIGUSR1)
    assert wait_until(lambda: " stacks end\n" in stored.log.read_text(), 20)
    text = stored.log.read_text()
    assert " INFO chromafuse.daemon.stacks stacks threads=" in text
    assert "stack task='<init>'" in text
    assert "serve_kernel" in text
    assert (stored.mountpoint / "index.mdx").read_text() == "# Home\n"


class Manager:
    """A service manager's socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(60)

    def next(self) -> list[str]:
        """The lines of the next message."""
        return self._socket.recv(65_536).decode().split("\n")

    def until(self, line: str) -> list[list[str]]:
        """The messages as far as the one with ``line``."""
        found = [self.next()]
        while line not in found[-1]:
            found.append(self.next())
        return found

    def close(self) -> None:
        self._socket.close()


@contextmanager
def managed(
    site: Site, address: str, **env: str
) -> Iterator[tuple[Manager, subprocess.Popen[bytes]]]:
    """A mount in the foreground that a manager has started."""
    manager = Manager(address)
    target = ["--collection", site.collection, "--chroma", site.chroma, "--foreground"]
    command = [str(COMMANDS / "chromafuse"), "mount", str(site.mountpoint), *target]
    with subprocess.Popen(
        command,
        env=site.env | {"NOTIFY_SOCKET": address} | env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield manager, process
        finally:
            process.kill()
            manager.close()


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_ready_is_told_when_the_mount_answers_and_the_end_when_it_begins(
    stored: Site, kind: str
) -> None:
    address = f"{stored.env['XDG_RUNTIME_DIR']}/notify"
    address = f"@{address}" if kind == "abstract" else address
    with managed(stored, address) as (manager, process):
        *before, ready = manager.until("READY=1")
        assert os.listdir(stored.mountpoint) == ["index.mdx"]
        assert not any("READY=1" in message for message in before)
        assert any(line.startswith("STATUS=1 pages from collection site in ") for line in ready)
        process.send_signal(signal.SIGTERM)
        assert manager.next() == ["STOPPING=1", "STATUS=stopping"]
        assert process.wait(20) == 0
    assert not stored.is_mounted()


def test_an_unmount_from_outside_is_told_as_the_end(stored: Site) -> None:
    with managed(stored, f"{stored.env['XDG_RUNTIME_DIR']}/notify") as (manager, process):
        manager.until("READY=1")
        stored.command("umount", stored.mountpoint).expect(0)
        assert manager.next()[0] == "STOPPING=1"
        assert process.wait(20) == 0


def test_the_watchdog_is_answered_by_the_loop(stored: Site) -> None:
    """Again and again; not by a process that is not the one to be watched."""
    address = f"{stored.env['XDG_RUNTIME_DIR']}/notify"
    with managed(stored, address, WATCHDOG_USEC="100000") as (manager, _):
        manager.until("READY=1")
        assert [manager.next() for _ in range(5)] == [["WATCHDOG=1"]] * 5
        stored.command("umount", stored.mountpoint).expect(0)
    os.unlink(address)
    others = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    with managed(stored, address, **others) as (manager, process):
        assert ["WATCHDOG=1"] not in manager.until("READY=1")
        process.send_signal(signal.SIGTERM)
        assert manager.next()[0] == "STOPPING=1"


def test_a_start_that_fails_is_never_told_ready(stored: Site) -> None:
    (stored.mountpoint / "file").touch()
    with managed(stored, f"{stored.env['XDG_RUNTIME_DIR']}/notify") as (manager, process):
        assert process.wait(60) == 5
        manager._socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.next()
    (stored.mountpoint / "file").unlink()


def test_a_manager_that_is_gone_does_not_matter(stored: Site) -> None:
    with managed(stored, f"{stored.env['XDG_RUNTIME_DIR']}/notify", WATCHDOG_USEC="50000") as (
        manager,
        process,
    ):
        manager.until("READY=1")
        manager.close()
        assert os.listdir(stored.mountpoint) == ["index.mdx"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
