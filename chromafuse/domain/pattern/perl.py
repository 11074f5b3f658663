"""The part of PCRE and of the Rust ``regex`` syntax that is understood for certain."""

from __future__ import annotations

import re
from typing import NamedTuple

from chromafuse.domain.pattern.builder import (
    MAX_PATTERN,
    Builder,
    NotUnderstood,
    Prepare,
    bounds,
)
from chromafuse.domain.pattern.span import ANY, EMPTY, Span

_ORDINARY = re.compile(r"[^\\\[*.^$(){}|+?]+")
_INTERVAL = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
# Some versions read these as intervals, others as ordinary characters.
_DOUBTFUL_INTERVAL = re.compile(r"\{[0-9,\s]*\}")
_HEX = re.compile(r"x(?:\{[^}]{0,16}\}|[0-9A-Fa-f]{0,2})")
_DIGITS = re.compile(r"[0-9]+")
_PROPERTY = re.compile(r"[pP](?:\{\^?[A-Za-z0-9_&=: -]{0,64}\}|[A-Za-z])")
_OPERATION = re.compile(r"&&|--|~~")
_POSIX_CLASS = re.compile(r"\[:\^?[a-z]+:\]")
_REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Dialect(NamedTuple):
    """What differs: letters escaped as anchors and as one character, beginnings of groups."""

    anchors: str
    classes: str
    group: re.Pattern[str]
    assertion: re.Pattern[str] | None
    possessive: bool


_NAMED = r"P?<[A-Za-z_][A-Za-z0-9_]*>"
PCRE = Dialect(
    anchors="bBAzZGK",
    classes="dDwWsShHvVRNXaefrn",
    group=re.compile(rf"\((?:\?(?::|>|\||{_NAMED}|'[A-Za-z_][A-Za-z0-9_]*')|(?![?*]))"),
    assertion=re.compile(r"\(\?<?[=!]"),
    possessive=True,
)
RUST = Dialect(
    anchors="bBAz<>",
    classes="dDwWsSvafrn",
    group=re.compile(rf"\((?:\?(?::|{_NAMED})|(?![?*]))"),
    assertion=None,
    possessive=False,
)


def parse(pattern: str, dialect: Dialect, prepare: Prepare) -> Span:
    """Return what matches of ``pattern`` look like.

    Raises NotUnderstood.
    """
    if len(pattern) > MAX_PATTERN:
        raise NotUnderstood("a very long pattern")
    builder = Builder()
    at, end = 0, len(pattern)
    while at < end:
        if run := _ORDINARY.match(pattern, at):
            builder.text(prepare(run[0]))
            at = run.end()
            continue
        char = pattern[at]
        if char == "\\":
            at = _escape(builder, pattern, at + 1, dialect)
        elif char in "*+?{":
            at = _repeat(builder, pattern, at, dialect)
        elif char == "[":
            at = _bracket(builder, pattern, at, dialect, prepare)
        elif char == "(":
            at = _group(builder, pattern, at, dialect)
        else:
            _single(builder, char)
            at += 1
    return builder.result()


def _single(builder: Builder, char: str) -> None:
    if char == ")":
        builder.close()
    elif char == "|":
        builder.alternative()
    elif char == ".":
        builder.atom(ANY)
    elif char == "}":
        builder.text(char)
    else:
        builder.atom(EMPTY)


def _group(builder: Builder, pattern: str, at: int, dialect: Dialect) -> int:
    if dialect.assertion and (found := dialect.assertion.match(pattern, at)):
        builder.open(assertion=True)
        return found.end()
    if found := dialect.group.match(pattern, at):
        builder.open()
        return found.end()
    raise NotUnderstood(f"a group that begins with {pattern[at : at + 3]}")


def _repeat(builder: Builder, pattern: str, at: int, dialect: Dialect) -> int:
    if pattern[at] != "{":
        builder.repeat(*_REPEATS[pattern[at]])
        at += 1
    elif found := _INTERVAL.match(pattern, at):
        least, most = bounds(found[1], found[2], found[3])
        builder.repeat(least, most)
        at = found.end()
    elif found := _DOUBTFUL_INTERVAL.match(pattern, at):
        builder.forget_last()
        at = found.end()
    else:
        builder.text("{")
        return at + 1
    lazy = "?+" if dialect.possessive else "?"
    return at + 1 if at < len(pattern) and pattern[at] in lazy else at


def _escape(builder: Builder, pattern: str, at: int, dialect: Dialect) -> int:
    """Read what follows a backslash and return where reading goes on."""
    char = pattern[at : at + 1]
    after = pattern[at + 1 : at + 2]
    if after == "{" and char in {"b", "B", "N"}:
        raise NotUnderstood(f"\\{char}{{")
    if char and char in dialect.anchors:
        builder.atom(EMPTY)
    elif char and char in dialect.classes:
        builder.atom(ANY)
    elif char == "t":
        builder.text("\t")
    elif char and char.isascii() and char.isprintable() and not char.isalnum():
        builder.text(char)
    else:
        for wider in (_HEX, _DIGITS, _PROPERTY):
            if found := wider.match(pattern, at):
                builder.atom(ANY)
                return found.end()
        raise NotUnderstood(f"\\{char}")
    return at + 1


def _bracket(builder: Builder, pattern: str, at: int, dialect: Dialect, prepare: Prepare) -> int:
    """Read the bracket expression at ``at`` and return where reading goes on."""
    first = at = at + 1 + pattern.startswith("^", at + 1)
    chars = ""
    special = pattern[first - 1] == "^"
    while at < len(pattern) and (at == first or pattern[at] != "]"):
        char, after = _member(pattern, at, dialect)
        special = special or char is None
        chars += char or ""
        at = after
    if at >= len(pattern):
        raise NotUnderstood("an unmatched [")
    if not dialect.possessive and _OPERATION.search(pattern, first, at):
        raise NotUnderstood("an operation on bracket expressions")
    if special:
        builder.atom(ANY)
    else:
        builder.members(prepare(chars))
    return at + 1


def _member(pattern: str, at: int, dialect: Dialect) -> tuple[str | None, int]:
    """Read one member of a bracket expression: the character, or None if it is more."""
    char = pattern[at]
    if char == "\\":
        char = pattern[at + 1 : at + 2]
        if not char or char in "cQENoguU":
            raise NotUnderstood(f"[\\{char}")
        return (char if char.isascii() and not char.isalnum() else None), at + 2
    if char == "[":
        if found := _POSIX_CLASS.match(pattern, at):
            return None, found.end()
        if not dialect.possessive or pattern[at + 1 : at + 2] in {":", ".", "="}:
            raise NotUnderstood("a bracket expression in another")
    elif char == "-" or not char.isascii():
        return None, at + 1
    return char, at + 1
