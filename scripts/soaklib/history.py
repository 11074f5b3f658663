"""What was stored and broken when, and hence what a reader may have got.

Times are monotonic seconds. Used by several threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from soaklib.source import Source, Tree

GRACE = 10.0
"""Seconds within which the hub has to show what is stored, and to recover from a fault."""
TOLD = 20


@dataclass(slots=True)
class Fault:
    """Time in which a server was not as it should be."""

    server: str
    begun: float
    ended: float = math.inf


@dataclass(slots=True)
class History:
    """Everything that happened, and what of it was wrong."""

    source: Source
    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    start: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, number: int = 1) -> None:
        """Add to what the report tells."""
        with self._lock:
            self.counts[what] += number

    def is_wrong(self, text: str) -> None:
        """Remember and tell something that must not be."""
        with self._lock:
            self.wrong.append(text)
            if len(self.wrong) <= TOLD:
                print(f"soak: WRONG at {time.monotonic() - self.start:.1f} s: {text}", flush=True)

    def note(self, text: str) -> None:
        """Tell what happens."""
        print(f"soak: {time.monotonic() - self.start:6.1f} s  {text}", flush=True)

    @contextmanager
    def ingest(self, number: int) -> Iterator[None]:
        """A generation is being stored; if this ends without an error, it is."""
        if len(self.begun) == number:
            self.begun.append(time.monotonic())
        yield
        self.ended.append(time.monotonic())

    @contextmanager
    def fault(self, server: str) -> Iterator[None]:
        """A server is being disturbed."""
        fault = Fault(server, time.monotonic())
        self.faults.append(fault)
        try:
            yield
        finally:
            fault.ended = time.monotonic()

    def disturbed(self, since: float, until: float, servers: Collection[str]) -> bool:
        """Return whether one of ``servers`` was disturbed, or had just recovered."""
        return any(
            fault.server in servers and fault.begun <= until and fault.ended + GRACE >= since
            for fault in list(self.faults)
        )

    def shown(self, since: float, until: float) -> list[Tree]:
        """Return the trees that may have been shown in that time."""
        newest = max(n for n, begun in enumerate(list(self.begun)) if begun <= until)
        oldest = max(
            (n for n, ended in enumerate(list(self.ended)) if self._must_show(ended) <= since),
            default=0,
        )
        return self.source.generations[oldest : newest + 1]

    def _must_show(self, ended: float) -> float:
        """Return from when on a tree that was stored at ``ended`` has to be shown."""
        due = ended + GRACE
        for fault in list(self.faults):
            if fault.server == "chroma" and fault.begun <= due:
                due = max(due, fault.ended + GRACE)
        return due
