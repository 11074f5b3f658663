"""The tree as it lies in a collection: loaded whole or not at all, sizes measured where untold."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from chromafuse.domain.access import ANONYMOUS, AUTHENTICATED, PUBLIC
from chromafuse.domain.errors import StoreError, TreeError, TreeMissing
from chromafuse.domain.page import Page, Record, Slug
from chromafuse.domain.tree import PathTree, TreeVersion, build_tree, prune
from chromafuse.domain.treecodec import TREE_ID, encode_tree, part_ids
from chromafuse.ports import NewRecord, Where
from chromafuse.treestore import (
    fetch_pages,
    head_metadata,
    head_version,
    load_tree,
    measure,
    needs_measuring,
    parse_head,
)
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.sites import foreign_chunks, store_page, tree_record
from tests.support.wrappers import Interrupted, WrappedStore

SWITCHED = 1_700_000_000_000_000_007
DEFAULT_NS = 5
BARE = {"isPublic": True, "groups": []}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(MemoryDatabase())


def put_tree(store: MemoryStore, pages: Sequence[Page], record_bytes: int = 100) -> list[str]:
    """Store a tree of ours over as many records as it takes; return their ids."""
    text = encode_tree(pages, record_bytes)
    ids = part_ids(text.version, len(text.documents))
    head = head_metadata(text.version, len(ids), SWITCHED, text.version)
    store.upsert(
        [
            NewRecord(one, document, head if one == TREE_ID else {"tree": text.version}, (0.0,))
            for one, document in zip(ids, text.documents, strict=True)
        ]
    )
    return ids


def load(store: MemoryStore | WrappedStore) -> PathTree:
    return load_tree(store, default_mtime_ns=DEFAULT_NS)


def pages_of(count: int, mtime_ns: int = 1) -> list[Page]:
    return [Page(Slug(f"p{n}"), f"p{n}.mdx".encode(), PUBLIC, 0, mtime_ns) for n in range(count)]


# -- loading


@pytest.mark.parametrize("record_bytes", [1, 7, 100, 100_000])
def test_a_tree_over_any_number_of_records_is_loaded_whole(
    store: MemoryStore, record_bytes: int
) -> None:
    ids = put_tree(store, pages_of(40), record_bytes)
    assert (len(ids) > 1) == (record_bytes < 1_000)
    tree = load(store)
    assert tree.pages == build_tree(pages_of(40), tree.version).pages
    assert head_version(store) == tree.version


def test_a_collection_without_a_tree_says_how_to_fill_it(store: MemoryStore) -> None:
    store_page(store, "a", "text")
    with pytest.raises(TreeMissing, match="chromafuse ingest"):
        load(store)
    assert head_version(store) is None


def test_a_tree_with_a_missing_part_is_an_error_that_names_the_collection(
    store: MemoryStore,
) -> None:
    ids = put_tree(store, pages_of(40))
    store.delete(ids[2:3])
    with pytest.raises(TreeError, match="parts of the path tree are missing in collection docs"):
        load(store)


class Overtaken(Interrupted):
    """An ingest switches the tree and removes the old parts before the reader's nth ``get``."""

    def __init__(self, store: MemoryStore, nth: int) -> None:
        self._store = store
        super().__init__(store, nth, self._switch, frozenset({"get"}))

    def _switch(self) -> None:
        before = set(self._store.scan_ids())
        ids = put_tree(self._store, pages_of(60, mtime_ns=9))
        self._store.delete(sorted(before - set(ids)))


@pytest.mark.parametrize("nth", [1, 2])
def test_a_reader_that_is_overtaken_by_a_switch_gets_the_new_tree(
    store: MemoryStore, nth: int
) -> None:
    put_tree(store, pages_of(40))
    tree = load(Overtaken(store, nth))
    assert len(tree.pages) == 60
    assert tree.version == head_version(store)


