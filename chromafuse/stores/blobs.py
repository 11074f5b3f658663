"""Objects of either kind behind one port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chromafuse.domain.pointer import Location, Place, Pointer
from chromafuse.ports import Blob, Skipped
from chromafuse.stores.files import FileBlobs
from chromafuse.stores.meter import Meter
from chromafuse.stores.s3 import S3Blobs, S3Options


class Blobs:
    """Implements ``ports.BlobReader`` for all of ``places``; nothing else is ever contacted.

    ``meters`` count the requests to each kind of place that there is.
    """

    def __init__(self, places: Sequence[Place], options: S3Options) -> None:
        self._files = FileBlobs(places)
        self._s3 = S3Blobs(places, options)
        kinds = {place.scheme for place in places}
        meters = (("s3", self._s3.meter), ("file", self._files.meter))
        self.meters: dict[str, Meter] = {kind: meter for kind, meter in meters if kind in kinds}

    def read(self, pointer: Pointer, offset: int, length: int) -> bytes:
        return b"".join(self.stream(pointer, offset, (length,)))

    def stream(self, pointer: Pointer, offset: int, lengths: Sequence[int]) -> Iterator[bytes]:
        return self._of(pointer.location).stream(pointer, offset, lengths)

    def head(self, location: Location) -> Blob:
        return self._of(location).head(location)

    def scan(self, place: Place) -> Iterator[Blob | Skipped]:
        return self._of(place).scan(place)

    def close(self) -> None:
        self._s3.close()

    def _of(self, where: Location | Place) -> FileBlobs | S3Blobs:
        return self._files if where.scheme == "file" else self._s3
