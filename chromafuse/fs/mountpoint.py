"""The directory that is to be mounted on: claimed, free, and cleaned of what a crash has left."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

from chromafuse.domain.errors import MountPointError
from chromafuse.fs import ending
from chromafuse.fs.mounts import Mount, resolved, top_mount

CLAIM_SECONDS = 60.0
"""How long a mount waits for another one that is being made at the same place."""


def prepare(path: str, daemon_of: Callable[[Mount], int | None]) -> str:
    """Return the absolute mount point, cleaned of a dead mount of ours that a crash has left.

    ``daemon_of`` tells the process id of a mount's daemon, if it can be known. Raises
    ``MountPointError`` if the place is missing, no directory, not empty or mounted already.
    """
    real = resolved(path)
    # Before the claim: the directory below a mount cannot be opened while the mount is there.
    _clear(path, real, daemon_of)
    _claim(real)
    _clear(path, real, daemon_of)
    try:
        if os.listdir(real):
            raise MountPointError(f"{path} is not empty", remedy="choose an empty directory")
    except FileNotFoundError:
        raise MountPointError(
            f"{path} does not exist", remedy=f"create it with `mkdir -p {path}`"
        ) from None
    except NotADirectoryError:
        raise MountPointError(f"{path} is not a directory", remedy="choose a directory") from None
    except OSError as error:
        raise MountPointError(f"cannot use {path}: {error.strerror}") from None
    return real


def _clear(path: str, real: str, daemon_of: Callable[[Mount], int | None]) -> None:
    """Take dead mounts of ours away. Raises ``MountPointError`` if there is a living one."""
    while (mount := top_mount(real)) is not None:
        condition = ending.condition(mount, daemon_of(mount))
        if condition is ending.Condition.HUNG:
            raise MountPointError(
                f"{path} is already mounted from collection {mount.source}, and its daemon does"
                " not answer",
                remedy=f"end it with `chromafuse umount --lazy {path}`",
            )
        if condition is ending.Condition.ALIVE:
            raise MountPointError(
                f"{path} is already mounted from collection {mount.source}",
                remedy=f"end it with `chromafuse umount {path}`",
            )
        ending.detach(mount)


_claims: list[int] = []
"""Descriptors of mount points that this process is about to mount on, each locked."""


def _claim(path: str) -> None:
    """Wait until nobody else is about to mount at ``path``.

    The lock is on the directory below the mount, so it needs no file; processes forked from this
    one share it. A path that cannot be opened is left to the checks that follow.
    """
    if _claims:
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise MountPointError(
                    f"another mount is being made at {path}", remedy="wait for it, or end it"
                ) from None
            time.sleep(0.05)
        except OSError:
            os.close(descriptor)  # a file system without locks
            return
        else:
            _claims.append(descriptor)
            return


def release_claim() -> None:
    """Let others see that the mount is made."""
    while _claims:
        os.close(_claims.pop())
