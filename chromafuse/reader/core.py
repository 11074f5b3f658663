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
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from chromafuse.domain.access import AccessRule
from chromafuse.domain.errors import (
    ChromafuseError,
    ContentError,
    PageReplaced,
    StoreError,
    StoreUnavailable,
)
from chromafuse.domain.page import Page
from chromafuse.domain.readahead import MAX_WINDOW, ReadAhead, Walk
from chromafuse.ports import ChunkReader, PageCache, PageKey
from chromafuse.reader import limits
from chromafuse.reader.flight import Batch, Flight
from chromafuse.reader.loading import load
from chromafuse.reader.silence import Silence
from chromafuse.reader.warmup import Warmth, chain, is_front
from chromafuse.stores.memory import ENTRY_OVERHEAD, MemoryCache

log = logging.getLogger(__name__)


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


class Reading:
    """One open file: its bytes, once they are there, for as long as it is open."""

    __slots__ = ("_data", "_failed", "_failed_at", "_flight", "_page", "_reader")

    def __init__(
        self, reader: Reader, page: Page, data: bytes | None, flight: Flight | None
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

    async def read(self, offset: int, length: int) -> bytes:
        """Return at most ``length`` bytes from ``offset``. Raises as ``data`` does."""
        return (await self.data())[offset : offset + length]

    async def data(self) -> bytes:
        """Return the page's bytes.

        Raises ``StoreUnavailable`` behind the deadline, ``StoreError``, ``ContentError``. For
        one system call the kernel asks several times, so an error holds for ``limits.RETRY_AFTER``;
        a later call tries again.
        """
        if self._data is None:
            if self._failed and trio.current_time() - self._failed_at < limits.RETRY_AFTER:
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
        self._flights: dict[PageKey, Flight] = {}
        self._live: deque[Flight] = deque()
        self._ahead: deque[Flight] = deque()
        self._busy_ahead = 0
        self._wanted = trio.Event()
        self._threads = trio.CapacityLimiter(limits.CONNECTIONS)
        self._failing: str | None = None
        self._silence = Silence(deadline)
        self._reported: set[PageKey] = set()
        self._order: Sequence[Page] = ()
        self._readable_with: Callable[[AccessRule], Collection[AccessRule]] | None = None
        self._check_tree: Callable[[], Awaitable[None]] | None = None
        self._is_current: Callable[[Page], bool] = lambda _: True
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
        """How many of the pages followed were found damaged at their last read."""
        return len(self._reported)

    def is_damaged(self, page: Page) -> bool:
        """Return whether ``page`` was found damaged at its last read."""
        return self._key(page) in self._reported

    def shared_status(self) -> Mapping[str, object] | None:
        """Return how the shared cache is doing, or None without one."""
        return None if self._shared is None else self._shared.status()

    def watch_tree(
        self, check: Callable[[], Awaitable[None]], is_current: Callable[[Page], bool]
    ) -> None:
        """Have the tree looked at before a page is called damaged: it may have been replaced.

        ``check`` returns when the newest tree is shown, and raises nothing.
        """
        self._check_tree = check
        self._is_current = is_current

    def follow(
        self,
        pages: Sequence[Page],
        readable_with: Callable[[AccessRule], Collection[AccessRule]] | None = None,
    ) -> None:
        """Read ahead along ``pages``, which are in listing order.

        ``readable_with`` tells, of a rule, the rules whose pages everybody may see who may have
        opened a page with it: no others are fetched because of it.
        """
        self._order = pages
        self._readable_with = readable_with
        self._positions = {page.path: position for position, page in enumerate(pages)}
        if self._reported:
            # Versions that nobody is shown any more.
            self._reported &= {self._key(page) for page in pages}
        # What is fetched ahead must still be there when its walk comes to it, even if two go on.
        needed = sum(page.size + ENTRY_OVERHEAD for page in pages)
        fitting = self.cache.max_bytes * len(pages) // needed if pages else 0
        self._walks = ReadAhead(len(pages), min(MAX_WINDOW, fitting // 4))

    def plan_warm_up(self) -> None:
        """Let the warm-up begin with the first walk; ``warm_up`` begins it without one."""
        self.warmth.state = "waiting"
        self.warmth.total = len(self._order)

    def warm_up_again(self) -> None:
        """Fetch what a new tree has that the old one had not, if that was warmed up."""
        if self.warmth.state in ("done", "stopped"):
            self.warmth = Warmth()
            self.warm_up()
        elif self.warmth.state in ("running", "waiting"):
            self.warmth.total = len(self._order)
            self.warmth.pages = 0
            self.warmth.todo = iter(self._order)

    def warm_up(self) -> None:
        """Fetch all pages followed, as long as they fit and nobody wants anything else.

        Does nothing if that has begun already.
        """
        if self.warmth.state not in ("off", "waiting"):
            return
        front = [page for page in self._order if is_front(page.name)]
        first = set(map(id, front))
        rest = (page for page in self._order if id(page) not in first)
        self.warmth.todo = chain(front, rest)
        self.warmth.total = len(self._order)
        self.warmth.state = "running"
        self._wake()

    def open(self, page: Page, *, ahead: bool = True) -> Reading:
        """Begin to read ``page`` and return at once; with ``ahead`` it may be a walk's next step.

        Raises ``ContentError`` for a page that is known to be damaged.
        """
        if page.damage is not None:
            raise ContentError(f"{page.slug}: {page.damage}")
        data = self.cache.get(self._key(page)) if page.size else b""
        walk = self._look_ahead(page) if ahead and self.warmth.state != "done" else None
        if data is not None:
            self.counters.hits += 1
            return Reading(self, page, data, None)
        return Reading(self, page, None, self.fly(page, walk))

    def fly(self, page: Page, walk: Walk | None = None) -> Flight:
        """Return the page's flight as a live one, starting it unless it is under way."""
        key = self._key(page)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight(page, key, walk)
        if not flight.live:
            self.counters.misses += 1
            flight.live = True
            # A walk waits for the request that is on its way; a single reader does not wait for
            # a bulk request and has the page fetched a second time.
            if not flight.taken or walk is None or walk.step == 0:
                self._live.append(flight)
                self._wake()
        return flight

    def peek(self, page: Page) -> bytes | None:
        """Return the page's bytes if they are in memory, without counting as a use."""
        return self.cache.peek(self._key(page)) if page.size else b""

    async def fetch(self, pages: Iterable[Page]) -> None:
        """Have pages in memory, as far as they fit and can be read: nothing is raised."""
        flights = [self.fly(page) for page in pages if self.peek(page) is None]
        for flight in flights:
            with suppress(ChromafuseError):
                await self.wait(flight)

    def _look_ahead(self, page: Page) -> Walk | None:
        position = self._positions.get(page.path)
        if position is None:
            return None
        walk, ahead = self._walks.opened(position, time.monotonic())
        readable = self._readable_with(page.rule) if ahead and self._readable_with else None
        for index in ahead:
            wanted = self._order[index]
            if readable is not None and wanted.rule not in readable:
                continue
            key = self._key(wanted)
            if key not in self._flights and not self._is_settled(wanted, key):
                flight = self._flights[key] = Flight(wanted, key, walk)
                self._ahead.append(flight)
        if ahead:
            self._wake()
            if self.warmth.state == "waiting":
                self.warm_up()
        return walk

    def _is_settled(self, page: Page, key: PageKey) -> bool:
        """Return whether there is nothing to fetch, or no sense in it."""
        return not page.size or page.damage is not None or key in self.cache

    async def wait(self, flight: Flight) -> bytes:
        """Return what ``flight`` brings, within the deadline."""
        with trio.move_on_after(self._deadline):
            await flight.done.wait()
        if flight.data is not None:
            return flight.data
        if flight.error is not None:
            raise flight.error
        error = StoreUnavailable(
            f"{flight.page.slug}: no answer within {self._deadline:g} s",
            remedy="check Chroma, or raise --deadline",
        )
        self._tell_failure(error)
        raise error

    def _key(self, page: Page) -> PageKey:
        version = page.version or f"{page.size}:{page.mtime_ns}"
        return PageKey(self._collection, page.slug, version)

    # The queue

    async def run(self) -> None:
        """Serve flights until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(limits.CONNECTIONS):
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

    def _next_batch(self) -> tuple[list[Flight], bool]:
        """Take what one request may ask for, and tell whether nobody waits for it yet."""
        batch = Batch()
        while self._live and batch.has_room(self._live[0].page, limits.BATCH_PAGES):
            flight = self._live.popleft()
            if not flight.done.is_set():
                batch.add(flight)
        if batch.flights:
            if any(flight.walk and flight.walk.step for flight in batch.flights):
                self._fill(batch, len(batch.flights) + limits.COMPANIONS)
            return batch.flights, False
        if self._busy_ahead < limits.CONNECTIONS - 1:
            self._fill(batch, limits.BATCH_PAGES)
            if not batch.flights:
                self._fill_warm(batch)
        return batch.flights, True

    def _fill(self, batch: Batch, pages: int) -> None:
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

    def _fill_warm(self, batch: Batch) -> None:
        warmth = self.warmth
        if warmth.state != "running" or self._failing is not None:
            return
        while len(batch.flights) < warmth.batch and batch.bytes < limits.BATCH_BYTES:
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
            flight = self._flights[key] = Flight(page, key, warm=True)
            warmth.flying += page.size + ENTRY_OVERHEAD
            batch.add(flight)
        warmth.batch = min(limits.BATCH_PAGES, warmth.batch * 2)

    # One request

    async def _fetch(self, batch: list[Flight]) -> None:
        started = time.perf_counter()
        missing = batch
        try:
            missing = await self._land_shared(batch)
            silence = self._silence.error()
            if silence is not None:
                for flight in missing:
                    flight.crash(silence)
            elif missing:
                await self._fetch_stored(missing)
        except Exception as error:
            # Somebody's bug: it costs these reads, not the mount.
            log.exception("unexpected error while reading from %s", self._store.description)
            self._crash(missing, StoreError(f"unexpected {type(error).__name__} while reading"))
        self.counters.request_seconds += time.perf_counter() - started

    async def _land_shared(self, batch: list[Flight]) -> list[Flight]:
        """Land what Redis has, whatever Chroma does; return the rest.

        A page without a version is not shared: another site's page may have the same key.
        """
        if self._shared is None:
            return batch
        sizes = {
            flight.key: flight.page.size for flight in batch if flight.page.version is not None
        }
        found = await trio.to_thread.run_sync(
            self._shared.get_many, sizes, limiter=self._threads, abandon_on_cancel=True
        )
        for flight in batch:
            if flight.key in found:
                self._land(flight, found[flight.key])
        return [flight for flight in batch if flight.key not in found]

    async def _fetch_stored(self, batch: list[Flight]) -> None:
        begun = trio.current_time()
        work = [(flight.key, flight.page) for flight in batch]
        self.counters.requests += 1
        try:
            with trio.fail_after(self._deadline):
                loaded = await trio.to_thread.run_sync(
                    load, self._store, work, limiter=self._threads, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            late = StoreUnavailable(
                f"{self._store.description} did not answer within {self._deadline:g} s",
                remedy="check Chroma, or raise --deadline",
            )
            self._fail(batch, late, begun)
            return
        except StoreError as error:
            self._fail(batch, error, begun)
            return
        self._silence.answered()
        self._recovered()
        await self._land_all(batch, loaded.outcomes)
        if self._shared is not None and loaded.fresh:
            await trio.to_thread.run_sync(
                self._shared.put_many, loaded.fresh, limiter=self._threads, abandon_on_cancel=True
            )

    async def _land_all(
        self, batch: Sequence[Flight], outcomes: Sequence[bytes | ContentError]
    ) -> None:
        damaged = any(isinstance(outcome, ContentError) for outcome in outcomes)
        if damaged and self._check_tree is not None:
            await self._check_tree()
        for flight, outcome in zip(batch, outcomes, strict=True):
            self._land(flight, outcome)

    def _land(self, flight: Flight, outcome: bytes | ContentError) -> None:
        if isinstance(outcome, ContentError) and not self._is_current(flight.page):
            flight.crash(PageReplaced(f"{flight.page.slug}: this version is gone"))
            return
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

    def _fail(self, batch: Sequence[Flight], error: StoreError, begun: float) -> None:
        # A bulk request that nobody waits for may well be too slow for reasons of its own.
        if any(flight.live for flight in batch):
            self._silence.failed(error, begun)
        self._crash(batch, error)

    def _crash(self, batch: Iterable[Flight], error: StoreError) -> None:
        """Fail a whole request; one log line an incident, not one a read."""
        self.counters.errors += 1
        self._tell_failure(error)
        for flight in batch:
            flight.crash(error)

    def _tell_failure(self, error: StoreError) -> None:
        if self._failing is None:
            log.error("reads from Chroma fail: %s", error)
        self._failing = str(error)

    def _recovered(self) -> None:
        if self._failing is not None:
            log.info("reads from Chroma work again")
            self._failing = None
            self._wake()
