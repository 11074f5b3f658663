"""From the patterns of a command to the query of its search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from chromafuse.domain.pattern import posix
from chromafuse.domain.pattern.builder import NotUnderstood
from chromafuse.domain.pattern.fold import Fold, fold_class, prepare
from chromafuse.domain.pattern.query import (
    ALL,
    All,
    And,
    Literal,
    Or,
    Query,
    all_of,
    any_of,
)
from chromafuse.domain.pattern.span import Span, requirement, text

MAX_PATTERNS = 1_000
"""Patterns of one search."""
MAX_BYTES = 131_072
"""Bytes of all fixed strings together."""
MAX_EXPRESSION_BYTES = 16_384
"""Bytes of all regular expressions together."""

_FOLDING_PREFIX = "(?i)"
_STRAY_BYTES = re.compile("[\udc80-\udcff]+")


class Syntax(Enum):
    """How patterns are written."""

    BASIC = "basic"
    EXTENDED = "extended"
    FIXED = "fixed strings"
    PCRE = "PCRE"
    RUST = "Rust"
    RUST_OR_PCRE = "Rust or PCRE"


def understand(
    patterns: Sequence[bytes], syntax: Syntax, fold: Fold, *, multibyte: bool = True
) -> Query:
    """Return what a file must contain for one of ``patterns`` to match a line of it.

    ``multibyte``: the patterns are UTF-8; otherwise each byte is a character. The file is valid
    UTF-8 in any case. Raises NotUnderstood, with the reason.
    """
    if not patterns:
        raise NotUnderstood("no pattern")
    most = MAX_BYTES if syntax is Syntax.FIXED else MAX_EXPRESSION_BYTES
    if len(patterns) > MAX_PATTERNS or sum(map(len, patterns)) > most:
        raise NotUnderstood("too many patterns")
    queries = []
    distinct = dict.fromkeys(patterns)
    for pattern in distinct:
        query = _one(pattern, syntax, fold, multibyte, alone=len(distinct) == 1)
        if isinstance(query, All):
            raise NotUnderstood("a pattern that needs no particular text")
        queries.append(query)
    query = any_of(queries)
    if isinstance(query, All):
        raise NotUnderstood("too many different alternatives")
    return query


def _one(pattern: bytes, syntax: Syntax, fold: Fold, multibyte: bool, *, alone: bool) -> Query:
    if b"\n" in pattern or b"\0" in pattern:
        raise NotUnderstood("a newline or NUL in a pattern")
    try:
        string = pattern.decode("utf-8" if multibyte else "latin-1")
    except UnicodeDecodeError:
        raise NotUnderstood("a pattern that is not UTF-8") from None
    # In ripgrep the flags of one pattern reach into the next.
    if alone and syntax in {Syntax.PCRE, Syntax.RUST} and string.startswith(_FOLDING_PREFIX):
        string = string.removeprefix(_FOLDING_PREFIX)
        if fold is Fold.NONE:
            fold = Fold.UNICODE if multibyte else Fold.ASCII
    if syntax is Syntax.RUST_OR_PCRE:
        spans = [_span(string, each, fold) for each in (Syntax.RUST, Syntax.PCRE)]
        if spans[0] != spans[1]:
            raise NotUnderstood("a pattern that PCRE reads in another way")
        span = spans[0]
    else:
        span = _span(string, syntax, fold)
    return _finished(requirement(span), fold, multibyte)


def _span(string: str, syntax: Syntax, fold: Fold) -> Span:
    def prepared(text: str) -> str:
        return prepare(text, fold)

    if syntax is Syntax.FIXED:
        return text(prepared(string))
    if syntax in {Syntax.BASIC, Syntax.EXTENDED}:
        return posix.parse(string, extended=syntax is Syntax.EXTENDED, prepare=prepared)
    from chromafuse.domain.pattern import perl

    return perl.parse(string, perl.PCRE if syntax is Syntax.PCRE else perl.RUST, prepared)


def _finished(query: Query, fold: Fold, multibyte: bool) -> Query:
    """Return ``query`` with the text of its literals as it stands in a UTF-8 file, and folded."""
    if isinstance(query, Or):
        return any_of(_finished(part, fold, multibyte) for part in query.parts)
    if isinstance(query, And):
        return all_of(_finished(part, fold, multibyte) for part in query.parts)
    if isinstance(query, All):
        return query
    string = query.text
    if not multibyte and not string.isascii():
        whole = string.encode("latin-1").decode("utf-8", "surrogateescape")
        string = max(_STRAY_BYTES.split(whole), key=len)
        if not string:
            return ALL
    folds = fold is not Fold.NONE and any(len(fold_class(char, fold)) > 1 for char in string)
    return Literal(string, fold if folds else Fold.NONE)
