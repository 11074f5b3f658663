"""One suite over every store: in memory, Chroma embedded, Chroma as a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends import (
    Backend,
    EmbeddedBackend,
    MemoryBackend,
    ServerBackend,
    TargetBackend,
)
from tests.support.chroma_server import ChromaServer


@pytest.fixture
def memory_backend() -> Backend:
    return MemoryBackend()


@pytest.fixture
def embedded_backend(tmp_path: Path) -> TargetBackend:
    return EmbeddedBackend(tmp_path / "chroma")


@pytest.fixture
def server_backend(chroma_server: ChromaServer) -> TargetBackend:
    return ServerBackend(chroma_server)


@pytest.fixture(params=["memory", "embedded", "server"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    found: Backend = request.getfixturevalue(f"{request.param}_backend")
    yield found
    found.close()


@pytest.fixture(params=["embedded", "server"])
def chroma(request: pytest.FixtureRequest) -> Iterator[TargetBackend]:
    """The backends that other processes reach too."""
    found: TargetBackend = request.getfixturevalue(f"{request.param}_backend")
    yield found
    found.close()
