"""``cgrep`` is grep: same output, same exit codes, same signals, same environment."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.mount.harness import wait_until

CGREP = str(Path(sys.executable).parent / "cgrep")
REAL = "/usr/bin:/bin"


def _both(
    arguments: list[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[bytes], subprocess.CompletedProcess[bytes]]:
    runs = [
        subprocess.run(
            [program, *arguments], input=stdin, capture_output=True, check=False, env=env
        )
        for program in ("grep", CGREP)
    ]
    return runs[0], runs[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["b"],
        ["-n", "b"],
        ["-c", "x"],
        ["-q", "a"],
        ["--nonsense"],
        ["x", "/nonexistent"],
        ["-E", "("],
        [],
        ["-V"],
        ["--", "-n"],
        ["é"],
    ],
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_grep(arguments: list[str]) -> None:
    expected, found = _both(arguments, stdin="a\nb\n-n\né\n".encode())
    assert (found.returncode, found.stdout, found.stderr) == (
        expected.returncode,
        expected.stdout,
        expected.stderr,
    )


def test_a_closed_pipe_ends_it_by_sigpipe_as_grep() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [CGREP, "-r", "a", "/usr/share/doc"], stdout=writing, stderr=subprocess.DEVNULL
    ) as process:
        os.close(writing)
        assert process.wait(60) == -signal.SIGPIPE


def test_the_environment_is_passed_on_as_it_was(tmp_path: Path) -> None:
    fake = tmp_path / "grep"
    fake.write_text("#!/bin/sh\nexec env -0\n")
    fake.chmod(0o755)
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ODD": "a=b\nc", "EMPTY": ""}
    done = subprocess.run([CGREP, "x"], env=given, capture_output=True, check=True)
    found = dict(item.split(b"=", 1) for item in done.stdout.split(b"\0") if item)
    found.pop(b"PWD", None)  # the shell adds these two itself
    found.pop(b"_", None)
    found.pop(b"OLDPWD", None)
    assert found == {name.encode(): value.encode() for name, value in given.items()}


def test_without_a_grep_it_says_so_and_exits_as_grep_does_for_trouble(tmp_path: Path) -> None:
    done = _cgrep(["x"], PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, b"cgrep: there is no grep in PATH\n")


def _cgrep(
    arguments: Sequence[str | bytes], program: str = CGREP, **env: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [program, *arguments], env=env, input=b"a\nb\nx\n", capture_output=True, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_as_it_ends_grep(number: signal.Signals, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([CGREP, "x", pipe], stderr=subprocess.PIPE) as process:
        name = Path(f"/proc/{process.pid}/comm")
        assert wait_until(lambda: name.read_text() == "grep\n", 30)
        process.send_signal(number)
        assert process.communicate(timeout=30)[1] == b""
        assert process.returncode == -number


def test_in_a_shell_it_ends_like_grep_when_nobody_reads_on() -> None:
    line = 'yes | "$0" y | head -n 1 >/dev/null; echo "${PIPESTATUS[1]}"'
    codes = [
        subprocess.run(["bash", "-c", line, program], capture_output=True, check=True).stdout
        for program in ("grep", CGREP)
    ]
    assert codes == [b"141\n", b"141\n"]


REPORT = """#!/bin/sh
umask > {place}/umask
/bin/cat /proc/$$/environ > {place}/environ
/bin/cat /proc/$$/cmdline > {place}/cmdline
while read -r line; do echo "$line"; done < /proc/$$/status > {place}/status
/bin/ls -l /proc/$$/fd > {place}/fd
/bin/ls -l /proc/$$/cwd > {place}/cwd
/bin/cat /proc/$$/limits > {place}/limits
exit 7
"""


class Reporting:
    """A program instead of grep that tells what it was given.

    It reads its status itself: while it starts another program, its signals are blocked.
    """

    def __init__(self, base: Path) -> None:
        self.place = base / "report"
        self.place.mkdir()
        self.program = base / "reporting"
        self.program.write_text(REPORT.format(place=self.place))
        self.program.chmod(0o755)

    def told(
        self,
        program: str | Path,
        words: Sequence[str | bytes],
        setting: str,
        env: Mapping[str, str],
    ) -> dict[str, bytes]:
        """What it tells when run as ``program``; ``setting`` is shell text before its name."""
        line = f'{setting} exec "$0" "$@"'
        done = subprocess.run(
            ["/bin/sh", "-c", line, program, *words],
            env={"CGREP_GREP": str(self.program), **env},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 7, done
        told = {file.name: file.read_bytes() for file in self.place.iterdir()}
        for file in self.place.iterdir():
            file.unlink()
        signals = (b"SigBlk", b"SigIgn", b"SigCgt", b"Umask", b"NoNewPrivs", b"Groups")
        told["status"] = b"\n".join(
            line for line in told["status"].split(b"\n") if line.startswith(signals)
        )
        # The times and addresses of pipes and links are not the same twice.
        told["fd"] = b" ".join(
            line.split(b" -> ")[0].split()[-1] for line in told["fd"].split(b"\n")[1:] if line
        )
        told["cwd"] = told["cwd"].split(b" -> ")[1]
        return told


@pytest.fixture
def reporting(tmp_path: Path) -> Reporting:
    return Reporting(tmp_path)


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "umask 0137;",
        "ulimit -n 77; ulimit -c 0;",
        "trap '' HUP INT QUIT USR1 TERM;",
        "exec 5</dev/null 9>&1;",
        "exec <&-;",
        "exec >&- 2>&-;",
        "exec <&- >&- 2>&-;",
        "export LC_ALL=C;",
        "export LC_ALL=POSIX LANG=xx_YY;",
        "export LC_CTYPE=C.UTF-8;",
        "export PYTHONPATH=/nowhere PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=x;",
        "export ODD=\"$(printf 'a=b\\nc\\377')\" EMPTY= ;",
        "cd /usr;",
    ],
)
def test_grep_is_given_what_cgrep_was_given(setting: str, reporting: Reporting) -> None:
    words = ["-n", "x y", "", "-r"]
    expected = reporting.told(reporting.program, words, setting, {})
    found = reporting.told(CGREP, words, setting, {})
    expected.pop("cmdline")
    assert found.pop("cmdline").split(b"\0")[2:] == [b"-n", b"x y", b"", b"-r", b""]
    assert found == expected


def test_no_locale_is_added_to_an_empty_environment(reporting: Reporting) -> None:
    """Python exports LC_CTYPE where no locale is set, which changes what grep takes for text."""
    line = "unset PWD OLDPWD;"
    told = reporting.told(CGREP, ["x"], line, {})
    assert told["environ"] == f"CGREP_GREP={reporting.program}\0".encode()


@pytest.mark.parametrize("locale", ["", "C", "POSIX", "C.UTF-8", "en_US.ISO-8859-1", "ja_JP.SJIS"])
def test_arguments_are_passed_byte_for_byte(locale: str, reporting: Reporting) -> None:
    words = [b"caf\xe9", "café".encode(), b"two\nlines", b"\xff\xfe-", b"\x81", b"", b"x" * 100_000]
    told = reporting.told(CGREP, words, "", {"LC_ALL": locale} if locale else {})
    assert told["cmdline"].split(b"\0")[2:-1] == words


def test_ten_thousand_arguments_are_passed(reporting: Reporting) -> None:
    words = [f"-r{number}" for number in range(10_000)]
    told = reporting.told(CGREP, words, "", {})
    assert told["cmdline"].split(b"\0")[2:-1] == [word.encode() for word in words]


@pytest.mark.parametrize(
    "redirection", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"]
)
@pytest.mark.parametrize("arguments", ["b", "-r b /etc/hostname", "--nonsense"])
def test_closed_descriptors_stay_closed(redirection: str, arguments: str) -> None:
    runs = [
        subprocess.run(
            ["sh", "-c", f"{program} {arguments} {redirection}"],
            input=b"a\nb\n",
            capture_output=True,
            check=False,
        )
        for program in ("grep", shlex.quote(CGREP))
    ]
    assert (runs[1].returncode, runs[1].stdout, runs[1].stderr) == (
        runs[0].returncode,
        runs[0].stdout,
        runs[0].stderr.replace(b"sh: 1: grep", b"sh: 1: cgrep"),
    )


def test_output_to_the_null_device_is_seen_by_grep() -> None:
    """It then stops at the first match, which a pipe in between would prevent."""
    line = f"{shlex.quote(CGREP)} -c '' - /nonexistent > /dev/null"
    done = subprocess.run(["sh", "-c", line], input=b"a\n", capture_output=True, check=False)
    expected = subprocess.run(
        ["sh", "-c", "grep -c '' - /nonexistent > /dev/null"],
        input=b"a\n",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (expected.returncode, expected.stderr)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("egrep", ["a|b"]),
        ("fgrep", ["a|b"]),
        ("fgrep", ["a"]),
        ("rgrep", ["-h", "^127.0.0.1", "/etc/hosts"]),
        ("egrep", ["--nonsense"]),
        ("egrep", []),
        ("egrep", ["-V"]),
    ],
)
def test_under_the_name_of_a_kin_it_is_that(
    name: str, arguments: list[str], tmp_path: Path
) -> None:
    link = tmp_path / name
    link.symlink_to(CGREP)
    expected, found = (
        _cgrep(arguments, f"/usr/bin/{name}", PATH=REAL),
        _cgrep(arguments, str(link), PATH=f"{tmp_path}:{REAL}"),
    )
    assert (found.returncode, found.stdout, found.stderr) == (
        expected.returncode,
        expected.stdout,
        expected.stderr,
    )


@pytest.mark.parametrize("kind", ["symlink", "copy", "wrapper", "link to a wrapper"])
def test_under_the_name_of_grep_it_does_not_find_itself(kind: str, tmp_path: Path) -> None:
    directory = tmp_path / "cgrep"
    directory.mkdir()
    grep = directory / "grep"
    if kind == "symlink":
        grep.symlink_to(CGREP)
    elif kind == "copy":
        grep.write_bytes(Path(CGREP).read_bytes())
    else:
        script = grep if kind == "wrapper" else tmp_path / "script"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(CGREP)} "$@"\n')
        script.chmod(0o755)
        if script != grep:
            grep.symlink_to(script)
    grep.chmod(0o755)
    done = _cgrep(["-n", "b"], str(grep), PATH=f"{directory}::relative:{directory}:{REAL}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"2:b\n", b"")
    alone = _cgrep(["-n", "b"], str(grep), PATH=str(directory))
    assert (alone.returncode, alone.stderr) == (2, b"cgrep: there is no grep in PATH\n")


def test_a_script_called_grep_is_a_grep(tmp_path: Path) -> None:
    """Even where a path in it names cgrep."""
    directory = tmp_path / "cgrep"
    directory.mkdir()
    (directory / "sh").symlink_to("/bin/sh")
    grep = directory / "grep"
    grep.write_text(f"#!{directory}/sh\n: {directory}/cgrep_x\necho mine\n")
    grep.chmod(0o755)
    assert _cgrep(["x"], PATH=f"{directory}:{REAL}").stdout == b"mine\n"


def test_what_cannot_be_executed_is_passed_over_in_path(tmp_path: Path) -> None:
    (tmp_path / "directory" / "grep").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir()
    (forbidden / "grep").write_text("#!/bin/sh\n")
    path = f"{tmp_path}/directory:{tmp_path}/file:{forbidden}:/nonexistent:{REAL}"
    assert _cgrep(["b"], PATH=path).stdout == b"b\n"
    assert _cgrep(["b"]).stdout == b"b\n"  # without PATH


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ("/nonexistent/grep", "/nonexistent/grep: No such file or directory"),
        ("/etc/passwd", "/etc/passwd: Permission denied"),
        (CGREP, "CGREP_GREP names cgrep itself"),
    ],
)
def test_a_grep_that_is_chosen_has_to_be_one(chosen: str, problem: str) -> None:
    done = _cgrep(["x"], CGREP_GREP=chosen, PATH=REAL)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == f"cgrep: {problem}\n".encode()


def test_an_empty_choice_is_none() -> None:
    assert _cgrep(["b"], CGREP_GREP="", PATH=REAL).stdout == b"b\n"


@pytest.mark.parametrize("word", ["--no-pushdown", "--explain"])
def test_its_own_options_are_known_only_in_the_first_place(word: str) -> None:
    expected, found = _both(["-r", word, "x"])
    assert (found.returncode, found.stderr) == (expected.returncode, expected.stderr)
    assert _cgrep(["--", word], PATH=REAL).returncode == 1


def test_outside_of_mounts_the_search_is_that_of_grep(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    done = _cgrep(["--no-pushdown", "-r", "x", str(tmp_path)], PATH=REAL)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/a:x\n".encode())
    told = _cgrep(["--explain", "-r", "x", str(tmp_path)], PATH=REAL)
    assert (told.returncode, told.stdout) == (
        1,
        b"nothing of chromafuse is searched: plain grep\n",
    )


SLOW = {"argparse", "collections", "enum", "functools", "hashlib", "json", "pathlib", "re",
        "signal", "socket", "subprocess", "typing"}  # fmt: skip


def loaded(words: Sequence[str], cwd: Path, **env: str) -> set[str]:
    """The modules that are loaded until cgrep becomes grep."""
    return modules([CGREP, *words], cwd, **env)


def modules(words: Sequence[str], cwd: Path, **env: str) -> set[str]:
    """The modules that Python loads when run with ``words``."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        env={"PATH": REAL, **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.split("\n") if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.mark.parametrize(
    "words",
    [["x", "/dev/null"], ["-n", "-e", "x"], ["-in", "--color=auto", "x"], ["--", "-r"], []],
    ids=" ".join,
)
def test_a_plain_call_loads_next_to_nothing(words: list[str], tmp_path: Path) -> None:
    more = loaded(words, tmp_path) - modules(["-c", "pass"], tmp_path)
    assert more == {"chromafuse", "chromafuse.cgrep"}


def test_a_recursive_call_elsewhere_loads_nothing_slow(tmp_path: Path) -> None:
    assert not loaded(["-rn", "x", "."], tmp_path) & SLOW
