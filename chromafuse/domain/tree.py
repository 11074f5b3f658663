"""The immutable path tree, in the one order in which everything lists it.

Pages are kept in listing order: depth first, the names of a directory in byte order, a directory
at its own name's place among its siblings. That is the order in which ``readdir`` answers, so a
recursive reader walks the pages as one long file.

Names come from a database that anybody may have written: what cannot be a file name here is
rejected with a reason, and its siblings stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NewType

from chromafuse.domain.access import Identity
from chromafuse.domain.page import Page

TreeVersion = NewType("TreeVersion", str)

NAME_MAX = 255
"""Bytes in a file name, as on every common file system."""
PATH_MAX = 4_095
"""Bytes in a path; no system call takes a longer one."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory: its children by name, in byte order of names."""

    path: bytes
    children: Mapping[bytes, Directory | Page]
    subdirectories: int
    mtime_ns: int

    @property
    def name(self) -> bytes:
        """The directory's name; empty for the root."""
        return self.path.rpartition(b"/")[2]


@dataclass(frozen=True, slots=True)
class Rejected:
    """An entry that cannot be shown, and why."""

    slug: str
    reason: str


@dataclass(frozen=True, slots=True)
class PathTree:
    """All pages in listing order under one root directory.

    ``rejected`` are the entries of the stored tree that cannot be shown. ``shadowed`` are pages
    whose place another page or a directory has: they come to light where that is pruned.
    """

    version: TreeVersion
    pages: tuple[Page, ...]
    root: Directory
    rejected: tuple[Rejected, ...] = ()
    by_path: Mapping[bytes, Page] = field(default_factory=dict)
    shadowed: tuple[Page, ...] = ()

    @property
    def total_bytes(self) -> int:
        """The sum of the pages' sizes."""
        return sum(page.size for page in self.pages)

    def count_directories(self) -> int:
        """Return how many directories there are, the root included; looks at every page."""
        return 1 + len({prefix for page in self.pages for prefix in _parents(page.path)})

    def directory(self, path: bytes) -> Directory | None:
        """Return the directory with this path (empty for the root), or None."""
        found = self.root
        for name in path.split(b"/") if path else ():
            child = found.children.get(name)
            if not isinstance(child, Directory):
                return None
            found = child
        return found

    def rejections(self, *, of_names: bool = False) -> Mapping[str, int]:
        """Return how many entries were rejected, by reason; ``of_names``: not for their place."""
        places = {page.slug for page in self.shadowed} if of_names else set()
        return Counter(r.reason for r in self.rejected if r.slug not in places)


def listing_key(path: bytes) -> list[bytes]:
    """Return what to sort paths by to have them in listing order."""
    return path.split(b"/")


def name_problem(name: bytes) -> str | None:
    """Return why ``name`` cannot name a file, or None."""
    if not name:
        return "empty name"
    if name in (b".", b".."):
        return "name . or .."
    if b"\0" in name or b"/" in name:
        return "name with NUL or slash"
    if len(name) > NAME_MAX:
        return f"name over {NAME_MAX} bytes"
    return None


def path_problem(path: bytes) -> str | None:
    """Return why ``path`` cannot be a page's path, or None."""
    if len(path) > PATH_MAX:
        return f"path over {PATH_MAX} bytes"
    return next(filter(None, map(name_problem, path.split(b"/"))), None)


def build_tree(
    pages: Iterable[Page], version: TreeVersion, rejected: Iterable[Rejected] = ()
) -> PathTree:
    """Return the tree of ``pages``.

    A page whose path cannot be, stands twice, or is a directory of other pages is rejected; the
    first by slug of two pages with one path stays.
    """
    refused = list(rejected)
    shadowed: list[Page] = []
    by_path: dict[bytes, Page] = {}
    for page in sorted(pages, key=lambda page: page.slug):
        problem = path_problem(page.path)
        if problem:
            refused.append(Rejected(page.slug, problem))
        elif page.path in by_path:
            refused.append(Rejected(page.slug, "same path as another page"))
            shadowed.append(page)
        else:
            by_path[page.path] = page
    prefixes = {prefix for path in by_path for prefix in _parents(path)}
    for path in sorted(prefixes & by_path.keys()):
        shadowed.append(by_path.pop(path))
        refused.append(Rejected(shadowed[-1].slug, "a page where a directory stands"))
    ordered = tuple(by_path[path] for path in sorted(by_path, key=listing_key))
    return PathTree(
        version,
        ordered,
        _directories(ordered),
        tuple(refused),
        MappingProxyType(by_path),
        tuple(shadowed),
    )


