"""A ``ports.PageCache`` in a dictionary, for tests of who uses it and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chromafuse.ports import PageKey


class DictCache:
    """Keeps everything. ``asked`` and ``put`` hold the keys of each call."""

    def __init__(self) -> None:
        self.pages: dict[PageKey, bytes] = {}
        self.asked: list[list[PageKey]] = []
        self.put: list[list[PageKey]] = []

    def get_many(self, sizes: Mapping[PageKey, int]) -> dict[PageKey, bytes]:
        self.asked.append(list(sizes))
        return {key: self.pages[key] for key in sizes if key in self.pages}

    def put_many(self, pages: Sequence[tuple[PageKey, bytes]]) -> None:
        self.put.append([key for key, _ in pages])
        self.pages.update(pages)

    def status(self) -> Mapping[str, object]:
        return {"pages": len(self.pages)}
