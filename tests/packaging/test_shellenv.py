"""``chromafuse shellenv``: in a shell that evaluates it, grep is cgrep."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS

CHROMAFUSE = str(COMMANDS / "chromafuse")
SHELLS = ("bash", "zsh", "fish", "sh")

TAKING = {
    "fish": "{chromafuse} shellenv --shell fish | source\n",
    "other": 'eval "$({chromafuse} shellenv --shell {shell})"\n',
}


def in_shell(
    shell: str, script: str, home: Path, chromafuse: str = CHROMAFUSE, *, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` in a shell where grep means cgrep."""
    taking = TAKING.get(shell, TAKING["other"]).format(
        chromafuse=shlex.quote(chromafuse), shell=shell
    )
    return subprocess.run(
        [shell, "-c", before + taking + script],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_grep_means_cgrep(shell: str, tmp_path: Path) -> None:
    done = in_shell(shell, "grep --explain -r x .", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "nothing of chromafuse is searched: plain grep\n",
        "",
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_it_greps_with_odd_words_in_pipes_and_says_how_it_ended(shell: str, tmp_path: Path) -> None:
    name = "a 'b' \"c\" $d *"
    (tmp_path / name).write_text("x y\n")
    word = "'" + name.replace("'", "\\'" if shell == "fish" else "'\\''") + "'"
    done = in_shell(shell, f"cat {word} | grep -n 'x y' - {word}", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"(standard input):1:x y\n{name}:1:x y\n")
    assert in_shell(shell, "grep x /dev/null", tmp_path).returncode == 1
    assert in_shell(shell, "grep x /nonexistent", tmp_path).returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "sh"])
def test_an_alias_for_grep_does_no_harm(shell: str, tmp_path: Path) -> None:
    aliases = "shopt -s expand_aliases\n" if shell == "bash" else ""
    before = f"{aliases}alias grep='grep --color=auto'\n"
    done = in_shell(shell, "grep --explain -r x .", tmp_path, before=before)
    assert "syntax" not in done.stderr
    done = in_shell(shell, "grep -h '' /etc/hostname", tmp_path, before=before)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == Path("/etc/hostname").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "sh"])
def test_a_strict_shell_goes_on(shell: str, tmp_path: Path) -> None:
    done = in_shell(shell, "grep x /dev/null || echo on", tmp_path, before="set -eu\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_where_it_is_installed_may_have_any_name(shell: str, tmp_path: Path) -> None:
    directory = tmp_path / 'it\'s \\ $(a) "place"'
    directory.mkdir()
    for name in ("chromafuse", "cgrep"):
        shutil.copy(COMMANDS / name, directory)
    done = in_shell(shell, "grep --explain -r x .", tmp_path, str(directory / "chromafuse"))
    assert (done.returncode, done.stderr) == (1, "")


def shellenv(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(
        [CHROMAFUSE, "shellenv", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("/bin/bash", "bash"),
        ("/usr/bin/zsh", "zsh"),
        ("/opt/fish", "fish"),
        ("/bin/dash", "sh"),
        ("/bin/ksh", "sh"),
        ("", "sh"),
    ],
)
def test_the_shell_is_that_of_the_user(named: str, meant: str) -> None:
    assert shellenv(SHELL=named).stdout == shellenv("--shell", meant).stdout != ""


def test_an_unknown_shell_is_refused() -> None:
    done = shellenv("--shell", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'tcsh' is none of bash, zsh, fish, sh" in done.stderr
