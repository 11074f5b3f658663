"""What an ingest leaves in a collection: the site, whole, and nothing else of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    all_of,
    any_of,
    operator_identity,
)
from chromafuse.domain.errors import ContentError, IngestError, StoreError, StoreUnavailable
from chromafuse.domain.page import Page
from chromafuse.domain.tree import PathTree, prune
from chromafuse.domain.treecodec import TREE_ID, raw_entry
from chromafuse.ingest.rulefile import read_rules
from chromafuse.ingest.sources import Content, Omission, Source, SourceOptions, read_source
from chromafuse.ports import ChunkWriter, NewRecord
from chromafuse.treestore import fetch_text, load_tree
from tests.support.sites import (
    all_records,
    foreign_chunks,
    orphans,
    read_site,
    run_ingest,
    stored_chunks,
    tree_record,
    write_site,
)
from tests.support.wrappers import Interrupted, Recording, SmallRecords, WrappedStore


def prose(name: str, lines: int = 30) -> str:
    return "".join(f"{name}: line {n} of some length\n" for n in range(lines))


SITE = {
    "index.mdx": prose("index"),
    "guide/start.mdx": prose("start", 200),
    "guide/next.md": prose("next"),
    "guide/empty.md": "",
    "auth.mdx": prose("auth"),
    "auth/oauth.mdx": prose("oauth"),
    "notes.txt": "no final newline",
    "windows.md": "one\r\ntwo\r\n",
    "binary-ish.txt": "nul \0 and \ufeff and \u2028\n",
    "long.md": "漢" * 20_000,
}


def as_bytes(site: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in site.items()}


def tree_of(store: ChunkWriter) -> PathTree:
    return load_tree(store, default_mtime_ns=0)


def page_of(store: ChunkWriter, path: str) -> Page:
    return tree_of(store).by_path[path.encode()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_site(tmp_path / "site", SITE)


# -- a site as it is


def test_every_page_comes_back_identical_with_size_and_time(store: ChunkWriter, root: Path) -> None:
    os.utime(root / "index.mdx", ns=(1, 1_600_000_000_123_456_789))
    summary = run_ingest(root, store)
    assert read_site(store) == as_bytes(SITE)
    for page in tree_of(store).pages:
        found = (root / page.path.decode()).stat()
        assert (page.size, page.mtime_ns) == (found.st_size, found.st_mtime_ns)
    assert page_of(store, "index.mdx").mtime_ns == 1_600_000_000_123_456_789
    assert (summary.pages, summary.written_pages) == (len(SITE), len(SITE))
    assert summary.bytes == sum(map(len, as_bytes(SITE).values()))
    assert summary.chunks == summary.written_chunks == len(list(store.scan_ids())) - 1
    assert summary.switched
    assert not summary.lost
    assert orphans(store) == []


def test_an_empty_directory_is_an_empty_site(store: ChunkWriter, tmp_path: Path) -> None:
    run_ingest(write_site(tmp_path / "none", {}), store)
    assert read_site(store) == {}
    assert sorted(store.scan_ids()) == [TREE_ID]


def test_chunks_carry_page_index_version_and_access(store: ChunkWriter, root: Path) -> None:
    run_ingest(root, store)
    page = page_of(store, "guide/start.mdx")
    chunks = stored_chunks(store, "guide/start")
    assert [record.metadata["chunk_index"] for record in chunks] == list(range(page.chunks or 0))
    assert {record.metadata["version"] for record in chunks} == {page.version}
    assert {record.metadata["access"] for record in chunks} == {"public"}
    assert all(isinstance(record.metadata["chunk_index"], int) for record in chunks)


def test_chunks_are_in_order_beyond_the_tenth(store: ChunkWriter, tmp_path: Path) -> None:
    text = prose("page", 500)
    run_ingest(write_site(tmp_path / "s", {"page.md": text}), store, chunk_size=80)
    chunks = stored_chunks(store, "page")
    assert len(chunks) > 200
    assert "".join(record.document or "" for record in chunks) == text
    assert read_site(store) == {"page.md": text.encode()}


def test_a_page_with_a_cut_line_or_a_nul_is_marked(store: ChunkWriter, root: Path) -> None:
    run_ingest(root, store)
    assert {p.path for p in tree_of(store).pages if p.cut} == {b"long.md"}
    assert {p.path for p in tree_of(store).pages if p.nul} == {b"binary-ish.txt"}


# -- again


def test_ingesting_unchanged_pages_writes_nothing_at_all(store: ChunkWriter, root: Path) -> None:
    first = run_ingest(root, store)
    before = all_records(store)
    recording = Recording(store)
    again = run_ingest(root, recording)
    assert recording.writes == []
    assert "exclusive" not in recording.calls
    assert all_records(store) == before
    assert (again.switched, again.written_pages, again.removed_records) == (False, 0, 0)
    assert again.unchanged_pages == again.pages == len(SITE)
    assert again.tree_version == first.tree_version


def test_unchanged_pages_beside_records_of_others_write_nothing(
    store: ChunkWriter, root: Path
) -> None:
    store.add(foreign_chunks("theirs", prose("theirs")))
    run_ingest(root, store)
    before = all_records(store)
    recording = Recording(store)
    assert run_ingest(root, recording).removed_records == 0
    assert recording.writes == []
    assert all_records(store) == before


def test_a_changed_page_is_the_only_one_written(store: ChunkWriter, root: Path) -> None:
    run_ingest(root, store)
    before = all_records(store)
    changed = {**SITE, "guide/next.md": prose("changed")}
    summary = run_ingest(write_site(root, changed), store)
    assert read_site(store) == as_bytes(changed)
    assert (summary.written_pages, summary.unchanged_pages) == (1, len(SITE) - 1)
    gone = set(before) - set(all_records(store))
    assert {before[one][1]["page"] for one in gone} == {"guide/next"}
    assert orphans(store) == []


def test_a_new_time_alone_switches_the_tree_and_writes_no_chunk(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store)
    chunks = {one: r for one, r in all_records(store).items() if one != TREE_ID}
    os.utime(root / "notes.txt", ns=(7, 7_000_000_007))
    recording = Recording(store)
    summary = run_ingest(root, recording)
    assert "add" not in recording.calls
    assert (summary.switched, summary.written_pages) == (True, 0)
    assert page_of(store, "notes.txt").mtime_ns == 7_000_000_007
    assert {one: r for one, r in all_records(store).items() if one != TREE_ID} == chunks


@pytest.mark.parametrize(
    "change",
    [
        {"guide/start.mdx": None},
        {"guide/start.mdx": None, "guide/next.md": None, "guide/empty.md": None},
        {"guide/start.mdx": None, "moved/start.mdx": SITE["guide/start.mdx"]},
        {"guide/start.mdx": None, "guide/start.md": SITE["guide/start.mdx"]},
        {"guide/start.mdx": prose("start", 3)},
        {"guide/start.mdx": ""},
        {"guide/start.mdx": prose("start", 900)},
        {"guide/empty.md": prose("filled")},
        {"auth.mdx": None, "auth/oauth.mdx": None, "auth": "now a file"},
        {"index.mdx": SITE["auth.mdx"], "auth.mdx": SITE["index.mdx"]},
    ],
    ids=[
        "deleted", "directory deleted", "moved", "other extension", "shrunk", "emptied", "grown",
        "filled", "directory becomes file", "swapped",
    ],
)  # fmt: skip
def test_deleted_moved_and_shrunk_pages_leave_nothing_behind(
    store: ChunkWriter, root: Path, change: dict[str, str | None]
) -> None:
    run_ingest(root, store, chunk_size=200)
    site = {path: text for path, text in {**SITE, **change}.items() if text is not None}
    run_ingest(write_site(root, site), store, chunk_size=200)
    assert read_site(store) == as_bytes(site)
    assert orphans(store) == []
    pages = tree_of(store).pages
    assert len(list(store.scan_ids())) == 1 + sum(page.chunks or 0 for page in pages)
    slugs = {r.metadata["page"] for r in store.scan(documents=False) if "page" in r.metadata}
    assert slugs == {page.slug for page in pages}


def test_another_chunk_size_rewrites_every_page_and_leaves_no_old_chunk(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store, chunk_size=1_600)
    before = set(store.scan_ids()) - {TREE_ID}
    summary = run_ingest(root, store, chunk_size=100)
    assert summary.written_pages == len(SITE)
    assert not before & set(store.scan_ids())
    assert read_site(store) == as_bytes(SITE)
    assert orphans(store) == []
    assert run_ingest(root, store, chunk_size=100).written_pages == 0


def test_a_page_whose_access_changes_is_written_anew_with_its_new_key(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store)
    before = {record.id for record in stored_chunks(store, "auth")}
    restricted = {**SITE, "auth.mdx": "---\ngroups: [admin]\n---\n" + SITE["auth.mdx"]}
    run_ingest(write_site(root, restricted), store)
    after = stored_chunks(store, "auth")
    assert not before & {record.id for record in after}
    [key] = {record.metadata["access"] for record in after}
    assert key == page_of(store, "auth.mdx").rule.key != "public"
    view = prune(tree_of(store), ANONYMOUS)
    assert b"auth.mdx" not in view.by_path
    assert b"auth.mdx" in prune(tree_of(store), operator_identity(["admin"])).by_path
    assert orphans(store) == []


@pytest.mark.parametrize("default", [AUTHENTICATED, HIDDEN])
def test_another_default_access_rewrites_unmarked_pages_though_no_byte_changed(
    store: ChunkWriter, root: Path, default: object
) -> None:
    run_ingest(root, store)
    before = set(store.scan_ids()) - {TREE_ID}
    sources = SourceOptions(default_access=default)  # type: ignore[arg-type]
    assert run_ingest(root, store, sources=sources).written_pages == len(SITE)
    assert not before & set(store.scan_ids())
    assert not prune(tree_of(store), ANONYMOUS).pages
    assert read_site(store) == as_bytes(SITE)


def test_identical_pages_do_not_share_chunks(store: ChunkWriter, tmp_path: Path) -> None:
    site = {f"p{n}.md": prose("same") for n in range(4)}
    run_ingest(write_site(tmp_path / "s", site), store)
    del site["p2.md"]
    run_ingest(write_site(tmp_path / "s", site), store)
    assert read_site(store) == as_bytes(site)


# -- a tree of several records


def test_a_tree_that_outgrows_a_record_is_split_read_and_replaced_whole(
    store: ChunkWriter, root: Path
) -> None:
    small = SmallRecords(store, 100)
    run_ingest(root, small)
    parts = [one for one in store.scan_ids() if one.startswith(TREE_ID)]
    assert len(parts) > 3
    assert all(len(r.document or "") <= 100 for r in store.get(parts))
    assert read_site(store) == as_bytes(SITE)
    recording = Recording(small)
    run_ingest(root, recording)
    assert recording.writes == []
    changed = {**SITE, "new.md": prose("new")}
    run_ingest(write_site(root, changed), small)
    assert read_site(store) == as_bytes(changed)
    assert orphans(store) == []
    # And back into one record.
    run_ingest(write_site(root, SITE), store)
    assert [one for one in store.scan_ids() if one.startswith(TREE_ID)] == [TREE_ID]
    assert orphans(store) == []


def test_the_parts_of_a_new_tree_are_complete_before_the_first_names_them(
    store: ChunkWriter, root: Path
) -> None:
    small = SmallRecords(store, 100)
    run_ingest(root, small)
    seen: list[dict[str, bytes]] = []

    class Watching(WrappedStore):
        """Reads the whole site before every write."""

        def before(self, call: str) -> None:
            if call in ("add", "upsert", "delete"):
                seen.append(read_site(store))

    changed = {**SITE, "new.md": prose("new"), "index.mdx": prose("changed")}
    run_ingest(write_site(root, changed), Watching(small))
    old, new = as_bytes(SITE), as_bytes(changed)
    assert all(site in (old, new) for site in seen)
    assert seen[0] == old
    assert read_site(store) == new


# -- what is not ours


@pytest.mark.parametrize("document", ['{"a": {"isPublic": true, "groups": []}}', "", "garbage"])
def test_a_tree_of_another_tool_is_never_overwritten(
    store: ChunkWriter, root: Path, document: str
) -> None:
    store.add([tree_record(document), *foreign_chunks("a", prose("a"))])
    before = all_records(store)
    with pytest.raises(IngestError, match="another tool wrote") as caught:
        run_ingest(root, store)
    assert "--collection" in caught.value.remedy
    assert all_records(store) == before


def test_records_of_others_are_never_deleted(store: ChunkWriter, root: Path) -> None:
    """Whatever they look like: like our chunks, our intents, or with our pages' slugs."""
    theirs = [
        *foreign_chunks("index", prose("theirs")),
        *foreign_chunks("gone", prose("theirs"), fields=("page_slug",), as_text=True),
        NewRecord("0" * 32, "x", {"page": "index", "chunk_index": 0, "version": "0" * 32}, (0.0,)),
        NewRecord("f" * 32, "x", {"page": "index", "chunk_index": 0}, (0.0,)),
        NewRecord("note", "x", {"kind": "note"}, (0.0,)),
    ]
    store.add(theirs)
    before = all_records(store)
    run_ingest(root, store)
    run_ingest(write_site(root, {"index.mdx": "short"}), store)
    run_ingest(write_site(root, {"other.mdx": "short"}), store, chunk_size=100)
    after = all_records(store)
    assert {one: after.get(one) for one in before} == before
    assert read_site(store) == {"other.mdx": b"short"}


