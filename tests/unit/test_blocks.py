"""Objects read block by block: right bytes, each fetched once, no more of them than needed."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from chromafuse.domain.access import PUBLIC
from chromafuse.domain.errors import BlobChanged, BlobMissing, StoreUnavailable
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.pointer import Location, Place, Pointer, parse_place
from chromafuse.ports import Blob, Skipped
from chromafuse.reader import BlockReader, limits
from chromafuse.stores.files import FileBlobs
from chromafuse.stores.memory import MemoryCache

BLOCK = 1_000
SIZE = 20_345
DATA = random.Random(5).randbytes(SIZE)


class GatedBlobs:
    """Real files; reads wait while the gate is shut, and fail with ``failure``."""

    def __init__(self, inner: FileBlobs) -> None:
        self._inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.after = 0
        """How many pieces of an answer come before the gate and the failure."""
        self.asked: list[tuple[int, int]] = []

    def read(self, pointer: Pointer, offset: int, length: int) -> bytes:
        return b"".join(self.stream(pointer, offset, (length,)))

    def stream(self, pointer: Pointer, offset: int, lengths: Sequence[int]) -> Iterator[bytes]:
        self.asked.append((offset, sum(lengths)))
        pieces = self._inner.stream(pointer, offset, lengths)
        yield from itertools.islice(pieces, self.after)
        self.gate.wait()
        if self.failure is not None:
            raise self.failure
        yield from pieces

    def head(self, location: Location) -> Blob:
        return self._inner.head(location)

    def scan(self, place: Place) -> Iterator[Blob | Skipped]:
        return self._inner.scan(place)

    def close(self) -> None:
        self._inner.close()

    @property
    def numbers(self) -> list[int]:
        """The blocks that were asked for."""
        return sorted(
            number
            for offset, length in self.asked
            for number in range(offset // BLOCK, -(-(offset + length) // BLOCK))
        )


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def blobs(tmp_path: Path) -> Iterator[GatedBlobs]:
    (tmp_path / "x.json").write_bytes(DATA)
    blobs = GatedBlobs(FileBlobs([parse_place(f"file://{tmp_path}")]))
    yield blobs
    blobs.gate.set()


@pytest.fixture
def pointer(tmp_path: Path, blobs: GatedBlobs) -> Pointer:
    return blobs.head(Location("file", "", str(tmp_path / "x.json")[1:])).pointer


def make(
    blobs: GatedBlobs, *, cache: int = 1 << 20, deadline: float = 20.0, grep_max: int = 8 << 20
) -> BlockReader:
    return BlockReader(blobs, "here", MemoryCache(cache), deadline, grep_max=grep_max)


@asynccontextmanager
async def running(reader: BlockReader) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        await wait_all_tasks_blocked()
        yield nursery
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cache", [1 << 20, 4_000, 0])
@trio_test
async def test_every_range_is_right_whatever_the_cache_holds(
    blobs: GatedBlobs, pointer: Pointer, cache: int
) -> None:
    reader = make(blobs, cache=cache)
    ranges = random.Random(1)
    async with running(reader):
        reading = reader.open(pointer)
        for _ in range(200):
            start, length = ranges.randrange(SIZE + 50), ranges.randrange(3 * BLOCK)
            assert await reading.read(start, length) == DATA[start : start + length]
        assert await reading.read(0, 10 * SIZE) == DATA
        assert await reading.read(SIZE, 1) == b""


@trio_test
async def test_the_head_is_one_block_and_the_tail_too(blobs: GatedBlobs, pointer: Pointer) -> None:
    reader = make(blobs)
    async with running(reader):
        await reader.open(pointer).read(0, 100)
        assert blobs.asked == [(0, BLOCK)]
        await reader.open(pointer).read(SIZE - 100, 100)
        assert blobs.asked[1:] == [(20 * BLOCK, 345)]


@trio_test
async def test_reading_here_and_there_fetches_nothing_else(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    reader = make(blobs)
    async with running(reader):
        reading = reader.open(pointer)
        for number in (7, 3, 11, 17, 1, 14):
            await reading.read(number * BLOCK + 5, 10)
            await wait_all_tasks_blocked()
    assert blobs.numbers == [1, 3, 7, 11, 14, 17]


@trio_test
async def test_reading_in_order_fetches_ahead_and_each_block_once(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    reader = make(blobs)
    async with running(reader):
        reading = reader.open(pointer)
        await reading.read(0, 10)
        assert blobs.numbers == [0]
        await reading.read(BLOCK, 10)
        while len(blobs.asked) < 3:
            await trio.sleep(0.005)
        assert blobs.numbers[:3] == [0, 1, 2]
        assert len(blobs.numbers) < 10
        for start in range(0, SIZE, 300):
            assert await reading.read(start, 300) == DATA[start : start + 300]
    assert blobs.numbers == list(range(21))
    assert reader.counters.blocks_ahead > 10
    assert len(blobs.asked) <= 5


@pytest.mark.expects_log("reads of objects fail")
@trio_test
async def test_a_request_ahead_that_hangs_or_fails_costs_no_read(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    reader = make(blobs, deadline=2.0)
    async with running(reader):
        reading = reader.open(pointer)
        await reading.read(0, 10)
        await reading.read(BLOCK - 10, 5)
        blobs.failure = StoreUnavailable("away")
        reader.look_ahead(pointer, range(1, 4))
        await wait_all_tasks_blocked()
        while reader.counters.errors == 0:
            await trio.sleep(0.005)
        blobs.failure = None
        assert await reading.read(BLOCK, 10) == DATA[BLOCK : BLOCK + 10]
        blobs.gate.clear()
        reader.look_ahead(pointer, range(10, 13))
        await wait_all_tasks_blocked()
        hanging = len(blobs.asked)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                found.append(await reading.read(11 * BLOCK, 10))

            found: list[bytes] = []
            while len(blobs.asked) == hanging:
                await trio.sleep(0.005)
            blobs.gate.set()
        assert found == [DATA[11 * BLOCK : 11 * BLOCK + 10]]


@pytest.mark.expects_log("reads of objects fail")
@trio_test
async def test_blocks_are_there_before_the_answer_has_ended_and_if_it_never_does(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    reader = make(blobs)
    async with running(reader):
        blobs.gate.clear()
        blobs.after = 3
        reader.look_ahead(pointer, range(8))
        for number in range(3):
            assert await reader.block(pointer, number) == DATA[number * BLOCK :][:BLOCK]
        assert blobs.asked == [(0, 8 * BLOCK)]
        blobs.failure = StoreUnavailable("away")
        blobs.gate.set()
        while reader.counters.errors == 0:
            await trio.sleep(0.005)
        assert reader.failing
        assert await reader.block(pointer, 2) == DATA[2 * BLOCK :][:BLOCK]
        assert (len(blobs.asked), reader.counters.blocks_fetched) == (1, 3)
        blobs.failure = None
        assert await reader.block(pointer, 3) == DATA[3 * BLOCK :][:BLOCK]
        assert not reader.failing


@trio_test
async def test_nothing_is_fetched_ahead_that_the_cache_cannot_keep(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    reader = make(blobs, cache=3 * BLOCK)
    async with running(reader):
        reading = reader.open(pointer)
        for start in range(0, SIZE, 300):
            await reading.read(start, 300)
    assert blobs.numbers == list(range(21))
    assert reader.counters.blocks_ahead == 0


@trio_test
async def test_many_who_want_one_block_share_its_fetch(blobs: GatedBlobs, pointer: Pointer) -> None:
    reader = make(blobs)
    blobs.gate.clear()
    found: list[bytes] = []

    async def read() -> None:
        found.append(await reader.open(pointer).read(0, 100))

    async with running(reader) as nursery:
        for _ in range(50):
            nursery.start_soon(read)
        await wait_all_tasks_blocked()
        blobs.gate.set()
        while len(found) < 50:
            await trio.sleep(0.005)
    assert set(found) == {DATA[:100]}
    assert blobs.asked == [(0, BLOCK)]


@pytest.mark.expects_log("reads of objects fail")
@trio_test
async def test_a_server_that_hangs_costs_the_deadline(blobs: GatedBlobs, pointer: Pointer) -> None:
    reader = make(blobs, deadline=0.05)
    blobs.gate.clear()
    async with running(reader):
        with pytest.raises(StoreUnavailable):
            await reader.open(pointer).read(0, 10)


@pytest.mark.expects_log("reads of objects fail")
@trio_test
async def test_an_error_is_never_cached_and_logged_once(
    blobs: GatedBlobs, pointer: Pointer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "chromafuse")
    reader = make(blobs)
    blobs.failure = StoreUnavailable("away")
    async with running(reader):
        for number in range(5):
            with pytest.raises(StoreUnavailable):
                await reader.open(pointer).read(number * BLOCK, 10)
        was_failing = reader.failing
        blobs.failure = None
        assert await reader.open(pointer).read(0, 10) == DATA[:10]
        assert (was_failing, reader.failing) == (True, False)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["reads of objects fail: away", "reads of objects work again"]


@pytest.mark.expects_log("an object cannot be read")
@trio_test
async def test_a_replaced_object_is_an_error_and_never_a_mixture(
    blobs: GatedBlobs, pointer: Pointer, tmp_path: Path
) -> None:
    reader = make(blobs)
    async with running(reader):
        reading = reader.open(pointer)
        assert await reading.read(0, 10) == DATA[:10]
        (tmp_path / "x.json").write_bytes(bytes(SIZE))
        with pytest.raises(BlobChanged):
            await reading.read(0, 3 * BLOCK)
        fresh = reader.open(blobs.head(pointer.location).pointer)
        assert await fresh.read(0, 3 * BLOCK) == bytes(3 * BLOCK)


@trio_test
async def test_a_search_sees_an_object_that_is_wholly_in_memory(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    reader = make(blobs)
    page = Page(Slug("x.json"), b"x.json", PUBLIC, SIZE, 0, pointer=pointer)
    async with running(reader):
        reading = reader.open(pointer)
        await reading.read(0, BLOCK)
        assert reader.peek(page) is None
        await reading.read(0, SIZE)
        assert reader.peek(page) == DATA
    smaller = make(blobs, grep_max=SIZE - 1)
    async with running(smaller):
        await smaller.open(pointer).read(0, SIZE)
        assert smaller.peek(page) is None


@trio_test
async def test_a_search_has_objects_fetched_that_are_not_too_large_for_it(
    blobs: GatedBlobs, pointer: Pointer
) -> None:
    page = Page(Slug("x.json"), b"x.json", PUBLIC, SIZE, 0, pointer=pointer)
    stored = Page(Slug("y.md"), b"y.md", PUBLIC, 10, 0)
    for reader, fetched in (
        (make(blobs, cache=4 * SIZE, grep_max=SIZE), True),
        (make(blobs, cache=4 * SIZE, grep_max=SIZE - 1), False),
        (make(blobs, cache=4 * SIZE - 4, grep_max=SIZE), False),
    ):
        async with running(reader):
            reader.fly([stored, page, page])
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert (reader.counters.blocks_ahead > 0) == fetched
            assert (reader.peek(page) == DATA) == fetched


@pytest.mark.expects_log("reads of objects fail")
@trio_test
async def test_a_server_that_hangs_is_not_waited_for_again_and_again(
    blobs: GatedBlobs, pointer: Pointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_AFTER", 3600.0)
    reader = make(blobs, deadline=0.2)
    async with running(reader):
        blobs.gate.clear()
        for number in range(10):
            with pytest.raises(StoreUnavailable):
                await reader.block(pointer, number)
        assert blobs.numbers == [0]


@pytest.mark.expects_log("reads of objects fail")
@trio_test
async def test_requests_that_never_end_do_not_take_the_place_of_others(
    blobs: GatedBlobs, pointer: Pointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(limits, "BLOB_CONNECTIONS", 2)
    reader = make(blobs, deadline=0.2)
    stuck, blobs.gate = blobs.gate, threading.Event()
    async with running(reader):
        for number in range(4):
            with pytest.raises(StoreUnavailable):
                await reader.block(pointer, number)
        # Other requests are answered from now on; those stay where they are.
        never, blobs.gate = blobs.gate, stuck
        data = None
        with trio.fail_after(20):
            while data is None:
                try:
                    data = await reader.block(pointer, 9)
                except StoreUnavailable:
                    await trio.sleep(0.05)
        assert data == DATA[9 * BLOCK : 10 * BLOCK]
        never.set()


@pytest.mark.expects_log("an object cannot be read")
@trio_test
async def test_an_object_is_asked_anew_again_once_in_a_while_as_long_as_it_is_another_one(
    blobs: GatedBlobs, pointer: Pointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = make(blobs)
    asked: list[Pointer] = []

    async def replaced(found: Pointer) -> None:
        asked.append(found)

    reader.replaced = replaced

    async def meets(failure: Exception) -> int:
        blobs.failure = failure
        with pytest.raises(type(failure)):
            await reader.open(pointer).read(0, 10)
        await wait_all_tasks_blocked()
        return len(asked)

    async with running(reader):
        assert await meets(BlobMissing("gone")) == 1
        assert await meets(BlobMissing("gone")) == 1
        assert await meets(BlobChanged("replaced")) == 2
        assert await meets(BlobChanged("replaced")) == 2
        monkeypatch.setattr(limits, "ASK_ANEW_AFTER", -1.0)
        assert await meets(BlobMissing("gone")) == 3
        assert await meets(BlobMissing("gone")) == 3
        assert await meets(BlobChanged("replaced")) == 4
        assert await meets(BlobChanged("replaced")) == 5
