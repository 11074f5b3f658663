"""Objects that an ingest registers: where they appear, who sees them, and that none is stored."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    Identity,
    any_of,
)
from chromafuse.domain.errors import BlobMissing
from chromafuse.domain.page import Page
from chromafuse.domain.pointer import Location, Place, parse_registration
from chromafuse.domain.tree import prune
from chromafuse.ingest.objects import HEAD_BYTES, is_specification
from chromafuse.ingest.rulefile import read_rules
from chromafuse.ingest.sources import SourceOptions
from chromafuse.ingest.write import Summary
from chromafuse.stores.blobs import Blobs
from chromafuse.stores.s3 import S3Options
from chromafuse.treestore import load_tree
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.sites import all_records, run_ingest, write_site

SPEC = b'{"openapi": "3.1.0", "paths": {}}'
PAGES = {"index.mdx": "home\n", "guide.mdx": "a guide\n"}


@dataclass
class World:
    """A docs tree, a directory with objects, and a store."""

    base: Path
    store: MemoryStore = field(default_factory=lambda: MemoryStore(MemoryDatabase()))
    pages: dict[str, str] = field(default_factory=lambda: dict(PAGES))

    @property
    def objects(self) -> Path:
        return self.base / "objects"

    def put(self, name: str, data: bytes = SPEC) -> Path:
        path = self.objects / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def ingest(self, *registrations: str, **sources: object) -> Summary:
        named = [parse_registration(t) for t in registrations or [f"file://{self.objects}"]]
        places = [
            item if isinstance(item, Place) else Place("file", "", item[1].key) for item in named
        ]
        return run_ingest(
            write_site(self.base / "docs", self.pages),
            self.store,
            sources=SourceOptions(**sources),  # type: ignore[arg-type]
            registrations=named,
            blobs=Blobs(places, S3Options()),
        )

    def tree(self) -> dict[str, Page]:
        tree = load_tree(self.store, default_mtime_ns=0)
        assert not tree.rejected
        return {page.path.decode(): page for page in tree.pages}

    def rule(self, path: str) -> AccessRule:
        return self.tree()[path].rule


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.objects.mkdir()
    return world


# -- what is a specification


@pytest.mark.parametrize(
    "head",
    [
        b'{"openapi": "3.1.0"}',
        b'\xef\xbb\xbf \n{\n  "info": {"openapi": 1, "a": [{}]},\n  "asyncapi" : "2.0"',
        b'{"x": "a \\" } { b", "y": [1, "openapi"], "openapi": "3',
        b"openapi: 3.0.0\ninfo: {}\n",
        b"# comment\n---\ninfo:\n  x: 1\n\"asyncapi\": '2.0'\n",
    ],
)
def test_a_specification_is_known_by_its_top_level_key(head: bytes) -> None:
    assert is_specification(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b'{"info": {"openapi": "3.1.0"}}',
        b'{"x": "openapi"}',
        b'["openapi"]',
        b'{"x": "\\"openapi\\": 1"}',
        b"info:\n  openapi: 3.0.0\n",
        b"text: |\n  openapi: 3\nmy-openapi: 1\n",
        b"\x00\xff" * 100,
    ],
)
def test_the_word_anywhere_else_makes_none(head: bytes) -> None:
    assert not is_specification(head)


def test_a_head_of_quotes_and_braces_is_looked_through_in_one_pass() -> None:
    for text in (b'{"' + b"\\" * HEAD_BYTES, b"{" * HEAD_BYTES, b'{"a' * (HEAD_BYTES // 3)):
        assert not is_specification(text)


# -- where objects appear


def test_specifications_have_a_directory_and_other_objects_keep_their_path(world: World) -> None:
    world.put("v1/api.json")
    world.put("events.yaml", b"asyncapi: 2.0.0\n")
    world.put("data.json", b'{"x": 1}')
    world.put("images/logo.png", b"\x89PNG\x00")
    summary = world.ingest()
    tree = world.tree()
    assert sorted(tree) == [
        "api-specs/events.yaml", "api-specs/v1/api.json", "data.json", "guide.mdx",
        "images/logo.png", "index.mdx",
    ]  # fmt: skip
    page = tree["api-specs/v1/api.json"]
    found = (world.objects / "v1" / "api.json").stat()
    assert (page.size, page.mtime_ns) == (found.st_size, found.st_mtime_ns)
    assert page.pointer is not None
    assert page.pointer.location.url == f"file://{world.objects}/v1/api.json"
    assert (summary.pages, summary.pointers, summary.written_pages) == (6, 4, 2)
    assert summary.lost == ()
    stored = " ".join(document or "" for document, _ in all_records(world.store).values())
    assert "openapi" not in stored


def test_a_single_object_appears_where_it_is_told(world: World) -> None:
    path = world.put("hidden name.json")
    url = Location("file", "", str(path)[1:]).url
    world.ingest(f"reference/api.json={url}")
    assert sorted(world.tree()) == ["guide.mdx", "index.mdx", "reference/api.json"]


def test_an_unchanged_object_switches_nothing_and_a_changed_one_does(world: World) -> None:
    path = world.put("api.json")
    first = world.ingest()
    again = world.ingest()
    assert (first.switched, again.switched) == (True, False)
    path.write_bytes(SPEC + b" ")
    assert world.ingest().switched
    assert world.tree()["api-specs/api.json"].size == len(SPEC) + 1
    path.unlink()
    world.put("other.json")
    assert world.ingest().removed_pages == 1


def test_a_page_keeps_its_place_and_the_object_is_reported(world: World) -> None:
    world.pages |= {"api-specs/api.json": "{}", "a/b.md": "b", "c": "c"}
    for name in ("api.json", "a", "c/d.txt", "fine.txt"):
        world.put(name, SPEC if name == "api.json" else b"x")
    summary = world.ingest()
    assert {omission.path.rpartition("/objects/")[2] for omission in summary.lost} == {
        "api.json", "a", "c/d.txt",
    }  # fmt: skip
    assert world.tree()["api-specs/api.json"].pointer is None
    assert world.tree()["fine.txt"].pointer is not None


def test_what_cannot_be_an_object_is_reported(world: World) -> None:
    fine = world.put("fine.txt", b"x")
    (world.objects / "link.txt").symlink_to(fine)
    (world.objects / "links").symlink_to(world.base)
    (world.objects / "dangling").symlink_to("nowhere")
    os.mkfifo(world.objects / "fifo")
    Path(os.fsdecode(os.fsencode(world.objects) + b"/\xff.txt")).write_bytes(b"x")
    summary = world.ingest()
    lost = {omission.path.rpartition("/")[2]: omission.reason for omission in summary.lost}
    link = "a symlink, which is not followed"
    assert lost.pop("\\xff.txt").startswith("its path ")
    assert lost == {"link.txt": link, "links": link, "dangling": link, "fifo": "no regular file"}
    assert set(world.tree()) - set(world.pages) == {"fine.txt"}


def test_an_object_that_is_not_there_says_what_to_do(world: World) -> None:
    with pytest.raises(BlobMissing, match=r"correct --pointers"):
        world.ingest(f"x.json=file://{world.objects}/absent.json")
    with pytest.raises(BlobMissing, match=r"correct --pointers"):
        world.ingest(f"file://{world.base}/absent")


def test_two_objects_with_one_path_are_reported(world: World) -> None:
    one, two = (f"x.json=file://{world.put(name)}" for name in ("one.json", "two.json"))
    summary = world.ingest(one, two)
    assert len(summary.lost) == 1
    assert world.tree()["x.json"].pointer is not None


def test_a_slug_that_a_page_has_is_not_taken_twice(world: World) -> None:
    world.pages["x.json.mdx"] = "the slug of this is x.json"
    world.put("x.json", b"{}")
    world.ingest()
    assert {"x.json", "x.json.mdx"} <= set(world.tree())


def test_an_empty_place_is_reported_and_a_missing_object_stops_everything(world: World) -> None:
    assert len(world.ingest().lost) == 1
    version = load_tree(world.store, default_mtime_ns=0).version
    with pytest.raises(BlobMissing):
        world.ingest(f"x.json=file://{world.objects}/none.json")
    assert load_tree(world.store, default_mtime_ns=0).version == version


# -- who sees them


def test_nobody_uses_it_so_the_default_holds(world: World) -> None:
    world.put("api.json")
    world.ingest()
    assert world.rule("api-specs/api.json") == PUBLIC
    world.ingest(default_access=HIDDEN)
    assert world.rule("api-specs/api.json") == HIDDEN


def test_the_strictest_of_the_pages_that_use_it_holds(world: World) -> None:
    world.put("api.json")
    world.put("free.json")
    world.pages |= {
        "a.mdx": "---\ngroups: [admin]\nopenapi: /specs/api.json GET /a\n---\n",
        "b.mdx": "---\ngroups: [billing, sales]\n---\nsee api.json\n",
        "c.mdx": "free.json and api.json, for everybody\n",
    }
    world.ingest()
    tree = load_tree(world.store, default_mtime_ns=0)
    for groups, sees in (
        (None, False), ({"admin"}, False), ({"sales"}, False), ({"admin", "sales"}, True),
    ):  # fmt: skip
        identity = ANONYMOUS if groups is None else Identity(frozenset(groups), signed_in=True)
        seen = {page.path for page in prune(tree, identity).pages}
        assert (b"api-specs/api.json" in seen) is sees
        assert b"api-specs/free.json" in seen


@pytest.mark.parametrize(
    ("navigation", "rule"),
    [
        ({"groups": [{"openapi": "api.json", "pages": ["a", "GET /x"]}]}, any_of(["admin"])),
        ({"groups": [{"openapi": {"source": "x/api.json"}, "pages": ["a"]}]}, any_of(["admin"])),
        ({"groups": [{"openapi": ["api.json"], "pages": ["index"]}]}, PUBLIC),
        ({"groups": [{"group": "g", "openapi": "api.json", "public": False}]}, AUTHENTICATED),
        ({"tabs": [{"public": False, "groups": [{"openapi": "api.json"}]}]}, AUTHENTICATED),
        ({"pages": ["a", "index"]}, PUBLIC),
    ],
)
def test_the_navigation_tells_which_pages_use_it(
    world: World, navigation: object, rule: AccessRule
) -> None:
    world.put("api.json")
    world.pages["a.mdx"] = "---\ngroups: [admin]\n---\n"
    world.pages["docs.json"] = json.dumps({"navigation": navigation})
    world.ingest(hidden=True)
    assert world.rule("api-specs/api.json") == rule


def test_a_rule_decides_before_the_pages_do(world: World, tmp_path: Path) -> None:
    world.put("api.json")
    world.pages["a.mdx"] = "---\ngroups: [admin]\n---\nsee api.json\n"
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nglob = "api-specs/"\naccess = "authenticated"\n')
    summary = world.ingest(access=read_rules(rules))
    assert world.rule("api-specs/api.json") == AUTHENTICATED
    assert summary.notices == ()
