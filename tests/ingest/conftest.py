"""Ingests run over Chroma embedded and over a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chromafuse.ports import ChunkWriter
from tests.support.backends import EmbeddedBackend, ServerBackend, TargetBackend
from tests.support.chroma_server import ChromaServer


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[TargetBackend]:
    backend = EmbeddedBackend(tmp_path / "chroma")
    yield backend
    backend.close()


@pytest.fixture
def server(chroma_server: ChromaServer) -> Iterator[TargetBackend]:
    backend = ServerBackend(chroma_server)
    yield backend
    backend.close()


@pytest.fixture(params=["embedded", "server"])
def chroma(request: pytest.FixtureRequest) -> TargetBackend:
    found: TargetBackend = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(chroma: TargetBackend) -> ChunkWriter:
    return chroma.open()
