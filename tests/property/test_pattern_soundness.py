"""No filter loses a file that the real grep or ripgrep finds, and no argument list is an error."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chromafuse.domain.pattern import ALL, Needs, Program, Search, analyse, matches
from tests.support.pattern_fuzz import Fuzzer, Tally

SEEDS = st.integers(0, (1 << 48) - 1)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="patterns") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def total() -> Iterator[Tally]:
    tally = Tally()
    yield tally
    print(f"\npattern soundness: {tally}")


@settings(max_examples=30)
@given(seed=SEEDS)
def test_files_found_are_admitted(seed: int, directory: Path, total: Tally) -> None:
    fuzzer = Fuzzer(random.Random(seed), directory)
    fuzzer.batch(20)
    tally = fuzzer.tally
    for name in ("trials", "narrowed", "matched", "rejected", "kept", "files"):
        setattr(total, name, getattr(total, name) + getattr(tally, name))
    for path in directory.iterdir():
        path.unlink()
    assert not tally.failures, tally.failures[0]


def test_the_fuzz_finds_matches(directory: Path) -> None:
    """Otherwise it would prove nothing."""
    fuzzer = Fuzzer(random.Random(1), directory)
    for _ in range(4):
        fuzzer.batch()
    assert fuzzer.tally.matched > fuzzer.tally.trials // 5
    assert fuzzer.tally.kept < fuzzer.tally.files // 3


WORDS = [
    *(b"-r", b"-rn", b"-i", b"-v", b"-z", b"-c", b"-L", b"-l", b"-q", b"-o", b"-h", b"-H", b"-w"),
    *(b"-e", b"foo", b"-f", b"p", b"-", b"--", b"-A", b"1", b"-5", b"-m1", b"--include=*.md", b"."),
    *(b"--color", b"--col=never", b"--no", b"--inv", b"-d", b"recurse", b"--files", b"--json"),
    *(b"-P", b"-E", b"-F", b"-U", b"-S", b"-g", b"*.md", b"\\(", b"[", b"a\nb", b"\xff", b""),
    *(
        b"--regexp",
        b"--regexp=x|y",
        b"--engine",
        b"auto",
        b"--pre",
        b"cat",
        b"-X",
        b"--exclude-dir",
    ),
]
argument_lists = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=12)), max_size=8)
environments = st.dictionaries(
    st.sampled_from([b"LC_ALL", b"LC_CTYPE", b"LANG", b"POSIXLY_CORRECT", b"GREP_OPTIONS"]),
    st.sampled_from([b"", b"C", b"C.UTF-8", b"de_DE", b"tr_TR.utf8@x", b"\xff"]),
)


@settings(max_examples=500)
@given(
    program=st.sampled_from(Program),
    argv=argument_lists,
    environ=environments,
    content=st.one_of(st.none(), st.binary(max_size=20)),
)
def test_any_argument_list_has_an_answer(
    program: Program, argv: list[bytes], environ: dict[bytes, bytes], content: bytes | None
) -> None:
    search = analyse(program, argv, environ, lambda _path: content)
    assert search.reason
    assert (search.needs is Needs.EVERYTHING) == (search.query == ALL)
    assert all(operand in argv for operand in search.operands)


TREE = {
    "a.md": "foo\nbar\n",
    "b.txt": "FOO bar\n",
    "c": "nothing\n",
    "sub/a.md": "first\nfoo|bar\nlast\n",
    "sub/deep/d.md": "Straße foo.\n",
    "sub/deep/e.md": "",
    "other/f.md": "x\n",
    "other/more/g.txt": "baz\n\nfoo",
}
GREP_OPTIONS = [
    *("-r", "-R", "-rn", "-n", "-i", "-c", "-L", "-l", "-q", "-o", "-b", "-h", "-H", "-w", "-x"),
    *("-s", "-a", "-I", "-T", "-Z", "-y", "-A1", "-B1", "-C1", "-1", "-m1", "-m 0", "--colour"),
    *("--color=always", "--include=*.md", "--exclude=a*", "--exclude-dir=deep", "-d recurse"),
    *("-d skip", "-dread", "--null", "--label=x", "--line-buffered", "--no-ignore-case", "-U"),
    *("--recurs", "--files-with", "--count", "--max-count=1", "--binary-files=text", "-v", "-z"),
    *("-E", "-F", "-P", "-G", "-e bar", "-e nothing", "--regexp=x", "--group-separator=#"),
    *(
        "--no-group-separator",
        "--dereference",
        "--initial-tab",
        "--exclude-from=/dev/null",
        "-D skip",
    ),
]
RG_OPTIONS = [
    *("-i", "-S", "-s", "-c", "-l", "-q", "-o", "-b", "-n", "-N", "-H", "-I", "-w", "-x", "-a"),
    *("-0", "-A1", "-C 1", "-m1", "-v", "-F", "-P", "-U", "-e bar", "--regexp=x", "-g *.md"),
    *("--count-matches", "--files", "--files-without-match", "--include-zero", "--passthru"),
    *("--null-data", "--vimgrep", "--trim", "--heading", "--color always", "--column", "-r y"),
    *("-tmd", "-Tmd", "--iglob=*.MD", "--max-depth 1", "-uuu", "--hidden", "--no-ignore", "-L"),
    *("-p", "--stats --no-stats", "-v --no-invert-match", "--crlf", "--mmap", "-M9"),
]
PATTERNS = ["foo", "foo|bar", "f.o", "Foo", "nothing", "zzz", "^foo", "stra\u00dfe", "x*", "ba[rz]"]


@st.composite
def commands(draw: st.DrawFn) -> tuple[Program, list[bytes]]:
    program = draw(st.sampled_from([Program.GREP, Program.GREP, Program.RG]))
    pool = RG_OPTIONS if program is Program.RG else GREP_OPTIONS
    words = ["-r"] if program is Program.GREP and draw(st.booleans()) else []
    for option in draw(st.lists(st.sampled_from(pool), max_size=4)):
        words += option.split(" ")
    words.append(draw(st.sampled_from(PATTERNS)))
    words += draw(st.lists(st.sampled_from([".", "sub", "a.md", "other"]), max_size=2))
    if program is Program.RG:
        # One order of files, and no complaint that there are none.
        words = ["--sort=path", *words, "c"]
    return program, [word.encode() for word in words]


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(command=commands(), environ=st.sampled_from([{}, {"LC_ALL": "C.UTF-8"}, {"LANG": "C"}]))
def test_the_answer_is_the_same_when_only_candidates_are_listed(
    command: tuple[Program, list[bytes]], environ: dict[str, str]
) -> None:
    program, argv = command
    variables = {"PATH": os.environ["PATH"], **environ}
    search = analyse(
        program, argv, {k.encode(): v.encode() for k, v in variables.items()}, lambda _path: None
    )
    with tempfile.TemporaryDirectory() as path:
        for name, text in TREE.items():
            file = Path(path, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        full = _answer(program, argv, variables, path)
        _restrict(Path(path), search)
        assert _answer(program, argv, variables, path) == full, search


def _restrict(root: Path, search: Search) -> None:
    """Leave what a listing for ``search`` would show; what is named directly stays."""
    named = {root / operand.decode() for operand in search.operands}
    for name, text in TREE.items():
        file = root / name
        if matches(search.query, text.encode()) or file in named:
            continue
        if search.needs is Needs.NAMES:
            file.write_bytes(b"")
        elif search.recursive:
            file.unlink()
            for parent in file.parents:
                if parent in named or parent == root or any(parent.iterdir()):
                    break
                parent.rmdir()


def _answer(
    program: Program, argv: list[bytes], environ: dict[str, str], directory: str
) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [program.value.encode(), *argv],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
