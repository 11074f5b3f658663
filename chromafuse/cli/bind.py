"""Sessions bound to directories, with the system's ``mount`` and ``umount``, which need root."""

from __future__ import annotations

import os
import subprocess

from chromafuse.domain.errors import MountError
from chromafuse.fs import ending, mounts


def bind(source: str, target: str) -> None:
    """Show the session at ``source`` at ``target`` too. Raises ``MountError``.

    ``target`` is absolute and free of links. What an ended session left there is taken away.
    """
    _clear(target)
    if not os.path.isdir(target):
        raise MountError(f"{target} is not a directory", remedy="make it first")
    _run("mount", "--bind", "--", source, target)


def _clear(target: str) -> None:
    """Take away what sessions that have ended left bound to ``target``."""
    while mounts.bound_at(target) is not None:
        try:
            os.listdir(target)
        except OSError:
            _run("umount", "--lazy", "--", target)
        else:
            raise MountError(f"{target} shows a session already", remedy="close that one first")


def unbind(target: str, session: str) -> None:
    """Take the session with this id away from ``target``. Raises ``MountError``."""
    bound = mounts.bound_at(target)
    if bound is None or bound.split("/")[1] != session:
        return  # somebody has done it, or it is in another mount namespace
    try:
        _run("umount", "--lazy", "--", target)
    except MountError as error:
        raise MountError(f"the session is closed, but still bound: {error}") from None


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=ending.tool_environment(),
        )
    except OSError as error:
        raise MountError(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        # The lines below it are advice on where to look.
        said = done.stderr.strip().partition("\n")[0] or f"{command[0]} failed"
        denied = "superuser" in said or "denied" in said
        raise MountError(said, remedy="--bind needs root" if denied else "")
