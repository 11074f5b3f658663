"""All checks in turn, each under its deadline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from chromafuse.config import Settings
from chromafuse.doctor import machine, places, site
from chromafuse.doctor.apart import run_apart
from chromafuse.doctor.findings import Check, Finding, Progress, Severity
from chromafuse.fs import mounts

MACHINE_SECONDS = 10.0
MOUNT_SECONDS = 3.0
LOADING_SECONDS = 20.0
"""What importing Chroma may take on top of its deadline."""
MEASURING_SECONDS = 600.0
"""Without a sign of life, while a collection of another writer is read whole."""


_TOKENS = "mend the file that is named: the page Tokens of the manual says what fits"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to examine. ``settings`` is None if they are wrong, as ``problem`` says.

    ``has_collection`` is False if no collection was named: then Chroma is not asked.
    """

    settings: Settings | None
    problem: str = ""
    has_collection: bool = True
    deep: bool = False


def examine(plan: Plan) -> Iterator[Finding | Progress]:
    """Yield what is found, check by check. Changes nothing and raises nothing about its subject.

    The calling process must have a single thread, as processes are forked.
    """
    settings = plan.settings
    if settings is None:
        mend = "see the page Configuration of the manual"
        yield Finding("settings", Severity.ERROR, plan.problem, mend)
    else:
        yield Finding("settings", Severity.OK, "every setting is understood")
    asked = settings is not None and settings.allow_other
    checks: list[tuple[str, Check]] = [
        ("fuse", machine.device),
        ("fusermount3", machine.fusermount),
        ("user_allow_other", partial(machine.allow_other, asked=asked)),
        ("namespaces", machine.namespaces),
        ("apparmor", machine.apparmor),
        ("libfuse", machine.libfuse),
        ("packages", machine.packages),
        ("updatedb", machine.updatedb),
        ("runtime directory", places.runtime),
        ("log", partial(places.log, settings)),
        ("cache", places.cache),
    ]
    for name, check in checks:
        yield from run_apart(name, check, MACHINE_SECONDS)
    for mount in mounts.own_mounts():
        if os.geteuid() in (0, mount.uid):
            name, mend = places.mount_name(mount), places.hung_mount(mount)
            yield from run_apart(name, partial(places.answers, mount), MOUNT_SECONDS, mend)
    if settings is not None:
        yield from _site(plan, settings)


def _site(plan: Plan, settings: Settings) -> Iterator[Finding | Progress]:
    yield from run_apart("tokens", partial(site.tokens, settings), MACHINE_SECONDS, _TOKENS)
    yield from run_apart("redis", partial(site.redis, settings), MACHINE_SECONDS)
    yield from run_apart(
        "objects",
        partial(site.objects, settings),
        MACHINE_SECONDS + settings.deadline * len(settings.places),
    )
    if not plan.has_collection:
        text = "not asked: no collection is named"
        yield Finding("chroma", Severity.NOTE, text, "chromafuse doctor --collection NAME")
        return
    seconds = settings.deadline + LOADING_SECONDS
    yield from run_apart(
        "chroma",
        partial(site.chroma, settings, deep=plan.deep),
        max(seconds, MEASURING_SECONDS) if plan.deep else seconds,
        "check that Chroma runs, or raise --deadline",
    )
