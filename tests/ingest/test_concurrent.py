"""Readers beside ingests see whole pages; ingests beside ingests corrupt nothing."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from chromafuse.domain.errors import ChromafuseError, SwitchConflict
from chromafuse.ports import ChunkWriter
from chromafuse.treestore import load_tree
from tests.support.backends import TargetBackend
from tests.support.commands import finish, run_module, start_ingest
from tests.support.sites import (
    all_records,
    orphans,
    read_current_site,
    read_site,
    run_ingest,
    write_site,
)
from tests.support.wrappers import Interrupted, SmallRecords

ROUNDS = 30


def site(mark: str, pages: int, lines: int) -> dict[str, bytes]:
    return {
        f"d{n % 4}/p{n}.md": f"{mark} page {n} of some length\n".encode() * (lines + n % 3)
        for n in range(pages)
    }


SHARED = {f"shared/p{n}.md": b"the same in both\n" * 8 for n in range(6)}
ONE = {**site("one", 14, 12), **SHARED}
OTHER = {**site("another", 12, 5), **SHARED}


class SteadyReader(threading.Thread):
    """Loads the tree and reassembles every page, over and over."""

    def __init__(self, store: ChunkWriter, allowed: list[dict[str, bytes]]) -> None:
        super().__init__()
        self._store = store
        self._allowed = allowed
        self.stop = threading.Event()
        self.seen: list[int] = []
        self.wrong: list[object] = []

    def run(self) -> None:
        while not self.stop.is_set() or not self.seen:
            try:
                found = read_current_site(self._store)
            except ChromafuseError as error:
                self.wrong.append(error)
                return
            if found not in self._allowed:
                self.wrong.append(found)
                return
            self.seen.append(self._allowed.index(found))


@pytest.mark.parametrize("record_bytes", [1_000_000, 150])
def test_a_reader_beside_thirty_ingests_only_sees_whole_sites(
    server: TargetBackend, tmp_path: Path, record_bytes: int
) -> None:
    roots = [write_site(tmp_path / "a", ONE), write_site(tmp_path / "b", OTHER)]
    store = SmallRecords(server.open(), record_bytes)
    run_ingest(roots[1], store, chunk_size=80)
    reader = SteadyReader(server.open(), [ONE, OTHER])
    reader.start()
    for n in range(ROUNDS):
        run_ingest(roots[n % 2], store, chunk_size=80)
    reader.stop.set()
    reader.join()
    assert reader.wrong == []
    assert len(reader.seen) >= 5
    assert set(reader.seen) == {0, 1}
    assert orphans(store) == []


def test_a_reader_beside_thirty_ingests_of_another_process_only_sees_whole_sites(
    embedded: TargetBackend, tmp_path: Path
) -> None:
    roots = [write_site(tmp_path / "a", ONE), write_site(tmp_path / "b", OTHER)]
    assert finish(start_ingest(roots[1], embedded.target, embedded.name)).returncode == 0
    reader = SteadyReader(embedded.open(create=False), [ONE, OTHER])
    reader.start()
    done = run_module(
        "tests.support.reingest", embedded.target, embedded.name, *map(str, roots), str(ROUNDS),
        home=tmp_path,
    )  # fmt: skip
    reader.stop.set()
    reader.join()
    assert done.returncode == 0, done.stderr
    assert reader.wrong == []
    assert len(reader.seen) >= 5
    assert orphans(embedded.open()) == []


# -- two ingests


def intents(store: ChunkWriter) -> list[str]:
    return [record.id for record in store.find({"chromafuse": "ingest"})]


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_of_two_ingests_the_later_switch_notices_and_exits_with_4(
    server: TargetBackend, tmp_path: Path
) -> None:
    store = server.open()
    first = {**site("slow", 900, 40), **SHARED}
    run_ingest(write_site(tmp_path / "start", SHARED), store)
    slow = start_ingest(write_site(tmp_path / "slow", first), server.target, server.name)
    try:
        wait_for(lambda: intents(store), slow)
        slow.send_signal(signal.SIGSTOP)
        quick = finish(
            start_ingest(write_site(tmp_path / "quick", OTHER), server.target, server.name)
        )
        assert quick.returncode == 0, quick.stderr
        assert read_site(store) == OTHER
    finally:
        slow.send_signal(signal.SIGCONT)
    done = finish(slow)
    assert done.returncode == 4
    assert done.stderr.rstrip().split("\n")[-1].startswith("chromafuse: another ingest has changed")
    assert "run this ingest again" in done.stderr
    assert "Traceback" not in done.stderr
    assert read_site(store) == OTHER
    # The loser took back what it had written, and said good-bye.
    assert orphans(store) == []
    again = finish(start_ingest(tmp_path / "slow", server.target, server.name))
    assert again.returncode == 0
    assert read_site(store) == first
    assert orphans(store) == []


def test_a_running_ingest_keeps_what_it_has_written_so_far(
    server: TargetBackend, tmp_path: Path
) -> None:
    """Another ingest that finishes meanwhile must not take its chunks for rubbish."""
    store = server.open()
    run_ingest(write_site(tmp_path / "start", SHARED), store)
    seen: list[set[str]] = []
    process = start_ingest(
        write_site(tmp_path / "slow", site("slow", 4000, 10)), server.target, server.name
    )
    try:
        wait_for(lambda: len(list(store.scan_ids())) > 500, process)
        process.send_signal(signal.SIGSTOP)
        before = set(store.scan_ids())
        run_ingest(tmp_path / "start", store)
        seen.append(set(store.scan_ids()))
    finally:
        process.kill()
        process.communicate()
    assert seen == [before]
    # Now that it is gone, the same ingest removes all of it.
    run_ingest(tmp_path / "start", store)
    assert orphans(store) == []
    assert read_site(store) == SHARED


@pytest.mark.parametrize("nth", [2, 3, 4])
def test_whoever_switches_first_wins_and_the_other_changes_nothing(
    server: TargetBackend, tmp_path: Path, nth: int
) -> None:
    """Between any two writes of one ingest another one runs from begin to end."""
    store = SmallRecords(server.open(), 100)
    rival = SmallRecords(server.open(), 100)
    run_ingest(write_site(tmp_path / "start", SHARED), store)
    mine, theirs = write_site(tmp_path / "mine", ONE), write_site(tmp_path / "theirs", OTHER)
    after: list[dict[str, tuple[str | None, dict[str, object]]]] = []

    def overtake() -> None:
        run_ingest(theirs, rival)
        after.append(all_records(rival))

    calls = frozenset({"add", "upsert", "exclusive"})
    with pytest.raises(SwitchConflict):
        run_ingest(mine, Interrupted(store, nth, overtake, calls))
    assert read_site(store) == OTHER
    # The loser has taken back all it wrote; of the winner nothing is lost.
    assert orphans(store) == []
    kept = all_records(store)
    assert kept == {one: record for one, record in after[0].items() if one in kept}
    run_ingest(mine, store)
    assert read_site(store) == ONE
    assert orphans(store) == []


@pytest.mark.parametrize("round_number", range(3))
def test_two_commands_at_once_on_a_server_leave_one_whole_site(
    server: TargetBackend, tmp_path: Path, round_number: int
) -> None:
    _race(server, tmp_path, fresh=round_number == 0)


def test_two_commands_at_once_on_a_directory_leave_one_whole_site(
    embedded: TargetBackend, tmp_path: Path
) -> None:
    _race(embedded, tmp_path, fresh=False)


def test_two_commands_at_once_on_a_directory_that_is_not_there_yet_leave_one_whole_site(
    embedded: TargetBackend, tmp_path: Path
) -> None:
    _race(embedded, tmp_path, fresh=True)


def _race(backend: TargetBackend, tmp_path: Path, *, fresh: bool) -> None:
    sites = [{**site("one", 60, 30), **SHARED}, {**site("another", 50, 35), **SHARED}]
    roots = [write_site(tmp_path / name, one) for name, one in zip("ab", sites, strict=True)]
    if not fresh:
        start = write_site(tmp_path / "start", SHARED)
        assert finish(start_ingest(start, backend.target, backend.name)).returncode == 0
    both = [start_ingest(root, backend.target, backend.name) for root in roots]
    done = [finish(process) for process in both]
    codes = [one.returncode for one in done]
    assert set(codes) <= {0, 4}, [one.stderr for one in done]
    assert 0 in codes
    for one in done:
        assert "Traceback" not in one.stderr
        assert ("another ingest has changed the site" in one.stderr) == (one.returncode == 4)
    store = backend.open()
    found = read_site(store)
    assert found in [one for one, code in zip(sites, codes, strict=True) if code == 0]
    assert orphans(store) == []
    backend.close()
    done = [finish(start_ingest(root, backend.target, backend.name)) for root in roots]
    assert [one.returncode for one in done] == [0, 0]
    store = backend.open()
    assert read_site(store) == sites[1]
    assert orphans(store) == []


def test_a_tree_is_read_whole_while_its_parts_are_replaced(
    server: TargetBackend, tmp_path: Path
) -> None:
    small = SmallRecords(server.open(), 60)
    root = write_site(tmp_path / "s", {f"p{n}.md": b"x" for n in range(40)})
    run_ingest(root, small)
    other = server.open()
    versions, stop, wrong = set(), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                tree = load_tree(other, default_mtime_ns=0)
            except ChromafuseError as error:
                wrong.append(error)
                return
            versions.add(tree.version)
            if len(tree.pages) not in (40, 41):
                wrong.append(ChromafuseError(f"{len(tree.pages)} pages"))

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(12):
        extra = {} if n % 2 else {f"extra{n}.md": b"y"}
        run_ingest(write_site(root, {**{f"p{i}.md": b"x" for i in range(40)}, **extra}), small)
    stop.set()
    thread.join()
    assert wrong == []
    assert len(versions) > 1
