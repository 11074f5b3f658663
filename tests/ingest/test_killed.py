"""An ingest killed at any moment leaves a whole site, and the next one leaves nothing of it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chromafuse.domain.treecodec import TREE_ID
from chromafuse.ports import ChunkWriter
from tests.support.backends import TargetBackend
from tests.support.commands import finish, run_module, start_ingest
from tests.support.dying_ingest import CHUNK_SIZE, RECORD_BYTES
from tests.support.sites import all_records, orphans, read_site, run_ingest, write_site
from tests.support.wrappers import SmallRecords

SIGKILLED = -9


def site(mark: str, pages: int, lines: int = 6) -> dict[str, bytes]:
    """A site of which every page differs from that of another mark, in content and length."""
    return {
        f"d{n % 4}/p{n}.md": "".join(
            f"{mark} page {n} line {line}\n" * (1 + len(mark) % 2) for line in range(lines)
        ).encode()
        for n in range(pages)
    }


@contextmanager
def opened(backend: TargetBackend) -> Iterator[ChunkWriter]:
    """A store for a moment: an embedded one is not left open while another process writes."""
    store = backend.open()
    try:
        yield store
    finally:
        backend.close()


def die_at(backend: TargetBackend, source: Path, nth: int) -> tuple[int, str]:
    """Run an ingest that kills itself before its ``nth`` write; return its exit code and output."""
    done = run_module(
        "tests.support.dying_ingest",
        backend.target,
        backend.name,
        str(source),
        str(nth),
        home=source.parent,
    )
    assert done.returncode in (0, SIGKILLED), done.stderr
    return done.returncode, done.stdout.strip()


def ingest_small(root: Path, store: ChunkWriter) -> None:
    run_ingest(root, SmallRecords(store, RECORD_BYTES), chunk_size=CHUNK_SIZE)


def check_killed(store: ChunkWriter, old: dict[str, bytes], new: dict[str, bytes]) -> bool:
    """Whether the new site stands; the old or the new one does, whole."""
    found = read_site(store)
    assert found in (old, new)
    return found == new


def check_clean(store: ChunkWriter, expected: dict[str, bytes]) -> None:
    assert read_site(store) == expected
    assert orphans(store) == []


OLD = {**site("old", 8), "same.md": b"unchanged\n" * 10, "gone.md": b"deleted\n" * 10}
NEW = {**site("newer", 9), "same.md": b"unchanged\n" * 10}


def sweep(backend: TargetBackend, tmp_path: Path, share: tuple[int, int]) -> list[bool]:
    """Kill one ingest before each of its writes (of a share of them); whether each had switched."""
    old, new = write_site(tmp_path / "old", OLD), write_site(tmp_path / "new", NEW)
    with opened(backend) as store:
        ingest_small(old, store)
    code, writes = die_at(backend, new, 0)
    assert code == 0
    switched = []
    for nth in range(1 + share[0], int(writes) + 1, share[1]):
        with opened(backend) as store:
            ingest_small(old, store)
            check_clean(store, OLD)
        code, _ = die_at(backend, new, nth)
        assert code == SIGKILLED
        with opened(backend) as store:
            switched.append(check_killed(store, OLD, NEW))
            ingest_small(new, store)
            check_clean(store, NEW)
    return switched


@pytest.mark.parametrize("share", range(2))
def test_a_kill_before_any_write_shows_the_old_or_the_new_site_whole(
    server: TargetBackend, tmp_path: Path, share: int
) -> None:
    switched = sweep(server, tmp_path, (share, 2))
    assert len(switched) > 5
    # Before some write the old site stands, and after another the new one does, for good.
    assert switched == sorted(switched)
    assert set(switched) == {False, True}


def test_a_kill_shows_the_old_or_the_new_site_whole_in_a_directory_too(
    embedded: TargetBackend, tmp_path: Path
) -> None:
    assert set(sweep(embedded, tmp_path, (1, 5))) == {False, True}


def test_a_first_ingest_that_is_killed_leaves_no_site_and_the_next_one_all_of_it(
    server: TargetBackend, tmp_path: Path
) -> None:
    new = write_site(tmp_path / "new", NEW)
    for nth in (2, 7):
        code, _ = die_at(server, new, nth)
        assert code == SIGKILLED
        with opened(server) as store:
            assert TREE_ID not in set(store.scan_ids())
            assert orphans(store)
    with opened(server) as store:
        ingest_small(new, store)
        check_clean(store, NEW)


def test_what_a_killed_ingest_left_is_removed_even_if_nothing_has_changed(
    server: TargetBackend, tmp_path: Path
) -> None:
    old, new = write_site(tmp_path / "old", OLD), write_site(tmp_path / "new", NEW)
    with opened(server) as store:
        ingest_small(old, store)
        before = all_records(store)
    code, _ = die_at(server, new, 6)
    assert code == SIGKILLED
    with opened(server) as store:
        assert len(all_records(store)) > len(before)
        ingest_small(old, store)
        assert all_records(store) == before


def kill_at_random(
    backend: TargetBackend, tmp_path: Path, rounds: int, source: random.Random
) -> tuple[int, int]:
    """Kill the real command at random moments; how often it was killed and had switched."""
    sites = [site("even", 150, 30), site("odds", 160, 30)]
    roots = [write_site(tmp_path / name, one) for name, one in zip("ab", sites, strict=True)]
    assert finish(start_ingest(roots[0], backend.target, backend.name)).returncode == 0
    lasts = 1.0
    killed = switched = 0
    for n in range(rounds):
        old, new = sites[n % 2], sites[(n + 1) % 2]
        process = start_ingest(roots[(n + 1) % 2], backend.target, backend.name)
        assert process.stderr is not None
        process.stderr.readline()  # "looking for pages": the slow start is over
        begun = time.monotonic()
        moment = source.uniform(0, lasts)
        while process.poll() is None and time.monotonic() - begun < moment:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert process.returncode in (0, SIGKILLED)
        if process.returncode == 0:
            lasts = 0.95 * (time.monotonic() - begun)
        killed += process.returncode == SIGKILLED
        with opened(backend) as store:
            switched += check_killed(store, old, new)
        done = finish(start_ingest(roots[(n + 1) % 2], backend.target, backend.name))
        assert done.returncode == 0, done.stderr
        with opened(backend) as store:
            assert read_site(store) == new
            late = orphans(store)
        if late:
            # A server carries out a write that was under way when its client was killed, be it
            # after the next ingest has looked; then it is the one after that cleans up.
            assert "://" in backend.target
            # What comes late may be the record of the intent alone, which begins with "__".
            assert len({one[:8] for one in late if not one.startswith("__")}) <= 1
            assert finish(start_ingest(roots[(n + 1) % 2], backend.target, backend.name))
        with opened(backend) as store:
            check_clean(store, new)
    return killed, switched


def test_the_command_killed_at_random_moments_never_shows_a_broken_site(
    server: TargetBackend, tmp_path: Path
) -> None:
    killed, _ = kill_at_random(server, tmp_path, 10, random.Random())
    assert killed >= 3


def test_the_command_killed_at_random_moments_never_breaks_a_directory(
    embedded: TargetBackend, tmp_path: Path
) -> None:
    killed, _ = kill_at_random(embedded, tmp_path, 5, random.Random())
    assert killed >= 1