def prune(tree: PathTree, identity: Identity) -> PathTree:
    """Return the tree as ``identity`` sees it: nothing else exists in it, no empty directory.

    Pages that only hid each other's places are judged anew, so that a page which is not seen takes
    nobody's name. Other entries that were rejected are not told: their access was never decided.
    """
    every = (*tree.pages, *tree.shadowed)
    allowed = {rule: rule.allows(identity) for rule in {page.rule for page in every}}
    if tree.shadowed:
        return build_tree((page for page in every if allowed[page.rule]), tree.version)
    return select(tree, lambda page: allowed[page.rule])


def select(tree: PathTree, keep: Callable[[Page], bool]) -> PathTree:
    """Return the tree of the pages for which ``keep`` answers true."""
    pages = tuple(page for page in tree.pages if keep(page))
    if len(pages) == len(tree.pages):
        return PathTree(tree.version, tree.pages, tree.root, (), tree.by_path)
    by_path = {page.path: page for page in pages}
    return PathTree(tree.version, pages, _directories(pages), (), MappingProxyType(by_path))


@dataclass(frozen=True, slots=True)
class Changes:
    """What another tree shows differently.

    ``names`` are (path of the directory, name): what appears, goes, or is something else now, where
    of a directory that goes or comes only its own name counts. ``directories`` are the paths of
    those that stay and look different themselves.
    """

    names: tuple[tuple[bytes, bytes], ...]
    directories: tuple[bytes, ...]


def changes(old: PathTree, new: PathTree) -> Changes:
    """Return what ``new`` shows differently from ``old``; free of recursion, as trees nest deep."""
    names: list[tuple[bytes, bytes]] = []
    directories: list[bytes] = []
    stack = [(old.root, new.root)]
    while stack:
        before, after = stack.pop()
        if before is after:
            continue
        looks = (before.mtime_ns, before.subdirectories)
        if looks != (after.mtime_ns, after.subdirectories):
            directories.append(after.path)
        for name in before.children.keys() | after.children.keys():
            one, other = before.children.get(name), after.children.get(name)
            if isinstance(one, Directory) and isinstance(other, Directory):
                stack.append((one, other))
            elif not _same_file(one, other):
                names.append((after.path, name))
    return Changes(tuple(names), tuple(directories))


def _same_file(one: Directory | Page | None, other: Directory | Page | None) -> bool:
    """Return whether two names lead to the same version of the same page."""
    if not isinstance(one, Page) or not isinstance(other, Page):
        return False
    return one.identity == other.identity


def _parents(path: bytes) -> Iterable[bytes]:
    """Yield the paths of the directories above ``path``, the root left out."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)


def _directories(pages: tuple[Page, ...]) -> Directory:
    """Return the root directory over ``pages``, which are in listing order.

    Kept free of recursion: a stored tree may nest as deep as a path is long.
    """
    open_dirs: list[_Open] = [_Open(b"")]
    for page in pages:
        parts = page.path.split(b"/")
        common = 0
        while (
            common < len(open_dirs) - 1
            and common < len(parts) - 1
            and open_dirs[common + 1].name == parts[common]
        ):
            common += 1
        while len(open_dirs) - 1 > common:
            _close_last(open_dirs)
        while len(open_dirs) < len(parts):
            above = open_dirs[-1].path
            name = parts[len(open_dirs) - 1]
            open_dirs.append(_Open(above + b"/" + name if above else name))
        open_dirs[-1].add(page.name, page, page.mtime_ns)
    while len(open_dirs) > 1:
        _close_last(open_dirs)
    return open_dirs[0].close()


class _Open:
    """A directory whose children are still being collected."""

    __slots__ = ("children", "mtime_ns", "name", "path", "subdirectories")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.name = path.rpartition(b"/")[2]
        self.children: dict[bytes, Directory | Page] = {}
        self.subdirectories = 0
        self.mtime_ns = 0

    def add(self, name: bytes, child: Directory | Page, mtime_ns: int) -> None:
        self.children[name] = child
        self.mtime_ns = max(self.mtime_ns, mtime_ns)

    def close(self) -> Directory:
        return Directory(
            self.path, MappingProxyType(self.children), self.subdirectories, self.mtime_ns
        )


def _close_last(open_dirs: list[_Open]) -> None:
    closed = open_dirs.pop().close()
    open_dirs[-1].add(closed.name, closed, closed.mtime_ns)
    open_dirs[-1].subdirectories += 1
