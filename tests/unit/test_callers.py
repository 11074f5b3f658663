"""Who is recognised as a search program, by real processes stopped in the middle of their work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chromafuse.domain.pattern import And, Fold, Literal, Program, analyse
from chromafuse.fs.callers import KEPT, Callers, Inspected, inspect, numbers_fit
from tests.support.unprivileged import as_nobody

GREP, RG = shutil.which("grep") or "", shutil.which("rg") or ""
DEADLINE = 20.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")

Words = Sequence[object]


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers(is_on=True)
    yield callers
    callers.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A FIFO: a program that opens it waits for ever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.002)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def executes(pid: int, program: str | Path) -> bool:
    return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)") == os.path.realpath(program)


@contextmanager
def running(
    words: Words,
    *,
    program: str | Path = "",
    env: Mapping[Any, str] = ENVIRONMENT,
    **options: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that waits for something, and kill it behind the block."""
    options = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    process = start(list(map(str, words)), env=dict(env), **options)
    try:
        place = program or str(words[0])
        wait_until(lambda: executes(process.pid, place) and state(process.pid) == "S")
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def look(callers: Callers, pid: int) -> Inspected | None:
    """What a process is found to search, None if it is no search program that is understood."""
    caller = callers.of(pid)
    if caller is None:
        return None
    if caller.found is None:
        caller.found = inspect(caller.pid, caller.name)
    return caller.found if caller.found.search is not None else None


def query_of(callers: Callers, pid: int) -> object:
    """What is known to be searched, None for a process that is shown everything."""
    found = look(callers, pid)
    return None if found is None or found.search is None else found.search.query


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ([GREP, "-rn", "zanzibar"], Literal("zanzibar")),
        ([GREP, "-ri", "zan"], Literal("zan", Fold.UNICODE)),
        ([GREP, "-rF", "-e", "a.b", "--"], Literal("a.b")),
        ([GREP, "-rqc", "zanzibar"], Literal("zanzibar")),
        ([GREP, "zanzibar"], None),
        ([GREP, "-rv", "zanzibar"], None),
        ([GREP, "-rc", "zanzibar"], None),
        ([GREP, "-rL", "zanzibar"], None),
        ([GREP, "-r", ""], None),
        ([GREP, "-rf", "/etc/hostname"], None),
        ([GREP, "-r", "x" * 20_000], None),
        ([RG, "zanzibar"], Literal("zanzibar")),
        ([RG, "zan.*bar"], And((Literal("zan"), Literal("bar")))),
        ([RG, "-v", "zanzibar"], None),
        ([RG, "-c", "--include-zero", "zanzibar"], None),
        ([RG, "--no-such-option", "zanzibar"], None),
    ],
)
def test_a_search_program_is_known_by_its_arguments(
    callers: Callers, pipe: Path, words: list[str], query: object
) -> None:
    if "--no-such-option" in words:
        # It ends at once; only its words matter.
        assert (
            analyse(Program.RG, [w.encode() for w in words[1:]], {}, lambda _: None).query != query
        )
        return
    with running([*words, pipe]) as process:
        assert query_of(callers, process.pid) == query
        assert query_of(callers, process.pid) == query


@pytest.mark.parametrize("option", ["-c", "-L"])
def test_grep_that_names_every_file_needs_them_unless_nobody_looks(
    callers: Callers, pipe: Path, option: str
) -> None:
    words = [GREP, "-r", option, "zanzibar", pipe]
    with running(words) as process:
        assert query_of(callers, process.pid) is None
    with running(words, stdout=subprocess.DEVNULL) as process:
        assert query_of(callers, process.pid) == Literal("zanzibar")
    with running(["sh", "-c", '"$@" >&- & wait', "sh", *words], program="/bin/sh") as process:
        [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        wait_until(lambda: executes(int(child), GREP))
        assert query_of(callers, int(child)) is None
        os.kill(int(child), signal.SIGKILL)


def test_a_process_that_has_ended_is_nobody(callers: Callers, pipe: Path) -> None:
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        assert query_of(callers, process.pid) == Literal("zanzibar")
        process.kill()
        wait_until(lambda: state(process.pid) == "Z")
        assert look(callers, process.pid) is None, "it waits for its parent only"
        process.wait()
        assert look(callers, process.pid) is None
        assert not callers.narrows(process.pid)
    assert look(callers, 0) is None
    assert look(callers, 2**31 - 1) is None


def test_another_process_with_the_number_is_looked_at_anew(callers: Callers, pipe: Path) -> None:
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        pid = process.pid
        assert query_of(callers, pid) == Literal("zanzibar")
    with _with_the_number(pid, ["sleep", "60"]):
        assert look(callers, pid) is None
    with _with_the_number(pid, [GREP, "-r", "quetzal!", str(pipe)]):
        assert query_of(callers, pid) == Literal("quetzal!")
    with _with_the_number(pid, [GREP, "-r", "xylophon", str(pipe)]):
        assert query_of(callers, pid) == Literal("xylophon")


@contextmanager
def _with_the_number(pid: int, words: list[str]) -> Iterator[None]:
    """Start a program under a number that is free; where that cannot be asked for, wait for it."""
    end = time.monotonic() + 60
    while True:
        assert time.monotonic() < end, "others take the number again and again"
        if os.access(LAST_PID, os.W_OK):
            LAST_PID.write_text(str(pid - 1))
        process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE)
        try:
            if process.pid == pid:
                wait_until(
                    lambda: executes(pid, shutil.which(words[0]) or "") and state(pid) == "S"
                )
                yield
                return
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


