"""The one way to page bytes: memory, then Redis if there is one, then Chroma.

A page is fetched as a whole, since its chunks come in one request and are verified together.
``open`` begins the fetch and never waits; ``Reading.data`` waits. Three kinds of want share one
machinery, in this order:

* *live*: somebody has opened the page. Readers of one page share one fetch (single flight), and
  pages that are wanted while connections are busy are fetched together as soon as one is free.
* *ahead*: a walk in listing order will open the page soon (``domain.readahead``).
* *warm*: the whole tree fits into memory and nobody wants anything else.

One connection is kept for live reads. A fetch belongs to the reader, not to who asked first: a
client that goes away does not take it from the others, and a walk that stops takes only what is
still queued for it. State is touched by the event loop only; worker threads get and return
immutable values.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import trio

from chromafuse.domain.errors import ChromafuseError, ContentError, StoreError, StoreUnavailable
from chromafuse.domain.page import Page, Record, assemble
from chromafuse.domain.readahead import MAX_WINDOW, ReadAhead, Walk
from chromafuse.ports import ChunkReader, PageCache, PageKey
from chromafuse.stores.memory import ENTRY_OVERHEAD, MemoryCache
from chromafuse.treestore import fetch_pages

log = logging.getLogger(__name__)

CONNECTIONS = 4
"""Requests in flight at once; Chroma's embedded engine and a local server gain little beyond."""
BATCH_PAGES = 200
BATCH_BYTES = 8_000_000
"""A request asks for no more than this, so that one deadline fits all requests."""
COMPANIONS = 32
"""Pages ahead that travel in the request of a live one of the same walk."""
FIRST_WARM = 32
"""Pages in the first warm-up request; the next ones double up to ``BATCH_PAGES``."""
WARM_ROUNDS = 3
"""How often the warm-up tries those pages again whose requests failed."""
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
    pages_ahead: int = 0
    request_seconds: float = 0.0
    errors: int = 0


class _Flight:
    """One page on its way: exactly one of ``data`` and ``error`` is set when ``done`` is.

    ``walk`` is the walk it is fetched ahead for, ``warm`` tells that it is part of the warm-up;
    ``taken`` tells that a request carries it.
    """

    __slots__ = ("data", "done", "error", "key", "live", "page", "taken", "walk", "warm")

    def __init__(
        self, page: Page, key: PageKey, walk: Walk | None = None, *, warm: bool = False
    ) -> None:
        self.page = page
        self.key = key
        self.walk = walk
        self.warm = warm
        self.live = False
        self.taken = False
        self.done = trio.Event()
        self.data: bytes | None = None
        self.error: ChromafuseError | None = None

    def land(self, data: bytes) -> None:
        self.data = data
        self.done.set()

    def crash(self, error: ChromafuseError) -> None:
        if self.data is None:
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

    @property
    def ready(self) -> bytes | None:
        """The page's bytes if they are there already."""
        return self._data

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


class Warmth:
    """How far the warm-up is.

    ``state`` is off, waiting, running, stopped (the cache is full, or some pages failed again and
    again) or done. ``flying`` is what the pages on their way will take of the cache; ``failed``
    are to be tried once more, ``rounds`` times at most.
    """

    __slots__ = ("batch", "failed", "flying", "pages", "rounds", "state", "todo", "total")

    def __init__(self) -> None:
        self.state = "off"
        self.todo: Iterator[Page] = iter(())
        self.pages = 0
        self.total = 0
        self.batch = FIRST_WARM
        self.flying = 0
        self.failed: list[Page] = []
        self.rounds = WARM_ROUNDS

    def try_again(self) -> bool:
        """Have the pages that failed fetched once more; return whether there are any."""
        if not self.failed or not self.rounds:
            return False
        self.rounds -= 1
        self.todo, self.failed = iter(self.failed), []
        return True

    def landed(self, page: Page, *, failed: bool) -> None:
        """Note that the request for a page is over."""
        self.flying -= page.size + ENTRY_OVERHEAD
        if failed:
            self.pages -= 1
            self.failed.append(page)


