"""Running a command as a user without rights, whatever the modes of checkout and device are.

Root becomes a uid that nobody has, in a mount namespace in which that uid may open /dev/fuse and
read the checkout. Who is not root already is such a user, and needs both in earnest.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

UID = 54_321

_SCRIPT = """\
set -e
mount -t tmpfs -o mode=755 tmpfs "$SCRATCH"
mknod -m 666 "$SCRATCH/fuse" c 10 229
mount --bind "$SCRATCH/fuse" /dev/fuse
if [ -n "$CLOSED" ]; then
  mkdir "$SCRATCH/open"
  mount --bind "$OPEN" "$SCRATCH/open"
  mount -t tmpfs -o mode=755 tmpfs "$CLOSED"
  mkdir -p "$OPEN"
  mount --bind "$SCRATCH/open" "$OPEN"
fi
unset SCRATCH CLOSED OPEN
exec setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups -- "$@"
"""


def as_nobody(command: list[str], scratch: Path) -> list[str]:
    """The words that run ``command`` as that user. ``scratch`` is an empty directory."""
    if os.geteuid() != 0:
        return command
    project = Path(__file__).resolve().parents[2]
    places = [project, Path(sys.base_prefix)]
    closed = {place: _closed_above(place) for place in places}
    opened = next((place for place, above in closed.items() if above), None)
    assert sum(above is not None for above in closed.values()) <= 1, closed
    settings = [
        f"SCRATCH={scratch}",
        f"CLOSED={closed[opened] if opened else ''}",
        f"OPEN={opened or ''}",
        f"USER_ID={UID}",
    ]
    return ["env", *settings, "unshare", "--mount", "sh", "-c", _SCRIPT, "sh", *command]


def _closed_above(place: Path) -> Path | None:
    """The topmost directory on the way to ``place`` that others cannot pass."""
    for directory in [*reversed(place.parents), place]:
        if not directory.stat().st_mode & stat.S_IXOTH:
            return directory
    return None
