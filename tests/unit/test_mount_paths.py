"""A mount's path is resolved as the kernel would, without asking the mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chromafuse.fs import mounts


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("")
    (tmp_path / "to-b").symlink_to("a/b")
    (tmp_path / "a" / "b" / "up").symlink_to("..")
    (tmp_path / "absolute").symlink_to(tmp_path / "to-b")
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    monkeypatch.chdir(tmp_path / "a")
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "b",
        "./b/",
        "..",
        "../to-b",
        "../to-b/..",
        "../to-b/up/file",
        "../absolute/up/b//",
        "../dangling",
        "../dangling/further",
        "file/below",
        "nowhere/../b",
        "",
        "/",
        "/..",
        "//tmp",
        "/proc/self/cwd/b",
    ],
)
@pytest.mark.usefixtures("tree")
def test_paths_are_resolved_as_realpath_does(path: str) -> None:
    assert mounts.resolved(path) == os.path.realpath(path).replace("//", "/")


def test_a_loop_of_links_ends(tree: Path) -> None:
    (tree / "loop").symlink_to("loop/x")
    assert mounts.resolved(str(tree / "loop")).startswith(str(tree))


def test_a_mount_is_not_asked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = str(tree / "a" / "b")
    mount = mounts.Mount(point, "docs", 0, "0:99")
    monkeypatch.setattr(mounts, "own_mounts", lambda: iter([mount]))
    asked: list[str] = []
    readlink = os.readlink

    def watched(path: str) -> str:
        asked.append(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", watched)
    assert mounts.find_mount(str(tree / "absolute")) == mount
    assert str(tree / "to-b") in asked
    assert point not in asked
