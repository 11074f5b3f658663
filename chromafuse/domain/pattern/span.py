"""The algebra of matched text: what every match of a part of a regular expression looks like.

A span knows strings one of which each match begins with, strings one of which it ends with, and
what else it contains. Everything is bounded, so that no pattern makes much work; what does not
fit is forgotten, never invented.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from chromafuse.domain.pattern.fold import ANYTHING
from chromafuse.domain.pattern.query import ALL, Literal, Query, all_of, any_of

MAX_STRINGS = 64
"""Strings in one set."""
MAX_LENGTH = 128
"""Characters of a string."""
MAX_COPIES = 32
"""Repetitions that are written out."""

_NOTHING = frozenset({""})


class Span(NamedTuple):
    """What is known of the text that a part of a pattern matches.

    Each match begins with one of ``heads``, ends with one of ``tails`` and satisfies ``needs``.
    If ``exact``, each match is one of ``heads``, and ``tails`` is the same set.
    """

    heads: frozenset[str]
    tails: frozenset[str]
    exact: bool
    needs: tuple[Query, ...] = ()


EMPTY = Span(_NOTHING, _NOTHING, exact=True)
"""Matches the empty string only, as an anchor does."""
ANY = Span(_NOTHING, _NOTHING, exact=False)
"""Matches something of which nothing is known."""


def one_of(strings: Iterable[str]) -> Span:
    """Return the span that matches exactly these strings."""
    found = frozenset(strings)
    if len(found) > MAX_STRINGS or any(len(s) > MAX_LENGTH or ANYTHING in s for s in found):
        return ANY
    return Span(found, found, exact=True)


def text(string: str) -> Span:
    """Return the span of one string, which may have ANYTHING in it."""
    if ANYTHING in string:
        first, *middle, last = string.split(ANYTHING)
        needs = tuple(Literal(piece[:MAX_LENGTH]) for piece in middle if piece)
        return Span(frozenset({first[:MAX_LENGTH]}), _tail(last), False, _bounded(needs))
    head = frozenset({string[:MAX_LENGTH]})
    if len(string) <= MAX_LENGTH:
        return Span(head, head, exact=True)
    return Span(head, _tail(string), exact=False)


def _tail(string: str) -> frozenset[str]:
    return frozenset({string[-MAX_LENGTH:]})


def joined(left: Span, right: Span) -> Span:
    """Return the span of a match of ``left`` followed at once by one of ``right``."""
    if left is EMPTY:
        return right
    if right is EMPTY:
        return left
    seam = _product(left.tails, right.heads)
    if left.exact and right.exact:
        if seam is not None:
            return Span(seam, seam, exact=True)
        return Span(left.heads, right.tails, exact=False)
    heads, tails, needs = left.heads, right.tails, left.needs + right.needs
    if seam is None:
        needs += (containing(left.tails), containing(right.heads))
    elif left.exact:
        heads = seam
    elif right.exact:
        tails = seam
    else:
        needs += (containing(seam),)
    return Span(heads, tails, False, _bounded(needs))


def _product(left: frozenset[str], right: frozenset[str]) -> frozenset[str] | None:
    if len(left) * len(right) > MAX_STRINGS:
        return None
    if max(map(len, left)) + max(map(len, right)) > MAX_LENGTH:
        return None
    return frozenset({a + b for a in left for b in right})


def _bounded(needs: tuple[Query, ...]) -> tuple[Query, ...]:
    if not needs:
        return ()
    both = all_of(needs)
    return () if both is ALL else (both,)


def either(spans: list[Span]) -> Span:
    """Return the span of a match of one of ``spans`` (one or more)."""
    if len(spans) == 1:
        return spans[0]
    heads = frozenset[str]().union(*(span.heads for span in spans))
    if len(heads) > MAX_STRINGS:
        heads = _NOTHING
    elif all(span.exact for span in spans):
        return Span(heads, heads, exact=True)
    tails = frozenset[str]().union(*(span.tails for span in spans))
    if len(tails) > MAX_STRINGS:
        tails = _NOTHING
    return Span(heads, tails, False, _bounded((any_of(map(requirement, spans)),)))


def repeated(span: Span, least: int, most: int | None) -> Span:
    """Return the span of ``least`` to ``most`` (None: any number of) matches in a row."""
    if span.heads == _NOTHING and span.exact:
        # An anchor; in some dialects the operator behind it is an ordinary character.
        return ANY
    if least == 0:
        if most == 1 and span.exact:
            return either([span, EMPTY])
        return ANY
    copies = min(least, MAX_COPIES if span.exact else 2)
    whole = span
    for count in range(2, copies + 1):
        longer = joined(whole, span)
        if whole.exact and not longer.exact:
            return Span(whole.heads, whole.tails, False, whole.needs)
        whole = longer
        if not whole.exact and count >= 2:
            break
    if copies == least == most:
        return whole
    return Span(whole.heads, whole.tails, False, whole.needs)


def requirement(span: Span) -> Query:
    """Return what a file with a match of ``span`` must contain."""
    if span.exact:
        return containing(span.heads)
    return all_of([containing(span.heads), *span.needs, containing(span.tails)])


def containing(strings: frozenset[str]) -> Query:
    """Return the query for one of ``strings``; ALL if one of them is empty."""
    if "" in strings:
        return ALL
    return any_of([Literal(string) for string in sorted(strings)])
