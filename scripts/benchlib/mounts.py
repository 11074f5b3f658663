"""The trees that are compared: a plain directory and mounts. A new one is a small class here."""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import urlsplit

import redis

from benchlib import peers
from benchlib.lab import CHROMAFUSE, Lab, mounts_below, peak_memory
from benchlib.model import BenchError, Reading
from benchlib.services import BACKENDS, COLLECTION, delayed, facts, redis_server, work
from benchlib.suites import Setting

MOUNT_SECONDS = 60.0
"""What mounting and unmounting may take: one that hangs must not hold up the others."""
SETTLE_SECONDS = 120.0
"""What a warm-up may take."""
SLUGS = 14_080
"""As many as the inventory of MDN has."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The corpus as one subject shows it, fresh.

    ``first_ls`` is how long it took from the mount command's start to the end of the first ``ls``
    on it, None without a mount. ``counters`` reads what the subject counts, since it was mounted.
    """

    root: Path
    first_ls: float | None
    counters: Callable[[], list[Reading]]
    settle: Callable[[], None]
    """Waits until nothing goes on in the background."""
    requests: Callable[[], float | None]
    """Tells how many Chroma requests there were since it was mounted, if that is counted."""


class Subject(ABC):
    """A way to show the corpus as a tree."""

    name: ClassVar[str]
    has_first = True
    """Whether a first use differs from a second one; where not, only the second is told."""
    tasks: ClassVar[frozenset[str] | None] = None
    """Names of the tasks that it does; None: all that are for everybody."""
    phases: ClassVar[tuple[str, ...]] = ("first", "second")
    slow: ClassVar[bool] = False
    """Whether it is measured only when asked for."""

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
        yield Tree(self._tree, None, list, lambda: None, lambda: None)


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

    def settle(self, point: Path) -> None:
        """Wait until nothing goes on in the background."""

    def requests(self, point: Path) -> float | None:
        """Return how many Chroma requests there were, if that is counted."""
        del point
        return None

    def fresh(self) -> None:
        """Make all as it is before a first mount."""
        self.lab.empty_caches()

    @contextmanager
    def shown(self) -> Iterator[Tree]:
        lab = self.lab
        self.fresh()
        point = lab.new_directory("mnt")
        before = lab.processes()
        try:
            mounting = lab.run(self.mount_command(point), deadline=MOUNT_SECONDS)
            listing = lab.run(["ls", str(point)])
            if not listing.output:
                raise BenchError("mounted, but the first ls shows nothing")

            # Looked up after the commands: the first one follows the mount at once.
            def counters() -> list[Reading]:
                daemons = lab.processes() - before
                peaks = [peak for pid in daemons if (peak := peak_memory(pid)) is not None]
                memory = Reading("memory", "MiB", sum(peaks) / 2**20)
                return [*self.counters(point), *([memory] if peaks else [])]

            yield Tree(
                point,
                mounting.seconds + listing.seconds,
                counters,
                partial(self.settle, point),
                partial(self.requests, point),
            )
        finally:
            if mounts_below(point):
                lab.run(self.unmount_command(point), deadline=MOUNT_SECONDS)
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
    pushdown: ClassVar[str] = "off"
    """What searches are shown: of everything, or only files that can match."""
    begins_within: ClassVar[float] = 2.0
    """Seconds after which a warm-up that is off stays so."""

    def prepare(self, setting: Setting) -> None:
        self.lab = setting.lab
        self._target = database(setting, self.backend)

    def options(self) -> Sequence[str]:
        """Return further options of ``mount``."""
        return ()

    def mount_command(self, point: Path) -> Sequence[str]:
        where = ["--chroma", self._target, "--collection", COLLECTION]
        narrowing = ["--pushdown", self.pushdown]
        return [CHROMAFUSE, "mount", str(point), *where, *narrowing, *self.options()]

    def unmount_command(self, point: Path) -> Sequence[str]:
        return [CHROMAFUSE, "umount", str(point)]

    def status(self, point: Path) -> Any:
        """Return what the mount says of itself. Raises ``BenchError``."""
        ran = self.lab.run([CHROMAFUSE, "status", str(point), "--json"])
        try:
            return json.loads(ran.output)[0]
        except (ValueError, LookupError):
            raise BenchError("`chromafuse status` makes no sense") from None

    def settle(self, point: Path) -> None:
        begun = time.monotonic()
        end = begun + SETTLE_SECONDS
        while (state := self.status(point)["warm_up"]["state"]) in (
            "off",
            "waiting",
            "running",
        ):
            # It is off until it begins, and for good where not all fits into the cache.
            if state == "off" and time.monotonic() > begun + self.begins_within:
                return
            if time.monotonic() > end:
                raise BenchError(f"the warm-up takes over {SETTLE_SECONDS:.0f} s")
            time.sleep(0.05)

    def requests(self, point: Path) -> float | None:
        return float(self.status(point)["reads"]["requests"])

    def counters(self, point: Path) -> list[Reading]:
        return [Reading("requests", "requests", float(self.status(point)["reads"]["requests"]))]


def database(setting: Setting, backend: str) -> str:
    """Return what ``--chroma`` takes: a database of ``backend`` with the corpus, made once."""
    if backend not in setting.shared:
        target = setting.stack.enter_context(BACKENDS[backend](setting.lab))
        ingested = work(setting.lab, "ingest", target, setting.corpus.tree)
        setting.results.corpora[setting.corpus.name] = facts(setting.corpus, ingested)
        setting.shared[backend] = target
    return setting.shared[backend]


class ChromafuseEmbedded(Chromafuse):
    """On an embedded database."""

    name = "ours (embedded)"
    backend = "embedded"


class ChromafuseServer(Chromafuse):
    """On a ``chroma run`` that has long been up."""

    name = "ours (chroma run)"
    backend = "chroma run"


