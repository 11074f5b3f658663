"""The path tree as it lies in a collection: loading it whole, and measuring what it leaves out.

A tree switch is one write of the record ``__path_tree__``. Further records of a split tree are
complete before that write and deleted some time after the next one, so a reader that meets a
missing part has been overtaken and begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from chromafuse.domain.access import HIDDEN, AccessRule
from chromafuse.domain.errors import StoreError, TreeError, TreeMissing
from chromafuse.domain.page import (
    Metadata,
    MetadataValue,
    Page,
    Record,
    chunk_ids,
    chunk_index,
    page_slug,
)
from chromafuse.domain.tree import PathTree, TreeVersion, build_tree
from chromafuse.domain.treecodec import TREE_ID, decode_tree, part_ids, text_version
from chromafuse.ports import ChunkReader

FORMAT = 1
"""The ``format`` of the trees we write; a greater one was written by a later program."""

_TRIES = 5


class Head(NamedTuple):
    """What the first record's metadata tells; for a tree of another writer, that it has one part.

    ``parts`` is 0 where the number is damaged.
    """

    version: TreeVersion | None
    parts: int
    switched_ns: int | None
    owner: str | None


def head_metadata(version: TreeVersion, parts: int, switched_ns: int, owner: str) -> Metadata:
    """Return the metadata of the first record of a tree of ours; ``owner`` wrote its parts."""
    return {
        "format": FORMAT,
        "tree_version": version,
        "parts": parts,
        "owner": owner,
        "switched_ns": str(switched_ns),
    }


def parse_head(metadata: Metadata) -> Head:
    """Return what ``metadata`` tells. Raises ``TreeError`` for a format of a later program."""
    written = metadata.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise TreeError(
            f"the path tree has format {written}, this program knows {FORMAT}",
            remedy="update chromafuse",
        )
    version, parts = metadata.get("tree_version"), metadata.get("parts", 1)
    owner = metadata.get("owner")
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= 100_000:
        parts = 0
    return Head(
        TreeVersion(version) if isinstance(version, str) else None,
        parts,
        _nanoseconds(metadata.get("switched_ns")),
        owner if isinstance(owner, str) else None,
    )


def _nanoseconds(value: MetadataValue | None) -> int | None:
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 19:
        return None
    return int(value) if int(value) < 1 << 63 else None


def head_version(reader: ChunkReader) -> TreeVersion | None:
    """Return the version of the stored tree, or None without a tree of ours: one small read."""
    metadata = reader.metadata(TREE_ID)
    return None if metadata is None else parse_head(metadata).version


class TreeText(NamedTuple):
    """A stored tree before it is decoded. ``is_ours`` is false for one of another writer."""

    version: TreeVersion
    document: str
    switched_ns: int | None
    is_ours: bool


def fetch_text(reader: ChunkReader) -> TreeText:
    """Return the stored tree's text, all parts joined.

    Raises ``TreeMissing``, ``TreeError``, ``StoreError``.
    """
    for _ in range(_TRIES):
        found = reader.get([TREE_ID])
        if not found or found[0].document is None:
            raise TreeMissing(
                f"there is no path tree in {reader.description}",
                remedy="fill it with `chromafuse ingest`",
            )
        head = parse_head(found[0].metadata)
        if head.parts == 0:
            raise TreeError("the path tree's number of parts is damaged", remedy="ingest again")
        first = found[0].document
        version = head.version or text_version(first)
        rest = _rest(reader, part_ids(head.owner or version, head.parts)[1:])
        if rest is not None:
            return TreeText(version, first + rest, head.switched_ns, head.version is not None)
    raise TreeError(
        f"parts of the path tree are missing in {reader.description}",
        remedy="run `chromafuse ingest` again",
    )


def decode_text(
    text: TreeText, *, default_mtime_ns: int, empty_groups: AccessRule = HIDDEN
) -> PathTree:
    """Return the tree that ``text`` holds; pages of another writer's tree are not measured yet.

    ``default_mtime_ns`` is the time of pages whose entry tells none, unless the tree tells when it
    was written. Raises ``TreeError``.
    """
    return decode_tree(
        text.document,
        text.version,
        default_mtime_ns=text.switched_ns or default_mtime_ns,
        empty_groups=empty_groups,
    )


def load_tree(
    reader: ChunkReader, *, default_mtime_ns: int, empty_groups: AccessRule = HIDDEN
) -> PathTree:
    """Return the stored tree, fetched and decoded. Raises as those two do."""
    return decode_text(
        fetch_text(reader), default_mtime_ns=default_mtime_ns, empty_groups=empty_groups
    )


def _rest(reader: ChunkReader, ids: Sequence[str]) -> str | None:
    """Return the joined texts of the further parts, or None if one is missing."""
    texts = {record.id: record.document for record in reader.get(ids)}
    if len(texts) < len(ids) or None in texts.values():
        return None
    return "".join(texts[part_id] or "" for part_id in ids)


class _Measured:
    """What a scan has seen of one page's chunks."""

    __slots__ = ("damage", "indices", "nul", "open_ended", "size")

    def __init__(self) -> None:
        self.size = 0
        self.nul = False
        self.open_ended: set[int] = set()
        self.indices: set[int] = set()
        self.damage: str | None = None

    def add(self, record: Record) -> None:
        index = chunk_index(record.metadata)
        if record.document is None or index is None or index in self.indices:
            self.damage = "a chunk is doubled, or has no text or no usable chunk_index"
            return
        self.indices.add(index)
        self.size += len(record.document.encode())
        self.nul = self.nul or "\0" in record.document
        if not record.document.endswith("\n"):
            self.open_ended.add(index)

    @property
    def cut(self) -> bool:
        """Whether some line may stand in two chunks."""
        return bool(self.open_ended - {max(self.indices, default=0)})

    def verdict(self) -> str | None:
        if self.damage is None and max(self.indices, default=-1) != len(self.indices) - 1:
            return "a chunk is missing"
        return self.damage


