"""The stored form of the path tree, readable by tools that know only its bare shape.

One JSON object, slug -> entry::

    {"auth/oauth": {"isPublic": true, "groups": [], "size": 5120, "mtime": "1700000000.25",
                    "version": "…32 hex digits…", "chunks": 4}}

``isPublic`` and ``groups`` are the bare shape. Our additions: ``size`` in bytes, ``mtime`` in
decimal seconds since 1970 (a string, since a float loses nanoseconds), ``version``, ``chunks``,
``file`` where the file's name is not the slug's last part with ``.mdx``, ``marks`` (``cut``,
``nul``), ``access`` for rules that groups cannot say, ``why`` for what decided about access where
it was not the default: words for an operator, at which no reader of pages looks. A page whose
bytes are not in Chroma has a ``pointer`` (``url``, ``etag``) instead of ``version`` and ``chunks``,
so that a reader that does not know it finds no bytes. The object is stored as base64 of gzip;
plain JSON of other writers is read too. A text that is too long for one record is split; the first
record's metadata ``parts`` tells into how many.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from chromafuse.domain.access import HIDDEN, AccessRule, rule_from_entry, rule_to_entry
from chromafuse.domain.errors import TreeError
from chromafuse.domain.page import (
    MAX_CHUNKS,
    MAX_PAGE_BYTES,
    Page,
    Slug,
    Version,
    parse_version,
)
from chromafuse.domain.pointer import PointerProblem, pointer_from_entry, pointer_to_entry
from chromafuse.domain.tree import PathTree, Rejected, TreeVersion, build_tree

TREE_ID = "__path_tree__"
PACKED_BEGINNING = "H4sI"
"""What base64 of gzip, and with it the first record's text, begins with."""
DEFAULT_EXTENSION = ".mdx"
MAX_JSON_BYTES = 1 << 30
"""A stored tree that unpacks to more than this is refused: two million pages need less."""

_NS = 1_000_000_000
_MAX_SIZE = 1 << 62
_MAX_TIME = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TreeText:
    """An encoded tree: its version and the documents of its records, first to last."""

    version: TreeVersion
    documents: tuple[str, ...]


def part_ids(owner: str, parts: int) -> list[str]:
    """Return the ids of the records that hold a tree of ``parts`` records, first to last.

    Only the first has a fixed id: the others are complete before it names their ``owner``, the
    ingest that wrote them, which shares them with no other.
    """
    return [TREE_ID, *(f"{TREE_ID}/{owner}/{n}" for n in range(1, parts))]


def part_owner(record_id: str) -> str | None:
    """Return the owner that a further part's id names, or None if it is no such id."""
    prefix, _, rest = record_id.partition("/")
    return rest.partition("/")[0] if prefix == TREE_ID and rest else None


def encode_tree(
    pages: Iterable[Page], record_bytes: int, reasons: Mapping[Slug, str] | None = None
) -> TreeText:
    """Return the stored form of ``pages``, no record's text longer than ``record_bytes``.

    ``reasons`` tells what decided about the access of a page.
    """
    entries = {page.slug: _entry(page) for page in sorted(pages, key=lambda page: page.slug)}
    for slug, why in (reasons or {}).items():
        if why and slug in entries:
            entries[slug]["why"] = why
    raw = json.dumps(entries, ensure_ascii=True, separators=(",", ":")).encode()
    text = base64.b64encode(gzip.compress(raw, mtime=0)).decode()
    documents = [text[i : i + record_bytes] for i in range(0, len(text), record_bytes)]
    return TreeText(_version_of(raw), tuple(documents))


def text_version(document: str) -> TreeVersion:
    """Return a version for a tree whose writer gave it none."""
    return _version_of(document.encode(errors="surrogatepass"))


def _version_of(raw: bytes) -> TreeVersion:
    return TreeVersion(hashlib.blake2b(raw, digest_size=8).hexdigest())


def _entry(page: Page) -> dict[str, object]:
    entry = rule_to_entry(page.rule)
    entry["size"] = page.size
    seconds, rest = divmod(abs(page.mtime_ns), _NS)
    sign = "-" if page.mtime_ns < 0 else ""
    entry["mtime"] = f"{sign}{seconds}.{rest:09d}".rstrip("0").rstrip(".")
    if page.pointer is not None:
        entry["pointer"] = pointer_to_entry(page.pointer)
    elif page.version is not None:
        entry["version"] = page.version
    if page.chunks is not None and page.pointer is None:
        entry["chunks"] = page.chunks
    name = page.name.decode()
    if page.path.decode() != _default_path(page.slug):
        entry["file"] = page.path.decode() if _elsewhere(page) else name
    marks = [mark for mark, is_set in (("cut", page.cut), ("nul", page.nul)) if is_set]
    if marks:
        entry["marks"] = marks
    return entry


def _default_path(slug: str) -> str:
    """Return the path of a page whose entry names no file."""
    return slug if slug.endswith(DEFAULT_EXTENSION) else slug + DEFAULT_EXTENSION


def _elsewhere(page: Page) -> bool:
    return page.path.decode().rpartition("/")[0] != page.slug.rpartition("/")[0]


