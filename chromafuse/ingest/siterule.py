"""Who may see the files that name every page, as far as pages decide it that are not stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from chromafuse.domain.access import HIDDEN, AccessRule, all_of, rule_from_marks
from chromafuse.ingest.files import RefusedError, read_head, resolve_inside
from chromafuse.ingest.frontmatter import HEAD_BYTES, may_have_frontmatter, parse_frontmatter
from chromafuse.ingest.navigation import Entry, page_names


def rule_of_omitted(path: Path, stated: AccessRule) -> AccessRule:
    """Return the rule of the page ``path`` that is not stored: ``stated`` if it has no marks.

    Hidden if its marks cannot be read. ``path`` is absolute and free of symlinks.
    """
    try:
        head = read_head(path, HEAD_BYTES + 4)
    except (OSError, RefusedError):
        return HIDDEN
    # The last character may be cut.
    text = head.decode(errors="replace")
    readable = "\ufffd" not in text[:-4] and "\0" not in text
    front = parse_frontmatter(text)
    if front.broken is not None or not (front.marks or readable):
        return HIDDEN
    return rule_from_marks(front.marks, stated)[0]


def rule_of_named(
    root: Path,
    entries: Iterable[Entry],
    taken: Collection[str],
    stated: Mapping[str, AccessRule],
    default: Callable[[str], AccessRule],
) -> AccessRule:
    """Return the conjunction of the rules of all pages that ``entries`` name and are not taken.

    ``taken`` are the paths of the files that are; ``stated`` what the navigation says of files;
    ``default`` the rule of a path of which it says nothing. A page that does not exist has the
    rule of its entry.
    """
    rules: set[AccessRule] = set()
    seen: set[tuple[str, AccessRule | None]] = set()
    for entry in entries:
        if (entry.page, entry.rule) in seen:
            continue
        seen.add((entry.page, entry.rule))
        files = [rel for name in page_names(entry.page) for rel in candidates(name)]
        for rel in files:
            if rel not in taken and _exists(root / rel):
                inherited = default(rel) if entry.rule is None else entry.rule
                own = stated.get(rel, inherited)
                rules.add(_rule_of_file(root, rel, all_of([own, inherited])))
        if not any(rel in taken for rel in files):
            rules.add(default(entry.page + ".mdx") if entry.rule is None else entry.rule)
    return all_of(rules)


def candidates(page: str) -> list[str]:
    """Return the paths of files that the path ``page`` of a navigation may mean, best first."""
    page = page or "index"
    stems = (page, page + "/index")
    return [page, *(stem + end for stem in stems for end in (".mdx", ".md"))]


def _rule_of_file(root: Path, rel: str, stated: AccessRule) -> AccessRule:
    try:
        real = resolve_inside(root, rel)
    except (RefusedError, ValueError):
        return HIDDEN
    if not (may_have_frontmatter(rel) or may_have_frontmatter(real)):
        return stated
    return rule_of_omitted(root / real, stated)


def _exists(path: Path) -> bool:
    """Return whether something else than a directory stands at ``path``, or nobody can tell."""
    if ".." in path.parts:
        return False
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return not path.is_dir()
