"""Files of the tree that an ingest uploads: where to, when again, and who sees them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from chromafuse.domain.access import HIDDEN, PUBLIC, any_of
from chromafuse.domain.errors import IngestError, StoreError, TreeError
from chromafuse.domain.page import Page
from chromafuse.domain.pointer import Location, parse_place
from chromafuse.ingest.report import printable
from chromafuse.ingest.rulefile import read_rules
from chromafuse.ingest.sources import SourceOptions
from chromafuse.ingest.uploads import UploadOptions
from chromafuse.ingest.write import Summary
from chromafuse.ports import Blob
from chromafuse.stores import s3 as s3_module
from chromafuse.stores.blobs import Blobs
from chromafuse.stores.s3 import ATTEMPTS, S3Options
from chromafuse.stores.uploads import Uploads
from chromafuse.treestore import load_tree
from tests.support import s3_server
from tests.support.commands import environment
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.s3_server import CREDENTIALS, Fault, S3Server, running_s3
from tests.support.sites import run_ingest, write_site

SPEC = '{"openapi": "3.1.0", "paths": {}}'
PAGES = {
    "index.mdx": "home\n",
    "a.mdx": "---\ngroups: [admin]\n---\nsee big.json\n",
    "big.json": SPEC + " " * 1000,
    "small.json": SPEC,
}


class World:
    """A docs tree with a large specification and a picture, and a place."""

    def __init__(self, base: Path, place: str, options: S3Options) -> None:
        self.docs = write_site(base / "docs", dict(PAGES))
        (self.docs / "logo.png").write_bytes(b"\x89PNG\xff")
        self.store = MemoryStore(MemoryDatabase())
        self.place = parse_place(place)
        self.uploads = Uploads(self.place, options)

    def ingest(self, sources: SourceOptions | None = None) -> Summary:
        return run_ingest(
            self.docs,
            self.store,
            sources=sources or SourceOptions(),
            uploads=UploadOptions(self.place, 500, self.uploads),
        )

    def tree(self) -> dict[str, Page]:
        tree = load_tree(self.store, default_mtime_ns=0)
        return {page.path.decode(): page for page in tree.pages}

    def check(self, read: object) -> None:
        first = self.ingest()
        assert (first.uploaded, first.pointers, first.lost) == (2, 2, ())
        old = self.tree()["big.json"]
        assert self.tree()["small.json"].pointer is None
        assert self.tree()["logo.png"].rule == PUBLIC
        assert old.rule == any_of(["admin"])
        again = self.ingest()
        assert (again.uploaded, again.switched) == (0, False)
        (self.docs / "big.json").write_text(SPEC + " " * 2000)
        assert self.ingest().uploaded == 1
        new = self.tree()["big.json"]
        assert old.pointer is not None
        assert new.pointer is not None
        assert new.pointer.location != old.pointer.location
        for page in (old, new):
            assert page.pointer is not None
            data = read(page.pointer, 0, page.size)  # type: ignore[operator]
            assert data == (SPEC + " " * (page.size - len(SPEC))).encode()


def test_a_directory_takes_them(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    world = World(tmp_path, f"file://{tmp_path}/place", S3Options())
    world.check(Blobs([parse_place(f"file://{tmp_path}/place")], S3Options()).read)
    assert not list((tmp_path / "place").rglob(".upload-*"))


def test_s3_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_s3(tmp_path / "s3") as server:
        (server.root / "bucket").mkdir()
        options = S3Options(endpoint=server.direct)
        world = World(tmp_path, "s3://bucket/up", options)
        world.check(Blobs([parse_place("s3://bucket/up")], options).read)
        world.uploads.close()


def test_a_failing_upload_leaves_the_old_site(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    world = World(tmp_path, f"file://{place}", S3Options())
    world.ingest()
    version = load_tree(world.store, default_mtime_ns=0).version
    place.rename(tmp_path / "elsewhere")
    (world.docs / "big.json").write_text(SPEC + " " * 3000)
    with pytest.raises(StoreError, match="cannot be written"):
        world.ingest()
    assert load_tree(world.store, default_mtime_ns=0).version == version


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        (server.root / "bucket").mkdir()
        yield server


@pytest.fixture
def in_s3(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[World, S3Server, Blobs]]:
    """A world that uploads below a prefix of its own, the server, and what reads from there."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_module, "BACKOFF", 0.001)
    place = f"s3://bucket/{tmp_path.name}"
    options = S3Options(endpoint=server.url)
    world, blobs = World(tmp_path, place, options), Blobs([parse_place(place)], options)
    server.requests.clear()
    server.write_faults.clear()
    yield world, server, blobs
    blobs.close()
    world.uploads.close()


def _bytes(world: World, blobs: Blobs, path: str) -> bytes:
    page = world.tree()[path]
    assert page.pointer is not None
    return blobs.read(page.pointer, 0, page.size)


def test_an_upload_that_may_pass_is_tried_again(in_s3: tuple[World, S3Server, Blobs]) -> None:
    world, server, blobs = in_s3
    server.write_faults[:] = [s3_server.status(503, "SlowDown"), s3_server.reset]
    assert world.ingest().uploaded == 2
    assert len([r for r in server.requests if r.method == "PUT"]) == 4
    assert _bytes(world, blobs, "big.json") == PAGES["big.json"].encode()


