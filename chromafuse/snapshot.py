"""The stored tree's text on this machine's disk, so that a mount need not fetch it again.

A snapshot is shown only if its version is still the collection's, or, when Chroma cannot be
reached, if it was last known to be right not longer ago than ``max_stale``. It holds all pages,
restricted ones too, so it is private to its user. A snapshot that cannot be read counts as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chromafuse.domain.errors import StoreUnavailable
from chromafuse.domain.tree import TreeVersion
from chromafuse.ports import ChunkReader
from chromafuse.treestore import TreeText, fetch_text, head_version

log = logging.getLogger(__name__)

FORMAT = 1
_DIGEST_LINE = 33


class Snapshot(NamedTuple):
    """A tree's text, and when it was last known to be current (seconds since 1970)."""

    text: TreeText
    checked: float


class SnapshotFile:
    """The snapshot of one collection of one database.

    Its lines: the digest of the rest, a JSON object with what ``TreeText`` holds beside the
    document, and the document.
    """

    def __init__(self, directory: Path, target: str, collection: str) -> None:
        name = hashlib.blake2b(f"{target}\0{collection}".encode(), digest_size=12).hexdigest()
        self._path = directory / f"{name}.tree"
        self._version: TreeVersion | None = None

    def load(self) -> Snapshot | None:
        """Return what is on disk, if it is whole and belongs to this user alone."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                    return None
                digest = file.readline(_DIGEST_LINE)
                rest = file.read()
            if digest != _digest(rest):
                return None
            first, _, body = rest.partition(b"\n")
            head = json.loads(first)
            if head["format"] != FORMAT:
                return None
            switched = head["switched_ns"]
            version = TreeVersion(str(head["version"]))
            switched_ns = None if switched is None else int(switched)
            text = TreeText(version, body.decode(), switched_ns, is_ours=True)
            self._version = version
            return Snapshot(text, found.st_mtime)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, text: TreeText) -> None:
        """Write a current tree's text in one step; a disk that does not take it is no error."""
        head = {"format": FORMAT, "version": text.version, "switched_ns": text.switched_ns}
        rest = json.dumps(head).encode() + b"\n" + text.document.encode()
        temporary = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._path.parent)  # made 0600
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(rest) + rest)
            os.replace(temporary, self._path)
            self._version = text.version
        except OSError as error:
            log.info("the tree is not kept on disk: %s", error.strerror)
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)

    def touch_if(self, version: TreeVersion) -> None:
        """Note that a tree is current at this moment, if it is the one that we have on disk."""
        if version == self._version:
            self.touch()

    def touch(self) -> None:
        """Note that the snapshot is current at this moment."""
        with suppress(OSError):
            os.utime(self._path)


class Current(NamedTuple):
    """The tree to show; ``stale_since`` is None if it is known to be the collection's."""

    text: TreeText
    stale_since: float | None


def load_current(reader: ChunkReader, file: SnapshotFile, max_stale: float) -> Current:
    """Return the collection's tree, from disk where that is the same.

    When Chroma cannot be reached, the snapshot serves if it was current at most ``max_stale``
    seconds ago. Raises what ``treestore.fetch_text`` raises.
    """
    snapshot = file.load()
    try:
        if snapshot is not None and head_version(reader) == snapshot.text.version:
            file.touch()
            return Current(snapshot.text, None)
        text = fetch_text(reader)
    except StoreUnavailable:
        if snapshot is None or time.time() - snapshot.checked > max_stale:
            raise
        return Current(snapshot.text, snapshot.checked)
    if text.is_ours:
        file.save(text)
    return Current(text, None)


def _digest(rest: bytes) -> bytes:
    return hashlib.blake2b(rest, digest_size=16).hexdigest().encode() + b"\n"
