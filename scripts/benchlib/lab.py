"""A place for measuring: private directories, processes that end, mounts that go away.

Whatever is started here carries a mark in its environment, so that also a daemon that has left
its parent is found by its process id and ended; nothing else ever is.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchlib.model import BenchError
from benchlib.signals import deaf

PROJECT = Path(__file__).resolve().parents[2]
COMMANDS = Path(sys.executable).parent
CHROMAFUSE = str(COMMANDS / "chromafuse")

MARK = "BENCH_LAB"
DEADLINE = 900.0
END_SECONDS = 10.0
"""What a process gets to end by itself."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    seconds: float
    code: int
    output: bytes
    errors: bytes
    peak_bytes: int


class Lab:
    """One run's directories, processes and mounts. Use as a context manager."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="cfbench-"))
        self._mark = uuid.uuid4().hex
        self._numbers = iter(range(1, 1_000_000))
        self.caches = self.root / "cache"
        self.state = self.root / "state"
        self.environment = self._environment()

    def _environment(self) -> dict[str, str]:
        """Return an environment of nobody's settings, no proxy and no way out for telemetry."""
        kept = {k: v for k, v in os.environ.items() if k.startswith(("OPENBLAS_", "LD_"))}
        places = {
            "HOME": self.root / "home",
            "XDG_CACHE_HOME": self.caches,
            "XDG_CONFIG_HOME": self.root / "config",
            "XDG_DATA_HOME": self.root / "data",
            "XDG_STATE_HOME": self.state,
            "XDG_RUNTIME_DIR": self.root / "run",
        }
        for place in places.values():
            place.mkdir(mode=0o700)
        return kept | {
            "PATH": f"{COMMANDS}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "TMPDIR": str(self.root),
            "ANONYMIZED_TELEMETRY": "False",
            MARK: self._mark,
            **{name: str(place) for name, place in places.items()},
        }

    def new_directory(self, name: str) -> Path:
        """Return a new, empty directory that goes away with the lab."""
        place = self.root / f"{name}-{next(self._numbers)}"
        place.mkdir(mode=0o700)
        return place

    def empty_caches(self) -> None:
        """Remove what earlier processes left in the cache directory."""
        shutil.rmtree(self.caches)
        self.caches.mkdir(mode=0o700)

    # Processes

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        codes: Sequence[int] = (0,),
        deadline: float = DEADLINE,
    ) -> Ran:
        """Run ``command`` to its end and time it. Raises ``BenchError`` unless it is in order.

        Output goes to a file in memory: grep is another program when it sees /dev/null, and a
        pipe would time its reader too.
        """
        with _memory_file() as output, _memory_file() as errors:
            ran = self._timed(command, cwd or self.root, output, errors, deadline)
        if ran.code not in codes:
            last = ran.errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise BenchError(f"`{_words(command)}` ended with {ran.code}: {last[:300]}")
        return ran

    def _timed(
        self,
        command: Sequence[str],
        cwd: Path,
        output: IO[bytes],
        errors: IO[bytes],
        deadline: float,
    ) -> Ran:
        process: subprocess.Popen[bytes] | None = None
        begun = time.perf_counter()
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            ended = _wait(process.pid, deadline)
            seconds = time.perf_counter() - begun
            if not ended:
                raise BenchError(f"`{_words(command)}` took over {deadline:.0f} s")
        except BaseException:
            if process is not None:
                _end(process)
            raise
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return Ran(
            seconds, process.returncode, _content(output), _content(errors), usage.ru_maxrss * 1024
        )

    @contextmanager
    def service(self, command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Keep ``command`` running meanwhile."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            _end(process, signal.SIGTERM)

    def processes(self) -> set[int]:
        """Return the process ids of everything that was started here and still runs."""
        wanted = f"{MARK}={self._mark}".encode()
        found = set()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as environ:
                    if wanted in environ.read().split(b"\0"):
                        found.add(int(entry.name))
        return found

    def wait_for_end(self, others: set[int]) -> None:
        """Wait until no process is left but ``others``. Raises ``BenchError``."""
        end = time.monotonic() + END_SECONDS
        while left := self.processes() - others:
            if time.monotonic() > end:
                raise BenchError(f"processes {sorted(left)} outlive their mount")
            time.sleep(0.01)

    def complaints(self) -> list[str]:
        """Return what daemons have logged that is not in order, each kind of line once."""
        lines: dict[str, None] = {}
        for log in sorted(self.state.rglob("*.log")):
            for line in log.read_text(errors="replace").split("\n"):
                if found := re.search(r"\b(WARNING|ERROR|CRITICAL)\b.*", line):
                    lines[found[0]] = None
        return list(lines)

    # The end

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        with deaf():
            trouble = self._close()
        if trouble:
            raise BenchError(trouble)

    def _close(self) -> str:
        unmount_all(self.root)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            end = time.monotonic() + END_SECONDS
            while self.processes() and time.monotonic() < end:
                time.sleep(0.05)
        # A process that was just mounting may have got as far as that.
        unmount_all(self.root)
        if left := mounts_below(self.root):
            return f"cannot unmount {', '.join(map(str, left))}"
        shutil.rmtree(self.root, ignore_errors=True)
        remaining = sorted(self.processes())
        return f"these processes do not end: {remaining}" if remaining else ""


@contextmanager
def _memory_file() -> Iterator[IO[bytes]]:
    with os.fdopen(os.memfd_create("bench"), "w+b") as file:
        yield file


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _words(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])


def _wait(pid: int, seconds: float) -> bool:
    """Wait for a child to end and return whether it has, leaving it to be reaped.

    ``Popen.wait`` with a timeout looks only every 50 ms, which would show in the figures.
    """
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> None:
    """End a child and reap it: politely, and if that does not help, not."""
    with deaf():
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        if not _wait(process.pid, END_SECONDS):
            process.kill()
        # One that waits for a hung mount ends when that does.
        if _wait(process.pid, END_SECONDS):
            process.wait()


def peak_memory(pid: int) -> int | None:
    """Return the most bytes that a process has had resident, or None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def mounts_below(root: Path) -> list[Path]:
    """Return the mount points at or below ``root``, the inner ones last."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split(" ")[4])
            if point == str(root) or point.startswith(f"{root}/"):
                found.append(Path(point))
    return found


def unmount_all(root: Path) -> None:
    """Unmount all FUSE mounts below ``root``, by force if need be."""
    program = shutil.which("fusermount3") or "fusermount"
    for point in reversed(mounts_below(root)):
        for options in (["-u"], ["-u", "-z"]):
            command = [program, *options, "--", str(point)]
            if not subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
                break
