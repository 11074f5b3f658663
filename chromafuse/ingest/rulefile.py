"""A file of rules for trees whose pages carry no marks: globs, and who sees what they name.

::

    [[rule]]
    glob = ["internal/**", "!internal/index.mdx"]
    access = "authenticated"

    [[rule]]
    glob = "billing/"
    groups = ["admin", "billing"]

Globs have the syntax of ``.gitignore``, relative to the root of the tree; as there, the last rule
that names a file decides.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from chromafuse.domain.access import (
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    rule_from_marks,
)
from chromafuse.domain.errors import ConfigError
from chromafuse.ingest.frontmatter import page_stem
from chromafuse.ingest.report import Notice, printable
from chromafuse.ingest.selection import is_page
from chromafuse.ingest.stated import Stated

OPTION = "--access"
MAX_FILE_BYTES = 16 << 20

WORDS: Mapping[str, AccessRule] = {
    "public": PUBLIC,
    "authenticated": AUTHENTICATED,
    "hidden": HIDDEN,
}
"""The rules that have a word for a name."""

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class GlobRule:
    """One rule of the file; ``name`` is what a person calls it."""

    name: str
    spec: GitIgnoreSpec
    rule: AccessRule


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules in their order. ``path`` is the file, free of symlinks, or None without one."""

    path: Path | None = None
    rules: tuple[GlobRule, ...] = field(default=())

    def find(self, *rels: str) -> Stated | None:
        """Return what the rules state of the file that has all the paths ``rels``.

        Each path is decided by the last rule that names it; all that is decided holds together.
        A copy that an editor left of a page has the paths of the page, too.
        """
        found: dict[str, Stated] = {}
        for name in dict.fromkeys(alias for rel in rels for alias in _aliases(rel)):
            last = self._last(name)
            if last is not None:
                found.setdefault(last.name, Stated(last.rule, last.name))
        if not found:
            return None
        first, *rest = found.values()
        for stated in rest:
            first = first.together(stated)
        return first

    def unmatched(self, rels: Collection[str]) -> list[Notice]:
        """Return a notice for each rule that names none of the files ``rels``."""
        if self.path is None:
            return []
        path = printable(str(self.path))
        return [
            Notice(path, f"{rule.name} names no file that is taken")
            for rule in self.rules
            if not any(rule.spec.check_file(rel).include for rel in rels)
        ]

    def _last(self, rel: str) -> GlobRule | None:
        named = (rule for rule in reversed(self.rules) if rule.spec.check_file(rel).include)
        return next(named, None)


NO_RULES = RuleFile()


def _aliases(rel: str) -> Iterable[str]:
    yield rel
    stem = page_stem(rel)
    if stem is not None and not is_page(rel):
        yield stem + ".mdx"
        yield stem + ".md"


def read_rules(path: Path) -> RuleFile:
    """Return the rules in the file ``path``.

    Raises ``ConfigError`` if it cannot be read or understood: whatever is not clear in it would
    show a page to the wrong people.
    """
    where = f"{OPTION} {path}"
    try:
        real = Path(os.path.realpath(path.expanduser(), strict=True))
        with open(real, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the path
        raise ConfigError(f"{OPTION} is not a path") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{where} is longer than {MAX_FILE_BYTES:,} bytes")
    try:
        document = tomllib.loads(data.decode())
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply") from None
    except ValueError as error:  # TOML's, UTF-8's and int()'s
        raise ConfigError(f"{where} is not TOML: {printable(str(error))}") from None
    tables = document.get("rule")
    if set(document) != {"rule"} or not isinstance(tables, list):
        raise ConfigError(f"{where} holds something else than [[rule]] tables")
    rules = []
    for number, table in enumerate(tables, 1):
        try:
            rules.append(_rule(table, f"{printable(path.name)} rule {number}"))
        except ValueError as error:
            raise ConfigError(f"{where}, rule {number}: {printable(str(error))}") from None
    return RuleFile(real, tuple(rules))


def _rule(table: object, name: str) -> GlobRule:
    """Return one rule. Raises ``ValueError``."""
    if not isinstance(table, dict):
        raise ValueError("it is not a table")
    unknown = sorted(set(table) - {"glob", "access", "groups"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]}")
    globs = _globs(table.get("glob"))
    try:
        spec = GitIgnoreSpec.from_lines(globs)
    except ValueError as error:
        raise ValueError(f"a glob cannot be understood: {error}") from None
    text = ", ".join(globs)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return GlobRule(f"{name}: {printable(shown)}", spec, _access(table))


def _globs(value: object) -> list[str]:
    globs = [value] if isinstance(value, str) else value
    if not isinstance(globs, list) or not globs or not all(isinstance(g, str) for g in globs):
        raise ValueError("it needs glob, a text or a list of texts")
    for glob in globs:
        # What gitignore takes for a comment or nothing would be a rule without effect.
        if not glob.strip("!/ ") or glob != glob.strip() or glob.startswith("#"):
            raise ValueError("a glob is empty, a comment, or has blanks around it")
        if "\n" in glob or "\r" in glob or "\0" in glob:
            raise ValueError("a glob holds a newline or NUL")
    return globs


def _access(table: Mapping[str, object]) -> AccessRule:
    if ("access" in table) == ("groups" in table):
        raise ValueError("it needs either access or groups")
    if "access" in table:
        word = table["access"]
        rule = WORDS.get(word) if isinstance(word, str) else None
        if rule is None:
            raise ValueError(f"access is none of {', '.join(WORDS)}")
        return rule
    rule, warning = rule_from_marks({"groups": table["groups"]}, HIDDEN)
    if warning is not None:
        raise ValueError("groups is neither a list of names nor { includes = […], excludes = […] }")
    return rule
