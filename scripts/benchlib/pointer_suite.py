"""How fast a large object is read through our mount, beside rclone's and a bare boto3 download."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchlib.corpora import FETCHED
from benchlib.lab import CHROMAFUSE, COMMANDS, Lab, mounts_below, peak_memory
from benchlib.model import BenchError, Reading, Trial
from benchlib.mounts import MOUNT_SECONDS, database
from benchlib.services import COLLECTION, WORKER, Work, s3_server, wait_until
from benchlib.suites import Label, Setting, Suite

ABOUT = """\
A specification of 78 MB (scripts/fetch-corpora octokit) in `rclone serve s3` on loopback is read by
one process from its beginning to its end in pieces of 1 MiB. Every trial has a mount of its own, on
which another small object has been read before: what is imported and connected once is not told.
  first byte  of the file; of boto3: the first MiB by one range GET
  first       the whole file, from empty caches; of boto3: one GET without a range
  second      the same again
  memory      the most that the mount's process had resident
`local` is the file in a plain directory, in the kernel's page cache; `squashfuse_ll` shows it in a
squashfs image: what it costs to read from the page cache of a FUSE file system."""

OBJECT, SMALL = "ghec.deref.json", "small.json"
BUCKET = "specs"
GROUP = "78 MB"
OURS, RCLONE, BARE, LOCAL = "ours (chroma run)", "rclone mount", "bare boto3", "local"
FUSE = "squashfuse_ll"


def _prepare(setting: Setting, wanted: Sequence[Label]) -> list[Trial]:
    lab, large = setting.lab, FETCHED / "octokit" / OBJECT
    if not large.exists():
        raise BenchError(f"{large} is missing; run scripts/fetch-corpora octokit")
    if not (COMMANDS / "rclone").exists():
        raise BenchError("rclone is missing; run scripts/setup --dev")
    small = lab.new_directory("small") / SMALL
    small.write_text('{"openapi": "3.1.0"}\n')
    url = setting.stack.enter_context(s3_server(lab, BUCKET, (large, small)))
    target = database(setting, "chroma run")
    where = ["--chroma", target, "--collection", COLLECTION, "--s3-endpoint", url]
    lab.run(
        [CHROMAFUSE, "ingest", str(setting.corpus.tree), *where, "--pointers", f"s3://{BUCKET}"]
    )
    runs: dict[str, Callable[[], Sequence[Reading]]] = {
        OURS: partial(_read_mount, lab, partial(_ours, lab, where), f"api-specs/{OBJECT}"),
        RCLONE: partial(_read_mount, lab, partial(_rclone, lab, url), OBJECT),
        BARE: lambda: _readings(_work(lab, "download", url, BUCKET, OBJECT)),
        LOCAL: lambda: _readings(_work(lab, "sequential", "", "", str(large))),
    }
    if any(label.subject == FUSE for label in wanted):
        image = lab.new_directory("image") / "image.squashfs"
        lab.run(["mksquashfs", str(large), str(small), str(image), "-noappend", "-quiet"])
        runs[FUSE] = partial(_read_mount, lab, partial(_squashfuse, lab, image), OBJECT)
    return [Trial(label.group, label.subject, runs[label.subject]) for label in wanted]


def _work(lab: Lab, task: str, *arguments: str) -> Work:
    return Work.of(lab.run([sys.executable, str(WORKER), task, *arguments]))


def _readings(done: Work) -> list[Reading]:
    return [Reading(name, "s", seconds) for name, seconds in done.told.items()]


def _read_mount(
    lab: Lab, mounted: Callable[[Path], AbstractContextManager[None]], name: str
) -> list[Reading]:
    lab.empty_caches()
    point, before = lab.new_directory("mnt"), lab.processes()
    with mounted(point):
        readings = _readings(_work(lab, "sequential", "", SMALL, str(point / name)))
        peaks = [peak for pid in lab.processes() - before if (peak := peak_memory(pid))]
    lab.wait_for_end(before)
    point.rmdir()
    return [*readings, Reading("memory", "MiB", sum(peaks) / 2**20)]


@contextmanager
def _ours(lab: Lab, where: Sequence[str], point: Path) -> Iterator[None]:
    # The warm-up of the pages is not what is measured here.
    options = ["--pointers-allowed", f"s3://{BUCKET}", "--warm", "off"]
    try:
        lab.run([CHROMAFUSE, "mount", str(point), *where, *options], deadline=MOUNT_SECONDS)
        yield
    finally:
        if mounts_below(point):
            lab.run([CHROMAFUSE, "umount", str(point)], deadline=MOUNT_SECONDS)


@contextmanager
def _rclone(lab: Lab, url: str, point: Path) -> Iterator[None]:
    remote = f":s3,provider=Rclone,env_auth=true,force_path_style=true,endpoint='{url}':{BUCKET}"
    log = lab.new_directory("rclone") / "log"
    command = [
        str(COMMANDS / "rclone"), "mount", remote, str(point), "--read-only",
        "--config", "/dev/null", "--cache-dir", str(log.parent / "cache"),
    ]  # fmt: skip
    with lab.service(command, log) as process:
        wait_until(lambda: bool(mounts_below(point)), process, log, "`rclone mount`")
        try:
            yield
        finally:
            lab.run(["fusermount3", "-u", str(point)], deadline=MOUNT_SECONDS)


@contextmanager
def _squashfuse(lab: Lab, image: Path, point: Path) -> Iterator[None]:
    lab.run(["squashfuse_ll", str(image), str(point)], deadline=MOUNT_SECONDS)
    try:
        yield
    finally:
        lab.run(["fusermount3", "-u", str(point)], deadline=MOUNT_SECONDS)


POINTERS = Suite(
    name="pointers",
    about=ABOUT,
    labels=[Label(GROUP, subject) for subject in (OURS, RCLONE, BARE, FUSE, LOCAL)],
    prepare=_prepare,
)
