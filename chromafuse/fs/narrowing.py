"""What a search program is shown: the files that can match, and the directories above them.

Only listings are narrowed, never lookups: a path that somebody names always opens. What was found
for a query holds as long as the view, whose pages never change, so it serves every process that
asks for the same.
"""

from __future__ import annotations

import logging
import math
import os
from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import trio

from chromafuse.domain.page import Page
from chromafuse.domain.pattern import Query
from chromafuse.fs.callers import Caller, Callers, Inspected, inspect
from chromafuse.fs.namespace import (
    GREP_SORTS_OVER,
    IGNORING,
    NODE_MASK,
    Entry,
    Namespace,
    View,
)
from chromafuse.search import Findings, Scope, Searcher

log = logging.getLogger(__name__)

KEPT_QUERIES = 32
"""Queries of a view whose candidates are remembered."""
INSPECT_SECONDS = 0.5
"""How long looking at a process may take."""
INSPECTORS = 16
IGNORE_SECONDS = 0.2
"""How long looking for ignore files may take."""
PAUSE = 1.0
"""Seconds for which it is remembered that a query has to search everything, at least."""
PAUSES = 10
"""It is remembered so many times as long as finding that out took."""


class Narrowed:
    """The candidates of a query among the pages from ``start`` to ``stop`` of a view.

    ``shown`` are the numbers to list, None for everything. ``reached`` are the directories from
    which a candidate is reached without passing a hidden name. Both are right once ``done`` is
    set. ``until`` is the time by trio's clock at which the search is worth another try;
    ``damaged`` is how many damaged pages were known.
    """

    __slots__ = ("damaged", "done", "findings", "reached", "shown", "start", "stop", "until")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.shown: set[int] | None = None
        self.reached: set[int] = set()
        self.until = math.inf
        self.damaged = 0
        self.findings = Findings(reason="unexpected error")
        self.done = trio.Event()


