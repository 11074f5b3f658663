"""Files that an ingest puts beside Chroma, below one place and never over another version."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from chromafuse.domain.errors import BlobMissing, StoreError
from chromafuse.domain.pointer import Location, Place
from chromafuse.ports import Blob
from chromafuse.stores.files import FileBlobs
from chromafuse.stores.s3 import S3Blobs, S3Options

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CLOEXEC
_COPY_BYTES = 1 << 20


class Uploads:
    """Implements ``ports.BlobWriter`` for one place."""

    def __init__(self, place: Place, options: S3Options) -> None:
        self.place = place
        self._s3 = S3Blobs([place], options)
        self._files = FileBlobs([place])

    def put(self, location: Location, file: BinaryIO, size: int) -> tuple[Blob, bool]:
        """Return the object with the bytes of ``file``, and whether it had to be uploaded."""
        reader = self._files if location.scheme == "file" else self._s3
        try:
            found = reader.head(location)
            if found.pointer.size == size:
                return found, False
        except BlobMissing:
            pass
        file.seek(0)
        if location.scheme == "file":
            self._write(location, file)
        else:
            self._s3.upload(location, file)
        made = reader.head(location)
        if made.pointer.size != size:
            raise StoreError(f"{location.url} has another size than what was uploaded")
        return made, True

    def _write(self, location: Location, file: BinaryIO) -> None:
        *above, name = location.key[len(self.place.prefix) :].lstrip("/").split("/")
        held: list[int] = []
        try:
            held.append(os.open("/" + self.place.prefix, _DIRECTORY))
            for part in above:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=held[-1])
                held.append(os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=held[-1]))
            with _new_file(name, held[-1]) as out:
                shutil.copyfileobj(file, out, _COPY_BYTES)
            os.fsync(held[-1])
        except OSError as error:
            raise StoreError(f"{location.url} cannot be written: {error.strerror}") from None
        finally:
            for descriptor in held:
                os.close(descriptor)

    def close(self) -> None:
        self._s3.close()


@contextmanager
def _new_file(name: str, directory: int) -> Iterator[BinaryIO]:
    """Yield a file that appears as ``name`` in ``directory`` when all of it is on disk.

    It has no name until then, where the file system can do that: nothing is left of it if we are
    killed.
    """
    temporary = f".upload-{secrets.token_hex(8)}"
    nameless = True
    try:
        try:
            file = os.open(".", os.O_TMPFILE | _NEW, 0o644, dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            nameless = False
            flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | _NEW
            file = os.open(temporary, flags, 0o644, dir_fd=directory)
        with open(file, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
            if nameless:
                os.link(f"/proc/self/fd/{file}", temporary, dst_dir_fd=directory)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
