"""Objects outside Chroma that an ingest registers: where they appear, and who sees them.

An object is never stored, only named in the tree with its size and version. A specification that
has no place of its own appears below ``api-specs/``; everything else keeps the path that it has
below the place it is found in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from chromafuse.domain.access import AUTHENTICATED, AccessRule, all_of
from chromafuse.domain.errors import BlobMissing
from chromafuse.domain.page import Page, Slug, Version
from chromafuse.domain.pointer import Place, Registration
from chromafuse.domain.tree import path_problem
from chromafuse.ingest.report import Omission, printable
from chromafuse.ingest.stated import Stated
from chromafuse.ports import Blob, BlobReader, Skipped

SPECS = "api-specs"
HEAD_BYTES = 64 << 10
"""So much of a file is looked at for the key that makes it a specification."""
SPEC_ENDINGS = (".json", ".yaml", ".yml")

_KINDS = ("openapi", "asyncapi")
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]')
_YAML_KEY = re.compile(rb"""^(["']?)(?:openapi|asyncapi)\1[ \t]*:""", re.MULTILINE)
_NESTING = ("tabs", "groups", "pages", "anchors", "dropdowns", "products", "versions", "languages")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Registered:
    """An object, and the path at which it appears."""

    rel: str
    blob: Blob

    @property
    def name(self) -> str:
        """What pages that use it call it."""
        return self.blob.pointer.location.name


def is_specification(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is an OpenAPI or AsyncAPI specification."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] != b"{":
        return _YAML_KEY.search(head) is not None
    depth = 0
    for token in _TOKEN.finditer(head):
        mark = token[0][:1]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
        elif depth == 1 and token[2] is not None and token[1] in (b"openapi", b"asyncapi"):
            return True
    return False


def find_objects(
    registrations: Iterable[Registration], blobs: BlobReader
) -> tuple[list[Registered], list[Omission]]:
    """Return what ``registrations`` name as it is now, by path, and what has no path.

    Raises ``StoreError``: with an object that cannot be asked for, the site would be another one.
    """
    found: dict[str, Registered] = {}
    omissions = []
    items: list[Registered] = []
    for registration in registrations:
        try:
            here = list(_find(registration, blobs))
        except BlobMissing as error:
            remedy = "correct --pointers, or [pointers] in the configuration"
            raise BlobMissing(str(error.args[0]), remedy=remedy) from None
        if not here and isinstance(registration, Place):
            omissions.append(Omission(printable(registration.url), "holds no object", lost=True))
        for item in here:
            if isinstance(item, Skipped):
                omissions.append(Omission(printable(item.where), item.reason, lost=True))
            else:
                items.append(item)
    for item in items:
        problem = path_problem(item.rel.encode())
        if item.rel in found and found[item.rel] != item:
            problem = f"{found[item.rel].blob.pointer.location.url} has the same path"
        if problem:
            where = printable(item.blob.pointer.location.url)
            omissions.append(Omission(where, problem, lost=True))
        else:
            found.setdefault(item.rel, item)
    return [found[rel] for rel in sorted(found)], omissions


def _find(registration: Registration, blobs: BlobReader) -> Iterator[Registered | Skipped]:
    if not isinstance(registration, Place):
        path, location = registration
        yield Registered(path, blobs.head(location))
        return
    for blob in blobs.scan(registration):
        if isinstance(blob, Skipped):
            yield blob
            continue
        key = blob.pointer.location.key
        rel = key[len(registration.prefix) :].lstrip("/") if registration.prefix else key
        yield Registered(f"{SPECS}/{rel}" if _has_specification(blob, blobs) else rel, blob)


def _has_specification(blob: Blob, blobs: BlobReader) -> bool:
    pointer = blob.pointer
    if not pointer.location.name.lower().endswith(SPEC_ENDINGS):
        return False
    return is_specification(blobs.read(pointer, 0, min(pointer.size, HEAD_BYTES)))


class Users:
    """The pages that use objects, as an ingest meets them.

    A specification repeats what pages say, so whoever may not see one of those may not see it.
    To mention an object's name is to use it: too strict is repaired by a rule, too open by nobody.
    ``ruled`` is what the rule file states of each object, which then decides.
    """

    def __init__(self, objects: Sequence[Registered], ruled: Sequence[Stated | None]) -> None:
        self._ruled = {item.rel: stated for item, stated in zip(objects, ruled, strict=True)}
        self._names = {item.name for item in objects}
        self._users: dict[str, dict[str, AccessRule]] = {name: {} for name in self._names}
        self._rules: dict[str, AccessRule] = {}
        self._sites: list[tuple[str, str]] = []

    @property
    def stated(self) -> set[AccessRule]:
        """What the rule file states of objects."""
        return {stated.rule for stated in self._ruled.values() if stated is not None}

    def note(self, rel: str, text: str, rule: AccessRule) -> None:
        """Note a page or another file of the tree."""
        self._rules[rel] = rule
        for name in self._names:
            if name in text:
                self._users[name][rel] = rule

    def note_site(self, rel: str, text: str) -> None:
        """Note a file of the navigation; those come last."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        for name in self._names:
            if name in text:
                self._users[name].update(self._listed(rel, document, name, public=True))

    def rule(self, item: Registered, default: AccessRule) -> tuple[AccessRule, str]:
        """Return who may see an object, and why."""
        ruled = self._ruled[item.rel]
        if ruled is not None:
            return ruled.rule, ruled.why
        users = self._users[item.name]
        if not users:
            return default, ""
        shown = ", ".join(sorted(users)[:_SHOWN]) + (" …" if len(users) > _SHOWN else "")
        return all_of([default, *users.values()]), f"used by {printable(shown)}"

    def _listed(
        self, site: str, node: object, name: str, *, public: bool, used: bool = False
    ) -> dict[str, AccessRule]:
        """Return the rules of the navigation's pages below nodes that name the object."""
        found: dict[str, AccessRule] = {}
        if isinstance(node, str):
            for rel in (node, f"{node}.mdx", f"{node}.md"):
                if used and rel.lstrip("/") in self._rules:
                    found[rel.lstrip("/")] = self._rules[rel.lstrip("/")]
        elif isinstance(node, list):
            for child in node:
                found |= self._listed(site, child, name, public=public, used=used)
        elif isinstance(node, dict):
            public = node.get("public", public) is not False
            used = used or any(name in json.dumps(node.get(kind)) for kind in _KINDS)
            if used and not public:
                found[site] = AUTHENTICATED
            for key in ("navigation", "root", *_NESTING):
                found |= self._listed(site, node.get(key), name, public=public, used=used)
        return found


def place_of(item: Registered, paths: Mapping[str, object], above: set[str]) -> str | None:
    """Return why an object cannot appear at its path beside pages with ``paths``, or None."""
    parts = item.rel.split("/")
    if item.rel in paths or item.rel in above:
        return f"/{printable(item.rel)} is a page or a directory of the tree"
    if any("/".join(parts[:n]) in paths for n in range(1, len(parts))):
        return f"a page stands above /{printable(item.rel)}"
    return None


def page_of(item: Registered, rule: AccessRule, slugs: set[Slug]) -> Page:
    """Return the page of an object, with a slug that is none of ``slugs``."""
    names = (Slug(item.rel if n == 1 else f"{item.rel}~{n}") for n in count(1))
    pointer = item.blob.pointer
    return Page(
        next(slug for slug in names if slug not in slugs),
        item.rel.encode(),
        rule,
        pointer.size,
        item.blob.mtime_ns,
        Version(pointer.version),
        0,
        pointer=pointer,
    )
