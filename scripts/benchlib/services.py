"""Chroma in the ways it can be had, and the work done in processes of their own."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchlib.corpora import Corpus
from benchlib.lab import COMMANDS, Lab, Ran
from benchlib.model import BenchError, CorpusFacts

COLLECTION = "bench"
START_SECONDS = 60.0
S3_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "BENCHACCESSKEY",
    "AWS_SECRET_ACCESS_KEY": "benchsecretkey0123456789",
}
WORKER = Path(__file__).with_name("worker.py")
PROXY = Path(__file__).with_name("proxy.py")


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker said, and what its process took as a whole."""

    told: dict[str, float]
    ran: Ran

    @classmethod
    def of(cls, ran: Ran) -> Work:
        return cls(json.loads(ran.output), ran)


def work(lab: Lab, task: str, target: str, path: Path | str) -> Work:
    """Run one task of ``worker`` on the collection of ``target``."""
    return Work.of(lab.run([sys.executable, str(WORKER), task, target, COLLECTION, str(path)]))


def facts(corpus: Corpus, ingested: Work) -> CorpusFacts:
    """Return how large ``corpus`` is, by what its ingest told."""
    told = ingested.told
    return CorpusFacts(
        corpus.name,
        int(told["pages"]),
        int(told["bytes"]),
        int(told["chunks"]),
        int(told["records"]),
    )


@contextmanager
def embedded(lab: Lab) -> Iterator[str]:
    """Yield a directory for an embedded database, not there yet."""
    yield str(lab.new_directory("embedded") / "chroma")


@contextmanager
def chroma_run(lab: Lab) -> Iterator[str]:
    """Yield the URL of a new ``chroma run`` on loopback."""
    place = lab.new_directory("server")
    port = _free_port()
    command = [str(COMMANDS / "chroma"), "run", "--host", "127.0.0.1", "--port", str(port)]
    with lab.service([*command, "--path", str(place / "chroma")], place / "log") as process:
        wait_until(lambda: _answers(port), process, place / "log", "`chroma run`")
        yield f"http://127.0.0.1:{port}"


Backend = Callable[[Lab], AbstractContextManager[str]]
BACKENDS: dict[str, Backend] = {"embedded": embedded, "chroma run": chroma_run}
"""Each yields what ``--chroma`` takes; the database is empty."""


@contextmanager
def delayed(lab: Lab, target: str, milliseconds: int) -> Iterator[str]:
    """Yield a URL where every request to the server ``target`` takes so much longer."""
    port, log = _free_port(), lab.new_directory("proxy") / "log"
    command = [sys.executable, str(PROXY), str(port), target.rpartition(":")[2], str(milliseconds)]
    with lab.service(command, log) as process:
        wait_until(lambda: _answers(port), process, log, "the proxy")
        yield f"http://127.0.0.1:{port}"


@contextmanager
def redis_server(lab: Lab) -> Iterator[str]:
    """Yield the URL of a new, empty ``redis-server`` on a socket of its own."""
    place = lab.new_directory("redis")
    path, log = place / "socket", place / "log"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(place)]
    with lab.service([*command, "--save", "", "--appendonly", "no"], log) as process:
        wait_until(path.exists, process, log, "`redis-server`")
        yield f"unix://{path}"


@contextmanager
def s3_server(lab: Lab, bucket: str, files: Sequence[Path]) -> Iterator[str]:
    """Yield the URL of a new ``rclone serve s3`` with ``files`` in ``bucket``.

    Whom it lets in is in the lab's environment from now on, where everybody looks for it.
    """
    place, port = lab.new_directory("s3"), _free_port()
    (place / "buckets" / bucket).mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, place / "buckets" / bucket / file.name)
    lab.environment.update(S3_CREDENTIALS)
    command = [
        str(COMMANDS / "rclone"), "serve", "s3", str(place / "buckets"), "--config", "/dev/null",
        "--addr", f"127.0.0.1:{port}", "--auth-key", ",".join(S3_CREDENTIALS.values()),
        # It is computed of the whole object at each request, and md5 would take most of the time.
        "--etag-hash", "crc32", "--vfs-cache-mode", "off", "--cache-dir", str(place / "cache"),
    ]  # fmt: skip
    with lab.service(command, place / "log") as process:
        wait_until(lambda: _listens(port), process, place / "log", "`rclone serve s3`")
        yield f"http://127.0.0.1:{port}"


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, name: str
) -> None:
    """Wait until the service ``name`` is ready. Raises ``BenchError`` with its last words."""
    end = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            last = log.read_text(errors="replace").strip().split("\n")[-1]
            raise BenchError(f"{name} does not start: {last[:300]}")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", "/api/v2/heartbeat")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
