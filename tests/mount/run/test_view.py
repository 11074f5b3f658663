"""What the command sees, and nobody else."""

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
    mount_lines,
    run,
)
from tests.mount.run.commands import (
    NAMES,
    running,
    seen,
    words,
)

pytestmark = pytest.mark.xdist_group("mount-run")


@pytest.mark.parametrize("kind", ["missing", "existing", "deep"])
def test_only_the_command_sees_the_docs(
    stored: Site, missing: str, existing: Path, kind: str
) -> None:
    at = {"missing": missing, "existing": str(existing), "deep": f"{missing}/a b/c"}[kind]
    script = 'ls "$1"; cat "$1/index.mdx"; echo ready; read line; ls "$1"'
    line = words(stored, at, "sh", "-c", script, "sh", at)
    with subprocess.Popen(
        line, env=stored.env, cwd=stored.base, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        head = [process.stdout.readline() for _ in range(4)]
        assert head == [b"guide\n", b"index.mdx\n", b"# Home\n", b"ready\n"]
        if kind == "existing":
            assert os.listdir(at) == ["of-the-host"]
        else:
            assert not os.path.lexists(missing)
        assert at not in [mounted.point for mounted in mount_lines()]
        assert process.communicate(b"\n")[0] == NAMES
    assert process.returncode == 0


def test_it_is_read_only(stored: Site, missing: str, tmp_path: Path) -> None:
    script = (
        f"touch {missing}/x; rm {missing}/index.mdx; touch {missing}-2; mkdir /{missing[1:5]}-3;"
        f" touch {tmp_path}/written"
    )
    done = seen(stored, missing, "sh", "-c", script).expect(0)
    assert done.err.count(b"Read-only file system") == 4
    assert (tmp_path / "written").exists()


def test_the_rest_of_the_root_directory_is_as_it_was(stored: Site, missing: str) -> None:
    probe = (
        "import json, os, stat, sys\n"
        "kinds = {}\n"
        "for name in os.listdir('/'):\n"
        "    found = os.lstat('/' + name)\n"
        "    link = os.readlink('/' + name) if stat.S_ISLNK(found.st_mode) else ''\n"
        "    same = 0 if link else (found.st_dev, found.st_ino)\n"
        "    kinds[name] = [stat.S_IFMT(found.st_mode), same, link]\n"
        "print(json.dumps(kinds))\n"
    )
    python = shutil.which("python3") or "python3"
    before = run([python, "-c", probe], env=stored.env, cwd=stored.base).expect(0)
    within = seen(stored, missing, python, "-c", probe).expect(0)
    expected, found = json.loads(before.out), json.loads(within.out)
    assert found.pop(missing[1:])[0] == 0o040000
    assert found == expected


def test_two_at_once_at_the_same_place_see_each_what_is_theirs(stored: Site, missing: str) -> None:
    script = f"echo ready; read line; ls {missing}/guide"
    as_admin = words(stored, missing, "sh", "-c", script, options=["--groups", "admin"])
    with (
        running(as_admin, stored) as admin,
        running(words(stored, missing, "sh", "-c", script), stored) as anybody,
    ):
        assert anybody.communicate(b"\n")[0] == b"start.mdx\n"
        assert admin.communicate(b"\n")[0] == b"secret.mdx\nstart.mdx\n"


def test_runs_nest(stored: Site, missing: str, existing: Path) -> None:
    for inner_at in (missing, existing, f"{missing}-inner", f"{missing}/guide"):
        inner = words(stored, inner_at, "ls", missing, str(inner_at), options=["--groups", "admin"])
        done = seen(stored, missing, *inner).expect(0)
        assert done.out.count(NAMES) == 2, done


def test_a_link_leads_to_its_directory(stored: Site, existing: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(existing)
    assert seen(stored, tmp_path / "link", "ls", str(existing)).expect(0).out == NAMES


def test_a_relative_place_is_one_of_the_working_directory(stored: Site, existing: Path) -> None:
    done = seen(stored, existing.name, "ls", str(existing), cwd=existing.parent)
    assert done.expect(0).out == NAMES


@pytest.mark.parametrize(
    ("at", "code", "told"),
    [
        ("", 2, b"is empty"),
        ("/", 5, b"belongs to the system"),
        ("/proc", 5, b"belongs to the system"),
        ("/proc/self/fd", 5, b"belongs to the system"),
        ("/dev/shm", 5, b"belongs to the system"),
        ("/sys/kernel", 5, b"belongs to the system"),
        ("/etc/passwd", 5, b"is not a directory"),
        ("/etc/passwd/x", 5, b"is below a file"),
        ("/usr/not/there", 5, b"does not exist"),
        ("not-there", 5, b"does not exist"),
        ("/" + "x" * 300, 5, b"File name too long"),
        ("/x\n\x1b[31m/../../proc", 5, b"belongs to the system"),
    ],
)
def test_a_hostile_place_is_refused_in_one_line(
    stored: Site, at: str, code: int, told: bytes, tmp_path: Path
) -> None:
    done = seen(stored, at, "touch", str(tmp_path / "ran")).expect(code)
    assert told in done.err
    if code == 5:
        assert done.err.count(b"\n") == 1
        assert done.err.startswith(b"chromafuse: ")
        assert b"\x1b" not in done.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["missing", "existing"])
def test_mounts_reach_the_command_but_not_the_host(
    stored: Site, missing: str, existing: Path, kind: str, tmp_path: Path
) -> None:
    """On a host whose mounts are shared, as most are."""
    if os.geteuid() != 0:
        pytest.skip("only root can have such a host of its own")
    at = missing if kind == "missing" else str(existing)
    later = tmp_path / "later"
    later.mkdir()
    script = (
        'cat /proc/$PPID/mountinfo; echo; nsenter --mount --target $PPID mount -t tmpfs x "$1";'
        " cat /proc/self/mountinfo"
    )
    shared = ["unshare", "--mount", "--propagation", "shared", "sh", "-c", '"$@"; exit $?', "sh"]
    line = [*shared, *words(stored, at, "sh", "-c", script, "sh", str(later))]
    done = run(line, env=stored.env, cwd=stored.base, deadline=MOUNT_DEADLINE).expect(0)
    host, _, own = done.out.decode().partition("\n\n")
    place = at.replace(" ", "\\040")
    assert f" {place} " not in host
    assert f" {place} " in own
    assert f" {later} " in own
