"""The process behind a mount, and what it answers."""

from __future__ import annotations

from typing import Any

from chromafuse.fs import ending
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


def ask(mount: Mount, command: str, seconds: float | None = None) -> dict[str, Any]:
    """Return the daemon's answer to ``command``, in which ``error`` tells why there is none.

    ``seconds`` is how long to wait for it, if that is not the usual time.
    """
    from chromafuse import control

    pid = None
    try:
        with control.Client(mount.path, mount.uid) as client:
            pid = client.pid
            if seconds is not None:
                client.wait(seconds)
            return client.ask(command)
    except (FileNotFoundError, ConnectionRefusedError):
        problem = "its daemon is not one of this user, or has no control socket"
    except (OSError, ValueError) as error:
        problem = f"the daemon does not answer: {error}"
        if pid is None or not ending.has_ended(pid):
            return {"error": problem}
    if ending.condition(mount, pid) is ending.Condition.DEAD:
        problem = "its daemon is gone; `chromafuse umount` or a new `mount` cleans it up"
    return {"error": problem}