# -- damage


def test_chunks_deleted_behind_our_back_are_mended_by_the_next_ingest(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store, chunk_size=200)
    victims = [stored_chunks(store, "guide/start")[4].id, stored_chunks(store, "index")[0].id]
    store.delete(victims)
    with pytest.raises(ContentError):
        read_site(store)
    summary = run_ingest(root, store, chunk_size=200)
    assert summary.written_pages == 2
    assert read_site(store) == as_bytes(SITE)
    assert orphans(store) == []


@pytest.mark.expects_log("the stored tree is replaced")
@pytest.mark.parametrize("damage", ["garbage", "cut", "part missing", "parts", "empty"])
def test_a_damaged_tree_of_ours_is_mended_by_the_next_ingest(
    store: ChunkWriter, root: Path, damage: str
) -> None:
    small = SmallRecords(store, 100)
    run_ingest(root, small)
    [head] = store.get([TREE_ID])
    assert head.document is not None
    if damage == "part missing":
        store.delete([one for one in store.scan_ids() if one.startswith(TREE_ID + "/")][:1])
    else:
        text = {"garbage": "!" * 100, "cut": head.document[:-9], "empty": ""}.get(damage)
        metadata = {**head.metadata, "parts": 0} if damage == "parts" else head.metadata
        document = head.document if text is None else text
        store.upsert([NewRecord(TREE_ID, document, metadata, (0.0,))])
    run_ingest(root, small)
    assert read_site(store) == as_bytes(SITE)
    assert orphans(store) == []


