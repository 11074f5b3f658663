"""Which pages a search has to be shown: never one too few, whatever the store does."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from chromafuse.domain.errors import StoreError, StoreUnavailable
from chromafuse.domain.page import Metadata, Page, Record, Slug, chunk_ids
from chromafuse.domain.pattern import ALL, And, Fold, Literal, Or, Query
from chromafuse.domain.tree import TreeVersion, build_tree
from chromafuse.domain.treecodec import TREE_ID
from chromafuse.ports import ChunkWriter, NewRecord, Where
from chromafuse.reader import Reader
from chromafuse.search import FEW, MOST_CHUNKS, MOST_FETCHED, Findings, Scope, Searcher
from chromafuse.stores.memory import MemoryCache
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.sites import store_page
from tests.support.wrappers import Gated

PAGES = 100
RARE = Literal("zanzibar")


class Asked(Gated):
    """Tells what was asked; ``matching`` has a gate and a failure of its own."""

    def __init__(self, inner: ChunkWriter) -> None:
        super().__init__(inner)
        self.questions: list[tuple[Where, Where | None]] = []
        self.answer_gate = threading.Event()
        self.answer_gate.set()
        self.refusal: Exception | None = None

    @property
    def requests(self) -> int:
        return len(self.questions) + len(self.asked) + self.finds

    def matching(self, document: Where, where: Where | None, most: int) -> list[Record]:
        self.questions.append((document, where))
        assert self.answer_gate.wait(60), "the test left the gate shut"
        if self.refusal is not None:
            raise self.refusal
        return self.inner.matching(document, where, most)


class Corpus:
    """Pages in a store, a reader on it and a searcher: what a test asks."""

    def __init__(
        self,
        texts: Mapping[str, str],
        *,
        timeout: float = 20.0,
        cache: int = 1 << 20,
        chunk_size: int = 20,
    ) -> None:
        self.store = Asked(MemoryStore(MemoryDatabase()))
        stored = [
            store_page(self.store, slug, text, size=chunk_size) for slug, text in texts.items()
        ]
        self.pages: Sequence[Page] = build_tree(stored, TreeVersion("v")).pages
        self.reader = Reader(self.store, "docs", MemoryCache(cache), 20.0)
        self.searcher = Searcher(self.reader, self.store, timeout)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Corpus]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.reader.run)
            await wait_all_tasks_blocked()
            try:
                yield self
            finally:
                self.store.answer_gate.set()
                self.store.gate.set()
            nursery.cancel_scope.cancel()

    async def find(
        self, query: Query, access: Sequence[str] | None = ("public",), pages: Sequence[Page] = ()
    ) -> Findings:
        scope = Scope(pages or self.pages, access)  # type: ignore[arg-type]
        return await self.searcher.search(scope, query)


def site(count: int = PAGES, **more: str) -> dict[str, str]:
    """Pages of which ``p007`` and ``p042`` have the rare word."""
    texts = {f"p{n:03}": f"page {n}\ncommon words\nand so on\n" for n in range(count)}
    for slug in ("p007", "p042"):
        if slug in texts:
            texts[slug] += "one zanzibar here\n"
    return texts | more


def slugs(findings: Findings) -> list[str]:
    assert findings.candidates is not None, findings
    return sorted(page.slug for page in findings.candidates)


@trio_test
async def test_a_rare_word_in_a_cold_site_takes_two_requests_and_then_none() -> None:
    async with Corpus(site()).running() as corpus:
        found = await corpus.find(RARE)
        assert slugs(found) == ["p007", "p042"]
        assert corpus.store.requests == 2
        assert found.asked == {"$contains": "zanzibar"}
        assert found.matching_chunks == 2
        await corpus.reader.fetch(corpus.pages)
        before = corpus.store.requests
        again = await corpus.find(RARE)
        assert slugs(again) == ["p007", "p042"]
        assert again.asked is None
        assert again.tested == PAGES
        assert corpus.store.requests == before


@trio_test
async def test_a_word_that_is_nowhere_takes_one_request() -> None:
    async with Corpus(site()).running() as corpus:
        assert slugs(await corpus.find(Literal("nowhere"))) == []
        assert corpus.store.requests == 1


@trio_test
async def test_a_few_pages_are_fetched_and_never_asked_for() -> None:
    async with Corpus(site()).running() as corpus:
        few = corpus.pages[:FEW]
        assert slugs(await corpus.find(RARE, pages=few)) == ["p007"]
        assert corpus.store.questions == []
        assert len(corpus.store.asked) == 1


@trio_test
async def test_pages_in_memory_are_tested_there_and_only_the_rest_is_asked_for() -> None:
    async with Corpus(site()).running() as corpus:
        await corpus.reader.fetch(corpus.pages[:30])
        found = await corpus.find(RARE)
        assert slugs(found) == ["p007", "p042"]
        assert found.tested == 31  # those in memory, and the one that Chroma found
        assert len(corpus.store.questions) == 1


@trio_test
async def test_what_chroma_finds_and_the_text_does_not_hold_is_no_candidate() -> None:
    both = And((Literal("zanzibar"), Literal("quetzal")))
    texts = site(p050="zanzibar\n" + "x\n" * 30 + "quetzal\n", p051="zanzibar\n")
    async with Corpus(texts).running() as corpus:
        found = await corpus.find(both)
        assert slugs(found) == ["p050"], "the two stand in different chunks"
        assert found.asked == {"$contains": "zanzibar"}


@trio_test
async def test_alternatives_and_folded_letters_are_asked_for_in_one_request() -> None:
    query = Or((Literal("zanzibar", Fold.UNICODE), Literal("quetzal", Fold.UNICODE)))
    async with Corpus(site(p050="ZANZIBAR\n", p051="Quetzal\n")).running() as corpus:
        found = await corpus.find(query)
        assert slugs(found) == ["p007", "p042", "p050", "p051"]
        # The chunks are not known to be ours: once, it is asked whether such texts are found.
        assert len(corpus.store.questions) == 2
        await corpus.find(Or((Literal("zanzibar", Fold.UNICODE), Literal("other", Fold.UNICODE))))
        assert len(corpus.store.questions) == 3


@trio_test
async def test_marked_pages_are_candidates_as_chroma_may_not_see_their_text() -> None:
    texts = site(p060="before\0 behind zanzibar\n", p061="x" * 15_990 + " zanzibar " + "y" * 9_000)
    corpus = Corpus(texts)
    marks = {"p060": {"nul": True}, "p061": {"cut": True}, "p062": {"cut": True, "nul": True}}
    corpus.pages = [
        replace(page, **marks.get(page.slug, {}))  # type: ignore[arg-type]
        for page in corpus.pages
    ]
    async with corpus.running():
        found = await corpus.find(RARE)
        # They are read and tested, so that p062, which has not the word, is none in the end.
        assert slugs(found) == ["p007", "p042", "p060", "p061"]


@trio_test
async def test_damaged_pages_are_candidates_so_that_the_search_complains() -> None:
    corpus = Corpus(site())
    corpus.pages = [
        replace(page, damage="no chunk is there") if page.slug == "p013" else page
        for page in corpus.pages
    ]
    async with corpus.running():
        assert slugs(await corpus.find(RARE)) == ["p007", "p013", "p042"]
        assert slugs(await corpus.find(RARE, pages=corpus.pages[:20])) == ["p007", "p013"]


@pytest.mark.expects_log("cannot be read")
@trio_test
async def test_pages_that_cannot_be_fetched_stay_candidates() -> None:
    async with Corpus(site()).running() as corpus:
        gone = next(page for page in corpus.pages if page.slug == "p042")
        ids = chunk_ids(gone)
        assert ids is not None
        corpus.store.delete(ids[:1])
        assert slugs(await corpus.find(RARE)) == ["p007", "p042"]
        # Known by now, it is one whatever is searched for.
        assert slugs(await corpus.find(Literal("nowhere"))) == ["p042"]
        assert corpus.searcher.damaged_pages == 1


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_a_store_that_fails_at_fetching_loses_no_candidate() -> None:
    async with Corpus(site()).running() as corpus:
        corpus.store.failure = StoreUnavailable("down")
        assert slugs(await corpus.find(RARE)) == ["p007", "p042"]


@pytest.mark.expects_log("reads from Chroma fail")
@trio_test
async def test_few_pages_that_cannot_be_fetched_are_all_candidates() -> None:
    async with Corpus(site(20)).running() as corpus:
        corpus.store.failure = StoreUnavailable("down")
        assert len(slugs(await corpus.find(RARE))) == 20


@trio_test
async def test_pages_that_do_not_fit_into_the_cache_stay_candidates() -> None:
    async with Corpus(site(), cache=1).running() as corpus:
        assert slugs(await corpus.find(RARE)) == ["p007", "p042"]
        assert slugs(await corpus.find(Literal("nowhere"))) == []


@trio_test
async def test_a_store_that_refuses_means_everything_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with Corpus(site()).running() as corpus:
        corpus.store.refusal = StoreError("no such operator")
        for _ in range(3):
            found = await corpus.find(RARE)
            assert found.candidates is None
            assert found.reason
        assert caplog.text.count("no such operator") == 1
        corpus.store.refusal = None
        assert slugs(await corpus.find(RARE)) == ["p007", "p042"]
        corpus.store.refusal = StoreError("no such operator")
        assert (await corpus.find(RARE)).candidates is None
        assert caplog.text.count("no such operator") == 2


@trio_test
async def test_a_slow_store_means_everything_within_the_time() -> None:
    async with Corpus(site(), timeout=0.05).running() as corpus:
        corpus.store.answer_gate.clear()
        with trio.fail_after(10):
            for _ in range(4):  # more than there are threads
                found = await corpus.find(RARE)
                assert found.candidates is None
                assert "0.05 s" in found.reason
        corpus.store.answer_gate.set()


@trio_test
async def test_slow_fetching_means_everything_within_the_time() -> None:
    async with Corpus(site(), timeout=0.05).running() as corpus:
        corpus.store.gate.clear()
        with trio.fail_after(10):
            assert (await corpus.find(RARE)).candidates is None
        corpus.store.gate.set()


@trio_test
async def test_a_pattern_that_says_nothing_asks_nobody() -> None:
    async with Corpus(site()).running() as corpus:
        found = await corpus.find(ALL)
        assert found.candidates is None
        assert corpus.store.requests == 0


@trio_test
async def test_a_broad_pattern_means_everything() -> None:
    corpus = Corpus(site(40, broad="common\n" * (MOST_CHUNKS + 1)), chunk_size=1)
    async with corpus.running():
        found = await corpus.find(Literal("common"))
        assert found.candidates is None
        assert str(MOST_CHUNKS) in found.reason


@trio_test
async def test_many_candidates_are_told_before_they_are_fetched() -> None:
    count = MOST_FETCHED + 1
    async with Corpus(site(count), timeout=20).running() as corpus:
        corpus.store.gate.clear()
        assert len(slugs(await corpus.find(Literal("common")))) == count
        corpus.store.gate.set()


@trio_test
async def test_an_empty_scope_has_no_candidates() -> None:
    async with Corpus(site(1)).running() as corpus:
        findings = await corpus.searcher.search(Scope([], ()), RARE)
        assert findings.candidates == []
        assert corpus.store.requests == 0


@trio_test
async def test_only_chunks_of_rules_that_are_met_are_asked_for() -> None:
    """Who may see one page learns nothing of the others, of which some have the word too."""
    async with Corpus(site()).running() as corpus:
        for n in range(3):
            secret = NewRecord(
                f"secret-{n}",
                "zanzibar secret",
                {"page": f"secret-{n}", "chunk_index": 0, "version": "v", "access": "g:staff"},
                (0.0,),
            )
            corpus.store.add([secret])
        found = await corpus.find(RARE)
        assert slugs(found) == ["p007", "p042"]
        assert found.matching_chunks == 2
        wide = await corpus.find(Literal("zanzibar s"), ("public", "g:staff"))
        assert slugs(wide) == []
        assert wide.matching_chunks == 3
        assert [where for _, where in corpus.store.questions] == [
            {"access": {"$in": ["public"]}},
            {"access": {"$in": ["public", "g:staff"]}},
        ]


@trio_test
async def test_pages_outside_the_scope_are_never_returned() -> None:
    async with Corpus(site()).running() as corpus:
        scope = [page for page in corpus.pages if page.slug != Slug("p007")]
        assert slugs(await corpus.find(RARE, pages=scope)) == ["p042"]


@trio_test
async def test_chunks_of_another_writer_have_no_access_to_ask_for() -> None:
    async with Corpus(site()).running() as corpus:
        assert slugs(await corpus.find(RARE, None)) == ["p007", "p042"]
        assert corpus.store.questions == [({"$contains": "zanzibar"}, None)]


@trio_test
async def test_chroma_is_not_believed_once_it_has_another_tree() -> None:
    """The old chunks of a replaced page are gone: nobody could tell that it matched."""
    async with Corpus(site()).running() as corpus:
        packed = base64.b64encode(gzip.compress(b"{}")).decode()
        scope = Scope(corpus.pages, ("public",), TreeVersion("one"))  # type: ignore[arg-type]

        def switch(version: str) -> None:
            metadata: Metadata = {"tree_version": version, "format": 1}
            corpus.store.upsert([NewRecord(TREE_ID, packed, metadata, (0.0,))])

        switch("one")
        found = await corpus.searcher.search(scope, RARE)
        assert slugs(found) == ["p007", "p042"]
        assert (found.asked, found.matching_chunks) == ({"$regex": "zanzibar|H4sI"}, 2)
        assert corpus.store.requests == 2
        switch("two")
        found = await corpus.searcher.search(scope, Literal("and so"))
        assert found.candidates is None
        assert "ingested again" in found.reason
        await corpus.reader.fetch(corpus.pages)
        assert slugs(await corpus.searcher.search(scope, RARE)) == ["p007", "p042"]


@trio_test
async def test_searches_at_once_do_not_mix() -> None:
    texts = site() | {f"q{n:02}": f"needle-{n:02}-\n" for n in range(40)}
    async with Corpus(texts).running() as corpus:
        results: dict[int, list[str]] = {}

        async def one(number: int) -> None:
            results[number] = slugs(await corpus.find(Literal(f"needle-{number:02}-")))

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(one, number)
        assert results == {n: [f"q{n:02}"] for n in range(40)}
