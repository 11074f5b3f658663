"""The installed command under closed, full and broken streams, odd names and odd users."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Site, wait_until

pytestmark = pytest.mark.xdist_group("cli-robust")

CHROMAFUSE = str(COMMANDS / "chromafuse")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with an odd name, an odd group and enough pages to overflow a pipe, not mounted."""
    base = tmp_path_factory.mktemp("robust")
    source = base / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    (source / "é.mdx").write_text("# Accent\n")
    (source / "secret.mdx").write_text('---\ngroups: ["a\\e[31mred"]\n---\n# Secret\n')
    for number in range(1_500):
        (source / f"{'long' * 20}-{number}.mdx").write_text("x\n")
    site = Site(base)
    try:
        site.ingest(source)
        yield site
    finally:
        site.close()


def shell(site: Site, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``$CF`` is the command and ``$AT`` names the collection."""
    at = f"-c {site.collection} --chroma {shlex.quote(site.chroma)}"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**site.env, "CF": CHROMAFUSE, "AT": at, **env},
        cwd=site.base,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert re.fullmatch(r"chromafuse: [^\n]+\n", done.stderr), done
    return done.stderr


def private_copy(stored: Site, tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    return source


# -- streams


def test_a_background_mount_with_closed_streams(stored: Site) -> None:
    try:
        done = shell(stored, '$CF mount "$PWD/work/docs" $AT 0<&- >&-')
        assert done.returncode == 0, done
        assert (stored.mountpoint / "index.mdx").read_bytes() == b"# Home\n"
        stored.umount()
        done = shell(stored, '$CF mount "$PWD/work/docs" $AT 0<&- >&- 2>&-')
        assert done.returncode == 0, done
        assert (stored.mountpoint / "index.mdx").read_bytes() == b"# Home\n"
    finally:
        stored.umount()


@pytest.mark.parametrize("command", ["tree $AT", "tree $AT --json", "mount --help", "--help"])
@pytest.mark.parametrize("target", ["&-", "/dev/full"])
def test_output_that_cannot_be_written_is_one_line(stored: Site, command: str, target: str) -> None:
    done = shell(stored, f"$CF {command} >{target}")
    assert done.returncode == 1
    assert "cannot write the output: " in one_line(done)


@pytest.mark.parametrize("command", ["tree $AT", "tree $AT --json", "tree $AT --all"])
def test_a_reader_that_leaves_ends_the_command_quietly(stored: Site, command: str) -> None:
    done = shell(stored, f"$CF {command} | head -1; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", "2>&1 | true", "0<&- >&- 2>&-"])
def test_an_ingest_does_not_depend_on_its_progress(
    stored: Site, tmp_path: Path, redirect: str
) -> None:
    source = private_copy(stored, tmp_path)
    at = f"-c other --chroma {shlex.quote(str(tmp_path / 'chroma'))}"
    done = shell(stored, f"$CF ingest {source} {at} {redirect}")
    if "true" not in redirect and ">&- 2" not in redirect:
        assert done.returncode == 0, done
    assert "index.mdx" in shell(stored, f"$CF tree {at}").stdout


def test_an_ingest_whose_report_is_lost_says_that_the_site_is_stored(
    stored: Site, tmp_path: Path
) -> None:
    source = private_copy(stored, tmp_path)
    at = f"-c other --chroma {shlex.quote(str(tmp_path / 'chroma'))}"
    done = shell(stored, f"$CF ingest {source} {at} >/dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "chromafuse: cannot write the output: No space left on device (the site is stored)"
    )
    assert "index.mdx" in shell(stored, f"$CF tree {at}").stdout


def test_an_encoding_without_the_characters_is_no_error(stored: Site) -> None:
    for env in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}):
        assert shell(stored, "$CF tree $AT", **env).returncode == 0
        done = shell(stored, "$CF tree $AT --json", **env)
        assert done.returncode == 0
        assert "é.mdx" in {
            json.loads(line)["slug"] + ".mdx" for line in done.stdout.splitlines()
        } | {json.loads(line)["path"] for line in done.stdout.splitlines()}
        done = shell(stored, "$CF ingest /nowhere/é $AT", **env)
        assert done.returncode == 2
        one_line(done)


# -- names


@pytest.mark.parametrize("name", ["mk[/x]", "mk[bold]", "mk\x1b[31m\nforged"])
def test_status_shows_brackets_and_control_characters_as_they_are(stored: Site, name: str) -> None:
    point = stored.work / name
    point.mkdir(parents=True)
    log = stored.base / "status.log"
    quoted = shlex.quote(str(point))
    mounted = shell(stored, f"$CF mount {quoted} $AT --groups '[/x]' --log-file {log}")
    assert mounted.returncode == 0, mounted
    try:
        done = shell(stored, f"$CF status {quoted}")
        assert done.returncode == 0, done
        shown = name.replace("\x1b", "\\x1b").replace("\n", "\\n")
        assert f"{shown}\n" in done.stdout
        assert "groups [/x]" in done.stdout
        assert "\x1b" not in done.stdout
    finally:
        assert shell(stored, f"$CF umount {quoted}").returncode == 0


def test_group_names_are_printable(stored: Site) -> None:
    done = shell(stored, "$CF tree $AT --all")
    assert "\x1b" not in done.stdout
    assert "a\\x1b[31mred" in done.stdout


def test_a_mount_point_that_is_not_utf8_is_logged(stored: Site) -> None:
    point = os.fsencode(stored.work) + b"/\xff\nforged"
    os.mkdir(point)
    log = stored.base / "bytes.log"
    at = ["-c", stored.collection, "--chroma", stored.chroma]
    subprocess.run([CHROMAFUSE, "mount", point, *at, "--log-file", log], env=stored.env, check=True)
    subprocess.run([CHROMAFUSE, "umount", point], env=stored.env, check=True)
    lines = log.read_text(encoding="utf-8").splitlines()
    assert any(" mounted " in line and "\\udcff\\nforged" in line for line in lines), lines
    assert all(re.match(r"\d{4}-", line) for line in lines), lines


def test_logs_are_private_after_a_rotation_and_lines_cannot_be_forged(tmp_path: Path) -> None:
    probe = (
        "import logging, sys, pathlib\n"
        "from chromafuse import log\n"
        "log.LOG_BYTES = 200\n"
        "log.configure('info', pathlib.Path(sys.argv[1]))\n"
        "logger = logging.getLogger('chromafuse')\n"
        "for n in range(10): logger.info('page=%s', 'x\\n2026-01-01 forged \\x1b[1m' * 2)\n"
        "try: raise ValueError('\\x1b')\n"
        "except ValueError: logger.exception('failed')\n"
    )
    log = tmp_path / "a.log"
    subprocess.run([sys.executable, "-c", f"import os; os.umask(0)\n{probe}", log], check=True)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["a.log", "a.log.1"]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        text = file.read_text()
        assert "\x1b" not in text
        assert "\n2026-01-01 forged" not in text
    assert "\nTraceback (most recent call last):\n" in log.read_text()


# -- errors


def test_a_home_that_nobody_has_is_one_line(stored: Site) -> None:
    for command in ("tree -c docs", "mount work/docs -c docs", "ingest source -c docs"):
        done = shell(stored, f"$CF {command} --chroma '~nouser/x'")
        assert done.returncode == 2
        assert "--chroma " in one_line(done)
    done = shell(stored, "$CF mount work/docs $AT --log-file '~nouser/x'")
    assert done.returncode == 2
    assert "--log-file " in one_line(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_user_without_a_home_or_an_open_configuration_gets_one_line(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    # Directories of pytest are closed to others: the path is unreadable from its middle on.
    for env, place in (
        ({}, "HOME"),
        ({"HOME": "/", "XDG_CONFIG_HOME": str(closed)}, str(closed)),
    ):
        done = _as_nobody(["tree", "-c", "docs"], env)
        assert done.returncode == 2, done
        assert place in one_line(done)


def _as_nobody(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command with a uid that has no entry in passwd, whoever may read its files.

    The interpreter is loaded as root, as the checkout may lie in a closed directory.
    """
    probe = (
        "import os, sys, chromafuse.cli.app, chromafuse.cli.tree, chromafuse.cli.streams\n"
        "import chromafuse.cli.mount, chromafuse.cli.ingest, chromafuse.config\n"
        "import chromafuse.stores.chroma, chromafuse.treestore\n"
        "os.setgroups([]); os.setgid(54321); os.setuid(54321)\n"
        "from chromafuse.cli import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", probe, *arguments],
        env={"PATH": os.environ["PATH"], **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


FAILURES = {
    "OSError(13, 'Permission denied', '/some\\nwhere')": r"/some\nwhere: Permission denied",
    "RuntimeError('a\\nb')": r"RuntimeError: a\nb",
    "RecursionError('deep')": "RecursionError: deep",
    "MemoryError()": "MemoryError",
    "UnicodeError('x')": "UnicodeError: x",
    "ChromafuseError('one\\n\\x1b[1mtwo')": r"one\n\x1b[1mtwo",
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("debug", [False, True])
def test_whatever_fails_is_one_line_and_a_traceback_only_for_debug(
    failure: str, debug: bool
) -> None:
    probe = (
        "from chromafuse.cli.app import app, run\n"
        "from chromafuse.domain.errors import ChromafuseError\n"
        "@app.command()\n"
        f"def fail() -> None: raise {failure}\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, "fail"],
        env={"PATH": os.environ["PATH"]} | ({"CHROMAFUSE_LOG_LEVEL": "debug"} if debug else {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    lines = done.stderr.rstrip("\n").split("\n")
    assert lines[-1] == f"chromafuse: {FAILURES[failure]}"
    assert ("Traceback" in done.stderr) is (debug and "Chromafuse" not in failure)
    assert debug or len(lines) == 1


@pytest.mark.parametrize(
    "command",
    ["ingest '' $AT", "mount '' $AT", "umount ''", "status ''", "tree $AT --config ''",
     "mount work/docs $AT --log-file ''"],
)  # fmt: skip
def test_an_empty_path_is_not_the_current_directory(stored: Site, command: str) -> None:
    done = shell(stored, f"cd source; $CF {command}")
    assert done.returncode == 2
    assert "empty" in done.stderr


def test_an_empty_log_file_in_the_environment_is_refused(stored: Site) -> None:
    done = shell(stored, "$CF mount work/docs $AT", CHROMAFUSE_LOG_FILE="")
    assert done.returncode == 2
    assert "CHROMAFUSE_LOG_FILE " in one_line(done)
    assert not wait_until(stored.is_mounted, 0.1)