def test_a_deleted_tree_is_made_again_and_its_old_chunks_are_removed(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store)
    store.delete([TREE_ID])
    run_ingest(root, store)
    assert read_site(store) == as_bytes(SITE)
    assert orphans(store) == []


# -- failures


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("error", [StoreUnavailable("down"), KeyboardInterrupt()], ids=repr)
def test_an_ingest_that_fails_leaves_the_old_site_and_the_next_one_leaves_nothing_of_it(
    store: ChunkWriter, root: Path, nth: int, error: BaseException
) -> None:
    small = SmallRecords(store, 100)
    run_ingest(root, small, chunk_size=200)
    changed = {**{p: t + "more\n" for p, t in SITE.items() if t}, "new.md": prose("new", 90)}
    write_site(root, changed)

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        run_ingest(root, Interrupted(small, nth, fail), chunk_size=200)
    assert read_site(store) in (as_bytes(SITE), as_bytes(changed))
    run_ingest(root, small, chunk_size=200)
    assert read_site(store) == as_bytes(changed)
    assert orphans(store) == []


@pytest.mark.parametrize("nth", [2, 3, 4])
def test_an_ingest_that_is_interrupted_takes_back_what_it_wrote(
    store: ChunkWriter, root: Path, nth: int
) -> None:
    small = SmallRecords(store, 100)
    run_ingest(root, small)
    before = all_records(store)
    write_site(root, {path: text + "more\n" for path, text in SITE.items()})

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ingest(root, Interrupted(small, nth, interrupt))
    assert all_records(store) == before


