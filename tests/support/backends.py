"""The stores that the contract suite and the ingest tests run over, opened in one way."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx

from chromafuse.ports import ChunkWriter
from chromafuse.stores.chroma import LOCAL_LIMITS, ChromaCollection, Limits, Transport
from chromafuse.stores.chroma_http import HttpTransport
from tests.support.chroma_server import ChromaServer
from tests.support.memory_store import MemoryDatabase, MemoryStore

_COLLECTIONS = "/api/v2/tenants/default_tenant/databases/default_database/collections"


class Backend(Protocol):
    """A place with collections. ``name`` is that of the collection of this test."""

    name: str

    def open(
        self, *, create: bool = True, limits: Limits = LOCAL_LIMITS, name: str = ""
    ) -> ChunkWriter:
        """Return a new store on the test's collection, or on another one; closed by ``close``."""

    def drop(self) -> None:
        """Delete the test's collection, as somebody else would."""

    def close(self) -> None:
        """Close every store that was opened."""


class TargetBackend(Backend, Protocol):
    """A backend that other processes reach too; ``target`` is what ``--chroma`` takes."""

    target: str

    def add_raw(
        self, record_id: str, document: str | None, metadata: Mapping[str, Any] | None
    ) -> None:
        """Add a record to the test's collection as another tool may, past our code."""


class MemoryBackend:
    def __init__(self) -> None:
        self.name = "docs"
        self._database = MemoryDatabase()

    def open(
        self, *, create: bool = True, limits: Limits = LOCAL_LIMITS, name: str = ""
    ) -> ChunkWriter:
        return MemoryStore(self._database, name or self.name, create=create, limits=limits)

    def drop(self) -> None:
        self._database.drop(self.name)

    def close(self) -> None:
        """Memory goes by itself."""


class _ChromaBackend:
    """What the two ways to Chroma share."""

    target: str

    def __init__(self) -> None:
        # A server lives longer than one test.
        self.name = f"docs-{uuid.uuid4().hex[:12]}"
        self._opened: list[ChunkWriter] = []

    def _transport(self, limits: Limits) -> Transport:
        raise NotImplementedError

    def open(
        self, *, create: bool = True, limits: Limits = LOCAL_LIMITS, name: str = ""
    ) -> ChunkWriter:
        transport = self._transport(limits)
        store = ChromaCollection(transport, name or self.name)
        self._opened.append(store)
        transport.open_collection(name or self.name, create=create)
        return store

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


class EmbeddedBackend(_ChromaBackend):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.target = str(directory)

    def _transport(self, limits: Limits) -> Transport:
        from chromafuse.stores.chroma_embedded import EmbeddedTransport

        return EmbeddedTransport(Path(self.target), limits)

    def drop(self) -> None:
        transport = self._transport(LOCAL_LIMITS)
        transport.delete_marker(self.name)
        transport.close()

    def add_raw(
        self, record_id: str, document: str | None, metadata: Mapping[str, Any] | None
    ) -> None:
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        client: Any = chromadb.PersistentClient(self.target, settings=settings)
        client.get_collection(self.name, embedding_function=None).add(
            ids=[record_id],
            documents=None if document is None else [document],
            metadatas=None if metadata is None else [metadata],
            embeddings=[[0.0]],
        )
        client.close()


class ServerBackend(_ChromaBackend):
    def __init__(self, server: ChromaServer) -> None:
        super().__init__()
        self.target = server.url

    def _transport(self, limits: Limits) -> Transport:
        return HttpTransport(self.target, 60.0, limits)

    def drop(self) -> None:
        answer = httpx.delete(f"{self.target}{_COLLECTIONS}/{self.name}", timeout=60)
        assert answer.status_code == 200, answer.text

    def add_raw(
        self, record_id: str, document: str | None, metadata: Mapping[str, Any] | None
    ) -> None:
        found = httpx.get(f"{self.target}{_COLLECTIONS}/{self.name}", timeout=60).json()["id"]
        answer = httpx.post(
            f"{self.target}{_COLLECTIONS}/{found}/add",
            json={
                "ids": [record_id],
                "documents": [document],
                "metadatas": [metadata],
                "embeddings": [[0.0]],
            },
            timeout=60,
        )
        assert answer.status_code == 201, answer.text
