"""Domain errors as errno, in one table."""

from __future__ import annotations

import errno

from chromafuse.domain.errors import (
    AccessError,
    BlobChanged,
    BlobDenied,
    BlobMissing,
    ChromafuseError,
    ContentError,
    PageReplaced,
    StoreError,
)

_TABLE: tuple[tuple[type[ChromafuseError], int], ...] = (
    (AccessError, errno.EACCES),
    (PageReplaced, errno.ESTALE),
    (BlobChanged, errno.ESTALE),
    (BlobMissing, errno.ENOENT),
    (BlobDenied, errno.EACCES),
    (ContentError, errno.EIO),
    (StoreError, errno.EIO),
)


def errno_of(error: ChromafuseError) -> int:
    """Return what a system call answers for ``error``: EIO unless the table says otherwise."""
    return next((number for kind, number in _TABLE if isinstance(error, kind)), errno.EIO)
