"""Run by test_faults: the real operations over parts that raise what nobody foresaw."""

from __future__ import annotations

import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

import pyfuse3
import trio

from chromafuse.fs import session
from chromafuse.fs.attributes import Owner, directory_attributes, file_attributes
from chromafuse.fs.operations import Operations, serve


class Sabotaged:
    """Stands for a namespace: five names can be looked up, everything else divides by zero."""

    def __init__(self) -> None:
        owner = Owner(os.geteuid(), os.getegid())
        self.root = directory_attributes(1, 0, 0, owner)
        self.names = {
            b"d": directory_attributes(2, 0, 0, owner),
            b"f": file_attributes(3, 10, 0, owner),
            b"stale": file_attributes(4, 10, 0, owner),
            b"unread": file_attributes(5, 10, 0, owner),
            b"unlisted": directory_attributes(6, 0, 0, owner),
        }
        self.names[b"stale"].attr_timeout = 0

    def lookup(self, _parent: int, name: bytes) -> pyfuse3.EntryAttributes | None:
        if name not in self.names:
            raise ZeroDivisionError(name)
        return self.names[name]

    def attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        if inode == 1:
            return self.root
        raise ZeroDivisionError(inode)

    def page(self, inode: int) -> object:
        return object() if inode == 5 else 1 / 0

    def open(self, _page: object, *, ahead: bool = True) -> Sabotaged:
        """Stand for a reader: what it returns has no data."""
        return self

    def listing(self, inode: int) -> object:
        return SimpleNamespace(entries={}, inode=6) if inode == 6 else 1 / 0

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    parts: Any = Sabotaged()
    session.attach(Operations(parts, parts), sys.argv[1], "sabotaged", allow_other=False)
    try:
        trio.run(serve)
    finally:
        session.detach(sys.argv[1], None)


if __name__ == "__main__":
    main()
