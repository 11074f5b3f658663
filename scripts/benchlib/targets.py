"""What is to be reached. A target is judged wherever its figures were measured."""

from __future__ import annotations

from benchlib import pointer_suite
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
from benchlib.pointer_suite import GROUP as POINTED
from benchlib.pointer_suite import POINTERS
from benchlib.search_suite import SEARCH
from benchlib.services import BACKENDS
from benchlib.session_suite import HUB, SESSIONS

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
    # Sessions.
    *(
        Target(SESSIONS.name, Ref(group, HUB, "open + read, p90"), "<=", plus=0.001)
        for group in ("100 sessions", "1,000 sessions")
    ),
    Target(SESSIONS.name, Ref("1 session", HUB, "command"), "<=", plus=0.15),
    Target(SESSIONS.name, Ref("1,000 sessions", HUB, "memory each"), "<=", plus=4.0),
    # Large objects.
    Target(
        POINTERS.name,
        Ref(POINTED, pointer_suite.OURS, "first"),
        "<=",
        1 / 0.8,
        (Ref(POINTED, pointer_suite.BARE, "first"),),
    ),
    Target(
        POINTERS.name,
        Ref(POINTED, pointer_suite.OURS, "first byte"),
        "<=",
        1.3,
        (Ref(POINTED, pointer_suite.BARE, "first byte"),),
    ),
    # From the page cache, as that of any FUSE file system.
    Target(
        POINTERS.name,
        Ref(POINTED, pointer_suite.OURS, "second"),
        "<=",
        1.3,
        (Ref(POINTED, pointer_suite.FUSE, "second"),),
    ),
    Target(POINTERS.name, Ref(POINTED, pointer_suite.OURS, "memory"), "<=", plus=MEMORY),
    # Searches.
    *(
        Target(
            SEARCH.name,
            Ref(task, ours, "second"),
            "<=",
            factor,
            (Ref(task, of, "second"),),
            plus,
            LARGE,
        )
        for task, ours, factor, of, plus in (
            ("grep rare", "narrowed", 0.6, "local", 0.0),
            ("grep absent", "narrowed", 0.25, "local", 0.0),
            ("rg rare", "narrowed", 1.2, "local", 0.0),
            ("grep broad", "narrowed", 3.0, "local", 0.0),
            ("grep anything", "narrowed", 1.0, "every file", 0.005),
        )
    ),
    Target(
        SEARCH.name,
        Ref("cgrep rare", "cgrep", "second"),
        "<=",
        1.0,
        (Ref("grep rare", "narrowed", "second"),),
        0.02,
        LARGE,
    ),
    Target(
        SEARCH.name,
        Ref("grep rare", "narrowed, nothing cached", "first"),
        "<=",
        plus=0.15,
        corpora=LARGE,
    ),
)
