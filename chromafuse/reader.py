"""The one way to page bytes: memory, then Chroma; whole, verified, under a deadline.

A page is fetched as a whole, since its chunks come in one request and are verified together.
``open`` begins the fetch and never waits; ``Reading.data`` waits. Readers of one page share one
fetch (single flight), and pages that are wanted while all connections are busy are fetched
together as soon as one is free. A fetch belongs to the reader, not to who asked first: a client
that goes away does not take it from the others.

State is touched by the event loop only; worker threads get and return immutable values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from chromafuse.domain.errors import ChromafuseError, ContentError, StoreError, StoreUnavailable
from chromafuse.domain.page import Page, Record, assemble
from chromafuse.ports import ChunkReader
from chromafuse.stores.memory import MemoryCache, PageKey
from chromafuse.treestore import fetch_pages

log = logging.getLogger(__name__)

CONNECTIONS = 4
"""Requests in flight at once; Chroma's embedded engine and a local server gain little beyond."""
BATCH_PAGES = 200
BATCH_BYTES = 8_000_000
"""A request asks for no more than this, so that one deadline fits all requests."""
RETRY_AFTER = 1.0
"""Seconds for which an open file repeats an error before it asks Chroma again."""


@dataclass(slots=True)
class Counters:
    """What the reader has done since it began; times in seconds."""

    hits: int = 0
    misses: int = 0
    requests: int = 0
    pages_fetched: int = 0
    bytes_fetched: int = 0
    request_seconds: float = 0.0
    errors: int = 0


class _Flight:
    """One page on its way: exactly one of ``data`` and ``error`` is set when ``done`` is."""

    __slots__ = ("data", "done", "error", "key", "page")

    def __init__(self, page: Page, key: PageKey) -> None:
        self.page = page
        self.key = key
        self.done = trio.Event()
        self.data: bytes | None = None
        self.error: ChromafuseError | None = None

    def land(self, data: bytes) -> None:
        self.data = data
        self.done.set()

    def crash(self, error: ChromafuseError) -> None:
        self.error = error
        self.done.set()


class Reading:
    """One open file: its bytes, once they are there, for as long as it is open."""

    __slots__ = ("_data", "_failed", "_failed_at", "_flight", "_page", "_reader")

    def __init__(
        self, reader: Reader, page: Page, data: bytes | None, flight: _Flight | None
    ) -> None:
        self._reader = reader
        self._page = page
        self._data = data
        self._flight = flight
        self._failed: ChromafuseError | None = None
        self._failed_at = 0.0

    async def data(self) -> bytes:
        """Return the page's bytes.

        Raises ``StoreUnavailable`` behind the deadline, ``StoreError``, ``ContentError``. For
        one system call the kernel asks several times, so an error holds for ``RETRY_AFTER``;
        a later call tries again.
        """
        if self._data is None:
            if self._failed and trio.current_time() - self._failed_at < RETRY_AFTER:
                raise self._failed
            flight = self._flight or self._reader.fly(self._page)
            self._flight = None
            try:
                self._data = await self._reader.wait(flight)
            except ChromafuseError as error:
                self._failed, self._failed_at = error, trio.current_time()
                raise
        return self._data


