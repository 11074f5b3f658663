"""Page bytes: right or an error, fetched once for all who want them, within the deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from chromafuse.domain.errors import ContentError, StoreError, StoreUnavailable
from chromafuse.domain.page import Page, Version
from chromafuse.domain.tree import TreeVersion, build_tree
from chromafuse.ports import ChunkWriter
from chromafuse.reader import Reader, limits
from chromafuse.reader.limits import CONNECTIONS
from chromafuse.stores.chroma import open_collection
from chromafuse.stores.memory import MemoryCache
from chromafuse.treestore import load_tree, measure
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.sites import foreign_chunks, run_ingest, store_page, write_site
from tests.support.wrappers import Gated

TEXT = "".join(f"line {n} of the page\n" for n in range(30))


def text_of(n: int) -> str:
    return f"page {n}\n" + TEXT


@pytest.fixture
def store() -> Iterator[Gated]:
    store = Gated(MemoryStore(MemoryDatabase()))
    yield store
    store.gate.set()


def make_reader(store: ChunkWriter, *, deadline: float = 20.0, cache: int = 1 << 20) -> Reader:
    return Reader(store, "docs", MemoryCache(cache), deadline)


@asynccontextmanager
async def running(reader: Reader) -> AsyncIterator[trio.Nursery]:
    """A nursery in which the reader runs; at the end all in it is cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        await wait_all_tasks_blocked()
        yield nursery
        nursery.cancel_scope.cancel()


async def read(reader: Reader, page: Page) -> bytes:
    return await reader.open(page).data()


async def read_all(reader: Reader, pages: Sequence[Page]) -> list[bytes | Exception]:
    """Read all pages at the same time; an outcome each, bytes or error."""
    outcomes: list[bytes | Exception] = [b""] * len(pages)

    async def one(index: int) -> None:
        try:
            outcomes[index] = await read(reader, pages[index])
        except (StoreError, ContentError) as error:
            outcomes[index] = error

    async with trio.open_nursery() as nursery:
        for index in range(len(pages)):
            nursery.start_soon(one, index)
    return outcomes


def error_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# -- what is read


