"""Who lists a directory: recognises search programs by what the kernel tells of their process.

A process is inspected once, at its first listing, and known from then on by its stat file, which
stays open: reading it fails when the process has ended, so a reused number is never mistaken, and
what it says changes when another program is executed. What cannot be read (another user's process,
one of a foreign process namespace) is no search program; nor is anything if /proc is that of
another process namespace than ours, where our numbers mean others.

A process's program may lie on a file system that hangs, so that it is inspected in a worker thread
only. (Its arguments and environment are safe to read: since Linux 4.17 the kernel does not give out
memory of a process there that is a file's.)
"""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from chromafuse.domain.pattern import Needs, Program, Search, analyse
from chromafuse.domain.pattern.query import All

log = logging.getLogger(__name__)

KEPT = 128
"""Processes that are remembered, each with an open descriptor."""
MAX_WORDS = 16_384
"""Bytes of a command line that is looked at: a hostile one takes long."""
MARKS = {b"grep": b"GNU grep", b"rg": b"ripgrep"}
"""What stands in a program's file, by its name: others of that name have other options."""
_PROGRAMS = {b"grep": Program.GREP, b"rg": Program.RG}
_READ = 1 << 20
_STAT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a process searches, if that is understood and may narrow the listing.

    ``cwd`` is where a ripgrep without operands searches: it complains if it finds no file.
    ``sorts``: it sorts a directory of many entries by inode, as GNU grep does. ``is_grep``: it is
    one of the programs, whatever it searches.
    """

    search: Search | None = None
    cwd: str | None = None
    sorts: bool = True
    is_grep: bool = False


class Caller:
    """A process that has listed a directory; ``found`` is None until it is inspected.

    ``is_narrowed`` once it was shown less than everything, ``is_full`` once it was shown everything
    after all: it goes on as it began. ``is_ignoring``: something above its working directory may
    tell ripgrep to leave out files; None as long as nobody has looked.
    """

    __slots__ = (
        *("descriptor", "found", "image", "name", "pid"),
        *("is_full", "is_ignoring", "is_narrowed"),
    )

    def __init__(
        self, pid: int, descriptor: int, image: bytes, name: bytes, found: Inspected | None
    ) -> None:
        self.pid = pid
        self.descriptor = descriptor
        self.image = image
        self.name = name
        self.found = found
        self.is_ignoring: bool | None = None
        self.is_narrowed = False
        self.is_full = False

    def may_be_shown_less(self, *, hides: bool) -> bool:
        """Return whether it is a search that is understood, or may turn out to be one.

        If something is hidden from all searches, also those count that are not understood.
        """
        if self.found is None:
            return True
        return self.found.search is not None or (hides and self.found.is_grep)

    def is_same(self) -> bool:
        """Return whether the process still executes the same program."""
        image = _image(self.descriptor)
        return image is not None and (not self.image or image == self.image)


class Callers:
    """The processes that have listed a directory lately. ``is_on``: recognise them unasked.

    ``hides``: all search programs matter, not only searches that are understood.
    """

    def __init__(self, *, is_on: bool, hides: bool = False) -> None:
        self._hides = hides
        self._numbers_fit = numbers_fit()
        self._is_on = is_on and self._numbers_fit
        self._known: OrderedDict[int, Caller] = OrderedDict()

    def of(self, pid: int) -> Caller | None:
        """Return what is known of the process or thread ``pid``, or None if it is no searcher.

        It may have to be inspected still.
        """
        if not pid:
            return None  # it is outside our process namespace
        known = self._known.get(pid)
        if known is not None:
            if known.is_same():
                self._known.move_to_end(pid)
                return known if known.may_be_shown_less(hides=self._hides) else None
            self._drop(pid)
        if not self._is_on:
            return None
        found = self._look_at(pid)
        if found is None or not found.may_be_shown_less(hides=self._hides):
            return None
        return found

    def narrows(self, pid: int) -> bool:
        """Return whether ``pid`` was shown less than everything; costs no system call."""
        known = self._known.get(pid)
        return known is not None and known.is_narrowed

    def expect(self, pid: int, search: Search | None) -> None:
        """Take it from the process ``pid`` itself that it is about to search, or not to narrow.

        That holds whatever program it executes. Raises ``OSError`` if it cannot be watched.
        """
        self._drop(pid)
        if not self._numbers_fit:
            raise OSError(errno.ESRCH, "/proc is that of another process namespace")
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._keep(Caller(pid, descriptor, b"", b"", Inspected(search, is_grep=True)))

    def close(self) -> None:
        """Let go of all descriptors."""
        for pid in list(self._known):
            self._drop(pid)

    def _look_at(self, pid: int) -> Caller | None:
        place = f"/proc/{pid}/"
        try:
            descriptor = os.open(place + "stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        image = _image(descriptor)
        if image is None:
            os.close(descriptor)
            return None
        name = b""
        with suppress(OSError):
            name = os.fsencode(os.readlink(place + "exe")).rpartition(b"/")[2]
        caller = Caller(pid, descriptor, image, name, None if name in _PROGRAMS else Inspected())
        self._keep(caller)
        return caller

    def _keep(self, caller: Caller) -> None:
        self._known[caller.pid] = caller
        if len(self._known) > KEPT:
            idlest = next(iter(self._known))
            self._drop(idlest)

    def _drop(self, pid: int) -> None:
        known = self._known.pop(pid, None)
        if known is not None:
            os.close(known.descriptor)


def inspect(pid: int, name: bytes) -> Inspected:
    """Return what process ``pid`` searches, whose program has this name. Raises nothing.

    Runs in a worker thread, and may take as long as the process likes.
    """
    place = f"/proc/{pid}/"
    try:
        link = place + "exe"
        found = os.stat(link)
        key = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if not _is_marked(key, _Unhashed(link), MARKS[name]):
            return Inspected()
        program = _PROGRAMS[name]
        search, cwd = _search(place, program)
        return Inspected(search, cwd, program is Program.GREP, is_grep=True)
    except (OSError, ValueError):
        return Inspected()
    except Exception:
        # Somebody's bug: it costs the narrowing, not the listing.
        log.exception("unexpected error while looking at a search program")
        return Inspected()


def numbers_fit() -> bool:
    """Return whether /proc has the numbers of our process namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _image(descriptor: int) -> bytes | None:
    """Return what tells a process and its program from others, or None if it has ended.

    The name, the start time, and where program, stack and arguments lie, which is another place
    after each ``execve``.
    """
    try:
        text = os.pread(descriptor, _STAT_BYTES, 0)
    except OSError:
        return None
    before, _, rest = text.rpartition(b")")
    fields = rest.split()
    if len(fields) < 49 or fields[0] in (b"Z", b"X"):
        return None
    # proc(5) counts from 1 with pid and name before these: starttime is 22, startcode 26,
    # startstack 28, start_data 45, arg_start 48.
    kept = [fields[at - 3] for at in (22, 26, 28, 45, 48)]
    return b" ".join([before, *kept])


