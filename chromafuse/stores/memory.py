"""Page bytes in memory, least recently used out first, bounded in bytes."""

from __future__ import annotations

from cachetools import Cache, LRUCache

from chromafuse.ports import PageKey

ENTRY_OVERHEAD = 512
"""Bytes an entry costs beside its content: key, dictionary slots, object headers."""


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

    def __contains__(self, key: PageKey) -> bool:
        return key in self._pages

    def is_full_for(self, size: int) -> bool:
        """Return whether keeping ``size`` more bytes would throw something out."""
        return self.used_bytes + size + ENTRY_OVERHEAD > self.max_bytes

    def get(self, key: PageKey) -> bytes | None:
        """Return the cached bytes, or None."""
        return self._pages.get(key)

    def peek(self, key: PageKey) -> bytes | None:
        """Return the cached bytes, or None, without counting as a use."""
        try:
            return Cache.__getitem__(self._pages, key)
        except KeyError:
            return None

    def put(self, key: PageKey, data: bytes) -> None:
        """Keep ``data``, unless it alone is larger than the cache."""
        if len(data) + ENTRY_OVERHEAD <= self.max_bytes:
            self._pages[key] = data
