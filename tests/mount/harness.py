"""Runs the installed ``chromafuse`` command as its users do, and always cleans up after it.

Nothing here imports the package under test. Every command has a deadline, every site an environment
of its own, and every daemon is known by a mark in that environment, so that only it is ever killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.fixtures.odd_tree import OddTree

PROJECT = Path(__file__).resolve().parents[2]
COMMANDS = Path(sys.executable).parent

INGEST_DEADLINE = 240.0
MOUNT_DEADLINE = 60.0
TOOL_DEADLINE = 180.0
DEATH_DEADLINE = 10.0

SITE_MARK = "MOUNT_TEST_SITE"
SCREEN_WIDTH = 4_000  # no line of a report is ever folded

_LEVEL = re.compile(
    r"""\b(WARNING|ERROR|CRITICAL|FATAL)\b|["']?level["']?\s*[=:]\s*["']?(warn|error|crit|fatal)"""
    r"|^Traceback \(most recent call last\)"
)


class HarnessError(AssertionError):
    """The product left something behind, hung, or failed where the test relies on it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended, and what it said."""

    command: Sequence[str | bytes]
    code: int
    out: bytes
    err: bytes

    def __str__(self) -> str:
        words = " ".join(os.fsdecode(word) for word in self.command)
        return (
            f"`{words}` ended with {self.code}\n"
            f"stdout: {_shortened(self.out)}\nstderr: {_shortened(self.err)}"
        )

    def expect(self, *codes: int) -> Finished:
        """Return itself if it ended with one of ``codes``, else fail with all it said."""
        if self.code not in codes:
            raise HarnessError(f"{self}\nexpected exit code {' or '.join(map(str, codes))}")
        return self


def _shortened(output: bytes, limit: int = 4_000) -> str:
    text = output.decode(errors="backslashreplace")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def run(
    command: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    cwd: Path,
    deadline: float = TOOL_DEADLINE,
) -> Finished:
    """Run a command to its end, or fail when it and all that holds its output last too long.

    A daemon that keeps the standard output of the command that started it counts as not ended.
    """
    with subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=deadline)
        except BaseException as failure:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(failure, subprocess.TimeoutExpired):
                raise
            still_open = (
                " (it ended, but something holds its output)" if process.poll() is not None else ""
            )
            words = " ".join(os.fsdecode(word) for word in command)
            raise HarnessError(f"`{words}` took over {deadline:.0f} s{still_open}") from None
    return Finished(command, process.returncode, out, err)


def plain_environment(home: Path) -> dict[str, str]:
    """An environment for stock tools: byte order, UTF-8, UTC, nobody's settings.

    Of the tests' own environment only what the processor needs comes along.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    return kept | {
        "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": str(SCREEN_WIDTH),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


@dataclass(frozen=True, slots=True)
class MountLine:
    """One line of ``/proc/self/mountinfo``."""

    point: str
    options: frozenset[str]
    type: str
    source: str
    super_options: frozenset[str]


def mount_lines() -> Iterator[MountLine]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields, (kind, source, super_options) = before.split(" "), after.split(" ")
            yield MountLine(
                point=_unescaped(fields[4]),
                options=frozenset(fields[5].split(",")),
                type=kind,
                source=_unescaped(source),
                super_options=frozenset(super_options.split(",")),
            )


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def mount_line(point: Path) -> MountLine | None:
    """The topmost mount on ``point``, found without touching the file system mounted there."""
    found = None
    for line in mount_lines():
        if line.point == str(point):
            found = line
    return found


def processes_marked(mark: str) -> list[int]:
    """Pids of the processes whose first environment held ``mark``."""
    wanted = f"{SITE_MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    found.append(int(entry.name))
    return sorted(found)


def wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether ``condition`` came true within ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


known_sites: list[Site] = []
"""Every site of this process whose log may still have something unread."""


def complaints_in_logs() -> list[str]:
    """What the daemons of all sites logged with level WARNING or worse since the last call."""
    complaints = [line for site in known_sites for line in site.new_complaints()]
    known_sites[:] = [site for site in known_sites if not site.closed]
    return complaints