class Reader:
    """Reads pages of one collection. Run ``run`` in a nursery for as long as it is used."""

    def __init__(
        self, store: ChunkReader, collection: str, cache: MemoryCache, deadline: float
    ) -> None:
        self._store = store
        self._collection = collection
        self.cache = cache
        self._deadline = deadline
        self._flights: dict[PageKey, _Flight] = {}
        self._queue: list[_Flight] = []
        self._wanted = trio.Event()
        self._threads = trio.CapacityLimiter(CONNECTIONS)
        self._failing: str | None = None
        self._reported: set[PageKey] = set()
        self.counters = Counters()

    @property
    def failing(self) -> str | None:
        """Why the last request to the store failed, or None if it succeeded."""
        return self._failing

    @property
    def damaged_pages(self) -> int:
        """How many pages were found damaged at their last read."""
        return len(self._reported)

    def open(self, page: Page) -> Reading:
        """Begin to read ``page`` and return at once.

        Raises ``ContentError`` for a page that is known to be damaged.
        """
        if page.damage is not None:
            raise ContentError(f"{page.slug}: {page.damage}")
        data = self.cache.get(self._key(page)) if page.size else b""
        if data is not None:
            self.counters.hits += 1
            return Reading(self, page, data, None)
        return Reading(self, page, None, self.fly(page))

    def fly(self, page: Page) -> _Flight:
        """Return the page's flight, starting one unless it is under way."""
        key = self._key(page)
        flight = self._flights.get(key)
        if flight is None:
            self.counters.misses += 1
            flight = self._flights[key] = _Flight(page, key)
            self._queue.append(flight)
            self._wanted.set()
        return flight

    async def wait(self, flight: _Flight) -> bytes:
        """Return what ``flight`` brings, within the deadline."""
        with trio.move_on_after(self._deadline):
            await flight.done.wait()
        if flight.error is not None:
            raise flight.error
        if flight.data is None:
            raise StoreUnavailable(
                f"{flight.page.slug}: no answer within {self._deadline:g} s",
                remedy="check Chroma, or raise --deadline",
            )
        return flight.data

    def _key(self, page: Page) -> PageKey:
        version = page.version or f"{page.size}:{page.mtime_ns}"
        return PageKey(self._collection, page.slug, version)

    async def run(self) -> None:
        """Serve flights until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        while True:
            while not self._queue:
                self._wanted = trio.Event() if self._wanted.is_set() else self._wanted
                await self._wanted.wait()
            batch = self._next_batch()
            try:
                await self._fetch(batch)
            finally:
                for flight in batch:
                    self._flights.pop(flight.key, None)

    def _next_batch(self) -> list[_Flight]:
        """Take from the queue what one request may ask for, first come first served."""
        size = count = 0
        for flight in self._queue:
            if count and (count >= BATCH_PAGES or size + flight.page.size > BATCH_BYTES):
                break
            size += flight.page.size
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    async def _fetch(self, batch: list[_Flight]) -> None:
        started = time.perf_counter()
        self.counters.requests += 1
        try:
            with trio.fail_after(self._deadline):
                landed = await trio.to_thread.run_sync(
                    _load,
                    self._store,
                    [flight.page for flight in batch],
                    limiter=self._threads,
                    abandon_on_cancel=True,
                )
        except trio.TooSlowError:
            error = StoreUnavailable(
                f"{self._store.description} did not answer within {self._deadline:g} s",
                remedy="check Chroma, or raise --deadline",
            )
            self._crash(batch, error)
        except StoreError as error:
            self._crash(batch, error)
        except Exception as error:
            # Somebody's bug: it costs these reads, not the mount.
            log.exception("unexpected error while reading from %s", self._store.description)
            self._crash(batch, StoreError(f"unexpected {type(error).__name__} while reading"))
        else:
            self._recovered()
            for flight, outcome in zip(batch, landed, strict=True):
                self._land(flight, outcome)
        self.counters.request_seconds += time.perf_counter() - started

    def _land(self, flight: _Flight, outcome: bytes | ContentError) -> None:
        if isinstance(outcome, ContentError):
            if flight.key not in self._reported:
                self._reported.add(flight.key)
                log.error("page=%s cannot be read: %s", flight.page.slug, outcome)
            flight.crash(outcome)
            return
        self._reported.discard(flight.key)
        self.counters.pages_fetched += 1
        self.counters.bytes_fetched += len(outcome)
        self.cache.put(flight.key, outcome)
        flight.land(outcome)

    def _crash(self, batch: Iterable[_Flight], error: StoreError) -> None:
        """Fail a whole request; one log line an incident, not one a read."""
        self.counters.errors += 1
        if self._failing is None:
            log.error("reads from Chroma fail: %s", error)
        self._failing = str(error)
        for flight in batch:
            flight.crash(error)

    def _recovered(self) -> None:
        if self._failing is not None:
            log.info("reads from Chroma work again")
            self._failing = None


def _load(store: ChunkReader, pages: list[Page]) -> list[bytes | ContentError]:
    """Return for each page its bytes or what is wrong with them; runs in a worker thread."""
    records = fetch_pages(store, pages)
    return [_assembled(page, records[page.slug]) for page in pages]


def _assembled(page: Page, records: list[Record]) -> bytes | ContentError:
    try:
        return assemble(page, records)
    except ContentError as error:
        return error
