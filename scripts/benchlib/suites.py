"""What a suite is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from benchlib.corpora import Corpus
from benchlib.lab import Lab
from benchlib.model import Results, Trial
from benchlib.rounds import Teller


class Label(NamedTuple):
    """A trial's name."""

    group: str
    subject: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What a suite prepares its trials in; what it enters into ``stack`` ends with the trials."""

    lab: Lab
    corpus: Corpus
    stack: ExitStack
    results: Results
    teller: Teller
    shared: dict[str, str] = field(default_factory=dict)
    """What subjects share, by its name: a database with the corpus in it, say."""
    peer_rounds: int | None = None
    """How many of the rounds the slow peer takes part in; None: in all."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A set of trials. ``prepare`` makes those that are wanted, and leaves out what cannot be."""

    name: str
    about: str
    labels: Sequence[Label]
    prepare: Callable[[Setting, Sequence[Label]], list[Trial]]
