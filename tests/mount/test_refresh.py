"""A mount follows the site: new trees without a remount, never a mix of two versions."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chromafuse.stores.chroma import open_collection
from tests.mount.harness import Site, wait_until
from tests.support.chroma_server import ChromaServer, running_chroma
from tests.support.sites import run_ingest

pytestmark = pytest.mark.xdist_group("mount-refresh")

GENEROUS = 20.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for path, text in {
        "index.mdx": "one\n",
        "guide/start.mdx": "start one\n",
        "guide/same.mdx": "same\n",
        "old/gone.mdx": "gone\n",
        "deep/er/still/here.mdx": "here\n",
    }.items():
        write(root, path, text)
    return root


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def site(tmp_path: Path, source: Path, chroma_server: ChromaServer) -> Iterator[Site]:
    name = "refresh-" + hashlib.sha1(str(tmp_path).encode(), usedforsecurity=False).hexdigest()[:12]
    site = Site(tmp_path / "site", chroma=chroma_server.url, collection=name)
    site.ingest(source)
    try:
        yield site
    finally:
        site.close()


def names(root: Path) -> set[str]:
    return {
        str(Path(place, name).relative_to(root))
        for place, below, files in os.walk(root)
        for name in (*below, *files)
    }


def edit(source: Path) -> None:
    """Change, add and remove pages and directories."""
    write(source, "index.mdx", "two, and longer than before\n")
    write(source, "guide/start.mdx", "start 2!!\n")
    write(source, "new/page.mdx", "new\n")
    write(source, "deep/er/and/more.mdx", "more\n")
    (source / "old/gone.mdx").unlink()
    (source / "old").rmdir()


def equal(site: Site, source: Path) -> bool:
    """Whether the mount shows exactly the source."""
    done = subprocess.run(["diff", "-r", source, site.mountpoint], capture_output=True, check=False)
    return done.returncode == 0 and names(site.mountpoint) == names(source)


def test_an_ingest_is_shown_when_it_ends(site: Site, source: Path) -> None:
    site.mount("--refresh", "0")
    assert equal(site, source)
    absent = site.mountpoint / "new"
    assert not absent.exists()
    kept = {path: os.stat(site.mountpoint / path) for path in ("guide/same.mdx", "deep/er", ".")}
    changed = os.stat(site.mountpoint / "index.mdx")
    edit(source)
    site.ingest(source)
    assert equal(site, source)
    assert absent.exists()
    for path, before in kept.items():
        assert os.stat(site.mountpoint / path).st_ino == before.st_ino, path
    after = os.stat(site.mountpoint / "index.mdx")
    assert after.st_ino != changed.st_ino
    assert after.st_size == (source / "index.mdx").stat().st_size
    for path in ("index.mdx", "guide", "new", "deep/er"):
        assert os.stat(site.mountpoint / path).st_mtime_ns == max(
            (source / path).stat().st_mtime_ns if (source / path).is_file() else 0,
            *(f.stat().st_mtime_ns for f in (source / path).rglob("*.mdx")),
            0,
        )


def test_a_mount_looks_by_itself(site: Site, source: Path) -> None:
    site.mount("--refresh", "0.2")
    edit(source)
    # Another machine's ingest: the mount is not told.
    site.env["XDG_RUNTIME_DIR"], runtime = str(source.parent), site.env["XDG_RUNTIME_DIR"]
    site.ingest(source)
    site.env["XDG_RUNTIME_DIR"] = runtime
    assert wait_until(lambda: equal(site, source), GENEROUS)
    told = site.status()["refresh"]
    assert told["refreshes"] == 1
    assert told["error"] is None
    assert not told["stale"]


def test_refresh_asks_now_and_a_pinned_mount_does_not_change(site: Site, source: Path) -> None:
    version = site.status_of_tree(source)
    site.mount("--pin", version)
    edit(source)
    site.ingest(source)
    told = site.command("refresh", site.mountpoint).expect(0)
    assert (
        told.out.decode() == f"{site.mountpoint} keeps {version} (--pin); another one is stored\n"
    )
    assert b"another one is stored (--pin)" in site.command("status", site.mountpoint).expect(0).out
    assert (site.mountpoint / "guide/same.mdx").read_text() == "same\n"
    assert not (site.mountpoint / "new").exists()
    site.umount()
    refused = site.command(
        "mount", site.mountpoint, "-c", site.collection, "--chroma", site.chroma, "--pin", version
    ).expect(7)
    assert version in refused.err.decode()


def test_the_root_tells_version_and_age(site: Site, source: Path) -> None:
    site.mount()
    told = os.getxattr(site.mountpoint, "user.chromafuse.tree_version").decode()
    assert told == site.status()["tree_version"]
    assert 0 <= int(os.getxattr(site.mountpoint, "user.chromafuse.tree_age")) < 60
    edit(source)
    site.ingest(source)
    assert os.getxattr(site.mountpoint, "user.chromafuse.tree_version").decode() != told


def test_an_open_file_keeps_its_version(site: Site, source: Path) -> None:
    site.mount("--refresh", "0")
    with open(site.mountpoint / "index.mdx", "rb", buffering=0) as held:
        assert held.read() == b"one\n"
        size = os.fstat(held.fileno()).st_size
        edit(source)
        site.ingest(source)
        held.seek(0)
        assert held.read() == b"one\n"
        assert os.fstat(held.fileno()).st_size == size
        assert (site.mountpoint / "index.mdx").read_text() == "two, and longer than before\n"


def test_a_directory_in_use_goes_on_through_refreshes(site: Site, source: Path) -> None:
    site.mount("--refresh", "0")
    directory = os.open(site.mountpoint / "guide", os.O_RDONLY)
    try:
        before = os.fstat(directory).st_ino
        for number in range(3):
            text = f"start {number}\n" * (number + 2)
            write(source, "guide/start.mdx", text)
            write(source, f"guide/new{number}.mdx", text)
            site.ingest(source)
            # Here the kernel is told anew of the directory.
            assert "guide" in {entry.name for entry in os.scandir(site.mountpoint)}
            assert (site.mountpoint / "guide/start.mdx").read_text() == text
            for name in ("start.mdx", f"new{number}.mdx"):
                assert os.stat(name, dir_fd=directory).st_size == len(text)
                with open(os.open(name, os.O_RDONLY, dir_fd=directory)) as file:
                    assert file.read() == text
            again = os.open(".", os.O_RDONLY, dir_fd=directory)
            assert f"new{number}.mdx" in os.listdir(again)
            os.close(again)
            assert os.fstat(directory).st_ino == before
    finally:
        os.close(directory)


def test_an_open_file_that_was_not_read_in_time_is_stale(site: Site, source: Path) -> None:
    site.mount("--refresh", "0", "--warm", "off")
    held = os.open(site.mountpoint / "index.mdx", os.O_RDONLY)
    unread = os.open(site.mountpoint / "old/gone.mdx", os.O_RDONLY)
    # At open a fetch begins: let those bytes go from the daemon's memory with the daemon's site.
    assert os.read(held, 10) == b"one\n"
    edit(source)
    site.ingest(source)
    found: bytes | int
    try:
        found = os.read(unread, 100)
    except OSError as error:
        found = error.errno or 0
    assert found in (b"gone\n", errno.ESTALE)
    for descriptor in (held, unread):
        os.close(descriptor)


def test_an_open_directory_lists_the_tree_it_was_opened_on(site: Site, source: Path) -> None:
    for number in range(2_000):
        write(source, f"many/page-{number:04}.mdx", f"{number}\n")
    site.ingest(source)
    site.mount("--refresh", "0")
    with os.scandir(site.mountpoint / "many") as listing:
        first = [next(listing).name for _ in range(10)]
        for number in range(0, 2_000, 2):
            (source / f"many/page-{number:04}.mdx").unlink()
        write(source, "many/page-0001.mdx", "changed\n")
        site.ingest(source)
        rest = [entry.name for entry in listing]
    assert len(first + rest) in (1_000, 2_000)
    # What the old listing told is not believed afterwards.
    assert not (site.mountpoint / "many/page-1998.mdx").exists()
    assert (site.mountpoint / "many/page-0001.mdx").read_text() == "changed\n"
    assert equal(site, source)


def test_a_newly_restricted_page_is_gone_from_every_session(site: Site, source: Path) -> None:
    site.hub("--refresh", "0.3")
    anonymous, admin = site.open_session(), site.open_session("--groups", "admin")
    page = "guide/start.mdx"
    for root in (anonymous, admin):
        assert (root / page).read_text() == "start one\n"
    write(source, page, "---\ngroups: [admin]\n---\nstart one\n")
    site.ingest(source)
    assert not (anonymous / page).exists()
    assert "start.mdx" not in os.listdir(anonymous / "guide")
    assert "start one" in (admin / page).read_text()
    write(source, page, "start again\n")
    site.ingest(source)
    for root in (anonymous, admin):
        assert (root / page).read_text() == "start again\n"


LIVE = tuple(f"live/p{number:02}.mdx" for number in range(12))


def publish(source: Path, generation: int) -> None:
    """Write pages that tell their own checksum and generation."""
    for page in LIVE:
        body = f"{page} {generation}\n" * random.Random(generation).randint(1, 400)
        write(source, page, f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}")


def read_on(mount: Path, stop: threading.Event, wrong: list[object], seen: set[bytes]) -> None:
    """Read pages at random; what is no whole version is ``wrong``."""
    # The ingests run in this process, and want their turn.
    while not stop.wait(0.002):
        page = random.choice(LIVE)
        try:
            text = (mount / page).read_bytes()
        except OSError as error:
            if error.errno != errno.ESTALE:
                wrong.append((page, error))
            continue
        digest, _, body = text.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            wrong.append((page, text[:80]))
        seen.add(body.split(b"\n")[0].split(b" ")[1])


def test_reads_in_flight_and_a_thousand_changes_do_not_hold_each_other_up(
    site: Site, source: Path
) -> None:
    for number in range(1_000):
        write(source, f"bulk/p{number:04}.mdx", f"old {number}\n")
    site.ingest(source)
    site.mount("--refresh", "0", "--warm", "off")
    walker = subprocess.Popen(
        ["sh", "-c", "while :; do grep -r old . >/dev/null 2>&1; done"], cwd=site.mountpoint
    )
    try:
        for number in range(1_000):
            write(source, f"bulk/p{number:04}.mdx", f"new {number}\n")
        site.ingest(source)
        assert equal(site, source)
        assert walker.poll() is None
    finally:
        walker.kill()
        walker.wait()
    (daemon,) = site.daemons()
    for task in os.listdir(f"/proc/{daemon}/task"):
        text = Path(f"/proc/{daemon}/task/{task}/stat").read_text()
        assert text.rpartition(")")[2].split()[0] != "D"


def test_what_is_shown_stays_while_chroma_is_away(tmp_path: Path, source: Path) -> None:
    with running_chroma(tmp_path / "data") as server:
        site = Site(tmp_path / "site", chroma=server.url, collection="away")
        try:
            site.ingest(source)
            site.mount("--refresh", "0.2", "--deadline", "2")
            assert wait_until(lambda: site.status()["warm_up"]["state"] == "done", GENEROUS)
            assert (site.mountpoint / "index.mdx").read_text() == "one\n"
            os.kill(server.pid, signal.SIGSTOP)
            try:
                assert wait_until(lambda: site.status()["refresh"]["error"] is not None, GENEROUS)
                for _ in range(3):
                    assert (site.mountpoint / "index.mdx").read_text() == "one\n"
                    assert names(site.mountpoint) == names(source)
                assert site.log.read_text().count("the tree cannot be checked") == 1
                refused = site.command("refresh", site.mountpoint).expect(1)
                assert b"cannot be checked" in refused.err
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert wait_until(lambda: site.status()["refresh"]["error"] is None, GENEROUS)
        finally:
            site.close()


@pytest.mark.expects_log("stale: the tree shown")
def test_a_mount_says_when_what_it_shows_is_old(tmp_path: Path, source: Path) -> None:
    with running_chroma(tmp_path / "data") as server:
        site = Site(tmp_path / "site", chroma=server.url, collection="away")
        try:
            site.ingest(source)
            site.mount("--refresh", "0.1", "--deadline", "0.5", "--max-stale", "0.5")
            assert wait_until(lambda: site.status()["warm_up"]["state"] == "done", GENEROUS)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                assert wait_until(lambda: bool(site.status()["refresh"]["stale"]), GENEROUS)
                assert (site.mountpoint / "index.mdx").exists()
                assert site.log.read_text().count("stale: the tree shown") == 1
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert wait_until(lambda: not site.status()["refresh"]["stale"], GENEROUS)
        finally:
            site.close()


def test_readers_see_whole_versions_through_a_hundred_ingests(site: Site, source: Path) -> None:
    """The ingests run in this process, which has loaded all: ten of them take a second."""
    publish(source, 0)
    site.ingest(source)
    site.mount("--refresh", "0.05")
    stop, seen = threading.Event(), set[bytes]()
    wrong: list[object] = []
    readers = [
        threading.Thread(target=read_on, args=(site.mountpoint, stop, wrong, seen))
        for _ in range(4)
    ]
    store = open_collection(site.chroma, site.collection, create=False, timeout=60)
    for reader in readers:
        reader.start()
    try:
        for generation in range(1, 101):
            publish(source, generation)
            run_ingest(source, store)
    finally:
        store.close()
        stop.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert len(seen) > 20
    assert wait_until(lambda: equal(site, source), GENEROUS)