@pytest.mark.parametrize(
    ("fault", "count"),
    [(s3_server.status(403, "AccessDenied"), 1), (s3_server.status(500), ATTEMPTS)],
    ids=["403", "500"],
)
def test_an_upload_that_fails_leaves_the_old_site_and_tells_no_secret(
    in_s3: tuple[World, S3Server, Blobs], fault: Fault, count: int
) -> None:
    world, server, _ = in_s3
    version = world.ingest().tree_version
    (world.docs / "big.json").write_text(SPEC + " " * 3000)
    server.requests.clear()
    server.write_faults[:] = [fault] * 9
    with pytest.raises(StoreError) as caught:
        world.ingest()
    assert "secret words" not in str(caught.value)
    assert "big.json" in str(caught.value)
    assert len([r for r in server.requests if r.method == "PUT"]) == count
    assert load_tree(world.store, default_mtime_ns=0).version == version
    server.write_faults.clear()
    assert world.ingest().uploaded == 1


def test_a_large_file_goes_in_parts_and_one_that_fails_costs_another_attempt(
    in_s3: tuple[World, S3Server, Blobs],
) -> None:
    world, server, blobs = in_s3
    data = random.Random(3).randbytes((17 << 20) + 5)
    (world.docs / "video.bin").write_bytes(data)
    server.write_faults[:] = [s3_server.passed_on] * 4
    server.write_faults.append(s3_server.status(503, "SlowDown"))
    assert world.ingest().uploaded == 3
    assert _bytes(world, blobs, "video.bin") == data
    begun = [r for r in server.requests if r.method == "POST" and r.path.endswith("?uploads")]
    assert len(begun) == 2


@pytest.mark.parametrize(
    "name", ["a b.png", "100%20.png", "é.png", "#?&+.png", "new\nline.png", "'\"*\\.png", "x" * 250]
)
def test_hostile_names_keep_their_path(
    in_s3: tuple[World, S3Server, Blobs], tmp_path: Path, name: str
) -> None:
    world, _, blobs = in_s3
    data = b"\xff" + name.encode()
    (world.docs / "deep").mkdir()
    (world.docs / "deep" / name).write_bytes(data)
    summary = world.ingest()
    if "\n" in name:
        # No path of the tree has a line break: told like anything else that is left out.
        assert [item.path for item in summary.lost] == [printable(f"deep/{name}")]
        return
    assert summary.lost == ()
    assert _bytes(world, blobs, f"deep/{name}") == data


def test_no_symlink_of_the_source_is_uploaded(in_s3: tuple[World, S3Server, Blobs]) -> None:
    world, server, _ = in_s3
    outside = world.docs.parent / "outside"
    outside.mkdir()
    (outside / "secret.png").write_bytes(b"\xffsecret")
    (world.docs / "link.png").symlink_to(outside / "secret.png")
    (world.docs / "links").symlink_to(outside)
    assert world.ingest().uploaded == 2
    names = {request.path.rpartition("/")[2] for request in server.requests}
    assert names == {"big.json", "logo.png"}


def test_a_rule_holds_for_an_uploaded_file(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    world = World(tmp_path, f"file://{tmp_path}/place", S3Options())
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nglob = "*.json"\naccess = "hidden"\n')
    world.ingest(SourceOptions(access=read_rules(rules)))
    assert world.tree()["big.json"].rule == HIDDEN
    assert world.tree()["logo.png"].rule == PUBLIC


def test_a_file_that_changes_while_it_is_uploaded_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    world = World(tmp_path, f"file://{place}", S3Options())
    changing = world.docs / "big.json"

    class Meanwhile(Uploads):
        def put(self, location: Location, file: BinaryIO, size: int) -> tuple[Blob, bool]:
            with changing.open("a") as end:
                end.write(" ")
            return super().put(location, file, size)

    world.uploads = Meanwhile(world.place, S3Options())
    with pytest.raises((IngestError, StoreError), match=r"big\.json"):
        world.ingest()
    with pytest.raises(TreeError):
        world.tree()


def test_nothing_is_left_of_an_upload_that_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(place)], check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    assert [path for path in place.rglob("*") if path.is_file()] == []


_KILLED = """
import io, os, signal, sys
from chromafuse.domain.pointer import Location, parse_place
from chromafuse.ports import Blob
from chromafuse.stores import s3 as s3_module
from chromafuse.stores.s3 import ATTEMPTS, S3Options
from chromafuse.stores.uploads import Uploads
class Dies(io.BytesIO):
    def read(self, size=-1):
        piece = super().read(size)
        if not piece:
            os.kill(os.getpid(), signal.SIGKILL)
        return piece
place = sys.argv[1]
uploads = Uploads(parse_place("file://" + place), S3Options())
uploads.put(Location("file", "", place[1:] + "/a/b.bin"), Dies(b"x" * 5_000_000), 5_000_000)
"""


def test_no_symlink_leads_out_of_the_directory(tmp_path: Path) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    (place / "x").symlink_to(other)
    uploads = Uploads(parse_place(f"file://{place}"), S3Options())
    with (tmp_path / "f").open("wb+") as file, pytest.raises(StoreError):
        uploads.put(Location("file", "", f"{place}/x/y"[1:]), file, 0)
    assert not list(other.iterdir())


def test_a_place_is_needed(tmp_path: Path) -> None:
    write_site(tmp_path / "docs", {"a.md": "a"})
    program = Path(sys.executable).parent / "chromafuse"
    for words, told in (
        (("--upload-over", "1MB"), "--upload-over needs --upload-to"),
        (("--upload-to", "s3://bucket/x"), "--upload-to needs --upload-over"),
    ):
        done = subprocess.run(
            [program, "ingest", str(tmp_path / "docs"), "-c", "docs", *words],
            check=False, capture_output=True, text=True, env=environment(tmp_path),
        )  # fmt: skip
        assert done.returncode == 2
        assert told in done.stderr
