"""``top``: what mounts are doing, while they do it."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from chromafuse.cli import rates
from chromafuse.cli.app import app, given_place
from chromafuse.cli.rates import Look
from chromafuse.cli.status import ask_status, mounts_of_this_user
from chromafuse.fs import mounts

PATIENCE = 6.0
"""Seconds that a single look waits for a daemon, a little longer than the control socket does."""


def _given_interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3_600:
        raise typer.BadParameter("should be a number of seconds from 0.1 to 3600")
    return seconds


@app.command()
def top(
    mountpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[MOUNTPOINT]", parser=given_place, help="Default: all mounts of this user."
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            metavar="SECONDS",
            parser=_given_interval,
            help="How often to look; rates are from one look to the next [1].",
        ),
    ] = "1",  # type: ignore[assignment]  # a parser's input
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list; implies --once.")
    ] = False,
) -> None:
    """Show live what mounts do: requests, where pages come from, how fast, and errors.

    Ctrl-C ends it. With --once, --json or where standard output is no terminal, it prints what
    happened in one interval; exit code 1 then if a mount is dead or does not answer.

    \b
    Examples:
      chromafuse top
      chromafuse top /mnt/docs --interval 5
      chromafuse top /mnt/docs --json | jq '.[0].rates'
    """
    chosen = mounts.require_mount(mountpoint) if mountpoint else None
    watched = _Watched(chosen)
    try:
        if once or as_json or not _is_screen():
            failed = _once(watched, interval, as_json=as_json)
        else:
            failed = False
            _follow(watched, interval)
    except KeyboardInterrupt:
        return
    if failed:
        raise typer.Exit(1)


def _is_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Watch:
    """One mount. Its daemon is asked in a thread, so that one that hangs stops nobody else."""

    def __init__(self, found: mounts.Mount) -> None:
        self.mount = found
        self.before: Look | None = None
        self.now: Look | None = None
        self.error: str | None = None
        self.is_mounted = True
        self._asked_at = 0.0
        self._thread: threading.Thread | None = None

    @property
    def waits(self) -> float:
        """Seconds that an answer has been waited for by now; 0 if there is one."""
        return time.monotonic() - self._asked_at if self._is_asking else 0.0

    @property
    def _is_asking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def ask(self) -> None:
        """Begin to look, unless the last look has not ended."""
        if not self._is_asking and self.is_mounted:
            self._asked_at = time.monotonic()
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the answer, at most so long."""
        if self._thread is not None:
            self._thread.join(max(0.0, seconds))

    def _look(self) -> None:
        answer = ask_status(self.mount)
        if "error" in answer:
            self.before = self.now = None
            self.error = str(answer["error"])
            return
        look = Look(time.monotonic(), answer)
        old = self.now
        self.before = old if old is not None and rates.same_daemon(old, look) else None
        self.now = look
        self.error = None

    def as_json(self) -> dict[str, object]:
        """Return what is known, in the form that ``--json`` prints."""
        known: dict[str, object] = {
            "mountpoint": self.mount.path,
            "collection": self.mount.source,
        }
        if self.waits:
            return {**known, "error": "the daemon does not answer"}
        if self.now is None or self.before is None:
            return {**known, "error": self.error or "the daemon was started anew"}
        return {
            **known,
            "seconds": round(self.now.at - self.before.at, 3),
            "rates": rates.rates(self.before, self.now),
            "backends": {
                name: asdict(one) for name, one in rates.traffic(self.before, self.now).items()
            },
            "status": self.now.status,
        }


class _Watched:
    """The mounts that are looked at: one, or all of this user, those too that come later."""

    def __init__(self, chosen: mounts.Mount | None) -> None:
        self._chosen = chosen
        self._watches: dict[tuple[str, str], Watch] = {}

    def look(self, seconds: float) -> Sequence[Watch]:
        """Ask all, and return them after at most so many seconds."""
        found = mounts_of_this_user()
        if self._chosen is not None:
            found = [one for one in mounts.own_mounts() if one.path == self._chosen.path][-1:]
        there = {(one.path, one.device): one for one in found}
        for key, one in there.items():
            # One that is mounted anew takes the place of the old one.
            for old in [old for old in self._watches if old[0] == key[0] and old not in there]:
                del self._watches[old]
            self._watches.setdefault(key, Watch(one))
        if self._chosen is not None and not self._watches:
            self._watches[self._chosen.path, self._chosen.device] = Watch(self._chosen)
        watches = list(self._watches.values())
        for key, watch in self._watches.items():
            watch.is_mounted = key in there
            watch.ask()
        end = time.monotonic() + seconds
        for watch in watches:
            watch.wait(end - time.monotonic())
        return watches


def _once(watched: _Watched, interval: float, *, as_json: bool) -> bool:
    """Print what happens in one interval; return whether a mount cannot tell."""
    begun = time.monotonic()
    if watched.look(PATIENCE):
        time.sleep(max(0.0, begun + interval - time.monotonic()))
    watches = watched.look(PATIENCE)
    answers = [watch.as_json() for watch in watches]
    if as_json:
        print(json.dumps(answers, indent=2))
    elif not watches:
        print("nothing is mounted")
    else:
        from rich.console import Console

        from chromafuse.cli.topview import tables

        Console(soft_wrap=True).print(*tables(watches), sep="\n")
    return any("error" in answer for answer in answers)


def _follow(watched: _Watched, interval: float) -> None:
    """Show the mounts until somebody presses Ctrl-C."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from chromafuse.cli.topview import tables

    console = Console()
    with (
        _ended_by_term(),
        Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live,
    ):
        while True:
            begun = time.monotonic()
            watches = watched.look(interval)
            shown = tables(watches) if watches else [Text("nothing is mounted")]
            live.update(Group(*shown, Text("Ctrl-C ends", "dim")), refresh=True)
            time.sleep(max(0.05, begun + interval - time.monotonic()))


@contextmanager
def _ended_by_term() -> Iterator[None]:
    """Leave the terminal as it was also when SIGTERM or SIGHUP comes."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    old = {name: signal.signal(name, end) for name in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for name, handler in old.items():
            signal.signal(name, handler)
