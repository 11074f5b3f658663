"""``refresh``: have mounts show the newest tree now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chromafuse.cli.app import app, complain, given_place
from chromafuse.cli.daemons import ask
from chromafuse.domain.errors import MountError
from chromafuse.fs import mounts


@app.command()
def refresh(
    mountpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[MOUNTPOINT]", parser=given_place, help="Default: all mounts of this user."
        ),
    ] = None,
) -> None:
    """Have mounts look for a new tree now; returns when it is shown.

    Mounts look by themselves every few seconds (--refresh), and `chromafuse ingest` tells those of
    the same machine.

    \b
    Examples:
      chromafuse refresh /mnt/docs
      chromafuse refresh
    """
    from chromafuse.cli.status import mounts_of_this_user

    chosen = [mounts.require_mount(mountpoint)] if mountpoint else mounts_of_this_user()
    failed = 0
    for found in chosen:
        answer = ask_refresh(found)
        if "error" in answer:
            complain(f"{found.path}: {answer['error']}")
            failed += 1
            continue
        if answer.get("behind"):
            print(f"{found.path} keeps {answer['tree_version']} (--pin); another one is stored")
            continue
        word = "now shows" if answer["changed"] else "shows already"
        print(f"{found.path} {word} {answer['tree_version']}")
    if failed:
        raise typer.Exit(1)
    if not chosen:
        raise MountError("nothing is mounted")


REFRESH_SECONDS = 60.0
"""How long loading a large tree may take."""


def ask_refresh(found: mounts.Mount, seconds: float = REFRESH_SECONDS) -> dict[str, Any]:
    """Return a mount's answer within ``seconds``; ``error`` tells why there is none."""
    return ask(found, "refresh", seconds)