@trio_test
async def test_a_page_is_read_whole_and_every_range_is_its_slice(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    assert page.chunks is not None
    assert page.chunks > 20
    reader = make_reader(store)
    async with running(reader):
        data = await read(reader, page)
    assert data == TEXT.encode()
    for offset in range(0, page.size + 20, 37):
        assert data[offset : offset + 50] == TEXT.encode()[offset : offset + 50]


@trio_test
async def test_an_empty_page_makes_no_request(store: Gated) -> None:
    page = store_page(store, "empty", "")
    reader = make_reader(store)
    assert await read(reader, page) == b""
    assert store.asked == []
    assert reader.counters.requests == 0


@trio_test
async def test_a_page_that_was_read_is_not_asked_for_again(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    async with running(reader):
        first = reader.open(page)
        for _ in range(3):
            assert await first.data() == TEXT.encode()
            assert await read(reader, page) == TEXT.encode()
    assert len(store.asked) == 1
    assert (reader.counters.misses, reader.counters.hits) == (1, 3)
    assert reader.counters.bytes_fetched == page.size


@trio_test
async def test_an_open_page_keeps_its_bytes_without_any_cache(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store, cache=0)
    async with running(reader):
        opened = reader.open(page)
        assert await opened.data() == await opened.data() == TEXT.encode()
        assert len(store.asked) == 1
        assert await read(reader, page) == TEXT.encode()
        assert len(store.asked) == 2
    assert len(reader.cache) == 0


@trio_test
async def test_a_new_version_is_never_served_from_the_old_one(store: Gated) -> None:
    old = store_page(store, "a", "old\n" * 5)
    new = store_page(store, "a", "new\n" * 5, ingest_id="0000000b")
    reader = make_reader(store)
    async with running(reader):
        assert await read(reader, old) == b"old\n" * 5
        assert await read(reader, new) == b"new\n" * 5
        assert await read(reader, old) == b"old\n" * 5


# -- one request for many


@trio_test
async def test_fifty_readers_of_one_cold_page_make_one_request(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    outcomes: list[bytes] = []

    async def one() -> None:
        outcomes.append(await read(reader, page))

    async with running(reader):
        store.gate.clear()
        async with trio.open_nursery() as readers:
            for _ in range(50):
                readers.start_soon(one)
            await wait_all_tasks_blocked()
            assert outcomes == []
            store.gate.set()
    assert outcomes == [TEXT.encode()] * 50
    assert len(store.asked) == 1
    assert (reader.counters.requests, reader.counters.misses) == (1, 1)
    assert all(outcome is outcomes[0] for outcome in outcomes)


@trio_test
async def test_pages_wanted_together_come_in_one_request(store: Gated) -> None:
    pages = [store_page(store, f"p{n}", text_of(n)) for n in range(40)]
    reader = make_reader(store)
    async with running(reader):
        opened = [reader.open(page) for page in pages]
        assert [await one.data() for one in opened] == [text_of(n).encode() for n in range(40)]
    assert len(store.asked) == 1
    assert reader.counters.pages_fetched == 40


@trio_test
async def test_pages_wanted_while_all_connections_are_busy_come_in_one_more_request(
    store: Gated,
) -> None:
    pages = [store_page(store, f"p{n}", text_of(n)) for n in range(CONNECTIONS + 30)]
    reader = make_reader(store)
    async with running(reader):
        store.gate.clear()
        for page in pages[:CONNECTIONS]:
            reader.open(page)
            await wait_all_tasks_blocked()
        assert reader.counters.requests == CONNECTIONS
        late = [reader.open(page) for page in pages[CONNECTIONS:]]
        await wait_all_tasks_blocked()
        assert reader.counters.requests == CONNECTIONS
        store.gate.set()
        for number, one in enumerate(late, start=CONNECTIONS):
            assert await one.data() == text_of(number).encode()
    assert reader.counters.requests == CONNECTIONS + 1


@pytest.mark.parametrize(("bound", "requests"), [("BATCH_PAGES", 5), ("BATCH_BYTES", 5)])
@trio_test
async def test_a_request_asks_for_no_more_than_fits_its_deadline(
    store: Gated, monkeypatch: pytest.MonkeyPatch, bound: str, requests: int
) -> None:
    pages = [store_page(store, f"p{n}", "x" * 100) for n in range(10)]
    monkeypatch.setattr(limits, bound, 2 if bound == "BATCH_PAGES" else 250)
    reader = make_reader(store)
    async with running(reader):
        assert await read_all(reader, pages) == [b"x" * 100] * 10
    assert reader.counters.requests == requests


@trio_test
async def test_a_page_larger_than_any_request_is_read_alone(
    store: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [store_page(store, f"p{n}", TEXT) for n in range(3)]
    monkeypatch.setattr(limits, "BATCH_BYTES", 10)
    reader = make_reader(store)
    async with running(reader):
        assert await read_all(reader, pages) == [TEXT.encode()] * 3
    assert reader.counters.requests == 3


# -- who goes away


@trio_test
async def test_a_reader_that_is_cancelled_takes_the_page_from_nobody(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    outcomes: list[bytes] = []

    async def one(scope: trio.CancelScope) -> None:
        with scope:
            outcomes.append(await read(reader, page))

    async with running(reader):
        store.gate.clear()
        scopes = [trio.CancelScope() for _ in range(5)]
        async with trio.open_nursery() as readers:
            for scope in scopes:
                readers.start_soon(one, scope)
                await wait_all_tasks_blocked()
            for scope in scopes[:3]:
                scope.cancel()
            await wait_all_tasks_blocked()
            store.gate.set()
    assert outcomes == [TEXT.encode()] * 2
    assert len(store.asked) == 1


@trio_test
async def test_a_page_that_nobody_waits_for_any_more_still_arrives(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    async with running(reader):
        store.gate.clear()
        with trio.move_on_after(0.05) as scope:
            await read(reader, page)
        assert scope.cancelled_caught
        store.gate.set()
        assert await read(reader, page) == TEXT.encode()
    assert len(store.asked) == 1


@trio_test
async def test_opening_never_waits(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    # Nothing runs that could serve it, and still it returns.
    reader.open(page)
    assert store.asked == []


# -- deadline


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_a_store_that_hangs_is_an_error_within_the_deadline(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store, deadline=0.3)
    async with running(reader):
        store.gate.clear()
        started = trio.current_time()
        outcomes = await read_all(reader, [page] * 10)
        took = trio.current_time() - started
        store.gate.set()
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert 0.2 < took < 3
    assert "\n" not in str(outcomes[0])


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_readers_behind_a_store_that_hangs_get_an_error_too_and_later_their_page(
    store: Gated,
) -> None:
    pages = [store_page(store, f"p{n}", text_of(n)) for n in range(CONNECTIONS * 3)]
    reader = make_reader(store, deadline=1.0)
    async with running(reader):
        store.gate.clear()
        for page in pages[:CONNECTIONS]:
            reader.open(page)
            await wait_all_tasks_blocked()
        for _ in range(2):
            started = trio.current_time()
            outcomes = await read_all(reader, pages[CONNECTIONS:])
            assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
            assert trio.current_time() - started < 1.8
        store.gate.set()
        with trio.fail_after(20):
            while not isinstance((await read_all(reader, pages[-1:]))[0], bytes):
                await trio.sleep(0.05)
        assert await read_all(reader, pages) == [
            text_of(n).encode() for n in range(CONNECTIONS * 3)
        ]
    assert reader.failing is None


@trio_test
async def test_what_is_cached_is_read_while_the_store_hangs(store: Gated) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store, deadline=0.3)
    async with running(reader):
        await read(reader, page)
        store.gate.clear()
        assert await read(reader, page) == TEXT.encode()
        store.gate.set()


# -- errors


@pytest.mark.expects_log("reads from Chroma fail: it is down")
@trio_test
async def test_a_failing_store_is_an_error_and_one_log_line_and_recovers_by_itself(
    store: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chromafuse")
    pages = [store_page(store, f"p{n}", text_of(n)) for n in range(6)]
    reader = make_reader(store)
    async with running(reader):
        store.failure = StoreUnavailable("it is down")
        for page in pages:
            with pytest.raises(StoreUnavailable, match="it is down"):
                await read(reader, page)
        failing: str | None = reader.failing
        assert failing == "it is down"
        assert reader.counters.errors == 6
        assert len(error_lines(caplog)) == 1
        store.failure = None
        assert await read_all(reader, pages) == [text_of(n).encode() for n in range(6)]
    assert reader.failing is None
    assert len(error_lines(caplog)) == 1
    assert [r.getMessage() for r in caplog.records].count("reads from Chroma work again") == 1


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_an_open_file_repeats_its_error_for_a_while_and_then_tries_again(
    store: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_AFTER", 0.3)
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    async with running(reader):
        store.failure = StoreUnavailable("it is down")
        opened = reader.open(page)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await opened.data()
        assert reader.counters.requests == 1
        store.failure = None
        with pytest.raises(StoreUnavailable):
            await opened.data()
        assert await read(reader, page) == TEXT.encode()
        await trio.sleep(0.35)
        assert await opened.data() == TEXT.encode()


@pytest.mark.expects_log("unexpected error while reading")
@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_an_unexpected_error_of_a_vendor_fails_its_pages_and_nothing_else(
    store: Gated,
) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store)
    async with running(reader):
        store.failure = RuntimeError("a bug of somebody's")
        with pytest.raises(StoreError):
            await read(reader, page)
        store.failure = None
        assert await read(reader, page) == TEXT.encode()


@pytest.mark.expects_log("page=bad cannot be read")
@trio_test
async def test_a_damaged_page_is_an_error_with_one_log_line_and_others_go_on(
    store: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    good = [store_page(store, f"p{n}", text_of(n)) for n in range(3)]
    bad = store_page(store, "bad", TEXT)
    [first, *_] = store.find({"page": "bad"})
    store.delete([first.id])
    reader = make_reader(store)
    async with running(reader):
        for _ in range(4):
            outcomes = await read_all(reader, [bad, *good, bad])
            assert isinstance(outcomes[0], ContentError)
            assert isinstance(outcomes[-1], ContentError)
            assert outcomes[1:4] == [text_of(n).encode() for n in range(3)]
    [line] = error_lines(caplog)
    assert line.startswith("page=bad cannot be read: ")
    assert "\n" not in line
    assert reader.failing is None
    assert reader.damaged_pages == 1


@pytest.mark.expects_log("page=bad cannot be read")
@trio_test
async def test_a_damaged_page_counts_as_long_as_its_version_is_shown(store: Gated) -> None:
    good, bad = store_page(store, "good", TEXT), store_page(store, "bad", TEXT)
    [first, *_] = store.find({"page": "bad"})
    store.delete([first.id])
    reader = make_reader(store)
    reader.follow([bad, good])
    async with running(reader):
        await read_all(reader, [bad, good])
    assert reader.damaged_pages == 1
    reader.follow([bad, good])
    assert reader.damaged_pages == 1
    reader.follow([replace(bad, version=Version("another")), good])
    assert reader.damaged_pages == 0


@pytest.mark.parametrize("damage", ["missing", "doubled", "changed", "swapped", "without text"])
@pytest.mark.expects_log("page=a cannot be read")
@trio_test
async def test_no_damage_is_ever_shown_and_a_mended_page_is_read_at_once(
    store: Gated, damage: str
) -> None:
    page = store_page(store, "a", TEXT)
    before = {r.id: r for r in store.find({"page": "a"})}
    _damage(store, damage)
    reader = make_reader(store)
    async with running(reader):
        for _ in range(2):
            with pytest.raises(ContentError):
                await read(reader, page)
            assert len(reader.cache) == 0
        store.delete(list(store.scan_ids()))
        store_page(store, "a", TEXT)
        assert {r.id: r for r in store.find({"page": "a"})} == before
        assert await read(reader, page) == TEXT.encode()


def _damage(store: Gated, damage: str) -> None:
    records = sorted(store.find({"page": "a"}), key=lambda r: int(r.metadata["chunk_index"]))
    inner = store.inner
    assert isinstance(inner, MemoryStore)
    stored = inner._records()
    one, other = records[3], records[4]
    if damage == "missing":
        store.delete([one.id])
    elif damage == "doubled":
        stored[one.id] = replace(one, metadata=other.metadata)
    elif damage == "changed":
        assert one.document is not None
        stored[one.id] = replace(one, document=one.document.upper())
    elif damage == "swapped":
        stored[one.id] = replace(one, document=other.document)
        stored[other.id] = replace(other, document=one.document)
    else:
        stored[one.id] = replace(one, document=None)


@trio_test
async def test_a_page_known_to_be_damaged_is_an_error_at_once(store: Gated) -> None:
    page = replace(store_page(store, "a", TEXT), damage="a chunk is missing")
    reader = make_reader(store)
    with pytest.raises(ContentError, match="a: a chunk is missing"):
        reader.open(page)
    assert store.asked == []


@pytest.mark.expects_log("page=a cannot be read")
@trio_test
async def test_a_page_that_breaks_again_after_it_was_mended_is_logged_again(
    store: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    page = store_page(store, "a", TEXT)
    reader = make_reader(store, cache=0)
    async with running(reader):
        for _ in range(2):
            store.delete(list(store.scan_ids()))
            with pytest.raises(ContentError):
                await read(reader, page)
            store_page(store, "a", TEXT)
            assert await read(reader, page) == TEXT.encode()
    assert len(error_lines(caplog)) == 2


# -- pages of other tools


@pytest.mark.parametrize("fields", [("page",), ("page_slug",), ("page", "page_slug")], ids=str)
@pytest.mark.parametrize("as_text", [False, True])
@trio_test
async def test_pages_of_other_tools_are_read_whichever_way_their_chunks_are_marked(
    store: Gated, fields: tuple[str, ...], as_text: bool
) -> None:
    slugs = [f"p{n}" for n in range(12)]
    for n, slug in enumerate(slugs):
        store.add(foreign_chunks(slug, text_of(n), fields=fields, as_text=as_text))
    store.add(foreign_chunks("unrelated", "not in the tree\n", fields=fields))
    unknown = [
        replace(store_page(store, slug, ""), version=None, chunks=None, size=0) for slug in slugs
    ]
    store.delete([r.id for r in store.scan(documents=False) if "version" in r.metadata])
    tree = measure(store, build_tree(unknown, TreeVersion("v")))
    assert [page.damage for page in tree.pages] == [None] * 12
    by_slug = {page.slug: page for page in tree.pages}
    pages = [by_slug[page.slug] for page in unknown]
    assert [page.size for page in pages] == [len(text_of(n)) for n in range(12)]
    reader = make_reader(store)
    async with running(reader):
        store.finds = 0
        assert await read_all(reader, pages) == [text_of(n).encode() for n in range(12)]
    assert reader.counters.requests == 1
    assert store.finds <= 2


@pytest.mark.parametrize("kind", ["embedded", "server"])
def test_an_ingested_site_is_read_from_a_real_chroma(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    site = {f"d{n % 3}/p{n}.md": text_of(n) for n in range(25)}
    site |= {"empty.md": "", "odd.txt": "nul\0\r\n\u2028é", "long.md": "漢" * 20_000}
    root = write_site(tmp_path / "site", site)
    target = str(tmp_path / "db")
    if kind == "server":
        target = request.getfixturevalue("chroma_server").url
    store = open_collection(target, f"reader-{threading.get_native_id()}", create=True, timeout=60)
    run_ingest(root, store, chunk_size=100)
    tree = load_tree(store, default_mtime_ns=0)
    reader = make_reader(store)

    async def main() -> list[bytes | Exception]:
        async with running(reader):
            return await read_all(reader, tree.pages)

    found = trio.run(main)
    store.close()
    assert {page.path.decode(): data for page, data in zip(tree.pages, found, strict=True)} == {
        path: text.encode() for path, text in site.items()
    }
    assert reader.counters.requests == 1
