"""The command line of ripgrep, versions 13 and 14."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from chromafuse.domain.pattern.builder import NotUnderstood
from chromafuse.domain.pattern.fold import Fold
from chromafuse.domain.pattern.gnu import content_of
from chromafuse.domain.pattern.options import Argument, Given, NotParsed, Option, Table, parse
from chromafuse.domain.pattern.patterns import Syntax, understand
from chromafuse.domain.pattern.search import Needs, ReadFile, Search, everything

_SWITCHES = """
auto-hybrid-regex no-auto-hybrid-regex binary no-binary block-buffered no-block-buffered
byte-offset=b no-byte-offset case-sensitive=s column no-column count=c count-matches crlf no-crlf
debug files files-with-matches=l files-without-match fixed-strings=F no-fixed-strings follow=L
no-follow glob-case-insensitive no-glob-case-insensitive heading no-heading help=h hidden=.
no-hidden ignore-case=i ignore-file-case-insensitive no-ignore-file-case-insensitive include-zero
no-include-zero invert-match=v no-invert-match json no-json line-buffered no-line-buffered
line-number=n no-line-number=N line-regexp=x max-columns-preview no-max-columns-preview mmap
no-mmap multiline=U no-multiline multiline-dotall no-multiline-dotall no-config no-filename=I
ignore no-ignore ignore-dot no-ignore-dot ignore-exclude no-ignore-exclude ignore-files
no-ignore-files ignore-global no-ignore-global ignore-messages no-ignore-messages ignore-parent
no-ignore-parent ignore-vcs no-ignore-vcs messages no-messages require-git no-require-git
pcre2-unicode no-pcre2-unicode unicode no-unicode null=0 null-data one-file-system
no-one-file-system only-matching=o passthru pcre2=P no-pcre2 pcre2-version pretty=p quiet=q
search-zip=z no-search-zip smart-case=S sort-files no-sort-files stats no-stats
stop-on-nonmatch text=a no-text trace trim no-trim type-list unrestricted=u version=V vimgrep
with-filename=H word-regexp=w no-context-separator no-encoding no-pre
"""
_WITH_ARGUMENT = """
after-context=A before-context=B color colors context=C context-separator dfa-size-limit
encoding=E engine field-context-separator field-match-separator file=f generate glob=g
hostname-bin hyperlink-format iglob ignore-file max-columns=M max-count=m max-depth=d
max-filesize path-separator pre pre-glob regex-size-limit regexp=e replace=r sort sortr
threads=j type=t type-add type-clear type-not=T
"""
_OTHER_NAMES = {"passthrough": "passthru", "maxdepth": "max-depth"}


def _table() -> Table:
    short: dict[str, Option] = {}
    long: dict[str, Option] = {}
    for words, argument in ((_SWITCHES, Argument.NO), (_WITH_ARGUMENT, Argument.REQUIRED)):
        for word in words.split():
            name, _, letter = word.partition("=")
            long[name] = Option(name, argument)
            if letter:
                short[letter] = long[name]
    long |= {other: long[name] for other, name in _OTHER_NAMES.items()}
    return Table(MappingProxyType(short), MappingProxyType(long), abbreviated=False)


TABLE = _table()

_NEED_EVERYTHING = (
    "debug",
    "files",
    "files-without-match",
    "generate",
    "help",
    "include-zero",
    "invert-match",
    "json",
    "null-data",
    "passthru",
    "pcre2-version",
    "pre",
    "search-zip",
    "stats",
    "trace",
    "type-list",
    "version",
)
"""What shows files without a match, counts them, or searches other bytes than the file's."""
_CHOOSING = {
    "glob",
    "iglob",
    "ignore-file",
    "max-depth",
    "max-filesize",
    "no-require-git",
    "type",
    "type-not",
    "type-add",
    "type-clear",
}
"""What may leave out every candidate but not every file."""
_CASES = {"ignore-case", "case-sensitive", "smart-case"}
_ENGINE_SWITCHES = {
    "pcre2": Syntax.PCRE,
    "no-pcre2": Syntax.RUST,
    "auto-hybrid-regex": Syntax.RUST_OR_PCRE,
    "no-auto-hybrid-regex": Syntax.RUST,
}
_ENGINES = {
    b"default": Syntax.RUST,
    b"pcre2": Syntax.PCRE,
    b"auto": Syntax.RUST_OR_PCRE,
}
_SURELY_UPPER = re.compile(rb"[\w /:;,'\"=@#%&!~<>-]*[A-Z][\w /:;,'\"=@#%&!~<>-]*", re.ASCII)