class NoWarmUp(ChromafuseServer):
    """Nothing is fetched but what is wanted, so requests are those of the command."""

    name = "ours (chroma run, --warm off)"
    tasks = frozenset({"find -type f", "ls -lR", "cat", "grep -rl"})
    begins_within = 0.0

    def options(self) -> Sequence[str]:
        return ("--warm", "off")


class WithRedis(ChromafuseServer):
    """With a Redis server that is empty at first."""

    name = "ours (chroma run + Redis)"
    tasks = frozenset({"cat", "grep -rl"})

    def missing(self) -> str | None:
        return None if shutil.which("redis-server") else "redis-server"

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._redis = setting.stack.enter_context(redis_server(setting.lab))

    def options(self) -> Sequence[str]:
        return ("--redis", self._redis)

    def fresh(self) -> None:
        super().fresh()
        with redis.Redis.from_url(self._redis) as client:
            client.flushall()


class FilledRedis(WithRedis):
    """With a Redis server that an earlier mount has filled; no cache else."""

    name = "ours (chroma run + filled Redis)"

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        with self.shown() as tree, redis.Redis.from_url(self._redis) as client:
            tree.settle()
            end = time.monotonic() + SETTLE_SECONDS
            while client.dbsize() != len(setting.corpus.files):
                if time.monotonic() > end:
                    raise BenchError("Redis does not get all pages")
                time.sleep(0.05)

    def fresh(self) -> None:
        Mount.fresh(self)


class Delayed(ChromafuseServer):
    """Through a proxy that lets every request to Chroma wait."""

    name = "ours (chroma run + 20 ms)"
    tasks = frozenset({"mount", "cat", "grep -rl"})

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._target = setting.stack.enter_context(delayed(setting.lab, self._target, 20))


class KeptTree(Chromafuse):
    """The cache directory is that of an earlier mount, which has left the tree there."""

    tasks = frozenset({"mount"})
    _kept: Path | None = None

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.keep()

    def keep(self) -> None:
        """Mount once, and keep what that leaves in the cache directory."""
        with self.shown() as tree:
            tree.settle()
        kept = self.lab.new_directory("kept") / "cache"
        shutil.copytree(self.lab.caches, kept)
        self._kept = kept

    def fresh(self) -> None:
        super().fresh()
        if self._kept:
            shutil.copytree(self._kept, self.lab.caches, dirs_exist_ok=True)


class KeptEmbedded(KeptTree):
    """On an embedded database."""

    name = "ours (embedded, tree on disk)"
    backend = "embedded"


class KeptServer(KeptTree):
    """On a ``chroma run``."""

    name = "ours (chroma run, tree on disk)"
    backend = "chroma run"


class ManySlugs(KeptTree):
    """As many pages as MDN has, of one line each, whatever the corpus is."""

    def prepare(self, setting: Setting) -> None:
        self.lab = setting.lab
        self._target = setting.stack.enter_context(BACKENDS[self.backend](setting.lab))
        work(setting.lab, "ingest", self._target, _slugs(setting))
        self.keep()


class ManyEmbedded(ManySlugs):
    """On an embedded database."""

    name = "ours (embedded, 14,080 slugs on disk)"
    backend = "embedded"


class ManyServer(ManySlugs):
    """On a ``chroma run``."""

    name = "ours (chroma run, 14,080 slugs on disk)"
    backend = "chroma run"


def _slugs(setting: Setting) -> Path:
    """Return a tree of ``SLUGS`` pages in directories of 32, three deep; made once."""
    if "slugs" not in setting.shared:
        tree = setting.lab.new_directory("slugs")
        for number in range(SLUGS):
            group = number // 32
            page = tree / f"area-{group // 40}" / f"interface-{group}" / f"member-{number}.md"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(f"# Member {number}\n")
        setting.shared["slugs"] = str(tree)
    return Path(setting.shared["slugs"])


class Mirage(Mount):
    """The peer: mirage-ai's ``ChromaVFS`` by its ``FuseManager``, on a copy in its own form.

    Its content is not cached and its ways are slow, so it does two tasks, once each.
    """

    name = f"mirage-ai {peers.VERSION}"
    tasks = frozenset({"cat", "grep -rl"})
    phases = ("first",)
    slow = True

    def missing(self) -> str | None:
        return peers.missing()

    def prepare(self, setting: Setting) -> None:
        self.lab = setting.lab
        place = setting.lab.new_directory("shaped") / "records.json"
        work(setting.lab, "dump", database(setting, "chroma run"), place)
        names = {slug_of(rel): rel for rel, _ in setting.corpus.files}
        place.write_text(json.dumps({"names": names, "records": json.loads(place.read_text())}))
        self._target = setting.stack.enter_context(BACKENDS["chroma run"](setting.lab))
        work(setting.lab, "shape", self._target, place)

    def mount_command(self, point: Path) -> Sequence[str]:
        where = urlsplit(self._target)
        address = [where.hostname or "", str(where.port)]
        return [str(peers.python()), str(peers.PROGRAM), *address, COLLECTION, str(point)]

    def unmount_command(self, point: Path) -> Sequence[str]:
        return ["fusermount3", "-u", str(point)]


def slug_of(rel: str) -> str:
    """Return the slug that a file's page has in Chroma."""
    return str(PurePosixPath(rel).with_suffix(""))


SUBJECTS: tuple[type[Subject], ...] = (
    Local,
    Squashfuse,
    ChromafuseEmbedded,
    ChromafuseServer,
    NoWarmUp,
    WithRedis,
    FilledRedis,
    Delayed,
    KeptEmbedded,
    KeptServer,
    ManyEmbedded,
    ManyServer,
    Mirage,
)
