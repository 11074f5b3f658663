"""What is particular to a database in a directory."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from chromafuse.domain.errors import StoreError, StoreMissing
from chromafuse.ports import NewRecord
from chromafuse.stores.chroma import open_collection

RECORD = NewRecord("a", "text", {"page": "a"}, (0.0,))


def message(caught: pytest.ExceptionInfo[StoreError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_mistyped_directory_is_missing_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing) as caught:
        open_collection(str(tmp_path / "typo"), "docs", create=False, timeout=5)
    assert str(tmp_path / "typo") in message(caught)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_database_is_missing_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        open_collection(str(tmp_path), "docs", create=False, timeout=5)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError) as caught:
        open_collection(str(tmp_path / "file" / "db"), "docs", create=True, timeout=5)
    assert "cannot create" in message(caught)


@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_database_is_an_error_and_stays_as_it_is(
    tmp_path: Path, create: bool
) -> None:
    file = tmp_path / "chroma.sqlite3"
    file.write_bytes(b"precious notes, not a database\n" * 100)
    before = file.read_bytes()
    with pytest.raises(StoreError) as caught:
        open_collection(str(tmp_path), "docs", create=create, timeout=5)
    assert "not a database" in message(caught)
    assert file.read_bytes() == before


def test_readers_do_not_wait_for_writers(tmp_path: Path) -> None:
    store = open_collection(str(tmp_path), "docs", create=True, timeout=5)
    store.add([RECORD])
    store.close()
    with closing(sqlite3.connect(tmp_path / "chroma.sqlite3")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_opening_a_database_again_does_not_disturb_who_has_it_open(tmp_path: Path) -> None:
    first = open_collection(str(tmp_path), "docs", create=True, timeout=5)
    first.add([RECORD])
    for _ in range(5):
        again = open_collection(str(tmp_path), "docs", create=False, timeout=5)
        assert len(again.get(["a"])) == 1
        again.close()
        assert len(first.get(["a"])) == 1
    first.delete(["a"])
    assert first.get(["a"]) == []
    first.close()


def test_a_home_directory_may_be_written_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_collection("~/db", "docs", create=True, timeout=5).close()
    assert (tmp_path / "db" / "chroma.sqlite3").is_file()


def stored(directory: Path, collection: str, record: NewRecord = RECORD) -> None:
    store = open_collection(str(directory), collection, create=True, timeout=5)
    store.add([record])
    store.close()


def empty(directory: Path) -> None:
    (directory / "chroma.sqlite3").touch()


def garbage(directory: Path) -> None:
    (directory / "chroma.sqlite3").write_bytes(b"not a database\n" * 1000)


def half_migrated(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "chroma.sqlite3")) as database, database:
        database.execute("CREATE TABLE migrations (dir TEXT)")


def without_the_collection(directory: Path) -> None:
    elsewhere = directory.with_name("elsewhere")
    stored(elsewhere, "another")
    with closing(sqlite3.connect(elsewhere / "chroma.sqlite3")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copytree(elsewhere, directory, dirs_exist_ok=True)


@pytest.mark.parametrize("unready", [empty, garbage, half_migrated, without_the_collection])
def test_a_new_database_is_left_alone_until_it_is_ready_and_followed_then(
    tmp_path: Path, unready: Callable[[Path], None]
) -> None:
    directory = tmp_path / "db"
    stored(directory, "docs")
    store = open_collection(str(directory), "docs", create=False, timeout=5)
    assert len(store.get(["a"])) == 1
    shutil.rmtree(directory)
    with pytest.raises(StoreMissing):
        store.get(["a"])
    directory.mkdir()
    unready(directory)
    before = (directory / "chroma.sqlite3").read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.get(["a"])
        message(caught)
    assert (directory / "chroma.sqlite3").read_bytes() == before
    shutil.rmtree(directory)
    stored(directory, "docs", NewRecord("b", "later", {"page": "b"}, (0.0,)))
    assert [record.document for record in store.get(["b"])] == ["later"]
    store.close()


def test_the_collection_may_come_after_the_database(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    stored(directory, "docs")
    store = open_collection(str(directory), "docs", create=False, timeout=5)
    shutil.rmtree(directory)
    stored(directory, "another")
    with pytest.raises(StoreMissing):
        store.get(["a"])
    stored(directory, "docs")
    assert len(store.get(["a"])) == 1
    store.close()


def test_two_readers_of_one_directory_both_follow(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    stored(directory, "docs")
    readers = [open_collection(str(directory), "docs", create=False, timeout=5) for _ in range(2)]
    shutil.rmtree(directory)
    stored(directory, "docs", NewRecord("b", "later", {"page": "b"}, (0.0,)))
    for reader in readers:
        assert len(reader.get(["b"])) == 1
    for reader in readers:
        reader.close()