@pytest.mark.parametrize("parts", [0, -1, 10**9, True, "3", 1.5])
def test_a_damaged_number_of_parts_is_a_tree_error(store: MemoryStore, parts: float | str) -> None:
    put_tree(store, pages_of(1))
    [head] = store.get([TREE_ID])
    assert head.document is not None
    store.upsert([NewRecord(TREE_ID, head.document, {"parts": parts}, (0.0,))])
    with pytest.raises(TreeError, match="number of parts"):
        load(store)


def test_a_tree_of_a_later_program_is_refused_and_says_to_update(store: MemoryStore) -> None:
    store.add([tree_record("{}", {"format": 2, "tree_version": "x"})])
    for read in (load, head_version):
        with pytest.raises(TreeError, match="update chromafuse"):
            read(store)


def test_pages_without_a_time_have_that_of_the_switch_or_of_the_caller(store: MemoryStore) -> None:
    document = json.dumps({"a": BARE, "b": {**BARE, "mtime": "3"}})
    store.add([tree_record(document)])
    assert [page.mtime_ns for page in load(store).pages] == [DEFAULT_NS, 3_000_000_000]
    store.upsert([tree_record(document, {"switched_ns": str(SWITCHED)})])
    assert [page.mtime_ns for page in load(store).pages] == [SWITCHED, 3_000_000_000]


@pytest.mark.parametrize(
    "value",
    ["", "-1", "soon", "1.5", "9" * 19, "9" * 5_000, "٣", "²", 5, 1.5, True],
    ids=lambda value: ascii(value)[:20],
)
def test_a_switch_time_that_cannot_be_is_as_none(value: str | float) -> None:
    head = parse_head({"switched_ns": value})
    assert head.switched_ns is None or head.switched_ns < 1 << 63
    assert head.switched_ns != 0


def test_empty_groups_of_others_mean_what_the_operator_says(store: MemoryStore) -> None:
    store.add([tree_record(json.dumps({"a": {"isPublic": False, "groups": []}}))])
    assert not prune(load(store), ANONYMOUS).pages
    tree = load_tree(store, default_mtime_ns=0, empty_groups=AUTHENTICATED)
    assert tree.pages[0].rule == AUTHENTICATED


# -- trees of other tools


@pytest.mark.parametrize("packing", ["json", "gzip"])
@pytest.mark.parametrize("fields", [("page",), ("page_slug",), ("page", "page_slug")], ids=str)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_bare_tree_is_measured_and_every_size_is_right(
    store: MemoryStore, packing: str, fields: tuple[str, ...], as_text: bool
) -> None:
    texts = {
        "auth/oauth": "".join(f"line {n}\n" for n in range(80)),
        "empty": "",
        "unicode": "é漢\U0001f600\r\n" * 30,
        "readme.mdx": "one line",
    }
    for slug, text in texts.items():
        store.add(foreign_chunks(slug, text, fields=fields, as_text=as_text))
    store.add(foreign_chunks("not in the tree", "text"))
    store.add([NewRecord("__ingest__/0000000a", "", {"chromafuse": "ingest"}, (0.0,))])
    document = json.dumps(dict.fromkeys(texts, BARE))
    if packing == "gzip":
        document = base64.b64encode(gzip.compress(document.encode())).decode()
    store.add([tree_record(document)])
    tree = load(store)
    assert needs_measuring(tree)
    tree = measure(store, tree)
    assert {page.slug: page.size for page in tree.pages} == {
        slug: len(text.encode()) for slug, text in texts.items()
    }
    assert all(page.damage is None for page in tree.pages)
    assert head_version(store) is None
    found = fetch_pages(store, tree.pages)
    assert {slug: len(records) for slug, records in found.items()} == {
        page.slug: page.chunks for page in tree.pages
    }


def _without(records: list[NewRecord], index: int) -> list[NewRecord]:
    return records[:index] + records[index + 1 :]


