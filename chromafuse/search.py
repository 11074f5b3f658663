"""Which pages can match a query: what a recursive search has to be shown.

Pages in memory are tested there. For the rest Chroma is asked once, with the access filter of
the view; what it finds is fetched in bulk, so that it can be tested too and is there when it is
opened. An answer may hold pages that do not match, never the other way round; when that cannot be
promised, or takes too long, there is none and everything is searched.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from chromafuse.domain.access import AccessKey
from chromafuse.domain.errors import StoreError
from chromafuse.domain.page import Page, page_slug
from chromafuse.domain.pattern import All, Query, matcher, to_chroma
from chromafuse.domain.tree import TreeVersion
from chromafuse.domain.treecodec import PACKED_BEGINNING
from chromafuse.ports import ChunkReader, Where
from chromafuse.reader import BlockReader, Reader

log = logging.getLogger(__name__)

SLICE = 0.002
"""Seconds of testing after which requests get their turn."""
CHECK_EVERY = 32
"""Pages tested between two looks at the clock."""
FEW = 32
"""So few pages are fetched and tested rather than asked for."""
MOST_CHUNKS = 2_000
"""When Chroma finds as many, the pattern is too broad: everything is read in bulk."""
MOST_FETCHED = 400
MOST_BYTES = 8_000_000
"""Up to so much is fetched before the answer, to be tested; more is only begun."""


_LONG = re.compile(r"[0-9A-Za-z]{3}")
"""What is found even where texts are indexed by three characters."""
_ANY_LETTER: Where = {"$regex": "[A-Za-z]"}


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search is among: some of a view's pages.

    ``access`` are the keys of the rules that are met in the view, or None for chunks of another
    writer, which carry none. ``tree`` is the version of the tree whose pages these are, or None
    where the collection cannot tell whether it still has that one.
    """

    pages: Sequence[Page]
    access: Sequence[AccessKey] | None
    tree: TreeVersion | None = None


@dataclass(slots=True)
class Findings:
    """What a search has found, and how; times in seconds.

    ``candidates`` is None if everything has to be searched, for the ``reason`` given.
    """

    candidates: list[Page] | None = None
    reason: str = ""
    tested: int = 0
    asked: Where | None = None
    matching_chunks: int = 0
    memory_seconds: float = 0.0
    chroma_seconds: float = 0.0
    fetch_seconds: float = 0.0


