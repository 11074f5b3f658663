"""How much memory, descriptors and threads a process has, and whether that grows."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_SHARE, MEMORY_MORE = 0.25, 32.0
"""Growth that is no finding: this share of what it was, and so many MiB more."""
DESCRIPTORS_MORE = 24.0 + 128
"""The daemon keeps one for each of the last 128 processes that have listed something."""
THREADS_MORE = 16.0
"""Threads that wait for Chroma come and go."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A process at one moment."""

    memory: float
    """MiB resident."""
    descriptors: float
    threads: float


def sample(pid: int) -> Sample | None:
    """Look at a process; None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    found = dict(re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.MULTILINE))
    if len(found) < 2:
        return None
    return Sample(int(found["VmRSS"]) / 1024, descriptors, int(found["Threads"]))


def growth(samples: Sequence[Sample]) -> tuple[list[str], list[str]]:
    """Return lines for the report, and what grew too much.

    Compared are the medians of the second and the last fifth: the first one fills the caches.
    """
    fifth = len(samples) // 5
    if not fifth:
        return ["growth: too few samples"], []
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    lines, wrong = [], []
    for name, unit, share, more in (
        ("memory", " MiB", MEMORY_SHARE, MEMORY_MORE),
        ("descriptors", "", 0.0, DESCRIPTORS_MORE),
        ("threads", "", 0.0, THREADS_MORE),
    ):
        before = statistics.median(getattr(one, name) for one in early)
        after = statistics.median(getattr(one, name) for one in late)
        most = max(getattr(one, name) for one in samples)
        bound = before * (1 + share) + more
        text = f"{name}: {before:.0f} -> {after:.0f}{unit} (most {most:.0f}, bound {bound:.0f})"
        lines.append(text)
        if after > bound:
            wrong.append(f"growth of {text}")
    return lines, wrong
