"""What is particular to a database in a directory."""

from __future__ import annotations

import sqlite3
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
