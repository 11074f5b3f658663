"""A mount namespace of this process's own, with the docs in it.

The process that calls ``PrivateNamespace.enter`` leaves the host's mounts behind for good; what it
executes next, and that program's children, see the docs, and nobody else does. The kernel takes the
mount away with the last process that can see it.

Nothing is created on the host. Where the docs' directory is missing there, the root directory
itself is replaced: a small read-only file system with every entry of the old one in its place.

After the docs are shown, other directories may be hidden behind them: nothing may be imported then.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from chromafuse.domain.errors import FuseUnavailable, MountError, MountPointError
from chromafuse.fs import syscalls
from chromafuse.fs.mounts import FSTYPE

_SYSTEM = ("/proc", "/sys", "/dev")

_TMPFS_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV

_LIMITS = (
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "10000"),
    ("user/max_mnt_namespaces", "0", "10000"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
)
"""Files in /proc/sys: the value that forbids, and one that allows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the docs are to appear: an absolute path free of links.

    ``is_missing``: there is no such directory on the host, and its first missing part is an entry
    of the root directory.
    """

    path: str
    is_missing: bool

    def hides(self, directory: str) -> bool:
        """Whether the docs will be in the place of ``directory`` (absolute, free of links)."""
        return directory == self.path or directory.startswith(f"{self.path}/")


def find_place(path: str) -> Place:
    """Return where to show the docs for a path as a user gave it. Raises ``MountPointError``."""
    try:
        real = os.path.realpath(path)
        mode = os.stat(real).st_mode
    except FileNotFoundError:
        return _missing(path, real)
    except ValueError:  # a NUL
        raise MountPointError(f"{path} is not a path") from None
    except NotADirectoryError:
        raise MountPointError(f"{path} is below a file", remedy="choose a directory") from None
    except OSError as error:
        raise MountPointError(f"cannot use {path}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise MountPointError(f"{path} is not a directory", remedy="choose a directory")
    _refuse_system(path, real)
    return Place(real, is_missing=False)


def _missing(path: str, real: str) -> Place:
    _refuse_system(path, real)
    top = "/" + real.split("/")[1]
    if os.path.lexists(top):
        raise MountPointError(
            f"{path} does not exist, and can only be made up in the root directory",
            remedy="make it with `mkdir -p`, or choose a path such as /docs",
        )
    return Place(real, is_missing=True)


def _refuse_system(path: str, real: str) -> None:
    if real == "/" or any(real == top or real.startswith(f"{top}/") for top in _SYSTEM):
        raise MountPointError(
            f"{path} belongs to the system", remedy="choose another directory for the docs"
        )


class PrivateNamespace:
    """The namespace that this process is in from ``enter`` on."""

    def __init__(self, bounding: int | None) -> None:
        self._bounding = bounding
        self._left: str | None = None

    @classmethod
    def enter(cls) -> PrivateNamespace:
        """Leave the host's mount namespace; without the right to, by a user namespace.

        The process must have a single thread. What is mounted on the host later appears here too,
        nothing appears there. Raises ``FuseUnavailable``.
        """
        bounding = None
        try:
            try:
                syscalls.unshare(syscalls.CLONE_NEWNS)
            except PermissionError:
                bounding = _bounding_set()
                _enter_user_namespace()
            syscalls.mount(None, "/", flags=syscalls.MS_SLAVE | syscalls.MS_REC)
        except OSError as error:
            raise _forbidden(error) from None
        return cls(bounding)

    def make_place(self, place: Place) -> None:
        """Make ``place`` a directory if it is none. Raises ``MountPointError``."""
        try:
            self._left = os.getcwd()
        except OSError:
            self._left = None  # removed
        if place.is_missing:
            _replace_root(place.path)

    def enter_directory_again(self, place: Place) -> None:
        """Go to where the working directory's path leads now that the docs are at ``place``.

        Raises ``MountPointError`` if that is nowhere.
        """
        if self._left is None:
            if place.is_missing:
                raise MountPointError(
                    "the working directory does not exist any more", remedy="run in another one"
                )
        elif place.is_missing or place.hides(self._left):
            _enter_again(self._left, place)

    def give_up_privileges(self) -> None:
        """Let programs executed from now on gain no capability that this process could not before.

        A user namespace gives its first process all capabilities in it, and root keeps them.
        """
        if self._bounding is None:
            return
        gained = _bounding_set() & ~self._bounding
        for capability in range(gained.bit_length()):
            if gained >> capability & 1:
                syscalls.drop_from_bounding_set(capability)


def open_device() -> int:
    """Return a new connection to the kernel's FUSE. Raises ``FuseUnavailable``.

    The kernel lets it be mounted only in the user namespace that it was opened in.
    """
    try:
        return os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise FuseUnavailable(f"cannot open /dev/fuse: {error.strerror}") from None


def mount_device(device: int, target: str, source: str) -> None:
    """Mount what serves ``device`` on ``target``; ``source`` is what `df` shows.

    All users of the namespace may enter. Raises ``FuseUnavailable``.
    """
    options = (
        f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},"
        "default_permissions,allow_other"
    )
    flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
    try:
        syscalls.mount(source, target, FSTYPE, flags, options)
    except OSError as error:
        raise FuseUnavailable(
            f"cannot mount at {target} in a namespace: {error.strerror}",
            remedy="the kernel has to allow FUSE there; run as root",
        ) from None


def bind(directory: str, target: str) -> None:
    """Show ``directory``, which is read-only itself, at ``target`` too. Raises ``MountError``."""
    try:
        syscalls.mount(directory, target, flags=syscalls.MS_BIND)
    except OSError as error:
        raise MountError(f"cannot bind {directory} to {target}: {error.strerror}") from None


def _enter_user_namespace() -> None:
    """Enter a user namespace in which this user is itself, and a mount namespace of that."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    # Without this the kernel lets nobody but root say what a group is.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _write(path: str, text: str) -> None:
    # In one call, which is what the kernel wants.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _forbidden(error: OSError) -> FuseUnavailable:
    remedy = "run as root; a container needs the capability SYS_ADMIN"
    for name, forbids, allows in _LIMITS:
        try:
            value = Path("/proc/sys", name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if value == forbids:
            key = name.replace("/", ".")
            remedy = f"run as root, or let the administrator set `sysctl {key}={allows}`"
            break
    return FuseUnavailable(
        f"this machine does not let this user make a mount namespace: {error.strerror}",
        remedy=remedy,
    )


def _bounding_set() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").split("\n"):
        name, _, value = line.partition(":")
        if name == "CapBnd":
            return int(value, 16)
    return 0


def _enter_again(directory: str, place: Place) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        reason = f"cannot enter the working directory {directory} again: {error.strerror}"
        if place.hides(directory):
            reason = f"the working directory {directory} is hidden by the docs at {place.path}"
        raise MountPointError(reason, remedy="run in another directory") from None


def _replace_root(path: str) -> None:
    """Make the missing ``path`` a directory of this namespace: put another root below everything.

    Two pivots: to a root that holds nothing but the old one, so that all of that can be seen,
    what the first mount covered too, then to the one that is filled from it.
    """
    mask = os.umask(0o022)
    try:
        entries = _entries_of_root()
        cover = next(name for name, kind in entries if kind == "directory")
        _mount_tmpfs(f"/{cover}")
        os.chdir(f"/{cover}")
        os.mkdir("old")
        os.mkdir("new")
        syscalls.pivot_root(".", "old")
        os.chdir("/")
        _mount_tmpfs("/new")
        for name, kind in entries:
            _carry_over(f"/old/{name}", f"/new/{name}", kind)
        os.makedirs(f"/new{path}")
        flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _TMPFS_FLAGS
        syscalls.mount(None, "/new", flags=flags)
        os.chdir("/new")
        syscalls.pivot_root(".", ".")
        syscalls.umount(".", syscalls.MNT_DETACH)
        os.chdir("/")
    except (OSError, StopIteration) as error:
        raise MountPointError(
            f"{path} does not exist and cannot be made up: {error}",
            remedy="make the directory, or choose one that exists",
        ) from None
    finally:
        os.umask(mask)


def _entries_of_root() -> list[tuple[str, str]]:
    """Return names and kinds; what hangs or is dead is not asked."""
    with os.scandir("/") as entries:
        return [
            (
                entry.name,
                "link"
                if entry.is_symlink()
                else "directory"
                if entry.is_dir(follow_symlinks=False)
                else "file",
            )
            for entry in entries
        ]


def _mount_tmpfs(target: str) -> None:
    syscalls.mount("chromafuse", target, "tmpfs", _TMPFS_FLAGS, "mode=755,size=1m")


def _carry_over(old: str, new: str, kind: str) -> None:
    """Let ``new`` be what ``old`` is. Nothing is done if that is gone by now."""
    try:
        if kind == "link":
            os.symlink(os.readlink(old), new)
            return
        if kind == "directory":
            os.mkdir(new)
        else:
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        syscalls.mount(old, new, flags=syscalls.MS_BIND | syscalls.MS_REC)
    except FileNotFoundError:
        return
