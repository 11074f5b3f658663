"""What is to be reached. A target is judged wherever its figures were measured."""

from __future__ import annotations

from benchlib.ingest_suite import INGEST
from benchlib.model import Ref, Target
from benchlib.mount_suite import BARE, MOUNT
from benchlib.mounts import (
    ChromafuseEmbedded,
    ChromafuseServer,
    Delayed,
    FilledRedis,
    KeptEmbedded,
    KeptServer,
    ManyEmbedded,
    ManyServer,
    Mirage,
    NoWarmUp,
    Squashfuse,
)
from benchlib.services import BACKENDS

LARGE = frozenset({"ai20"})
OURS = (ChromafuseEmbedded.name, ChromafuseServer.name)
C = Squashfuse.name
SERVER = ChromafuseServer.name
BARE_EMBEDDED, BARE_SERVER = BARE

GREP, LS = "grep -rl", "first ls"
COLD = Ref(GREP, SERVER, "first")
C_COLD, C_WARM = Ref(GREP, C, "first"), Ref(GREP, C, "second")

MEMORY = 120e6 / 2**20 + 256
"""120 MB and the cache's bound, as it is unless told otherwise, in MiB."""

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
    # `find` and `ls` need no content.
    *(
        Target(MOUNT.name, Ref(task, our, phase), "<=", 1.3, (Ref(task, C, phase),), 0.0, LARGE)
        for task in ("find -type f", "ls -lR")
        for phase in ("first", "second")
        for our in OURS
    ),
    *(
        Target(MOUNT.name, Ref(task, NoWarmUp.name, "requests"), "<=", plus=0.0)
        for task in ("find -type f", "ls -lR")
    ),
    # grep, warm, cold, far away, and beside the others.
    *(
        Target(MOUNT.name, Ref(GREP, our, "second"), "<=", 1.0, (C_WARM,), 0.0, LARGE)
        for our in OURS
    ),
    Target(MOUNT.name, COLD, "<=", 1.0, (Ref(GREP, BARE_SERVER, "bulk read"), C_COLD), 0.0, LARGE),
    Target(MOUNT.name, Ref(GREP, SERVER, "requests"), "<=", plus=60.0, corpora=LARGE),
    Target(MOUNT.name, Ref(GREP, Mirage.name, "first"), ">=", 20.0, (COLD,), 0.0, LARGE),
    Target(MOUNT.name, Ref(GREP, Delayed.name, "first"), "<=", plus=3.0, corpora=LARGE),
    Target(MOUNT.name, Ref(GREP, FilledRedis.name, "first"), "<=", 0.5, (COLD,), 0.0, LARGE),
    # One page.
    *(
        Target(
            MOUNT.name,
            Ref("cat", our, "first"),
            "<=",
            1.5,
            (Ref("cat", BARE_EMBEDDED if our == OURS[0] else BARE_SERVER, "get"),),
            0.0,
            LARGE,
        )
        for our in (*OURS, NoWarmUp.name)
    ),
    *(
        Target(MOUNT.name, Ref("cat", our, "requests, second"), "<=", plus=0.0)
        for our in (*OURS, NoWarmUp.name)
    ),
    # Parallel walkers.
    *(
        Target(
            MOUNT.name,
            Ref("rg -j8 -l", our, phase),
            "<=",
            1.0,
            (Ref(GREP, our, phase),),
            0.0,
            LARGE,
        )
        for our in OURS
        for phase in ("first", "second")
    ),
    Target(MOUNT.name, Ref("8 x rg -l", SERVER, "memory"), "<=", plus=MEMORY, corpora=LARGE),
    # To the first ls, with the tree on disk.
    Target(MOUNT.name, Ref("mount", KeptServer.name, LS), "<=", plus=0.5, corpora=LARGE),
    Target(MOUNT.name, Ref("mount", KeptEmbedded.name, LS), "<=", plus=1.2, corpora=LARGE),
    *(
        Target(
            MOUNT.name,
            Ref("mount", many.name, LS),
            "<=",
            1.0,
            (Ref("mount", few.name, LS),),
            0.1,
            LARGE,
        )
        for many, few in ((ManyServer, KeptServer), (ManyEmbedded, KeptEmbedded))
    ),
)
