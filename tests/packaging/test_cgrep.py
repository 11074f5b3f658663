"""``cgrep`` is grep: same output, same exit codes, same signals, same environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

CGREP = str(Path(sys.executable).parent / "cgrep")


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
    done = subprocess.run(
        [CGREP, "x"], env={"PATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"cgrep: there is no grep in PATH\n"
