"""Real stores with something in between: counted, delayed or broken at a chosen moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from chromafuse.domain.page import Metadata, Record
from chromafuse.ports import ChunkWriter, NewRecord, Where


class WrappedStore:
    """Passes every call on to a real store; ``before`` is told each one's name first."""

    def __init__(self, inner: ChunkWriter) -> None:
        self.inner = inner

    def before(self, call: str) -> None:
        """Called with a method's name before it reaches the real store."""

    @property
    def description(self) -> str:
        return self.inner.description

    @property
    def record_bytes(self) -> int:
        return self.inner.record_bytes

    @property
    def write_batch(self) -> int:
        return self.inner.write_batch

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        self.before("get")
        return self.inner.get(ids, where)

    def find(self, where: Where) -> list[Record]:
        self.before("find")
        return self.inner.find(where)

    def matching(self, document: Where, where: Where | None, most: int) -> list[Record]:
        self.before("matching")
        return self.inner.matching(document, where, most)

    def metadata(self, record_id: str) -> Metadata | None:
        self.before("metadata")
        return self.inner.metadata(record_id)

    def scan(self, *, documents: bool) -> Iterator[Record]:
        self.before("scan")
        return self.inner.scan(documents=documents)

    def scan_ids(self) -> Iterator[str]:
        self.before("scan_ids")
        return self.inner.scan_ids()

    def close(self) -> None:
        self.inner.close()

    def add(self, records: Sequence[NewRecord]) -> None:
        self.before("add")
        self.inner.add(records)

    def upsert(self, records: Sequence[NewRecord]) -> None:
        self.before("upsert")
        self.inner.upsert(records)

    def delete(self, ids: Sequence[str]) -> None:
        self.before("delete")
        self.inner.delete(ids)

    def exclusive(self) -> AbstractContextManager[None]:
        self.before("exclusive")
        return self.inner.exclusive()


WRITES = frozenset({"add", "upsert", "delete"})


class Recording(WrappedStore):
    """Remembers the names of all calls, and what the reading ones ask for."""

    def __init__(self, inner: ChunkWriter) -> None:
        super().__init__(inner)
        self.calls: list[str] = []
        self.gets: list[Sequence[str]] = []
        self.conditions: list[Where | None] = []

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        self.gets.append(tuple(ids))
        return super().get(ids, where)

    def find(self, where: Where) -> list[Record]:
        self.conditions.append(where)
        return super().find(where)

    def matching(self, document: Where, where: Where | None, most: int) -> list[Record]:
        self.conditions.append(where)
        return super().matching(document, where, most)

    def before(self, call: str) -> None:
        self.calls.append(call)

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if call in WRITES]


class Interrupted(WrappedStore):
    """Calls ``action`` once, before the ``nth`` call (from 1) of those in ``calls``."""

    def __init__(
        self,
        inner: ChunkWriter,
        nth: int,
        action: Callable[[], None],
        calls: frozenset[str] = WRITES,
    ) -> None:
        super().__init__(inner)
        self._left = nth
        self._action = action
        self._calls = calls

    def before(self, call: str) -> None:
        if call in self._calls:
            self._left -= 1
            if self._left == 0:
                self._action()


class Gated(WrappedStore):
    """Reading calls wait while the gate is shut; what fails is told by ``failure``."""

    def __init__(self, inner: ChunkWriter) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.asked: list[list[str]] = []
        self.finds = 0

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        self.asked.append(list(ids))
        return super().get(ids, where)

    def before(self, call: str) -> None:
        self.finds += call == "find"
        assert self.gate.wait(60), "the test left the gate shut"
        if self.failure is not None:
            raise self.failure


class SmallRecords(WrappedStore):
    """A store whose records hold little, so that a tree needs several."""

    def __init__(self, inner: ChunkWriter, record_bytes: int) -> None:
        super().__init__(inner)
        self._record_bytes = record_bytes

    @property
    def record_bytes(self) -> int:
        return self._record_bytes
