"""Measuring in rounds: every subject once a round, side by side, in changing order."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from benchlib.model import BenchError, Key, Reading, Results, Sample, Trial

MAX_FAILURES = 2
"""Failures after which a trial is given up."""

T = TypeVar("T")


class Teller:
    """Progress on stderr: one line that is written over on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._width = 0

    def say(self, text: str) -> None:
        """Tell what is being done."""
        if not self._terminal:
            print(f"bench: {text}", file=sys.stderr, flush=True)
            return
        padded = text[:110].ljust(self._width)
        self._width = len(text[:110])
        print(f"\r{padded}", end="", file=sys.stderr, flush=True)

    def line(self, text: str) -> None:
        """Tell something that stays readable."""
        if self._terminal and self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr)
            self._width = 0
        print(f"bench: {text}", file=sys.stderr, flush=True)


def measure(
    suite: str,
    corpus: str,
    trials: Sequence[Trial],
    results: Results,
    teller: Teller,
    *,
    rounds: int,
    warm_up: bool,
) -> None:
    """Run ``trials`` in rounds and add what they read to ``results``.

    A warm-up round comes first and is discarded. A trial that fails is reported; its round has
    no sample, and after ``MAX_FAILURES`` it is not tried again.
    """
    groups = {trial.group: [t for t in trials if t.group == trial.group] for trial in trials}
    failures: Counter[tuple[str, str]] = Counter()
    numbers = range(0 if warm_up else 1, rounds + 1)
    done, total = 0, len(numbers) * len(trials)
    for number in numbers:
        which = f"round {number}/{rounds}" if number else "warm-up"
        for members in groups.values():
            for position, trial in enumerate(in_turn(members, number)):
                done += 1
                label = f"{suite} {corpus} · {trial.group} · {trial.subject}"
                if trial.rounds is not None and not 0 < number <= trial.rounds:
                    continue
                if failures[trial.group, trial.subject] >= MAX_FAILURES:
                    continue
                teller.say(f"[{done}/{total}] {which} · {label}")
                try:
                    readings = _run(trial)
                except BenchError as error:
                    failures[trial.group, trial.subject] += 1
                    results.problems.append(f"{label}, {which}: {error}")
                    teller.line(f"failed: {label}: {error}")
                    continue
                if number:
                    for reading in readings:
                        key = Key(suite, corpus, trial.group, trial.subject, reading.measure)
                        results.add(key, reading.unit, Sample(number, position, reading.value))


def _run(trial: Trial) -> Sequence[Reading]:
    readings = trial.run()
    # What the last trial left to the kernel to tidy is not for the next one to pay.
    time.sleep(0.02)
    return readings


def in_turn(members: Sequence[T], number: int) -> Iterator[T]:
    """Yield ``members`` in the order of round ``number``.

    The order turns round every time and shifts by one every second time, so that over the rounds
    nobody always comes first or always follows the same other.
    """
    shift = number // 2 % len(members)
    order = [*members[shift:], *members[:shift]]
    return reversed(order) if number % 2 else iter(order)
