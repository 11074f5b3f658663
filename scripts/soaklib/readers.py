"""What reads: whole files, ranges, ``grep -r`` and ``find``. Each result is checked at once."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from soaklib.history import History
from soaklib.source import FILES, NEEDLES, Tree

PATIENCE = 60.0
"""Seconds that one step may take on a busy machine; the hub's own deadline is far below."""
PAUSE = 0.01

_NAMES = {
    "No such file or directory": errno.ENOENT,
    "Stale file handle": errno.ESTALE,
    "Input/output error": errno.EIO,
}


@dataclass(frozen=True, slots=True)
class View:
    """A session's directory, and whether restricted pages are in it."""

    root: Path
    sees_all: bool

    def has(self, path: str) -> bool:
        """Return whether a file, if it exists, is shown here."""
        return self.sees_all or not FILES[path].restricted


class Reader:
    """One reader in a thread of its own; its view may be changed at any time."""

    def __init__(
        self, history: History, view: View, seed: str, environment: dict[str, str]
    ) -> None:
        self._history = history
        self._source = history.source
        self.view = view
        self._random = random.Random(seed)  # noqa: S311
        self._environment = environment

    def run(self, stop: threading.Event) -> None:
        """Read at random until told to stop."""
        steps: Sequence[Callable[[View], None]] = (self.whole, self.ranges, self.grep, self.find)
        while not stop.wait(PAUSE):
            (step,) = self._random.choices(steps, weights=(60, 30, 5, 5))
            begun = time.monotonic()
            try:
                step(self.view)
            except Exception as error:  # noqa: BLE001 - a fault of the soak itself is to be seen too
                self._history.is_wrong(f"{step.__name__}: unexpected {error!r}")
            took = time.monotonic() - begun
            if took > PATIENCE:
                self._history.is_wrong(f"{step.__name__} took {took:.0f} s")

    def _path(self) -> str:
        return self._random.choice(list(FILES))

    def whole(self, view: View) -> None:
        """Read a file from its beginning to its end."""
        path, since = self._path(), time.monotonic()
        try:
            data = (view.root / path).read_bytes()
        except OSError as error:
            self.failed(view, path, error.errno, since)
            return
        self._history.count("reads")
        self._history.count("bytes", len(data))
        self._is_right(view, path, 0, data, since, data)

    def ranges(self, view: View) -> None:
        """Read parts of a file that stays open meanwhile."""
        path, since = self._path(), time.monotonic()
        try:
            descriptor = os.open(view.root / path, os.O_RDONLY)
        except OSError as error:
            self.failed(view, path, error.errno, since)
            return
        try:
            size = os.fstat(descriptor).st_size
            head = os.pread(descriptor, 4096, 0)
            for _ in range(self._random.randint(1, 12)):
                offset = self._random.randrange(size + 1)
                wanted = self._random.randint(1, 200_000)
                data = os.pread(descriptor, wanted, offset)
                self._history.count("ranges")
                self._history.count("bytes", len(data))
                if len(data) != min(wanted, size - offset):
                    self._history.is_wrong(f"{path}: {len(data)} bytes at {offset} of {size}")
                self._is_right(view, path, offset, data, since, head)
                time.sleep(self._random.choice((0, 0, 0.05)))
        except OSError as error:
            self.failed(view, path, error.errno, since)
        finally:
            os.close(descriptor)

    def _is_right(
        self, view: View, path: str, offset: int, data: bytes, since: float, head: bytes
    ) -> None:
        """Check bytes of a file that begins with ``head``: of one version, and of a valid one."""
        if not view.has(path):
            self._history.is_wrong(f"{path} is shown to who may not see it")
            return
        trees = self._history.shown(since, time.monotonic())
        version = self._source.version_of(head)
        if version is None or version[0] != path:
            self._history.is_wrong(f"{path} begins with {head[:80]!r}")
            return
        expected = self._source.content(path, version[1])
        whole = data is head
        part = expected if whole else expected[offset : offset + len(data)]
        if part != data:
            what = f"{len(data)} bytes at {offset}"
            self._history.is_wrong(f"{path}: {what} are not those of version {version[1]}")
        elif all(tree.get(path) != version[1] for tree in trees):
            valid = sorted({tree.get(path, -1) for tree in trees})
            self._history.is_wrong(f"{path}: version {version[1]}, where {valid} are valid")

    def failed(self, view: View, path: str, code: int | None, since: float) -> None:
        """Judge an error."""
        until = time.monotonic()
        trees = self._history.shown(since, until)
        name = errno.errorcode.get(code or 0, str(code))
        if code == errno.ENOENT:
            if view.has(path) and all(path in tree for tree in trees):
                self._history.is_wrong(f"{path} is missing")
            else:
                self._history.count("absent")
            return
        servers = {"chroma", "s3"} if FILES[path].blob else {"chroma"}
        excused = (code == errno.ESTALE and len(trees) > 1) or (
            code == errno.EIO and self._history.disturbed(since, until, servers)
        )
        if excused:
            self._history.count(f"errors {name}")
        else:
            took = f"after {until - since:.1f} s"
            self._history.is_wrong(f"{path}: {name} for no reason, {took}")

    # Programs

    def _program(self, view: View, command: Sequence[str]) -> tuple[bytes, bytes]:
        done = subprocess.run(
            command,
            cwd=view.root,
            env=self._environment,
            capture_output=True,
            check=False,
            timeout=2 * PATIENCE,
        )
        return done.stdout, done.stderr

    def grep(self, view: View) -> None:
        """Search all files for a word."""
        needle = f"needle-{self._random.randrange(NEEDLES):02}"
        since = time.monotonic()
        out, err = self._program(view, ["grep", "-rn", needle, "."])
        trees = self._history.shown(since, time.monotonic())
        self._history.count("greps")
        lines = [line for line in out.split(b"\n") if line]
        errors = self._excused(view, "grep", err, since)
        if len(trees) == 1 and not errors:
            self._compare(view, "grep", set(lines), self._matches(view, trees, needle))
        elif wrong := set(lines) - self._matches(view, trees, needle):
            self._history.is_wrong(f"grep prints {min(wrong)[:100]!r}, which is nowhere")

    def _matches(self, view: View, trees: Collection[Tree], needle: str) -> set[bytes]:
        """Return the lines that ``grep -rn`` may print in one of ``trees``."""
        versions = {item for tree in trees for item in tree.items() if view.has(item[0])}
        return {
            b"./%s:%d:%s" % (path.encode(), number, line)
            for path, version in versions
            if not FILES[path].blob
            for number, line in enumerate(self._source.content(path, version).split(b"\n"), 1)
            if needle.encode() in line
        }

    def find(self, view: View) -> None:
        """List all files with their sizes."""
        since = time.monotonic()
        out, err = self._program(view, ["find", ".", "-type", "f", "-printf", "%P %s\n"])
        trees = self._history.shown(since, time.monotonic())
        self._history.count("finds")
        lines = {line for line in out.split(b"\n") if line}
        errors = self._excused(view, "find", err, since)
        possible = {
            b"%s %d" % (path.encode(), len(self._source.content(path, version)))
            for tree in trees
            for path, version in tree.items()
            if view.has(path)
        }
        if len(trees) == 1 and not errors:
            self._compare(view, "find", lines, possible)
        elif wrong := lines - possible:
            self._history.is_wrong(f"find prints {min(wrong)!r}, which is nowhere")

    def _compare(self, view: View, name: str, found: set[bytes], expected: set[bytes]) -> None:
        if found != expected:
            more, less = sorted(found - expected)[:2], sorted(expected - found)[:2]
            who = "all" if view.sees_all else "anonymous"
            self._history.is_wrong(f"{name} ({who}) prints too much {more}, too little {less}")

    def _excused(self, view: View, program: str, said: bytes, since: float) -> bool:
        """Return whether a program met errors, all of which have a reason."""
        lines = [line for line in said.decode(errors="replace").split("\n") if line]
        for line in lines:
            path = next((path for path in FILES if path in line), None)
            code = next((code for text, code in _NAMES.items() if line.endswith(text)), None)
            if path is None and code in (errno.ENOENT, errno.ESTALE):
                if len(self._history.shown(since, time.monotonic())) == 1:
                    self._history.is_wrong(f"{program}: {line}")
            elif path is None or code is None:
                self._history.is_wrong(f"{program}: {line}")
            elif code == errno.ENOENT and len(self._history.shown(since, time.monotonic())) > 1:
                self._history.count("absent")
            else:
                self.failed(view, path, code, since)
        return bool(lines)
