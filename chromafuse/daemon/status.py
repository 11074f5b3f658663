"""What a daemon tells about itself to its owner."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from chromafuse import __version__
from chromafuse.config import Settings
from chromafuse.daemon.trees import Trees
from chromafuse.fs.gate import Gate
from chromafuse.fs.namespace import View
from chromafuse.fs.narrowing import Narrower
from chromafuse.fs.operations import Operations
from chromafuse.reader import BlockReader, Reader
from chromafuse.refresh import Refresher
from chromafuse.sessions import Session
from chromafuse.stores.meter import Meter


@dataclass(slots=True)
class Facts:
    """What is told beside what the parts tell.

    ``whole`` is what no view shows more than, ``meters`` count the requests to each backend.
    """

    settings: Settings
    mount_point: str
    source: str
    started_ns: int
    trees: Trees
    whole: View
    meters: Mapping[str, Meter]


def status(
    facts: Facts,
    reader: Reader,
    operations: Operations,
    gate: Gate,
    root: Session[View] | None,
    refresher: Refresher,
    blocks: BlockReader | None = None,
    narrower: Narrower | None = None,
) -> Mapping[str, object]:
    """Return the state of a mount, or of a hub if there is no session at its ``root``."""
    settings = facts.settings
    view = facts.whole if root is None else root.shared.view
    answer: dict[str, object] = {
        "mountpoint": facts.mount_point,
        "role": "hub" if root is None else "mount",
        "pid": os.getpid(),
        "version": __version__,
        "collection": settings.collection,
        "source": facts.source,
        "tree_version": view.tree.version,
        "groups": None,
        "pages": len(view.tree.pages),
        "directories": view.directories,
        "bytes": view.size,
        "damaged_pages": sum(page.damage is not None for page in view.tree.pages)
        + reader.damaged_pages,
        "rejected_entries": dict(facts.trees.rejected),
        "uptime_seconds": round((time.time_ns() - facts.started_ns) / 1e9, 3),
        "open_files": operations.open_files,
        "requests": dict(operations.counts),
        "cache": {
            "pages": len(reader.cache),
            "used_bytes": reader.cache.used_bytes,
            "max_bytes": reader.cache.max_bytes,
        },
        "reads": asdict(reader.counters),
        "objects": None
        if blocks is None
        else {"ok": not blocks.failing, **asdict(blocks.counters)},
        "searches": None if narrower is None else dict(narrower.counts),
        "warm_up": {
            "state": reader.warmth.state,
            "pages": reader.warmth.pages,
            "of": reader.warmth.total,
        },
        "redis": reader.shared_status(),
        "stale_since": facts.trees.stale_since,
        "refresh": refresher.status(),
        "chroma": {"ok": reader.failing is None, "error": reader.failing},
        "backends": {name: meter.status() for name, meter in facts.meters.items()},
        "log_file": str(settings.log_file) if settings.log_file else None,
    }
    if root is None:
        answer["sessions"] = len(gate.sessions)
    else:
        identity = root.grant.identity
        answer["groups"] = sorted(identity.groups) if identity.signed_in else None
        answer["grant_expires"] = root.grant.expires
    return answer
