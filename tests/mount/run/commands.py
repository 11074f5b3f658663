"""Command lines of ``chromafuse run``, and ways to run them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jwt

from tests.mount.harness import (
    COMMANDS,
    MOUNT_DEADLINE,
    Finished,
    Site,
    run,
)
from tests.support.tokens import SECRET

GENEROUS = 20.0
CHROMAFUSE = str(COMMANDS / "chromafuse")
NAMES = b"guide\nindex.mdx\n"
"""What `ls` prints of the site."""


def words(site: Site, at: str | Path, *command: str, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs ``command`` with the site at ``at``."""
    target = ["--collection", site.collection, "--chroma", site.chroma, "--log-file", str(site.log)]
    return [CHROMAFUSE, "run", *target, "--at", str(at), *options, "--", *command]


def seen(
    site: Site,
    at: str | Path,
    *command: str,
    options: Sequence[str] = (),
    cwd: Path | None = None,
) -> Finished:
    line = words(site, at, *command, options=options)
    return run(line, env=site.env, cwd=cwd or site.base, deadline=MOUNT_DEADLINE)


@contextmanager
def running(line: list[str], site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has said "ready" and waits for a line of input."""
    with subprocess.Popen(
        line, env=site.env, cwd=site.base, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def end_of_the_daemon_alone(site: Site, *but: int) -> list[int]:
    return [pid for pid in site.daemons() if pid not in but]


def signed(**claims: object) -> str:
    return jwt.encode({"exp": time.time() + 3600, **claims}, SECRET, "HS256")


def through(
    hub: Path | None, at: str | Path, *command: str, options: Sequence[str] = ()
) -> list[str]:
    chosen = [] if hub is None else ["--hub", str(hub)]
    return [CHROMAFUSE, "run", *chosen, "--at", str(at), *options, "--", *command]
