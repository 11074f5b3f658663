"""What an ingest tells its user about files: left out, lost, or taken with a warning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Omission:
    """A path that does not become a page.

    ``path`` is printable, ``reason`` a short sentence for a person. ``lost`` is true if the user
    gave the file and it cannot be stored exactly, false if a rule leaves it out.
    """

    path: str
    reason: str
    lost: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know of a path that is taken; ``path`` is printable."""

    path: str
    text: str


def printable(name: str) -> str:
    r"""Return ``name`` on one line: undecodable bytes as ``\xNN``, controls as ``\uNNNN``.

    A backslash is doubled, so that two names never look the same because of the escapes.
    """
    return "".join(_printable_char(char) for char in name)


def _printable_char(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if char == "\\":
        return "\\\\"
    if char.isprintable():
        return char
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
