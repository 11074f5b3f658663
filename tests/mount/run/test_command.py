"""The command is what it would be without chromafuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mount.harness import (
    MOUNT_DEADLINE,
    Site,
    run,
)
from tests.mount.run.commands import (
    NAMES,
    seen,
    words,
)

pytestmark = pytest.mark.xdist_group("mount-run")

FACTS = """\
import json, os, signal, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
try:
    child = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    child = None
json.dump({
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
    "cwd": os.getcwd(),
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
    "child": child,
    "umask": os.umask(0),
    **{name: status[name].strip() for name in ("SigBlk", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
}, sys.stdout)
"""


def test_the_command_is_in_the_place_of_chromafuse(stored: Site, missing: str) -> None:
    """Descriptors, ids, working directory, masks and children are what they are without it."""
    python = shutil.which("python3") or "python3"
    reading, writing = os.pipe()

    def facts(line: list[str]) -> dict[str, object]:
        done = subprocess.run(
            line, env=stored.env, cwd=stored.base, capture_output=True, check=True,
            stdin=subprocess.DEVNULL, pass_fds=(writing,), umask=0o027,
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    plain = facts([python, "-c", FACTS])
    assert plain["child"] is None
    assert writing in plain["descriptors"]  # type: ignore[operator]
    assert facts(words(stored, missing, python, "-c", FACTS)) == plain
    os.close(reading)
    os.close(writing)


def test_the_environment_is_passed_as_it_is(stored: Site, missing: str) -> None:
    odd = {
        "PATH": stored.env["PATH"],
        "HOME": stored.env["HOME"],
        "CHROMAFUSE_WARM": "off",
        "odd name": "two\nlines",
        "BYTES": os.fsdecode(b"\xff\xfe"),
        "EMPTY": "",
    }
    line = words(stored, missing, "env", "-0")
    passed = run(line, env=odd, cwd=stored.base).expect(0)
    assert passed.out == run(["env", "-0"], env=odd, cwd=stored.base).expect(0).out


def test_arguments_are_passed_as_they_are(stored: Site, missing: str) -> None:
    odd = ["--at", "-x", "--", "", "a b", os.fsdecode(b"\xff"), "--help"]
    done = seen(stored, missing, "printf", "%s|", *odd).expect(0)
    assert done.out == b"--at|-x|--||a b|\xff|--help|"
    line = words(stored, missing, "printf", "%s|", *odd)
    del line[line.index("--")]  # the command's name ends the options too
    assert run(line, env=stored.env, cwd=stored.base).expect(0).out == done.out


def test_input_and_outputs_are_those_of_the_command(stored: Site, missing: str) -> None:
    done = subprocess.run(
        words(stored, missing, "sh", "-c", "cat; echo told >&2"),
        env=stored.env, cwd=stored.base, input=b"\0\xffabc", capture_output=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"\0\xffabc", b"told\n")


def test_the_working_directory_is_kept(stored: Site, existing: Path, missing: str) -> None:
    guide = existing / "guide"
    guide.mkdir()
    assert seen(stored, missing, "pwd", cwd=existing).out == f"{existing}\n".encode()
    # Below the place, the same path leads into the docs.
    assert seen(stored, existing, "ls", cwd=existing).expect(0).out == NAMES
    assert seen(stored, existing, "ls", cwd=guide).expect(0).out == b"start.mdx\n"
    (existing / "only-here").mkdir()
    done = seen(stored, existing, "ls", cwd=existing / "only-here").expect(5)
    assert b"is hidden by the docs" in done.err


@pytest.mark.parametrize("kind", ["missing", "existing"])
def test_a_removed_working_directory(
    stored: Site, existing: Path, missing: str, kind: str, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    at = missing if kind == "missing" else str(existing)
    line = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *words(stored, at, "ls", at)]
    done = run(line, env=stored.env, cwd=gone, deadline=MOUNT_DEADLINE)
    if kind == "existing":
        assert done.expect(0).out == NAMES
    else:
        assert b"the working directory does not exist any more" in done.expect(5).err


def test_a_terminal_is_the_command_s(stored: Site, missing: str) -> None:
    """Ctrl-C reaches the command, and the daemon that it reads from lives on."""
    script = (
        f"trap 'cat {missing}/index.mdx; exit 7' INT; tty >/dev/null && echo ready;"
        " while :; do sleep 0.05; done"
    )
    line = "exec " + " ".join(map(_quoted, words(stored, missing, "sh", "-c", script)))
    with subprocess.Popen(
        ["script", "--quiet", "--return", "--command", line, "/dev/null"],
        env=stored.env, cwd=stored.base, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\r\n"
        process.stdin.write(b"\x03")
        process.stdin.flush()
        assert b"# Home" in process.stdout.read()
    assert process.returncode == 7


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
