"""Inodes over path trees: what lookup, getattr and readdir answer from.

Three parts, so that one more session costs next to nothing:

* ``Inodes`` hands out *node numbers* for the daemon's whole life: a directory's stays with its
  path, a page's with its path *and* version, and no number is used twice. It also holds what is
  the same for everybody: a page and its attributes.
* ``View`` is one pruned tree, shared by all sessions that see the same. Its listings are made once,
  when a directory is first asked for.
* ``Namespace`` tells which session has which view. A page's inode is its node number in every
  session, so the kernel keeps its bytes once; a directory's is ``session << NODE_BITS | node``, so
  that no two sessions share a name in the kernel's cache.

A directory's attributes are kept once per view too. The session's number and the generation are
put in when they are handed over: pyfuse3 copies them before anything else runs. A generation is a
number that nobody can guess: inode numbers can be guessed, and the kernel opens none by a file
handle without its generation. It stays with the inode for ever: the kernel fails every call in a
directory whose generation has changed. All is touched by the event loop only.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple, NewType

import pyfuse3

from chromafuse.domain.access import AccessKey
from chromafuse.domain.page import Page
from chromafuse.domain.tree import Directory, PathTree, listing_key
from chromafuse.fs.attributes import (
    CACHE_SECONDS,
    Owner,
    directory_attributes,
    file_attributes,
    hub_attributes,
)

Node = NewType("Node", int)

ROOT = int(pyfuse3.ROOT_INODE)
ROOT_NODE = Node(ROOT)
NODE_BITS = 36
NODE_MASK = (1 << NODE_BITS) - 1
MAX_SESSION = (1 << (63 - NODE_BITS)) - 1
"""The greatest session number: an inode number stays positive for whoever takes it as signed."""


GREP_SORTS_OVER = 10_000
"""GNU grep sorts the entries of a larger directory by inode, of a smaller one not at all."""
IGNORING = frozenset({b".git", b".jj", b".gitignore", b".ignore", b".rgignore"})
"""Names by which ripgrep leaves out files."""


class Entry(NamedTuple):
    """A name in a directory. ``node`` is 0 for a page, whose attributes fit every session.

    ``number`` is the node number of either.
    """

    name: bytes
    attributes: pyfuse3.EntryAttributes
    node: int
    number: int


class Inodes:
    """Hands out node numbers; the same thing always gets the same one."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._next = ROOT_NODE + 1
        self._directories: dict[bytes, Node] = {b"": ROOT_NODE}
        self._paths: dict[int, bytes] = {ROOT_NODE: b""}
        self._pages: dict[object, pyfuse3.EntryAttributes] = {}
        self._by_number: dict[int, Page] = {}
        self._secret = secrets.token_bytes(16)

    def generation(self, inode: int) -> int:
        """Return the generation of a directory's inode, the same for the daemon's whole life."""
        digest = blake2b(inode.to_bytes(8, "little"), digest_size=4, key=self._secret)
        return int.from_bytes(digest.digest(), "little")

    def directory(self, path: bytes) -> Node:
        """Return the number of the directory with this path."""
        number = self._directories.get(path)
        if number is None:
            number = self._directories[path] = self._take()
            self._paths[number] = path
        return number

    def knows(self, path: bytes) -> bool:
        """Return whether the directory with this path has a number yet."""
        return path in self._directories

    def path(self, node: int) -> bytes | None:
        """Return the path of the directory with this number, or None."""
        return self._paths.get(node)

    def attributes(self, page: Page) -> pyfuse3.EntryAttributes:
        """Return the attributes of a page, which hold its number."""
        key = page.identity
        found = self._pages.get(key)
        if found is None:
            number = self._take()
            found = file_attributes(number, page.size, page.mtime_ns, self.owner)
            self._pages[key] = found
            self._by_number[number] = page
        return found

    def page(self, node: int) -> Page | None:
        """Return the page with this number, or None."""
        return self._by_number.get(node)

    def known_directory(self, path: bytes) -> Node | None:
        """Return the number of a directory if it has been handed out, or None."""
        return self._directories.get(path)

    def drop(self, node: int) -> None:
        """Forget a page that nobody can come to any more."""
        page = self._by_number.pop(node, None)
        if page is not None:
            self._pages.pop(page.identity, None)

    def _take(self) -> Node:
        number = Node(self._next)
        self._next += 1
        return number


class _Listed:
    """A directory that has been asked for: its entries by name, in byte order of names."""

    __slots__ = ("attributes", "entries", "parent", "range")

    def __init__(self, parent: Node, attributes: pyfuse3.EntryAttributes) -> None:
        self.parent = parent
        self.attributes = attributes
        self.entries: Mapping[bytes, Entry] | None = None
        self.range: tuple[int, int] | None = None


