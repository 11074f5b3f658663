"""The mount's process: builds the parts, starts them in order, ends them cleanly.

Order: store, tree, views, mount, control socket, one ``stat`` through the kernel; only
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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from chromafuse import control
from chromafuse.config import Settings
from chromafuse.daemon import stacks
from chromafuse.daemon.notify import ServiceManager
from chromafuse.daemon.objects import open_blobs, open_blocks, stored_pages
from chromafuse.daemon.role import Role
from chromafuse.daemon.searching import SearchHandler
from chromafuse.daemon.sessions import SessionHandlers
from chromafuse.daemon.status import Facts, status
from chromafuse.daemon.trees import Trees, in_thread
from chromafuse.domain.errors import ChromafuseError, MountError
from chromafuse.domain.pointer import Pointer
from chromafuse.domain.tree import PathTree
from chromafuse.fs import mountpoint, mounts, session
from chromafuse.fs.attributes import Owner
from chromafuse.fs.callers import Callers
from chromafuse.fs.gate import Gate
from chromafuse.fs.namespace import ROOT, Inodes, Namespace, View
from chromafuse.fs.narrowing import Narrower
from chromafuse.fs.operations import Operations, serve
from chromafuse.reader import BlockReader, Reader
from chromafuse.refresh import Refresher
from chromafuse.search import Searcher
from chromafuse.sessions import Session
from chromafuse.stores.chroma import ChromaCollection, open_collection
from chromafuse.stores.memory import ENTRY_OVERHEAD, MemoryCache

if TYPE_CHECKING:
    from chromafuse.stores.blobs import Blobs
    from chromafuse.stores.redis import RedisCache

log = logging.getLogger(__name__)

STAT_DEADLINE = 30.0
WARM_DELAY = 0.5


class Listener(Protocol):
    """Whoever started the daemon."""

    def note(self, text: str) -> None:
        """Something takes long."""

    def ready(self, text: str) -> None:
        """The mount answers."""


def run(
    settings: Settings,
    mount_point: str,
    listener: Listener,
    role: Role,
    manager: ServiceManager | None = None,
) -> None:
    """Mount and serve until unmounted or told to stop by a signal.

    ``mount_point`` is absolute and prepared; ``manager`` is told of the end and that the loop
    lives, while the ``listener`` is told of the start. Raises ``ChromafuseError`` if the mount
    cannot be made; nothing is left mounted then.
    """
    stacks.answer_signal()
    daemon = _Daemon(settings, mount_point, listener, role, manager)
    trio.run(daemon.run)
    if daemon.failure is not None:
        raise daemon.failure


class _Parts(NamedTuple):
    """What runs side by side."""

    facts: Facts
    reader: Reader
    operations: Operations
    gate: Gate
    root: Session[View] | None
    narrower: Narrower | None
    refresher: Refresher
    blocks: BlockReader | None

    def status(self) -> Mapping[str, object]:
        return status(
            self.facts,
            self.reader,
            self.operations,
            self.gate,
            self.root,
            self.refresher,
            self.blocks,
            self.narrower,
        )


class _Daemon:
    def __init__(
        self,
        settings: Settings,
        mount_point: str,
        listener: Listener,
        role: Role,
        manager: ServiceManager | None,
    ) -> None:
        self._manager = manager
        self._settings = settings
        self._role = role
        self._mount_point = mount_point
        self._listener = listener
        self._started_ns = time.time_ns()
        self._stopping = False
        self._ready = False
        self.failure: ChromafuseError | None = None

    async def run(self) -> None:
        stacks.follow(trio.lowlevel.current_root_task())
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
            self._tell_end()
            scope.cancel()

    def _tell_end(self) -> None:
        if self._manager is not None:
            self._manager.stopping()

    async def _mount(self) -> None:
        store = await self._open_store()
        blobs = open_blobs(self._settings)
        try:
            trees = Trees(
                self._settings,
                store,
                self._role.grant,
                self._started_ns,
                self._listener.note,
                blobs,
            )
            await self._serve(store, blobs, trees, await trees.first())
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
        return await in_thread(opening, settings.deadline)

    async def _serve(
        self, store: ChromaCollection, blobs: Blobs | None, trees: Trees, tree: PathTree
    ) -> None:
        settings = self._settings
        cache = MemoryCache(settings.cache_size)
        shared = self._open_redis()
        reader = Reader(store, settings.collection, cache, settings.deadline, shared)
        blocks = open_blocks(settings, blobs, cache, shared)
        meters = {"chroma": store.meter}
        if shared is not None:
            meters["redis"] = shared.meter
        if blobs is not None:
            meters |= blobs.meters
        inodes = Inodes(Owner(os.geteuid(), os.getegid()))
        gate = Gate(
            tree, Namespace(inodes, is_hub=self._role.grant is None, mtime_ns=self._started_ns)
        )
        root = None if self._role.grant is None else gate.open_root(self._role.grant)
        reader.follow(stored_pages(tree), gate.sessions.views.readable_with)
        narrower = self._narrower(store, reader, gate, blocks)
        operations = Operations(gate.namespace, reader, narrower, blocks)
        facts = Facts(
            settings,
            self._mount_point,
            store.description,
            self._started_ns,
            trees,
            View(tree, inodes),
            meters,
        )

        async def show(tree: PathTree) -> int:
            changed = await gate.replace(tree)
            reader.follow(stored_pages(tree), gate.sessions.views.readable_with)
            reader.warm_up_again()
            facts.whole = View(tree, inodes)
            return changed

        refresher = Refresher(
            trees,
            show,
            tree.version,
            checked=trees.stale_since or time.time(),
            interval=settings.refresh,
            max_stale=settings.max_stale,
            pinned=settings.pin is not None,
        )
        operations.age = lambda: refresher.age
        reader.watch_tree(
            refresher.look,
            lambda page: (
                not refresher.is_behind and (facts.whole.has(page) or gate.namespace.shows(page))
            ),
        )

        async def look_at_object(pointer: Pointer) -> None:
            shown = facts.whole.tree
            # Whoever holds an old version open may go on to read it.
            if all(page.pointer != pointer for page in (*shown.pages, *shown.shadowed)):
                return
            trees.replaced(pointer.location)
            await refresher.anew()

        if blocks is not None:
            blocks.replaced = look_at_object
        # What is built by now lives as long as the mount: no collection has to walk it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        built = _Parts(facts, reader, operations, gate, root, narrower, refresher, blocks)
        parts = partial(self._run_parts, built)
        if self._role.fuse_fd is not None:
            place = f"/dev/fd/{self._role.fuse_fd}"
            session.attach(operations, place, settings.collection, allow_other=False)
            try:
                await parts(None)
            finally:
                session.abandon()
            return
        async with self._metrics(built.status):
            await self._attached(operations, parts)

    @asynccontextmanager
    async def _metrics(self, told: Callable[[], Mapping[str, object]]) -> AsyncIterator[None]:
        """Serve metrics, if they are wanted. Raises ``ConfigError`` before anything is mounted."""
        if self._settings.metrics is None:
            yield
            return
        from chromafuse.daemon.metrics import Metrics

        metrics = Metrics(self._settings.metrics, told)
        log.info("metrics at=http://%s/metrics", metrics.address)
        try:
            yield
        finally:
            await metrics.close()

    async def _attached(
        self, operations: Operations, parts: Callable[[Path | None], Awaitable[None]]
    ) -> None:
        """Mount, and serve until unmounted."""
        settings = self._settings
        path = control.socket_path(self._mount_point)
        session.attach(
            operations, self._mount_point, settings.collection, allow_other=settings.allow_other
        )
        mounted = mounts.top_mount(self._mount_point)
        device = mounted.device if mounted else None
        try:
            await parts(path)
        except BaseException:
            if self._stopping or not self._ready:
                session.detach(self._mount_point, device)
            else:
                session.abandon()
            raise
        session.detach(self._mount_point, device)
        if self.failure is not None:
            raise self.failure

    def _narrower(
        self,
        store: ChromaCollection,
        reader: Reader,
        gate: Gate,
        blocks: BlockReader | None,
    ) -> Narrower | None:
        settings = self._settings
        if settings.pushdown == "off":
            return None
        searcher = Searcher(reader, store, settings.search_timeout, blocks)
        hides = settings.hide_large_from_grep
        return Narrower(
            gate.namespace,
            searcher,
            Callers(is_on=settings.pushdown == "auto", hides=hides),
            settings.pointer_grep_max if hides else None,
        )

    def _open_redis(self) -> RedisCache | None:
        settings = self._settings
        if settings.redis is None:
            return None
        from chromafuse.stores.redis import RedisCache

        return RedisCache(settings.redis, settings.redis_ttl)

    def _warms_up(self, tree: PathTree) -> bool:
        """Return whether to fetch everything in the background."""
        warm, room = self._settings.warm, self._settings.cache_size
        needed = sum(page.size + ENTRY_OVERHEAD for page in stored_pages(tree))
        return warm == "all" or (warm == "auto" and needed <= room)

    async def _warm_up(self, reader: Reader) -> None:
        """Begin the warm-up with the first walk or a moment later: a first read goes before."""
        reader.plan_warm_up()
        await trio.sleep(WARM_DELAY)
        reader.warm_up()

    async def _run_parts(self, parts: _Parts, path: Path | None) -> None:
        """Serve until unmounted; ``path`` is the control socket's, None for a mount of others."""
        facts, reader, gate, narrower = parts.facts, parts.reader, parts.gate, parts.narrower

        async def serve_kernel(scope: trio.CancelScope) -> None:
            await serve()
            log.info("unmounted")
            self._tell_end()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run)
            nursery.start_soon(gate.run)
            if self._manager is not None:
                nursery.start_soon(self._manager.feed)
            nursery.start_soon(parts.refresher.run)
            if parts.blocks is not None:
                nursery.start_soon(parts.blocks.run)
            if narrower is not None:
                nursery.start_soon(narrower.run)
            if self._settings.metrics_file is not None and path is not None:
                from chromafuse.daemon.metricsfile import MetricsFile

                file = MetricsFile(self._settings.metrics_file, parts.status)
                nursery.start_soon(file.run)
            nursery.start_soon(serve_kernel, nursery.cancel_scope)
            if path is not None:
                handlers = self._handlers(parts)
                await nursery.start(partial(control.listen, path, handlers))
            if path is None or await self._answers():
                pages = len(facts.whole.tree.pages)
                log.info("mounted at=%s pages=%d from=%r", self._mount_point, pages, facts.source)
                self._ready = True
                mountpoint.release_claim()
                self._listener.ready(f"{pages} pages from {facts.source}")
                if self._warms_up(facts.whole.tree):
                    nursery.start_soon(self._warm_up, reader)
            else:
                self.failure = MountError(f"the mount at {self._mount_point} does not answer")
                nursery.cancel_scope.cancel()

    def _handlers(self, parts: _Parts) -> Mapping[str, control.Handler]:
        async def tell(_: Mapping[str, object]) -> Mapping[str, object]:
            return parts.status()

        async def refresh(_: Mapping[str, object]) -> Mapping[str, object]:
            return await parts.refresher.now()

        handlers: dict[str, control.Handler] = {"status": tell, "refresh": refresh}
        if parts.narrower is not None:
            searching = SearchHandler(parts.gate.namespace, parts.narrower)
            handlers["search"] = searching.search
        if self._role.verifier is not None:
            sessions = SessionHandlers(parts.gate, self._mount_point, self._role.verifier)
            handlers |= sessions.handlers()
        return handlers

    async def _answers(self) -> bool:
        """Return whether a ``stat`` that goes through the kernel reaches us."""
        with trio.move_on_after(STAT_DEADLINE):
            found = await trio.to_thread.run_sync(
                os.stat, self._mount_point, abandon_on_cancel=True
            )
            return found.st_ino == ROOT
        return False