def end_all_daemons() -> None:
    """Kill the daemons of all sites, so that calls waiting for them return."""
    for site in known_sites:
        site.kill()


class Site:
    """One source ingested into a Chroma of its own and mounted, in an environment of its own.

    The mount point is called ``docs`` and is alone in its directory, ``work``.
    """

    def __init__(self, base: Path, *, chroma: str | None = None, collection: str = "site") -> None:
        self.base = base
        self.work = base / "work"
        self.mountpoint = self.work / "docs"
        self.log = base / "daemon.log"
        self.chroma = chroma or str(base / "chroma")
        self.collection = collection
        self.ingested: Finished | None = None
        self.closed = False
        self._mark = uuid.uuid4().hex
        self._log_read_to = 0
        # A socket's path has to be short, and pytest's directories are not.
        self._runtime = Path(tempfile.mkdtemp(prefix="cf-"))
        self.mountpoint.mkdir(parents=True)
        self.env = self._environment()
        known_sites.append(self)

    def _environment(self) -> dict[str, str]:
        home = self.base / "home"
        env = plain_environment(home) | {
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CONFIG_DIRS": str(home / "config-dirs"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(self._runtime),
            SITE_MARK: self._mark,
        }
        for name, value in env.items():
            if name == "HOME" or name.startswith("XDG_"):
                Path(value).mkdir(parents=True, exist_ok=True)
        return env

    def command(self, *arguments: str | Path, deadline: float = MOUNT_DEADLINE) -> Finished:
        """Run ``chromafuse`` with ``arguments`` in the site's environment."""
        words = [str(COMMANDS / "chromafuse"), *map(str, arguments)]
        return run(words, env=self.env, cwd=self.base, deadline=deadline)

    def _target(self) -> tuple[str, ...]:
        return ("--collection", self.collection, "--chroma", self.chroma)

    def ingest(self, source: Path, *options: str, expect: int = 0) -> Finished:
        """Ingest ``source``; the exit code has to be ``expect``."""
        done = self.command("ingest", source, *self._target(), *options, deadline=INGEST_DEADLINE)
        self.ingested = done.expect(expect)
        return done

    def mount(self, *options: str, command: str = "mount") -> None:
        """Mount the site; when this returns, the mount answers."""
        self.command(
            command, self.mountpoint, *self._target(), "--log-file", self.log, *options
        ).expect(0)
        if not self.is_mounted():
            raise HarnessError(f"mount returned 0 and {self.mountpoint} is not a mount")
        if not self.daemons() or not self.log.exists():
            raise HarnessError("mount returned 0 and there is no daemon or no log of it")

    def hub(self, *options: str) -> None:
        """Mount the site as a hub; when this returns, it answers."""
        self.mount(*options, command="hub")

    def open_session(self, *options: str) -> Path:
        """Open a session of the hub and return its path."""
        done = self.command("session", "open", "--hub", self.mountpoint, *options).expect(0)
        return Path(done.out.decode().rstrip("\n"))

    def status(self) -> Mapping[str, Any]:
        """What ``status --json`` tells of the mount."""
        found: Any = json.loads(self.command("status", self.mountpoint, "--json").expect(0).out)
        answer: Mapping[str, Any] = found[0]
        return answer

    def status_of_tree(self, source: Path) -> str:
        """The version that the stored tree of ``source`` has, as the ingest told."""
        text = self.ingest(source).out.decode()
        found = re.search(r"^tree version (\S+)", text, re.MULTILINE)
        assert found
        return found[1]

    def umount(self) -> None:
        """Unmount; when this returns, the daemon is gone."""
        self.command("umount", self.mountpoint).expect(0)
        if self.is_mounted() or self.daemons():
            raise HarnessError("umount returned 0 before mount and daemon were gone")

    def is_mounted(self) -> bool:
        return mount_line(self.mountpoint) is not None

    def daemons(self) -> list[int]:
        """Pids of what the site's commands left running."""
        return processes_marked(self._mark)

    def kill(self) -> None:
        """End the site's own processes at once; every call into its mount then returns an error."""
        for pid in self.daemons():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def new_complaints(self) -> list[str]:
        """Lines of the daemon's log with level WARNING or worse, since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._log_read_to)
            # A line being written at this moment is left to the next call.
            whole = log.read().rpartition(b"\n")[0]
        self._log_read_to += len(whole)
        lines = whole.decode(errors="backslashreplace").split("\n")
        return [line for line in lines if _LEVEL.search(line)]

    def close(self) -> None:
        """Leave nothing mounted, running or on disk; fail if the product needed help with that."""
        self.closed = True
        trouble = self._close_politely()
        if self.is_mounted():
            run(
                ["fusermount3", "-u", "-z", str(self.mountpoint)],
                env=self.env,
                cwd=self.base,
                deadline=MOUNT_DEADLINE,
            )
        if not wait_until(lambda: not self.daemons(), DEATH_DEADLINE):
            trouble += f"\nkilled what was left: {self.daemons()}"
            self.kill()
        shutil.rmtree(self._runtime, ignore_errors=True)
        if trouble:
            raise HarnessError(trouble.strip())

    def _close_politely(self) -> str:
        if not self.is_mounted():
            return ""
        try:
            self.umount()
        except HarnessError as failure:
            return str(failure)
        return ""


@dataclass(frozen=True, slots=True)
class MountedCorpus:
    """A site and the plain directory that its mount has to equal."""

    name: str
    expected: Path
    site: Site
    odd: OddTree | None = None

    @property
    def mount(self) -> Path:
        return self.site.mountpoint


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs of one shell line part, for a person to read."""

    what: str
    expected: bytes
    found: bytes

    def __str__(self) -> str:
        at = _first_difference(self.expected, self.found)
        around = slice(max(0, at - 200), at + 400)
        return (
            f"{self.what} differ from byte {at} on\n"
            f"expected …{self.expected[around]!r}\nfound    …{self.found[around]!r}"
        )