def test_damage_found_by_measuring_is_told_page_by_page(store: MemoryStore) -> None:
    text = "".join(f"line {n}\n" for n in range(40))
    for slug, records in {
        "good": foreign_chunks("good", text),
        "gone": [],
        "first-missing": _without(foreign_chunks("first-missing", text), 0),
        "middle-missing": _without(foreign_chunks("middle-missing", text), 5),
        "doubled": [
            *foreign_chunks("doubled", text),
            NewRecord("again", "x", {"page": "doubled", "chunk_index": "03"}, (0.0,)),
        ],
        "no-index": [
            *foreign_chunks("no-index", text),
            NewRecord("lost", "x", {"page": "no-index"}, (0.0,)),
        ],
    }.items():
        store.add(records)
        assert slug
    slugs = ["good", "gone", "first-missing", "middle-missing", "doubled", "no-index"]
    store.add([tree_record(json.dumps(dict.fromkeys(slugs, BARE)))])
    tree = measure(store, load(store))
    damage = {str(page.slug): page.damage for page in tree.pages}
    assert damage.pop("good") is None
    assert damage.pop("gone") == "no chunk is there"
    assert damage["first-missing"] == damage["middle-missing"] == "a chunk is missing"
    assert all(text is not None and "doubled" in text for text in (damage["doubled"],))
    assert damage["no-index"] is not None


def test_pages_that_tell_their_size_are_not_measured(store: MemoryStore) -> None:
    page = store_page(store, "a", "text\n" * 20)
    put_tree(store, [page])
    tree = load(store)
    assert not needs_measuring(tree)
    store.delete([record.id for record in store.find({"page": "a"})])
    assert measure(store, tree).pages[0].size == page.size


# -- fetching


def test_pages_of_both_kinds_are_fetched_in_few_requests(store: MemoryStore) -> None:
    own = [store_page(store, f"own{n}", f"text {n}\n" * 20) for n in range(5)]
    foreign = [replace(own[0], slug=Slug(f"f{n}"), version=None, chunks=None) for n in range(5)]
    for n in range(5):
        store.add(foreign_chunks(f"f{n}", f"text {n}\n" * 20))
    calls: list[str] = []

    class Counting(WrappedStore):
        def before(self, call: str) -> None:
            calls.append(call)

    found = fetch_pages(Counting(store), [*own, *foreign])
    assert calls == ["get", "find", "find"]
    assert {slug: len(records) for slug, records in found.items()} == {
        page.slug: 10 for page in [*own, *foreign]
    }


def test_chunks_of_others_that_name_two_pages_do_not_harm_either(store: MemoryStore) -> None:
    own = store_page(store, "own", "text\n" * 20)
    foreign = replace(own, slug=Slug("foreign"), version=None, chunks=None)
    store.add(foreign_chunks("foreign", "text\n" * 20))
    store.add(
        [NewRecord("x", "x", {"page": "own", "page_slug": "foreign", "chunk_index": 9}, (0.0,))]
    )
    found = fetch_pages(store, [own, foreign])
    assert len(found["own"]) == own.chunks
    assert "x" not in {record.id for record in found["foreign"]}


def test_a_record_that_was_not_asked_for_is_an_error(store: MemoryStore) -> None:
    page = store_page(store, "a", "text")

    class Generous(WrappedStore):
        def get(self, ids: Sequence[str], where: Where | None = None) -> list[Record]:
            return [*super().get(ids, where), Record("more", "text", {})]

    with pytest.raises(StoreError, match="not asked for"):
        fetch_pages(Generous(store), [page])


def test_nothing_is_asked_for_no_pages(store: MemoryStore) -> None:
    class Silent(WrappedStore):
        def before(self, call: str) -> None:
            pytest.fail(f"{call} was called")

    assert fetch_pages(Silent(store), []) == {}


def test_a_version_of_a_foreign_tree_changes_with_its_text(store: MemoryStore) -> None:
    versions: set[TreeVersion] = set()
    for tree in ({"a": BARE}, {"b": BARE}, {"a": {**BARE, "size": 3}}):
        store.upsert([tree_record(json.dumps(tree))])
        versions.add(load(store).version)
    assert len(versions) == 3
