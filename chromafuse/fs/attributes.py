"""What the kernel is told about a file or directory, and for how long it may believe it.

An inode is one version of one page and a directory's inode stays with its path, so nothing that
the kernel caches by inode ever becomes wrong: attributes and pages are cached for as long as it
likes. Names change only with a refresh, which invalidates exactly those that changed.
"""

from __future__ import annotations

import secrets
import stat
from dataclasses import dataclass

import pyfuse3

CACHE_SECONDS = 86_400.0
"""How long names and attributes may be cached."""
NEGATIVE_SECONDS = 86_400.0
"""How long the absence of a name may be cached."""

FILE_MODE = stat.S_IFREG | 0o444
DIRECTORY_MODE = stat.S_IFDIR | 0o555
HUB_MODE = stat.S_IFDIR | 0o111
"""A hub's root: whoever knows a session's name may go through, and nobody may list."""
BLOCK = 4096
GENERATION_BITS = 32
"""What the kernel keeps of a generation."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns every file: the user that mounts."""

    uid: int
    gid: int


def file_attributes(inode: int, size: int, mtime_ns: int, owner: Owner) -> pyfuse3.EntryAttributes:
    """Return the attributes of a page."""
    entry = _attributes(inode, FILE_MODE, mtime_ns, owner)
    entry.st_nlink = 1
    entry.st_size = size
    entry.st_blocks = -(-size // 512)
    return entry


def directory_attributes(
    inode: int, subdirectories: int, mtime_ns: int, owner: Owner
) -> pyfuse3.EntryAttributes:
    """Return the attributes of a directory; its link count is the true one."""
    entry = _attributes(inode, DIRECTORY_MODE, mtime_ns, owner)
    entry.st_nlink = 2 + subdirectories
    entry.st_size = 0
    entry.st_blocks = 0
    return entry


def hub_attributes(inode: int, mtime_ns: int, owner: Owner) -> pyfuse3.EntryAttributes:
    """Return the attributes of a hub's root; they do not tell how many sessions there are."""
    entry = _attributes(inode, HUB_MODE, mtime_ns, owner)
    entry.generation = 0  # the kernel wants that of the root of a mount
    entry.st_nlink = 1
    entry.st_size = 0
    entry.st_blocks = 0
    return entry


def unknown_session() -> pyfuse3.EntryAttributes:
    """Return the answer "there is no such session", which is asked anew every time."""
    entry = absent()
    entry.entry_timeout = 0
    return entry


def absent() -> pyfuse3.EntryAttributes:
    """Return the answer "there is no such name", which the kernel may remember."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(0)
    entry.entry_timeout = NEGATIVE_SECONDS
    return entry


def _attributes(inode: int, mode: int, mtime_ns: int, owner: Owner) -> pyfuse3.EntryAttributes:
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(inode)
    # Part of a file handle (name_to_handle_at), whose other part, the number, can be guessed.
    entry.generation = secrets.randbits(GENERATION_BITS)
    entry.entry_timeout = CACHE_SECONDS
    entry.attr_timeout = CACHE_SECONDS
    entry.st_mode = pyfuse3.ModeT(mode)
    entry.st_uid = owner.uid
    entry.st_gid = owner.gid
    entry.st_rdev = 0
    entry.st_blksize = BLOCK
    entry.st_atime_ns = mtime_ns
    entry.st_mtime_ns = mtime_ns
    entry.st_ctime_ns = mtime_ns
    return entry


def file_info(handle: int) -> pyfuse3.FileInfo:
    """Return how the kernel treats an open file: its pages outlive the open."""
    return pyfuse3.FileInfo(
        fh=pyfuse3.FileHandleT(handle), direct_io=False, keep_cache=True, nonseekable=False
    )
