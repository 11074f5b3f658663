"""Pages that nobody has opened yet: fetched in bulk, once, and never in a live read's way."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from chromafuse.domain.errors import ContentError, StoreUnavailable
from chromafuse.domain.page import Page, Record, chunk_ids
from chromafuse.domain.readahead import FIRST_WINDOW, IDLE_SECONDS
from chromafuse.domain.tree import TreeVersion, build_tree
from chromafuse.ports import ChunkWriter, PageCache, PageKey, Where
from chromafuse.reader import Reader, limits
from chromafuse.reader.limits import BATCH_PAGES, COMPANIONS, CONNECTIONS, FIRST_WARM, WARM_ROUNDS
from chromafuse.stores.memory import ENTRY_OVERHEAD, MemoryCache
from chromafuse.stores.redis import RedisCache
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.page_cache import DictCache
from tests.support.redis_server import running_redis
from tests.support.sites import store_page
from tests.support.wrappers import Gated

SITE = 2_000
GENEROUS = 30.0
"""Seconds within which something has to happen that usually takes a thousandth of them."""


def text_of(slug: str) -> str:
    return f"page {slug}\n" * 4


def slug_of(n: int) -> str:
    """Names of a site in which every directory has 25 pages."""
    return f"d{n // 25:03}/p{n:05}"


class Watched(Gated):
    """Tells which pages each request asked for; holds back or fails bulk requests only."""

    def __init__(self, inner: ChunkWriter) -> None:
        super().__init__(inner)
        self.owners: dict[str, str] = {}
        self.bulk_gate = threading.Event()
        self.bulk_gate.set()

    def fill(self, slugs: Iterable[str]) -> Sequence[Page]:
        """Store pages; return them in listing order."""
        pages = [store_page(self, slug, text_of(slug)) for slug in slugs]
        for page in pages:
            self.owners.update(dict.fromkeys(chunk_ids(page) or (), page.slug))
        return build_tree(pages, TreeVersion("v")).pages

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        if len({self.owners[one] for one in ids}) > 1:
            assert self.bulk_gate.wait(60), "the test left the gate shut"
        return super().get(ids, where)

    @property
    def requests(self) -> list[list[str]]:
        """The slugs that each request asked for, in its order."""
        return [list(dict.fromkeys(self.owners[one] for one in ids)) for ids in self.asked]

    @property
    def fetched(self) -> Counter[str]:
        """How many times each page was asked for."""
        return Counter(slug for request in self.requests for slug in request)


@pytest.fixture
def store() -> Iterator[Watched]:
    store = Watched(MemoryStore(MemoryDatabase()))
    yield store
    store.gate.set()
    store.bulk_gate.set()


def make_reader(
    store: ChunkWriter,
    pages: Sequence[Page],
    *,
    cache: int = 64 << 20,
    deadline: float = 60.0,
    shared: PageCache | None = None,
) -> Reader:
    reader = Reader(store, "docs", MemoryCache(cache), deadline, shared)
    reader.follow(pages)
    return reader


def room_for(pages: Sequence[Page]) -> int:
    """The size of a cache that holds exactly ``pages``."""
    return sum(page.size + ENTRY_OVERHEAD for page in pages)


@asynccontextmanager
async def running(reader: Reader) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def walk(reader: Reader, pages: Iterable[Page]) -> None:
    """Read pages one after the other and look at their bytes."""
    for page in pages:
        with trio.fail_after(GENEROUS):
            assert await reader.open(page).data() == text_of(page.slug).encode()


async def until_idle(reader: Reader) -> None:
    """Return when nothing is on its way or queued any more."""
    with trio.fail_after(GENEROUS):
        while reader._flights or reader._busy_ahead:
            await trio.sleep(0.002)


async def until(reader: Reader, *states: str) -> None:
    """Return when the warm-up is in one of ``states``."""
    with trio.fail_after(GENEROUS):
        while reader.warmth.state not in states:
            await trio.sleep(0.002)
    await until_idle(reader)


def cached(reader: Reader, pages: Iterable[Page]) -> list[Page]:
    return [page for page in pages if reader._key(page) in reader.cache]


# -- one walk


@pytest.mark.parametrize("backwards", [False, True])
@trio_test
async def test_a_walk_over_the_site_makes_few_requests_and_fetches_no_page_twice(
    store: Watched, backwards: bool
) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, reversed(pages) if backwards else pages)
    assert len(store.asked) <= 30
    assert reader.counters.requests == len(store.asked)
    assert set(store.fetched.values()) == {1}
    assert reader.counters.pages_fetched == SITE
    assert all(len(request) <= BATCH_PAGES for request in store.requests)


@trio_test
async def test_a_second_walk_makes_no_request(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(300)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages)
        before = len(store.asked)
        await walk(reader, pages)
        await walk(reader, reversed(pages))
    assert len(store.asked) == before


@trio_test
async def test_pages_read_here_and_there_bring_no_others(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    chosen = [pages[n * 97 % SITE] for n in range(20)]
    async with running(reader):
        await walk(reader, chosen)
        await until_idle(reader)
    assert store.fetched == Counter(page.slug for page in chosen)


@trio_test
async def test_a_page_beside_another_is_no_walk_yet(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(100)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[50:52])
        await until_idle(reader)
        assert len(store.fetched) == 2
        await walk(reader, pages[52:53])
        await until_idle(reader)
    assert len(store.fetched) == 3 + FIRST_WINDOW


@trio_test
async def test_pages_that_need_no_fetch_are_not_asked_for_ahead(store: Watched) -> None:
    pages = list(store.fill(map(slug_of, range(200))))
    damaged, empty = pages[40], store_page(store, "d001/empty", "")
    pages[40] = replace(damaged, damage="a chunk is missing")
    pages.insert(60, empty)
    reader = make_reader(store, pages)
    async with running(reader):
        for page in pages:
            if page.damage is not None:
                with pytest.raises(ContentError):
                    reader.open(page)
            else:
                assert await reader.open(page).data() == text_of(page.slug).encode()[: page.size]
        await until_idle(reader)
    assert set(store.fetched) == {page.slug for page in pages} - {damaged.slug, empty.slug}
    assert reader.failing is None


@pytest.mark.expects_log("page=d000/p00020 cannot be read")
@trio_test
async def test_a_page_that_turns_out_damaged_ahead_of_a_walk_costs_only_itself(
    store: Watched,
) -> None:
    pages = store.fill(map(slug_of, range(100)))
    store.delete([(chunk_ids(pages[20]) or [""])[0]])
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:20])
        with pytest.raises(ContentError):
            await reader.open(pages[20]).data()
        await walk(reader, pages[21:])
    assert reader.damaged_pages == 1


# -- several walks


@pytest.mark.parametrize("walkers", [2, 8])
@trio_test
async def test_walkers_on_their_own_stretches_profit_all(store: Watched, walkers: int) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    stretch = SITE // walkers
    async with running(reader), trio.open_nursery() as nursery:
        for n in range(walkers):
            nursery.start_soon(walk, reader, pages[n * stretch : (n + 1) * stretch])
    assert len(store.asked) <= 20 + 10 * walkers
    assert set(store.fetched.values()) == {1}


@pytest.mark.parametrize("workers", [2, 4, 8])
@trio_test
async def test_workers_on_one_list_of_pages_profit_all(store: Watched, workers: int) -> None:
    """As ``xargs -P`` and ``rg -j`` hand pages out."""
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    todo = iter(pages)

    async def work() -> None:
        await walk(reader, todo)

    async with running(reader), trio.open_nursery() as nursery:
        for _ in range(workers):
            nursery.start_soon(work)
    assert len(store.asked) <= 50
    assert set(store.fetched) == {page.slug for page in pages}
    assert store.fetched.total() <= SITE + COMPANIONS


@trio_test
async def test_two_walkers_side_by_side_on_the_same_pages_fetch_each_once(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(walk, reader, pages)
    assert len(store.asked) <= 40
    assert set(store.fetched.values()) == {1}


# -- a walk that stops


@pytest.mark.parametrize("stops", [True, False])
@trio_test
async def test_what_is_queued_for_a_walk_that_stopped_is_not_fetched(
    store: Watched, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    monkeypatch.setattr(limits, "BATCH_PAGES", 5)
    monkeypatch.setattr(limits, "COMPANIONS", 2)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:60])
        await until_idle(reader)
        before = store.fetched.total()
        store.bulk_gate.clear()
        at = 60
        while len(reader._ahead) < 50:  # the next window has been asked for
            await walk(reader, pages[at : at + 1])
            at += 1
        await wait_all_tasks_blocked()
        now += IDLE_SECONDS + (1 if stops else -1)
        store.bulk_gate.set()
        await until_idle(reader)
        fetched = store.fetched.total() - before
        # Only what was on its way already, on every connection but the live reads' one.
        assert fetched <= 5 * (CONNECTIONS - 1) if stops else fetched > 50
        assert not reader._ahead
        await wait_all_tasks_blocked(0.05)
        assert store.fetched.total() - before == fetched
        # Who goes on later finds everything.
        await walk(reader, pages[at : at + 200])
        assert set(store.fetched.values()) == {1}


# -- live reads go first


@trio_test
async def test_a_live_read_never_waits_behind_pages_ahead(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_PAGES", 5)
    monkeypatch.setattr(limits, "COMPANIONS", 0)
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:40])
        await until_idle(reader)
        store.bulk_gate.clear()
        at = 40
        while len(reader._ahead) < 50:
            await walk(reader, pages[at : at + 1])
            at += 1
        await wait_all_tasks_blocked()
        assert reader._busy_ahead == CONNECTIONS - 1
        # All these are answered while the bulk requests hang.
        for n in range(1_000, SITE, 50):
            await walk(reader, [pages[n]])
        assert reader._busy_ahead == CONNECTIONS - 1
        store.bulk_gate.set()


@trio_test
async def test_a_live_read_never_waits_behind_the_warm_up(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        store.bulk_gate.clear()
        reader.warm_up()
        await wait_all_tasks_blocked()
        assert reader._busy_ahead == CONNECTIONS - 1
        # Pages that the warm-up is about to bring, and others.
        for n in (0, 20, 150, 700, 1_500):
            await walk(reader, [pages[n]])
        store.bulk_gate.set()
        await until(reader, "done")
    assert len(cached(reader, pages)) == SITE


@trio_test
async def test_a_walk_waits_for_the_request_that_brings_its_page_and_makes_no_other(
    store: Watched,
) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:3])
        await until_idle(reader)
        store.bulk_gate.clear()
        for page in pages[3 : 3 + FIRST_WINDOW]:
            await walk(reader, [page])
        await wait_all_tasks_blocked()
        before = len(store.asked)
        # These are on their way.
        readings = [reader.open(page) for page in pages[3 + FIRST_WINDOW :][:FIRST_WINDOW]]
        await wait_all_tasks_blocked(0.02)
        store.bulk_gate.set()
        for reading in readings:
            await reading.data()
        await until_idle(reader)
    assert set(store.fetched.values()) == {1}
    assert len(store.asked) >= before


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_failed_requests_ahead_do_not_fail_an_open_later(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(300)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:3])
        await until_idle(reader)
        store.bulk_gate.clear()
        await walk(reader, pages[3:8])
        await wait_all_tasks_blocked()
        store.failure = StoreUnavailable("it is away")
        store.bulk_gate.set()
        await until_idle(reader)
        assert reader.counters.errors > 0
        assert reader.failing == "it is away"
        store.failure = None
        await walk(reader, pages[8:])
    assert reader.failing is None


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_a_store_that_fails_is_not_asked_again_and_again_for_a_walk_that_waits(
    store: Watched,
) -> None:
    pages = store.fill(map(slug_of, range(300)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:20])
        await until_idle(reader)
        store.failure = StoreUnavailable("it is away")
        left = [page for page in pages[20:60] if page not in cached(reader, pages)]
        before = reader.counters.requests
        for page in left:
            with pytest.raises(StoreUnavailable):
                await reader.open(page).data()
        await until_idle(reader)
        # A request for each open, and some ahead of them.
        assert reader.counters.requests - before <= 2 * len(left) + 10
        store.failure = None
        await walk(reader, pages)


# -- the warm-up


@trio_test
async def test_the_warm_up_fetches_everything_once_in_few_requests(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    assert (reader.warmth.state, reader.warmth.pages) == ("off", 0)
    async with running(reader):
        await wait_all_tasks_blocked(0.02)
        assert store.asked == []
        reader.warm_up()
        await until(reader, "done")
        assert len(store.asked) <= 14
        assert min(map(len, store.requests)) == FIRST_WARM
        assert store.fetched == Counter(page.slug for page in pages)
        assert (reader.warmth.pages, reader.warmth.total) == (SITE, SITE)
        before = len(store.asked)
        await walk(reader, pages)
        assert len(store.asked) == before


@trio_test
async def test_the_warm_up_fetches_index_and_readme_pages_first_and_then_in_listing_order(
    store: Watched,
) -> None:
    front = [f"d{n:03}/{name}" for n in range(0, 40, 4) for name in ("index", "README", "Index")]
    pages = store.fill([*front, *map(slug_of, range(1_000)), "d000/indexes", "d001/readme-not"])
    reader = make_reader(store, pages)
    async with running(reader):
        store.bulk_gate.clear()
        reader.warm_up()
        await wait_all_tasks_blocked()
        queued = sorted(reader._flights.values(), key=lambda flight: flight.page.path)
        asked_first = {flight.page.slug for flight in queued}
        assert set(front) <= asked_first
        store.bulk_gate.set()
        await until(reader, "done")
    # Requests may overtake each other, each is in order.
    [first] = [request for request in store.requests if front[0] in request]
    assert set(first[: len(front)]) == set(front)
    order: dict[str, int] = {page.slug: n for n, page in enumerate(pages)}
    for request in store.requests:
        rest = [order[slug] for slug in request if slug not in front]
        assert rest == sorted(rest)


@trio_test
async def test_the_warm_up_tells_how_far_it_is(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        store.bulk_gate.clear()
        reader.warm_up()
        await wait_all_tasks_blocked()
        assert reader.warmth.state == "running"
        assert 0 < reader.warmth.pages < reader.warmth.total == SITE
        store.bulk_gate.set()
        await until(reader, "done")


@trio_test
async def test_the_warm_up_is_not_done_before_its_last_page_is_there(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(20)))
    reader = make_reader(store, pages)
    async with running(reader):
        store.bulk_gate.clear()
        reader.warm_up()
        await wait_all_tasks_blocked()
        assert reader.warmth.state == "running"
        store.bulk_gate.set()
        await until(reader, "done")
    assert len(cached(reader, pages)) == 20


@trio_test
async def test_a_planned_warm_up_waits_for_the_first_walk_and_begins_once(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        reader.plan_warm_up()
        assert (reader.warmth.state, reader.warmth.total) == ("waiting", SITE)
        await walk(reader, [pages[500], pages[900], pages[100]])
        await until_idle(reader)
        assert len(store.fetched) == 3
        await walk(reader, pages[:3])
        reader.warm_up()
        await until(reader, "done")
        reader.warm_up()
        await until_idle(reader)
    assert reader.warmth.state == "done"
    assert set(store.fetched.values()) == {1}
    assert len(store.asked) <= 20


@trio_test
async def test_a_planned_warm_up_begins_without_any_walk_when_it_is_told_to(
    store: Watched,
) -> None:
    pages = store.fill(map(slug_of, range(300)))
    reader = make_reader(store, pages)
    async with running(reader):
        reader.plan_warm_up()
        reader.warm_up()
        await until(reader, "done")
    assert store.fetched == Counter(page.slug for page in pages)


@trio_test
async def test_the_warm_up_of_nothing_is_done(store: Watched) -> None:
    reader = make_reader(store, [])
    async with running(reader):
        reader.warm_up()
        await until(reader, "done")
    assert store.asked == []


@trio_test
async def test_a_warm_up_that_fits_exactly_ends_with_every_page_cached(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(500)))
    reader = make_reader(store, pages, cache=room_for(pages))
    async with running(reader):
        reader.warm_up()
        await until(reader, "done", "stopped")
    assert reader.warmth.state == "done"
    assert len(cached(reader, pages)) == 500


@trio_test
async def test_a_warm_up_of_pages_that_were_all_read_already_is_done(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(500)))
    reader = make_reader(store, pages, cache=room_for(pages))
    async with running(reader):
        await walk(reader, pages)
        before = len(store.asked)
        reader.warm_up()
        await until(reader, "done", "stopped")
    assert reader.warmth.state == "done"
    assert len(store.asked) == before


@trio_test
async def test_the_warm_up_stops_when_the_cache_is_full_and_throws_nothing_out(
    store: Watched,
) -> None:
    pages = store.fill([*map(slug_of, range(SITE)), "d030/index"])
    reader = make_reader(store, pages, cache=room_for(pages[:300]))
    async with running(reader):
        reader.warm_up()
        await until(reader, "stopped", "done")
        assert reader.warmth.state == "stopped"
        assert reader.cache.used_bytes <= reader.cache.max_bytes
        assert len(reader.cache) >= 290
        assert store.fetched.total() <= 300
        before = len(store.asked)
        await walk(reader, [page for page in pages if page.slug == "d030/index"])
        await wait_all_tasks_blocked(0.05)
        assert len(store.asked) == before


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_the_warm_up_pauses_while_chroma_fails_and_then_fetches_all_the_rest(
    store: Watched,
) -> None:
    pages = store.fill([*map(slug_of, range(SITE)), "z/last"])
    reader = make_reader(store, pages)
    async with running(reader):
        store.failure = StoreUnavailable("it is away")
        reader.warm_up()
        await until_idle(reader)
        await wait_all_tasks_blocked(0.1)
        assert len(store.asked) <= CONNECTIONS
        assert reader.warmth.state == "running"
        with pytest.raises(StoreUnavailable):
            await reader.open(pages[-1]).data()
        await wait_all_tasks_blocked(0.05)
        assert len(store.asked) <= CONNECTIONS + 1
        store.failure = None
        await walk(reader, pages[-1:])
        await until(reader, "done")
        assert len(cached(reader, pages)) == len(pages)
        before = len(store.asked)
        await walk(reader, pages)
        assert len(store.asked) == before


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_pages_that_fail_again_and_again_do_not_keep_the_warm_up_going(
    store: Watched,
) -> None:
    class Poisoned(Watched):
        def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
            found = super().get(ids, where)
            if "d000/p00007" in {self.owners[one] for one in ids}:
                raise StoreUnavailable("too much at once")
            return found

    store = Poisoned(store.inner)
    pages = store.fill(map(slug_of, range(500)))
    others = store.fill(f"other/{n}" for n in range(40))
    reader = make_reader(store, pages)
    async with running(reader):
        reader.warm_up()
        for page in others:
            # Each of these shows that the store is there again.
            await walk(reader, [page])
            await until_idle(reader)
    assert reader.warmth.state == "stopped"
    assert store.fetched["d000/p00007"] == 1 + WARM_ROUNDS
    assert len(cached(reader, pages)) >= 500 - FIRST_WARM


@trio_test
async def test_a_walk_that_runs_into_the_warm_up_fetches_no_page_twice(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[:3])
        reader.warm_up()
        await walk(reader, pages)
        await until(reader, "done")
    assert set(store.fetched.values()) == {1}
    assert len(store.asked) <= 30


@trio_test
async def test_pages_ahead_of_a_walk_go_before_the_warm_up(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_PAGES", 5)
    monkeypatch.setattr(limits, "COMPANIONS", 0)
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages)
    async with running(reader):
        await walk(reader, pages[1_500:1_540])
        await until_idle(reader)
        store.bulk_gate.clear()
        reader.warm_up()
        await wait_all_tasks_blocked()
        warmed = reader.warmth.pages
        at = 1_540
        while len(reader._ahead) < 50:
            await walk(reader, pages[at : at + 1])
            at += 1
        queued = {flight.page.slug for flight in reader._ahead}
        asked = len(store.asked)
        store.bulk_gate.set()
        with trio.fail_after(GENEROUS):
            while reader.warmth.pages == warmed:
                await trio.sleep(0)
        since = {slug for request in store.requests[asked:] for slug in request}
        # The last of the queue may be about to be asked for.
        assert len(queued - since) <= 5 * CONNECTIONS
        await until(reader, "done")
    assert set(store.fetched.values()) == {1}


# -- a cache that others fill too


@pytest.fixture(params=["dictionary", "redis"])
def shared(request: pytest.FixtureRequest) -> Iterator[PageCache]:
    if request.param == "dictionary":
        yield DictCache()
        return
    with running_redis() as server:
        cache = RedisCache(server.url, 600)
        yield cache
        cache.close()


@trio_test
async def test_what_one_reader_has_fetched_costs_another_no_request(
    store: Watched, shared: PageCache
) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    first, second = (make_reader(store, pages, shared=shared) for _ in range(2))
    async with running(first):
        await walk(first, pages)
        await until_idle(first)
    assert first.counters.requests == len(store.asked) <= 30
    before = len(store.asked)
    async with running(second):
        await walk(second, pages)
    assert len(store.asked) == before
    assert second.counters.requests == 0
    assert second.counters.pages_fetched == SITE


@trio_test
async def test_a_warm_up_from_a_filled_cache_makes_no_request(
    store: Watched, shared: PageCache
) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    for _ in range(2):
        reader = make_reader(store, pages, shared=shared)
        async with running(reader):
            reader.warm_up()
            await until(reader, "done")
        assert len(cached(reader, pages)) == SITE
    assert store.fetched == Counter(page.slug for page in pages)


@trio_test
async def test_a_fresh_page_is_put_once_and_one_that_was_there_is_not(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(300)))
    shared = DictCache()
    reader = make_reader(store, pages, shared=shared)
    there = {reader._key(page): text_of(page.slug).encode() for page in pages[::3]}
    shared.pages.update(there)
    async with running(reader):
        await walk(reader, pages)
        await until_idle(reader)
    asked = Counter(key for keys in shared.asked for key in keys)
    put = Counter(key for keys in shared.put for key in keys)
    everything = {reader._key(page) for page in pages}
    assert asked == Counter(everything)
    assert put == Counter(everything - there.keys())
    assert len(shared.asked) <= 15
    assert len(shared.put) <= 15
    assert set(store.fetched) == {key.slug for key in everything - there.keys()}


@trio_test
async def test_no_read_waits_until_its_page_is_put_into_the_shared_cache(store: Watched) -> None:
    class Slow(DictCache):
        gate = threading.Event()

        def put_many(self, pages: Sequence[tuple[PageKey, bytes]]) -> None:
            assert self.gate.wait(60), "the test left the gate shut"
            super().put_many(pages)

    pages = store.fill(map(slug_of, range(100)))
    shared = Slow()
    reader = make_reader(store, pages, shared=shared)
    async with running(reader):
        await walk(reader, [pages[50]])
        assert shared.put == []
        shared.gate.set()
        await until_idle(reader)
    assert len(shared.pages) == 1


@pytest.mark.expects_log("page=d000/p00005 cannot be read")
@trio_test
async def test_a_damaged_page_is_never_put_into_the_shared_cache(store: Watched) -> None:
    pages = store.fill(map(slug_of, range(20)))
    store.delete([(chunk_ids(pages[5]) or [""])[0]])
    shared = DictCache()
    reader = make_reader(store, pages, shared=shared)
    async with running(reader):
        reader.warm_up()
        await until(reader, "done")
        with pytest.raises(ContentError):
            await reader.open(pages[5]).data()
    assert set(shared.pages) == {reader._key(page) for page in pages if page is not pages[5]}


@trio_test
async def test_a_shared_cache_that_loses_everything_costs_requests_and_nothing_else(
    store: Watched,
) -> None:
    class Forgetful(DictCache):
        def get_many(self, sizes: Mapping[PageKey, int]) -> dict[PageKey, bytes]:
            super().get_many(sizes)
            return {}

    pages = store.fill(map(slug_of, range(500)))
    reader = make_reader(store, pages, shared=Forgetful())
    async with running(reader):
        await walk(reader, pages)
    assert store.fetched == Counter(page.slug for page in pages)


# -- a cache that is too small


@pytest.mark.parametrize("fitting", [0, 1, 20, 150, 700])
@trio_test
async def test_memory_stays_within_its_bound_and_every_page_is_right(
    store: Watched, fitting: int
) -> None:
    pages = store.fill(map(slug_of, range(SITE)))
    reader = make_reader(store, pages, cache=room_for(pages[:fitting]))
    async with running(reader):
        for page in pages:
            await walk(reader, [page])
            assert reader.cache.used_bytes <= reader.cache.max_bytes
        await until_idle(reader)
    assert len(reader.cache) <= fitting
    assert not reader._ahead
    # With room for hardly anything, each page is fetched as it is opened, and not ahead as well.
    assert store.fetched.total() <= SITE + 10
