"""A grammar of nasty patterns, each with samples of what it matches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chromafuse.domain.pattern import Program

Sample = Callable[[], str]
"""Gives a text that the part of a pattern matches, most of the time."""

WORDS = ("foo", "bar", "use", "Chat", "stream", "Key", "isk", "ab", "x", "_hval", "STRASSE")
LETTERS = "abckisKSIxz019_"
ODD_LETTERS = (
    "\u00e9\u00c9\u00df\u1e9e\u017f\u212a\u00c5\u00e5\u212b\u0131\u0130\u03c3\u03c2\u03a3"
    "\u03bc\u00b5\u039c\u0436\u0416\u65e5\u01c6\u01c5\u0259\u019b\u03a9\u2126\u0345\u03b9\u03b8\u03d1\u1c80\u0432"
)
PLAIN = "-/ #'\",:;=@%&!~<>"
META = "\\[]*.^$(){}|+?"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the operators of a dialect are written, and the options that choose it."""

    program: Program
    options: tuple[str, ...]
    groups: tuple[str, ...]
    close: str
    bar: str
    quantifiers: tuple[str, ...]
    interval: tuple[str, str]
    atoms: tuple[str, ...]
    anchors: tuple[str, ...]
    quoted: str
    backreferences: bool


_PERL_INTERVAL = ("{", "}")
_BASIC = Dialect(
    Program.GREP,
    (),
    ("\\(",),
    "\\)",
    "\\|",
    ("*", "\\+", "\\?"),
    ("\\{", "\\}"),
    (".", "\\w", "\\W", "\\s", "\\S", "[^x]", "[[:alpha:]]", "[a-z]", "[]x]", "[^]a-]", "[[.a.]]"),
    ("^", "$", "\\b", "\\B", "\\<", "\\>", "\\`", "\\'"),
    "\\[*.^$",
    True,
)
_EXTENDED = Dialect(
    Program.GREP,
    ("-E",),
    ("(",),
    ")",
    "|",
    ("*", "+", "?"),
    _PERL_INTERVAL,
    _BASIC.atoms,
    _BASIC.anchors,
    META,
    True,
)
_PCRE = Dialect(
    Program.GREP,
    ("-P",),
    ("(", "(?:", "(?>", "(?<n>", "(?=", "(?!", "(?<=", "(?<!", "(?|", "(?i)", "(?i:", "(?#"),
    ")",
    "|",
    ("*", "+", "?", "*?", "+?", "??", "*+", "++", "?+"),
    _PERL_INTERVAL,
    (
        *(".", "\\w", "\\W", "\\s", "\\S", "\\d", "\\D", "\\h", "\\R", "\\N", "\\X", "[^x]"),
        *("[[:alpha:]]", "[a-z]", "[]x]", "[\\w.]", "[\\]k]", "\\x41", "\\t", "\\pL", "\\101"),
        *("\\Qa.b\\E", "\\x{73}", "\\p{Lu}", "\\cA", "\\e"),
    ),
    ("^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\G", "\\K"),
    META,
    True,
)
_FIXED = Dialect(Program.GREP, ("-F",), (), "", "", (), ("", ""), (), (), "", False)
_RUST = Dialect(
    Program.RG,
    (),
    ("(", "(?:", "(?P<n>", "(?i)", "(?i:", "(?s)", "(?-u)"),
    ")",
    "|",
    ("*", "+", "?", "*?", "+?", "??", "**"),
    _PERL_INTERVAL,
    (
        *(".", "\\w", "\\W", "\\s", "\\S", "\\d", "\\D", "[^x]", "[[:alpha:]]", "[a-z]", "[]x]"),
        *("[\\w.]", "[\\]k]", "\\x41", "\\t", "\\pL", "[a-z&&[^x]]", "[a--b]", "[a[bk]]"),
        *("\\x{73}", "\\p{Lu}", "\\u{6B}", "[\\x41s]"),
    ),
    ("^", "$", "\\b", "\\B", "\\A", "\\z"),
    META,
    False,
)
_RG_FIXED = Dialect(Program.RG, ("-F",), (), "", "", (), ("", ""), (), (), "", False)
_RG_PCRE = Dialect(
    Program.RG,
    ("-P",),
    _PCRE.groups,
    ")",
    "|",
    _PCRE.quantifiers,
    _PERL_INTERVAL,
    _PCRE.atoms,
    _PCRE.anchors,
    META,
    True,
)
DIALECTS = (
    *(_BASIC, _BASIC, _EXTENDED, _EXTENDED, _PCRE, _PCRE, _FIXED),
    *(_RUST, _RUST, _RG_FIXED, _RG_PCRE),
)


