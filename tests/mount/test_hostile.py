"""Servers that never end an answer, mounts that race, daemons that do not answer."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Site, mount_line, mount_lines, wait_until

pytestmark = pytest.mark.xdist_group("mount-hostile")

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@contextmanager
def _server(kind: str) -> Iterator[str]:
    """A server that drips its header, drips its body, or floods."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        stop = threading.Event()

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65_536)
                if kind != "header drips":
                    connection.sendall(HEAD + b"\r\n")
                while not stop.is_set():
                    if kind == "flood":
                        connection.sendall(b" " * 1_000_000)
                    else:
                        connection.sendall(b"x")
                        stop.wait(0.2)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop.set()


@pytest.mark.parametrize("kind", ["header drips", "body drips", "flood"])
def test_an_answer_that_never_ends_is_an_error_within_the_deadline(site: Site, kind: str) -> None:
    with _server(kind) as target:
        started = time.monotonic()
        done = site.command(
            "tree", "-c", "docs", "--chroma", target, "--deadline", "2", deadline=20
        ).expect(6)
        assert time.monotonic() - started < 8
    assert done.err.startswith(b"chromafuse: ")
    assert done.err.strip().count(b"\n") == 0


@pytest.fixture
def small(site: Site, tmp_path: Path) -> Site:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    site.ingest(source)
    return site


def _mount(site: Site) -> list[str]:
    words = [str(COMMANDS / "chromafuse"), "mount", str(site.mountpoint)]
    return [*words, "--collection", site.collection, "--chroma", site.chroma]


def _pid(site: Site) -> int:
    answers = json.loads(site.command("status", site.mountpoint, "--json").expect(0).out)
    return int(answers[0]["pid"])


def test_of_two_mounts_at_once_one_wins(small: Site) -> None:
    for _ in range(3):
        running = [
            subprocess.Popen(_mount(small), env=small.env, stderr=subprocess.PIPE) for _ in range(3)
        ]
        codes = []
        for process in running:
            process.communicate(timeout=60)
            codes.append(process.returncode)
        assert sorted(codes) == [0, 5, 5]
        points = [line for line in mount_lines() if line.point == str(small.mountpoint)]
        assert len(points) == 1
        assert _pid(small) in small.daemons()
        small.umount()
        assert mount_line(small.mountpoint) is None


def test_an_old_daemon_that_ends_late_leaves_the_new_mount_alone(small: Site) -> None:
    small.mount()
    old = _pid(small)
    descriptor = os.open(small.mountpoint / "index.mdx", os.O_RDONLY)
    try:
        small.command("umount", "--lazy", small.mountpoint).expect(0)
        small.mount()
        os.kill(old, signal.SIGTERM)
        assert wait_until(lambda: old not in small.daemons(), 20)
    finally:
        with suppress(OSError):
            os.close(descriptor)
    assert (small.mountpoint / "index.mdx").read_text() == "# Home\n"
    assert _pid(small) != old


def test_umount_of_a_stopped_daemon_says_so_in_time(small: Site) -> None:
    small.mount()
    pid = _pid(small)
    os.kill(pid, signal.SIGSTOP)
    try:
        done = small.command("umount", small.mountpoint, deadline=20).expect(9)
        assert b"does not answer" in done.err
        assert b"umount --lazy" in done.err
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (small.mountpoint / "index.mdx").read_text() == "# Home\n"
