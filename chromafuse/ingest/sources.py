"""The files of a docs tree that become pages, and their contents.

The tree is taken as it is: every regular file of UTF-8 text keeps its path. A preset only chooses
what is left out, and whatever is left out is reported with its reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from chromafuse.domain.access import PUBLIC, AccessRule, all_of
from chromafuse.domain.errors import IngestError
from chromafuse.ingest.files import RefusedError, Root, os_reason, read_whole, resolve_inside
from chromafuse.ingest.frontmatter import begins_with_block, may_have_frontmatter
from chromafuse.ingest.navigation import Navigation, page_names, read_navigation
from chromafuse.ingest.notices import SITE_NAMES, site_notices, twin_notices
from chromafuse.ingest.report import Notice, Omission, printable
from chromafuse.ingest.rulefile import NO_RULES, RuleFile
from chromafuse.ingest.rules import MINTIGNORE, NamedPages, Rules, make_rules
from chromafuse.ingest.selection import (
    PageRules,
    closed_pages,
    missing_notices,
    resolve_entries,
    select_pages,
)
from chromafuse.ingest.siterule import rule_of_named, rule_of_omitted
from chromafuse.ingest.slugs import assign_slugs
from chromafuse.ingest.stated import Judged, Stated, judge_page, stated_by_navigation, unused
from chromafuse.ingest.walk import Found, walk

__all__ = [
    "Content",
    "Notice",
    "Omission",
    "Source",
    "SourceOptions",
    "Sources",
    "find_sources",
    "read_source",
]

_MAX_IGNORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to take of a tree; ``include`` and ``exclude`` are gitignore-style patterns.

    ``preset`` "auto" is "mintlify" where ``docs.json`` or ``mint.json`` stands at the root.
    ``include`` brings back what a preset or ``.mintignore`` leaves out, never what ``exclude``
    names. ``hidden`` takes pages that are hidden, noindex or not in the navigation; ``snippets``
    takes files that pages only import. ``access`` are rules for pages without marks, and
    ``default_access`` is the rule of those that nothing names. ``others`` are paths that the site
    has beside the tree's files, of which rules may say something too.
    """

    preset: Literal["auto", "mintlify", "plain"] = "auto"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    snippets: bool = False
    default_access: AccessRule = PUBLIC
    access: RuleFile = NO_RULES
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One file that becomes a page.

    ``path`` is what to open, absolute and free of symlinks; ``rel`` its path in the site, and
    ``slug`` its unique page name. A ``site_file`` names every page, so only who may see every
    page may see it. ``inherited`` is what holds for a page without marks, ``ruled`` what the rule
    file says of it, and ``named`` tells that the navigation names the file.
    """

    path: Path
    rel: str
    slug: str
    site_file: bool
    inherited: Stated
    ruled: Stated | None
    named: bool


@dataclass(frozen=True, slots=True)
class Sources:
    """What a tree holds; ``files`` in the order in which a mount lists them, depth first.

    ``named_rule`` is met by who may see every page that the navigation names and that is not in
    ``files``. ``root`` tells whether the tree is still there.
    """

    root: Root
    files: tuple[Source, ...]
    omissions: tuple[Omission, ...]
    notices: tuple[Notice, ...]
    named_rule: AccessRule

    def ensure_root(self) -> None:
        """Raise ``IngestError`` if the tree's directory is gone, or is another one by now."""
        if not self.root.still_stands():
            name = printable(str(self.root.path))
            raise IngestError(
                f"{name} vanished while it was read; nothing was switched",
                remedy="see that the directory is there, and run the ingest again",
            )


@dataclass(frozen=True, slots=True)
class Content:
    """A page's bytes, the same as text, its time in nanoseconds and who may see it, and why."""

    data: bytes
    text: str
    mtime_ns: int
    rule: AccessRule
    why: str
    notices: tuple[Notice, ...]


