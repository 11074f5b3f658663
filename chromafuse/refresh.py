"""Follows the stored tree: looks at its version, loads a new one, has it shown.

One small read every ``interval`` seconds. Whatever fails, what is shown stays; one log line tells
of the failure, one of its end, and one when what is shown is older than ``max_stale``. State is
touched by the event loop only; reading and decoding happen in threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import trio

from chromafuse.domain.errors import ChromafuseError
from chromafuse.domain.tree import PathTree, TreeVersion

log = logging.getLogger(__name__)


def steady() -> float:
    """Return seconds that pass alike when somebody sets the clock, and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class TreeSource(Protocol):
    """Where trees come from."""

    async def version(self) -> TreeVersion:
        """Return the version of the stored tree. Raises ``ChromafuseError``."""

    async def load(self) -> PathTree:
        """Return the stored tree, ready to be shown. Raises ``ChromafuseError``."""


class Refresher:
    """Keeps what is shown up to date. ``show`` returns how many names it changed.

    ``interval`` 0 means only when asked, ``pinned`` that nothing newer is ever shown. ``checked``
    is when the tree was last known to be current (seconds since 1970), ``is_behind`` whether
    another one is stored. Run ``run`` in a nursery.
    """

    def __init__(
        self,
        source: TreeSource,
        show: Callable[[PathTree], Awaitable[int]],
        version: TreeVersion,
        *,
        checked: float,
        interval: float,
        max_stale: float,
        pinned: bool = False,
    ) -> None:
        self._source = source
        self._show = show
        self._interval = interval
        self._max_stale = max_stale
        self._pinned = pinned
        self._lock = trio.Lock()
        self._looks = 0
        self._asked_anew = 0
        self._shown_anew = 0
        self.version = version
        self.checked = checked
        self._checked_at = steady() - max(0.0, time.time() - checked)
        self.refreshes = 0
        self.failing: str | None = None
        self.is_behind = False
        self._is_stale = False

    @property
    def age(self) -> float:
        """Seconds since the tree was known to be current, however the clock has been set since."""
        return steady() - self._checked_at

    async def run(self) -> None:
        """Look every ``interval`` seconds until cancelled."""
        while self._interval:
            await trio.sleep(self._interval)
            await self.look()

    async def look(self) -> None:
        """Return when the newest tree is shown, or cannot be had. Raises nothing.

        Who asks while somebody else looks gets what the next look finds, once for all who wait.
        """
        begun = self._looks
        async with self._lock:
            # A look that began after we were asked is as good as our own.
            if self._looks > begun + 1:
                return
            self._looks += 1
            await self._look()

    async def anew(self) -> None:
        """Look, and load and show the tree even if its version is what is shown already."""
        self._asked_anew += 1
        await self.look()

    async def now(self) -> Mapping[str, object]:
        """Look, and tell what is shown then. Raises ``ChromafuseError`` if that cannot be known."""
        before = self.version
        await self.look()
        if self.failing is not None:
            raise ChromafuseError(f"the tree cannot be checked: {self.failing}")
        return {
            "tree_version": self.version,
            "changed": self.version != before,
            "behind": self.is_behind,
        }

    async def _look(self) -> None:
        try:
            stored = await self._source.version()
            self.is_behind = stored != self.version
            asked = self._asked_anew
            again = asked != self._shown_anew
            if not self._pinned if self.is_behind else again:
                tree = await self._source.load()
                is_other = tree.version != self.version
                # Another one may have been stored since we looked.
                if not self._pinned if is_other else again:
                    names = await self._show(tree)
                    self.version = tree.version
                    self.is_behind = False
                    self.refreshes += 1
                    self._shown_anew = asked
                    log.info(
                        "refreshed tree_version=%s pages=%d names=%d",
                        tree.version,
                        len(tree.pages),
                        names,
                    )
        except ChromafuseError as error:
            self._failed(str(error))
        except Exception as error:
            # Somebody's bug: it costs this refresh, not the mount.
            log.exception("unexpected error in a refresh")
            self._failed(f"unexpected {type(error).__name__}")
        else:
            self._worked()

    def _failed(self, text: str) -> None:
        if self.failing is None:
            log.info("the tree cannot be checked: %s", text)
        self.failing = text
        age = self.age
        if age > self._max_stale and not self._is_stale:
            self._is_stale = True
            log.warning("stale: the tree shown was last known to be current %.0f s ago", age)

    def _worked(self) -> None:
        self.checked, self._checked_at = time.time(), steady()
        if self.failing is not None:
            log.info("the tree can be checked again")
        self.failing = None
        self._is_stale = False

    def status(self) -> Mapping[str, object]:
        """Return how it is doing, for a person."""
        return {
            "interval": self._interval,
            "pinned": self._pinned,
            "behind": self.is_behind,
            "checked": round(self.checked, 3),
            "age_seconds": round(self.age, 3),
            "stale": self._is_stale,
            "refreshes": self.refreshes,
            "error": self.failing,
        }
