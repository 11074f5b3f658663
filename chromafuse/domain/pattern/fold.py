"""Which characters a search without regard to case takes for one another.

The classes are those of GNU grep, PCRE and the Rust ``regex`` crate taken together: wider than
each of them, never narrower. They cover the scripts whose classes no longer change; a letter of
another script has an unknown class, since the programs know different versions of Unicode.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

ANYTHING = "\n"
"""Stands in prepared text for a place about which nothing is known: no line has a newline."""

# Members that a character's own upper() and lower() do not lead to.
_ODD_CLASSES = (
    "Ii\u0130\u0131",
    "Kk\u212a",
    "Ss\u017f",
    "\u00b5\u039c\u03bc",
    "\u00c5\u00e5\u212b",
    "\u00df\u1e9e",
    "\u0345\u0399\u03b9\u1fbe",
    "\u0390\u1fd3",
    "\u0392\u03b2\u03d0",
    "\u0395\u03b5\u03f5",
    "\u0398\u03b8\u03d1\u03f4",
    "\u039a\u03ba\u03f0",
    "\u03a0\u03c0\u03d6",
    "\u03a1\u03c1\u03f1",
    "\u03a3\u03c2\u03c3",
    "\u03a6\u03c6\u03d5",
    "\u03a9\u03c9\u2126",
    "\u03b0\u1fe3",
    "\u0412\u0432\u1c80",
    "\u0414\u0434\u1c81",
    "\u041e\u043e\u1c82",
    "\u0421\u0441\u1c83",
    "\u0422\u0442\u1c84\u1c85",
    "\u042a\u044a\u1c86",
    "\u0462\u0463\u1c87",
)
_ODD = {member: members for members in _ODD_CLASSES for member in members}

# Latin, Greek, Cyrillic: with case. The rest: without, and none will ever come.
_KNOWN = (
    (0x0000, 0x017F),
    (0x0370, 0x052F),
    (0x0590, 0x06FF),
    (0x0900, 0x0DFF),
    (0x0E00, 0x0E7F),
    (0x2000, 0x20CF),
    (0x2190, 0x245F),
    (0x2500, 0x2BFF),
    (0x3000, 0x30FF),
    (0x3400, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFF20),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x2FA1F),
)


class Fold(Enum):
    """How a search treats case: it matters, ASCII letters fold, or all letters fold."""

    NONE = "none"
    ASCII = "ASCII"
    UNICODE = "Unicode"


@lru_cache(maxsize=4096)
def fold_class(char: str, fold: Fold) -> str:
    """Return all characters that match ``char``, the usual small letter first.

    An empty string says that the class is not known.
    """
    if fold is Fold.NONE:
        return char
    if fold is Fold.ASCII or (char.isascii() and char not in _ODD):
        if not (char.isascii() and char.isalpha()):
            return char
        return char.lower() + char.upper()
    if char in _ODD:
        members = set(_ODD[char])
    elif any(low <= ord(char) <= high for low, high in _KNOWN):
        members = {char, *(c for c in (char.lower(), char.upper()) if len(c) == 1)}
    else:
        return ""
    ordered = sorted(members)
    first = next((c for c in ordered if c.islower() and c.upper().lower() == c), ordered[0])
    ordered.remove(first)
    return first + "".join(ordered)


@lru_cache(maxsize=4096)
def _prepared(char: str, fold: Fold) -> str:
    if char in "\n\0":
        return ANYTHING
    return fold_class(char, fold)[:1] or ANYTHING


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)} | {0: ANYTHING}


def prepare(text: str, fold: Fold) -> str:
    """Return ``text`` with each character as its class's first, and unknown ones ANYTHING."""
    if fold is Fold.NONE:
        return text.replace("\0", ANYTHING)
    if fold is Fold.ASCII or text.isascii():
        return text.translate(_ASCII_LOWER)
    return "".join(_prepared(char, fold) for char in text)
