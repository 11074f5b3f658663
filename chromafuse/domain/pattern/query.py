"""What a file must contain to be worth searching, as a small formula of literals.

A query is true of every file that the search can match, and of others. ``ALL`` is true of every
file: nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chromafuse.domain.pattern.fold import Fold

MAX_ALTERNATIVES = 64
"""Parts of an Or."""
MAX_CONJUNCTS = 8
"""Parts of an And."""


@dataclass(frozen=True, slots=True)
class All:
    """Every file."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Files that contain ``text``, which is not empty and has no newline and no NUL.

    With a ``fold`` other than NONE each character stands for its ``fold_class``.
    """

    text: str
    fold: Fold = Fold.NONE


@dataclass(frozen=True, slots=True)
class And:
    """Files of which all ``parts`` (two or more) are true, anywhere in the file."""

    parts: tuple[Literal | Or, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Files of which one of ``parts`` (two or more) is true."""

    parts: tuple[Literal | And, ...]


Query = All | Literal | And | Or
ALL = All()


def any_of(queries: Iterable[Query]) -> Query:
    """Return what is true where one of ``queries`` is; ALL for none, or for too many."""
    found: dict[Literal | And, None] = {}
    for query in queries:
        if isinstance(query, All):
            return ALL
        found.update(dict.fromkeys(query.parts if isinstance(query, Or) else (query,)))
    parts = list(found)
    if len(parts) > MAX_ALTERNATIVES:
        parts = _shortened([literal for part in parts for literal in alternatives(part)])
    kept = _without_implied(parts)
    if not kept:
        return ALL
    return kept[0] if len(kept) == 1 else Or(tuple(kept))


def _shortened(literals: list[Literal]) -> list[Literal | And]:
    """Return at most MAX_ALTERNATIVES beginnings of ``literals``, none if they say too little."""
    for length in (24, 16, 12, 8, 6, 5, 4, 3):
        short = dict.fromkeys(Literal(item.text[:length], item.fold) for item in literals)
        if len(short) <= MAX_ALTERNATIVES:
            return list(short)
    return []


def _without_implied(parts: list[Literal | And]) -> list[Literal | And]:
    """Return ``parts`` less each literal that contains another one: the other says as much."""
    literals = [part for part in parts if isinstance(part, Literal)]
    if len(literals) < 2:
        return parts
    return [
        part
        for part in parts
        if isinstance(part, And)
        or not any(
            other.text in part.text and other is not part and other.fold is part.fold
            for other in literals
        )
    ]


def all_of(queries: Iterable[Query]) -> Query:
    """Return what is true where all of ``queries`` are; only the most telling are kept."""
    found: dict[object, Literal | Or] = {}
    for query in queries:
        if not isinstance(query, All):
            for part in query.parts if isinstance(query, And) else (query,):
                found.setdefault(frozenset(part.parts) if isinstance(part, Or) else part, part)
    parts = list(found.values())
    if len(parts) > 1:
        literals = [part for part in parts if isinstance(part, Literal)]
        parts = [part for part in parts if not _implied(part, literals)]
    if len(parts) > MAX_CONJUNCTS:
        best = sorted(parts, key=selectivity, reverse=True)[:MAX_CONJUNCTS]
        parts = [part for part in parts if part in best]
    if not parts:
        return ALL
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _implied(part: Literal | Or, literals: list[Literal]) -> bool:
    """Say whether one of ``literals`` contains ``part``, or an alternative of it."""
    texts = part.parts if isinstance(part, Or) else (part,)
    return any(
        other.text != text.text and text.text in other.text and text.fold is other.fold
        for text in texts
        if isinstance(text, Literal)
        for other in literals
    ) or (isinstance(part, Or) and any(text in literals for text in texts))


def selectivity(query: Query) -> float:
    """Return how telling ``query`` is: about the letters and digits that must be there."""
    if isinstance(query, All):
        return 0.0
    if isinstance(query, Literal):
        return sum(1.0 if char.isalnum() or char == "_" else 0.5 for char in query.text)
    if isinstance(query, And):
        return max(map(selectivity, query.parts))
    return min(map(selectivity, query.parts)) - len(query.parts) / 100


def alternatives(query: Query) -> tuple[Literal, ...]:
    """Return literals of which each file that satisfies ``query`` contains one; none for ALL.

    Of an And only the most telling part counts.
    """
    if isinstance(query, All):
        return ()
    if isinstance(query, Literal):
        return (query,)
    if isinstance(query, And):
        return alternatives(max(query.parts, key=selectivity))
    return tuple(dict.fromkeys(item for part in query.parts for item in alternatives(part)))