class Narrower:
    """Narrows the listings of search programs. Run ``run`` in a nursery while it is used.

    Files outside Chroma over ``hide_over`` bytes are listed to none of them, unless it is None.
    """

    def __init__(
        self,
        namespace: Namespace,
        searcher: Searcher,
        callers: Callers,
        hide_over: int | None = None,
    ) -> None:
        self.hide_over = hide_over
        self._namespace = namespace
        self._searcher = searcher
        self.callers = callers
        self._nursery: trio.Nursery | None = None
        self._inspectors = trio.CapacityLimiter(INSPECTORS)
        self._looking = trio.CapacityLimiter(INSPECTORS)
        self._known: WeakKeyDictionary[View, OrderedDict[Query, Narrowed]] = WeakKeyDictionary()
        self.counts = {"narrowed": 0, "full": 0}

    async def run(self) -> None:
        """Run searches until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await trio.sleep_forever()
        finally:
            self.callers.close()

    def listing(self, pid: int, inode: int) -> Caller | None:
        """Return the process ``pid`` if it may be shown less than everything of a directory."""
        caller = self.callers.of(pid)
        if caller is None or self._nursery is None:
            return None
        if caller.is_full and self.hide_over is None:
            return None
        return caller

    def narrow(self, view: View, node: int, query: Query) -> Narrowed:
        """Return the candidates of a query below a directory, searching unless they are known."""
        known = self._known.setdefault(view, OrderedDict())
        found = known.get(query)
        start, stop = view.range(node)
        covers = found is not None and found.start <= start <= stop <= found.stop
        if found is None or not covers or self._is_over(found):
            if found is not None and not covers:
                # Who searches two places may search more, and at the same time.
                start, stop = 0, len(view.tree.pages)
            found = known[query] = Narrowed(start, stop)
            if self._nursery is None:
                found.done.set()
            else:
                self._nursery.start_soon(self._search, view, query, found)
            if len(known) > KEPT_QUERIES:
                known.popitem(last=False)
        known.move_to_end(query)
        return found

    def _is_over(self, found: Narrowed) -> bool:
        """Return whether to search again: nothing was found out, or pages got damaged since."""
        return found.done.is_set() and (
            trio.current_time() >= found.until or found.damaged != self._searcher.damaged_pages
        )

    async def _search(self, view: View, query: Query, found: Narrowed) -> None:
        begun = trio.current_time()
        try:
            pages = view.tree.pages[found.start : found.stop]
            # Another writer's tree does not tell its version.
            tree = None if view.access is None else view.tree.version
            scope = Scope(pages, view.access, tree)
            found.findings = await self._searcher.search(scope, query)
            if found.findings.candidates is not None:
                found.shown = view.numbers(found.findings.candidates)
                found.reached = view.reaching(found.findings.candidates)
        except Exception:
            # Somebody's bug: it costs the narrowing, not the mount.
            log.exception("unexpected error in a search")
        finally:
            found.damaged = self._searcher.damaged_pages
            if found.shown is None:
                # The threads of one search share this; a later one asks again.
                now = trio.current_time()
                found.until = now + max(PAUSE, PAUSES * (now - begun))
            found.done.set()

    async def entries(
        self, caller: Caller, view: View, inode: int, entries: Sequence[Entry]
    ) -> Sequence[Entry]:
        """Return which of a directory's ``entries`` to list, waiting for the search."""
        found = await self._inspected(caller)
        if self.hide_over is not None and found.is_grep:
            entries = [entry for entry in entries if not self._is_hidden(entry)]
        if found.search is None or caller.is_full:
            return entries
        narrowed = self.narrow(view, inode & NODE_MASK, found.search.query)
        await narrowed.done.wait()
        shown = narrowed.shown
        if shown is not None and await self._may_complain(caller, found.cwd, narrowed, inode):
            shown = None
        if shown is None:
            self.counts["full"] += 1
            caller.is_full = True
            return entries
        self.counts["narrowed"] += 1
        caller.is_narrowed = True
        kept = [entry for entry in entries if entry.number in shown]
        if found.sorts and len(entries) > GREP_SORTS_OVER:
            kept.sort(key=lambda entry: entry.number)
        return kept

    def hides(self, page: Page) -> bool:
        """Return whether ``page`` is listed to no search, whatever is searched for."""
        limit = self.hide_over
        return limit is not None and page.pointer is not None and page.size > limit

    def _is_hidden(self, entry: Entry) -> bool:
        page = self._namespace.page(entry.number)
        return page is not None and self.hides(page)

    async def _inspected(self, caller: Caller) -> Inspected:
        """Return what a process searches; who takes long to look at is shown everything."""
        if caller.found is None:
            found = Inspected()
            # Of those who hang each keeps a thread; the others then go without.
            if self._inspectors.available_tokens:
                with trio.move_on_after(INSPECT_SECONDS):
                    found = await trio.to_thread.run_sync(
                        inspect,
                        caller.pid,
                        caller.name,
                        limiter=self._inspectors,
                        abandon_on_cancel=True,
                    )
            # Another program may have been inspected, if one was executed meanwhile.
            caller.found = found if caller.is_same() else Inspected()
        return caller.found

    async def _may_complain(
        self, caller: Caller, cwd: str | None, narrowed: Narrowed, inode: int
    ) -> bool:
        """Return whether ripgrep, which complains of finding no file, may find none in ``cwd``.

        It finds one if there is one that is not hidden, and nothing tells ripgrep to ignore it.
        A directory without is listed whole, so that those below ``cwd`` are if that is.
        """
        if cwd is None:
            return False
        view = self._namespace.view_of(inode)
        if view is None or view.has_ignore_files or inode & NODE_MASK not in narrowed.reached:
            return True
        if caller.is_ignoring is None:
            caller.is_ignoring = True
            with trio.move_on_after(IGNORE_SECONDS):
                caller.is_ignoring = await trio.to_thread.run_sync(
                    _ignores, cwd, abandon_on_cancel=True, limiter=self._looking
                )
        return caller.is_ignoring


def _ignores(directory: str) -> bool:
    """Return whether something in ``directory`` or above may tell ripgrep to leave out files."""
    names = [os.fsdecode(name) for name in IGNORING]
    while True:
        if any(os.path.lexists(os.path.join(directory, name)) for name in names):
            return True
        above = os.path.dirname(directory)
        if above == directory:
            return False
        directory = above
