"""One Chroma collection as a store of chunks, whichever way Chroma is reached.

``ChromaCollection`` holds what does not depend on the way: bulk reads paged below Chroma's and
Cloud's limits, records in our form, the lock among ingests. A ``Transport`` (embedded client or
REST) carries single calls. Only ``get`` is used for reading: it is the one call of the embedded
client that releases the GIL and always sees the newest writes.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from chromafuse.domain.errors import (
    ConfigError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
)
from chromafuse.domain.page import Metadata, MetadataValue, Record
from chromafuse.ports import NewRecord, Where
from chromafuse.stores.meter import Meter

LOCK_SUFFIX = ".switch"
GUARD_SUFFIX = ".takeover"
LOCK_WAIT = 30.0
"""Seconds an ingest waits for another one's tree switch, which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may ask for."""

    read_records: int
    write_records: int
    document_bytes: int


LOCAL_LIMITS = Limits(read_records=5_000, write_records=1_000, document_bytes=1_000_000)
"""Well under Chroma's own limits: 32,766 records with metadata a get, 5,461 a write."""
CLOUD_LIMITS = Limits(read_records=300, write_records=300, document_bytes=16_000)
"""Chroma Cloud's default quotas."""


@dataclass(frozen=True, slots=True)
class Query:
    """One ``get``; None means not restricted."""

    ids: Sequence[str] | None = None
    where: Where | None = None
    limit: int | None = None
    offset: int = 0
    documents: bool = True
    metadatas: bool = True
    document: Where | None = None
    """A condition on the text, in Chroma's form (``where_document``)."""


class AlreadyExists(StoreError):
    """A collection of that name exists."""


class Transport(Protocol):
    """Single calls to Chroma. Each raises ``StoreError`` or one of its kinds."""

    limits: Limits
    description: str
    meter: Meter

    def open_collection(self, name: str, *, create: bool, lazy: bool = False) -> None:
        """Find (or create) the collection that the calls below are about.

        ``lazy``: where that takes a request, leave it to the first call that needs it.
        """

    def get(self, query: Query) -> list[Record]:
        """Return the records that ``query`` names."""

    def write(self, verb: str, records: Sequence[NewRecord]) -> None:
        """``add`` or ``upsert`` records in one call."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete records in one call."""

    def create_marker(self, name: str, metadata: Mapping[str, MetadataValue]) -> None:
        """Create an empty collection; raises ``AlreadyExists``."""

    def read_marker(self, name: str) -> Metadata | None:
        """Return a collection's metadata, or None if there is no such collection."""

    def delete_marker(self, name: str) -> None:
        """Delete a collection; an absent one does not matter."""

    def close(self) -> None:
        """Release what is held."""


