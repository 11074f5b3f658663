"""A server that does not answer costs a row of readers one deadline, not one each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from trio.testing import trio_test

from chromafuse.domain.errors import StoreUnavailable
from chromafuse.ports import PageKey
from chromafuse.reader import Reader, limits
from chromafuse.reader.silence import Silence
from chromafuse.stores.memory import MemoryCache
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.page_cache import DictCache
from tests.support.sites import store_page
from tests.support.wrappers import Gated
from tests.unit.test_reader import read, read_all, running, text_of

LATE = StoreUnavailable("no answer")


@pytest.fixture
def store() -> Iterator[Gated]:
    store = Gated(MemoryStore(MemoryDatabase()))
    yield store
    store.gate.set()


@trio_test
async def test_an_error_that_took_long_holds_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RETRY_AFTER", 0.2)
    silence = Silence(10.0)
    assert silence.error() is None
    silence.failed(LATE, trio.current_time() - 9.9)
    assert silence.error() is LATE
    await trio.sleep(0.3)
    assert silence.error() is None


@trio_test
async def test_an_error_that_came_at_once_does_not_hold() -> None:
    silence = Silence(10.0)
    silence.failed(LATE, trio.current_time() - 1.0)
    assert silence.error() is None


@trio_test
async def test_one_late_request_among_others_that_are_answered_does_not_hold() -> None:
    silence = Silence(10.0)
    silence.answered()
    silence.failed(LATE, trio.current_time() - 10.0)
    assert silence.error() is None


@trio_test
async def test_an_answer_ends_it() -> None:
    silence = Silence(10.0)
    silence.failed(LATE, trio.current_time() - 10.0)
    silence.answered()
    assert silence.error() is None


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_readers_of_one_page_after_the_other_wait_once(
    store: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_AFTER", 3600.0)
    pages = [store_page(store, f"p{n}", text_of(n)) for n in range(200)]
    reader = Reader(store, "docs", MemoryCache(1 << 20), 0.2)
    async with running(reader):
        store.gate.clear()
        for page in pages[::20] + pages[:10]:
            with pytest.raises(StoreUnavailable):
                await read(reader, page)
        assert reader.counters.requests == 1
        store.gate.set()


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_what_redis_has_is_read_while_the_store_hangs(store: Gated) -> None:
    """Also if it is wanted together with what Redis has not."""
    pages = [store_page(store, f"p{n}", text_of(n)) for n in range(4)]
    key = PageKey("docs", pages[2].slug, pages[2].version or "")
    shared = DictCache()
    shared.pages[key] = text_of(2).encode()
    reader = Reader(store, "docs", MemoryCache(0), 0.2, shared)
    async with running(reader):
        store.gate.clear()
        for _ in range(2):
            outcomes = await read_all(reader, pages)
            assert outcomes[2] == text_of(2).encode()
            assert sum(isinstance(outcome, StoreUnavailable) for outcome in outcomes) == 3
        store.gate.set()
