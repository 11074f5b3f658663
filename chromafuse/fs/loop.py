"""Waiting for the next request, without a round through the scheduler for each.

pyfuse3 waits with ``trio.Lock`` and ``trio.lowlevel.wait_readable``: two scheduler rounds and three
system calls a request, more than all the rest of answering it. A client that walks a tree sends its
next request some microseconds behind the answer to the last, so here the loop itself waits for it:
first awake (``SPIN``), because to wake a sleeping processor takes longer than to answer a request,
then asleep (``PATIENCE``). Nothing else is delayed by more than that, and the loop goes back to the
scheduler at least every ``SLICE``.

Measured on 4,760 pages and 2 virtual processors, warm ``grep -rl``: 320 ms asleep only, 165 ms with
the first 30 µs awake; ``rg`` with two threads 152 and 110 ms.
"""

from __future__ import annotations

import os
import select
import time
from types import TracebackType
from typing import Any

import pyfuse3
import trio

SPIN = 0.000_05
"""Seconds to look for the next request without sleeping; a single processor is the client's."""
SPIN_REST = 31
"""Waits, at most, that do without after none came; doubled with each failure up to this."""
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


class Patience:
    """Waits for a descriptor in place, for ``PATIENCE`` at most.

    A client that takes its time is not waited for awake: the rests between two tries grow until one
    succeeds.
    """

    def __init__(self, *, spin: float) -> None:
        self._spin = spin
        self._rest = 0
        self._skip = 0

    def wait(self, descriptor: int) -> bool:
        """Return whether ``descriptor`` is readable now."""
        waiting = [descriptor]
        if self._skip:
            self._skip -= 1
        elif self._spin:
            ends = time.perf_counter() + self._spin
            while time.perf_counter() < ends:
                if select.select(waiting, [], [], 0)[0]:
                    self._rest = 0
                    return True
            self._rest = self._skip = min(SPIN_REST, 2 * self._rest + 1)
        return bool(select.select(waiting, [], [], PATIENCE)[0])


def spin_seconds() -> float:
    """Return for how long it is worth while to wait awake on this machine."""
    return SPIN if len(os.sched_getaffinity(0)) > 1 else 0.0


class _Lowlevel:
    """``trio.lowlevel`` with another ``wait_readable``."""

    def __init__(self) -> None:
        self._slice_ends = 0.0
        self._patience = Patience(spin=spin_seconds())

    def __getattr__(self, name: str) -> Any:
        return getattr(trio.lowlevel, name)

    async def wait_readable(self, descriptor: int) -> None:
        in_place = descriptor < SELECTABLE and time.perf_counter() < self._slice_ends
        if in_place and self._patience.wait(descriptor):
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
