"""The daemon's trees: loaded at its start and at every refresh, sizes known, pruned for a mount."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import trio

from chromafuse.config import Settings, cache_directory
from chromafuse.daemon.objects import Asking, without_refused
from chromafuse.domain.access import AUTHENTICATED, HIDDEN, Grant
from chromafuse.domain.errors import StoreUnavailable, TreeError
from chromafuse.domain.pointer import Location
from chromafuse.domain.tree import PathTree, TreeVersion, prune
from chromafuse.ports import BlobReader
from chromafuse.snapshot import Current, SnapshotFile, load_current
from chromafuse.stores.chroma import ChromaCollection
from chromafuse.treestore import (
    TreeText,
    decode_text,
    fetch_text,
    head_version,
    measure,
    needs_measuring,
)

log = logging.getLogger(__name__)

MEASURING_DEADLINE = 600.0
"""Seconds that reading a whole collection of another writer may take."""

T = TypeVar("T")


class Trees:
    """Trees of one collection. ``grant`` is a mount's; a hub shows everything to somebody."""

    def __init__(
        self,
        settings: Settings,
        store: ChromaCollection,
        grant: Grant | None,
        started_ns: int,
        note: Callable[[str], None],
        blobs: BlobReader | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._grant = grant
        self._started_ns = started_ns
        self._note = note
        self._asking = None if blobs is None else Asking(blobs.head, settings.deadline)
        self._file = SnapshotFile(cache_directory(), settings.chroma, settings.collection)
        self._rejected_names: Mapping[str, int] = {}
        self.rejected: Mapping[str, int] = {}
        self.stale_since: float | None = None

    async def version(self) -> TreeVersion:
        """Return the version of the stored tree: one small read, unless another tool wrote it."""
        return await in_thread(self._version, self._settings.deadline)

    def _version(self) -> TreeVersion:
        found = head_version(self._store)
        if found is None:
            return fetch_text(self._store).version
        self._file.touch_if(found)
        return found

    async def first(self) -> PathTree:
        """Return the tree to begin with: the stored one, or that on disk while Chroma is away.

        Raises ``ChromafuseError``.
        """
        settings = self._settings
        loading = partial(load_current, self._store, self._file, settings.max_stale)
        current: Current = await in_thread(loading, 2 * settings.deadline)
        if settings.pin is not None and current.text.version != settings.pin:
            raise TreeError(
                f"the stored tree is {current.text.version}, not {settings.pin}",
                remedy="choose another --pin, or none",
            )
        self.stale_since = current.stale_since
        if current.stale_since is not None:
            age = max(0.0, time.time() - current.stale_since)
            text = f"Chroma cannot be reached: showing the tree as of {age:.0f} s ago"
            log.warning("%s", text)
            self._note(text)
        return await self._ready(current.text)

    def replaced(self, location: Location) -> None:
        """Have the object at ``location`` shown as it is then, from the next ``load`` on."""
        if self._asking is not None:
            self._asking.replaced(location)

    async def load(self) -> PathTree:
        """Return the stored tree as it is now. Raises ``ChromafuseError``."""
        text = await in_thread(partial(fetch_text, self._store), 2 * self._settings.deadline)
        if text.is_ours:
            await in_thread(partial(self._file.save, text), self._settings.deadline)
        self.stale_since = None
        return await self._ready(text)

    async def _ready(self, text: TreeText) -> PathTree:
        """Return the tree in ``text``, pruned for a mount, every size known."""
        settings = self._settings
        empty = AUTHENTICATED if settings.empty_groups == "authenticated" else HIDDEN
        decoding = partial(decode_text, text, default_mtime_ns=self._started_ns, empty_groups=empty)
        decoded = await in_thread(decoding, settings.deadline)
        stored = without_refused(decoded, settings.places)
        rejected = stored.rejections(of_names=True)
        if rejected != self._rejected_names:
            for reason, count in rejected.items():
                log.info("rejected=%d reason=%r", count, reason)
        self._rejected_names = self.rejected = rejected
        if self._grant is None:
            return await self._measured(stored)
        tree = await in_thread(partial(prune, stored, self._grant.identity), settings.deadline)
        # Places that pages of this view contend for; the others' are nobody's business.
        self.rejected = {**rejected, **tree.rejections()}
        return await self._measured(tree)

    async def _measured(self, tree: PathTree) -> PathTree:
        if self._asking is not None and self._asking.is_needed(tree):
            asking = partial(self._asking.as_they_are, tree, self._started_ns)
            tree = await in_thread(asking, MEASURING_DEADLINE)
            self.rejected = {**self.rejected, **tree.rejections()}
        if needs_measuring(tree):
            self._note("the tree tells no sizes: reading all pages once")
            measuring = partial(measure, self._store, tree)
            tree = await in_thread(measuring, MEASURING_DEADLINE)
            for page in tree.pages:
                if page.damage is not None:
                    log.error("page=%s cannot be read: %s", page.slug, page.damage)
        return tree


async def in_thread(function: Callable[[], T], deadline: float) -> T:
    """Return what ``function`` returns within ``deadline`` seconds, or ``StoreUnavailable``."""
    try:
        with trio.fail_after(deadline):
            return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    except trio.TooSlowError:
        raise StoreUnavailable(
            f"Chroma did not answer within {deadline:g} s",
            remedy="check the server, or raise --deadline",
        ) from None
