"""What a session costs on a hub, beside a mount of its own for each reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchlib.lab import CHROMAFUSE, Lab, mounts_below, peak_memory
from benchlib.model import BenchError, Reading, Trial
from benchlib.mounts import MOUNT_SECONDS, database
from benchlib.services import COLLECTION, work
from benchlib.suites import Label, Setting, Suite

ABOUT = """\
Every trial has a hub of its own on `chroma run`, warmed up. Sessions of changing groups are opened
one after another over one connection to the hub's socket, and all stay open.
  open          from the request to its answer
  open + read   the same and the reading of a page in it; the first such is `first`
  ls, cat       of the root, of the page, in a session that nobody has used yet
  memory each   what the hub grew by, through the number of sessions
  command       the life of a `chromafuse session open` process
`a mount each` mounts instead: from the command's start to the page read; memory is its daemon's."""

HUB = "hub"
EACH = "a mount each"
COUNTS = {"1 session": 1, "100 sessions": 100, "1,000 sessions": 1_000}


def _prepare(setting: Setting, wanted: Sequence[Label]) -> list[Trial]:
    target = database(setting, "chroma run")
    return [
        Trial(
            label.group,
            label.subject,
            partial(
                _mount_each if label.subject == EACH else _sessions,
                setting.lab,
                target,
                setting.corpus.middle_page,
                COUNTS[label.group],
            ),
        )
        for label in wanted
    ]


@contextmanager
def _mounted(lab: Lab, command: str, target: str) -> Iterator[Path]:
    lab.empty_caches()
    point, before = lab.new_directory("mnt"), lab.processes()
    try:
        where = ["--chroma", target, "--collection", COLLECTION]
        lab.run([CHROMAFUSE, command, str(point), *where], deadline=MOUNT_SECONDS)
        yield point
    finally:
        if mounts_below(point):
            lab.run([CHROMAFUSE, "umount", str(point)], deadline=MOUNT_SECONDS)
        lab.wait_for_end(before)


def _sessions(lab: Lab, target: str, page: str, count: int) -> list[Reading]:
    with _mounted(lab, "hub", target) as point:
        asked = json.dumps({"count": count, "page": page})
        told = work(lab, "sessions", str(point), asked).told
        command = lab.run([CHROMAFUSE, "session", "open", "--hub", str(point)])
    kib = told.pop("memory_kib")
    readings = [Reading(name, "s", seconds) for name, seconds in told.items()]
    if count > 1:
        readings.append(Reading("memory each", "KiB", kib / count))
    return [*readings, Reading("command", "s", command.seconds)]


def _mount_each(lab: Lab, target: str, page: str, _: int) -> list[Reading]:
    lab.empty_caches()
    point, before = lab.new_directory("mnt"), lab.processes()
    where = ["--chroma", target, "--collection", COLLECTION]
    try:
        mounting = lab.run([CHROMAFUSE, "mount", str(point), *where], deadline=MOUNT_SECONDS)
        reading = lab.run(["cat", str(point / page)])
        peaks = [peak for pid in lab.processes() - before if (peak := peak_memory(pid))]
    finally:
        if mounts_below(point):
            lab.run([CHROMAFUSE, "umount", str(point)], deadline=MOUNT_SECONDS)
        lab.wait_for_end(before)
    if not reading.output:
        raise BenchError("the page is empty")
    return [
        Reading("first open + read", "s", mounting.seconds + reading.seconds),
        Reading("memory each", "KiB", sum(peaks) / 1024),
    ]


SESSIONS = Suite(
    name="sessions",
    about=ABOUT,
    labels=[*(Label(group, HUB) for group in COUNTS), Label("1 session", EACH)],
    prepare=_prepare,
)
