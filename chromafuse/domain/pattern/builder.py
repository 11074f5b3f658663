"""What the parsers of all dialects share: groups, alternatives, and the atom an operator binds."""

from __future__ import annotations

from collections.abc import Callable

from chromafuse.domain.pattern.span import (
    ANY,
    EMPTY,
    Span,
    either,
    joined,
    one_of,
    repeated,
    text,
)

MAX_DEPTH = 50
"""Groups in one another."""
MAX_PATTERN = 4_096
"""Characters of a regular expression."""
MAX_CLASS = 6
"""Characters of a bracket expression that is taken as so many alternatives."""


class NotUnderstood(Exception):
    """The pattern has something whose meaning is not known for certain, or is too much work."""


class Builder:
    """Collects the parts of a pattern into one span."""

    def __init__(self) -> None:
        self._frames: list[tuple[bool, list[Span], Span]] = []
        self._alternatives: list[Span] = []
        self._sequence = EMPTY
        self._run = ""
        self._atom: Span | None = None

    @property
    def at_start(self) -> bool:
        """Whether nothing stands yet in the alternative at hand."""
        return not self._run and self._atom is None and self._sequence is EMPTY

    def text(self, string: str) -> None:
        """Add ordinary characters, prepared."""
        if self._atom is not None:
            self._flush()
        self._run += string

    def atom(self, span: Span) -> None:
        """Add one thing that an operator behind it binds."""
        self._flush()
        self._atom = span

    def members(self, chars: str) -> None:
        """Add a bracket expression with these members, prepared."""
        found = set(chars)
        self.atom(one_of(found) if 0 < len(found) <= MAX_CLASS else ANY)

    def repeat(self, least: int, most: int | None) -> None:
        """Repeat the last character or atom."""
        if self._atom is None and self._run:
            last, self._run = self._run[-1], self._run[:-1]
            self.atom(text(last))
        self._atom = ANY if self._atom is None else repeated(self._atom, least, most)

    def forget_last(self) -> None:
        """Treat the last character or atom, and what follows now, as anything."""
        self.repeat(0, None)

    def alternative(self) -> None:
        """Begin the next alternative."""
        self._flush()
        self._alternatives.append(self._sequence)
        self._sequence = EMPTY

    def open(self, *, assertion: bool = False) -> None:
        """Begin a group; an ``assertion`` looks at text that is not part of the match.

        Raises NotUnderstood if there are too many in one another.
        """
        if len(self._frames) >= MAX_DEPTH:
            raise NotUnderstood("groups nested too deep")
        self._flush()
        self._frames.append((assertion, self._alternatives, self._sequence))
        self._alternatives = []
        self._sequence = EMPTY

    def close(self) -> None:
        """End the group. Raises NotUnderstood if none is open."""
        if not self._frames:
            raise NotUnderstood("an unmatched )")
        self.alternative()
        span = either(self._alternatives)
        assertion, self._alternatives, self._sequence = self._frames.pop()
        self._atom = EMPTY if assertion else span

    def result(self) -> Span:
        """Return the span of the whole pattern. Raises NotUnderstood if a group is open."""
        if self._frames:
            raise NotUnderstood("an unmatched (")
        self.alternative()
        return either(self._alternatives)

    def _flush(self) -> None:
        if self._run:
            self._sequence = joined(self._sequence, text(self._run))
            self._run = ""
        if self._atom is not None:
            self._sequence = joined(self._sequence, self._atom)
            self._atom = None


def bounds(least: str, comma: str | None, most: str | None) -> tuple[int, int | None]:
    """Return the numbers of an interval ``{least comma most}``; None: no upper limit."""
    low = _number(least)
    if comma is None:
        return low, low
    return low, _number(most) if most else None


def _number(digits: str) -> int:
    return 99_999 if len(digits) > 5 else int(digits or "0")


Prepare = Callable[[str], str]
"""Makes text of the pattern into text to search for; see ``fold.prepare``."""
