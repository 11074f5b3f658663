"""Chroma's embedded client on a directory.

Imported only where it is used: ``import chromadb`` takes half a second and starts threads, after
which a process must not fork.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import chromadb
from chromadb.config import Settings
from chromadb.errors import ChromaError, NotFoundError

from chromafuse.domain.errors import StoreError, StoreMissing
from chromafuse.domain.page import Metadata, MetadataValue, Record
from chromafuse.ports import NewRecord
from chromafuse.stores.chroma import AlreadyExists, Limits, Query, remedy_for
from chromafuse.stores.meter import Meter

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection

log = logging.getLogger(__name__)

_DATABASE = "chroma.sqlite3"
_LOCK = ".chromafuse-writer"
_PATIENCE = 1.0
"""Seconds to wait for whoever writes to a database before asking whether it is complete."""
_known: set[tuple[int, int]] = set()
"""Device and inode of the databases that this process has opened already."""
_looking = threading.Lock()
_clients = itertools.count()

T = TypeVar("T")


class EmbeddedTransport:
    """Implements ``chroma.Transport`` for a directory."""

    def __init__(self, directory: Path, limits: Limits, *, write: bool = False) -> None:
        self.limits = limits
        self.description = str(directory)
        self.meter = Meter()
        self._directory = directory
        self._name = ""
        self._opened: Collection | None = None
        self._following = threading.Lock()
        _make(directory)
        self._lock = _lock_for_writing(directory) if write else None
        _prepare(directory)
        self._client = self._connected()
        self._database = _identity(directory)

    def _connected(self) -> Client:
        with self._errors():
            client = chromadb.PersistentClient(
                _own_name(self._directory), settings=Settings(anonymized_telemetry=False)
            )
        # ClientAPI, the declared type, has no close().
        return cast("Client", client)

    def _follow(self) -> None:
        """Notice that the database has been deleted, or that another one is in its place.

        The client would go on with the files that it has open, and never see what is stored
        since. Another database is opened when the collection is in it, not before: a client that
        opens an unfinished one finishes it, beside whoever is making it. Raises ``StoreError``.
        """
        if _identity(self._directory) == self._database:
            return
        with self._following:
            found = _identity(self._directory)
            if found == self._database:
                return  # another thread has done it
            if found is None:
                raise StoreMissing(
                    f"there is no Chroma database in {self.description} any more",
                    remedy="put it back, or fill it with `chromafuse ingest`",
                )
            if self._lock is not None:
                raise StoreError(f"the database in {self.description} was replaced meanwhile")
            if not _holds(self._directory, self._name):
                raise self._no_collection()
            log.info("there is another database in %s", self.description)
            client = self._connected()
            try:
                opened = self._collection_of(client)
            except BaseException:
                client.close()
                raise
            before, self._client = self._client, client
            self._opened = opened
            self._database = found
            before.close()

    def open_collection(self, name: str, *, create: bool, lazy: bool = False) -> None:
        del lazy  # this takes no request
        self._name = name
        self._opened = self._collection_of(self._client, create=create)

    def _collection_of(self, client: Client, *, create: bool = False) -> Collection:
        open_it = client.get_or_create_collection if create else client.get_collection
        with self._errors():
            # None, not the default: that one downloads a model.
            return open_it(self._name, embedding_function=None)

    def _on_collection(self, call: Callable[[Collection], T]) -> T:
        """Return what ``call`` does; a collection that was made anew is found again."""
        if self._opened is None:
            raise StoreError("no collection is open")
        self._follow()
        known = self._opened
        try:
            with self.meter.request(), self._errors():
                return call(known)
        except StoreMissing:
            self.open_collection(self._name, create=False)
            if self._opened.id == known.id:
                raise
        with self.meter.request(), self._errors():
            return call(self._opened)

    def get(self, query: Query) -> list[Record]:
        if query.ids is not None and not query.ids:
            return []
        include = [
            name
            for name, wanted in (("documents", query.documents), ("metadatas", query.metadatas))
            if wanted
        ]
        arguments: dict[str, Any] = {
            "ids": list(query.ids) if query.ids is not None else None,
            "where": query.where,
            "where_document": query.document,
            "limit": query.limit,
            "offset": query.offset,
            "include": include,
        }
        answer = self._on_collection(lambda collection: collection.get(**arguments))
        documents, metadatas = answer["documents"], answer["metadatas"]
        return [
            Record(
                record_id,
                documents[i] if documents is not None else None,
                _plain(metadatas[i] if metadatas is not None else None),
            )
            for i, record_id in enumerate(answer["ids"])
        ]

    def write(self, verb: str, records: Sequence[NewRecord]) -> None:
        vectors: list[Sequence[float] | Sequence[int]] = [list(record.vector) for record in records]

        def write(collection: Collection) -> None:
            method = collection.add if verb == "add" else collection.upsert
            method(
                ids=[record.id for record in records],
                documents=[record.document for record in records],
                metadatas=[dict(record.metadata) for record in records],
                embeddings=vectors,
            )

        self._on_collection(write)

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            self._on_collection(lambda collection: collection.delete(ids=list(ids)))

    def create_marker(self, name: str, metadata: Mapping[str, MetadataValue]) -> None:
        with self._errors():
            self._client.create_collection(name, metadata=dict(metadata), embedding_function=None)

    def read_marker(self, name: str) -> Metadata | None:
        try:
            with self._errors():
                collection = self._client.get_collection(name, embedding_function=None)
        except StoreMissing:
            return None
        return _plain(collection.metadata)

    def delete_marker(self, name: str) -> None:
        try:
            with self._errors():
                self._client.delete_collection(name)
        except StoreMissing:
            return

    def close(self) -> None:
        self._client.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn whatever the client raises into a ``StoreError``; its kinds are many and bare."""
        try:
            yield
        except NotFoundError:
            raise self._no_collection() from None
        except ChromaError as error:
            if re.match(r"Collection \[.*\] already exists", str(error)):
                raise AlreadyExists(str(error)) from None
            raise self._failure(error) from error
        except Exception as error:
            raise self._failure(error) from error
        except BaseException as error:
            # A panic of the native code is no Exception, yet concerns only this call.
            if type(error).__name__ != "PanicException":
                raise
            raise self._failure(error) from error

    def _no_collection(self) -> StoreMissing:
        return StoreMissing(
            f"there is no collection {self._name} in {self.description}",
            remedy="check --collection, or fill it with `chromafuse ingest`",
        )

    def _failure(self, error: BaseException) -> StoreError:
        line = (str(error).strip() or type(error).__name__).split("\n")[0][:200]
        return StoreError(f"Chroma in {self.description} fails: {line}", remedy=remedy_for(line))