class ChromaCollection:
    """Implements ``ports.ChunkReader`` and ``ports.ChunkWriter``."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name

    @property
    def description(self) -> str:
        return f"collection {self._name} in {self._transport.description}"

    @property
    def meter(self) -> Meter:
        """What the requests to Chroma are counted with."""
        return self._transport.meter

    @property
    def record_bytes(self) -> int:
        return self._transport.limits.document_bytes

    @property
    def write_batch(self) -> int:
        return self._transport.limits.write_records

    def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
        records: list[Record] = []
        step = self._transport.limits.read_records
        for start in range(0, len(ids), step):
            batch = ids[start : start + step]
            records += self._transport.get(Query(ids=batch, where=where, limit=len(batch)))
        return records

    def find(self, where: Where) -> list[Record]:
        if not where:
            raise StoreError("a search without a condition would return everything")
        return list(self._paged(lambda limit, offset: Query(None, where, limit, offset)))

    def matching(self, document: Where, where: Where | None, most: int) -> list[Record]:
        if not document:
            raise StoreError("a search without a condition would return everything")
        found: list[Record] = []
        while len(found) < most:
            limit = min(most - len(found), self._transport.limits.read_records)
            records = self._transport.get(
                Query(None, where, limit, len(found), documents=False, document=document)
            )
            found += records
            if len(records) < limit:
                break
        return found

    def metadata(self, record_id: str) -> Metadata | None:
        records = self._transport.get(Query(ids=[record_id], limit=1, documents=False))
        return records[0].metadata if records else None

    def scan(self, *, documents: bool) -> Iterator[Record]:
        return self._paged(lambda limit, offset: Query(None, None, limit, offset, documents))

    def scan_ids(self) -> Iterator[str]:
        return (
            record.id
            for record in self._paged(
                lambda limit, offset: Query(None, None, limit, offset, False, False)
            )
        )

    def _paged(self, query: Callable[[int, int], Query]) -> Iterator[Record]:
        limit = self._transport.limits.read_records
        offset = 0
        while True:
            records = self._transport.get(query(limit, offset))
            yield from records
            offset += len(records)
            if len(records) < limit:
                return

    def add(self, records: Sequence[NewRecord]) -> None:
        for batch in self._batches(records):
            self._transport.write("add", batch)

    def upsert(self, records: Sequence[NewRecord]) -> None:
        if len(records) > self.write_batch:
            raise StoreError(f"{len(records)} records do not fit into one write")
        self._transport.write("upsert", records)

    def _batches(self, records: Sequence[NewRecord]) -> Iterator[Sequence[NewRecord]]:
        for start in range(0, len(records), self.write_batch):
            yield records[start : start + self.write_batch]

    def delete(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), self.write_batch):
            self._transport.delete(ids[start : start + self.write_batch])

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        name = self._name[: 512 - len(LOCK_SUFFIX)] + LOCK_SUFFIX
        token = secrets.token_hex(8)
        self._lock(name, token)
        try:
            yield
        finally:
            holder = self._transport.read_marker(name)
            if holder is not None and holder.get("token") == token:
                self._transport.delete_marker(name)

    def _lock(self, name: str, token: str) -> None:
        """Create the lock collection: Chroma has no other operation that only one caller wins."""
        me: dict[str, MetadataValue] = {
            "chromafuse": "lock",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "token": token,
        }
        deadline = time.monotonic() + LOCK_WAIT
        while True:
            try:
                self._transport.create_marker(name, me)
                return
            except AlreadyExists:
                holder = self._transport.read_marker(name)
            if holder is not None and holder.get("chromafuse") != "lock":
                raise StoreError(
                    f"the name of the collection {name} is that of the lock of {self._name}",
                    remedy="give one of the two another name",
                )
            if holder is not None and _is_dead(holder):
                self._remove_dead(name, me)
            if time.monotonic() > deadline:
                who = f"{(holder or {}).get('host')} process {(holder or {}).get('pid')}"
                raise StoreUnavailable(
                    f"another ingest ({who}) keeps the lock collection {name}",
                    remedy=f"delete the collection {name} if that ingest is gone",
                )
            time.sleep(0.05)

    def _remove_dead(self, name: str, me: Mapping[str, MetadataValue]) -> None:
        """Delete a dead holder's lock, unless somebody else does or has done so and holds it now.

        Looking and deleting are two calls, so only who has a lock of its own for them does both.
        """
        guard = name.removesuffix(LOCK_SUFFIX)[: 512 - len(GUARD_SUFFIX)] + GUARD_SUFFIX
        try:
            self._transport.create_marker(guard, me)
        except AlreadyExists:
            return
        try:
            holder = self._transport.read_marker(name)
            if holder is not None and _is_dead(holder):
                self._transport.delete_marker(name)
        finally:
            self._transport.delete_marker(guard)

    def close(self) -> None:
        self._transport.close()


def _is_dead(holder: Metadata) -> bool:
    """Return whether a lock's holder ran on this host and is gone."""
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    # A zombie is dead, though nobody has asked for its exit code yet.
    return status.rpartition(")")[2].split()[0] in "ZX"


def open_collection(
    target: str, name: str, *, create: bool, timeout: float, lazy: bool = False
) -> ChromaCollection:
    """Open collection ``name`` of ``target``, a directory or an http(s) URL.

    ``lazy`` leaves finding the collection on a server to the first call, so that a snapshot may
    serve while the server is away. ``timeout`` (seconds) bounds each request to a server.
    Raises ``ConfigError`` for a target that is neither, ``StoreMissing`` unless ``create``,
    ``StoreError`` otherwise.
    """
    transport: Transport
    if "://" in target:
        host = _server_host(target)
        if host is None:
            raise ConfigError(
                f"--chroma {redact_url(target)} is neither a directory nor http(s)://host:port"
            )
        from chromafuse.stores.chroma_http import HttpTransport

        cloud = host.endswith(".trychroma.com")
        transport = HttpTransport(target, timeout, CLOUD_LIMITS if cloud else LOCAL_LIMITS)
    else:
        directory = Path(target).expanduser()
        try:
            is_there = (directory / "chroma.sqlite3").is_file()
        except OSError as error:
            raise StoreDenied(f"cannot use {directory}: {error.strerror}") from None
        if not create and not is_there:
            raise StoreMissing(
                f"there is no Chroma database in {directory}",
                remedy="check --chroma, or fill it with `chromafuse ingest`",
            )
        from chromafuse.stores.chroma_embedded import EmbeddedTransport

        transport = EmbeddedTransport(directory, LOCAL_LIMITS, write=create)
    try:
        transport.open_collection(name, create=create, lazy=lazy)
    except BaseException:
        transport.close()
        raise
    return ChromaCollection(transport, name)


def remedy_for(text: str) -> str:
    """Return what to do about an error text of Chroma's that users meet."""
    if "readonly" in text or "unable to open database" in text:
        return "Chroma's client writes when it opens a directory: it has to be writable"
    if "dimension" in text:
        return "--embed has to be that of the collection's first ingest; or use another collection"
    return ""


def _server_host(url: str) -> str | None:
    """Return the host of an http(s) URL, or None if it is none."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return None
    return parts.hostname if port_fits and parts.scheme in ("http", "https") else None


def redact_url(url: str) -> str:
    """Return ``url`` without user name, password and query, for messages.

    An unquoted ``/`` or ``#`` in a password makes the rest of it look like another part, so one
    that cannot be taken apart for certain is not shown at all.
    """
    scheme, mark, _ = url.partition("://")
    if not mark:
        return "…"
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return f"{scheme}://…"
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{scheme}://…"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}"
