"""FUSE requests answered from a namespace and a reader.

Nothing but ``read`` ever waits: a client that is stuck in any other call cannot even be killed.
Every handler runs under one guard, because an exception other than ``FUSEError`` would end the
mount for everybody.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from chromafuse.domain.errors import ChromafuseError, StoreUnavailable
from chromafuse.domain.page import Page
from chromafuse.fs import loop
from chromafuse.fs.attributes import BLOCK, absent, file_info
from chromafuse.fs.errnos import errno_of
from chromafuse.fs.namespace import Entry, Namespace
from chromafuse.reader import Reader, Reading

log = logging.getLogger(__name__)

MAX_TASKS = 2_000
"""Requests handled at once. A read that waits for Chroma holds one, so this is far above what
readers can keep waiting, and listing goes on beside them."""
MAX_WAITING = 1_500
"""Reads that may wait at once; one more fails at once, to keep listing alive."""

STORE_MAX = 1 << 20
"""Bytes of a page up to which the kernel's page cache gets it whole at its first open."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC

XATTR_PREFIX = b"user.chromafuse."

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


def guarded(handler: Handler) -> Handler:
    """Wrap a handler: known errors become errno, anything else is logged and becomes EIO."""

    @functools.wraps(handler)
    async def guard(*args: Any, **kwargs: Any) -> Any:
        try:
            return await handler(*args, **kwargs)
        except FUSEError:
            raise
        except ChromafuseError as error:
            raise FUSEError(errno_of(error)) from None
        except Exception:
            log.exception("unexpected error in %s", handler.__name__)
            raise FUSEError(errno.EIO) from None

    return guard  # type: ignore[return-value]  # the wrapper has the handler's signature


class _OpenFile:
    """An inode that is open. An inode is one version of one page, so all its opens share this."""

    __slots__ = ("info", "opens", "page", "reading")

    def __init__(self, page: Page, info: pyfuse3.FileInfo) -> None:
        self.page = page
        self.info = info
        self.opens = 0
        self.reading: Reading | None = None


