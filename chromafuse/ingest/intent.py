"""An ingest's intent: the record that tells others that it runs, and to leave its chunks alone."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from chromafuse.domain.errors import StoreError
from chromafuse.domain.page import IngestId, Metadata
from chromafuse.ports import ChunkWriter, NewRecord

INTENT_PREFIX = "__ingest__/"
INTENT_MARK: Metadata = {"chromafuse": "ingest"}
INTENT_SILENCE = 600.0
"""Seconds after which an ingest on another host that gave no sign of life counts as dead."""


class Intent:
    """The intent of one ingest in one collection."""

    def __init__(self, store: ChunkWriter, ingest: IngestId, dimension: int) -> None:
        self._store = store
        self._id = INTENT_PREFIX + ingest
        self._vector = (0.0,) * dimension
        self._last_sign: float | None = None

    def give_sign(self) -> None:
        """Write the intent before the first write, and again now and then in a long run.

        A run that has nothing to write leaves the collection untouched. Raises ``StoreError``.
        """
        now = time.monotonic()
        if self._last_sign is not None and now - self._last_sign < INTENT_SILENCE / 10:
            return
        metadata: Metadata = {
            **INTENT_MARK,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _process_start(os.getpid()) or "",
            "alive": time.time(),
        }
        self._store.upsert([NewRecord(self._id, "", metadata, self._vector)])
        self._last_sign = now

    def withdraw(self) -> None:
        """Delete the intent; if that fails, the next ingest does it."""
        if self._last_sign is not None:
            with suppress(StoreError):
                self._store.delete([self._id])

    def others_running(self) -> set[IngestId]:
        """Return the ingests of this collection that still run, but for this one."""
        return {
            IngestId(record.id.removeprefix(INTENT_PREFIX))
            for record in self._store.find(dict(INTENT_MARK))
            if record.id != self._id and _runs(record.metadata)
        }


def _runs(intent: Metadata) -> bool:
    pid, alive = intent.get("pid"), intent.get("alive")
    if intent.get("host") == socket.gethostname() and isinstance(pid, int):
        return _process_start(pid) == intent.get("started")
    return isinstance(alive, int | float) and time.time() - alive < INTENT_SILENCE


def _process_start(pid: int) -> str | None:
    """Return what tells a process from a later one with the same number, or None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # A zombie is gone, though nobody has asked for its exit code yet.
    return None if fields[0] in "ZX" else fields[19]
