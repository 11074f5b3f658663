"""System calls about mount namespaces that the standard library does not have.

Each raises ``OSError`` with the kernel's error number. Paths may be any that the kernel takes.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16_384
MS_SLAVE = 1 << 19

MNT_DETACH = 2

_PR_CAPBSET_DROP = 24


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, place: str | None = None) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), place)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def unshare(flags: int) -> None:
    """Leave the namespaces that ``flags`` name for new ones."""
    _checked(_libc().unshare(ctypes.c_int(flags)))


def mount(
    source: str | None,
    target: str,
    fstype: str | None = None,
    flags: int = 0,
    options: str | None = None,
) -> None:
    """Mount, bind, or change a mount: mount(2)."""
    _checked(
        _libc().mount(
            _encoded(source),
            _encoded(target),
            _encoded(fstype),
            ctypes.c_ulong(flags),
            _encoded(options),
        ),
        target,
    )


def umount(target: str, flags: int = 0) -> None:
    """Unmount: umount2(2)."""
    _checked(_libc().umount2(_encoded(target), ctypes.c_int(flags)), target)


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root and put the present one at ``old``: pivot_root(2)."""
    _checked(_libc().pivot_root(_encoded(new), _encoded(old)), new)


def drop_from_bounding_set(capability: int) -> None:
    """Never again gain ``capability`` by executing a program. It has to be a known one."""
    _checked(_libc().prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0))


def execute(command: Sequence[bytes], environment: Sequence[bytes]) -> OSError:
    """Become ``command``, looked for in ``PATH`` as execvpe(3) does; return why not.

    A text file without a ``#!`` line is given to the shell, as shells do. ``environment`` holds
    ``NAME=value`` items and is passed as it is.
    """
    words = (ctypes.c_char_p * (len(command) + 1))(*command, None)
    items = (ctypes.c_char_p * (len(environment) + 1))(*environment, None)
    _libc().execvpe(ctypes.c_char_p(command[0]), words, items)
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
