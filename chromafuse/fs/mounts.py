"""Mounts of ours as the kernel lists them: finding them, and whether one can be made.

Imports nothing heavy: ``umount`` and ``status`` need no more than this.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chromafuse.domain.errors import FuseUnavailable, MountPointError

FSTYPE = "fuse.chromafuse"
LINKS = 40
"""Symbolic links that the kernel follows in one path."""
FUSE_CONF = Path("/etc/fuse.conf")

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of ours. ``source`` is the collection's name; ``uid`` who mounted it."""

    path: str
    source: str
    uid: int
    device: str


def _unescape(field: str) -> str:
    """Return a field of mountinfo with ``\\040`` and the like resolved."""
    raw = _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
    return os.fsdecode(raw.encode("latin-1")) if raw.isascii() else raw


def own_mounts() -> Iterator[Mount]:
    """Yield the chromafuse mounts of this mount namespace, the topmost of a path last.

    A session that is bound to a directory is none: its hub answers for it.
    """
    return (mount for mount, root in listed() if root == "/")


def bound_at(resolved: str) -> str | None:
    """Return what of a hub is bound to an absolute path free of links, as in ``/SESSION``."""
    found = None
    for mount, root in listed():
        if mount.path == resolved:
            found = None if root == "/" else root
    return found


def listed() -> Iterator[tuple[Mount, str]]:
    """Yield what is mounted of ours, and which directory of it."""
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    for line in text.split("\n"):
        left, _, right = line.partition(" - ")
        kind, _, rest = right.partition(" ")
        if kind != FSTYPE:
            continue
        fields = left.split(" ")
        source, _, options = rest.partition(" ")
        user = re.search(r"user_id=(\d+)", options)
        uid = int(user[1]) if user else 0
        yield Mount(_unescape(fields[4]), _unescape(source), uid, fields[2]), _unescape(fields[3])


def find_mount(path: str) -> Mount | None:
    """Return the topmost chromafuse mount at exactly ``path``, or None."""
    return top_mount(resolved(path))


def resolved(path: str) -> str:
    """Return ``path`` absolute and free of links, as ``os.path.realpath`` does.

    Asks nothing of our mounts themselves: whoever waits for a daemon that hangs hangs as well.
    """
    points = {mount.path for mount in own_mounts()}
    rest, place, links = os.path.join(os.getcwd(), path).split("/")[::-1], "/", 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = os.path.dirname(place)
            continue
        place = os.path.join(place, name)
        if place in points or links >= LINKS:
            continue
        try:
            target = os.readlink(place)
        except OSError:  # no link, or nothing
            continue
        links += 1
        place = "/" if target.startswith("/") else os.path.dirname(place)
        rest += target.split("/")[::-1]
    return place


def top_mount(resolved: str) -> Mount | None:
    """Return the topmost chromafuse mount at an absolute path free of links, or None.

    Asks nothing of the mount, so its own daemon may call this.
    """
    found = None
    for mount in own_mounts():
        if mount.path == resolved:
            found = mount
    return found


def require_mount(path: str) -> Mount:
    """Return the mount at ``path``. Raises ``MountPointError``."""
    mount = find_mount(path)
    if mount is None:
        raise MountPointError(
            f"nothing of chromafuse is mounted at {path}", remedy="see `chromafuse status`"
        )
    return mount


def check_device() -> None:
    """Raise ``FuseUnavailable`` if this machine or user has no /dev/fuse."""
    if not os.path.exists("/dev/fuse"):
        raise FuseUnavailable(
            "/dev/fuse is missing",
            remedy="load the kernel module fuse, or give it to the container",
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise FuseUnavailable("no permission to use /dev/fuse", remedy="ask your administrator")


def check_fuse(*, allow_other: bool) -> None:
    """Raise ``FuseUnavailable`` if this machine or user cannot mount."""
    check_device()
    if os.geteuid() == 0:
        return
    if shutil.which("fusermount3") is None:
        raise FuseUnavailable("fusermount3 is missing", remedy="apt install fuse3")
    if allow_other and not user_allow_other():
        raise FuseUnavailable(
            f"--allow-other is forbidden on this machine: {FUSE_CONF} has no user_allow_other",
            remedy=f"add the line user_allow_other to {FUSE_CONF} as root, or leave out the option",
        )


def user_allow_other() -> bool:
    """Return whether this machine lets users open their mounts to others."""
    try:
        lines = FUSE_CONF.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)