def _first_difference(one: bytes, other: bytes) -> int:
    both = min(len(one), len(other))
    return next((at for at in range(both) if one[at] != other[at]), both)


def differences(expected: Finished, found: Finished) -> list[Difference]:
    """In what two runs differ: standard output, standard error, exit code."""
    pairs = [
        ("standard output", expected.out, found.out),
        ("standard error", expected.err, found.err),
        ("exit codes", str(expected.code).encode(), str(found.code).encode()),
    ]
    return [Difference(what, one, other) for what, one, other in pairs if one != other]


class _Dirent(ctypes.Structure):
    """glibc's ``struct dirent`` on 64-bit Linux."""

    _fields_: ClassVar = [
        ("d_ino", ctypes.c_uint64),
        ("d_off", ctypes.c_int64),
        ("d_reclen", ctypes.c_uint16),
        ("d_type", ctypes.c_uint8),
        ("d_name", ctypes.c_char * 256),
    ]


@dataclass(frozen=True, slots=True)
class Listed:
    """One name as the kernel lists it."""

    name: bytes
    type: int
    inode: int


DT_UNKNOWN, DT_DIR, DT_REG = 0, 4, 8


def listing(directory: bytes) -> list[Listed]:
    """The entries of a directory in the kernel's order with its ``d_type``, ``.`` and ``..`` too.

    ``os.scandir`` would hide a ``d_type`` of DT_UNKNOWN behind a call to ``stat``.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(_Dirent)
    stream = ctypes.c_void_p(libc.opendir(directory))
    if not stream:
        raise OSError(ctypes.get_errno(), "opendir", directory)
    try:
        return list(_read_stream(libc, stream, directory))
    finally:
        libc.closedir(stream)


def _read_stream(libc: ctypes.CDLL, stream: ctypes.c_void_p, directory: bytes) -> Iterator[Listed]:
    while True:
        ctypes.set_errno(0)
        entry = libc.readdir(stream)
        if not entry:
            if ctypes.get_errno():
                raise OSError(ctypes.get_errno(), "readdir", directory)
            return
        yield Listed(entry.contents.d_name, entry.contents.d_type, entry.contents.d_ino)