class LateSwitch(WrappedStore):
    """The server carries out the tree's switch only after the client has given up on it."""

    def __init__(self, inner: ChunkWriter) -> None:
        super().__init__(inner)
        self.late: Sequence[NewRecord] = ()

    def upsert(self, records: Sequence[NewRecord]) -> None:
        if records[0].id == TREE_ID:
            self.late = records
            raise StoreUnavailable("did not answer in time")
        super().upsert(records)


def test_a_switch_that_happens_after_its_deadline_shows_a_whole_site(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store)
    changed = {**SITE, "index.mdx": prose("changed"), "new.md": prose("new")}
    late = LateSwitch(store)
    with pytest.raises(StoreUnavailable):
        run_ingest(write_site(root, changed), late)
    assert read_site(store) == as_bytes(SITE)
    store.upsert(late.late)
    assert read_site(store) == as_bytes(changed)
    run_ingest(root, store)
    assert orphans(store) == []


class TwoNumbers:
    """Vectors of another length than those in the collection."""

    name = "two"
    dimension = 2

    def vectors(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        return [(0.5, 0.5)] * len(texts)


def test_vectors_that_do_not_fit_the_collection_are_an_error_and_the_old_site_stays(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store)
    before = all_records(store)
    with pytest.raises(StoreError) as caught:
        run_ingest(root, store, embedder=TwoNumbers())
    assert "\n" not in str(caught.value)
    assert all_records(store) == before


def test_vectors_of_an_embedder_are_stored_and_pages_read_the_same(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store, embedder=TwoNumbers())
    assert read_site(store) == as_bytes(SITE)
    recording = Recording(store)
    run_ingest(root, recording, embedder=TwoNumbers())
    assert recording.writes == []


def test_a_page_that_cannot_be_stored_is_lost_named_and_the_rest_is_stored(
    store: ChunkWriter, root: Path
) -> None:
    (root / "latin1.md").write_bytes(b"caf\xe9\n")
    (root / "dangling.md").symlink_to("nowhere.md")
    summary = run_ingest(root, store)
    assert {omission.path for omission in summary.lost} == {"latin1.md", "dangling.md"}
    assert all(omission.reason for omission in summary.lost)
    assert read_site(store) == as_bytes(SITE)


def test_a_page_that_becomes_unreadable_is_removed_rather_than_shown_old(
    store: ChunkWriter, root: Path
) -> None:
    run_ingest(root, store)
    (root / "index.mdx").write_bytes(b"\xff")
    summary = run_ingest(root, store)
    assert [omission.path for omission in summary.lost] == ["index.mdx"]
    expected = as_bytes(SITE)
    del expected["index.mdx"]
    assert read_site(store) == expected
    assert orphans(store) == []


def test_the_summary_counts_what_was_removed(store: ChunkWriter, root: Path) -> None:
    first = run_ingest(root, store)
    site = {path: text for path, text in SITE.items() if not path.startswith("guide/")}
    summary = run_ingest(write_site(root, site), store)
    assert summary.removed_pages == 3
    assert summary.removed_records == first.chunks - summary.chunks
    assert replace(summary, switched=True) == summary


# -- what must not happen by accident


def test_a_site_is_not_switched_to_one_without_pages(store: ChunkWriter, root: Path) -> None:
    run_ingest(root, store)
    before = all_records(store)
    (root.parent / "empty").mkdir()
    with pytest.raises(IngestError, match="holds no page") as caught:
        run_ingest(root.parent / "empty", store)
    assert "delete the collection" in str(caught.value.remedy)
    assert all_records(store) == before


@pytest.mark.parametrize("how", ["gone", "replaced"])
def test_a_root_that_vanishes_while_it_is_read_leaves_the_old_site(
    store: ChunkWriter, root: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    run_ingest(root, store)
    before = all_records(store)
    reads = 0

    def read(source: Source) -> Content | Omission:
        nonlocal reads
        reads += 1
        if reads == 4:
            root.rename(root.parent / "old")
            if how == "replaced":
                root.mkdir()
        return read_source(source)

    monkeypatch.setattr("chromafuse.ingest.write.read_source", read)
    (root / "index.mdx").write_text("changed")
    with pytest.raises(IngestError, match="vanished"):
        run_ingest(root, store)
    assert all_records(store) == before


def test_a_file_that_vanishes_alone_is_lost(
    store: ChunkWriter, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(source: Source) -> Content | Omission:
        (root / "windows.md").unlink(missing_ok=True)
        return read_source(source)

    monkeypatch.setattr("chromafuse.ingest.write.read_source", read)
    assert [item.path for item in run_ingest(root, store).lost] == ["windows.md"]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"---\ngroups: [admin]\n---\n" + b"x" * 70_000 + b"\xff", any_of(["admin"])),
        (b"\xff\xfeg\0", HIDDEN),
        (b"---\ngroups: [admin]\n---\n", any_of(["admin"])),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_who_may_not_see_a_page_that_is_not_stored_does_not_see_docs_json(
    store: ChunkWriter, tmp_path: Path, page: bytes, expected: AccessRule, alone: bool
) -> None:
    site = {"docs.json": '{"navigation": {"pages": ["a", "secret-plan"]}}'}
    root = write_site(tmp_path / "site", site if alone else {**site, "a.md": "text"})
    (root / "secret-plan.mdx").write_bytes(page)
    run_ingest(root, store, sources=SourceOptions(exclude=("/secret-plan.mdx",)))
    assert page_of(store, "docs.json").rule == expected
    run_ingest(root, store)
    assert page_of(store, "docs.json").rule == expected


def test_an_image_does_not_close_docs_json(store: ChunkWriter, tmp_path: Path) -> None:
    site = {"docs.json": '{"navigation": {"pages": ["a"]}}', "a.md": "text"}
    root = write_site(tmp_path / "site", site)
    (root / "logo.png").write_bytes(b"\xff")
    (root / "empty").mkdir()
    run_ingest(root, store)
    assert page_of(store, "docs.json").rule == PUBLIC


def test_the_tree_tells_what_decided_and_a_rule_may_close_the_site_file(
    store: ChunkWriter, tmp_path: Path
) -> None:
    root = write_site(
        tmp_path / "site",
        {
            "docs.json": '{"navigation": {"pages": ["open", "own"]}}',
            "open.mdx": "",
            "own.mdx": "---\ngroups: [a]\n---\n",
        },
    )
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nglob = "docs.json"\ngroups = ["operators"]\n')
    run_ingest(root, store, sources=SourceOptions(preset="plain", access=read_rules(rules)))
    every = page_of(store, "docs.json").rule
    assert every == all_of([any_of(["a"]), any_of(["operators"])])
    text = fetch_text(store).document
    reasons = {slug: raw_entry(text, slug).get("why") for slug in ("open", "own", "docs.json")}
    assert reasons == {
        "open": None,
        "own": "frontmatter: groups",
        "docs.json": "it names every page of the site: all their rules together; and "
        "rules.toml rule 1: docs.json",
    }
