"""A real ``chroma run`` on loopback for the length of a block."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import ServerProcess

START_SECONDS = 60.0
STOP_SECONDS = 15.0
_TRIES = 3


@dataclass(frozen=True, slots=True)
class ChromaServer:
    """Where a server answers, which process it is, and the directory it keeps its data in."""

    url: str
    pid: int
    directory: Path


class ChromaProcess(ServerProcess):
    """A server that a test stops, freezes and starts again."""

    def __init__(self, directory: Path) -> None:
        super().__init__(self._answering)
        self.port = free_port()
        self._directory = directory
        self._log = directory.with_name(directory.name + ".log")

    def _answering(self) -> subprocess.Popen[bytes]:
        process = _start(self._directory, self.port, self._log)
        if not _answers(process, self.port):
            _stop(process)
            raise AssertionError(self._log.read_text(errors="replace"))
        return process


@contextmanager
def running_chroma(directory: Path) -> Iterator[ChromaServer]:
    """Start ``chroma run`` on a free port, wait until it answers, stop it behind the block."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory.with_name(directory.name + ".log")
    for _ in range(_TRIES):
        port = free_port()
        process = _start(directory, port, log)
        if _answers(process, port):
            break
        _stop(process)
    else:
        raise AssertionError(f"chroma run does not start: {log.read_text(errors='replace')}")
    try:
        yield ChromaServer(f"http://127.0.0.1:{port}", process.pid, directory)
    finally:
        _stop(process)


def free_port() -> int:
    """A port of loopback on which nobody listens at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(directory: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).parent / "chroma"), "run"]
    options = ["--path", str(directory), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        return subprocess.Popen(
            command + options, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=5):
                # Somebody else may have taken the port in the meantime.
                return process.poll() is None
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
