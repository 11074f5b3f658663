"""``scripts/quickstart`` as a newcomer runs it: in an environment of its own, several times."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, PROJECT, Finished, mount_line, plain_environment, run

ALLOW_NO_FUSE = "CHROMAFUSE_TEST_ALLOW_NO_FUSE"
QUICKSTART = PROJECT / "scripts" / "quickstart"
DEADLINE = 120.0

pytestmark = pytest.mark.xdist_group("quickstart")


class Newcomer:
    """Somebody with an empty home who runs the script from a directory of their own."""

    def __init__(self, base: Path, runtime: Path) -> None:
        self.base = base
        self.at = base / "mount points" / "docs"
        home = base / "home"
        home.mkdir()
        self.env = plain_environment(home) | {
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_RUNTIME_DIR": str(runtime),
        }

    def quickstart(self, *arguments: str) -> Finished:
        """Run the script; a wrong working directory or a terminal that is none must not matter."""
        return run([str(QUICKSTART), *arguments], env=self.env, cwd=self.base, deadline=DEADLINE)

    def chromafuse(self, *arguments: str) -> Finished:
        program = str(COMMANDS / "chromafuse")
        return run([program, *arguments], env=self.env, cwd=self.base, deadline=DEADLINE)

    def daemon(self) -> int:
        """The process that serves the mount."""
        done = self.chromafuse("status", str(self.at), "--json").expect(0)
        pid = json.loads(done.out)[0]["pid"]
        assert isinstance(pid, int)
        return pid

    def unmount(self) -> None:
        if mount_line(self.at) is not None:
            self.chromafuse("umount", str(self.at)).expect(0)
        assert mount_line(self.at) is None


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) and os.environ.get(ALLOW_NO_FUSE):
        pytest.skip("no FUSE here")
    # A socket's path has to be short, and pytest's directories are not.
    runtime = Path(tempfile.mkdtemp(prefix="cf-"))
    someone = Newcomer(tmp_path, runtime)
    try:
        yield someone
    finally:
        someone.unmount()
        shutil.rmtree(runtime)


def shown(finished: Finished, at: str) -> dict[str, str]:
    """What the script shows: each command that it runs on the mount, with its output."""
    text = finished.out.decode(errors="replace")
    assert f"{QUICKSTART}: line" not in finished.err.decode()
    demonstration, *ending = re.split(r"\n\d+ pages? (?:is|are) mounted at ", text)
    assert len(ending) == 1
    parts = re.split(rf"^\$ (\w+) .*{re.escape(at)}.*\n", demonstration, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2]), strict=True))


def error_line(finished: Finished) -> str:
    lines = finished.err.decode().strip().split("\n")
    assert len(lines) == 1, str(finished)
    return lines[0]


def test_the_docs_of_the_project_twice_and_with_groups(newcomer: Newcomer) -> None:
    docs, at = PROJECT / "docs", str(newcomer.at)
    first = newcomer.quickstart("--at", at).expect(0)
    outputs = shown(first, at)
    assert set(outputs) == {"ls", "cat", "find", "grep"}
    assert "index.mdx" in outputs["ls"]
    assert (docs / "index.mdx").read_text(encoding="utf-8").startswith(outputs["cat"])
    assert f"{at}/guides/ingest.mdx" in outputs["find"]
    assert outputs["grep"].startswith(at)
    text = first.out.decode()
    assert f"umount '{at}'" in text
    assert re.search(r"^\d+ more pages are restricted", text, re.MULTILINE)
    assert "--groups admin,billing" in text
    assert (newcomer.at / "index.mdx").read_bytes() == (docs / "index.mdx").read_bytes()
    assert not (newcomer.at / "operations").exists()

    daemon = newcomer.daemon()
    again = newcomer.quickstart("--at", at).expect(0)
    assert "unchanged" in again.out.decode()
    assert "written 0 pages" in again.out.decode()
    assert shown(again, at).keys() == outputs.keys()
    assert newcomer.daemon() == daemon

    newcomer.quickstart("--at", at, "--groups", "admin,billing").expect(0)
    assert newcomer.daemon() != daemon
    compare = ["diff", "-r", str(docs), at]
    run(compare, env=newcomer.env, cwd=newcomer.base).expect(0)


def test_own_docs_with_spaces_and_what_cannot_be_stored(newcomer: Newcomer) -> None:
    docs = newcomer.base / "My Docs"
    (docs / "a part").mkdir(parents=True)
    page = docs / "a part" / "it's here.md"
    page.write_text("# Configuration\n\nold words\n", encoding="utf-8")
    (docs / "logo.png").write_bytes(b"\x89PNG\r\n\xff")
    # What is set for other sites has no effect.
    newcomer.env["CHROMAFUSE_GROUPS"] = newcomer.env["CHROMAFUSE_NO_SUCH_SETTING"] = "x"
    at = str(newcomer.at)

    first = newcomer.quickstart("--at", at, "My Docs").expect(0)
    assert "logo.png: not UTF-8 text" in first.out.decode()
    assert "could not be stored" in first.err.decode()
    outputs = shown(first, at)
    assert "a part" in outputs["ls"]
    assert "old words" in outputs["cat"]
    assert "it's here.md" in outputs["find"]
    assert "Configuration" in outputs["grep"]
    assert f"\n1 page is mounted at {at}, as anonymous" in first.out.decode()

    page.write_text("# Configuration\n\nnew words\n", encoding="utf-8")
    second = newcomer.quickstart("--at", at, "My Docs").expect(0)
    assert "new words" in shown(second, at)["cat"]
    assert (newcomer.at / "a part" / "it's here.md").read_bytes() == page.read_bytes()
    assert mount_line(newcomer.at) is not None
    del newcomer.env["CHROMAFUSE_GROUPS"], newcomer.env["CHROMAFUSE_NO_SUCH_SETTING"]


def test_docs_that_cannot_be_understood_are_not_mounted(newcomer: Newcomer) -> None:
    broken = newcomer.base / "broken"
    broken.mkdir()
    (broken / "docs.json").write_text("{", encoding="utf-8")
    done = newcomer.quickstart("--at", str(newcomer.at), "broken").expect(10)
    assert "docs.json is not JSON" in done.err.decode()
    assert mount_line(newcomer.at) is None


def test_a_mount_point_in_use_is_left_alone(newcomer: Newcomer) -> None:
    newcomer.at.mkdir(parents=True)
    (newcomer.at / "mine").touch()
    site = newcomer.base / "site"
    site.mkdir()
    (site / "page.md").write_text("words\n", encoding="utf-8")
    done = newcomer.quickstart("--at", str(newcomer.at), "site").expect(5)
    assert "is not empty" in done.err.decode()
    assert os.listdir(newcomer.at) == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--no-such-option",), "there is no option --no-such-option"),
        (("--at",), "--at needs a value"),
        (("home", "home"), "more than one DOCS_DIR"),
        (("no such directory",), "no such directory does not exist"),
        (("/etc/passwd",), "/etc/passwd is not a directory"),
        (("--at", "home/mount", "home"), "lies inside the docs"),
    ],
)
def test_wrong_usage_is_one_line(newcomer: Newcomer, arguments: tuple[str, ...], text: str) -> None:
    line = error_line(newcomer.quickstart(*arguments).expect(2))
    assert line.startswith("quickstart: ")
    assert text in line


def test_help_does_nothing(newcomer: Newcomer) -> None:
    done = newcomer.quickstart("--help").expect(0)
    assert done.out.startswith(b"Usage: scripts/quickstart")
    assert list((newcomer.base / "home").iterdir()) == []
