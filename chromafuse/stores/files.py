"""Files below configured directories, as objects.

A path is walked component by component from the configured directory and no symlink is followed,
so that nothing in the tree, or in the directory, leads out of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from chromafuse.domain.errors import BlobChanged, BlobDenied, BlobMissing, StoreUnavailable
from chromafuse.domain.pointer import Location, Place, Pointer, PointerProblem
from chromafuse.ports import Blob, Skipped
from chromafuse.stores.meter import Meter

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileBlobs:
    """Reads ``file:///`` for ``blobs.Blobs``. Holds nothing open."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = [place for place in places if place.scheme == "file"]
        self.meter = Meter()

    def stream(self, pointer: Pointer, offset: int, lengths: Sequence[int]) -> Iterator[bytes]:
        with self.meter.request(), self._opened(pointer.location) as file:
            _check(file, pointer)
            for length in lengths:
                data = _whole(file, pointer, offset, length)
                # Again: what was written meanwhile may be in it.
                _check(file, pointer)
                yield data
                offset += length

    def head(self, location: Location) -> Blob:
        with self.meter.request(), self._opened(location) as file:
            return _blob(location, os.fstat(file))

    def scan(self, place: Place) -> Iterator[Blob | Skipped]:
        """Yield the regular files below ``place``; symlinks are skipped. Raises ``BlobDenied``.

        So is what cannot be an address. What is gone by the time it is looked at is not there.
        """
        top = "/" + place.prefix

        def failed(error: OSError) -> None:
            raise _translated(error, Location("file", "", place.prefix))

        for directory, names, files in os.walk(top, onerror=failed):
            names.sort()
            links = (name for name in names if os.path.islink(f"{directory}/{name}"))
            for name in sorted([*files, *links]):
                path = f"{directory}/{name}"
                try:
                    location = Location("file", "", path[1:])
                    mode = os.lstat(path).st_mode
                    if stat.S_ISREG(mode):
                        yield self.head(location)
                    elif stat.S_ISLNK(mode):
                        yield Skipped(path, "a symlink, which is not followed")
                    else:
                        yield Skipped(path, "no regular file")
                except PointerProblem as problem:
                    yield Skipped(path, f"its path {problem}")
                except (FileNotFoundError, BlobMissing):
                    continue

    def close(self) -> None:
        pass

    @contextmanager
    def _opened(self, location: Location) -> Iterator[int]:
        place = next((place for place in self._places if place.holds(location)), None)
        if place is None:
            raise BlobDenied(f"{location.url} is in no directory that is configured")
        # What is configured is a directory, or one file in a directory.
        top = place.prefix
        if location.key == top:
            top = top.rpartition("/")[0]
        rest = location.key[len(top) :].lstrip("/").split("/")
        held: list[int] = []
        try:
            # The configured directory itself may be a symlink: its owner chose it.
            held.append(os.open("/" + top, _DIRECTORY))
            for name in rest[:-1]:
                held.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=held[-1]))
            held.append(os.open(rest[-1], _FILE, dir_fd=held[-1]))
            if not stat.S_ISREG(os.fstat(held[-1]).st_mode):
                raise BlobDenied(f"{location.url} is no regular file")
            yield held[-1]
        except OSError as error:
            raise _translated(error, location) from None
        finally:
            for descriptor in held:
                os.close(descriptor)


def _whole(file: int, pointer: Pointer, offset: int, length: int) -> bytes:
    pieces = []
    while length > 0:
        piece = os.pread(file, length, offset)
        if not piece:
            raise BlobChanged(f"{pointer.location.url} became shorter")
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def _translated(error: OSError, location: Location) -> BlobMissing | BlobDenied | StoreUnavailable:
    if error.errno == errno.ENOENT:
        return BlobMissing(f"{location.url} does not exist")
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return BlobDenied(f"{location.url} leads through what is no directory, or is a symlink")
    if error.errno in (errno.EACCES, errno.EPERM):
        return BlobDenied(f"{location.url} may not be read")
    return StoreUnavailable(f"{location.url} cannot be read: {error.strerror}")


def _blob(location: Location, found: os.stat_result) -> Blob:
    etag = f"{found.st_size:x}-{found.st_mtime_ns:x}-{found.st_ino:x}"
    return Blob(Pointer(location, found.st_size, etag), found.st_mtime_ns)


def _check(file: int, pointer: Pointer) -> None:
    if _blob(pointer.location, os.fstat(file)).pointer != pointer:
        raise BlobChanged(f"{pointer.location.url} was replaced")
