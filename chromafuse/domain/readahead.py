"""Read-ahead across files: which pages a recursive reader will open next.

The tree has one listing order, and a recursive reader opens pages in it as if they were one long
file. As a kernel does for the blocks of a file, a *walk* is recognised by its second step and its
window doubles with each refill; a page of another place begins another walk. Several walks go on
side by side, forwards or backwards, since parallel readers each take a stretch of the tree and some
take the files of a directory last to first.
"""

from __future__ import annotations

FIRST_WINDOW = 8
MAX_WINDOW = 400
"""Pages; two requests' worth, so that one is on its way while the other is read."""
MAX_GAP = 8
"""Pages that a walk may pass over: searches leave out files by name."""
MAX_WALKS = 16
IDLE_SECONDS = 2.0
"""A walk without an open for this long has stopped; what is still queued for it is not fetched."""


class Walk:
    """One reader's way through the listing order."""

    __slots__ = ("at", "frontier", "last", "step", "window")

    def __init__(self, at: int, now: float) -> None:
        self.at = at
        self.step = 0
        self.frontier = at
        self.window = 0
        self.last = now

    def is_idle(self, now: float) -> bool:
        """Return whether the walk has stopped, at monotonic time ``now`` in seconds."""
        return now - self.last > IDLE_SECONDS

    def takes(self, index: int) -> bool:
        """Return whether an open of page ``index`` continues this walk."""
        distance = index - self.at
        if self.step == 0:
            return 0 < abs(distance) <= MAX_GAP
        reach = max(MAX_GAP, (self.frontier - self.at) * self.step)
        return 0 < distance * self.step <= reach

    def advance(self, index: int, now: float, most: int) -> range:
        """Go to ``index`` and return the pages to fetch from here on, nearest first.

        They are at most ``most``.
        """
        if self.step == 0:
            self.step = 1 if index > self.at else -1
            self.frontier = index + self.step
        self.at = index
        self.last = now
        if (self.frontier - index) * self.step > self.window // 2:
            return range(0)
        self.window = min(most, max(FIRST_WINDOW, self.window * 2))
        start = self.frontier
        if (start - index) * self.step <= 0:
            start = index + self.step
        self.frontier = start + self.window * self.step
        return range(start, self.frontier, self.step)


class ReadAhead:
    """The walks through a tree of ``count`` pages, of which ``window`` are kept when fetched."""

    def __init__(self, count: int, window: int = MAX_WINDOW) -> None:
        self._count = count
        self._window = window
        self._walks: list[Walk] = []

    def opened(self, index: int, now: float) -> tuple[Walk, list[int]]:
        """Tell that page ``index`` is opened at monotonic time ``now``.

        Returns the walk it belongs to and the pages to fetch ahead for it.
        """
        for position, walk in enumerate(self._walks):
            if walk.takes(index):
                self._walks.insert(0, self._walks.pop(position))
                ahead = walk.advance(index, now, self._window)
                return walk, [page for page in ahead if 0 <= page < self._count]
        walk = Walk(index, now)
        self._walks.insert(0, walk)
        del self._walks[MAX_WALKS:]
        return walk, []