def analyse_ripgrep(
    argv: Sequence[bytes], environ: Mapping[bytes, bytes], read_file: ReadFile
) -> Search:
    """Return what a call of ``rg`` searches; ``argv`` are the words behind its name.

    Raises NotParsed.
    """
    parsed = parse(argv, TABLE)
    options, operands = parsed.options, parsed.operands
    _refuse_doubtful(options)
    given = {option.name for option in options}
    explicit = bool(given & {"regexp", "file", "files", "type-list"})
    if not explicit and not operands:
        raise NotParsed("there is no pattern")
    files = operands if explicit else operands[1:]
    if environ.get(b"RIPGREP_CONFIG_PATH") and "no-config" not in given:
        return everything("RIPGREP_CONFIG_PATH is set", operands=files)
    if not files and given & _CHOOSING:
        return everything("without operands, ripgrep tells when its filters leave no file")
    for name in _NEED_EVERYTHING:
        if name in given and not _negated(options, name):
            return everything(f"--{name} is given", operands=files)
    try:
        _refuse_encoding(options)
        patterns = _patterns(options, read_file) if explicit else [operands[0]]
        query = understand(patterns, _syntax(options), _fold(options, patterns))
    except NotUnderstood as error:
        return everything(str(error), operands=files)
    reason = "only files with text that the pattern needs can match"
    return Search(True, files, Needs.CANDIDATES, query, reason)


def _refuse_doubtful(options: Sequence[Given]) -> None:
    """Raise NotParsed for what versions of ripgrep read in different ways."""
    for option in options:
        value = option.value
        if value is None:
            continue
        if not option.separate and value.startswith(b"="):
            raise NotParsed(f"the value of --{option.name} begins with =")
        dashed = option.separate and value.startswith(b"-") and value != b"-"
        if dashed and (option.name != "regexp" or value == b"--"):
            raise NotParsed(f"the value of --{option.name} looks like an option")


def _negated(options: Sequence[Given], name: str) -> bool:
    """Say whether the last word on the option ``name`` is its negation."""
    words = [option.name for option in options if option.name in {name, f"no-{name}"}]
    return words[-1] != name


def _refuse_encoding(options: Sequence[Given]) -> None:
    for option in options:
        if option.name == "encoding" and (option.value or b"").lower() not in {
            b"auto",
            b"none",
            b"utf-8",
            b"utf8",
        }:
            raise NotUnderstood("--encoding is given")


def _patterns(options: Sequence[Given], read_file: ReadFile) -> list[bytes]:
    patterns: list[bytes] = []
    for option in options:
        if option.name == "regexp":
            patterns.append(option.value or b"")
        elif option.name == "file":
            content = content_of(option.value or b"", read_file)
            if content:
                lines = content.removesuffix(b"\n").split(b"\n")
                patterns += (line.rstrip(b"\r") for line in lines)
    return patterns


def _syntax(options: Sequence[Given]) -> Syntax:
    words = [o.name for o in options if o.name in {"fixed-strings", "no-fixed-strings"}]
    if words and words[-1] == "fixed-strings":
        return Syntax.FIXED
    engines: list[Syntax] = []
    for option in options:
        if option.name == "engine":
            if option.value not in _ENGINES:
                raise NotUnderstood("--engine has no such engine")
            engines.append(_ENGINES[option.value])
        elif option.name in _ENGINE_SWITCHES:
            engines.append(_ENGINE_SWITCHES[option.name])
    if not engines:
        return Syntax.RUST
    return engines[0] if len(set(engines)) == 1 else Syntax.RUST_OR_PCRE


def _fold(options: Sequence[Given], patterns: Sequence[bytes]) -> Fold:
    cases = [option.name for option in options if option.name in _CASES]
    if not cases or cases[-1] == "case-sensitive":
        return Fold.NONE
    if cases[-1] == "smart-case" and all(map(_SURELY_UPPER.fullmatch, patterns)):
        # Versions differ on patterns of which some have capitals; all these do.
        return Fold.NONE
    return Fold.UNICODE
