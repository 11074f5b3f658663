"""A page on its way, and the pages that one request carries."""

from __future__ import annotations

import trio

from chromafuse.domain.errors import ChromafuseError
from chromafuse.domain.page import Page
from chromafuse.domain.readahead import Walk
from chromafuse.ports import PageKey
from chromafuse.reader import limits


class Flight:
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


class Batch:
    """The flights of one request."""

    __slots__ = ("bytes", "flights")

    def __init__(self) -> None:
        self.flights: list[Flight] = []
        self.bytes = 0

    def has_room(self, page: Page, pages: int) -> bool:
        if not self.flights:
            return True
        return len(self.flights) < pages and self.bytes + page.size <= limits.BATCH_BYTES

    def add(self, flight: Flight) -> None:
        flight.taken = True
        self.flights.append(flight)
        self.bytes += flight.page.size
