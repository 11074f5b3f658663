"""Figures, their spread, and the targets they are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Unit = Literal["s", "pages/s", "records/s", "MiB", "KiB", "requests"]


class BenchError(Exception):
    """Something could not be measured; the text says what, in one line for a person."""


class Reading(NamedTuple):
    """One measured value; ``measure`` says of what, within its group and subject."""

    measure: str
    unit: Unit
    value: float


@dataclass(frozen=True, slots=True)
class Trial:
    """Something that is measured once a round.

    Trials of one ``group`` are compared with each other and run side by side within a round;
    ``subject`` is whose turn it is. ``run`` raises ``BenchError``.
    """

    group: str
    subject: str
    run: Callable[[], Sequence[Reading]]
    rounds: int | None = None
    """It takes part in this many rounds, and not in the warm-up; None: in all of it."""


class Key(NamedTuple):
    """What a figure is about."""

    suite: str
    corpus: str
    group: str
    subject: str
    measure: str


class Sample(NamedTuple):
    """One reading; ``position`` is the trial's place in the order of its round, from 0."""

    round: int
    position: int
    value: float


@dataclass(frozen=True, slots=True)
class Figure:
    """All samples of one thing."""

    key: Key
    unit: Unit
    samples: list[Sample] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        return [sample.value for sample in self.samples]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def by_round(self) -> dict[int, float]:
        return {sample.round: sample.value for sample in self.samples}


class CorpusFacts(NamedTuple):
    """How large a corpus is; ``chunks`` and ``records`` as ingested."""

    name: str
    pages: int
    bytes: int
    chunks: int
    records: int


@dataclass(slots=True)
class Results:
    """What a run has found. Figures and corpora stand in the order they were met."""

    figures: dict[Key, Figure] = field(default_factory=dict)
    corpora: dict[str, CorpusFacts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, key: Key, unit: Unit, sample: Sample) -> None:
        self.figures.setdefault(key, Figure(key, unit)).samples.append(sample)


class Ref(NamedTuple):
    """A figure, named within its suite and corpus."""

    group: str
    subject: str
    measure: str


@dataclass(frozen=True, slots=True)
class Target:
    """``what`` has to be ``sense`` (``factor`` x the sum of ``of``) + ``plus``.

    ``plus`` alone is an absolute target, in the unit of ``what``. ``corpora`` None means all.
    """

    suite: str
    what: Ref
    sense: Literal["<=", ">="]
    factor: float = 1.0
    of: tuple[Ref, ...] = ()
    plus: float = 0.0
    corpora: frozenset[str] | None = None

    @property
    def text(self) -> str:
        """The bound, for a person, without its unit."""
        parts = []
        if self.of:
            names = " + ".join(_name(ref, self.what) for ref in self.of)
            parts.append(f"{self.factor:g} x " + (f"({names})" if len(self.of) > 1 else names))
        if self.plus or not self.of:
            parts.append(f"{self.plus:g}")
        return f"{self.sense} " + " + ".join(parts)


def _name(ref: Ref, beside: Ref) -> str:
    """Return what ``ref`` names that ``beside`` does not."""
    parts = [ref.subject if ref.subject != beside.subject else ""]
    if (ref.group, ref.measure) != (beside.group, beside.measure):
        parts.append(f"{ref.group}, {ref.measure}")
    return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a target fares. ``ratios``, one a round, are what was measured by the sum of ``of``."""

    target: Target
    corpus: str
    unit: Unit
    median: float
    limit: float
    ratios: list[float]
    met: bool
    requests: float | None = None
    """The median of Chroma requests of what is judged, if they are counted."""


def judge(target: Target, corpus: str, results: Results) -> Verdict | None:
    """Return the verdict, or None where ``target`` does not apply or a figure is missing.

    What is compared was measured side by side, so it is compared round by round; the median of
    the differences decides. Load that comes and goes between rounds then falls on both sides.
    """
    if target.corpora is not None and corpus not in target.corpora:
        return None
    found = [
        results.figures.get(Key(target.suite, corpus, *ref)) for ref in (target.what, *target.of)
    ]
    figures = [figure for figure in found if figure is not None]
    if len(figures) < len(found):
        return None
    what, *bases = (figure.by_round for figure in figures)
    rounds = [number for number in what if all(number in base for base in bases)]
    if not rounds:
        return None
    sums = [sum(base[number] for base in bases) for number in rounds]
    limits = [target.factor * total + target.plus for total in sums]
    values = [what[number] for number in rounds]
    excess = statistics.median(value - limit for value, limit in zip(values, limits, strict=True))
    counted = results.figures.get(
        Key(target.suite, corpus, target.what.group, target.what.subject, "requests")
    )
    return Verdict(
        requests=counted.median if counted else None,
        target=target,
        corpus=corpus,
        unit=figures[0].unit,
        median=statistics.median(values),
        limit=statistics.median(limits),
        ratios=[value / total for value, total in zip(values, sums, strict=True) if total],
        met=excess <= 0 if target.sense == "<=" else excess >= 0,
    )
