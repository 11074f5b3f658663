"""What services ask of a vendor, as small protocols.

Stores are blocking, free of any event loop and safe to call from several threads; the callers run
them in worker threads with a deadline. Every method raises ``StoreError`` or one of its kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

from chromafuse.domain.page import Metadata, Record, Slug, Version
from chromafuse.domain.pointer import Location, Place, Pointer

Where = Mapping[str, object]
"""A metadata filter in Chroma's form."""


class PageKey(NamedTuple):
    """What page bytes are cached under: a version never changes, so an entry is never stale."""

    collection: str
    slug: Slug
    version: Version | str


class PageCache(Protocol):
    """Page bytes shared by several daemons. Never raises: at worst it has nothing."""

    def get_many(self, sizes: Mapping[PageKey, int]) -> dict[PageKey, bytes]:
        """Return the pages that are cached and right; ``sizes`` are theirs in bytes."""

    def put_many(self, pages: Sequence[tuple[PageKey, bytes]]) -> None:
        """Keep pages, if possible."""

    def status(self) -> Mapping[str, object]:
        """Return how it is doing, for a person."""


@dataclass(frozen=True, slots=True)
class Blob:
    """An object as its server tells of it; ``mtime_ns`` in nanoseconds since 1970."""

    pointer: Pointer
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """What stands where objects do and cannot be one; ``where`` may hold any character."""

    where: str
    reason: str


class BlobReader(Protocol):
    """Objects beside Chroma.

    Raises ``BlobDenied`` for what is not configured, before anybody is asked, and ``BlobMissing``.
    """

    def read(self, pointer: Pointer, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``, both within the pointer's size.

        Raises ``BlobChanged`` if the object is not that version any more.
        """

    def stream(self, pointer: Pointer, offset: int, lengths: Sequence[int]) -> Iterator[bytes]:
        """Yield pieces of exactly these lengths, one behind the other, from ``offset`` on.

        Each comes as soon as it is there. Raises as ``read`` does, at any piece.
        """

    def head(self, location: Location) -> Blob:
        """Return what is at ``location`` now."""

    def scan(self, place: Place) -> Iterator[Blob | Skipped]:
        """Yield everything that is below ``place``."""

    def close(self) -> None:
        """Release connections."""


class BlobWriter(Protocol):
    """Objects beside Chroma that an ingest makes."""

    def put(self, location: Location, file: BinaryIO, size: int) -> tuple[Blob, bool]:
        """Return the object with the bytes of ``file``, and whether it had to be uploaded."""

    def close(self) -> None:
        """Release connections."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """One record to write."""

    id: str
    document: str
    metadata: Metadata
    vector: tuple[float, ...]


class ChunkReader(Protocol):
    """Reading side of one collection."""

    @property
    def description(self) -> str:
        """Where the collection is, for a person; holds no secret."""

    @property
    def record_bytes(self) -> int:
        """The most bytes that a record's document may have here."""

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        """Return the records with these ids that exist and match ``where``, in any order."""

    def find(self, where: Where) -> list[Record]:
        """Return all records that match ``where``, in any order."""

    def matching(self, document: Where, where: Where | None, most: int) -> list[Record]:
        """Return at most ``most`` records whose text matches ``document``, in any order.

        They come with metadata and without text. Fewer than ``most`` are all that there are.
        """

    def metadata(self, record_id: str) -> Metadata | None:
        """Return one record's metadata, or None if there is no such record."""

    def scan(self, *, documents: bool) -> Iterator[Record]:
        """Yield every record of the collection once, without documents unless asked for."""

    def close(self) -> None:
        """Release connections; later calls fail."""


class ChunkWriter(ChunkReader, Protocol):
    """Reading and writing side of one collection."""

    @property
    def write_batch(self) -> int:
        """The most records that one write takes."""

    def scan_ids(self) -> Iterator[str]:
        """Yield every id of the collection once."""

    def add(self, records: Sequence[NewRecord]) -> None:
        """Write records with new ids."""

    def upsert(self, records: Sequence[NewRecord]) -> None:
        """Write records in one step that no reader sees half done."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete the records with these ids; absent ones do not matter."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the collection's lock that makes "look, then write" one step among ingests.

        Raises ``StoreUnavailable`` if somebody else keeps it too long.
        """
