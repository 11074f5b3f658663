"""The warm-up: everything is fetched while nobody wants anything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chromafuse.domain.page import Page
from chromafuse.reader import limits
from chromafuse.stores.memory import ENTRY_OVERHEAD


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
        self.batch = limits.FIRST_WARM
        self.flying = 0
        self.failed: list[Page] = []
        self.rounds = limits.WARM_ROUNDS

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


def is_front(name: bytes) -> bool:
    """Return whether a page is one that a reader of a directory opens first."""
    return name.partition(b".")[0].lower() in (b"index", b"readme")


def chain(front: Iterable[Page], rest: Iterable[Page]) -> Iterator[Page]:
    yield from front
    yield from rest
