"""Lets sessions in and out: keeps them, the namespace and what the kernel knows in step.

A mount is one session at the root; a hub has any number behind its root, each under its id. What
a session may no longer see goes out of the namespace first and out of the kernel's cache then, so
that no answer given in between outlives it.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyfuse3
import trio

from chromafuse.domain.access import ANONYMOUS, Grant, Identity
from chromafuse.domain.errors import ChromafuseError
from chromafuse.domain.tree import Changes, PathTree, changes, prune
from chromafuse.fs.namespace import MAX_SESSION, NODE_BITS, Namespace, View
from chromafuse.sessions import Session, Sessions, Views, Visible

log = logging.getLogger(__name__)

ANNOUNCE_SECONDS = 5.0
"""How long a refresh waits for the kernel to have forgotten what changed."""
TICK = 0.25
"""Seconds between two looks at the clock: how much longer than its time a session may last."""
JUMP = 1.0
"""Seconds by which the clock may drift before it counts as set."""
HELD = 500
"""Ended sessions in which something may hold a directory while the kernel forgets its names."""


class Ended(NamedTuple):
    """A session that is over: nothing is shown under its names any more.

    ``gone`` tells when the kernel has forgotten them too. A process inside may put that off for as
    long as it likes.
    """

    session: Session[View]
    gone: trio.Event


class Gate:
    """The sessions of a namespace. Run ``run`` in a nursery for as long as it is used."""

    def __init__(self, tree: PathTree, namespace: Namespace) -> None:
        views = Views(tree, partial(View, inodes=namespace.inodes))
        self.sessions: Sessions[View] = Sessions(
            views, first=int(namespace.is_hub), limit=MAX_SESSION
        )
        self.namespace = namespace
        namespace.enter = self.enter
        self._announcing: dict[int, list[tuple[Sequence[tuple[int, Sequence[bytes]]], trio.Event]]]
        self._announcing = {}
        self._watching: trio.Nursery | None = None
        self._watches: dict[str, trio.CancelScope] = {}
        self._shrinking: set[str] = set()
        # Whoever lists a directory can hold it for as long as they like, and the thread with it:
        # that is nobody else's delay.
        self._roots = trio.CapacityLimiter(8)
        self._below = trio.CapacityLimiter(HELD)

    def enter(self, name: bytes) -> tuple[int, float] | None:
        """Return the number of the session with this id and its seconds until a change, or None."""
        session = self.sessions.get(name.decode("ascii", "replace"))
        if session is None:
            return None
        change = session.next_change
        return session.number, math.inf if change is None else max(0.0, change - time.time())

    def open_root(self, grant: Grant) -> Session[View]:
        """Begin the one session of a mount, whose tree is pruned for it already."""
        views = self.sessions.views
        views.of(grant.identity, views.tree)
        session = self.sessions.open(grant, time.time())
        self._show(session)
        self.namespace.root = session.number
        return session

    async def open(
        self, grant: Grant, ttl: float | None, bound: str | None, pid: int | None
    ) -> Session[View]:
        """Begin a session of a hub; it ends with the process ``pid``, if that is given.

        Raises ``ChromafuseError``, and ``OSError`` if there is no such process.
        """
        descriptor = None if pid is None else self._process(pid)
        try:
            views = self.sessions.views
            if views.known(grant.identity) is None:
                pruned = await trio.to_thread.run_sync(prune, views.tree, grant.identity)
                views.of(grant.identity, pruned)
            session = self.sessions.open(grant, time.time(), ttl, bound)
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise
        self._show(session)
        if descriptor is not None and self._watching is not None:
            watch = self._watches[session.id] = trio.CancelScope()
            self._watching.start_soon(self._close_after, session.id, descriptor, watch)
        return session

    def _process(self, pid: int) -> int:
        """Return a descriptor of a process to watch; half of all descriptors stay for the rest.

        Raises ``ChromafuseError``, and ``OSError`` if there is no such process.
        """
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        if len(self._watches) >= most:
            raise ChromafuseError(
                f"this daemon watches {most} processes already",
                remedy="allow it more open files (`ulimit -n`) and start it again",
            )
        return os.pidfd_open(pid)

    def end(self, session_id: str) -> Ended | None:
        """End a session at once, or return None if there is none."""
        session = self.sessions.close(session_id)
        if session is None:
            return None
        if watch := self._watches.pop(session.id, None):
            watch.cancel()
        self.namespace.views.pop(session.number, None)
        ended = Ended(session, trio.Event())
        assert self._watching is not None  # noqa: S101 - nobody is answered before it runs
        self._watching.start_soon(self._forget_ended, ended)
        return ended

    async def _forget_ended(self, ended: Ended) -> None:
        session = ended.session
        await self._forget([session.id.encode()], session.number, session.shared.view)
        ended.gone.set()

    async def replace(self, tree: PathTree) -> int:
        """Show another tree in every session, and return how many names changed.

        All sessions change at one moment; then the kernel forgets exactly what is different.
        """
        new = Views(tree, partial(View, inodes=self.namespace.inodes))
        pruned: dict[Visible, PathTree] = {}
        while wanting := self._unprepared(new, pruned):
            rules, identity = wanting
            pruned[rules] = await trio.to_thread.run_sync(prune, tree, identity)
        before: dict[int, View] = {}
        for session in self.sessions:
            identity = session.grant.identity
            before[session.number] = session.shared.view
            session.shared = new.of(identity, pruned[new.visible(identity)])
            self._show(session)
        self.sessions.views = new
        return await self._announce(before)

    def _unprepared(
        self, views: Views[View], pruned: Mapping[Visible, PathTree]
    ) -> tuple[Visible, Identity] | None:
        """Return an identity whose tree is not pruned yet; sessions open in the meantime."""
        for session in self.sessions:
            rules = views.visible(session.grant.identity)
            if rules not in pruned:
                return rules, session.grant.identity
        return None

    async def _announce(self, before: Mapping[int, View]) -> int:
        """Have the kernel forget what differs between sessions' views and those of ``before``."""
        different: dict[tuple[int, int], Changes] = {}
        announced: list[trio.Event] = []
        for number, old in before.items():
            view = self.namespace.views.get(number)
            if view is None or self._watching is None:
                continue
            key = (id(old), id(view))
            if key not in different:
                different[key] = await trio.to_thread.run_sync(changes, old.tree, view.tree)
            stale = list(self._numbered(number, different[key]))
            if stale:
                announced.append(self._announce_to(number, stale))
        with trio.move_on_after(ANNOUNCE_SECONDS):
            for event in announced:
                await event.wait()
        return sum(len(found.names) for found in different.values())

    def _announce_to(self, number: int, stale: Sequence[tuple[int, Sequence[bytes]]]) -> trio.Event:
        """Begin to have the kernel forget names of a session; return what tells that it has.

        A session has one thread at most: a process inside can hold it up for as long as it likes.
        """
        done = trio.Event()
        waiting = self._announcing.get(number)
        if waiting is not None:
            waiting.append((stale, done))
        else:
            self._announcing[number] = [(stale, done)]
            assert self._watching is not None  # noqa: S101 - the caller has looked
            self._watching.start_soon(self._announce_all, number)
        return done

    async def _announce_all(self, number: int) -> None:
        waiting = self._announcing[number]
        while waiting:
            stale, done = waiting.pop(0)
            await trio.to_thread.run_sync(
                _refresh, stale, abandon_on_cancel=True, limiter=self._below
            )
            done.set()
        del self._announcing[number]

    def _numbered(self, number: int, found: Changes) -> Iterable[tuple[int, Sequence[bytes]]]:
        """Yield a session's directories that have been handed out, with their changed names."""
        names: dict[bytes, list[bytes]] = {path: [] for path in found.directories}
        for path, name in found.names:
            names.setdefault(path, []).append(name)
        for path, changed in names.items():
            node = self.namespace.inodes.known_directory(path)
            if node is not None:
                yield self.namespace.inode(number, node), changed

    async def run(self) -> None:
        """End sessions whose time is over, and shrink those whose grant is.

        Each by itself: to take the names of one away may last as long as a process inside likes.
        """
        async with trio.open_nursery() as nursery:
            self._watching = nursery
            ahead = _clock_ahead()
            while True:
                await trio.sleep(TICK)
                if abs(moved := _clock_ahead() - ahead) > JUMP:
                    ahead += moved
                    self.sessions.clock_set(moved)
                    log.info("the clock was set forward by %.0f s", moved)
                for session in self.sessions.changing(time.time()):
                    if session.ends is not None and session.ends <= time.time():
                        self.end(session.id)
                    elif session.id not in self._shrinking:
                        self._shrinking.add(session.id)
                        nursery.start_soon(self._shrink, session)

    async def _shrink(self, session: Session[View]) -> None:
        """Show a session what everybody sees from now on."""
        before, view = session.number, session.shared.view
        try:
            if self.sessions.views.known(ANONYMOUS) is None:
                pruned = await trio.to_thread.run_sync(prune, self.sessions.views.tree, ANONYMOUS)
                self.sessions.views.of(ANONYMOUS, pruned)
                if self.sessions.get(session.id) is None:
                    return
            self.sessions.shrink(session)
        finally:
            self._shrinking.discard(session.id)
        self.namespace.views.pop(before, None)
        self._show(session)
        if self.namespace.is_hub:
            await self._forget([session.id.encode()], before, view)
            return
        self.namespace.root = session.number
        log.info("the token is no longer valid: the mount shows what everybody may see")
        await self._forget(view.names(), before, view)

    def _show(self, session: Session[View]) -> None:
        self.namespace.views[session.number] = session.shared.view

    async def _forget(self, names: Sequence[bytes], number: int, view: View) -> None:
        """Have the kernel forget ``names`` in the root, and all it knows below them.

        In a thread: the kernel waits for requests about a directory that are with us already.
        """
        await trio.to_thread.run_sync(
            _forget_root, names, abandon_on_cancel=True, limiter=self._roots
        )
        await trio.to_thread.run_sync(
            _forget_below,
            number << NODE_BITS,
            view.known(),
            abandon_on_cancel=True,
            limiter=self._below,
        )

    async def _close_after(self, session_id: str, descriptor: int, watch: trio.CancelScope) -> None:
        """End a session when the process that ``descriptor`` stands for has ended."""
        try:
            with watch:
                await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        if not watch.cancelled_caught:
            self.end(session_id)


