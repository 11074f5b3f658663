"""The mount's process: builds the parts, starts them in order, ends them cleanly.

Order: store, tree, identity's view, mount, control socket, one ``stat`` through the kernel; only
then is the caller told that the mount answers. On SIGTERM, SIGINT or an unmount from outside the
loop ends and the mount goes with it. After an unexpected crash the dead mount stays, so that
nobody takes an empty directory for the site; the next ``mount`` removes it.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from chromafuse import __version__, control
from chromafuse.config import Settings, cache_directory
from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    operator_identity,
)
from chromafuse.domain.errors import ChromafuseError, MountError, StoreUnavailable
from chromafuse.domain.tree import PathTree, prune
from chromafuse.fs import mounts, session
from chromafuse.fs.attributes import Owner
from chromafuse.fs.namespace import ROOT, InodeTable, Namespace
from chromafuse.fs.operations import Operations, serve
from chromafuse.ports import PageCache
from chromafuse.reader import Reader
from chromafuse.snapshot import SnapshotFile, load_current
from chromafuse.stores.chroma import ChromaCollection, open_collection
from chromafuse.stores.memory import ENTRY_OVERHEAD, MemoryCache
from chromafuse.treestore import decode_text, measure, needs_measuring

log = logging.getLogger(__name__)

MEASURING_DEADLINE = 600.0
"""Seconds that reading a whole collection of another writer may take."""
STAT_DEADLINE = 30.0
WARM_DELAY = 0.5


T = TypeVar("T")


class Listener(Protocol):
    """Whoever started the daemon."""

    def note(self, text: str) -> None:
        """Something takes long."""

    def ready(self, text: str) -> None:
        """The mount answers."""


def run(settings: Settings, mount_point: str, listener: Listener) -> None:
    """Mount and serve until unmounted or told to stop by a signal.

    ``mount_point`` is absolute and prepared. Raises ``ChromafuseError`` if the mount cannot be
    made; nothing is left mounted then.
    """
    daemon = _Daemon(settings, mount_point, listener)
    trio.run(daemon.run)
    if daemon.failure is not None:
        raise daemon.failure


class _Daemon:
    def __init__(self, settings: Settings, mount_point: str, listener: Listener) -> None:
        self._settings = settings
        self._mount_point = mount_point
        self._listener = listener
        self._started_ns = time.time_ns()
        self._rejected: Mapping[str, int] = {}
        self._stale_since: float | None = None
        self._stopping = False
        self._ready = False
        self.failure: ChromafuseError | None = None

    async def run(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_on_signal, signals, nursery.cancel_scope)
                try:
                    await self._mount()
                except ChromafuseError as error:
                    self.failure = error
                nursery.cancel_scope.cancel()

    async def _stop_on_signal(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for number in signals:
            log.info("stopping signal=%s", signal.Signals(number).name)
            self._stopping = True
            scope.cancel()

    async def _mount(self) -> None:
        store = await self._open_store()
        try:
            tree = await self._load(store)
            await self._serve(store, tree)
        finally:
            store.close()

    async def _open_store(self) -> ChromaCollection:
        settings = self._settings
        opening = partial(
            open_collection,
            settings.chroma,
            settings.collection,
            create=False,
            timeout=settings.deadline,
            lazy=True,
        )
        return await self._in_thread(opening, settings.deadline)

    async def _load(self, store: ChromaCollection) -> PathTree:
        """Return the tree as the identity sees it, every size known."""
        settings = self._settings
        file = SnapshotFile(cache_directory(), settings.chroma, settings.collection)
        loading = partial(load_current, store, file, settings.max_stale)
        current = await self._in_thread(loading, 2 * settings.deadline)
        if current.stale_since is not None:
            self._stale_since = current.stale_since
            age = time.time() - current.stale_since
            text = f"Chroma cannot be reached: showing the tree as of {age:.0f} s ago"
            log.warning("%s", text)
            self._listener.note(text)
        empty = AUTHENTICATED if settings.empty_groups == "authenticated" else HIDDEN
        stored = await self._in_thread(
            partial(
                decode_text,
                current.text,
                default_mtime_ns=self._started_ns,
                empty_groups=empty,
            ),
            settings.deadline,
        )
        self._rejected = stored.rejections(of_names=True)
        for reason, count in self._rejected.items():
            log.info("rejected=%d reason=%r", count, reason)
        groups = settings.groups
        tree = prune(stored, ANONYMOUS if groups is None else operator_identity(groups))
        # Places that pages of this view contend for; the others' are nobody's business.
        clashes = tree.rejections()
        self._rejected = {**self._rejected, **clashes}
        if needs_measuring(tree):
            self._listener.note("the tree tells no sizes: reading all pages once")
            tree = await self._in_thread(partial(measure, store, tree), MEASURING_DEADLINE)
            for page in tree.pages:
                if page.damage is not None:
                    log.error("page=%s cannot be read: %s", page.slug, page.damage)
        return tree

    async def _in_thread(self, function: Callable[[], T], deadline: float) -> T:
        try:
            with trio.fail_after(deadline):
                return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
        except trio.TooSlowError:
            raise StoreUnavailable(
                f"Chroma did not answer within {deadline:g} s",
                remedy="check the server, or raise --deadline",
            ) from None

    async def _serve(self, store: ChromaCollection, tree: PathTree) -> None:
        settings = self._settings
        cache = MemoryCache(settings.cache_size)
        shared = self._open_redis()
        reader = Reader(store, settings.collection, cache, settings.deadline, shared)
        reader.follow(tree.pages)
        namespace = Namespace(tree, InodeTable(), Owner(os.geteuid(), os.getegid()))
        operations = Operations(namespace, reader)
        # What is built by now lives as long as the mount: no collection has to walk it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        path = control.socket_path(self._mount_point)
        session.attach(
            operations, self._mount_point, settings.collection, allow_other=settings.allow_other
        )
        mounted = mounts.top_mount(self._mount_point)
        device = mounted.device if mounted else None
        try:
            await self._run_parts(reader, operations, store.description, path)
        except BaseException:
            if self._stopping or not self._ready:
                session.detach(self._mount_point, device)
            else:
                session.abandon()
            raise
        session.detach(self._mount_point, device)
        if self.failure is not None:
            raise self.failure

    def _open_redis(self) -> PageCache | None:
        settings = self._settings
        if settings.redis is None:
            return None
        from chromafuse.stores.redis import RedisCache

        return RedisCache(settings.redis, settings.redis_ttl)

    def _warms_up(self, tree: PathTree) -> bool:
        """Return whether to fetch everything in the background."""
        warm, room = self._settings.warm, self._settings.cache_size
        needed = tree.total_bytes + len(tree.pages) * ENTRY_OVERHEAD
        return warm == "all" or (warm == "auto" and needed <= room)

    async def _warm_up(self, reader: Reader) -> None:
        """Begin the warm-up with the first walk or a moment later: a first read goes before."""
        reader.plan_warm_up()
        await trio.sleep(WARM_DELAY)
        reader.warm_up()

    async def _run_parts(
        self, reader: Reader, operations: Operations, description: str, path: Path
    ) -> None:
        async def status(_: Mapping[str, object]) -> Mapping[str, object]:
            return self._status(reader, operations, description)

        async def serve_kernel(scope: trio.CancelScope) -> None:
            await serve()
            log.info("unmounted")
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run)
            nursery.start_soon(serve_kernel, nursery.cancel_scope)
            await nursery.start(partial(control.listen, path, {"status": status}))
            if await self._answers():
                pages = len(operations.namespace.tree.pages)
                log.info("mounted at=%s pages=%d from=%r", self._mount_point, pages, description)
                self._ready = True
                mounts.release_claim()
                self._listener.ready(f"{pages} pages from {description}")
                if self._warms_up(operations.namespace.tree):
                    nursery.start_soon(self._warm_up, reader)
            else:
                self.failure = MountError(f"the mount at {self._mount_point} does not answer")
                nursery.cancel_scope.cancel()

    async def _answers(self) -> bool:
        """Return whether a ``stat`` that goes through the kernel reaches us."""
        with trio.move_on_after(STAT_DEADLINE):
            found = await trio.to_thread.run_sync(
                os.stat, self._mount_point, abandon_on_cancel=True
            )
            return found.st_ino == ROOT
        return False

    def _status(
        self, reader: Reader, operations: Operations, description: str
    ) -> Mapping[str, object]:
        settings, tree = self._settings, operations.namespace.tree
        return {
            "mountpoint": self._mount_point,
            "pid": os.getpid(),
            "version": __version__,
            "collection": settings.collection,
            "source": description,
            "tree_version": tree.version,
            "groups": settings.groups,
            "pages": len(tree.pages),
            "directories": operations.namespace.directories,
            "bytes": tree.total_bytes,
            "damaged_pages": sum(page.damage is not None for page in tree.pages)
            + reader.damaged_pages,
            "rejected_entries": dict(self._rejected),
            "uptime_seconds": round((time.time_ns() - self._started_ns) / 1e9, 3),
            "open_files": operations.open_files,
            "cache": {
                "pages": len(reader.cache),
                "used_bytes": reader.cache.used_bytes,
                "max_bytes": reader.cache.max_bytes,
            },
            "reads": asdict(reader.counters),
            "warm_up": {
                "state": reader.warmth.state,
                "pages": reader.warmth.pages,
                "of": reader.warmth.total,
            },
            "redis": reader.shared_status(),
            "stale_since": self._stale_since,
            "chroma": {"ok": reader.failing is None, "error": reader.failing},
            "log_file": str(settings.log_file) if settings.log_file else None,
        }
