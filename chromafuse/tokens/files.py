"""Files that say whom to believe: regular, bounded, and writable by nobody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from chromafuse.domain.errors import ConfigError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


class ReadFile(NamedTuple):
    """A file's bytes and its state, from one descriptor."""

    data: bytes
    info: os.stat_result


def read_file(path: Path, option: str, limit: int) -> ReadFile:
    """Return the bytes of the regular file ``path``, at most ``limit`` of them.

    Raises ``ConfigError``, which begins with ``option``, if it cannot be read, is too long, empty
    or no regular file, or if others may write it.
    """
    where = f"{option} {path}"
    try:
        # Without O_NONBLOCK a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise ConfigError(f"{where} is not a regular file")
            data = file.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the path
        raise ConfigError(f"{option} is not a path") from None
    if info.st_mode & _OTHERS_WRITE:
        raise ConfigError(f"{where} can be written by others", remedy=f"chmod go-w {path}")
    if len(data) > limit:
        raise ConfigError(f"{where} is longer than {limit:,} bytes")
    if not data.strip():
        raise ConfigError(f"{where} is empty")
    return ReadFile(data, info)


def check_secret(info: os.stat_result, path: Path, option: str) -> None:
    """Raise ``ConfigError`` if others may read the secret in the file ``path``.

    Its group may if root gave it to this process in that way: to a group of ours, or by an access
    list, as systemd gives credentials, whose mask shows as what the group root may.
    """
    shared = info.st_mode & _OTHERS_READ
    ours = {0, os.getegid(), *os.getgroups()}
    if shared == stat.S_IRGRP and info.st_uid == 0 and info.st_gid in ours:
        return
    if shared:
        raise ConfigError(
            f"{option} {path} holds a secret and can be read by others",
            remedy=f"chmod go-rwx {path}; a public key is given as PEM or JWKS",
        )
