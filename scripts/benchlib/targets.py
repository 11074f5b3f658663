"""What is to be reached. A target is judged wherever its figures were measured."""

from __future__ import annotations

from benchlib.ingest_suite import INGEST
from benchlib.model import Ref, Target
from benchlib.mount_suite import MOUNT
from benchlib.mounts import ChromafuseEmbedded, ChromafuseServer, Squashfuse
from benchlib.services import BACKENDS

LARGE = frozenset({"ai20"})
OURS = (ChromafuseEmbedded.name, ChromafuseServer.name)
C = Squashfuse.name

TARGETS: tuple[Target, ...] = (
    *(
        Target(
            INGEST.name,
            Ref(backend, "library", "records/s"),
            ">=",
            0.8,
            (Ref(backend, "bare client", "records/s"),),
        )
        for backend in BACKENDS
    ),
    *(
        Target(
            INGEST.name,
            Ref(backend, "command", "process"),
            "<=",
            1 / 0.8,
            (Ref(backend, "bare client", "process"),),
        )
        for backend in BACKENDS
    ),
    *(
        Target(MOUNT.name, Ref(task, our, phase), "<=", 1.3, (Ref(task, C, phase),), 0.0, LARGE)
        for task in ("find -type f", "ls -lR")
        for phase in ("first", "second")
        for our in OURS
    ),
    *(
        Target(MOUNT.name, Ref(task, our, "requests"), "<=", plus=0.0)
        for task in ("find -type f", "ls -lR")
        for our in OURS
    ),
    *(
        Target(
            MOUNT.name,
            Ref("grep -rl", our, "second"),
            "<=",
            1.0,
            (Ref("grep -rl", C, "second"),),
            0.0,
            LARGE,
        )
        for our in OURS
    ),
    *(
        Target(
            MOUNT.name,
            Ref("rg -l", our, phase),
            "<=",
            1.0,
            (Ref("grep -rl", our, phase),),
            0.0,
            LARGE,
        )
        for our in OURS
        for phase in ("first", "second")
    ),
)
