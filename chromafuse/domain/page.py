"""A page: what the tree promises about it, the ids of its chunks, and its reassembly.

A page's *version* is 32 hexadecimal digits: 16 of the content's BLAKE2b digest, 8 of how it is
stored (access key, chunk size, embedding), 8 of the ingest that wrote it. So a version names one
immutable set of chunks, two ingests never write the same id, and reassembled bytes can be
verified without a further field. Trees written by other tools have no versions: their pages are
found by slug and verified against the size measured when the tree was loaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NewType

from chromafuse.domain.access import AccessKey, AccessRule
from chromafuse.domain.errors import ContentError
from chromafuse.domain.pointer import Pointer

Slug = NewType("Slug", str)
Version = NewType("Version", str)
IngestId = NewType("IngestId", str)
"""8 hexadecimal digits that no other ingest of the collection has."""

MetadataValue = str | int | float | bool
Metadata = Mapping[str, MetadataValue]

MAX_PAGE_BYTES = 512 << 20
"""A page is read whole, so this is what one read may take."""
MAX_CHUNKS = 1_000_000
"""Chunks of one page; their ids are held while it is read."""

_VERSION = re.compile(r"[0-9a-f]{32}\Z")
_NUMERIC = re.compile(r"[0-9]{1,9}\Z")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a collection, as read."""

    id: str
    document: str | None
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the tree.

    ``path`` is relative to the root, components joined by ``/``, no extension added or missing.
    ``size`` is in bytes, ``mtime_ns`` in nanoseconds since 1970. ``version`` and ``chunks`` are
    None for a page of a tree that does not say. ``cut``: some line stands in two chunks.
    ``nul``: the content has a NUL byte. ``damage`` says why the page cannot be read, if known.
    ``pointer`` tells where the bytes are if not in Chroma; such a page has no chunks.
    """

    slug: Slug
    path: bytes
    rule: AccessRule
    size: int
    mtime_ns: int
    version: Version | None = None
    chunks: int | None = None
    cut: bool = False
    nul: bool = False
    damage: str | None = None
    pointer: Pointer | None = None

    @property
    def identity(self) -> tuple[bytes, Version | None, int, int]:
        """What makes this file what it is: another identity is another inode."""
        return self.path, self.version, self.size, self.mtime_ns

    @property
    def name(self) -> bytes:
        """The file's name."""
        return self.path.rpartition(b"/")[2]


def content_digest(data: bytes) -> str:
    """Return the 16 hexadecimal digits that begin the version of a page with these bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def storage_digest(access: AccessKey, *settings: object) -> str:
    """Return the 8 hexadecimal digits that stand for how a page is stored."""
    text = "\0".join([access, *map(str, settings)])
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def make_version(content: str, storage: str, ingest: IngestId) -> Version:
    """Return a version of its three parts."""
    return Version(content + storage + ingest)


def parse_version(value: object) -> Version | None:
    """Return ``value`` as a version, or None if it is none of ours."""
    return Version(value) if isinstance(value, str) and _VERSION.match(value) else None


def same_stored(version: Version | None, content: str, storage: str) -> bool:
    """Return whether ``version`` already stores this content in this way."""
    return version is not None and version[:24] == content + storage


def chunk_id(slug: Slug, version: Version, index: int) -> str:
    """Return the id of a chunk: the ingest's 8 digits and 24 of a hash.

    The prefix tells whose a record is, so that a clean-up leaves a running ingest's alone.
    """
    text = f"{slug}\0{version}\0{index}".encode(errors="surrogatepass")
    return version[24:] + hashlib.blake2b(text, digest_size=12).hexdigest()


def chunk_ids(page: Page) -> list[str] | None:
    """Return the ids of the page's chunks in order, or None if only a search can tell."""
    version, chunks = page.version, page.chunks
    if version is None or chunks is None:
        return None
    return [chunk_id(page.slug, version, index) for index in range(chunks)]


def chunk_index(metadata: Metadata) -> int | None:
    """Return a chunk's position from metadata (integer or numeric string), or None."""
    value = metadata.get("chunk_index")
    if isinstance(value, str) and _NUMERIC.match(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def page_slug(metadata: Metadata) -> str | None:
    """Return the slug that a chunk's metadata names (``page``, else ``page_slug``), or None."""
    value = metadata.get("page", metadata.get("page_slug"))
    return value if isinstance(value, str) else None


def ordered_documents(records: Iterable[Record]) -> list[str]:
    """Return the documents of one page's records in the order of their indices.

    Raises ``ContentError`` unless the indices are exactly 0, 1, 2 … and every record has a text.
    """
    texts: dict[int, str] = {}
    for record in records:
        index = chunk_index(record.metadata)
        if index is None:
            raise ContentError("a chunk has no usable chunk_index")
        if index in texts:
            raise ContentError(f"chunk {index} is there twice")
        if record.document is None:
            raise ContentError(f"chunk {index} has no text")
        texts[index] = record.document
    if texts and max(texts) != len(texts) - 1:
        missing = next(i for i in range(len(texts)) if i not in texts)
        raise ContentError(f"chunk {missing} is missing")
    return [texts[index] for index in range(len(texts))]


def assemble(page: Page, records: Iterable[Record]) -> bytes:
    """Return the page's bytes from its chunks' records, in any order.

    Raises ``ContentError`` if they are not exactly what the tree promises, or are marked for other
    readers than the page.
    """
    records = list(records)
    if page.version is not None:
        key = page.rule.key
        if any(record.metadata.get("access") != key for record in records):
            raise ContentError("a chunk is marked for other readers than its page")
    texts = ordered_documents(records)
    if not texts:
        raise ContentError("no chunk is there: replaced by a later ingest, or lost")
    expected = page.chunks
    if expected is not None and len(texts) != expected:
        raise ContentError(f"{len(texts)} of {expected} chunks are there")
    data = "".join(texts).encode()
    if len(data) != page.size:
        raise ContentError(f"its chunks hold {len(data)} bytes instead of {page.size}")
    if page.version is not None and content_digest(data) != page.version[:16]:
        raise ContentError("its bytes do not match their checksum")
    return data
