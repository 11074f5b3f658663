"""Chroma gone, hanging or wrong: what is cached goes on, the rest is EIO in time."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chromadb
import pytest

from tests.mount.harness import Site, wait_until
from tests.support import chroma_server

pytestmark = pytest.mark.xdist_group("mount-faults")

PAGES = 12
DEADLINE = 2.0


def _text(number: int) -> str:
    return "".join(f"page {number} line {line}\n" for line in range(400))


def _source(base: Path) -> Path:
    source = base / "source"
    (source / "sub").mkdir(parents=True)
    for number in range(PAGES):
        (source / "sub" / f"p{number}.mdx").write_text(_text(number))
    return source


class Served:
    """A site mounted from a real server that can be stopped, frozen and started again."""

    def __init__(self, site: Site, directory: Path, port: int) -> None:
        self.site = site
        self._directory = directory
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        log = self._directory.with_name("server.log")
        self._process = chroma_server._start(self._directory, self._port, log)
        assert chroma_server._answers(self._process, self._port), log.read_text()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def page(self, number: int) -> Path:
        return self.site.mountpoint / "sub" / f"p{number}.mdx"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A mount with a short deadline on a server of its own; page 0 is cached."""
    port = chroma_server.free_port()
    site = Site(tmp_path, chroma=f"http://127.0.0.1:{port}")
    served = Served(site, tmp_path / "server", port)
    try:
        site.ingest(_source(tmp_path))
        site.mount("--deadline", str(DEADLINE), "--warm", "off")
        assert served.page(0).read_text() == _text(0)
        yield served
    finally:
        served.signal(signal.SIGCONT)
        served.kill()
        site.close()


@contextmanager
def _fails_with_eio(within: float) -> Iterator[None]:
    started = time.monotonic()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
        yield
    assert caught.value.errno == errno.EIO
    assert time.monotonic() - started < within


def _still_lists_and_serves_the_cached(served: Served) -> None:
    started = time.monotonic()
    assert len(os.listdir(served.site.mountpoint / "sub")) == PAGES
    assert served.page(3).stat().st_size == len(_text(3))
    assert served.page(0).read_text() == _text(0)
    assert time.monotonic() - started < 0.5


@pytest.mark.expects_log("reads from Chroma fail")
def test_a_killed_server_costs_only_what_is_not_cached_and_comes_back(served: Served) -> None:
    served.kill()
    _still_lists_and_serves_the_cached(served)
    for number in (1, 2, 3):
        with _fails_with_eio(DEADLINE + 1):
            served.page(number).read_text()
    _still_lists_and_serves_the_cached(served)
    served.start()
    assert wait_until(lambda: _reads(served, 1), 10)
    for number in range(PAGES):
        assert served.page(number).read_text() == _text(number)
    log = served.site.log.read_text()
    assert log.count("reads from Chroma fail") == 1
    assert log.count("reads from Chroma work again") == 1


def _reads(served: Served, number: int) -> bool:
    try:
        return served.page(number).read_text() == _text(number)
    except OSError:
        return False


@pytest.mark.expects_log("reads from Chroma fail")
def test_a_frozen_server_is_eio_within_the_deadline_and_comes_back(served: Served) -> None:
    served.signal(signal.SIGSTOP)
    _still_lists_and_serves_the_cached(served)
    with _fails_with_eio(DEADLINE + 1.5):
        served.page(1).read_text()
    done = subprocess.run(["cat", served.page(2)], capture_output=True, check=False, timeout=20)
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"Input/output error" in done.stderr
    _still_lists_and_serves_the_cached(served)
    served.signal(signal.SIGCONT)
    assert wait_until(lambda: _reads(served, 1), 10)
    assert served.page(2).read_text() == _text(2)


@pytest.mark.expects_log("reads from Chroma fail")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_reader_that_waits_dies_at_once(served: Served, number: signal.Signals) -> None:
    served.signal(signal.SIGSTOP)
    with subprocess.Popen(["cat", served.page(1)], stdout=subprocess.DEVNULL) as reader:
        time.sleep(0.5)
        assert reader.poll() is None
        reader.send_signal(number)
        started = time.monotonic()
        reader.wait(DEADLINE)
        assert time.monotonic() - started < 0.5


@pytest.mark.expects_log("reads from Chroma fail")
def test_two_hundred_waiting_readers_do_not_stop_listing(served: Served) -> None:
    served.signal(signal.SIGSTOP)
    outcomes: list[int | None] = []

    def read(number: int) -> None:
        try:
            served.page(1 + number % (PAGES - 1)).read_text()
        except OSError as error:
            outcomes.append(error.errno)

    with ThreadPoolExecutor(200) as pool:
        for number in range(200):
            pool.submit(read, number)
        time.sleep(0.5)
        _still_lists_and_serves_the_cached(served)
    assert set(outcomes) == {errno.EIO}
    assert len(outcomes) == 200


def test_fifty_readers_of_one_cold_page_make_one_request(served: Served) -> None:
    barrier = threading.Barrier(50)

    def read(_: int) -> str:
        barrier.wait()
        return served.page(5).read_text()

    before = _requests(served.site)
    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(read, range(50))) == {_text(5)}
    assert _requests(served.site) - before == 1


