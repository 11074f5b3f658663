"""Renders a query as a ``where_document`` filter of Chroma."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chromafuse.domain.pattern.fold import Fold, fold_class
from chromafuse.domain.pattern.query import Literal, Query, alternatives, any_of

MAX_OPERAND_BYTES = 49_000
"""Chroma refuses a longer operand."""
MAX_STRADDLING = 32
"""Characters of a literal that may stand in two chunks."""

_META = frozenset("\\.+*?()|[]{}^$#&-~")


def to_chroma(
    query: Query,
    *,
    may_straddle: bool = False,
    max_bytes: int = MAX_OPERAND_BYTES,
    also: str | None = None,
) -> Mapping[str, str] | None:
    """Return the filter for chunks that make their file a candidate, or None: every file is one.

    Chroma looks at one chunk at a time, so of an And the filter has only the most telling part.
    The operand has literals only, and at most ``max_bytes`` bytes. ``may_straddle``: a line may
    stand in two adjacent chunks, each but the last of at least MAX_STRADDLING characters; then
    a chunk with either half of a literal is enough. ``also`` is a literal that is looked for in any
    case; it costs nothing, as one ``$regex`` is as fast as one ``$contains``.
    """
    literals = alternatives(query)
    while literals:
        asked = _halves(literals) if may_straddle else literals
        if not asked:
            return None
        rendered = _rendered(asked if also is None else (*asked, Literal(also)))
        if len(next(iter(rendered.values())).encode()) <= max_bytes:
            return rendered
        literals = _shorter(literals)
    return None


def _halves(literals: Sequence[Literal]) -> tuple[Literal, ...]:
    """Return the first and the second half of each literal."""
    halves: dict[Literal, None] = {}
    for literal in literals:
        text = literal.text[:MAX_STRADDLING]
        middle = (len(text) + 1) // 2
        for half in (text[:middle], text[middle:]):
            if half:
                halves[Literal(half, literal.fold)] = None
    return alternatives(any_of(halves))


def _shorter(literals: Sequence[Literal]) -> tuple[Literal, ...]:
    """Return the literals with the longest ones cut; none when they say too little."""
    length = max(len(literal.text) for literal in literals) // 2
    if length < 2:
        return ()
    return alternatives(any_of(Literal(item.text[:length], item.fold) for item in literals))


def _rendered(literals: Sequence[Literal]) -> Mapping[str, str]:
    if len(literals) == 1 and literals[0].fold is Fold.NONE:
        return {"$contains": literals[0].text}
    return {"$regex": "|".join(map(_expression, literals))}


def _expression(literal: Literal) -> str:
    return "".join(map(_class, (fold_class(char, literal.fold) for char in literal.text)))


def _class(members: str) -> str:
    if len(members) == 1:
        return f"\\{members}" if members in _META else members
    return f"[{members}]"
