"""Bounds on the work that a pattern makes, and the classes of letters that fold."""

from __future__ import annotations

import pytest

from chromafuse.domain.pattern import (
    ALL,
    Fold,
    Or,
    Program,
    Query,
    analyse,
    fold_class,
    matches,
)


def query(*words: str) -> Query:
    argv = [b"-r", *(word.encode() for word in words)]
    return analyse(Program.GREP, argv, {b"LC_ALL": b"C.UTF-8"}, lambda _path: None).query


@pytest.mark.parametrize(
    "words",
    [
        ["-E", "|".join(f"word{number}" for number in range(400))],
        ["-E", "(" * 49 + "ab*" + "){30}" * 49],
        ["-E", "((((a{30}){30}){30}){30}){30}b"],
        ["-E", "[abcde]" * 500],
        ["-E", "(a|b)+" * 600],
        ["-E", "([abcde][xyz]+|foo.*)" * 190],
        ["-P", "{" + " " * 4000],
        ["-P", "\\x{" * 1300],
        ["-E", "a{9999999999}" * 300],
        ["-E", "a{" + "9" * 4000 + "}"],
        ["[[:" * 1300],
        ["-F", "\n".join(f"{number}word" for number in range(900))],
        ["-E", "x" * 130_000],
    ],
)
def test_hostile_patterns_are_little_work(words: list[str]) -> None:
    """Each of these takes milliseconds, and one that explodes runs into the test's timeout."""
    assert len(repr(query(*words))) < 100_000


def test_too_many_patterns_are_not_analysed() -> None:
    assert query("-E", "\n".join(["foo"] * 2_000)) == ALL
    assert query("-E", "\n".join("foo" * 50 + str(number) for number in range(200))) == ALL
    assert query("-F", "\n".join("foo" * 50 + str(number) for number in range(200))) != ALL


def test_many_words_with_common_beginnings_are_shortened() -> None:
    found = query("-F", "\n".join(f"prefix{number % 10}_{number}" for number in range(900)))
    assert isinstance(found, Or)
    assert len(found.parts) <= 64
    assert matches(found, b"xprefix7_117")


def test_fold_classes_agree_with_unicode() -> None:
    """Whatever Python takes for a case pair is in one class, or the class is not known."""
    for code in range(0x110000):
        char = chr(code)
        for other in {char.upper(), char.lower(), char.casefold(), char.title()}:
            if len(other) != 1:
                continue
            for one, two in ((char, other), (other, char)):
                members = fold_class(one, Fold.UNICODE)
                assert not members or two in members, (hex(ord(one)), hex(ord(two)))


def test_fold_classes_are_the_same_for_all_members() -> None:
    for code in range(0x2000):
        members = fold_class(chr(code), Fold.UNICODE)
        for member in members:
            other = fold_class(member, Fold.UNICODE)
            assert not other or other == members, hex(code)
