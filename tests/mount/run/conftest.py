"""A site to run commands with, and what holds after every run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import Site, mount_lines, wait_until
from tests.mount.run.commands import GENEROUS


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of three pages, one of them of a group; not mounted."""
    base = tmp_path_factory.mktemp("run")
    source = base / "source"
    (source / "guide").mkdir(parents=True)
    (source / "index.mdx").write_text("# Home\n")
    (source / "guide" / "start.mdx").write_text("# Start\n")
    (source / "guide" / "secret.mdx").write_text("---\ngroups: [admin]\n---\nquetzal\n")
    # Others mount a "site" of theirs at the same time.
    site = Site(base, collection=f"run-{uuid.uuid4().hex[:8]}")
    site.ingest(source)
    yield site
    site.close()


@pytest.fixture(autouse=True)
def _nothing_stays(stored: Site) -> Iterator[None]:
    """No process, mount, socket or directory of a test is there after it."""
    mounts_before = [line.point for line in mount_lines() if line.source == stored.collection]
    names_before = sorted(os.listdir("/"))
    yield
    assert wait_until(lambda: not stored.daemons(), GENEROUS), stored.daemons()
    after = [line.point for line in mount_lines() if line.source == stored.collection]
    assert after == mounts_before
    assert sorted(os.listdir("/")) == names_before
    assert list(Path(stored.env["XDG_RUNTIME_DIR"]).rglob("*.sock")) == []


@pytest.fixture
def missing() -> str:
    """A path in the root directory that does not exist."""
    return f"/docs-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def existing(tmp_path: Path) -> Path:
    """A directory that holds a file of the host's."""
    place = tmp_path / "a place"
    place.mkdir()
    (place / "of-the-host").write_text("")
    return place
