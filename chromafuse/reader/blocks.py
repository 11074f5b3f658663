"""Files whose bytes are in S3 or a directory, read block by block when somebody reads them.

Blocks go through the caches that pages go through, under keys that hold the object's version, so
an object that is replaced leaves nothing that could be taken for the new one's. One fetch serves
all who want a block. Who reads one block after the other has the next ones fetched ahead, more each
time, in one request whose blocks are handed over as they come; who reads here and there gets what
is asked for and no more. Waiting is bounded by the deadline, and errors are raised, never cached.
State is touched by the event loop only.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import trio

from chromafuse.domain.errors import BlobChanged, ChromafuseError, StoreError, StoreUnavailable
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.pointer import DEFAULT_GREP_MAX, Pointer
from chromafuse.ports import BlobReader, PageCache, PageKey
from chromafuse.reader import limits
from chromafuse.reader.silence import Silence
from chromafuse.stores.memory import MemoryCache

log = logging.getLogger(__name__)


@dataclass(slots=True)
class BlockCounters:
    """What has been read since the beginning."""

    hits: int = 0
    misses: int = 0
    blocks_fetched: int = 0
    blocks_ahead: int = 0
    bytes_fetched: int = 0
    errors: int = 0


class _BlockFlight:
    """A block on its way: one of ``data`` and ``error`` is set when ``done`` is.

    ``ahead`` tells that nobody had asked for it yet when its request began.
    """

    __slots__ = ("ahead", "data", "done", "error")

    def __init__(self, *, ahead: bool) -> None:
        self.ahead = ahead
        self.done = trio.Event()
        self.data: bytes | None = None
        self.error: ChromafuseError | None = None


@dataclass(slots=True)
class _Stream:
    """Somebody who reads one block after the other: what is fetched ahead, and how far that is."""

    window: int
    until: int


class BlockReading:
    """One open file, for as long as it is open."""

    __slots__ = ("_failed", "_failed_at", "_last", "_pointer", "_reader", "_streams")

    def __init__(self, reader: BlockReader, pointer: Pointer) -> None:
        self._reader = reader
        self._pointer = pointer
        # By the block that a stream comes to next.
        self._streams: OrderedDict[int, _Stream] = OrderedDict()
        # The kernel asks several times for one block, which the cache need not have room for.
        self._last: tuple[int, bytes] | None = None
        self._failed: ChromafuseError | None = None
        self._failed_at = 0.0

    @property
    def ready(self) -> bytes | None:
        """None: the kernel's page cache never gets the whole file at once."""
        return None

    async def read(self, offset: int, length: int) -> bytes:
        """Return at most ``length`` bytes from ``offset``, fewer only at the end of the file.

        Raises ``StoreError``. For one system call the kernel asks several times, so an error
        holds for ``limits.RETRY_AFTER``; a later call tries again.
        """
        end = min(offset + length, self._pointer.size)
        if offset >= end:
            return b""
        if self._failed and trio.current_time() - self._failed_at < limits.RETRY_AFTER:
            raise self._failed
        first, last = offset // limits.BLOCK_BYTES, (end - 1) // limits.BLOCK_BYTES
        for number in range(first, last + 1):
            self._reader.look_ahead(self._pointer, self._follow(number))
        try:
            blocks = [await self._block(number) for number in range(first, last + 1)]
        except ChromafuseError as error:
            self._failed, self._failed_at = error, trio.current_time()
            raise
        start = offset - first * limits.BLOCK_BYTES
        if len(blocks) == 1:
            return blocks[0][start : start + end - offset]
        return b"".join(blocks)[start : start + end - offset]

    async def _block(self, number: int) -> bytes:
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        data = await self._reader.block(self._pointer, number)
        self._last = number, data
        return data

    def _follow(self, number: int) -> range:
        """Return the blocks that are worth having soon, now that ``number`` is wanted."""
        if number + 1 in self._streams:
            return range(0)
        stream = self._streams.pop(number, None)
        ahead = range(0)
        if stream is None:
            stream = _Stream(0, number + 1)
        # Half of what was fetched ahead is read: the next lot comes while the rest is.
        elif stream.until - number - 1 <= stream.window // 2:
            stream.window = min(
                limits.AHEAD_GROWTH * max(1, stream.window), self._reader.most_ahead
            )
            begin = max(stream.until, number + 1)
            stream.until = begin + stream.window
            ahead = range(begin, stream.until)
        self._streams[number + 1] = stream
        while len(self._streams) > limits.STREAMS:
            self._streams.popitem(last=False)
        return ahead