class Grammar:
    """Makes patterns of one dialect, each with samples of what it matches."""

    def __init__(self, rng: random.Random, dialect: Dialect) -> None:
        self._rng = rng
        self._dialect = dialect
        self._groups: list[Sample | None] = []

    def pattern(self) -> tuple[str, Sample]:
        """Return a pattern and its sampler."""
        self._groups = []
        pattern, sample = self._alternation(self._rng.choice((0, 1, 1, 2, 2, 3)))
        if self._dialect.bar in pattern or self._rng.random() < 0.4:
            return pattern, sample
        # Most patterns that people write have some ordinary text.
        text, _ = self._literal()
        return (text + pattern, lambda: text + sample())

    def _alternation(self, depth: int) -> tuple[str, Sample]:
        count = self._rng.choice((1, 1, 1, 2, 3)) if self._dialect.bar and depth else 1
        parts = [self._sequence(depth) for _ in range(count)]
        samples = [sample for _, sample in parts]
        return (
            self._dialect.bar.join(pattern for pattern, _ in parts),
            lambda: self._one_of(samples),
        )

    def _one_of(self, samples: Sequence[Sample]) -> str:
        return self._rng.choice(samples)()

    def _sequence(self, depth: int) -> tuple[str, Sample]:
        length = self._rng.choice((0, 1, 1, 2, 2, 3, 4) if depth else (1, 1, 2, 3))
        parts = [self._quantified(depth) for _ in range(length)]
        samples = [sample for _, sample in parts]
        return (
            "".join(pattern for pattern, _ in parts),
            lambda: "".join(sample() for sample in samples),
        )

    def _quantified(self, depth: int) -> tuple[str, Sample]:
        pattern, sample = self._atom(depth)
        if not self._dialect.quantifiers or self._rng.random() < 0.65:
            return pattern, sample
        least, most, operator = self._quantifier()
        if self._rng.random() < 0.04:
            operator += self._quantifier()[2]
        rng = self._rng
        return pattern + operator, lambda: "".join(
            sample() for _ in range(rng.randint(least, min(most, least + 2)))
        )

    def _quantifier(self) -> tuple[int, int, str]:
        if self._rng.random() < 0.6:
            operator = self._rng.choice(self._dialect.quantifiers)
            least = 1 if "+" in operator[:2] and not operator.startswith(("*", "?")) else 0
            return least, 1 if operator.startswith(("?", "\\?")) else 9, operator
        opening, closing = self._dialect.interval
        least, more = self._rng.choice((0, 1, 2, 3)), self._rng.choice((0, 1, 2))
        inner = self._rng.choice((f"{least}", f"{least},", f"{least},{least + more}"))
        if self._rng.random() < 0.1:
            inner = self._rng.choice((f",{least + more}", ",", "", "x", "2,1", " 1 , 2 "))
        most = {f"{least}": least, f"{least},": 9}.get(inner, least + more)
        return least, most, opening + inner + closing

    def _atom(self, depth: int) -> tuple[str, Sample]:
        rng, dialect = self._rng, self._dialect
        kind = rng.random()
        if depth and dialect.groups and kind < 0.28:
            return self._group(depth - 1)
        if dialect.atoms and kind < 0.42:
            return rng.choice(dialect.atoms), lambda: rng.choice("axks A9_.-é]\t")
        if dialect.anchors and kind < 0.49:
            return rng.choice(dialect.anchors), lambda: rng.choice(("", "", " "))
        if dialect.atoms and kind < 0.56:
            return self._class()
        if dialect.backreferences and self._groups and kind < 0.62:
            number = rng.randrange(len(self._groups))
            earlier = self._groups[number]
            if earlier is not None or rng.random() < 0.1:
                return f"\\{number + 1}", earlier or (lambda: "a")
        if dialect.quoted and kind < 0.67:
            char = rng.choice(dialect.quoted if rng.random() < 0.8 else META + PLAIN + "dnté")
            return "\\" + char, lambda: char
        return self._literal()

    def _group(self, depth: int) -> tuple[str, Sample]:
        plain = self._rng.random() < 0.4
        opening = self._dialect.groups[0] if plain else self._rng.choice(self._dialect.groups)
        number = len(self._groups)
        capturing = opening in {"(", "\\(", "(?<n>", "(?P<n>"}
        if capturing:
            self._groups.append(None)
        pattern, sample = self._alternation(depth)
        if capturing:
            last = sample()
            sample = lambda: last  # noqa: E731
            self._groups[number] = sample
        silent = opening in {"(?=", "(?!", "(?<=", "(?<!", "(?#"}
        closing = "" if opening == "(?i)" else self._dialect.close
        return opening + pattern + closing, (lambda: "") if silent else sample

    def _class(self) -> tuple[str, Sample]:
        rng = self._rng
        chars = [rng.choice(LETTERS + ODD_LETTERS[:6] + ".*$") for _ in range(rng.randint(1, 4))]
        body = "".join(chars)
        if rng.random() < 0.15:
            body += rng.choice(("-", "-z", "^", "[", "\\n", "\\\\", "&&", "]"))
        return f"[{body}]", lambda: rng.choice(chars)

    def _literal(self) -> tuple[str, Sample]:
        rng = self._rng
        kind = rng.random()
        if kind < 0.35:
            text = rng.choice(WORDS)
        elif kind < 0.75:
            text = rng.choice(LETTERS)
        elif kind < 0.87:
            text = rng.choice(ODD_LETTERS)
        else:
            text = rng.choice(PLAIN)
        return text, lambda: text


def damaged(rng: random.Random, pattern: str) -> str:
    """Return the pattern with a character or two put in, taken out or doubled."""
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randint(0, len(pattern))
        kind = rng.random()
        if kind < 0.5:
            extra = rng.choice((*META, *META, "\\", "{1", "{,2}", "{2,1}", "(?", "[:", "é", "\n"))
            pattern = pattern[:at] + extra + pattern[at:]
        elif kind < 0.8:
            pattern = pattern[:at] + pattern[at + 1 :]
        else:
            pattern = pattern[:at] + pattern[max(0, at - 2) : at] + pattern[at:]
    return pattern


_SWAPS = {
    "s": "S\u017f",
    "S": "s\u017f",
    "k": "K\u212a",
    "K": "k\u212a",
    "i": "I\u0131\u0130",
    "I": "i\u0131\u0130",
    "\u00df": "\u1e9e",
    "\u03c3": "\u03c2\u03a3",
    "\u00b5": "\u03bc\u039c",
    "\u00e5": "\u00c5\u212b",
}


def swapped(rng: random.Random, text: str) -> str:
    """Return the text with some letters in another case."""
    return "".join(
        rng.choice(_SWAPS.get(char, char.swapcase())) if rng.random() < 0.5 else char
        for char in text
    )
