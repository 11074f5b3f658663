"""Checks of directories: sockets, logs, the cached tree, and what is mounted."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from chromafuse import control
from chromafuse.config import Settings, cache_directory, state_directory
from chromafuse.doctor.findings import Finding, Severity
from chromafuse.domain.errors import ChromafuseError
from chromafuse.fs.mounts import Mount

_DEAD = (errno.ENOTCONN, errno.ECONNABORTED)


def runtime() -> Iterator[Finding]:
    """The directory for control sockets is private, or can be made."""
    name = "runtime directory"
    directory = control.runtime_place()
    try:
        control.check_private(directory)
    except FileNotFoundError:
        yield _could_make(name, directory, "set XDG_RUNTIME_DIR to a directory of yours")
    except ChromafuseError as error:
        quoted = shlex.quote(str(directory))
        mend = f"chmod 700 {quoted}, or remove it if it is not yours"
        yield Finding(name, Severity.ERROR, str(error.args[0]), mend)
    else:
        yield Finding(name, Severity.OK, f"{directory} is private")


def log(settings: Settings | None) -> Iterator[Finding]:
    """The log can be written."""
    name = "log"
    file = None if settings is None or settings.log_file is None else settings.log_file
    if file is None:
        mend = "choose another --log-file, or set XDG_STATE_HOME"
        yield _could_make(name, state_directory() / "any.log", mend)
        return
    path = Path(os.path.abspath(file.expanduser()))
    yield _could_make(name, path, "choose another --log-file")


def cache() -> Iterator[Finding]:
    """The tree can be kept on disk, so that it serves while Chroma is away."""
    found = _could_make("cache", cache_directory() / "any.json", "set XDG_CACHE_HOME")
    severity = Severity.WARNING if found.severity is Severity.ERROR else found.severity
    yield Finding(found.check, severity, found.text, found.mend)


def _could_make(name: str, path: Path, mend: str) -> Finding:
    """Return whether this user could write ``path``, with the directories that it lacks."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        pass
    else:
        kind = stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISCHR(mode)
        if kind and os.access(path, os.W_OK):
            return Finding(name, Severity.OK, f"{path} can be written")
        return Finding(name, Severity.ERROR, f"{path} cannot be written", mend)
    directory = path.parent
    while not os.path.lexists(directory):
        directory = directory.parent
    if not directory.is_dir():
        return Finding(name, Severity.ERROR, f"{directory} is not a directory", mend)
    if not os.access(directory, os.W_OK | os.X_OK):
        return Finding(name, Severity.ERROR, f"{directory} cannot be written", mend)
    return Finding(name, Severity.OK, f"{path.parent} can be written")


def mount_name(mount: Mount) -> str:
    """Return what a check of ``mount`` is called."""
    return f"mount {mount.path}"


def hung_mount(mount: Mount) -> str:
    """Return what to do about a mount that does not answer."""
    return f"chromafuse umount --lazy {shlex.quote(mount.path)}, then end the daemon that it names"


def answers(mount: Mount) -> Iterator[Finding]:
    """The daemon of ``mount`` lives."""
    name = mount_name(mount)
    try:
        # Not ``stat``: that may be answered from the kernel's cache.
        os.statvfs(mount.path)
    except OSError as error:
        if error.errno in _DEAD:
            mend = f"chromafuse umount {shlex.quote(mount.path)}"
            yield Finding(name, Severity.ERROR, "its daemon is gone", mend)
        else:
            text = f"cannot be examined: {error.strerror}"
            yield Finding(name, Severity.NOTE, text)
    else:
        yield Finding(name, Severity.OK, f"shows the collection {mount.source}")
