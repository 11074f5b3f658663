"""What a search command asks for: the result types of the argument parsers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from chromafuse.domain.pattern.query import ALL, Query

ReadFile = Callable[[bytes], bytes | None]
"""Gives the content of a file of patterns, or None: it is not to be read here."""


class Program(Enum):
    """A search program, by its name."""

    GREP = "grep"
    EGREP = "egrep"
    FGREP = "fgrep"
    RGREP = "rgrep"
    RG = "rg"


class Needs(Enum):
    """Which files of the directories searched a command must find to give its full answer."""

    CANDIDATES = "candidates"
    """Those that satisfy the query."""
    NAMES = "names"
    """All must be listed, but only the content of candidates bears on the answer.

    GNU grep with standard output on ``/dev/null`` needs CANDIDATES only.
    """
    EVERYTHING = "everything"
    """All, with their content."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a command line searches, and for what.

    ``recursive``: directories among the operands are searched, so files are found by listing.
    ``operands``: the files and directories named, as given; if there are none, the working
    directory is searched if ``recursive``, else standard input. ``query`` is ALL unless
    ``needs`` is CANDIDATES or NAMES. ``reason`` says in a few words why, for people.

    ripgrep, given no operand, complains if it finds no file at all to search.
    """

    recursive: bool
    operands: tuple[bytes, ...]
    needs: Needs
    query: Query
    reason: str


def everything(reason: str, *, recursive: bool = True, operands: tuple[bytes, ...] = ()) -> Search:
    """Return the search that needs every file."""
    return Search(recursive, operands, Needs.EVERYTHING, ALL, reason)
