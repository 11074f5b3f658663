"""Waiting for the next request, without a round through the scheduler for each.

pyfuse3 waits with ``trio.Lock`` and ``trio.lowlevel.wait_readable``: two scheduler rounds and three
system calls a request, more than all the rest of answering it. A client that walks a tree sends its
next request some microseconds behind the answer to the last, so here the loop itself waits for that
long in one system call, with nothing else delayed by more than ``PATIENCE``, and goes back to the
scheduler at least every ``SLICE``. It sleeps while it waits: two cores are few, and a client
needs one of them.
"""

from __future__ import annotations

import select
import time
from types import TracebackType
from typing import Any

import pyfuse3
import trio

PATIENCE = 0.000_2
"""Seconds to wait in place for the next request."""
SELECTABLE = 1024
"""Descriptors from this number on cannot be given to ``select``; trio waits for them."""
SLICE = 0.002
"""Seconds after which other tasks get their turn, however many requests come."""


class EagerLock:
    """A lock that is taken without a checkpoint if it is free, and that does not queue fairly.

    A task that releases it may take it again at once; a waiter runs when that task waits.
    """

    def __init__(self) -> None:
        self._locked = False
        self._lot = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        while self._locked:
            await self._lot.park()
        self._locked = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._locked = False
        self._lot.unpark()


class _Lowlevel:
    """``trio.lowlevel`` with another ``wait_readable``."""

    def __init__(self) -> None:
        self._slice_ends = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(trio.lowlevel, name)

    async def wait_readable(self, descriptor: int) -> None:
        in_place = descriptor < SELECTABLE and time.perf_counter() < self._slice_ends
        if in_place and select.select([descriptor], [], [], PATIENCE)[0]:
            return
        await trio.lowlevel.wait_readable(descriptor)
        self._slice_ends = time.perf_counter() + SLICE


class _Trio:
    """``trio`` as pyfuse3 sees it."""

    Lock = EagerLock

    def __init__(self) -> None:
        self.lowlevel = _Lowlevel()

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)


def install() -> None:
    """Let pyfuse3 wait in this way from its next ``main`` on."""
    pyfuse3.trio = _Trio()  # type: ignore[attr-defined]
