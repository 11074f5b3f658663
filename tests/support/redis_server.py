"""A real ``redis-server`` (Debian) that can be stopped, frozen and started again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.support.chroma_server import free_port

START_SECONDS = 20.0


class RedisServer:
    """On a unix socket, or on loopback if ``password`` is given; nothing is ever on disk."""

    def __init__(self, directory: Path, password: str | None, options: Mapping[str, str]) -> None:
        self._directory = directory
        self._password = password
        self._options = dict(options)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0 if password is None else free_port()
        if password is None:
            self.url = f"unix://{directory}/redis.sock"
        else:
            self.url = f"redis://:{password}@127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url, socket_timeout=20)

    def start(self) -> None:
        """Start it, empty, at the same address as before."""
        assert self._process is None, "it runs already"
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._directory),
            "save": "",
            "appendonly": "no",
            **self._options,
        }
        if self._password is None:
            options["unixsocket"] = f"{self._directory}/redis.sock"
        else:
            options["requirepass"] = self._password
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        log = self._directory / "redis.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["redis-server", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            running = self._process.poll() is None and time.monotonic() < end
            assert running, f"redis-server does not start: {log.read_text(errors='replace')}"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def stop(self) -> None:
        """End it at once; what it held is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        self.client.connection_pool.disconnect()

    def freeze(self) -> None:
        """Keep it from answering until ``thaw``; connections are still taken."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo ``freeze``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def names(self) -> list[bytes]:
        """The names of all that it holds, sorted."""
        return sorted(name for name in self.client.keys("*") if isinstance(name, bytes))

    def calls(self, command: str) -> int:
        """How many times ``command`` was called since the last ``forget_calls``."""
        found = self.client.info("commandstats").get(f"cmdstat_{command}")
        return 0 if found is None else int(found["calls"])

    def forget_calls(self) -> None:
        """Count calls from here on."""
        self.client.config_resetstat()

    def logged_commands(self) -> str:
        """What the server itself wrote to its log."""
        return (self._directory / "redis.log").read_text(errors="replace")


@contextmanager
def running_redis(password: str | None = None, **options: str) -> Iterator[RedisServer]:
    """Run a server in a directory of its own; ``options`` are those of its configuration."""
    assert shutil.which("redis-server"), "apt-get install redis-server"
    # A socket's path has to be short, and pytest's directories are not.
    with tempfile.TemporaryDirectory(prefix="cf-redis-") as directory:
        server = RedisServer(Path(directory), password, options)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            server.client.close()
