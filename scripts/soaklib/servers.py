"""Servers on loopback that can be stopped, killed and started again at the same place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from benchlib.lab import COMMANDS, Lab
from benchlib.model import BenchError

START_SECONDS = 60.0
BUCKET = "soak"
KEYS = ("SOAKACCESSKEY", "soaksecretkey0123456789")


class Server:
    """One server; ``ready`` tells whether it answers."""

    def __init__(
        self, lab: Lab, name: str, command: Sequence[str], ready: Callable[[], bool]
    ) -> None:
        self.name = name
        self._command = command
        self._environment = lab.environment
        self._ready = ready
        self._log = lab.root / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers. Raises ``BenchError``."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
                raise BenchError(f"{self.name} does not start: {last[:300]}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


def chroma(lab: Lab) -> tuple[Server, str]:
    """Start ``chroma run``; return it and its URL."""
    port = free_port()
    place = lab.new_directory("chroma")
    command = [str(COMMANDS / "chroma"), "run", "--host", "127.0.0.1", "--port", str(port)]
    server = Server(lab, "chroma", [*command, "--path", str(place)], lambda: _listens(port))
    return server, f"http://127.0.0.1:{port}"


def redis(lab: Lab) -> tuple[Server, str]:
    """Start ``redis-server`` with 8 MB of memory; return it and its URL."""
    place = lab.new_directory("redis")
    path = place / "socket"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(place)]
    limits = ["--save", "", "--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru"]
    return Server(lab, "redis", [*command, *limits], lambda: _listens_at(path)), f"unix://{path}"


def s3(lab: Lab) -> tuple[Server, str]:
    """Start ``rclone serve s3`` with one bucket; return it and its URL."""
    port = free_port()
    place = lab.new_directory("s3")
    (place / "buckets" / BUCKET).mkdir(parents=True)
    command = [
        str(Path(sys.executable).parent / "rclone"), "serve", "s3", str(place / "buckets"),
        "--config", "/dev/null", "--addr", f"127.0.0.1:{port}", "--auth-key", ",".join(KEYS),
        "--vfs-cache-mode", "off", "--cache-dir", str(place / "cache"),
    ]  # fmt: skip
    return Server(lab, "s3", command, lambda: _listens(port)), f"http://127.0.0.1:{port}"


def free_port() -> int:
    """Return a port on loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _listens_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
