"""How many requests a backend got, how many failed and how long they took.

Every adapter has one ``Meter`` and puts it around what goes to the backend and back: the wait of
a request for its turn, retries' pauses and the work with what came are not in it.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Self

BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of the histogram's buckets in seconds; one bucket more holds what took longer."""


class Meter:
    """Counts the requests to one backend. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._running = 0
        self._errors = 0
        self._seconds = 0.0

    def request(self) -> _Request:
        """Return a block in which one request is made; if it raises, the request has failed."""
        return _Request(self)

    def begun(self) -> None:
        """Count a request as under way."""
        with self._lock:
            self._running += 1

    def ended(self, seconds: float, *, failed: bool) -> None:
        """Count a request that was under way as over."""
        with self._lock:
            self._running -= 1
            self._errors += failed
            self._seconds += seconds
            self._buckets[bisect_left(BOUNDS, seconds)] += 1

    def status(self) -> Mapping[str, object]:
        """Return the figures; times in seconds, ``buckets`` with how many took at most a bound."""
        with self._lock:
            buckets, seconds = tuple(self._buckets), self._seconds
            running, errors = self._running, self._errors
        requests = sum(buckets)
        return {
            "requests": requests,
            "errors": errors,
            "running": running,
            "seconds": round(seconds, 6),
            "mean_seconds": round(seconds / requests, 6) if requests else None,
            "p50_seconds": quantile(buckets, 0.5, seconds),
            "p99_seconds": quantile(buckets, 0.99, seconds),
            "buckets": dict(zip((*map(_label, BOUNDS), "+Inf"), accumulate(buckets), strict=True)),
        }


class _Request:
    """One request under way."""

    __slots__ = ("_begun", "_meter")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._begun = 0.0

    def __enter__(self) -> Self:
        self._meter.begun()
        self._begun = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._meter.ended(time.perf_counter() - self._begun, failed=kind is not None)


def _label(bound: float) -> str:
    return f"{bound:g}"


def quantile(buckets: Sequence[int], part: float, seconds: float) -> float | None:
    """Return in how many seconds ``part`` of the requests ended, or None if there was none.

    ``buckets`` are the counts by ``BOUNDS`` and of what took longer. The answer is read off the
    line through the bucket that holds it; the last bound stands for what took longer. It is at
    most ``seconds``, what all took together: so few requests are not told to have taken longer.
    """
    wanted = part * sum(buckets)
    if not wanted:
        return None
    below, seen = 0.0, 0
    for bound, count in zip(BOUNDS, buckets, strict=False):
        if count and seen + count >= wanted:
            found = below + (bound - below) * (wanted - seen) / count
            return round(min(found, seconds), 6)
        seen += count
        below = bound
    return BOUNDS[-1]
