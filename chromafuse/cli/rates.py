"""What happened between two looks at a daemon's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from chromafuse.daemon.figures import FIGURES
from chromafuse.stores.meter import quantile


@dataclass(frozen=True, slots=True)
class Look:
    """A daemon's status at ``at``, in seconds of a clock that only goes forward."""

    at: float
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests to one backend between two looks; times in seconds, None without requests."""

    per_second: float
    errors_per_second: float
    mean_seconds: float | None
    p99_seconds: float | None
    running: int


def same_daemon(before: Look, now: Look) -> bool:
    """Return whether both looks saw one process, so that its counters only grew."""
    pid, uptime = now.status["pid"], now.status["uptime_seconds"]
    return bool(before.status["pid"] == pid and before.status["uptime_seconds"] <= uptime)


def rates(before: Look, now: Look) -> dict[str, float]:
    """Return how fast each figure that grows did, by its path in the status, a second."""
    seconds = _between(before, now)
    found = {}
    for figure in FIGURES:
        if figure.grows:
            old = figure.values(before.status)
            for label, value in figure.values(now.status).items():
                path = figure.path.replace("*", label)
                found[path] = (value - old.get(label, 0.0)) / seconds
    return found


def traffic(before: Look, now: Look) -> dict[str, Traffic]:
    """Return the requests to each backend between two looks."""
    seconds = _between(before, now)
    found = {}
    for name, new in now.status["backends"].items():
        old = before.status["backends"].get(name, _NOTHING)
        requests = new["requests"] - old["requests"]
        spent = new["seconds"] - old["seconds"]
        found[name] = Traffic(
            requests / seconds,
            (new["errors"] - old["errors"]) / seconds,
            spent / requests if requests else None,
            quantile(_apart(old["buckets"], new["buckets"]), 0.99, spent),
            new["running"],
        )
    return found


_NOTHING: Mapping[str, Any] = {"requests": 0, "errors": 0, "seconds": 0.0, "buckets": {}}


def _between(before: Look, now: Look) -> float:
    return max(now.at - before.at, 1e-9)


def _apart(old: Mapping[str, int], new: Mapping[str, int]) -> list[int]:
    """Return how many requests more each bucket has; those of a status count the lower ones too."""
    more = [count - old.get(bound, 0) for bound, count in new.items()]
    return [later - earlier for earlier, later in pairwise([0, *more])]