class View:
    """A tree with node numbers, as one identity or several see it."""

    def __init__(self, tree: PathTree, inodes: Inodes) -> None:
        self.tree = tree
        self._inodes = inodes
        self._listed: dict[int, _Listed] = {}

    def entries(self, node: int) -> Mapping[bytes, Entry] | None:
        """Return a directory's entries by name, in byte order, or None if there is none here."""
        listed = self._directory(node)
        if listed is None:
            return None
        if listed.entries is None:
            path = self._inodes.path(node)
            listed.entries = {} if path is None else self._list(path)
        return listed.entries

    def attributes(self, node: int) -> pyfuse3.EntryAttributes | None:
        """Return a directory's attributes, without a session's number, or None."""
        listed = self._directory(node)
        return None if listed is None else listed.attributes

    @cached_property
    def directories(self) -> int:
        """How many directories there are, the root included."""
        return self.tree.count_directories()

    @cached_property
    def size(self) -> int:
        """The sum of the pages' sizes."""
        return self.tree.total_bytes

    @cached_property
    def access(self) -> Sequence[AccessKey] | None:
        """The keys of the rules met here, or None if the chunks carry none."""
        if any(page.version is None for page in self.tree.pages):
            return None
        return sorted({page.rule.key for page in self.tree.pages})

    @cached_property
    def has_ignore_files(self) -> bool:
        """Whether something here may tell ripgrep to leave out files."""
        return any(not IGNORING.isdisjoint(page.path.split(b"/")) for page in self.tree.pages)

    def range(self, node: int) -> tuple[int, int]:
        """Return where the pages below a directory begin and end in listing order."""
        listed = self._listed.get(node)
        if listed is None:
            return self._range(self._inodes.path(node))
        if listed.range is None:
            listed.range = self._range(self._inodes.path(node))
        return listed.range

    def _range(self, path: bytes | None) -> tuple[int, int]:
        pages = self.tree.pages
        if not path:
            return 0, len(pages)
        parts = path.split(b"/")
        behind = [*parts[:-1], parts[-1] + b"\0"]
        start = bisect_left(pages, parts, key=lambda page: listing_key(page.path))
        stop = bisect_left(pages, behind, lo=start, key=lambda page: listing_key(page.path))
        return start, stop

    def numbers(self, pages: Iterable[Page]) -> set[int]:
        """Return the node numbers of pages and of all directories above them."""
        found: set[int] = set()
        for page in pages:
            self._add_above(page.path, found)
            found.add(int(self._inodes.attributes(page).st_ino))
        return found

    def _add_above(self, path: bytes, found: set[int]) -> None:
        """Add the numbers of the directories above ``path`` to ``found``, the topmost first.

        Where grep sorts by number, the numbers have to follow the listing.
        """
        missing: list[bytes] = []
        while path:
            path = path.rpartition(b"/")[0]
            if self._inodes.knows(path) and self._inodes.directory(path) in found:
                break
            missing.append(path)
        for above in reversed(missing):
            number = self._inodes.directory(above)
            found.add(number)
            place = self.tree.directory(above)
            if place is not None and len(place.children) > GREP_SORTS_OVER:
                self.entries(number)

    def reaching(self, pages: Iterable[Page]) -> set[int]:
        """Return the numbers of directories from which no hidden name leads to one of ``pages``."""
        found: set[int] = set()
        for page in pages:
            above, _, name = page.path.rpartition(b"/")
            while (
                not name.startswith(b".") and (number := self._inodes.directory(above)) not in found
            ):
                found.add(number)
                if not above:
                    break
                above, _, name = above.rpartition(b"/")
        return found

    def has(self, page: Page) -> bool:
        """Return whether this version of the page is here."""
        found = self.tree.by_path.get(page.path)
        return found is not None and found.identity == page.identity

    def names(self) -> Sequence[bytes]:
        """Return the names in the root."""
        return tuple(self.tree.root.children)

    def known(self) -> Sequence[tuple[int, Sequence[bytes]]]:
        """Return the directories that have been asked for, by number, and their names."""
        return [
            (node, tuple(listed.entries)) for node, listed in self._listed.items() if listed.entries
        ]

    def parent(self, node: int) -> Node:
        """Return the number of the directory above; the root is above itself."""
        listed = self._directory(node)
        return ROOT_NODE if listed is None else listed.parent

    def _directory(self, node: int) -> _Listed | None:
        found = self._listed.get(node)
        if found is None:
            path = self._inodes.path(node)
            place = None if path is None else self.tree.directory(path)
            if place is not None:
                found = self._add(node, place)
        return found

    def _add(self, node: int, place: Directory) -> _Listed:
        above = self._inodes.directory(place.path.rpartition(b"/")[0])
        attributes = directory_attributes(
            node, place.subdirectories, place.mtime_ns, self._inodes.owner
        )
        found = self._listed[node] = _Listed(above, attributes)
        return found

    def _list(self, path: bytes) -> Mapping[bytes, Entry]:
        place = self.tree.directory(path)
        entries: dict[bytes, Entry] = {}
        for name, child in () if place is None else place.children.items():
            if isinstance(child, Directory):
                node = self._inodes.directory(child.path)
                listed = self._listed.get(node) or self._add(node, child)
                entries[name] = Entry(name, listed.attributes, node, node)
            else:
                attributes = self._inodes.attributes(child)
                entries[name] = Entry(name, attributes, 0, int(attributes.st_ino))
        return entries


