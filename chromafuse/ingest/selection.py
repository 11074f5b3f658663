"""Which pages of a Mintlify site are meant to be found."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chromafuse.domain.access import AccessRule, all_of
from chromafuse.ingest.files import RefusedError, os_reason, read_head
from chromafuse.ingest.frontmatter import HEAD_BYTES, page_stem, parse_frontmatter
from chromafuse.ingest.navigation import Entry, is_endpoint, page_names
from chromafuse.ingest.report import Notice, Omission, printable
from chromafuse.ingest.rules import is_in_snippets
from chromafuse.ingest.siterule import candidates
from chromafuse.ingest.walk import Found

_IMPORT = re.compile(r"[ \t]*import\b[^\"'\n]*[\"']([^\"'\n]+\.mdx?)[\"']", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Listed:
    """What the navigation says of a page: whether it shows it, and its rule if it states one.

    ``origin`` names the node that states the rule.
    """

    visible: bool
    rule: AccessRule | None
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PageRules:
    """What decides about a page besides its path.

    ``includes`` tells whether the user asks for a path outright; ``listed`` is None where the site
    has no navigation; ``hidden`` and ``snippets`` tell whether to take such pages.
    """

    includes: Callable[[str], bool]
    listed: Mapping[str, Listed] | None
    hidden: bool
    snippets: bool

    def omit(self, rel: str, *, imported: bool, hidden: bool) -> str | None:
        """Return why the page ``rel`` is left out, or None.

        ``imported`` tells that a page imports it, ``hidden`` that its own frontmatter hides it.
        """
        listed = None if self.listed is None else self.listed.get(rel)
        if self.includes(rel):
            return None
        if listed is None and (imported or is_in_snippets(rel)):
            return None if self.snippets else "a snippet that pages import"
        if self.hidden:
            return None
        if hidden:
            return "hidden or noindex by its frontmatter"
        if self.listed is not None and listed is None:
            return "not in the navigation"
        if listed is not None and not listed.visible:
            return "hidden in the navigation"
        return None


def select_pages(
    root: Path, found: Iterable[Found | Omission], rules: PageRules
) -> list[Found | Omission]:
    """Return ``found`` with the pages that ``rules`` leave out replaced by their omissions.

    Each page is opened once, for its frontmatter and its imports, which are few and stand at the
    top: only the first ``HEAD_BYTES`` count.
    """
    items = list(found)
    heads: dict[str, bool | Omission] = {}
    imported: set[str] = set()
    for item in items:
        if not isinstance(item, Found) or not is_page(item.rel):
            continue
        try:
            head = read_head(root / item.real, HEAD_BYTES).decode(errors="replace")
        except (RefusedError, OSError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else str(error)
            heads[item.rel] = Omission(printable(item.rel), f"cannot be read: {reason}", lost=True)
        else:
            imported |= imported_files(item.rel, head)
            heads[item.rel] = parse_frontmatter(head).hidden

    def decide(item: Found | Omission) -> Found | Omission:
        head = heads.get(item.rel) if isinstance(item, Found) else None
        if isinstance(item, Omission) or head is None:
            return item
        if isinstance(head, Omission):
            return head
        reason = rules.omit(item.rel, imported=item.rel in imported, hidden=head)
        return item if reason is None else Omission(printable(item.rel), reason, lost=False)

    return [decide(item) for item in items]


def is_page(name: str) -> bool:
    """Return whether Mintlify makes a page of a file called ``name``."""
    return name.lower().endswith((".mdx", ".md"))


def resolve_entries(
    entries: Iterable[Entry], rels: Collection[str]
) -> tuple[dict[str, Listed], list[str]]:
    """Return what ``entries`` say of the files ``rels``, and the entries that name none of them.

    A page is visible if any entry shows it. The first entry decides about its access, except that
    a later one may close what the first leaves open by saying nothing.
    """
    listed: dict[str, Listed] = {}
    missing: dict[str, None] = {}
    for entry in entries:
        if entry.implied:
            continue
        files = _files_of(entry.page, rels)
        if not files and not is_endpoint(entry.page):
            missing[entry.page] = None
        for rel in files:
            before = listed.get(rel)
            if before is None:
                listed[rel] = Listed(not entry.hidden, entry.rule, entry.origin)
                continue
            closes = before.rule is None and entry.closes
            decides = entry if closes else before
            visible = before.visible or not entry.hidden
            listed[rel] = Listed(visible, decides.rule, decides.origin)
    return listed, list(missing)


def closed_pages(entries: Iterable[Entry], rels: Collection[str]) -> dict[str, AccessRule]:
    """Return the rules of files that ``entries`` close although they do not name them exactly.

    An entry that names no file closes the pages that differ from it in case or in the form of
    their letters only. Every entry closes the copies that an editor left of its page.
    """
    loose: dict[str, AccessRule] = {}
    copies: dict[str, AccessRule] = {}
    for entry in entries:
        if entry.rule is None or not entry.closes:
            continue
        exact = not entry.implied and bool(_files_of(entry.page, rels))
        for key in {_stem_key(name) for name in page_names(entry.page)}:
            copies[key] = all_of([copies.get(key, entry.rule), entry.rule])
            if not exact:
                loose[key] = all_of([loose.get(key, entry.rule), entry.rule])
    closed: dict[str, AccessRule] = {}
    if not copies:
        return closed
    for rel in rels:
        stem = page_stem(rel)
        keys = {_stem_key(rel)} if stem is None else {_stem_key(stem), _stem_key(rel)}
        found = copies if stem is not None and not is_page(rel) else loose
        rules = [found[key] for key in keys if key in found]
        if rules:
            closed[rel] = all_of(rules)
    return closed


def _stem_key(name: str) -> str:
    name = page_stem(name) or name
    key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return key.removesuffix("/index") or "index"


def missing_notices(
    site: str, missing: Iterable[str], omissions: Iterable[Omission]
) -> Iterator[Notice]:
    """Yield a notice for each entry of the navigation that names no file that is taken."""
    left_out = {omission.path: omission.reason for omission in omissions}
    for page in missing:
        path = printable(page)
        names = [path, path + ".mdx", path + ".md", path + "/index.mdx", path + "/index.md"]
        cuts = [match.start() for match in re.finditer("/", path)]
        names += [path[: cut + 1] for cut in cuts] + [path + "/"]
        reason = next((left_out[name] for name in names if name in left_out), None)
        state = "there is no such page" if reason is None else f"it is left out: {reason}"
        yield Notice(path, f"the navigation in {site} names it, but {state}")


def imported_files(page: str, head: str) -> set[str]:
    """Return the Markdown files that the page ``page`` imports; ``head`` is how it begins.

    What stands in a code fence is an example, not an import.
    """
    found: set[str] = set()
    fence = ""
    for line in head.split("\n"):
        mark = _FENCE.match(line)
        if mark:
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence):
                fence = ""
        elif not fence and (match := _IMPORT.match(line)):
            target = match.group(1)
            base = "" if target.startswith("/") else posixpath.dirname(page)
            found.add(posixpath.normpath(posixpath.join(base, target.lstrip("/"))))
    return found


def _files_of(page: str, rels: Collection[str]) -> list[str]:
    for name in page_names(page):
        same, *pages = candidates(name)
        if same in rels:
            return [same]
        for twins in (pages[:2], pages[2:]):
            files = [rel for rel in twins if rel in rels]
            if files:
                return files
    return []
