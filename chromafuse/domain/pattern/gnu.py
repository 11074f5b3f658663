"""The command line of GNU grep, version 3.8 and later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from chromafuse.domain.pattern.builder import NotUnderstood
from chromafuse.domain.pattern.fold import Fold
from chromafuse.domain.pattern.options import Argument, Given, NotParsed, Option, Table, parse
from chromafuse.domain.pattern.patterns import Syntax, understand
from chromafuse.domain.pattern.search import Needs, Program, ReadFile, Search, everything

_SWITCHES = {
    "basic-regexp": "G",
    "extended-regexp": "E",
    "fixed-strings": "F",
    "perl-regexp": "P",
    "ignore-case": "iy",
    "no-ignore-case": "",
    "word-regexp": "w",
    "line-regexp": "x",
    "null-data": "z",
    "no-messages": "s",
    "invert-match": "v",
    "version": "V",
    "help": "",
    "byte-offset": "b",
    "line-number": "n",
    "line-buffered": "",
    "with-filename": "H",
    "no-filename": "h",
    "only-matching": "o",
    "quiet": "q",
    "text": "a",
    "binary-without-match": "I",
    "recursive": "r",
    "dereference-recursive": "R",
    "files-without-match": "L",
    "files-with-matches": "l",
    "count": "c",
    "initial-tab": "T",
    "null": "Z",
    "no-group-separator": "",
    "binary": "U",
    "unix-byte-offsets": "u",
    "context-digit": "0123456789",
}
_WITH_ARGUMENT = {
    "regexp": "e",
    "file": "f",
    "max-count": "m",
    "label": "",
    "binary-files": "",
    "directories": "d",
    "devices": "D",
    "include": "",
    "exclude": "",
    "exclude-from": "",
    "exclude-dir": "",
    "before-context": "B",
    "after-context": "A",
    "context": "C",
    "group-separator": "",
}
_OTHER_NAMES = {
    "silent": "quiet",
    "fixed-regexp": "fixed-strings",
}
_SHORT_ONLY = {"binary-without-match", "context-digit"}


def _table() -> Table:
    options = [Option(name) for name in _SWITCHES]
    options += [Option(name, Argument.REQUIRED) for name in _WITH_ARGUMENT]
    long = {option.name: option for option in options}
    letters = _SWITCHES | _WITH_ARGUMENT
    short = {letter: long[name] for name in long for letter in letters[name]}
    long |= {other: long[name] for other, name in _OTHER_NAMES.items()}
    long["color"] = long["colour"] = Option("color", Argument.OPTIONAL)
    for name in _SHORT_ONLY:
        del long[name]
    return Table(MappingProxyType(short), MappingProxyType(long), abbreviated=True)


TABLE = _table()

_SYNTAXES = {
    "basic-regexp": Syntax.BASIC,
    "extended-regexp": Syntax.EXTENDED,
    "fixed-strings": Syntax.FIXED,
    "perl-regexp": Syntax.PCRE,
}
_PROGRAM_OPTION = {
    Program.EGREP: "extended-regexp",
    Program.FGREP: "fixed-strings",
    Program.RGREP: "recursive",
}
_UTF8_CODESETS = {"utf-8", "utf8"}


def analyse_grep(
    program: Program, argv: Sequence[bytes], environ: Mapping[bytes, bytes], read_file: ReadFile
) -> Search:
    """Return what a call of ``program``, which is not RG, searches.

    ``argv`` are the words behind its name. Raises NotParsed.
    """
    parsed = parse(argv, TABLE, operands_last=b"POSIXLY_CORRECT" in environ)
    options, operands = parsed.options, parsed.operands
    if program in _PROGRAM_OPTION:
        options = (Given(_PROGRAM_OPTION[program]), *options)
    given = {option.name for option in options}
    recursive = _recursive(options)
    explicit = bool(given & {"regexp", "file"})
    if not explicit and not operands:
        raise NotParsed("there is no pattern")
    files = operands if explicit else operands[1:]

    def all_files(reason: str) -> Search:
        return everything(reason, recursive=recursive, operands=files)

    if environ.get(b"GREP_OPTIONS"):
        return all_files("GREP_OPTIONS is set")
    for name in ("help", "version", "invert-match", "null-data"):
        if name in given:
            return all_files(f"--{name} is given")
    try:
        fold, multibyte = _characters(options, environ)
        patterns = _patterns(options, read_file) if explicit else operands[0].split(b"\n")
        query = understand(patterns, _syntax(options), fold, multibyte=multibyte)
    except NotUnderstood as error:
        return all_files(str(error))
    needs = _needs(options)
    reason = "only files with text that the pattern needs can match"
    if needs is Needs.NAMES:
        reason += ", but every file is named"
    return Search(recursive, files, needs, query, reason)


def _recursive(options: Sequence[Given]) -> bool:
    """Say whether directories are searched: the last word on them counts."""
    recursive = False
    for option in options:
        if option.name in {"recursive", "dereference-recursive"}:
            recursive = True
        elif option.name == "directories":
            value = (option.value or b"").decode("latin-1")
            meant = [name for name in ("read", "recurse", "skip") if name.startswith(value)]
            if value not in meant and len(meant) != 1:
                raise NotParsed("--directories has no such action")
            recursive = meant == ["recurse"]
    return recursive


def _syntax(options: Sequence[Given]) -> Syntax:
    named = [_SYNTAXES[option.name] for option in options if option.name in _SYNTAXES]
    return named[-1] if named else Syntax.BASIC


def _characters(options: Sequence[Given], environ: Mapping[bytes, bytes]) -> tuple[Fold, bool]:
    """Return how letters fold, and whether characters are UTF-8 and not single bytes.

    Raises NotUnderstood for a locale that is neither. A locale that is not installed is C, for
    which everything that holds in UTF-8 holds too.
    """
    variables = (environ.get(name) for name in (b"LC_ALL", b"LC_CTYPE", b"LANG"))
    locale = next(filter(None, variables), b"C").decode("latin-1")
    codeset = locale.partition(".")[2].partition("@")[0].lower()
    multibyte = codeset in _UTF8_CODESETS
    if not multibyte and locale not in {"C", "POSIX"}:
        raise NotUnderstood("the locale is neither C nor one with UTF-8")
    folding = False
    for option in options:
        if option.name == "ignore-case":
            folding = True
        elif option.name == "no-ignore-case":
            folding = False
    if not folding:
        return Fold.NONE, multibyte
    return (Fold.UNICODE if multibyte else Fold.ASCII), multibyte


def _patterns(options: Sequence[Given], read_file: ReadFile) -> list[bytes]:
    patterns: list[bytes] = []
    for option in options:
        if option.name == "regexp":
            patterns += (option.value or b"").split(b"\n")
        elif option.name == "file":
            content = content_of(option.value or b"", read_file)
            if content:
                patterns += content.removesuffix(b"\n").split(b"\n")
    return patterns


def content_of(path: bytes, read_file: ReadFile) -> bytes:
    """Return the content of a file of patterns.

    Raises NotUnderstood if it is a stream, or if ``read_file`` gives nothing.
    """
    if path == b"-" or path.startswith((b"/dev/", b"/proc/")):
        raise NotUnderstood("the patterns come from a stream")
    content = read_file(path)
    if content is None:
        raise NotUnderstood("the file of patterns is not readable")
    return content


def _needs(options: Sequence[Given]) -> Needs:
    given = {option.name for option in options}
    if "quiet" in given:
        return Needs.CANDIDATES
    listings = [
        option.name
        for option in options
        if option.name in {"files-with-matches", "files-without-match"}
    ]
    if listings:
        return Needs.CANDIDATES if listings[-1] == "files-with-matches" else Needs.NAMES
    return Needs.NAMES if "count" in given else Needs.CANDIDATES
