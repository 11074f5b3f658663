"""A query tested on bytes, and rendered for Chroma."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.pattern import (
    ALL,
    And,
    Fold,
    Literal,
    Or,
    Query,
    fold_class,
    matches,
    to_chroma,
)

FOO, BAR = Literal("foo"), Literal("bar")
letters = st.sampled_from("abksKSiI\u017f\u212a\u0130\u00e9\u00c9\u03c3\u03c2. \u65e5")


@pytest.mark.parametrize(
    ("query", "data", "expected"),
    [
        (ALL, b"", True),
        (FOO, b"xfoox", True),
        (FOO, b"FOO", False),
        (Or((FOO, BAR)), b"bar", True),
        (Or((FOO, BAR)), b"baz", False),
        (And((FOO, BAR)), b"bar\nfoo", True),
        (And((FOO, BAR)), b"foo", False),
        (Or((And((FOO, BAR)), Literal("x"))), b"x", True),
        (Literal("task", Fold.ASCII), b"TASK", True),
        (Literal("task", Fold.ASCII), "ta\u017fk".encode(), False),
        (Literal("task", Fold.UNICODE), "TA\u017f\u212a".encode(), True),
        (Literal("task", Fold.UNICODE), "\u017f ta\u017f".encode(), False),
        (Literal("\u00e9t", Fold.UNICODE), "\u00c9T".encode(), True),
        (Literal("\u00e9t", Fold.ASCII), "\u00e9T".encode(), True),
        (Literal("\u00e9t", Fold.ASCII), "\u00c9T".encode(), False),
        (FOO, b"\xff\0foo", True),
    ],
)
def test_matches(query: Query, data: bytes, expected: bool) -> None:
    assert matches(query, data) is expected


@given(text=st.text(letters, min_size=1, max_size=4), data=st.text(letters, max_size=12))
def test_a_folded_literal_matches_by_classes(text: str, data: str) -> None:
    classes = [fold_class(char, Fold.UNICODE) for char in text]
    query = Literal("".join(members[0] for members in classes), Fold.UNICODE)
    expected = any(
        all(char in members for char, members in zip(data[at:], classes, strict=False))
        for at in range(len(data) - len(text) + 1)
    )
    assert matches(query, data.encode()) is expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ALL, None),
        (Literal("a.b*\\"), {"$contains": "a.b*\\"}),
        (Or((Literal("a.b"), Literal("c|d"))), {"$regex": r"a\.b|c\|d"}),
        (Literal("sk-1", Fold.UNICODE), {"$regex": "[sS\u017f][kK\u212a]\\-1"}),
        (Literal("s", Fold.ASCII), {"$regex": "[sS]"}),
        (And((Literal("ab"), Literal("abcdef"))), {"$contains": "abcdef"}),
        (And((Literal("    "), Literal("xyz"))), {"$contains": "xyz"}),
        (And((Or((FOO, BAR)), Literal("x"))), {"$regex": "foo|bar"}),
        (Or((And((FOO, Literal("xy"))), BAR)), {"$regex": "foo|bar"}),
    ],
)
def test_to_chroma(query: Query, expected: object) -> None:
    assert to_chroma(query) == expected


def test_either_half_of_a_literal_that_may_straddle() -> None:
    assert to_chroma(Literal("abcde"), may_straddle=True) == {"$regex": "abc|de"}
    assert to_chroma(Literal("a"), may_straddle=True) == {"$contains": "a"}
    assert to_chroma(Literal("abab"), may_straddle=True) == {"$contains": "ab"}


def test_a_filter_that_is_too_long_is_shortened_or_not_made() -> None:
    wide = Or(tuple(Literal(f"{number:03}" + "k" * 125, Fold.UNICODE) for number in range(64)))
    found = to_chroma(wide)
    assert found is not None
    assert len(found["$regex"].encode()) <= 49_000
    small = to_chroma(wide, max_bytes=256)
    assert small is not None
    assert len(small["$regex"].encode()) <= 256
    assert to_chroma(wide, max_bytes=10) is None
    assert to_chroma(Literal("x" * 128), max_bytes=40) == {"$contains": "x" * 32}


@given(
    texts=st.lists(st.text(letters, min_size=1, max_size=5), min_size=1, max_size=4),
    fold=st.sampled_from(Fold),
    data=st.text(letters, max_size=10),
    cut=st.integers(0, 10),
    straddle=st.booleans(),
)
def test_what_matches_is_asked_for(
    texts: list[str], fold: Fold, data: str, cut: int, straddle: bool
) -> None:
    """A file that the query is true of has a chunk that the filter is true of."""
    parts = tuple(
        Literal("".join(fold_class(char, fold)[0] for char in text), fold) for text in texts
    )
    query = Or(parts) if len(parts) > 1 else parts[0]
    where = to_chroma(query, may_straddle=straddle)
    assert where is not None
    chunks = [data[:cut], data[cut:]] if straddle else [data]
    found = any(
        where["$contains"] in chunk if "$contains" in where else re.search(where["$regex"], chunk)
        for chunk in chunks
    )
    assert found or not matches(query, data.encode())