EXECS = 'echo; read -r _; exec "$@"'


@pytest.mark.parametrize("randomised", [True, False])
@pytest.mark.parametrize("name", ["sh", "grep"])
def test_a_process_that_becomes_grep_is_known_from_then_on(
    callers: Callers, pipe: Path, tmp_path: Path, name: str, randomised: bool
) -> None:
    """Also from a script called grep, and where programs always lie at the same addresses."""
    script = tmp_path / name
    script.write_text(f"#!/bin/sh\n{EXECS}\n")
    script.chmod(0o755)
    prefix = [] if randomised else ["setarch", "-R"]
    words = [*prefix, script, GREP, "-r", "zanzibar", pipe]
    with running(words, program="/bin/sh", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert look(callers, process.pid) is None
        assert Path(f"/proc/{process.pid}/comm").read_text() == f"{name}\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(lambda: executes(process.pid, GREP) and state(process.pid) == "S")
        assert query_of(callers, process.pid) == Literal("zanzibar")


def test_what_a_process_has_announced_holds_whatever_it_becomes(
    callers: Callers, pipe: Path
) -> None:
    search = analyse(Program.GREP, [b"-r", b"quetzal", b"x"], {}, lambda _: None)
    words = ["sh", "-c", EXECS, "sh", GREP, "-r", "zanzibar", pipe]
    for announced, query in ((search, Literal("quetzal")), (None, None)):
        with running(words, program="/bin/sh", stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            callers.expect(process.pid, announced)
            assert query_of(callers, process.pid) == query
            process.stdin.write(b"\n")
            process.stdin.flush()
            wait_until(lambda pid=process.pid: executes(pid, GREP))  # type: ignore[misc]
            assert query_of(callers, process.pid) == query
        assert look(callers, process.pid) is None
        with pytest.raises(OSError, match="No such"):
            callers.expect(process.pid, announced)


def test_only_the_programs_themselves_are_known(
    callers: Callers, pipe: Path, tmp_path: Path
) -> None:
    places = {name: tmp_path / name for name in ("own", "other", "elsewhere")}
    for place in places.values():
        place.mkdir()
    shutil.copy(GREP, places["own"] / "grep")
    shutil.copy(shutil.which("cat") or "", places["other"] / "grep")
    shutil.copy(GREP, places["elsewhere"] / "mygrep")
    asked: Words = ["-r", "zanzibar", pipe]
    with running([places["own"] / "grep", *asked]) as process:
        assert query_of(callers, process.pid) == Literal("zanzibar")
    with running([places["other"] / "grep", pipe]) as process:
        assert look(callers, process.pid) is None
    with running([places["elsewhere"] / "mygrep", *asked]) as process:
        assert look(callers, process.pid) is None
    with running([places["own"] / "grep", *asked]) as process:
        (places["own"] / "grep").unlink()
        assert look(callers, process.pid) is None, "nobody can tell what it was"
    with running([GREP, *asked], executable=GREP) as process:
        assert query_of(callers, process.pid) == Literal("zanzibar")
    with running(["-odd name)", *asked], program=GREP, executable=GREP) as process:
        assert query_of(callers, process.pid) == Literal("zanzibar")


def test_the_threads_of_ripgrep_are_known(callers: Callers, pipe: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "other")
    with running([RG, "-j4", "zanzibar", pipe, tmp_path / "other"]) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        wait_until(lambda: len(list(tasks.iterdir())) > 2)
        threads = [int(task.name) for task in tasks.iterdir()]
        for thread in threads:
            assert query_of(callers, thread) == Literal("zanzibar")
    assert [look(callers, thread) for thread in threads] == [None] * len(threads)


def test_ripgrep_without_operands_is_known_with_its_directory(
    callers: Callers, pipe: Path, tmp_path: Path
) -> None:
    where = tmp_path / "with\nnewline"
    where.mkdir()
    # More than a pipe takes: it waits for its reader.
    (where / "page").write_text("zanzibar\n" * 50_000)
    for words, cwd in (([RG, "zanzibar"], str(where)), ([RG, "zanzibar", "."], None)):
        with running(words, cwd=where) as process:
            found = look(callers, process.pid)
            assert found is not None
            assert (found.cwd, found.sorts) == (cwd, False)
    with running([RG, "-e", "zan", "-f", "-"], stdin=subprocess.PIPE, cwd=tmp_path) as process:
        assert look(callers, process.pid) is None, "its patterns come from a stream"
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        found = look(callers, process.pid)
        assert found is not None
        assert (found.cwd, found.sorts) == (None, True)


@pytest.mark.parametrize(
    ("words", "more", "query"),
    [
        ([RG, "zanzibar"], {"RIPGREP_CONFIG_PATH": "/dev/null"}, None),
        ([RG, "zanzibar"], {"RIPGREP_CONFIG_PATH": ""}, Literal("zanzibar")),
        ([RG, "--no-config", "zanzibar"], {"RIPGREP_CONFIG_PATH": "/x"}, Literal("zanzibar")),
        ([GREP, "-r", "zanzibar"], {"GREP_OPTIONS": "-v"}, None),
        ([GREP, "-ri", "zan"], {"LC_ALL": "C"}, Literal("zan", Fold.ASCII)),
        ([GREP, "-ri", "zan"], {b"LC_ALL": "C"}, Literal("zan", Fold.UNICODE)),
        ([GREP, "-ri", "zan"], {"LC_ALL": "tr_TR.ISO-8859-9"}, None),
        ([GREP, "zan", "-r"], {"POSIXLY_CORRECT": "1"}, None),
    ],
)
def test_the_environment_counts_as_the_program_reads_it(
    callers: Callers, pipe: Path, words: list[str], more: Mapping[Any, str], query: object
) -> None:
    """A name that stands twice, as the bytes beside the text here, counts as it stands first."""
    with running([*words, pipe], env={**ENVIRONMENT, **more}) as process:
        assert query_of(callers, process.pid) == query


def test_nobody_is_recognised_unasked_if_that_is_off(pipe: Path) -> None:
    callers = Callers(is_on=False)
    search = analyse(Program.GREP, [b"-r", b"zanzibar", b"x"], {}, lambda _: None)
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        assert look(callers, process.pid) is None
        callers.expect(process.pid, search)
        assert query_of(callers, process.pid) == Literal("zanzibar")
        callers.close()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_are_few_and_all_go(pipe: Path) -> None:
    callers = Callers(is_on=True)
    before = _descriptors()
    for _ in range(KEPT + 20):
        with subprocess.Popen(["sleep", "60"]) as process:
            look(callers, process.pid)
            look(callers, process.pid)
            process.kill()
    assert _descriptors() - before == KEPT
    with running([GREP, "-r", "zanzibar", pipe], stdout=subprocess.DEVNULL) as process:
        for _ in range(50):
            look(callers, process.pid)
            callers.expect(process.pid, None)
        assert _descriptors() - before == KEPT
    callers.close()
    assert _descriptors() == before


def test_who_goes_on_listing_is_not_forgotten_for_others(callers: Callers, pipe: Path) -> None:
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        callers.expect(process.pid, None)
        for _ in range(KEPT + 20):
            with subprocess.Popen(["sleep", "60"]) as other:
                callers.of(other.pid)
                other.kill()
            assert callers.of(process.pid) is None


ASK = """
import sys
from chromafuse.fs.callers import Callers, Inspected, inspect, numbers_fit
found = Callers(is_on=True).of(int(sys.argv[1]))
print(numbers_fit(), found is not None)
"""


def _asked(prefix: Sequence[str], pid: int, scratch: Path | None = None) -> str:
    words = [sys.executable, "-c", ASK, str(pid)]
    if scratch is not None:
        words = as_nobody(words, scratch)
    done = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_another_user_s_process_is_shown_everything(pipe: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        assert _asked([], process.pid) == "True True"
        seen = process.pid if os.geteuid() == 0 else 1
        assert _asked([], seen, scratch) == "True False"


def test_numbers_of_another_process_namespace_mean_nobody(pipe: Path) -> None:
    assert numbers_fit()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, "--pid", "--fork"]
    with running([GREP, "-r", "zanzibar", pipe]) as process:
        assert _asked(unshare, process.pid) == "False False"
    assert _asked([*unshare, "--mount-proc"], 1) == "True False"
