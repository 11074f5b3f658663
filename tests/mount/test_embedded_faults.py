"""An embedded database deleted, replaced, spoilt, read-only or from a newer Chroma."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.mount.harness import Site, wait_until

pytestmark = pytest.mark.xdist_group("mount-embedded-faults")

PAGES = 6
GENEROUS = 60.0


def text(number: int, version: int = 0) -> str:
    return f"page {number} version {version}\n" * 500


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    for number in range(PAGES):
        (root / f"p{number}.mdx").write_text(text(number))
    return root


@pytest.fixture
def mounted(site: Site, source: Path) -> Site:
    """A mount whose page 0 is in memory, and no other."""
    site.ingest(source)
    site.mount("--warm", "off", "--refresh", "0.2")
    assert page(site, 0).read_text() == text(0)
    return site


def page(site: Site, number: int) -> Path:
    return site.mountpoint / f"p{number}.mdx"


def goes_on(site: Site) -> None:
    """What is in memory is served; the rest fails as it should."""
    assert page(site, 0).read_text() == text(0)
    assert len(os.listdir(site.mountpoint)) == PAGES
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
        page(site, 1).read_text()
    assert caught.value.errno == errno.EIO


def refused(site: Site, code: int, words: str) -> None:
    """A new mount fails with one line, and so does the doctor."""
    where = ["-c", site.collection, "--chroma", site.chroma]
    done = site.command("mount", site.mountpoint, *where).expect(code)
    assert words.encode() in done.err
    assert b"\n" not in done.err.strip()
    assert words.encode() in site.command("doctor", *where).expect(13).out


@pytest.mark.expects_log("reads from Chroma fail: there is no", "cannot be read")
def test_a_deleted_database_is_said_so_and_followed_when_it_is_back(
    mounted: Site, source: Path
) -> None:
    shutil.rmtree(mounted.chroma)
    goes_on(mounted)
    error = mounted.status()["chroma"]["error"]
    assert f"there is no Chroma database in {mounted.chroma} any more" in error
    # Another database at the same place, with another site.
    (source / "p1.mdx").write_text(text(1, version=1))
    mounted.ingest(source)
    assert wait_until(lambda: _reads(mounted, 1, 1), GENEROUS)
    for number in (0, 2, 3):
        assert page(mounted, number).read_text() == text(number)
    assert mounted.status()["chroma"]["ok"]
    mounted.umount()
    shutil.rmtree(mounted.chroma)
    refused(mounted, 7, f"there is no Chroma database in {mounted.chroma}")


def _reads(site: Site, number: int, version: int) -> bool:
    try:
        return page(site, number).read_text() == text(number, version)
    except OSError:
        return False


@pytest.mark.expects_log("reads from Chroma fail")
def test_a_spoilt_database_is_said_so(mounted: Site) -> None:
    os.truncate(Path(mounted.chroma) / "chroma.sqlite3", 4096)
    goes_on(mounted)
    assert not mounted.status()["chroma"]["ok"]
    mounted.umount()
    refused(mounted, 6, "is not a database")


def test_a_database_of_a_newer_chroma_is_read_as_far_as_chroma_does(mounted: Site) -> None:
    """Chroma leaves migrations alone that it does not know; one that it knows must be the same."""
    database = Path(mounted.chroma) / "chroma.sqlite3"
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute(
            "INSERT INTO migrations SELECT dir, 99, '00099-later.sqlite.sql', sql, hash"
            " FROM migrations WHERE version = 1"
        )
    for number in range(PAGES):
        assert page(mounted, number).read_text() == text(number)
    mounted.umount()
    mounted.mount()
    assert page(mounted, 1).read_text() == text(1)
    mounted.umount()
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("UPDATE migrations SET hash = 'other' WHERE version = 1")
    refused(mounted, 6, f"Chroma in {mounted.chroma} fails: ")


def test_a_read_only_directory_goes_on_if_mounted_and_is_said_so_if_not(mounted: Site) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a directory read-only")
    subprocess.run(["mount", "--bind", mounted.chroma, mounted.chroma], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", mounted.chroma], check=True)
        for number in range(PAGES):
            assert page(mounted, number).read_text() == text(number)
        mounted.umount()
        refused(mounted, 6, "it has to be writable")
    finally:
        subprocess.run(["umount", "-l", mounted.chroma], check=True)
