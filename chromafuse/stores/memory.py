"""Page bytes in memory, least recently used out first, bounded in bytes."""

from __future__ import annotations

from typing import NamedTuple

from cachetools import LRUCache

from chromafuse.domain.page import Slug, Version

ENTRY_OVERHEAD = 512
"""Bytes an entry costs beside its content: key, dictionary slots, object headers."""


class PageKey(NamedTuple):
    """What page bytes are cached under: a version never changes, so an entry is never stale."""

    collection: str
    slug: Slug
    version: Version | str


class MemoryCache:
    """Content by page version. Touched by the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._pages: LRUCache[PageKey, bytes] = LRUCache(
            max_bytes, getsizeof=lambda data: len(data) + ENTRY_OVERHEAD
        )

    @property
    def used_bytes(self) -> int:
        """Bytes accounted for, overhead included."""
        return int(self._pages.currsize)

    def __len__(self) -> int:
        return len(self._pages)

    def get(self, key: PageKey) -> bytes | None:
        """Return the cached bytes, or None."""
        return self._pages.get(key)

    def put(self, key: PageKey, data: bytes) -> None:
        """Keep ``data``, unless it alone is larger than the cache."""
        if len(data) + ENTRY_OVERHEAD <= self.max_bytes:
            self._pages[key] = data
