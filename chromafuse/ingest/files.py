"""Opening files of a tree that somebody else may change or have built to mislead.

A path is opened component by component without following symlinks, so neither a link put in
place between listing and reading nor a path longer than ``PATH_MAX`` leads elsewhere.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_FILE_BYTES = 512 * 1024 * 1024
"""A larger file is refused: a page is read into memory whole."""

_DIR_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO in the place of a file must not wait for a writer.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = 3


class RefusedError(Exception):
    """A file exists but is nothing that can be stored; ``str()`` is the reason."""


@dataclass(frozen=True, slots=True)
class FileBytes:
    """A file's bytes and its modification time in nanoseconds, from one descriptor."""

    data: bytes
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Root:
    """The directory that a tree was listed from, and what tells it from another in its place."""

    path: Path
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Root:
        """Return it for ``path``, absolute and free of symlinks; raises ``OSError``."""
        info = os.lstat(path)
        return cls(path, info.st_dev, info.st_ino)

    def still_stands(self) -> bool:
        """Return whether the same directory is there now."""
        try:
            return Root.of(self.path) == self
        except OSError:
            return False


def open_listing(path: Path) -> int:
    """Return a descriptor of the directory ``path`` for ``os.scandir``.

    ``path`` is absolute and free of symlinks. Raises ``OSError``.
    """
    return _open(path, _LIST_FLAGS)


def open_file(path: Path) -> BinaryIO:
    """Open the regular file ``path`` to read. Raises ``OSError`` or ``RefusedError``."""
    return open(_open_regular(path), "rb")


def read_head(path: Path, size: int) -> bytes:
    """Return the first ``size`` bytes of the regular file ``path``.

    Raises ``OSError``, or ``RefusedError`` if it is not a regular file.
    """
    with open(_open_regular(path), "rb") as file:
        return file.read(size)


def read_whole(path: Path, limit: int = MAX_FILE_BYTES) -> FileBytes:
    """Return the bytes of the regular file ``path``, the same before and after reading.

    Raises ``OSError``, or ``RefusedError`` if it is not a regular file, has more than ``limit``
    bytes, or changes whenever it is read.
    """
    for _ in range(_ATTEMPTS):
        with open(_open_regular(path), "rb") as file:
            before = os.fstat(file.fileno())
            if before.st_size > limit:
                raise RefusedError(f"larger than {limit:,} bytes")
            data = file.read(before.st_size + 1)
            after = os.fstat(file.fileno())
        if len(data) == before.st_size == after.st_size and before.st_mtime_ns == after.st_mtime_ns:
            return FileBytes(data, after.st_mtime_ns)
    raise RefusedError("keeps changing while it is read")


def resolve_inside(root: Path, rel: str) -> str:
    """Return the path below ``root`` of the regular file that ``rel`` leads to.

    ``root`` is absolute and free of symlinks. Raises ``RefusedError`` with a reason if ``rel``
    is dangling, cyclic, leads out of ``root`` or not to a regular file.
    """
    path = root / rel
    try:
        # The kernel gives up after 40 links, where realpath would recurse along any chain.
        info = os.stat(path)
        real = Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        raise RefusedError("leads to nothing") from None
    except OSError as error:
        raise RefusedError(f"leads nowhere: {os_reason(error)}") from None
    if not real.is_relative_to(root):
        raise RefusedError("leads out of the tree")
    if stat.S_ISDIR(info.st_mode):
        raise RefusedError("leads to a directory")
    if not stat.S_ISREG(info.st_mode):
        raise RefusedError(f"leads to {describe_kind(info.st_mode)}")
    return real.relative_to(root).as_posix()


def describe_kind(mode: int) -> str:
    """Return in words what kind of file has the mode ``mode``."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFBLK: "a device",
        stat.S_IFCHR: "a device",
        stat.S_IFLNK: "a symlink",
    }
    return kinds.get(stat.S_IFMT(mode), "a special file")


def os_reason(error: OSError) -> str:
    """Return the operating system's words for ``error``, without the path."""
    return error.strerror or type(error).__name__


def _open_regular(path: Path) -> int:
    descriptor = _open(path, _FILE_FLAGS)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise RefusedError(f"{describe_kind(mode)}, not a file")


def _open(path: Path, flags: int) -> int:
    parts = path.parts
    parent = os.open(parts[0], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts[1:-1]:
            child = os.open(name, _DIR_FLAGS, dir_fd=parent)
            os.close(parent)
            parent = child
        return os.open(parts[-1] if parts[1:] else ".", flags, dir_fd=parent)
    finally:
        os.close(parent)
