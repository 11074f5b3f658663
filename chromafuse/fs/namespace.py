"""Inodes over a path tree: numbers handed out in listing order, attributes made once.

``InodeTable`` gives numbers for the daemon's whole life: a directory's stays with its path, a
page's with its path *and* version, and no number is used twice. ``Namespace`` is one tree seen
through the table. Both are touched by the event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType

import pyfuse3

from chromafuse.domain.page import Page
from chromafuse.domain.tree import Directory, PathTree
from chromafuse.fs.attributes import Owner, directory_attributes, file_attributes

Inode = NewType("Inode", int)

ROOT = Inode(int(pyfuse3.ROOT_INODE))

Entry = tuple[bytes, pyfuse3.EntryAttributes]


class InodeTable:
    """Hands out inode numbers; the same thing always gets the same one."""

    def __init__(self) -> None:
        self._next = ROOT + 1
        self._numbers: dict[object, Inode] = {b"": ROOT}

    def of(self, node: Directory | Page) -> Inode:
        """Return the number of a directory (by path) or of a page (by path and version)."""
        if isinstance(node, Directory):
            return self._number(node.path)
        return self._number((node.path, node.version, node.size, node.mtime_ns))

    def _number(self, key: object) -> Inode:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = Inode(self._next)
            self._next += 1
        return number


@dataclass(slots=True)
class _Node:
    node: Directory | Page
    parent: Inode
    attributes: pyfuse3.EntryAttributes | None = None
    listing: tuple[Entry, ...] | None = None


class Namespace:
    """A tree with inodes: what lookup, getattr and readdir answer from."""

    def __init__(self, tree: PathTree, inodes: InodeTable, owner: Owner) -> None:
        self.tree = tree
        self._inodes = inodes
        self._owner = owner
        self._nodes: dict[int, _Node] = {ROOT: _Node(tree.root, ROOT)}
        self.directories = 1
        self._number_all(tree.root)

    def _number_all(self, root: Directory) -> None:
        """Give numbers in listing order, without recursion: trees nest deep."""
        stack: list[tuple[Inode, Iterable[Directory | Page]]] = [
            (ROOT, iter(root.children.values()))
        ]
        while stack:
            parent, children = stack[-1]
            for child in children:
                inode = self._inodes.of(child)
                self._nodes[inode] = _Node(child, parent)
                if isinstance(child, Directory):
                    self.directories += 1
                    stack.append((inode, iter(child.children.values())))
                    break
            else:
                stack.pop()

    def attributes(self, inode: int) -> pyfuse3.EntryAttributes | None:
        """Return the attributes of ``inode``, or None if nothing here has that number."""
        entry = self._nodes.get(inode)
        if entry is None:
            return None
        if entry.attributes is None:
            entry.attributes = self._make_attributes(inode, entry.node)
        return entry.attributes

    def _make_attributes(self, inode: int, node: Directory | Page) -> pyfuse3.EntryAttributes:
        if isinstance(node, Directory):
            return directory_attributes(inode, node.subdirectories, node.mtime_ns, self._owner)
        return file_attributes(inode, node.size, node.mtime_ns, self._owner)

    def page(self, inode: int) -> Page | None:
        """Return the page with this number, or None."""
        entry = self._nodes.get(inode)
        return entry.node if entry is not None and isinstance(entry.node, Page) else None

    def is_directory(self, inode: int) -> bool:
        """Return whether ``inode`` is a directory here."""
        entry = self._nodes.get(inode)
        return entry is not None and isinstance(entry.node, Directory)

    def lookup(self, parent: int, name: bytes) -> pyfuse3.EntryAttributes | None:
        """Return the attributes of a name in a directory, or None if there is no such name."""
        entry = self._nodes.get(parent)
        if entry is None or not isinstance(entry.node, Directory):
            return None
        if name == b".":
            return self.attributes(parent)
        if name == b"..":
            return self.attributes(entry.parent)
        child = entry.node.children.get(name)
        return None if child is None else self.attributes(self._inodes.of(child))

    def listing(self, inode: int) -> tuple[Entry, ...] | None:
        """Return a directory's entries, ``.`` and ``..`` first, names in byte order, or None."""
        entry = self._nodes.get(inode)
        if entry is None or not isinstance(entry.node, Directory):
            return None
        if entry.listing is None:
            entry.listing = tuple(self._list(inode, entry))
        return entry.listing

    def _list(self, inode: int, entry: _Node) -> Iterable[Entry]:
        assert isinstance(entry.node, Directory)  # noqa: S101 - listing() has asked
        for name, number in ((b".", inode), (b"..", int(entry.parent))):
            attributes = self.attributes(number)
            if attributes is not None:
                yield name, attributes
        for name, child in entry.node.children.items():
            attributes = self.attributes(self._inodes.of(child))
            if attributes is not None:
                yield name, attributes
