"""All that stands in a tree, in the order in which a mount lists it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chromafuse.ingest.files import (
    RefusedError,
    describe_kind,
    open_listing,
    os_reason,
    resolve_inside,
)
from chromafuse.ingest.report import Omission, printable
from chromafuse.ingest.rules import Rules, Verdict, is_version_control

MAX_PATH_BYTES = 4_000
"""Longer paths inside the site are refused: no program could open them in a mount."""

MAX_DEPTH = 512
"""Directories a path may have above it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file: its path in the site and the path of the file that holds its content."""

    rel: str
    real: str


@dataclass(frozen=True, slots=True)
class _Item:
    rel: str
    mode: int
    # A directory above is left out and has been reported: only what a rule brings back counts.
    covered: bool


def walk(root: Path, rules: Rules) -> Iterator[Found | Omission]:
    """Yield what ``rules`` take of the tree ``root``, and what they or the tree's state omit.

    ``root`` is absolute and free of symlinks. The order is depth first, the names of a directory
    by their bytes. Raises ``OSError`` if ``root`` itself cannot be listed.
    """
    pending = _list(root, "", covered=False)
    while pending:
        item = pending.pop()
        if stat.S_ISDIR(item.mode):
            omission, below = _enter(root, rules, item)
            if omission is not None:
                yield omission
            pending.extend(below)
        else:
            result = _judge_file(root, rules, item)
            if result is not None:
                yield result


def _list(root: Path, rel: str, *, covered: bool) -> list[_Item]:
    """Return the entries of the directory ``rel``, last name first."""
    descriptor = open_listing(root / rel)
    try:
        with os.scandir(descriptor) as entries:
            found = [(entry.name, _mode(entry)) for entry in entries]
    finally:
        os.close(descriptor)
    found.sort(key=lambda pair: os.fsencode(pair[0]), reverse=True)
    prefix = rel + "/" if rel else ""
    return [_Item(prefix + name, mode, covered) for name, mode in found]


def _mode(entry: os.DirEntry[str]) -> int:
    """Return the file type of ``entry``, without a system call where the listing tells it."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _enter(root: Path, rules: Rules, item: _Item) -> tuple[Omission | None, list[_Item]]:
    """Return why a directory is left out, if it is, and what there is to look at below it."""
    verdict = rules.judge(item.rel, directory=True)
    # A directory that --include names is taken whole, also below one that is left out.
    covered = item.covered and not rules.includes(item.rel + "/")
    where = printable(item.rel) + "/"
    left_out = None if verdict is None else Omission(where, _reason(verdict), lost=False)
    if verdict is not None and not verdict.rescue:
        return None if covered else left_out, []
    reason = _unstorable(item.rel)
    below: list[_Item] = []
    if reason is None:
        try:
            below = _list(root, item.rel, covered=covered or verdict is not None)
        except OSError as error:
            reason = f"cannot be listed: {os_reason(error)}"
    if covered:
        return None, below
    if left_out is None and reason is not None:
        left_out = Omission(where, reason, lost=True)
    elif left_out is None and not below:
        left_out = Omission(where, "empty directory", lost=False)
    return left_out, below


def _reason(verdict: Verdict) -> str:
    exception = "; only files of it that are named outright are taken" if verdict.rescue else ""
    return verdict.reason + exception


def _judge_file(root: Path, rules: Rules, item: _Item) -> Found | Omission | None:
    path = printable(item.rel)
    verdict = rules.judge(item.rel, directory=False)
    if item.covered and not (verdict is None and rules.brings_back(item.rel)):
        return None
    if verdict is not None:
        return Omission(path, verdict.reason, lost=False)
    reason = _unstorable(item.rel)
    if reason is not None:
        return Omission(path, reason, lost=True)
    if stat.S_ISREG(item.mode):
        return Found(item.rel, item.rel)
    if not stat.S_ISLNK(item.mode):
        kind = describe_kind(item.mode) if item.mode else "gone since it was listed"
        return Omission(path, kind, lost=True)
    try:
        real = resolve_inside(root, item.rel)
    except RefusedError as error:
        return Omission(path, f"symlink that {error}", lost=True)
    if any(is_version_control(name) for name in real.split("/")):
        return Omission(path, "symlink that leads into version control", lost=True)
    reason = rules.judge_target(real, item.rel)
    return Found(item.rel, real) if reason is None else Omission(path, reason, lost=False)


def _unstorable(rel: str) -> str | None:
    """Return why no page can have the path ``rel``, or None."""
    try:
        size = len(rel.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if size > MAX_PATH_BYTES:
        return f"its path is longer than {MAX_PATH_BYTES:,} bytes"
    if rel.count("/") > MAX_DEPTH:
        return f"more than {MAX_DEPTH} directories deep"
    return None
