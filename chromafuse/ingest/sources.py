"""The files of a docs tree that become pages, and their contents.

The tree is taken as it is: every regular file of UTF-8 text keeps its path. A preset only chooses
what is left out, and whatever is left out is reported with its reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chromafuse.domain.access import HIDDEN, PUBLIC, AccessRule, all_of, rule_from_marks
from chromafuse.domain.errors import IngestError
from chromafuse.ingest.files import RefusedError, Root, os_reason, read_whole, resolve_inside
from chromafuse.ingest.frontmatter import (
    begins_with_block,
    may_have_frontmatter,
    parse_frontmatter,
)
from chromafuse.ingest.navigation import Navigation, page_names, read_navigation
from chromafuse.ingest.report import Notice, Omission, printable
from chromafuse.ingest.rules import MINTIGNORE, NamedPages, Rules, make_rules
from chromafuse.ingest.selection import (
    Listed,
    PageRules,
    closed_pages,
    missing_notices,
    resolve_entries,
    select_pages,
)
from chromafuse.ingest.siterule import rule_of_named, rule_of_omitted
from chromafuse.ingest.slugs import assign_slugs
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

_SITE_NAMES = ("docs.json", "mint.json")
_MAX_IGNORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to take of a tree; ``include`` and ``exclude`` are gitignore-style patterns.

    ``preset`` "auto" is "mintlify" where ``docs.json`` or ``mint.json`` stands at the root.
    ``include`` brings back what a preset or ``.mintignore`` leaves out, never what ``exclude``
    names. ``hidden`` takes pages that are hidden, noindex or not in the navigation; ``snippets``
    takes files that pages only import. ``default_access`` is the rule of an unmarked page.
    """

    preset: Literal["auto", "mintlify", "plain"] = "auto"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    snippets: bool = False
    default_access: AccessRule = PUBLIC


@dataclass(frozen=True, slots=True)
class Source:
    """One file that becomes a page.

    ``path`` is what to open, absolute and free of symlinks; ``rel`` its path in the site, and
    ``slug`` its unique page name. A ``site_file`` names every page, so only who may see every
    page may see it. ``inherited`` is the rule that the navigation states for a page without marks;
    ``named`` tells that it names the file.
    """

    path: Path
    rel: str
    slug: str
    site_file: bool
    inherited: AccessRule | None = None
    named: bool = False


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
    """A page's bytes, the same as text, its time in nanoseconds and who may see it."""

    data: bytes
    text: str
    mtime_ns: int
    rule: AccessRule
    notices: tuple[Notice, ...]


def find_sources(root: Path, options: SourceOptions) -> Sources:
    """Return the files of the tree ``root`` that ``options`` select.

    Raises ``IngestError`` if ``root`` is no directory that can be listed, or vanishes, or if
    ``docs.json``, ``.mintignore`` or a pattern cannot be understood, so that it is unclear what
    to leave out.
    """
    here = _real_root(root)
    base = here.path
    site = next((name for name in _SITE_NAMES if _stands(base / name)), None)
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
    stated = _stated(listed, closed_pages(entries, rels))
    if mintlify:
        pages = PageRules(
            includes=rules.includes,
            listed=listed if navigation.entries is not None else None,
            hidden=options.hidden,
            snippets=options.snippets,
        )
        found = select_pages(base, found, pages)
    files = [item for item in found if isinstance(item, Found)]
    omissions = [item for item in found if isinstance(item, Omission)]
    slugs = assign_slugs(item.rel for item in files)
    site_files = navigation.site_files | {
        real for name in _SITE_NAMES if (real := _real_file(base, name)) is not None
    }
    notices = list(navigation.notices)
    if mintlify:
        notices += missing_notices(site or "", missing, omissions)
        notices += _site_notices(site, omissions)
    notices += _twin_notices({item.rel for item in files}, mintlify)
    sources = (
        Source(
            path=base / item.real,
            rel=item.rel,
            slug=slugs[item.rel],
            site_file=item.real in site_files,
            # A link to a restricted page must not show what the navigation restricts.
            inherited=_inherited(stated, item.rel, item.real),
            named=item.rel in listed,
        )
        for item in files
    )
    taken = {item.rel for item in files}
    named_rule = rule_of_named(base, entries, taken, stated, options.default_access)
    result = Sources(here, tuple(sources), tuple(omissions), tuple(notices), named_rule)
    result.ensure_root()
    return result


def read_source(source: Source, options: SourceOptions) -> Content | Omission:
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
    default = options.default_access if source.inherited is None else source.inherited
    if not (_is_page(source) or begins_with_block(source.path.name, text)):
        return Content(file.data, text, file.mtime_ns, default, ())
    front = parse_frontmatter(text)
    if front.broken is None:
        rule, warning = rule_from_marks(front.marks, default)
        texts = [] if warning is None else [warning]
    else:
        rule, texts = HIDDEN, [f"hidden from everybody: {front.broken}"]
    if front.commented_rule:
        texts.append("an access mark in a comment of the frontmatter has no effect")
    notices = tuple(Notice(where, item) for item in texts)
    return Content(file.data, text, file.mtime_ns, rule, notices)


def rule_of_lost(source: Source, options: SourceOptions) -> AccessRule:
    """Return what ``source``, which cannot be stored, adds to the rule of the site files."""
    default = options.default_access if source.inherited is None else source.inherited
    if _is_page(source):
        return rule_of_omitted(source.path, default)
    return default if source.named else PUBLIC


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


def _stated(
    listed: Mapping[str, Listed], closed: Mapping[str, AccessRule]
) -> dict[str, AccessRule]:
    stated = {rel: item.rule for rel, item in listed.items() if item.rule is not None}
    return stated | {rel: all_of([rule, stated.get(rel, rule)]) for rel, rule in closed.items()}


def _inherited(stated: Mapping[str, AccessRule], rel: str, real: str) -> AccessRule | None:
    return stated.get(rel, stated.get(real))


def _site_notices(site: str | None, omissions: Iterable[Omission]) -> Iterator[Notice]:
    if site is None:
        text = "there is none at the root: every page counts as one of the navigation"
        yield Notice(_SITE_NAMES[0], text)
    for omission in omissions:
        if omission.path.endswith("/" + MINTIGNORE):
            yield Notice(omission.path, f"has no effect: only {MINTIGNORE} at the root has")


def _twin_notices(rels: set[str], mintlify: bool) -> Iterator[Notice]:
    for rel in sorted(rels):
        stem = rel.removesuffix(".mdx")
        if stem == rel:
            stem = rel.removesuffix(".md")
        elif stem + ".md" in rels:
            yield Notice(printable(stem + ".md"), f"has the same URL as {printable(rel)}")
        if mintlify and stem != rel and stem.endswith("/index"):
            page = stem.removesuffix("/index")
            for twin in (page + ".mdx", page + ".md"):
                if twin in rels:
                    yield Notice(printable(rel), f"has the same URL as {printable(twin)}")
