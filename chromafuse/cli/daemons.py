"""The process behind a mount."""

from __future__ import annotations

from chromafuse.fs.mounts import Mount


def daemon_of(mount: Mount) -> int | None:
    """Return the process id of the daemon of ``mount``, or None if that cannot be known.

    Also of one that is too busy to answer, or has been killed and cannot end.
    """
    from chromafuse import control

    try:
        with control.Client(mount.path, mount.uid) as client:
            return client.pid
    except OSError:
        return None
