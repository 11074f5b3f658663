"""The trees that are compared: a plain directory and mounts. A new one is a small class here."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchlib.lab import CHROMAFUSE, Lab, mounts_below, peak_memory
from benchlib.model import BenchError, Reading
from benchlib.services import BACKENDS, COLLECTION, facts, work
from benchlib.suites import Setting


@dataclass(frozen=True, slots=True)
class Tree:
    """The corpus as one subject shows it, fresh.

    ``first_ls`` is how long it took from the mount command's start to the end of the first ``ls``
    on it, None without a mount. ``counters`` reads what the subject counts, since it was mounted.
    """

    root: Path
    first_ls: float | None
    counters: Callable[[], list[Reading]]


class Subject(ABC):
    """A way to show the corpus as a tree."""

    name: ClassVar[str]
    has_first = True
    """Whether a first use differs from a second one; where not, only the second is told."""

    def missing(self) -> str | None:
        """Return what has to be installed for this, if anything."""
        return None

    @abstractmethod
    def prepare(self, setting: Setting) -> None:
        """Make what all rounds need, once."""

    @abstractmethod
    def shown(self) -> AbstractContextManager[Tree]:
        """Show the tree anew, from empty caches, and end that afterwards."""


class Local(Subject):
    """The plain directory, in the kernel's cache."""

    name = "local"
    has_first = False

    def prepare(self, setting: Setting) -> None:
        self._tree = setting.corpus.tree

    @contextmanager
    def shown(self) -> Iterator[Tree]:
        yield Tree(self._tree, None, list)


class Mount(Subject):
    """A tree behind a mount command that returns once it is mounted."""

    lab: Lab

    @abstractmethod
    def mount_command(self, point: Path) -> Sequence[str]:
        """Return the command that mounts at ``point``."""

    @abstractmethod
    def unmount_command(self, point: Path) -> Sequence[str]:
        """Return the command that ends that mount."""

    def counters(self, point: Path) -> list[Reading]:
        """Return what the mount itself counts, since it was mounted."""
        del point
        return []

    @contextmanager
    def shown(self) -> Iterator[Tree]:
        lab = self.lab
        lab.empty_caches()
        point = lab.new_directory("mnt")
        before = lab.processes()
        try:
            mounting = lab.run(self.mount_command(point))
            listing = lab.run(["ls", str(point)])
            if not listing.output:
                raise BenchError("mounted, but the first ls shows nothing")
            daemons = lab.processes() - before

            def counters() -> list[Reading]:
                peaks = [peak for pid in daemons if (peak := peak_memory(pid)) is not None]
                memory = Reading("memory", "MiB", sum(peaks) / 2**20)
                return [*self.counters(point), *([memory] if peaks else [])]

            yield Tree(point, mounting.seconds + listing.seconds, counters)
        finally:
            if mounts_below(point):
                lab.run(self.unmount_command(point))
            lab.wait_for_end(before)
        point.rmdir()


class Squashfuse(Mount):
    """A squashfs image, made with mksquashfs's defaults, behind a file system in C."""

    name = "squashfuse_ll"

    def missing(self) -> str | None:
        programs = {"squashfuse_ll": "squashfuse", "mksquashfs": "squashfs-tools"}
        return ", ".join(p for name, p in programs.items() if not shutil.which(name)) or None

    def prepare(self, setting: Setting) -> None:
        self.lab = setting.lab
        self._image = setting.lab.new_directory("image") / "tree.squashfs"
        options = ["-noappend", "-no-progress", "-quiet", "-no-xattrs"]
        self.lab.run(["mksquashfs", str(setting.corpus.tree), str(self._image), *options])

    def mount_command(self, point: Path) -> Sequence[str]:
        return ["squashfuse_ll", str(self._image), str(point)]

    def unmount_command(self, point: Path) -> Sequence[str]:
        return ["fusermount3", "-u", str(point)]


class Chromafuse(Mount):
    """Our mount on one of the backends."""

    backend: ClassVar[str]

    def prepare(self, setting: Setting) -> None:
        self.lab = setting.lab
        self._target = setting.stack.enter_context(BACKENDS[self.backend](setting.lab))
        ingested = work(setting.lab, "ingest", self._target, setting.corpus.tree)
        setting.results.corpora[setting.corpus.name] = facts(setting.corpus, ingested)

    def options(self) -> Sequence[str]:
        """Return further options of ``mount``."""
        return ()

    def mount_command(self, point: Path) -> Sequence[str]:
        where = ["--chroma", self._target, "--collection", COLLECTION]
        return [CHROMAFUSE, "mount", str(point), *where, *self.options()]

    def unmount_command(self, point: Path) -> Sequence[str]:
        return [CHROMAFUSE, "umount", str(point)]

    def counters(self, point: Path) -> list[Reading]:
        with suppress(BenchError, ValueError, LookupError, TypeError):
            ran = self.lab.run([CHROMAFUSE, "status", str(point), "--json"])
            requests = json.loads(ran.output)[0]["reads"]["requests"]
            return [Reading("requests", "requests", float(requests))]
        return []


class ChromafuseEmbedded(Chromafuse):
    """On an embedded database."""

    name = "ours (embedded)"
    backend = "embedded"


class ChromafuseServer(Chromafuse):
    """On a ``chroma run`` that has long been up."""

    name = "ours (chroma run)"
    backend = "chroma run"


SUBJECTS: tuple[type[Subject], ...] = (Local, Squashfuse, ChromafuseEmbedded, ChromafuseServer)