def unpack(document: str, limit: int = MAX_JSON_BYTES) -> bytes:
    """Return the JSON bytes of a stored text: plain, or base64 of gzip.

    Raises ``TreeError`` if it is neither, is damaged, or unpacks to more than ``limit`` bytes.
    """
    if document.lstrip()[:1] == "{":
        return document.encode(errors="surrogatepass")
    try:
        packed = base64.b64decode(document.strip(), validate=True)
        unpacker = zlib.decompressobj(wbits=31)
        raw = unpacker.decompress(packed, limit)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise TreeError(f"the path tree is damaged: {error}", remedy=_AGAIN) from None
    if unpacker.unconsumed_tail:
        raise TreeError(f"the path tree unpacks to more than {limit} bytes", remedy=_AGAIN)
    if not unpacker.eof:
        raise TreeError("the path tree is cut off", remedy=_AGAIN)
    return raw


_AGAIN = "run `chromafuse ingest` again"


def decode_tree(
    document: str,
    version: TreeVersion,
    *,
    default_mtime_ns: int,
    empty_groups: AccessRule = HIDDEN,
) -> PathTree:
    """Return the tree that ``document`` (the joined texts of its records) holds.

    Pages whose entry does not tell size, version and number of chunks have ``version`` None and
    ``size`` 0: the caller measures them before anybody sees them. Raises ``TreeError``.
    """
    entries = _entries(document)
    pages: list[Page] = []
    rejected: list[Rejected] = []
    for slug, entry in entries.items():
        try:
            path = _path(slug, entry)
            marks = entry if isinstance(entry, dict) else {}
            rule = rule_from_entry(marks, empty_groups=empty_groups)
            pages.append(_page(Slug(slug), path, rule, marks, default_mtime_ns))
        except UnicodeEncodeError:
            rejected.append(Rejected(slug, "name not UTF-8"))
        except PointerProblem as bad:
            rejected.append(Rejected(slug, f"pointer {bad}"))
        except _BadEntry as bad:
            rejected.append(Rejected(slug, str(bad)))
    return build_tree(pages, version, rejected)


def raw_entry(document: str, slug: str) -> Mapping[str, object]:
    """Return a page's entry as it is stored; empty if it is no object. Raises ``TreeError``."""
    entry = _entries(document).get(slug)
    return entry if isinstance(entry, dict) else {}


def _entries(document: str) -> dict[str, object]:
    try:
        entries = json.loads(unpack(document), object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError) as error:
        raise TreeError(f"the path tree is not JSON: {error}", remedy=_AGAIN) from None
    if not isinstance(entries, dict):
        raise TreeError("the path tree is not a JSON object", remedy=_AGAIN)
    return entries


def _unambiguous(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs as a dictionary in which a key that stands twice has the value None.

    Which of the two is meant nobody can tell; None is neither an entry nor an access mark, so
    that the page is hidden.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                found[name] = None
            seen.add(name)
    return found


class _BadEntry(Exception):
    """The entry cannot be shown; the text says why."""


def _path(slug: str, entry: object) -> bytes:
    if not slug:
        raise _BadEntry("empty name")
    slug.encode()  # also where a file is named: messages and requests hold the slug
    file = entry.get("file") if isinstance(entry, dict) else None
    if file is None:
        path = _default_path(slug)
    elif not isinstance(file, str):
        raise _BadEntry("file name is not text")
    elif "/" in file:
        path = file
    else:
        above, slash, _ = slug.rpartition("/")
        path = above + slash + file
    if slug.rpartition("/")[2] == "" and file is None:
        raise _BadEntry("empty name")
    return path.encode()


def _page(
    slug: Slug, path: bytes, rule: AccessRule, entry: Mapping[str, object], default_mtime_ns: int
) -> Page:
    mtime_ns = _mtime_ns(entry.get("mtime", entry.get("updated_at")), default_mtime_ns)
    if "pointer" in entry:
        pointer = pointer_from_entry(entry["pointer"], entry.get("size"))
        shown = Version(pointer.version)
        return Page(slug, path, rule, pointer.size, mtime_ns, shown, 0, pointer=pointer)
    version = parse_version(entry.get("version"))
    size, chunks = _count(entry.get("size")), _count(entry.get("chunks"))
    if version is None or size is None or not chunks or chunks > max(1, size):
        return Page(slug, path, rule, 0, mtime_ns)
    if size > MAX_PAGE_BYTES or chunks > MAX_CHUNKS:
        damage = f"its tree entry tells {size} bytes in {chunks} chunks, which no ingest writes"
        return Page(slug, path, rule, 0, mtime_ns, version, damage=damage)
    given = entry.get("marks")
    marks = given if isinstance(given, list) else []
    return Page(slug, path, rule, size, mtime_ns, version, chunks, "cut" in marks, "nul" in marks)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_SIZE:
        return None
    return value


def _mtime_ns(value: object, default_ns: int) -> int:
    """Return seconds since 1970 (number or decimal string) or an ISO date in nanoseconds."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return default_ns
        if isinstance(value, str) and ("T" in value or value.count("-") == 2):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000
        seconds = Decimal(value)
        # Checked first: a text of eight characters may stand for a million digits.
        nanoseconds = int(seconds * _NS) if seconds.adjusted() < 10 else _MAX_TIME
    except (ValueError, OverflowError, InvalidOperation):
        return default_ns
    return nanoseconds if abs(nanoseconds) < _MAX_TIME else default_ns