def find_sources(root: Path, options: SourceOptions) -> Sources:
    """Return the files of the tree ``root`` that ``options`` select.

    Raises ``IngestError`` if ``root`` is no directory that can be listed, or vanishes, or if
    ``docs.json``, ``.mintignore`` or a pattern cannot be understood, so that it is unclear what
    to leave out.
    """
    here = _real_root(root)
    base = here.path
    site = next((name for name in SITE_NAMES if _stands(base / name)), None)
    mintlify = options.preset == "mintlify" or (options.preset == "auto" and site is not None)
    navigation = Navigation() if site is None else _navigation(base, site, mintlify, options)
    entries = navigation.entries or ()
    named = NamedPages.of(
        {name for entry in entries if not entry.implied for name in page_names(entry.page)}
    )
    rules = _rules(base, mintlify, options, named)
    try:
        found = list(walk(base, rules))
    except OSError as error:
        raise IngestError(f"{printable(str(root))} cannot be listed: {os_reason(error)}") from None
    rels = {item.rel for item in found if isinstance(item, Found)}
    listed, missing = resolve_entries(entries, rels)
    stated = stated_by_navigation(site or "", listed, closed_pages(entries, rels))
    if mintlify:
        pages = PageRules(
            includes=rules.includes,
            listed=listed if navigation.entries is not None else None,
            hidden=options.hidden,
            snippets=options.snippets,
        )
        found = select_pages(base, found, pages)
    found = [_without_rules(base, item, options.access) for item in found]
    files = [item for item in found if isinstance(item, Found)]
    omissions = [item for item in found if isinstance(item, Omission)]
    slugs = assign_slugs(item.rel for item in files)
    site_files = navigation.site_files | {
        real for name in SITE_NAMES if (real := _real_file(base, name)) is not None
    }
    notices = list(navigation.notices)
    if mintlify:
        notices += missing_notices(site or "", missing, omissions)
        notices += site_notices(site, omissions)
    notices += twin_notices({item.rel for item in files}, mintlify)
    taken = {item.rel for item in files}
    notices += options.access.unmatched({*taken, *options.others})
    sources = []
    for item in files:
        ruled = options.access.find(item.rel, item.real)
        source = Source(
            path=base / item.real,
            rel=item.rel,
            slug=slugs[item.rel],
            site_file=item.real in site_files,
            # A link to a restricted page must not show what the navigation restricts.
            inherited=_inherited(stated.get(item.rel, stated.get(item.real)), ruled, item, options),
            ruled=ruled,
            named=item.rel in listed,
        )
        sources.append(source)
    rules_of = {rel: item.rule for rel, item in stated.items()}
    named_rule = rule_of_named(base, entries, taken, rules_of, partial(_default_rule, options))
    named_rule = all_of([options.default_access, named_rule])
    result = Sources(here, tuple(sources), tuple(omissions), tuple(notices), named_rule)
    result.ensure_root()
    return result


def read_source(source: Source) -> Content | Omission:
    """Return the content of ``source``, or why it cannot be stored; never blocks on a FIFO."""
    where = printable(source.rel)
    try:
        file = read_whole(source.path)
        text = file.data.decode()
    except UnicodeDecodeError as error:
        return Omission(where, f"not UTF-8 text (byte {error.start:,})", lost=True)
    except RefusedError as error:
        return Omission(where, str(error), lost=True)
    except OSError as error:
        return Omission(where, f"cannot be read: {os_reason(error)}", lost=True)
    judged = Judged(source.inherited)
    if _is_page(source) or begins_with_block(source.path.name, text):
        judged = judge_page(text, source.inherited)
    texts = [*judged.warnings]
    if judged.stated is not source.inherited:
        texts += unused(judged.stated, source.ruled)
    notices = tuple(Notice(where, item) for item in texts)
    rule, why = judged.stated.rule, judged.stated.why
    return Content(file.data, text, file.mtime_ns, rule, why, notices)