def _clock_ahead() -> float:
    """Return how far the wall clock is ahead of one that nobody sets, in seconds."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _refresh(directories: Sequence[tuple[int, Sequence[bytes]]]) -> None:
    """Forget changed names, and how their directories look; what is not known does not matter."""
    for inode, names in directories:
        for name in names:
            with suppress(FileNotFoundError):
                pyfuse3.invalidate_entry(pyfuse3.InodeT(inode), name)
        with suppress(FileNotFoundError):
            pyfuse3.invalidate_inode(pyfuse3.InodeT(inode), attr_only=True)


def _forget_root(names: Sequence[bytes]) -> None:
    """Forget names in the root, and what nobody holds below them."""
    for name in names:
        with suppress(FileNotFoundError):
            pyfuse3.invalidate_entry(pyfuse3.ROOT_INODE, name)


def _forget_below(base: int, directories: Sequence[tuple[int, Sequence[bytes]]]) -> None:
    """Forget what is left of a session's directories.

    A directory is left if a process sits inside or has it open; what is open there keeps its name.
    """
    for node, below in directories:
        inode = pyfuse3.InodeT(base | node)
        with suppress(FileNotFoundError):
            pyfuse3.invalidate_inode(inode, attr_only=True)
            for name in below:
                with suppress(FileNotFoundError):
                    pyfuse3.invalidate_entry(inode, name)
