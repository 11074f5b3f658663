"""Files that an ingest uploads instead of storing: large specifications, and what is no text."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from chromafuse.domain.access import AccessRule, all_of
from chromafuse.domain.errors import IngestError
from chromafuse.domain.pointer import Location, Place, PointerProblem
from chromafuse.domain.tree import path_problem
from chromafuse.ingest.files import RefusedError, open_file
from chromafuse.ingest.objects import HEAD_BYTES, SPEC_ENDINGS, Registered, is_specification
from chromafuse.ingest.report import printable
from chromafuse.ingest.sources import Source, rule_of_lost
from chromafuse.ports import BlobWriter

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """Where to upload, and over how many bytes a specification is."""

    place: Place
    over: int
    writer: BlobWriter


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A file that is outside Chroma now; ``new`` tells whether this ingest uploaded it."""

    source: Source
    item: Registered
    rule: AccessRule
    new: bool


def upload(source: Source, options: UploadOptions) -> Uploaded | None:
    """Upload ``source`` if it is to be, or return None.

    Raises ``StoreError``, or ``IngestError`` if the file changes meanwhile.
    """
    if source.site_file or path_problem(source.rel.encode(errors="surrogateescape")):
        return None
    try:
        with open_file(source.path) as file:
            before = os.fstat(file.fileno())
            if not _wanted(source, file, before.st_size, options.over):
                return None
            digest = hashlib.sha256()
            for piece in _pieces(file):
                digest.update(piece)
            parts = [options.place.prefix, digest.hexdigest()[:16], source.rel]
            key = "/".join(part for part in parts if part)
            location = Location(options.place.scheme, options.place.bucket, key)
            blob, new = options.writer.put(location, file, before.st_size)
            after = os.fstat(file.fileno())
    except (OSError, RefusedError, PointerProblem):
        # Read as any other file, it is reported with its reason.
        return None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise IngestError(f"{printable(source.rel)} changed while it was uploaded")
    rule = all_of([source.inherited.rule, rule_of_lost(source)])
    return Uploaded(source, Registered(source.rel, blob), rule, new)


def _wanted(source: Source, file: BinaryIO, size: int, over: int) -> bool:
    if size > over and source.rel.lower().endswith(SPEC_ENDINGS):
        file.seek(0)
        if is_specification(file.read(HEAD_BYTES)):
            return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in _pieces(file):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return True
    return False


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(_PIECE):
        yield piece
