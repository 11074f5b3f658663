"""Splits a command line into options and operands, as getopt_long and ripgrep do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class Argument(Enum):
    """Whether an option takes an argument."""

    NO = "no"
    OPTIONAL = "optional"
    REQUIRED = "required"


class NotParsed(Exception):
    """The command line is wrong, or may be read in more than one way."""


class Option(NamedTuple):
    """An option by its one name here, whatever spelling was used."""

    name: str
    argument: Argument = Argument.NO


class Given(NamedTuple):
    """An option as given. ``value`` is its argument, ``separate`` if it is a word of its own."""

    name: str
    value: bytes | None = None
    short: bool = False
    separate: bool = False


class Table(NamedTuple):
    """The options of one program; ``long`` has the names without ``--``.

    ``abbreviated``: the beginning of a long name stands for it if it is unambiguous.
    """

    short: Mapping[str, Option]
    long: Mapping[str, Option]
    abbreviated: bool


class Parsed(NamedTuple):
    """Options in order and operands in order."""

    options: tuple[Given, ...]
    operands: tuple[bytes, ...]


def parse(argv: Sequence[bytes], table: Table, *, operands_last: bool = False) -> Parsed:
    """Parse the words of a command line behind the program's name.

    ``operands_last``: the first operand ends the options. Raises NotParsed.
    """
    options: list[Given] = []
    operands: list[bytes] = []
    rest = iter(argv)
    for word in rest:
        if word == b"--":
            operands += rest
        elif word.startswith(b"--"):
            options.append(_long(word[2:].decode("latin-1"), rest, table))
        elif word.startswith(b"-") and word != b"-":
            options += _cluster(word[1:].decode("latin-1"), rest, table)
        else:
            operands.append(word)
            if operands_last:
                operands += rest
    return Parsed(tuple(options), tuple(operands))


def _long(word: str, rest: Iterator[bytes], table: Table) -> Given:
    name, equals, attached = word.partition("=")
    option = table.long.get(name)
    if option is None and table.abbreviated:
        meant = {found for full, found in table.long.items() if full.startswith(name)}
        option = meant.pop() if len(meant) == 1 else None
    if option is None:
        raise NotParsed(f"the option --{_shown(name)} is not known")
    if equals:
        if option.argument is Argument.NO:
            raise NotParsed(f"--{option.name} takes no argument")
        return Given(option.name, attached.encode("latin-1"))
    if option.argument is not Argument.REQUIRED:
        return Given(option.name)
    return Given(option.name, _next(option, rest), separate=True)


def _cluster(word: str, rest: Iterator[bytes], table: Table) -> Iterator[Given]:
    for at, letter in enumerate(word, start=1):
        option = table.short.get(letter)
        if option is None:
            raise NotParsed(f"the option -{_shown(letter)} is not known")
        if option.argument is Argument.NO:
            yield Given(option.name, short=True)
            continue
        if attached := word[at:]:
            yield Given(option.name, attached.encode("latin-1"), short=True)
        else:
            yield Given(option.name, _next(option, rest), short=True, separate=True)
        return


def _next(option: Option, rest: Iterator[bytes]) -> bytes:
    value = next(rest, None)
    if value is None:
        raise NotParsed(f"--{option.name} lacks its argument")
    return value


def _shown(name: str) -> str:
    return ascii(name[:40])[1:-1]