class _Unhashed(str):
    """Where a file is to be read; it is known by something else."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return True


@lru_cache(maxsize=64)
def _is_marked(key: tuple[int, int, int], path: _Unhashed, mark: bytes) -> bool:
    """Return whether the file with this ``key`` holds ``mark``. Raises ``OSError``."""
    del key
    with open(path, "rb", buffering=0) as file:
        before = b""
        while part := file.read(_READ):
            if mark in before + part:
                return True
            before = part[-len(mark) :]
    return False


def _search(place: str, program: Program) -> tuple[Search | None, str | None]:
    """Return what a process searches, None if that needs every file. Raises ``OSError``."""
    words = _read(place + "cmdline").split(b"\0")[1:-1]
    if sum(map(len, words)) > MAX_WORDS:
        return None, None
    environ = _environment(_read(place + "environ"))
    # A file of patterns is not read: it may lie in our own mount, and be none of our business.
    found = analyse(program, words, environ, lambda _: None)
    if isinstance(found.query, All) or not found.recursive:
        return None, None
    if found.needs is Needs.EVERYTHING:
        return None, None
    if found.needs is Needs.NAMES and (program is Program.RG or not _prints_nothing(place)):
        return None, None
    if program is not Program.RG or found.operands:
        return found, None
    if os.readlink(place + "ns/mnt") != os.readlink("/proc/self/ns/mnt"):
        return None, None
    return found, os.readlink(place + "cwd")


def _prints_nothing(place: str) -> bool:
    """Return whether standard output is the null device: GNU grep then stops at a match.

    Told by its name in our own mount namespace. To ask the file itself is no way: it may lie in our
    own mount, or in one that hangs, and then this daemon would wait for itself for ever.
    """
    if os.readlink(place + "ns/mnt") != os.readlink("/proc/self/ns/mnt"):
        return False
    return os.readlink(place + "fd/1") == os.devnull


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        parts = []
        while part := file.read(_READ):
            parts.append(part)
    return b"".join(parts)


def _environment(text: bytes) -> Mapping[bytes, bytes]:
    # Of a name that stands twice getenv() takes the first.
    pairs = (item.partition(b"=") for item in reversed(text.split(b"\0")) if item)
    return {name: value for name, _, value in pairs}
