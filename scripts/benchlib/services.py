"""Chroma in the ways it can be had, and the work done in processes of their own."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchlib.corpora import Corpus
from benchlib.lab import COMMANDS, Lab, Ran
from benchlib.model import BenchError, CorpusFacts

COLLECTION = "bench"
START_SECONDS = 60.0
WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker said, and what its process took as a whole."""

    told: dict[str, float]
    ran: Ran


def work(lab: Lab, task: str, target: str, path: Path) -> Work:
    """Run one task of ``worker`` on the collection of ``target``."""
    ran = lab.run([sys.executable, str(WORKER), task, target, COLLECTION, str(path)])
    return Work(json.loads(ran.output), ran)


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
        end = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                log = (place / "log").read_text(errors="replace").strip().split("\n")[-1]
                raise BenchError(f"`chroma run` does not start: {log[:300]}")
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"


Backend = Callable[[Lab], AbstractContextManager[str]]
BACKENDS: dict[str, Backend] = {"embedded": embedded, "chroma run": chroma_run}
"""Each yields what ``--chroma`` takes; the database is empty."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", "/api/v2/heartbeat")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