def rule_of_lost(source: Source) -> AccessRule:
    """Return what ``source``, which cannot be stored, adds to the rule of the site files."""
    if _is_page(source):
        return rule_of_omitted(source.path, source.inherited.rule)
    return source.inherited.rule if source.named else PUBLIC


def _is_page(source: Source) -> bool:
    return may_have_frontmatter(source.rel) or may_have_frontmatter(source.path.name)


def _real_root(root: Path) -> Root:
    name = printable(str(root))
    try:
        base = Path(os.path.realpath(root, strict=True))
        mode = base.stat().st_mode
    except (OSError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "not a path"
        raise IngestError(f"{name}: {reason}", remedy="name the root of a docs tree") from None
    if not stat.S_ISDIR(mode):
        raise IngestError(f"{name} is not a directory", remedy="name the root of a docs tree")
    return Root.of(base)


def _stands(path: Path) -> bool:
    """Return whether a configuration stands at ``path``, be it one that cannot be read."""
    return os.path.lexists(path) and not path.is_dir()


def _real_file(base: Path, rel: str) -> str | None:
    try:
        return resolve_inside(base, rel)
    except RefusedError:
        return None


def _navigation(base: Path, site: str, mintlify: bool, options: SourceOptions) -> Navigation:
    load = _loader(base)
    if mintlify:
        return read_navigation(site, load)
    # The plain preset takes every page, yet access marks hold; who leaves the file out has said
    # that it is none of the site.
    rules = _rules(base, False, options, NamedPages.of(()))
    if rules.judge(site, directory=False) is not None:
        return Navigation()
    try:
        return read_navigation(site, load, lenient=True)
    except IngestError as error:
        raise IngestError(
            f"{error.args[0]}, and it may say who sees which page",
            remedy=f"mend it, or leave it out with --exclude /{site}",
        ) from None


def _loader(base: Path) -> Callable[[str, int], tuple[str, bytes]]:
    def load(rel: str, limit: int) -> tuple[str, bytes]:
        try:
            real = resolve_inside(base, rel)
            return real, read_whole(base / real, limit).data
        except RefusedError as error:
            raise IngestError(str(error)) from None
        except OSError as error:
            raise IngestError(f"cannot be read: {os_reason(error)}") from None

    return load


def _rules(base: Path, mintlify: bool, options: SourceOptions, named: NamedPages) -> Rules:
    lines: list[str] = []
    if mintlify and os.path.lexists(base / MINTIGNORE):
        try:
            data = _loader(base)(MINTIGNORE, _MAX_IGNORE_BYTES)[1]
            lines = data.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise IngestError(f"{MINTIGNORE} is not UTF-8 text", remedy="mend the file") from None
        except IngestError as error:
            raise IngestError(f"{MINTIGNORE}: {error.args[0]}", remedy="mend the file") from None
    return make_rules(
        include=options.include,
        exclude=options.exclude,
        mintignore=lines,
        mintlify=mintlify,
        snippets=options.snippets,
        named=named,
    )


def _inherited(
    listed: Stated | None, ruled: Stated | None, item: Found, options: SourceOptions
) -> Stated:
    """Return what holds for a file without marks of its own.

    The navigation wins over the rule file. What is no page, such as an OpenAPI file, repeats what
    pages say and cannot carry marks: of it both hold.
    """
    if listed is not None and ruled is not None and not may_have_frontmatter(item.rel):
        return listed.together(ruled)
    return listed or ruled or Stated(options.default_access)


def _default_rule(options: SourceOptions, rel: str) -> AccessRule:
    """Return the rule of a path of which the navigation says nothing."""
    found = options.access.find(rel)
    return options.default_access if found is None else found.rule


def _without_rules(base: Path, item: Found | Omission, access: RuleFile) -> Found | Omission:
    if isinstance(item, Found) and access.path == base / item.real:
        return Omission(printable(item.rel), "holds the access rules", lost=False)
    return item
