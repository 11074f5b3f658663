"""A store in memory that keeps every promise of ``ports.ChunkWriter``, for tests of services.

The contract suite runs over it as over the real ones. Records come back in the order of a hash,
so that nothing that passes with it relies on an order.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from chromafuse.domain.errors import StoreError, StoreMissing, StoreUnavailable
from chromafuse.domain.page import Metadata, Record
from chromafuse.ports import NewRecord, Where
from chromafuse.stores.chroma import LOCAL_LIMITS, Limits


class MemoryDatabase:
    """Collections by name, shared by the stores that are open on it."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[str, Record]] = {}
        self.guard = threading.Lock()
        self.switch = threading.Lock()

    def drop(self, name: str) -> None:
        with self.guard:
            del self.collections[name]


class MemoryStore:
    """One collection of a database."""

    def __init__(
        self,
        database: MemoryDatabase,
        name: str = "docs",
        *,
        create: bool = True,
        limits: Limits = LOCAL_LIMITS,
        lock_wait: float = 30.0,
    ) -> None:
        self._database = database
        self._name = name
        self._limits = limits
        self._lock_wait = lock_wait
        self._closed = False
        if create:
            database.collections.setdefault(name, {})
        with database.guard:
            self._records()

    def _records(self) -> dict[str, Record]:
        if self._closed:
            raise StoreError("the store is closed")
        found = self._database.collections.get(self._name)
        if found is None:
            raise StoreMissing(f"there is no collection {self._name} in memory")
        return found

    @property
    def description(self) -> str:
        return f"collection {self._name} in memory"

    @property
    def record_bytes(self) -> int:
        return self._limits.document_bytes

    @property
    def write_batch(self) -> int:
        return self._limits.write_records

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        with self._database.guard:
            records = self._records()
            found = [records[record_id] for record_id in set(ids) if record_id in records]
        return _shuffled(r for r in found if where is None or _matches(r.metadata, where))

    def find(self, where: Where) -> list[Record]:
        if not where:
            raise StoreError("a search without a condition would return everything")
        with self._database.guard:
            found = list(self._records().values())
        return _shuffled(record for record in found if _matches(record.metadata, where))

    def matching(self, document: Where, where: Where | None, most: int) -> list[Record]:
        if not document:
            raise StoreError("a search without a condition would return everything")
        with self._database.guard:
            found = list(self._records().values())
        kept = [
            replace(record, document=None)
            for record in found
            if record.document is not None
            and _contains(record.document, document)
            and (where is None or _matches(record.metadata, where))
        ]
        return _shuffled(kept)[:most]

    def metadata(self, record_id: str) -> Metadata | None:
        with self._database.guard:
            found = self._records().get(record_id)
        return None if found is None else found.metadata

    def scan(self, *, documents: bool) -> Iterator[Record]:
        with self._database.guard:
            found = _shuffled(self._records().values())
        return iter(r if documents else replace(r, document=None) for r in found)

    def scan_ids(self) -> Iterator[str]:
        return (record.id for record in self.scan(documents=False))

    def close(self) -> None:
        self._closed = True

    def add(self, records: Sequence[NewRecord]) -> None:
        with self._database.guard:
            stored = self._records()
            for record in records:
                stored.setdefault(record.id, _stored(record, {}))

    def upsert(self, records: Sequence[NewRecord]) -> None:
        if len(records) > self.write_batch:
            raise StoreError(f"{len(records)} records do not fit into one write")
        with self._database.guard:
            stored = self._records()
            for record in records:
                old = stored.get(record.id)
                stored[record.id] = _stored(record, {} if old is None else old.metadata)

    def delete(self, ids: Sequence[str]) -> None:
        with self._database.guard:
            stored = self._records()
            for record_id in ids:
                stored.pop(record_id, None)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        if not self._database.switch.acquire(timeout=self._lock_wait):
            raise StoreUnavailable("another ingest keeps the lock")
        try:
            yield
        finally:
            self._database.switch.release()


def _stored(record: NewRecord, old: Metadata) -> Record:
    # As in Chroma, a key that the new metadata lacks stays.
    return Record(record.id, record.document, {**old, **record.metadata})


def _shuffled(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: hashlib.sha256(record.id.encode()).digest())


def _matches(metadata: Metadata, where: Where) -> bool:
    return all(_matches_one(metadata, field, wanted) for field, wanted in where.items())


def _matches_one(metadata: Metadata, field: str, wanted: object) -> bool:
    if field == "$and":
        assert isinstance(wanted, list)
        return all(_matches(metadata, part) for part in wanted)
    if field == "$or":
        assert isinstance(wanted, list)
        return any(_matches(metadata, part) for part in wanted)
    values = [wanted]
    if isinstance(wanted, Mapping):
        [(operator, values)] = wanted.items()
        assert operator == "$in"
    found = metadata.get(field)
    return any(type(found) is type(value) and found == value for value in values)


def _contains(text: str, condition: Where) -> bool:
    """Whether Chroma would find ``text``: what stands behind a NUL is invisible to it."""
    [(operator, operand)] = condition.items()
    if operator == "$or":
        assert isinstance(operand, list)
        return any(_contains(text, part) for part in operand)
    assert isinstance(operand, str)
    seen = text.partition("\0")[0]
    if operator == "$contains":
        return operand in seen
    return operator == "$regex" and re.search(operand, seen) is not None