class Listing(NamedTuple):
    """What an open directory lists: ``base`` is the session's part of an inode number."""

    inode: int
    parent: int
    entries: Mapping[bytes, Entry]
    base: int
    view: View


class Namespace:
    """All that a mount shows: ``views`` by session, ``root`` the session at a mount's root.

    A hub's root shows none and has no names that could be listed. ``enter`` tells the number of
    the session with a name there, and for how many seconds it stays as it is, or None.
    """

    def __init__(self, inodes: Inodes, *, is_hub: bool = False, mtime_ns: int = 0) -> None:
        self.inodes = inodes
        self.views: dict[int, View] = {}
        self.root = 0
        self.is_hub = is_hub
        self.enter: Callable[[bytes], tuple[int, float] | None] = lambda _: None
        self._hub = hub_attributes(ROOT, mtime_ns, inodes.owner)

    def view_of(self, inode: int) -> View | None:
        """Return the view that a directory's inode belongs to, or None."""
        return self.views.get(self.root if inode == ROOT else inode >> NODE_BITS)

    def attributes(self, inode: int) -> pyfuse3.EntryAttributes | None:
        """Return the attributes of ``inode``, or None if nothing here has that number."""
        page = self.inodes.page(inode)
        if page is not None:
            return self.inodes.attributes(page)
        view = self.view_of(inode)
        if view is None:
            return self._hub if inode == ROOT else None
        found = view.attributes(inode & NODE_MASK)
        return None if found is None else self.numbered(found, inode)

    def page(self, inode: int) -> Page | None:
        """Return the page with this number, or None."""
        return self.inodes.page(inode)

    def is_directory(self, inode: int) -> bool:
        """Return whether ``inode`` is a directory here."""
        return self.inodes.page(inode) is None and self.attributes(inode) is not None

    def shows(self, page: Page) -> bool:
        """Return whether some session's view has this version of the page."""
        return any(view.has(page) for view in set(self.views.values()))

    def lookup(self, parent: int, name: bytes) -> pyfuse3.EntryAttributes | None:
        """Return the attributes of a name in a directory, or None if there is no such name.

        Raises ``LookupError`` if nothing here has the directory's number.
        """
        view = self.view_of(parent)
        if view is None:
            if parent == ROOT:
                return self._enter(name)
            raise LookupError(parent)
        entries = view.entries(parent & NODE_MASK)
        if entries is None:
            raise LookupError(parent)
        if name == b".":
            return self.attributes(parent)
        if name == b"..":
            return self.attributes(self._above(view, parent))
        found = entries.get(name)
        if found is None:
            return None
        if not found.node:
            return found.attributes
        return self.numbered(found.attributes, self._base(parent) | found.node)

    def numbered(self, attributes: pyfuse3.EntryAttributes, inode: int) -> pyfuse3.EntryAttributes:
        """Make a directory's attributes those of ``inode``, its number in a session."""
        attributes.st_ino = pyfuse3.InodeT(inode)
        # That of the root of a mount is as the kernel wants it.
        attributes.generation = 0 if inode == ROOT else self.inodes.generation(inode)
        return attributes

    def _enter(self, name: bytes) -> pyfuse3.EntryAttributes | None:
        if name in (b".", b".."):
            return self._hub
        found = self.enter(name)
        if found is None:
            return None
        number, seconds = found
        inode = number << NODE_BITS | ROOT
        attributes = self.attributes(inode)
        if attributes is None:
            return None
        # Of a directory's attributes these are the only ones handed over under this node.
        attributes.entry_timeout = min(CACHE_SECONDS, seconds)
        return attributes

    def listing(self, inode: int) -> Listing | None:
        """Return a directory's listing, or None if it has none: no directory, or a hub's root."""
        view = self.view_of(inode)
        entries = None if view is None else view.entries(inode & NODE_MASK)
        if view is None or entries is None:
            return None
        return Listing(inode, self._above(view, inode), entries, self._base(inode), view)

    def inode(self, session: int, node: int) -> int:
        """Return the inode number that a directory has in a session."""
        if node == ROOT_NODE and session == self.root and not self.is_hub:
            return ROOT
        return session << NODE_BITS | node

    def _base(self, inode: int) -> int:
        return (self.root if inode == ROOT else inode >> NODE_BITS) << NODE_BITS

    def _above(self, view: View, inode: int) -> int:
        node = inode & NODE_MASK
        above = view.parent(node)
        if node == ROOT or (above == ROOT_NODE and self.root == inode >> NODE_BITS):
            return ROOT
        return self._base(inode) | above