class Reader:
    """Reads pages of one collection. Run ``run`` in a nursery for as long as it is used."""

    def __init__(
        self,
        store: ChunkReader,
        collection: str,
        cache: MemoryCache,
        deadline: float,
        shared: PageCache | None = None,
    ) -> None:
        self._store = store
        self._collection = collection
        self.cache = cache
        self._shared = shared
        self._deadline = deadline
        self._flights: dict[PageKey, _Flight] = {}
        self._live: deque[_Flight] = deque()
        self._ahead: deque[_Flight] = deque()
        self._busy_ahead = 0
        self._wanted = trio.Event()
        self._threads = trio.CapacityLimiter(CONNECTIONS)
        self._failing: str | None = None
        self._reported: set[PageKey] = set()
        self._order: Sequence[Page] = ()
        self._positions: Mapping[bytes, int] = {}
        self._walks = ReadAhead(0)
        self.warmth = Warmth()
        self.counters = Counters()

    @property
    def failing(self) -> str | None:
        """Why the last request to the store failed, or None if it succeeded."""
        return self._failing

    @property
    def damaged_pages(self) -> int:
        """How many pages were found damaged at their last read."""
        return len(self._reported)

    def shared_status(self) -> Mapping[str, object] | None:
        """Return how the shared cache is doing, or None without one."""
        return None if self._shared is None else self._shared.status()

    def follow(self, pages: Sequence[Page]) -> None:
        """Read ahead along ``pages``, which are in listing order."""
        self._order = pages
        self._positions = {page.path: position for position, page in enumerate(pages)}
        # What is fetched ahead must still be there when its walk comes to it, even if two go on.
        needed = sum(page.size + ENTRY_OVERHEAD for page in pages)
        fitting = self.cache.max_bytes * len(pages) // needed if pages else 0
        self._walks = ReadAhead(len(pages), min(MAX_WINDOW, fitting // 4))

    def plan_warm_up(self) -> None:
        """Let the warm-up begin with the first walk; ``warm_up`` begins it without one."""
        self.warmth.state = "waiting"
        self.warmth.total = len(self._order)

    def warm_up(self) -> None:
        """Fetch all pages followed, as long as they fit and nobody wants anything else.

        Does nothing if that has begun already.
        """
        if self.warmth.state not in ("off", "waiting"):
            return
        front = [page for page in self._order if _is_front(page.name)]
        first = set(map(id, front))
        rest = (page for page in self._order if id(page) not in first)
        self.warmth.todo = _chain(front, rest)
        self.warmth.total = len(self._order)
        self.warmth.state = "running"
        self._wake()

    def open(self, page: Page) -> Reading:
        """Begin to read ``page`` and return at once.

        Raises ``ContentError`` for a page that is known to be damaged.
        """
        if page.damage is not None:
            raise ContentError(f"{page.slug}: {page.damage}")
        data = self.cache.get(self._key(page)) if page.size else b""
        walk = None if self.warmth.state == "done" else self._look_ahead(page)
        if data is not None:
            self.counters.hits += 1
            return Reading(self, page, data, None)
        return Reading(self, page, None, self.fly(page, walk))

    def fly(self, page: Page, walk: Walk | None = None) -> _Flight:
        """Return the page's flight as a live one, starting it unless it is under way."""
        key = self._key(page)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(page, key, walk)
        if not flight.live:
            self.counters.misses += 1
            flight.live = True
            # A walk waits for the request that is on its way; a single reader does not wait for
            # a bulk request and has the page fetched a second time.
            if not flight.taken or walk is None or walk.step == 0:
                self._live.append(flight)
                self._wake()
        return flight

    def _look_ahead(self, page: Page) -> Walk | None:
        position = self._positions.get(page.path)
        if position is None:
            return None
        walk, ahead = self._walks.opened(position, time.monotonic())
        for index in ahead:
            wanted = self._order[index]
            key = self._key(wanted)
            if key not in self._flights and not self._is_settled(wanted, key):
                flight = self._flights[key] = _Flight(wanted, key, walk)
                self._ahead.append(flight)
        if ahead:
            self._wake()
            if self.warmth.state == "waiting":
                self.warm_up()
        return walk

    def _is_settled(self, page: Page, key: PageKey) -> bool:
        """Return whether there is nothing to fetch, or no sense in it."""
        return not page.size or page.damage is not None or key in self.cache

    async def wait(self, flight: _Flight) -> bytes:
        """Return what ``flight`` brings, within the deadline."""
        with trio.move_on_after(self._deadline):
            await flight.done.wait()
        if flight.data is not None:
            return flight.data
        if flight.error is not None:
            raise flight.error
        raise StoreUnavailable(
            f"{flight.page.slug}: no answer within {self._deadline:g} s",
            remedy="check Chroma, or raise --deadline",
        )

    def _key(self, page: Page) -> PageKey:
        version = page.version or f"{page.size}:{page.mtime_ns}"
        return PageKey(self._collection, page.slug, version)

    # The queue

    async def run(self) -> None:
        """Serve flights until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self._serve)

    def _wake(self) -> None:
        self._wanted.set()

    async def _serve(self) -> None:
        while True:
            batch, is_ahead = self._next_batch()
            if not batch:
                self._wanted = trio.Event() if self._wanted.is_set() else self._wanted
                await self._wanted.wait()
                continue
            self._busy_ahead += is_ahead
            try:
                await self._fetch(batch)
            finally:
                self._busy_ahead -= is_ahead
                for flight in batch:
                    if self._flights.get(flight.key) is flight:
                        del self._flights[flight.key]
                    if flight.warm:
                        self.warmth.landed(flight.page, failed=isinstance(flight.error, StoreError))
                        flight.warm = False
                if is_ahead:
                    self._wake()

    def _next_batch(self) -> tuple[list[_Flight], bool]:
        """Take what one request may ask for, and tell whether nobody waits for it yet."""
        batch = _Batch()
        while self._live and batch.has_room(self._live[0].page, BATCH_PAGES):
            flight = self._live.popleft()
            if not flight.done.is_set():
                batch.add(flight)
        if batch.flights:
            if any(flight.walk and flight.walk.step for flight in batch.flights):
                self._fill(batch, len(batch.flights) + COMPANIONS)
            return batch.flights, False
        if self._busy_ahead < CONNECTIONS - 1:
            self._fill(batch, BATCH_PAGES)
            if not batch.flights:
                self._fill_warm(batch)
        return batch.flights, True

    def _fill(self, batch: _Batch, pages: int) -> None:
        """Add queued flights of walks that still go on; drop those of walks that have stopped."""
        now = time.monotonic()
        while self._ahead and batch.has_room(self._ahead[0].page, pages):
            flight = self._ahead.popleft()
            if flight.taken or flight.live:
                continue
            if flight.walk is not None and flight.walk.is_idle(now):
                del self._flights[flight.key]
                continue
            batch.add(flight)
            self.counters.pages_ahead += 1

    def _fill_warm(self, batch: _Batch) -> None:
        warmth = self.warmth
        if warmth.state != "running" or self._failing is not None:
            return
        while len(batch.flights) < warmth.batch and batch.bytes < BATCH_BYTES:
            page = next(warmth.todo, None)
            if page is None:
                if batch.flights:
                    break
                if warmth.try_again():
                    continue
                if not self._busy_ahead:
                    warmth.state = "stopped" if warmth.failed else "done"
                break
            warmth.pages += 1
            key = self._key(page)
            if key in self._flights or self._is_settled(page, key):
                continue
            if self.cache.is_full_for(page.size + warmth.flying):
                warmth.pages -= 1
                warmth.state = "stopped"
                break
            flight = self._flights[key] = _Flight(page, key, warm=True)
            warmth.flying += page.size + ENTRY_OVERHEAD
            batch.add(flight)
        warmth.batch = min(BATCH_PAGES, warmth.batch * 2)

    # One request

    async def _fetch(self, batch: list[_Flight]) -> None:
        started = time.perf_counter()
        work = [(flight.key, flight.page) for flight in batch]
        if self._shared is None:
            self.counters.requests += 1
        try:
            with trio.fail_after(self._deadline):
                loaded = await trio.to_thread.run_sync(
                    _load, self._store, self._shared, work,
                    limiter=self._threads, abandon_on_cancel=True,
                )  # fmt: skip
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
            if self._shared is not None:
                self.counters.requests += loaded.requests
            if loaded.requests:
                self._recovered()
            for flight, outcome in zip(batch, loaded.outcomes, strict=True):
                self._land(flight, outcome)
            if self._shared is not None and loaded.fresh:
                await trio.to_thread.run_sync(
                    self._shared.put_many, loaded.fresh,
                    limiter=self._threads, abandon_on_cancel=True,
                )  # fmt: skip
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
            self._wake()


class _Batch:
    """The flights of one request."""

    __slots__ = ("bytes", "flights")

    def __init__(self) -> None:
        self.flights: list[_Flight] = []
        self.bytes = 0

    def has_room(self, page: Page, pages: int) -> bool:
        if not self.flights:
            return True
        return len(self.flights) < pages and self.bytes + page.size <= BATCH_BYTES

    def add(self, flight: _Flight) -> None:
        flight.taken = True
        self.flights.append(flight)
        self.bytes += flight.page.size


def _is_front(name: bytes) -> bool:
    """Return whether a page is one that a reader of a directory opens first."""
    return name.partition(b".")[0].lower() in (b"index", b"readme")


def _chain(front: Iterable[Page], rest: Iterable[Page]) -> Iterator[Page]:
    yield from front
    yield from rest


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a request brought: an outcome for each page, and what Redis did not have."""

    outcomes: list[bytes | ContentError]
    fresh: list[tuple[PageKey, bytes]]
    requests: int


def _load(
    store: ChunkReader, shared: PageCache | None, work: Sequence[tuple[PageKey, Page]]
) -> _Loaded:
    """Fetch pages; runs in a worker thread. Raises ``StoreError``.

    A page without a version is not shared: another site's page may have the same key.
    """
    sizes = {key: page.size for key, page in work if page.version is not None}
    found = shared.get_many(sizes) if shared is not None else {}
    missing = [page for key, page in work if key not in found]
    records = fetch_pages(store, missing) if missing else {}
    outcomes: list[bytes | ContentError] = []
    fresh: list[tuple[PageKey, bytes]] = []
    for key, page in work:
        cached = found.get(key)
        outcome = _assembled(page, records[page.slug]) if cached is None else cached
        outcomes.append(outcome)
        if cached is None and key in sizes and isinstance(outcome, bytes):
            fresh.append((key, outcome))
    return _Loaded(outcomes, fresh, 1 if missing else 0)


def _assembled(page: Page, records: list[Record]) -> bytes | ContentError:
    try:
        return assemble(page, records)
    except ContentError as error:
        return error