def test_listing_and_stat_make_no_request(served: Served) -> None:
    before = _requests(served.site)
    for command in (["find", "."], ["ls", "-lR"], ["du", "-a"], ["tree"], ["find", "-size", "+1k"]):
        subprocess.run(command, cwd=served.site.mountpoint, check=True, capture_output=True)
    assert _requests(served.site) == before


def _requests(site: Site) -> int:
    answers = json.loads(site.command("status", site.mountpoint, "--json").expect(0).out)
    return int(answers[0]["reads"]["requests"])


# Wrong chunks


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[Site, Any]]:
    """An ingested site that is not mounted yet, and its collection to spoil."""
    site = Site(tmp_path)
    site.ingest(_source(tmp_path))
    client: Any = chromadb.PersistentClient(site.chroma)
    try:
        yield site, client.get_collection(site.collection, embedding_function=None)
    finally:
        client.close()
        site.close()


def _chunks(collection: Any, slug: str) -> dict[int, str]:
    found = collection.get(where={"page": slug}, include=["metadatas"])
    return {
        metadata["chunk_index"]: record_id
        for record_id, metadata in zip(found["ids"], found["metadatas"], strict=True)
    }


def _delete_one(collection: Any, chunks: dict[int, str]) -> None:
    collection.delete(ids=[chunks[1]])


def _delete_last(collection: Any, chunks: dict[int, str]) -> None:
    collection.delete(ids=[chunks[max(chunks)]])


def _delete_all(collection: Any, chunks: dict[int, str]) -> None:
    collection.delete(ids=list(chunks.values()))


def _double_one(collection: Any, chunks: dict[int, str]) -> None:
    collection.update(ids=[chunks[1]], metadatas=[{"chunk_index": 0}])


def _swap_two(collection: Any, chunks: dict[int, str]) -> None:
    metadatas = [{"chunk_index": 1}, {"chunk_index": 0}]
    collection.update(ids=[chunks[0], chunks[1]], metadatas=metadatas)


def _change_letters(collection: Any, chunks: dict[int, str]) -> None:
    text = collection.get(ids=[chunks[0]])["documents"][0]
    changed = text.replace("page", "pega")
    collection.update(ids=[chunks[0]], documents=[changed], embeddings=[[0.0]])


def _shorten(collection: Any, chunks: dict[int, str]) -> None:
    collection.update(ids=[chunks[0]], documents=["x"], embeddings=[[0.0]])


def _spoil_index(collection: Any, chunks: dict[int, str]) -> None:
    collection.update(ids=[chunks[0]], metadatas=[{"chunk_index": "zero"}])


@pytest.mark.expects_log("page=sub/p4 cannot be read")
@pytest.mark.parametrize(
    "spoil",
    [
        _delete_one,
        _delete_last,
        _delete_all,
        _double_one,
        _swap_two,
        _change_letters,
        _shorten,
        _spoil_index,
    ],
)
def test_a_page_with_wrong_chunks_is_eio_and_the_others_go_on(
    damaged: tuple[Site, Any], spoil: Any
) -> None:
    site, collection = damaged
    chunks = _chunks(collection, "sub/p4")
    assert len(chunks) > 2
    spoil(collection, chunks)
    site.mount()
    pages = site.mountpoint / "sub"
    for _ in range(3):
        done = subprocess.run(["cat", pages / "p4.mdx"], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"Input/output error" in done.stderr
    for number in set(range(PAGES)) - {4}:
        assert (pages / f"p{number}.mdx").read_text() == _text(number)
    assert site.log.read_text().count("page=sub/p4") == 1


def test_an_unexpected_error_in_any_handler_is_eio_and_the_mount_lives(tmp_path: Path) -> None:
    """A mount whose namespace and reader raise what nobody foresaw."""
    script = Path(__file__).with_name("sabotaged_mount.py")
    point = tmp_path / "point"
    point.mkdir()
    log = (tmp_path / "log").open("wb")
    command = [sys.executable, str(script), str(point)]
    with log, subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL) as process:
        try:
            assert wait_until(lambda: os.path.ismount(point), 20)
            _every_call_fails_with_eio(point)
            _every_call_fails_with_eio(point)
            assert process.poll() is None
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(point)], check=False)
            process.wait(20)
    text = (tmp_path / "log").read_text()
    for handler in _calls(point):
        assert f"unexpected error in {handler}" in text


def _calls(point: Path) -> dict[str, Callable[[], object]]:
    return {
        "lookup": lambda: os.stat(point / "boom"),
        "opendir": lambda: os.listdir(point / "d"),
        "open": lambda: os.open(point / "f", os.O_RDONLY),
        "getxattr": lambda: os.getxattr(point / "f", "user.x"),
        "listxattr": lambda: os.listxattr(point / "f"),
        "statfs": lambda: os.statvfs(point),
        "getattr": lambda: os.stat(point / "stale"),
        "read": (point / "unread").read_bytes,
        "readdir": lambda: os.listdir(point / "unlisted"),
    }


def _every_call_fails_with_eio(point: Path) -> None:
    for name, call in _calls(point).items():
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
            call()
        assert caught.value.errno == errno.EIO, name