class Searcher:
    """Finds candidates. ``timeout`` is how many seconds a search may wait for Chroma."""

    def __init__(
        self,
        reader: Reader,
        store: ChunkReader,
        timeout: float,
        blocks: BlockReader | None = None,
    ) -> None:
        self._reader = reader
        self._blocks = blocks
        self._store = store
        self._timeout = timeout
        self._thread = trio.CapacityLimiter(2)
        self._failing = False
        self._finds_short = False

    @property
    def damaged_pages(self) -> int:
        """How many pages were found damaged: findings hold as long as that stays the same."""
        return self._reader.damaged_pages

    async def search(self, scope: Scope, query: Query) -> Findings:
        """Return the candidates of ``query`` among the pages of ``scope``. Raises nothing."""
        findings = Findings()
        if isinstance(query, All):
            findings.reason = "the pattern says nothing about the text"
            return findings
        with trio.move_on_after(self._timeout) as timeout:
            await self._search(scope, query, findings)
        if timeout.cancelled_caught:
            findings.candidates = None
            findings.reason = f"it took over {self._timeout:g} s"
        return findings

    async def _search(self, scope: Scope, query: Query, findings: Findings) -> None:
        found, missing = await self._test(scope.pages, query, findings)
        if len(missing) > FEW:
            asked = await self._ask(scope, query, missing, findings)
            if asked is None:
                return
            missing = asked
        size = sum(page.size for page in missing)
        if len(missing) > MOST_FETCHED or size > MOST_BYTES:
            for page in missing:
                self._reader.fly(page)
            found += missing
        elif missing:
            begun = time.perf_counter()
            await self._reader.fetch(missing)
            findings.fetch_seconds = time.perf_counter() - begun
            now, unread = await self._test(missing, query, findings)
            # What could not be read is for the search itself to complain about.
            found += now + unread
        findings.candidates = found
        if self._blocks is not None:
            # Nobody waits here for another server: the search itself meets what is on its way.
            self._blocks.fly(found)

    async def _test(
        self, pages: Sequence[Page], query: Query, findings: Findings
    ) -> tuple[list[Page], list[Page]]:
        """Return the pages that match, and those that are not in memory."""
        test, peek, is_damaged = matcher(query), self._peek, self._reader.is_damaged
        found: list[Page] = []
        missing: list[Page] = []
        begun = turn = time.perf_counter()
        for number, page in enumerate(pages):
            if number % CHECK_EVERY == 0 and time.perf_counter() - turn > SLICE:
                await trio.lowlevel.checkpoint()
                turn = time.perf_counter()
            if page.damage is not None:
                found.append(page)
                continue
            data = peek(page)
            if data is None and page.pointer is not None:
                # Chroma knows nothing of it, and it may be too large to fetch for this.
                found.append(page)
            elif data is None:
                # What is damaged is for the search itself to complain about.
                (found if is_damaged(page) else missing).append(page)
            elif test(data):
                found.append(page)
        findings.tested += len(pages) - len(missing)
        findings.memory_seconds += time.perf_counter() - begun
        return found, missing

    def _peek(self, page: Page) -> bytes | None:
        if page.pointer is None:
            return self._reader.peek(page)
        return None if self._blocks is None else self._blocks.peek(page)

    async def _ask(
        self, scope: Scope, query: Query, missing: Sequence[Page], findings: Findings
    ) -> list[Page] | None:
        """Return those of ``missing`` that may match, or None with a reason if nobody can tell."""
        # The tree's own record comes along as long as it is the one we know: an ingest switches it
        # before it deletes chunks, which would be missed without a word. And a database that finds
        # nothing where it should, as some do for short texts, does not find that either.
        condition = to_chroma(query, also=None if scope.tree is None else PACKED_BEGINNING)
        if condition is None:
            findings.reason = "Chroma cannot be asked for it"
            return None
        findings.asked = condition
        if scope.tree is None and not await self._trusts(condition):
            findings.reason = "this Chroma does not find such texts reliably"
            return None
        where: Where | None = None
        if scope.access is not None:
            where = {"access": {"$in": list(scope.access)}}
            if scope.tree is not None:
                where = {"$or": [where, {"tree_version": scope.tree}]}
        begun = time.perf_counter()
        try:
            records = await trio.to_thread.run_sync(
                partial(self._store.matching, condition, where, MOST_CHUNKS),
                limiter=self._thread,
                abandon_on_cancel=True,
            )
        except StoreError as error:
            self._report(error)
            findings.reason = "Chroma could not answer"
            return None
        finally:
            findings.chroma_seconds = time.perf_counter() - begun
        self._failing = False
        findings.matching_chunks = len(records)
        if len(records) >= MOST_CHUNKS:
            findings.reason = f"{MOST_CHUNKS} chunks match or more"
            return None
        if scope.tree is not None:
            heads = [r for r in records if r.metadata.get("tree_version") == scope.tree]
            findings.matching_chunks -= len(heads)
            if not heads:
                findings.reason = "the site has been ingested again, or Chroma finds too little"
                return None
        slugs = {page_slug(record.metadata) for record in records}
        if scope.access is None:
            # Chunks of another writer carry no access key: what is not in the view is not told of.
            known = {page.slug for page in missing}
            findings.matching_chunks = sum(page_slug(r.metadata) in known for r in records)
        return [page for page in missing if _may_match(page, slugs)]

    async def _trusts(self, condition: Where) -> bool:
        """Return whether a collection of another writer can be asked with ``condition``.

        Long texts are found by all; of the rest it is found out once whether anything is.
        """
        text = condition.get("$contains")
        if isinstance(text, str) and _LONG.search(text):
            return True
        if not self._finds_short:
            with suppress(StoreError):
                found = await trio.to_thread.run_sync(
                    partial(self._store.matching, _ANY_LETTER, None, 1),
                    limiter=self._thread,
                    abandon_on_cancel=True,
                )
                self._finds_short = bool(found)
        return self._finds_short

    def _report(self, error: StoreError) -> None:
        """Log once an incident; the search goes on without an answer."""
        if not self._failing:
            log.info("searches go on without Chroma's help: %s", error)
        self._failing = True


def _may_match(page: Page, slugs: Collection[str | None]) -> bool:
    """Return whether a page may match: Chroma sees no text behind a NUL, and no cut line."""
    return page.cut or page.nul or page.slug in slugs