def needs_measuring(tree: PathTree) -> bool:
    """Return whether some page's size is not known yet."""
    return any(page.version is None for page in tree.pages)


def measure(reader: ChunkReader, tree: PathTree) -> PathTree:
    """Return ``tree`` with the sizes of all pages that did not tell theirs.

    Reads the collection once, in bulk, holding numbers only. A page whose chunks are missing or
    doubled gets its ``damage``. Raises ``StoreError``.
    """
    unknown = {str(page.slug): _Measured() for page in tree.pages if page.version is None}
    for record in _chunks(reader):
        slug = page_slug(record.metadata)
        if slug in unknown:
            unknown[slug].add(record)
    pages = [_measured(page, unknown) for page in tree.pages]
    return build_tree(pages, tree.version, tree.rejected)


def _chunks(reader: ChunkReader) -> Iterator[Record]:
    return (r for r in reader.scan(documents=True) if not r.id.startswith(TREE_ID))


def _measured(page: Page, unknown: dict[str, _Measured]) -> Page:
    if page.version is not None:
        return page
    seen = unknown[page.slug]
    if not seen.indices:
        return replace(page, damage="no chunk is there")
    return replace(
        page,
        size=seen.size,
        chunks=len(seen.indices),
        damage=seen.verdict(),
        cut=seen.cut,
        nul=seen.nul,
    )


def fetch_pages(reader: ChunkReader, pages: Iterable[Page]) -> dict[str, list[Record]]:
    """Return the records of several pages, by slug, in as few requests as their kinds allow.

    Raises ``StoreError``. Whether the records are right is for ``page.assemble`` to say.
    """
    found: dict[str, list[Record]] = {}
    ids: list[str] = []
    owners: dict[str, str] = {}
    searched: dict[str, None] = {}
    for page in pages:
        found[page.slug] = []
        own = chunk_ids(page)
        if own is None:
            searched[page.slug] = None
        else:
            ids += own
            owners.update(dict.fromkeys(own, page.slug))
    for record in reader.get(ids) if ids else ():
        owner = owners.get(record.id)
        if owner is None:
            raise StoreError("Chroma returned a record that was not asked for")
        found[owner].append(record)
    # A record that has both fields is found twice.
    records = {
        record.id: record
        for field in (("page", "page_slug") if searched else ())
        for record in reader.find({field: {"$in": list(searched)}})
    }
    for record in records.values():
        slug = page_slug(record.metadata)
        if slug in searched:
            found[slug].append(record)
    return found