class BlockReader:
    """Reads objects of every page that has a pointer. Run ``run`` in a nursery while it is used.

    ``origin`` tells the server apart from others with buckets of the same names. ``grep_max`` is
    up to how many bytes an object is fetched for searches, and tested by them.
    """

    def __init__(
        self,
        blobs: BlobReader,
        origin: str,
        cache: MemoryCache,
        deadline: float,
        shared: PageCache | None = None,
        *,
        grep_max: int = DEFAULT_GREP_MAX,
    ) -> None:
        self._grep_max = grep_max
        self._blobs = blobs
        self._origin = origin
        self._cache = cache
        self._deadline = deadline
        self._shared = shared
        self._flights: dict[PageKey, _BlockFlight] = {}
        self._requests = trio.Semaphore(limits.BLOB_CONNECTIONS)
        # Long requests on a slow line may not keep others from the one block that they wait for.
        self._requests_ahead = trio.Semaphore(limits.BLOB_CONNECTIONS_AHEAD)
        # The thread of a request that is given up may go on for as long as a server sends a byte of
        # its headers now and then: it is no reason to ask that server for less.
        self._threads = trio.CapacityLimiter(limits.BLOB_THREADS)
        self._nursery: trio.Nursery | None = None
        self._failing = False
        self._silence = Silence(deadline)
        # By version of an object: how it failed when it was last asked anew, and when that was.
        self._reported: dict[str, tuple[type[StoreError], float]] = {}
        self.counters = BlockCounters()
        self.replaced: Callable[[Pointer], Awaitable[None]] | None = None
        """Is told of a version of an object that cannot be had: there may be another one."""

    @property
    def failing(self) -> bool:
        """Whether the last request failed in a way that may pass."""
        return self._failing

    async def run(self) -> None:
        """Fetch blocks until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await trio.sleep_forever()

    def open(self, pointer: Pointer) -> BlockReading:
        """Begin to read an object and return at once; nothing is fetched yet."""
        return BlockReading(self, pointer)

    def peek(self, page: Page) -> bytes | None:
        """Return a whole object if all its blocks are in memory and there are only a few."""
        pointer = page.pointer
        if pointer is None or pointer.size > self._grep_max:
            return None
        blocks = []
        for number in range(_count(pointer)):
            block = self._cache.peek(self._key(pointer, number))
            if block is None:
                return None
            blocks.append(block)
        return b"".join(blocks)

    def fly(self, pages: Iterable[Page]) -> None:
        """Begin to fetch objects that a search is about to read, as far as that is worthwhile."""
        room = self._cache.max_bytes // limits.GREP_SHARE
        for page in pages:
            pointer = page.pointer
            if pointer is None or pointer.size > self._grep_max:
                continue
            if pointer.size > room:
                return
            room -= pointer.size
            self.look_ahead(pointer, range(_count(pointer)))

    @property
    def most_ahead(self) -> int:
        """How many blocks may be fetched ahead at once.

        They must still be in the cache when their reader comes, even if others read too.
        """
        return min(limits.MAX_BLOCKS_AHEAD, self._cache.max_bytes // limits.BLOCK_BYTES // 4)

    def look_ahead(self, pointer: Pointer, numbers: range) -> None:
        """Fetch blocks that will be wanted: one request for all that stand side by side."""
        run: list[int] = []
        for number in range(numbers.start, min(numbers.stop, _count(pointer))):
            key = self._key(pointer, number)
            if key in self._cache or key in self._flights:
                self._start(pointer, run)
                run = []
            else:
                run.append(number)
        self._start(pointer, run)

    async def block(self, pointer: Pointer, number: int) -> bytes:
        """Return one block, within the deadline. Raises ``StoreError``."""
        key = self._key(pointer, number)
        found = self._cache.get(key)
        if found is not None:
            self.counters.hits += 1
            return found
        self.counters.misses += 1
        flight = self._flights.get(key)
        end = trio.current_time() + self._deadline
        if flight is not None and flight.ahead:
            # A request for many blocks may be too slow, or fail for another one's sake.
            data = await self._landed(key, flight, trio.current_time() + self._deadline / 2)
            if data is not None:
                return data
            flight = self._flights.get(key)
        if flight is None:
            flight = self._start(pointer, [number], ahead=False)[0]
        data = await self._landed(key, flight, end)
        if data is not None:
            return data
        if flight.error is not None:
            raise flight.error
        error = StoreUnavailable(f"{pointer.location.url}: no answer within {self._deadline:g} s")
        self._silence.failed(error, end - self._deadline)
        self._report(pointer, error)
        raise error

    async def _landed(self, key: PageKey, flight: _BlockFlight, end: float) -> bytes | None:
        """Return what ``flight`` has brought by the time ``end``, or None."""
        with trio.move_on_at(end):
            await flight.done.wait()
        # Whoever asks later does not wait for a request that hangs already.
        if not flight.done.is_set() and self._flights.get(key) is flight:
            del self._flights[key]
        return flight.data

    def _start(
        self, pointer: Pointer, numbers: Sequence[int], *, ahead: bool = True
    ) -> list[_BlockFlight]:
        """Begin one request for consecutive blocks."""
        flights = [_BlockFlight(ahead=ahead) for _ in numbers]
        if not flights:
            return flights
        if self._nursery is None:
            for flight in flights:
                flight.error = _nothing_is_read()
                flight.done.set()
            return flights
        keys = [self._key(pointer, number) for number in numbers]
        self._flights.update(zip(keys, flights, strict=True))
        if ahead:
            self.counters.blocks_ahead += len(flights)
        self._nursery.start_soon(self._fetch, pointer, numbers[0], keys, flights)
        return flights

    async def _fetch(
        self,
        pointer: Pointer,
        first: int,
        keys: Sequence[PageKey],
        flights: Sequence[_BlockFlight],
    ) -> None:
        begun = trio.current_time()
        error = _nothing_is_read()
        try:
            await self._load_all(pointer, first, keys, flights)
        except StoreError as failure:
            error = failure
            # A request for many blocks ahead may be too slow for reasons of its own.
            if not flights[0].ahead:
                self._silence.failed(error, begun)
            self._report(pointer, error)
        except Exception as failure:
            # Somebody's bug: it costs these reads, not the mount.
            log.exception("unexpected error while reading %s", pointer.location.url)
            error = StoreError(f"unexpected {type(failure).__name__} while reading")
        finally:
            for key, flight in zip(keys, flights, strict=True):
                if not flight.done.is_set():
                    flight.error = error
                    self._land(key, flight)

    async def _load_all(
        self,
        pointer: Pointer,
        first: int,
        keys: Sequence[PageKey],
        flights: Sequence[_BlockFlight],
    ) -> None:
        """Do as ``_load`` while blocks come: one each two deadlines at least.

        What comes behind the deadline of those who wait for it is still of use to later ones.
        """
        loop = trio.lowlevel.current_trio_token()
        patience = 2 * self._deadline

        def arrived(index: int, data: bytes, fresh: bool) -> None:
            scope.deadline = trio.current_time() + patience
            self._arrived(pointer, keys, flights, index, data, fresh)

        def hand_over(index: int, data: bytes, fresh: bool) -> None:
            loop.run_sync_soon(arrived, index, data, fresh)

        async with self._requests_ahead if flights[0].ahead else self._requests:
            with trio.move_on_after(patience) as scope:
                await trio.to_thread.run_sync(
                    self._load, pointer, first, keys, self._silence.error(), hand_over,
                    limiter=self._threads, abandon_on_cancel=True,
                )  # fmt: skip
        if scope.cancelled_caught:
            raise StoreUnavailable(f"{pointer.location.url}: no answer within {patience:g} s")

    def _arrived(
        self,
        pointer: Pointer,
        keys: Sequence[PageKey],
        flights: Sequence[_BlockFlight],
        index: int,
        data: bytes,
        fresh: bool,
    ) -> None:
        if fresh:
            self.counters.blocks_fetched += 1
            self.counters.bytes_fetched += len(data)
            self._silence.answered()
            # Not before: a server that breaks off every answer does not work again.
            if index == len(keys) - 1:
                self._recovered(pointer)
        self._cache.put(keys[index], data)
        flights[index].data = data
        self._land(keys[index], flights[index])

    def _land(self, key: PageKey, flight: _BlockFlight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        flight.done.set()

    def _load(
        self,
        pointer: Pointer,
        first: int,
        keys: Sequence[PageKey],
        silence: StoreError | None,
        hand_over: Callable[[int, bytes, bool], None],
    ) -> None:
        """Hand over all blocks, each with whether it came from the object itself; in a thread.

        Raises ``silence`` if it is an error and not all are in Redis.
        """
        size = limits.BLOCK_BYTES
        sizes = {
            key: min(size, pointer.size - number * size) for number, key in enumerate(keys, first)
        }
        # What is on this machine's disk is nearer than Redis, and means something here only.
        shared = self._shared if pointer.location.scheme != "file" else None
        found = {} if shared is None else shared.get_many(sizes)
        had = 0
        for data in itertools.takewhile(bool, (found.get(key, b"") for key in keys)):
            hand_over(had, data, False)
            had += 1
        lengths = [sizes[key] for key in keys[had:]]
        if not lengths:
            return
        if silence is not None:
            raise silence
        fresh = []
        stream = self._blobs.stream(pointer, (first + had) * size, lengths)
        for index, (data, length) in enumerate(zip(stream, lengths, strict=True), had):
            if len(data) != length:
                raise StoreUnavailable(f"{pointer.location.url}: {len(data)} of {length} bytes")
            hand_over(index, data, True)
            if shared is not None:
                fresh.append((keys[index], data))
        if shared is not None:
            shared.put_many(fresh)

    def _key(self, pointer: Pointer, number: int) -> PageKey:
        version = f"{pointer.etag}:{pointer.size}:{limits.BLOCK_BYTES}:{number}"
        return PageKey(f"object:{self._origin}", Slug(pointer.location.url), version)

    def _report(self, pointer: Pointer, error: StoreError) -> None:
        """Log one line an incident, not one a read: of a server's, or of one object's."""
        self.counters.errors += 1
        if isinstance(error, StoreUnavailable):
            if not self._failing:
                log.error("reads of objects fail: %s", error)
            self._failing = True
            return
        known = self._reported.get(pointer.version)
        if known is None:
            log.error("an object cannot be read: %s", error)
        if known is None or self._may_be_another(error, known):
            self._reported[pointer.version] = type(error), trio.current_time()
            if self.replaced is not None and self._nursery is not None:
                self._nursery.start_soon(self.replaced, pointer)

    def _may_be_another(self, error: StoreError, known: tuple[type[StoreError], float]) -> bool:
        """Return whether to ask again: it was away before, or could not be asked then."""
        if type(error) is not known[0]:
            return True
        late = trio.current_time() - known[1] > limits.ASK_ANEW_AFTER
        return late and isinstance(error, BlobChanged)

    def _recovered(self, pointer: Pointer) -> None:
        self._reported.pop(pointer.version, None)
        if self._failing:
            self._failing = False
            log.info("reads of objects work again")


def _nothing_is_read() -> StoreError:
    return StoreError("nothing is read any more")


def _count(pointer: Pointer) -> int:
    return -(-pointer.size // limits.BLOCK_BYTES)
