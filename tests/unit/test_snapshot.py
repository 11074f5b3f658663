"""The tree on disk: private, whole or none, and never shown for what it is not."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse import snapshot as snapshot_module
from chromafuse.domain.errors import StoreDenied, StoreMissing, StoreUnavailable, TreeMissing
from chromafuse.domain.page import Page
from chromafuse.domain.tree import TreeVersion
from chromafuse.domain.treecodec import TREE_ID
from chromafuse.ports import NewRecord
from chromafuse.snapshot import SnapshotFile, load_current
from chromafuse.treestore import TreeText, decode_text, fetch_text
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.sites import run_ingest, tree_record, write_site
from tests.support.wrappers import Recording, SmallRecords

TEXT = TreeText(
    TreeVersion("0123456789abcdef"), '{"a": 1, "é": "漢"}', 1_700_000_000_000_000_007, True
)
TARGET = "http://127.0.0.1:8000"
HOUR = 3600.0


def snapshot_file(directory: Path, target: str = TARGET, collection: str = "docs") -> SnapshotFile:
    return SnapshotFile(directory / "cache" / "chromafuse", target, collection)


@pytest.fixture
def file(tmp_path: Path) -> SnapshotFile:
    return snapshot_file(tmp_path)


def path_in(tmp_path: Path) -> Path:
    """The one snapshot that is on disk."""
    [path] = (tmp_path / "cache" / "chromafuse").iterdir()
    return path


def saved(file: SnapshotFile) -> TreeText | None:
    found = file.load()
    return None if found is None else found.text


# -- the file


@given(
    st.text("0123456789abcdef", min_size=1, max_size=32),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=2_000),
    st.none() | st.integers(0, (1 << 63) - 1),
)
def test_what_was_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, version: str, document: str, switched: int | None
) -> None:
    file = snapshot_file(tmp_path_factory.getbasetemp() / "round-trip")
    text = TreeText(TreeVersion(version), document, switched, is_ours=True)
    file.save(text)
    assert saved(file) == text


def test_without_a_snapshot_there_is_none(file: SnapshotFile) -> None:
    assert file.load() is None
    file.touch()
    assert file.load() is None


def test_a_later_snapshot_takes_the_place_of_the_earlier(
    file: SnapshotFile, tmp_path: Path
) -> None:
    for n in range(5):
        file.save(TEXT._replace(version=TreeVersion(f"{n}")))
    assert saved(file) == TEXT._replace(version=TreeVersion("4"))
    path_in(tmp_path)  # nothing else is left there


def test_each_collection_of_each_database_has_its_own(tmp_path: Path) -> None:
    places = [("a", "docs"), ("b", "docs"), ("a", "other"), ("adocs", "x"), ("a", "docsx")]
    files = [snapshot_file(tmp_path, target, collection) for target, collection in places]
    for n, one in enumerate(files):
        one.save(TEXT._replace(version=TreeVersion(f"{n}")))
    assert [one and one.version for one in map(saved, files)] == ["0", "1", "2", "3", "4"]


def test_the_name_of_the_file_tells_no_password(tmp_path: Path) -> None:
    snapshot_file(tmp_path, "http://user:hunter2@h:8000").save(TEXT)
    path = path_in(tmp_path)
    assert "hunter2" not in path.name
    assert b"hunter2" not in path.read_bytes()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_and_its_directory_are_the_users_alone(
    file: SnapshotFile, tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        file.save(TEXT)
    finally:
        os.umask(before)
    path = path_in(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_it_was_checked_when_it_was_saved_or_last_touched(
    file: SnapshotFile, tmp_path: Path
) -> None:
    def checked() -> float:
        found = file.load()
        assert found is not None
        return found.checked

    file.save(TEXT)
    assert abs(checked() - time.time()) < 60
    os.utime(path_in(tmp_path), (5.0, 5.0))
    assert checked() == 5.0
    file.touch()
    assert abs(checked() - time.time()) < 60


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o620, 0o601, 0o644, 0o666])
def test_a_file_that_others_may_use_is_refused(
    file: SnapshotFile, tmp_path: Path, mode: int
) -> None:
    file.save(TEXT)
    path_in(tmp_path).chmod(mode)
    assert file.load() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_refused(file: SnapshotFile, tmp_path: Path) -> None:
    file.save(TEXT)
    os.chown(path_in(tmp_path), 12_345, -1)
    assert file.load() is None


def test_a_snapshot_that_was_refused_is_replaced_by_a_good_one(
    file: SnapshotFile, tmp_path: Path
) -> None:
    file.save(TEXT)
    path_in(tmp_path).chmod(0o666)
    file.save(TEXT)
    assert saved(file) == TEXT
    assert stat.S_IMODE(path_in(tmp_path).stat().st_mode) == 0o600


def test_a_snapshot_cut_anywhere_counts_as_none(file: SnapshotFile, tmp_path: Path) -> None:
    file.save(TEXT)
    path = path_in(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert file.load() is None, length
    path.write_bytes(whole)
    assert saved(file) == TEXT


def test_no_flipped_bit_makes_another_snapshot(file: SnapshotFile, tmp_path: Path) -> None:
    file.save(TEXT)
    path = path_in(tmp_path)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert saved(file) in (None, TEXT), bytes(flipped)


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"\n", b"\0" * 10_000, b"{}\n", b"[]\n", b"7\n", b"null\n", b"[" * 4_000, b"\xff\n{}",
        b'{"format": 1}\n{}', b'{"format": "1", "digest": []}\n', b"x" * 100_000,
        b'{"format": 1, "version": "v", "switched_ns": Infinity, "digest": "x"}\n',
    ],
    ids=lambda garbage: ascii(garbage[:20]),
)  # fmt: skip
def test_garbage_counts_as_none(file: SnapshotFile, tmp_path: Path, garbage: bytes) -> None:
    file.save(TEXT)
    path_in(tmp_path).write_bytes(garbage)
    assert file.load() is None


def test_a_snapshot_of_a_newer_program_counts_as_none(
    file: SnapshotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(snapshot_module, "FORMAT", snapshot_module.FORMAT + 1)
        file.save(TEXT)
        assert saved(file) == TEXT
    assert file.load() is None


def test_a_directory_in_its_place_counts_as_none(file: SnapshotFile, tmp_path: Path) -> None:
    file.save(TEXT)
    path = path_in(tmp_path)
    path.unlink()
    path.mkdir(mode=0o700)
    assert file.load() is None


def _a_file(directory: Path) -> None:
    directory.parent.mkdir()
    directory.write_text("not a directory")


def _a_dangling_link(directory: Path) -> None:
    directory.parent.mkdir()
    directory.symlink_to("/nowhere/at/all")


def _a_directory_in_the_files_place(directory: Path) -> None:
    file = snapshot_file(directory.parent.parent)
    file.save(TEXT)
    [path] = directory.iterdir()
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()


@pytest.mark.parametrize("spoil", [_a_file, _a_dangling_link, _a_directory_in_the_files_place])
def test_a_directory_that_cannot_be_written_is_no_error_and_one_line(
    file: SnapshotFile,
    tmp_path: Path,
    spoil: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    spoil(tmp_path / "cache" / "chromafuse")
    caplog.set_level(logging.INFO, "chromafuse")
    file.save(TEXT)
    file.touch()
    assert file.load() is None
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("the tree is not kept on disk: ")
    left = [path for path in tmp_path.rglob("*") if path.name.startswith("tmp")]
    assert left == []


# -- the tree that is shown


class Switchable(Recording):
    """Remembers calls, and which ids were asked for; fails with ``failure`` if there is one."""

    failure: Exception | None = None

    def before(self, call: str) -> None:
        super().before(call)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def store(tmp_path: Path) -> Switchable:
    inner = MemoryStore(MemoryDatabase())
    run_ingest(write_site(tmp_path / "site", {"a.md": "one\n", "d/b.md": "two\n"}), inner)
    return Switchable(inner)


def change(store: Switchable, tmp_path: Path) -> None:
    """Ingest another state of the site."""
    site = write_site(tmp_path / "site", {"a.md": "changed\n", "new.md": "three\n"})
    run_ingest(site, store.inner)


def pages_in(text: TreeText) -> Sequence[Page]:
    return decode_text(text, default_mtime_ns=0).pages


def age(tmp_path: Path, seconds: float) -> float:
    """Make the snapshot one that was checked so long ago; return when that was."""
    then = time.time() - seconds
    os.utime(path_in(tmp_path), (then, then))
    return path_in(tmp_path).stat().st_mtime


def test_the_first_time_the_tree_is_fetched_whole_and_kept(
    store: Switchable, file: SnapshotFile
) -> None:
    current = load_current(store, file, HOUR)
    assert store.calls == ["get", "get"]
    assert current.stale_since is None
    assert current.text == fetch_text(store) == saved(file)
    assert [page.path for page in pages_in(current.text)] == [b"a.md", b"d/b.md"]


def test_an_unchanged_tree_is_one_small_read(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    first = load_current(store, file, HOUR)
    before = path_in(tmp_path).read_bytes()
    age(tmp_path, 50_000)
    store.calls.clear()
    assert load_current(store, file, HOUR) == first
    assert store.calls == ["metadata"]
    # And it is known to be current from now on, without being written again.
    found = file.load()
    assert found is not None
    assert abs(found.checked - time.time()) < 60
    assert path_in(tmp_path).read_bytes() == before


def test_a_changed_tree_is_fetched_whole_and_kept(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    load_current(store, file, HOUR)
    change(store, tmp_path)
    store.calls.clear()
    current = load_current(store, file, HOUR)
    assert store.calls == ["metadata", "get", "get"]
    assert current.stale_since is None
    assert [page.path for page in pages_in(current.text)] == [b"a.md", b"new.md"]
    assert saved(file) == current.text


def test_a_snapshot_that_is_spoiled_costs_a_fetch_and_is_mended(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    first = load_current(store, file, HOUR)
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    assert load_current(store, file, HOUR) == first
    assert saved(file) == first.text


def test_without_a_writable_cache_the_tree_is_shown_all_the_same(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    _a_file(tmp_path / "cache" / "chromafuse")
    for _ in range(2):
        assert load_current(store, file, HOUR).text == fetch_text(store)


def test_a_store_that_is_away_shows_the_fresh_snapshot_and_since_when(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    first = load_current(store, file, HOUR)
    then = age(tmp_path, HOUR - 60)
    store.failure = StoreUnavailable("it is away")
    for _ in range(2):
        current = load_current(store, file, HOUR)
        assert current.text == first.text
        # Showing it does not make it younger.
        assert current.stale_since == then


def test_a_store_that_goes_away_between_the_look_and_the_fetch_shows_the_snapshot(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    first = load_current(store, file, HOUR)
    change(store, tmp_path)

    class Leaving(Recording):
        def before(self, call: str) -> None:
            super().before(call)
            if call == "get":
                raise StoreUnavailable("it is away")

    leaving = Leaving(store.inner)
    current = load_current(leaving, file, HOUR)
    assert leaving.calls == ["metadata", "get"]
    assert current.text == first.text
    assert current.stale_since is not None


def test_a_snapshot_that_is_too_old_is_not_shown(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    load_current(store, file, HOUR)
    age(tmp_path, HOUR + 60)
    store.failure = StoreUnavailable("it is away")
    with pytest.raises(StoreUnavailable, match="it is away"):
        load_current(store, file, HOUR)


def test_no_age_is_young_enough_for_a_limit_of_zero(store: Switchable, file: SnapshotFile) -> None:
    load_current(store, file, 0)
    store.failure = StoreUnavailable("it is away")
    with pytest.raises(StoreUnavailable, match="it is away"):
        load_current(store, file, 0)


def test_without_a_snapshot_a_store_that_is_away_is_an_error(
    store: Switchable, file: SnapshotFile
) -> None:
    store.failure = StoreUnavailable("it is away")
    with pytest.raises(StoreUnavailable, match="it is away"):
        load_current(store, file, HOUR)


@pytest.mark.parametrize("error", [StoreDenied("no"), StoreMissing("gone")])
def test_a_store_that_refuses_or_has_lost_the_collection_shows_no_snapshot(
    store: Switchable, file: SnapshotFile, error: Exception
) -> None:
    load_current(store, file, HOUR)
    store.failure = error
    with pytest.raises(type(error)):
        load_current(store, file, HOUR)


def test_a_tree_that_was_deleted_is_not_shown_from_disk(
    store: Switchable, file: SnapshotFile
) -> None:
    load_current(store, file, HOUR)
    store.inner.delete([TREE_ID])
    with pytest.raises(TreeMissing):
        load_current(store, file, HOUR)


def test_a_tree_of_another_tool_is_never_kept(
    store: Switchable, file: SnapshotFile, tmp_path: Path
) -> None:
    """Its version says nothing of its chunks, and it may change without another version."""
    foreign = MemoryStore(MemoryDatabase())
    bare = json.dumps({"a": {"isPublic": True, "groups": []}})
    foreign.upsert([tree_record(bare)])
    assert load_current(foreign, file, HOUR).text.document == bare
    assert file.load() is None
    assert list(tmp_path.rglob("*.tree")) == []
    # Nor does it pass for one of ours that was here before.
    ours = load_current(store, file, HOUR)
    assert load_current(foreign, file, HOUR).text.document == bare
    assert saved(file) in (None, ours.text)


def test_a_tree_over_several_records_is_kept_whole(file: SnapshotFile, tmp_path: Path) -> None:
    store = SmallRecords(MemoryStore(MemoryDatabase()), 100)
    run_ingest(write_site(tmp_path / "site", {f"p{n}.md": "x" for n in range(50)}), store)
    recording = Recording(store)
    first = load_current(recording, file, HOUR)
    assert len(pages_in(first.text)) == 50
    recording.calls.clear()
    assert load_current(recording, file, HOUR) == first
    assert recording.calls == ["metadata"]
    assert pages_in(first.text) == pages_in(fetch_text(store))


def test_another_tree_record_of_the_same_version_does_not_mix_with_it(
    store: Switchable, file: SnapshotFile
) -> None:
    """The version stands for the text: who changes one without the other is not followed."""
    first = load_current(store, file, HOUR)
    metadata = store.inner.metadata(TREE_ID)
    assert metadata is not None
    store.inner.upsert([NewRecord(TREE_ID, first.text.document, metadata, (0.0,))])
    assert load_current(store, file, HOUR) == first
