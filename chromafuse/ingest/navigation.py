"""The navigation of a Mintlify site: which pages it names, and what it says of their access.

Mintlify's own rules: ``$ref`` may stand anywhere in ``docs.json`` and is replaced by the file it
names, relative to the file that holds it, with the keys beside it laid over.
"""

from __future__ import annotations

import json
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from chromafuse.domain.access import AUTHENTICATED, HIDDEN, PUBLIC, AccessRule
from chromafuse.domain.errors import IngestError
from chromafuse.ingest.report import Notice, printable

MAX_CONFIG_BYTES = 16 * 1024 * 1024
"""Bytes of ``docs.json`` and of all it refers to; more is refused."""

_MAX_REFS = 32
_MAX_DEPTH = 100
_MAX_NODES = 1_000_000
_CONTAINERS = (
    *("global", "languages", "versions", "products", "tabs", "menu", "dropdowns", "anchors"),
    *("groups", "root", "page", "pages"),
)
# What a node says of itself. Any other key may hold pages of a kind that is not known here.
_LABELS = frozenset(
    {"$schema", "anchor", "asyncapi", "color", "default", "description", "directory", "drawer"}
    | {"dropdown", "expanded", "group", "hidden", "href", "icon", "iconType", "item", "language"}
    | {"name", "openapi", "product", "public", "searchable", "tab", "tag", "tags", "title", "url"}
    | {"api", "background", "banner", "footer", "logo", "navbar", "theme", "version"}
)
_NAMES = ("group", "tab", "anchor", "dropdown", "item", "version", "language", "product", "page")
_SHOWN = 60
_ENDPOINT = re.compile(
    r"(?:\S+\s+)?(?:get|post|put|patch|delete|head|options|trace|connect|webhook)\s+\S.*", re.I
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One occurrence of a page in the navigation.

    ``page`` is the path as written without a leading ``/`` or ``./``; ``hidden`` tells that a node
    above it is hidden; ``rule`` is what the nearest node that states ``public`` says, and
    ``origin`` names that node. An entry is ``implied`` if it stands below a key that is not known:
    it may close a page, but not show one.
    """

    page: str
    hidden: bool
    rule: AccessRule | None
    implied: bool = False
    origin: str = field(default="", compare=False)

    @property
    def closes(self) -> bool:
        """Whether its rule takes something away from readers."""
        return self.rule not in (None, PUBLIC)


@dataclass(frozen=True, slots=True)
class Navigation:
    """A site's navigation in order; ``entries`` is None if the site has none.

    ``site_files`` are the paths, inside the site and free of symlinks, of all files it was read
    from.
    """

    entries: tuple[Entry, ...] | None = None
    site_files: frozenset[str] = frozenset()
    notices: tuple[Notice, ...] = ()


Load = Callable[[str, int], tuple[str, bytes]]
"""Takes a path inside the site and a limit in bytes; returns the path with symlinks resolved and
the content; raises ``IngestError`` with the reason alone."""


def read_navigation(name: str, load: Load, *, lenient: bool = False) -> Navigation:
    """Return the navigation in the file ``name`` (``docs.json`` or ``mint.json``).

    With ``lenient`` a file that is JSON but no object has none. Raises ``IngestError`` if the
    file, or one it refers to, cannot be understood.
    """
    files = _Files(load)
    document = files.read(name, printable(name))
    if not isinstance(document, dict):
        if lenient:
            return Navigation(None, frozenset(files.real))
        raise IngestError(f"{printable(name)} is not a JSON object", remedy="mend the file")
    whole = _Expander(files, name).expand(document, name)
    if not isinstance(whole, dict):
        raise IngestError(f"{printable(name)}: its $ref does not lead to a JSON object")
    site_files = frozenset(files.real)
    if "navigation" not in whole:
        return Navigation(None, site_files)
    navigation = whole["navigation"]
    if not isinstance(navigation, dict | list):
        raise IngestError(f"{printable(name)}: `navigation` is neither an object nor a list")
    walk = _Walk(name)
    entries = tuple(walk.entries(navigation, _Above()))
    return Navigation(entries, site_files, tuple(walk.notices))


def is_endpoint(entry: str) -> bool:
    """Return whether ``entry`` names an operation of an API, such as ``GET /users``."""
    return _ENDPOINT.fullmatch(entry) is not None


def page_names(page: str) -> list[str]:
    """Return the paths that the entry ``page`` may mean: as written first, then made plain."""
    plain = page
    for _ in range(3):
        plain = urllib.parse.unquote(plain)
    plain = re.split("[?#]", plain.replace("\\", "/"), maxsplit=1)[0]
    plain = "/".join(part.strip() for part in plain.split("/"))
    names = [page, _clean(page), _clean(plain)]
    names.append(re.sub(r"\.html?$", "", names[-1], flags=re.IGNORECASE))
    return list(dict.fromkeys(names))


def _clean(path: str) -> str:
    path = posixpath.normpath(path.strip().strip("/"))
    return "" if path == "." else path


@dataclass(slots=True)
class _Files:
    """The JSON files read so far, each of them once."""

    load: Load
    room: int = MAX_CONFIG_BYTES
    real: set[str] = field(default_factory=set)
    documents: dict[str, object] = field(default_factory=dict)

    def read(self, rel: str, where: str) -> object:
        """Return the document ``rel``; ``where`` is what an error begins with."""
        if rel in self.documents:
            return self.documents[rel]
        try:
            real, data = self.load(rel, self.room)
        except IngestError as error:
            raise IngestError(f"{where}: {error.args[0]}") from None
        self.room -= len(data)
        self.real.add(real)
        try:
            document: object = json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else "is not JSON"
            if isinstance(error, json.JSONDecodeError):
                reason += f" (line {error.lineno}: {error.msg})"
            elif isinstance(error, RecursionError):
                reason = "is nested too deeply"
            raise IngestError(f"{where} {reason}", remedy="mend the file") from None
        self.documents[rel] = document
        return document


@dataclass(slots=True)
class _Expander:
    """Replaces every ``$ref``; what several references share is shared in the result."""

    files: _Files
    site: str
    done: dict[str, object] = field(default_factory=dict)
    # The files whose content is being expanded, outermost first: a file in it again is a cycle.
    active: list[str] = field(default_factory=list)

    def expand(self, value: object, holder: str, depth: int = 0) -> object:
        if depth > _MAX_DEPTH:
            raise IngestError(f"{printable(holder)} is nested too deeply")
        if isinstance(value, list):
            return [self.expand(item, holder, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        siblings = {
            key: self.expand(item, holder, depth + 1)
            for key, item in value.items()
            if key != "$ref"
        }
        if "$ref" not in value:
            return siblings
        target = self._follow(value["$ref"], holder, depth + 1)
        return {**target, **siblings} if isinstance(target, dict) else target

    def _follow(self, ref: object, holder: str, depth: int) -> object:
        where = f'{printable(holder)}: $ref "{printable(str(ref))}"'
        if not isinstance(ref, str) or not _is_path(ref):
            raise IngestError(f"{where} is not a path", remedy="name a file of the site")
        rel = posixpath.normpath(posixpath.join(posixpath.dirname(holder), ref))
        if ref.startswith("/") or rel == ".." or rel.startswith("../"):
            raise IngestError(
                f"{where} leads out of the site", remedy="use a relative path to a file of the site"
            )
        if rel in self.active or rel == self.site:
            raise IngestError(f"{where} leads in a circle", remedy="remove one of the references")
        if len(self.active) >= _MAX_REFS:
            raise IngestError(f"{where} is the end of more than {_MAX_REFS} references in a row")
        if rel not in self.done:
            self.active.append(rel)
            self.done[rel] = self.expand(self.files.read(rel, where), rel, depth)
            self.active.pop()
        return self.done[rel]


@dataclass(frozen=True, slots=True)
class _Above:
    """What the nodes above say."""

    hidden: bool = False
    rule: AccessRule | None = None
    implied: bool = False
    origin: str = ""


@dataclass(slots=True)
class _Walk:
    """Collects the entries of an expanded navigation."""

    site: str
    notices: list[Notice] = field(default_factory=list)
    nodes: int = 0
    complained: set[str] = field(default_factory=set)

    def entries(self, node: object, above: _Above) -> Iterator[Entry]:
        """Yield the entries in and below ``node``."""
        # Shared references make few bytes of JSON into exponentially many nodes.
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise IngestError(f"{printable(self.site)}: the navigation has too many entries")
        if isinstance(node, str):
            entry = Entry(_normal(node), above.hidden, above.rule, above.implied, above.origin)
            if entry.closes or not above.implied:
                yield entry
        elif isinstance(node, list):
            for item in node:
                yield from self.entries(item, above)
        elif isinstance(node, dict):
            here = replace(above, hidden=above.hidden or _is_on(node.get("hidden")))
            if "public" in node:
                here = replace(here, rule=self._rule(node["public"]), origin=_origin(node))
            for key in _pages_keys(node):
                below = above.implied or key not in _CONTAINERS
                yield from self.entries(node[key], replace(here, implied=below))
        elif not above.implied:
            self._complain("an entry that is neither a path nor a group is passed over")

    def _rule(self, public: object) -> AccessRule:
        if isinstance(public, bool):
            return PUBLIC if public else AUTHENTICATED
        self._complain("`public` is not true or false: pages below it are hidden from everybody")
        return HIDDEN

    def _complain(self, text: str) -> None:
        if text not in self.complained:
            self.complained.add(text)
            self.notices.append(Notice(printable(self.site), f"in the navigation, {text}"))


def _pages_keys(node: Mapping[str, object]) -> list[str]:
    """Return the keys of ``node`` below which pages stand: the known ones first, in their order."""
    known = [key for key in _CONTAINERS if key in node]
    return known + [key for key in node if key not in _CONTAINERS and key not in _LABELS]


def _origin(node: Mapping[str, object]) -> str:
    """Return in words which node states ``public``, and what."""
    name = next(((key, node[key]) for key in _NAMES if isinstance(node.get(key), str)), None)
    subject = "a node" if name is None else f'{name[0]} "{printable(str(name[1])[:_SHOWN])}"'
    public = node["public"]
    words = str(public).lower() if isinstance(public, bool) else "neither true nor false"
    return f"{subject} has public: {words}"


def _is_on(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _is_path(ref: str) -> bool:
    try:
        ref.encode()
    except UnicodeEncodeError:
        return False
    return ref != "" and "\0" not in ref


def _normal(entry: str) -> str:
    return entry.removeprefix("./").strip("/")
