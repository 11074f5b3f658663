"""Mounts of ours as the kernel lists them: finding, checking, ending them.

Imports nothing heavy: ``umount`` and ``status`` need no more than this.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chromafuse.domain.errors import FuseUnavailable, MountBusy, MountError, MountPointError

FSTYPE = "fuse.chromafuse"
UNMOUNT_SECONDS = 15.0
CLAIM_SECONDS = 60.0
"""How long a mount waits for another one that is being made at the same place."""
PROBE_SECONDS = 3.0
"""How long a mount may take to tell whether it lives."""
FUSE_CONF = Path("/etc/fuse.conf")

_DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of ours. ``source`` is the collection's name; ``uid`` who mounted it."""

    path: str
    source: str
    uid: int
    device: str

    @property
    def is_dead(self) -> bool:
        """Whether its daemon is gone, so that every access fails.

        ``stat`` would be answered from the kernel's cache for a day, so the file system itself is
        asked; by another process, since a daemon that hangs would take us along.
        """
        command = ["stat", "-f", "--", self.path]
        try:
            done = subprocess.run(
                command,
                check=False,
                capture_output=True,
                timeout=PROBE_SECONDS,
                env={"PATH": os.defpath, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return False
        return any(os.strerror(code).encode() in done.stderr for code in _DEAD)


def _unescape(field: str) -> str:
    """Return a field of mountinfo with ``\\040`` and the like resolved."""
    raw = _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
    return os.fsdecode(raw.encode("latin-1")) if raw.isascii() else raw


def own_mounts() -> Iterator[Mount]:
    """Yield the chromafuse mounts of this mount namespace, the topmost of a path last."""
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    for line in text.split("\n"):
        left, _, right = line.partition(" - ")
        kind, _, rest = right.partition(" ")
        if kind != FSTYPE:
            continue
        fields = left.split(" ")
        source, _, options = rest.partition(" ")
        user = re.search(r"user_id=(\d+)", options)
        yield Mount(_unescape(fields[4]), _unescape(source), int(user[1]) if user else 0, fields[2])


def find_mount(path: str) -> Mount | None:
    """Return the topmost chromafuse mount at exactly ``path``, or None."""
    return top_mount(os.path.realpath(path))


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


def check_fuse(*, allow_other: bool) -> None:
    """Raise ``FuseUnavailable`` if this machine or user cannot mount."""
    if not os.path.exists("/dev/fuse"):
        raise FuseUnavailable(
            "/dev/fuse is missing",
            remedy="load the kernel module fuse, or give it to the container",
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise FuseUnavailable("no permission to use /dev/fuse", remedy="ask your administrator")
    if os.geteuid() == 0:
        return
    if shutil.which("fusermount3") is None:
        raise FuseUnavailable("fusermount3 is missing", remedy="apt install fuse3")
    if allow_other and not _user_allow_other():
        raise FuseUnavailable(
            f"--allow-other is forbidden on this machine: {FUSE_CONF} has no user_allow_other",
            remedy=f"add the line user_allow_other to {FUSE_CONF} as root, or leave out the option",
        )


def _user_allow_other() -> bool:
    try:
        lines = FUSE_CONF.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)


def prepare_mount_point(path: str) -> str:
    """Return the absolute mount point, cleaned of a dead mount of ours that a crash has left.

    Raises ``MountPointError`` if it is missing, no directory, not empty or mounted already.
    """
    real = os.path.realpath(path)
    _claim(real)
    while (mount := find_mount(real)) is not None:
        if not mount.is_dead:
            raise MountPointError(
                f"{path} is already mounted from collection {mount.source}",
                remedy=f"end it with `chromafuse umount {path}`",
            )
        _unmount(mount.path, lazy=True)
        _claim(real)
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


def unmount(mount: Mount, *, lazy: bool = False) -> None:
    """End ``mount``. Raises ``MountBusy`` naming who uses it, ``MountError`` otherwise."""
    _unmount(mount.path, lazy=lazy or mount.is_dead)


def _unmount(path: str, *, lazy: bool) -> None:
    command = _unmount_command(lazy=lazy)
    try:
        done = subprocess.run(
            [*command, "--", path],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=UNMOUNT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise MountBusy(
            f"the daemon of {path} does not answer",
            remedy="use `chromafuse umount --lazy`, then end the daemon",
        ) from None
    if done.returncode == 0:
        return
    text = done.stderr.strip().split("\n")[-1]
    if "busy" in text.lower():
        users = busy_processes(path)
        who = ", ".join(users[:5]) or "a process of another user or namespace"
        raise MountBusy(
            f"{path} is in use by {who}",
            remedy="let them leave it, or use `chromafuse umount --lazy`",
        )
    raise MountError(f"cannot unmount {path}: {text}")


def _unmount_command(*, lazy: bool) -> list[str]:
    if os.geteuid() == 0 and (program := shutil.which("umount")):
        return [program, *(["-l"] if lazy else [])]
    program = shutil.which("fusermount3")
    if program is None:
        raise FuseUnavailable("fusermount3 is missing", remedy="apt install fuse3")
    return [program, "-u", *(["-z"] if lazy else [])]


def busy_processes(path: str) -> list[str]:
    """Return "name (pid N, how)" of the processes seen to use something at or below ``path``.

    Reads only links in /proc, so that a hung mount does not hang us.
    """
    found = []
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda p: int(p.name)):
        how = _use_of(process, path)
        if how:
            try:
                name = (process / "comm").read_text(errors="replace").strip()
            except OSError:
                continue
            found.append(f"{name} (pid {process.name}, {how})")
    return found


def _use_of(process: Path, path: str) -> str | None:
    def below(link: Path) -> bool:
        try:
            target = os.readlink(link)
        except OSError:
            return False
        return target == path or target.startswith(path.rstrip("/") + "/")

    if below(process / "cwd"):
        return "its working directory"
    if below(process / "root") or below(process / "exe"):
        return "its root or program"
    try:
        files = list((process / "fd").iterdir())
        maps = (process / "maps").read_text(errors="replace")
    except OSError:
        return None
    if any(below(link) for link in files):
        return "an open file"
    return "a mapped file" if f" {path.rstrip('/')}/" in maps else None


def wait_for_exit(pid: int, seconds: float) -> bool:
    """Wait until process ``pid`` is gone; return whether it is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
