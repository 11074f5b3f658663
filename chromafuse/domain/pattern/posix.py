"""Basic and extended regular expressions, as GNU grep reads them."""

from __future__ import annotations

import re

from chromafuse.domain.pattern.builder import (
    MAX_PATTERN,
    Builder,
    NotUnderstood,
    Prepare,
    bounds,
)
from chromafuse.domain.pattern.span import ANY, EMPTY, Span, one_of

_ORDINARY = {
    False: re.compile(r"[^\\\[*.^$]+"),
    True: re.compile(r"[^\\\[*.^$(){}|+?]+"),
}
_INTERVAL = {
    False: re.compile(r"([0-9]*)(,?)([0-9]*)\\\}"),
    True: re.compile(r"([0-9]*)(,?)([0-9]*)\}"),
}
_OPERATORS = {
    False: {"\\(": "(", "\\)": ")", "\\|": "|", "\\{": "{", "\\+": "+", "\\?": "?", "*": "*"},
    True: {"(": "(", ")": ")", "|": "|", "{": "{", "+": "+", "?": "?", "*": "*"},
}
_REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(pattern: str, *, extended: bool, prepare: Prepare) -> Span:
    """Return what matches of ``pattern``, one line of it, look like.

    Raises NotUnderstood.
    """
    if len(pattern) > MAX_PATTERN:
        raise NotUnderstood("a very long pattern")
    builder = Builder()
    ordinary, operators = _ORDINARY[extended], _OPERATORS[extended]
    at, end = 0, len(pattern)
    while at < end:
        if run := ordinary.match(pattern, at):
            builder.text(prepare(run[0]))
            at = run.end()
            continue
        lexeme = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(lexeme)
        operator = operators.get(lexeme)
        if operator == "{":
            at = _interval(builder, pattern, at, extended)
        elif operator is not None:
            _operate(builder, operator)
        elif lexeme == "[":
            at = _bracket(builder, pattern, at - 1, prepare)
        else:
            _single(builder, lexeme, at == end, prepare)
    return builder.result()


def _operate(builder: Builder, operator: str) -> None:
    if operator == "(":
        builder.open()
    elif operator == ")":
        builder.close()
    elif operator == "|":
        builder.alternative()
    else:
        # At the start of a basic expression these are ordinary characters: ANY covers both.
        builder.repeat(*_REPEATS[operator])


def _interval(builder: Builder, pattern: str, at: int, extended: bool) -> int:
    """Read what follows ``{`` and return where reading goes on."""
    found = _INTERVAL[extended].match(pattern, at)
    if found and (found[1] or found[2]):
        least, most = bounds(found[1], found[2] or None, found[3])
        if most is not None and most < least:
            builder.forget_last()
        else:
            builder.repeat(least, most)
        return found.end()
    if not extended:
        raise NotUnderstood("a malformed \\{")
    if pattern[at : at + 1].isdecimal() or pattern[at : at + 1] == ",":
        builder.forget_last()
    else:
        builder.text("{")
    return at


def _single(builder: Builder, lexeme: str, last: bool, prepare: Prepare) -> None:
    if lexeme == ".":
        builder.atom(ANY)
    elif lexeme in {"^", "$"}:
        # Elsewhere they are ordinary characters in one dialect and anchors in the other.
        anchor = builder.at_start if lexeme == "^" else last
        builder.atom(EMPTY if anchor else one_of({"", lexeme}))
    elif len(lexeme) == 1:
        if lexeme == "\\":
            raise NotUnderstood("a trailing backslash")
        builder.text(prepare(lexeme))
    else:
        _escape(builder, lexeme[1])


def _escape(builder: Builder, char: str) -> None:
    if char in "bB<>`'":
        builder.atom(EMPTY)
    elif char.isascii() and char.isalnum():
        # A class, a back-reference, or a stray backslash, whose meaning may change.
        builder.atom(ANY)
    elif char.isascii() and char.isprintable():
        builder.text(char)
    else:
        raise NotUnderstood("a backslash before an odd character")


def _bracket(builder: Builder, pattern: str, at: int, prepare: Prepare) -> int:
    """Read the bracket expression at ``at`` and return where reading goes on."""
    first = at + 1 + pattern.startswith("^", at + 1)
    close = _bracket_end(pattern, first)
    body = pattern[first:close]
    special = (
        first > at + 1
        or not body.isascii()
        or "-" in body[1:-1]
        or any(opening in body for opening in ("[:", "[.", "[="))
    )
    if special:
        builder.atom(ANY)
    else:
        builder.members(prepare(body))
    return close + 1


def _bracket_end(pattern: str, first: int) -> int:
    at = first + pattern.startswith("]", first)
    while at < len(pattern):
        char = pattern[at]
        if char == "]":
            return at
        kind = pattern[at + 1 : at + 2]
        if char == "[" and kind and kind in ":.=":
            at = pattern.find(kind + "]", at + 2)
            if at < 0:
                break
            at += 1
        at += 1
    raise NotUnderstood("an unmatched [")