class Operations(pyfuse3.Operations):
    """The mount. ``namespace`` may be replaced as a whole; what is open goes on as it is."""

    supports_dot_lookup = True
    enable_writeback_cache = False
    enable_acl = False

    def __init__(self, namespace: Namespace, reader: Reader) -> None:
        super().__init__()
        self.namespace = namespace
        self._reader = reader
        self._files: dict[int, _OpenFile] = {}
        self._stored: set[int] = set()
        self._directories: dict[int, Sequence[Entry]] = {}
        self._next_handle = 1
        self._waiting = 0

    @property
    def open_files(self) -> int:
        """How many times files are open now."""
        return sum(file.opens for file in self._files.values())

    # Names and attributes

    @guarded
    async def lookup(
        self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, _ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        return self.namespace.lookup(parent_inode, name) or absent()

    @guarded
    async def getattr(
        self, inode: pyfuse3.InodeT, _ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        attributes = self.namespace.attributes(inode)
        if attributes is None:
            raise FUSEError(errno.ESTALE)
        return attributes

    async def forget(self, inode_list: Sequence[tuple[pyfuse3.InodeT, int]]) -> None:
        """The kernel has dropped inodes and their pages; numbers live as long as the daemon."""
        self._stored.difference_update(inode for inode, _ in inode_list)

    @guarded
    async def opendir(
        self, inode: pyfuse3.InodeT, _ctx: pyfuse3.RequestContext
    ) -> pyfuse3.FileHandleT:
        listing = self.namespace.listing(inode)
        if listing is None:
            raise FUSEError(errno.ENOTDIR if self.namespace.page(inode) else errno.ESTALE)
        handle = self._new_handle()
        self._directories[handle] = listing
        return pyfuse3.FileHandleT(handle)

    @guarded
    async def readdir(
        self, fh: pyfuse3.FileHandleT, start_id: int, token: pyfuse3.ReaddirToken
    ) -> None:
        listing = self._directories[fh]
        reply = pyfuse3.readdir_reply
        for position in range(max(0, start_id), len(listing)):
            name, attributes = listing[position]
            if not reply(token, pyfuse3.FileNameT(name), attributes, position + 1):
                return

    @guarded
    async def releasedir(self, fh: pyfuse3.FileHandleT) -> None:
        self._directories.pop(fh, None)

    @guarded
    async def statfs(self, _ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        tree = self.namespace.tree
        result = pyfuse3.StatvfsData()
        result.f_bsize = result.f_frsize = BLOCK
        result.f_blocks = -(-tree.total_bytes // BLOCK)
        result.f_bfree = result.f_bavail = 0
        result.f_files = len(tree.pages) + self.namespace.directories
        result.f_ffree = result.f_favail = 0
        result.f_namemax = 255
        return result

    # Contents

    @guarded
    async def open(
        self, inode: pyfuse3.InodeT, flags: pyfuse3.FlagT, _ctx: pyfuse3.RequestContext
    ) -> pyfuse3.FileInfo:
        if flags & _WRITING:
            raise FUSEError(errno.EROFS)
        file = self._files.get(inode)
        if file is None:
            file = self._files[inode] = self._open_file(inode)
        file.opens += 1
        return file.info

    def _open_file(self, inode: pyfuse3.InodeT) -> _OpenFile:
        """Return an inode's state at its first open; it need not be read if the kernel has it."""
        page = self._page(inode)
        file = _OpenFile(page, file_info(inode))
        if inode not in self._stored:
            file.reading = self._reader.open(page)
            if file.reading.ready:
                self._store(inode, file.reading.ready)
        return file

    def _store(self, inode: pyfuse3.InodeT, data: bytes) -> None:
        """Hand a page's bytes to the kernel's page cache, which then need not ask for them.

        Only at the first of several opens: against a read in flight this would wait for ever.
        """
        if len(data) > STORE_MAX:
            return
        try:
            pyfuse3.notify_store(inode, 0, data)
        except OSError as error:
            log.debug("inode=%d is not stored: %s", inode, error)
            return
        self._stored.add(inode)

    @guarded
    async def read(self, fh: pyfuse3.FileHandleT, off: int, size: int) -> bytes:
        if self._waiting >= MAX_WAITING:
            raise StoreUnavailable(f"{self._waiting} reads wait already")
        file = self._files[fh]
        if file.reading is None:
            file.reading = self._reader.open(file.page)
        self._waiting += 1
        try:
            data = await file.reading.data()
        finally:
            self._waiting -= 1
        return data[off : off + size]

    @guarded
    async def release(self, fh: pyfuse3.FileHandleT) -> None:
        file = self._files[fh]
        file.opens -= 1
        if not file.opens:
            del self._files[fh]

    def _page(self, inode: int) -> Page:
        page = self.namespace.page(inode)
        if page is None:
            directory = self.namespace.is_directory(inode)
            raise FUSEError(errno.EISDIR if directory else errno.ESTALE)
        return page

    def _new_handle(self) -> int:
        handle = self._next_handle
        self._next_handle += 1
        return handle

    # Extended attributes

    @guarded
    async def listxattr(
        self, inode: pyfuse3.InodeT, _ctx: pyfuse3.RequestContext
    ) -> Sequence[pyfuse3.XAttrNameT]:
        return [pyfuse3.XAttrNameT(name) for name in self._xattrs(inode)]

    @guarded
    async def getxattr(
        self, inode: pyfuse3.InodeT, name: pyfuse3.XAttrNameT, _ctx: pyfuse3.RequestContext
    ) -> bytes:
        if not name.startswith(b"user."):
            # Unlike ENODATA, this tells `ls -l` not to ask for an ACL at every file.
            raise FUSEError(errno.EOPNOTSUPP)
        value = self._xattrs(inode).get(name)
        if value is None:
            raise FUSEError(pyfuse3.ENOATTR)
        return value

    def _xattrs(self, inode: int) -> dict[bytes, bytes]:
        page = self.namespace.page(inode)
        if page is None:
            return {}
        values = {"slug": page.slug, "version": page.version, "chunks": page.chunks}
        return {
            XATTR_PREFIX + name.encode(): str(value).encode()
            for name, value in values.items()
            if value is not None
        }

    # Writes: the mount option `ro` refuses them before they get here; this is the second wall.

    async def create(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def write(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def setattr(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def mkdir(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def mknod(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def rmdir(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def unlink(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def rename(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def link(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def symlink(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def setxattr(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    async def removexattr(self, *_args: Any, **_kwargs: Any) -> Any:
        raise FUSEError(errno.EROFS)

    # Nothing to do, and the kernel need not ask again.

    async def flush(self, fh: pyfuse3.FileHandleT) -> None:
        raise FUSEError(errno.ENOSYS)

    async def fsync(self, fh: pyfuse3.FileHandleT, datasync: bool) -> None:
        raise FUSEError(errno.ENOSYS)

    async def fsyncdir(self, fh: pyfuse3.FileHandleT, datasync: bool) -> None:
        raise FUSEError(errno.ENOSYS)

    async def access(
        self, _inode: pyfuse3.InodeT, _mode: pyfuse3.ModeT, _ctx: pyfuse3.RequestContext
    ) -> bool:
        raise FUSEError(errno.ENOSYS)


async def serve() -> None:
    """Answer requests of the mount that ``mount.attach`` made, until it is unmounted."""
    loop.install()
    await pyfuse3.main(min_tasks=1, max_tasks=MAX_TASKS)
