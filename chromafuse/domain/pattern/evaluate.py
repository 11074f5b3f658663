"""Tests a query on the bytes of a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from chromafuse.domain.pattern.fold import Fold, fold_class
from chromafuse.domain.pattern.query import All, And, Literal, Query

Matcher = Callable[[bytes], bool]
_Test = Callable[[bytes, bytes], bool]
"""Takes the bytes, and the same with ASCII letters made small."""


def matches(query: Query, data: bytes) -> bool:
    """Say whether ``query`` is true of a file with the content ``data``."""
    return matcher(query)(data)


@lru_cache(maxsize=256)
def matcher(query: Query) -> Matcher:
    """Return the function that says of a content whether ``query`` is true of it."""
    test = _compiled(query)
    if not _folds(query):
        return lambda data: test(data, data)
    return lambda data: test(data, data.lower())


def _folds(query: Query) -> bool:
    if isinstance(query, All):
        return False
    if isinstance(query, Literal):
        return query.fold is not Fold.NONE
    return any(map(_folds, query.parts))


def _compiled(query: Query) -> _Test:
    if isinstance(query, All):
        return lambda _data, _lower: True
    if isinstance(query, Literal):
        return _literal(query)
    tests = [_compiled(part) for part in query.parts]
    if isinstance(query, And):
        return lambda data, lower: all(test(data, lower) for test in tests)
    return lambda data, lower: any(test(data, lower) for test in tests)


def _literal(literal: Literal) -> _Test:
    needle = literal.text.encode()
    if literal.fold is Fold.NONE:
        return lambda data, _lower: needle in data
    classes = tuple(fold_class(char, literal.fold) for char in literal.text)
    odd = {char.encode() for members in classes for char in members if not char.isascii()}
    if not literal.text.isascii():
        search = _expression(classes).search
        return lambda data, _lower: search(data) is not None
    if not odd:
        return lambda _data, lower: needle in lower

    # Few files have one of the odd characters, and finding bytes is far faster than a search.
    def test(data: bytes, lower: bytes) -> bool:
        if needle in lower:
            return True
        if data.isascii() or not any(char in data for char in odd):
            return False
        return _expression(classes).search(data) is not None

    return test


@lru_cache(maxsize=64)
def _expression(classes: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(
        b"".join(
            b"(?:%s)" % b"|".join(re.escape(char.encode()) for char in members)
            for members in classes
        )
    )