def _plain(metadata: Mapping[str, Any] | None) -> Metadata:
    return {
        key: value
        for key, value in (metadata or {}).items()
        if isinstance(value, str | int | float | bool)
    }


def _identity(directory: Path) -> tuple[int, int] | None:
    """Return device and inode of the database in ``directory``, or None if there is none."""
    try:
        found = (directory / _DATABASE).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make(directory: Path) -> None:
    """Create the directory, closed to others: it holds restricted pages too."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {directory}: {error.strerror}") from None


def _lock_for_writing(directory: Path) -> int:
    """Wait until no other process of ours writes to the directory; return what holds the lock.

    Two embedded clients that write at once leave a vector index that no client can open again.
    """
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"cannot write to {directory}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            log.warning("waiting for process %s, which writes to %s", holder, directory)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _own_name(directory: Path) -> str:
    """Return a name of ``directory`` that no client of this process has used.

    The client keeps what it opened by the name of the directory. Clients of one name share it
    until the last is closed, also when the files have been replaced, or when opening them failed.
    """
    number = next(_clients)
    return str(directory) + "".join("//." if bit == "1" else "/." for bit in f"{number:b}")


def _prepare(directory: Path) -> None:
    """Switch the database to write-ahead logging.

    Readers then do not wait for a running ingest. It can be set only while no client is open;
    a database that is in use or read-only stays as it is.
    """
    path = directory / _DATABASE
    with _looking:
        if _identity(directory) in _known:
            return
        if os.access(path if path.exists() else directory, os.W_OK):
            with _database(path, "rwc", 0) as database:
                database.execute("PRAGMA journal_mode=WAL")
        _remember(directory)


def _holds(directory: Path, collection: str) -> bool:
    """Return whether the database is complete as far as ``collection`` needs; True if unknown."""
    path = directory / _DATABASE
    with _looking:
        if _identity(directory) in _known:
            return True
        with _database(path, "rw", _PATIENCE) as database:
            table = database.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'collections'"
            ).fetchone()
            if table is None:
                return False
            row = database.execute(
                "SELECT 1 FROM collections WHERE name = ?", (collection,)
            ).fetchone()
            if row is None:
                return False
        _remember(directory)
    return True


def _remember(directory: Path) -> None:
    """Never look into this database again: a client has it open from now on.

    Closing any descriptor of a file takes a process's own locks from it, Chroma's with them.
    """
    found = _identity(directory)
    if found is not None:
        _known.add(found)


@contextmanager
def _database(path: Path, mode: str, timeout: float) -> Iterator[sqlite3.Connection]:
    """Open the database beside Chroma; what only the client can tell is left to it."""
    try:
        where = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(where, timeout=timeout, uri=True)) as database:
            yield database
    except sqlite3.OperationalError:
        return
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is not a database: {error}", remedy="check --chroma") from None
