"""The daemon's answer to ``search``: what ``cgrep`` asks for before it becomes grep.

The request names a command line; the answer tells which files can matter to it, and the process
that asks is shown only those from then on, whatever it executes. With ``narrow: false`` it is shown
everything. With ``explain: true`` nothing is changed, and the answer tells what was found and how.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from chromafuse.control import PEER
from chromafuse.domain.errors import ConfigError
from chromafuse.domain.pattern import (
    ALL,
    All,
    And,
    Fold,
    Literal,
    Needs,
    Program,
    Query,
    Search,
    analyse,
)
from chromafuse.fs.namespace import NODE_MASK, ROOT, Namespace
from chromafuse.fs.narrowing import Narrower

Request = Mapping[str, object]

_FIELDS = {"command", PEER, "program", "argv", "environ", "files", "places", "narrow", "explain"}
MAX_PLACES = 64
"""Directories of one search that are looked at before it lists them."""


class SearchHandler:
    """The command ``search``."""

    def __init__(self, namespace: Namespace, narrower: Narrower) -> None:
        self._namespace = namespace
        self._narrower = narrower

    async def search(self, request: Request) -> Request:
        """Narrow what the process that asks is shown, or explain what it would be shown."""
        if unknown := set(request) - _FIELDS:
            raise ConfigError(f"unknown fields {', '.join(sorted(unknown))}")
        peer = request[PEER]
        assert isinstance(peer, int)  # noqa: S101 - put there by the socket's server
        if request.get("narrow") is False:
            with suppress(ConfigError):  # who cannot be watched is shown everything anyway
                self._expect(peer, None)
            return {"needs": Needs.EVERYTHING.value, "reason": "--no-pushdown"}
        begun = time.perf_counter()
        search = _analysed(request)
        seconds = time.perf_counter() - begun
        narrows = search.needs is Needs.CANDIDATES and search.recursive
        if request.get("explain") is True:
            return {
                **_told(search),
                "analysis_seconds": seconds,
                "hide_over": self._narrower.hide_over,
                **await self._found(request, search),
            }
        self._expect(peer, search if narrows else None)
        if narrows:
            for _, inode in self._inodes(request):
                view = self._namespace.view_of(inode)
                if view is not None:
                    self._narrower.narrow(view, inode & NODE_MASK, search.query)
        return _told(search)

    def _expect(self, peer: int, search: Search | None) -> None:
        try:
            self._narrower.callers.expect(peer, search)
        except OSError as error:
            raise ConfigError(f"process {peer} cannot be watched: {error.strerror}") from None

    async def _found(self, request: Request, search: Search) -> Request:
        """Return what is found at each place."""
        places = []
        for place, inode in self._inodes(request):
            view = self._namespace.view_of(inode)
            if view is None or isinstance(search.query, All):
                continue
            start, stop = view.range(inode & NODE_MASK)
            narrowed = self._narrower.narrow(view, inode & NODE_MASK, search.query)
            known = narrowed.done.is_set()
            await narrowed.done.wait()
            found = narrowed.findings
            among = [p for p in view.tree.pages[start:stop] if not self._narrower.hides(p)]
            below = {page.path for page in among}
            session = os.fsencode(place).split(b"/")[0] + b"/" if self._namespace.is_hub else b""
            candidates = (
                None
                if found.candidates is None
                else [
                    os.fsdecode(session + page.path)
                    for page in found.candidates
                    if page.path in below
                ]
            )
            places.append(
                {
                    "place": place,
                    "pages": len(among),
                    "candidates": candidates,
                    "reason": found.reason,
                    "remembered": known,
                    "tested": found.tested,
                    "asked": found.asked,
                    "matching_chunks": found.matching_chunks,
                    "memory_seconds": found.memory_seconds,
                    "chroma_seconds": found.chroma_seconds,
                    "fetch_seconds": found.fetch_seconds,
                }
            )
        return {"places": places}

    def _inodes(self, request: Request) -> list[tuple[str, int]]:
        """Return the directories that ``places`` name; what is none is left out."""
        found: list[tuple[str, int]] = []
        given = [item.strip("/") for item in _texts(request.get("places", []), "places")]
        for place in given[:MAX_PLACES]:
            inode: int = ROOT
            for name in os.fsencode(place).split(b"/"):
                if name in (b"", b"."):
                    continue
                try:
                    attributes = self._namespace.lookup(inode, name)
                except LookupError:
                    attributes = None
                if attributes is None:
                    inode = 0
                    break
                inode = int(attributes.st_ino)
            is_page = self._namespace.page(inode) is not None
            if inode and not is_page and self._namespace.view_of(inode) is not None:
                found.append((place, inode))
        return found


def _analysed(request: Request) -> Search:
    """Return what the command line of a request searches. Raises ``ConfigError``."""
    try:
        program = Program(request.get("program", "grep"))
    except ValueError:
        raise ConfigError("program is none that is known") from None
    argv = [os.fsencode(word) for word in _texts(request.get("argv", []), "argv")]
    environ = _mapping(request.get("environ", {}), "environ")
    files = _mapping(request.get("files", {}), "files")
    return analyse(program, argv, environ, files.get)


def _texts(value: object, name: str) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{name} is not a list of texts")
    return value


def _mapping(value: object, name: str) -> Mapping[bytes, bytes]:
    """Return a mapping of texts as bytes; what is no UTF-8 comes as surrogates."""
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ConfigError(f"{name} is not a mapping of texts")
    try:
        return {os.fsencode(key): os.fsencode(item) for key, item in value.items()}
    except UnicodeEncodeError:
        raise ConfigError(f"{name} holds what is no text") from None


def _told(search: Search) -> Request:
    return {
        "needs": search.needs.value,
        "recursive": search.recursive,
        "reason": search.reason,
        "query": describe(search.query),
    }


def describe(query: Query) -> str:
    """Return a query in words, for a person."""
    if query == ALL or isinstance(query, All):
        return "any text"
    if isinstance(query, Literal):
        return repr(query.text) + ("" if query.fold is Fold.NONE else " in any case")
    word = " and " if isinstance(query, And) else " or "
    return word.join(
        describe(part) if isinstance(part, Literal) else f"({describe(part)})"
        for part in query.parts
    )
