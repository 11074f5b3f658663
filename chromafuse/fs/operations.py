"""FUSE requests answered from a namespace and a reader.

Nothing but ``read`` waits, and the listing of a search, for as long as a search may take: a client
that is stuck in any other call than ``read`` cannot even be killed.
Every handler runs under one guard, because an exception other than ``FUSEError`` would end the
mount for everybody.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from chromafuse.domain.errors import BlobDenied, ChromafuseError, StoreUnavailable
from chromafuse.domain.page import Page
from chromafuse.fs import loop
from chromafuse.fs.attributes import BLOCK, absent, file_info, unknown_session
from chromafuse.fs.callers import Caller
from chromafuse.fs.errnos import errno_of
from chromafuse.fs.namespace import NODE_MASK, ROOT, ROOT_NODE, Entry, Listing, Namespace
from chromafuse.fs.narrowing import Narrower
from chromafuse.reader import BlockReader, BlockReading, Reader, Reading

log = logging.getLogger(__name__)

MAX_TASKS = 2_000
"""Requests handled at once. A read that waits for Chroma holds one, so this is far above what
readers can keep waiting, and listing goes on beside them."""
MAX_WAITING = 1_500
"""Reads that may wait at once; one more fails at once, to keep listing alive."""

STORE_MAX = 1 << 20
"""Bytes of a page up to which the kernel's page cache gets it whole at its first open."""

_DOTS = (pyfuse3.FileNameT(b"."), pyfuse3.FileNameT(b".."))

_READING = ("lookup", "getattr", "opendir", "readdir", "open", "read")
"""Requests that are told of before the first one has come."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC

XATTR_PREFIX = b"user.chromafuse."

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


def guarded(handler: Handler) -> Handler:
    """Wrap a handler: known errors become errno, anything else is logged and becomes EIO."""

    name = handler.__name__

    @functools.wraps(handler)
    async def guard(self: Operations, *args: Any, **kwargs: Any) -> Any:
        self.counts[name] += 1
        try:
            return await handler(self, *args, **kwargs)
        except FUSEError:
            raise
        except ChromafuseError as error:
            raise FUSEError(errno_of(error)) from None
        except Exception:
            log.exception("unexpected error in %s", name)
            raise FUSEError(errno.EIO) from None

    return guard  # type: ignore[return-value]  # the wrapper has the handler's signature


def _reply_passing(
    token: pyfuse3.ReaddirToken,
    name: pyfuse3.FileNameT,
    attributes: pyfuse3.EntryAttributes,
    position: int,
) -> bool:
    """List a name that the kernel is not to remember."""
    lasting = attributes.entry_timeout
    attributes.entry_timeout = 0
    try:
        return pyfuse3.readdir_reply(token, name, attributes, position)
    finally:
        attributes.entry_timeout = lasting


class _OpenFile:
    """An inode that is open. An inode is one version of one page, so all its opens share this."""

    __slots__ = ("info", "opens", "page", "reading")

    def __init__(self, page: Page, info: pyfuse3.FileInfo) -> None:
        self.page = page
        self.info = info
        self.opens = 0
        self.reading: Reading | BlockReading | None = None


class _OpenDirectory:
    """What an open directory lists: it was decided when it was opened.

    For a search program, ``caller``, it may be less than everything.
    """

    __slots__ = ("caller", "entries", "listing")

    def __init__(self, listing: Listing, caller: Caller | None) -> None:
        self.listing = listing
        self.caller = caller
        self.entries: Sequence[Entry] = tuple(listing.entries.values())


class Operations(pyfuse3.Operations):
    """The mount. ``counts`` tells how many requests of each kind have come."""

    supports_dot_lookup = True
    enable_writeback_cache = False
    enable_acl = False

    def __init__(
        self,
        namespace: Namespace,
        reader: Reader,
        narrower: Narrower | None = None,
        blocks: BlockReader | None = None,
    ) -> None:
        super().__init__()
        self._narrower = narrower
        self.namespace = namespace
        self._reader = reader
        self._blocks = blocks
        self._files: dict[int, _OpenFile] = {}
        self._stored: set[int] = set()
        self._directories: dict[int, _OpenDirectory] = {}
        self._next_handle = 1
        self._waiting = 0
        self.counts = Counter(dict.fromkeys(_READING, 0))
        self.age: Callable[[], float] | None = None
        """How many seconds ago the tree was last known to be current."""

    @property
    def open_files(self) -> int:
        """How many times files are open now."""
        return sum(file.opens for file in self._files.values())

    # Names and attributes

    @guarded
    async def lookup(
        self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, _ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        try:
            found = self.namespace.lookup(parent_inode, name)
        except LookupError:
            raise FUSEError(errno.ESTALE) from None
        if found is None and parent_inode == ROOT and self.namespace.is_hub:
            return unknown_session()
        return found or absent()

    @guarded
    async def getattr(
        self, inode: pyfuse3.InodeT, _ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        attributes = self.namespace.attributes(inode)
        if attributes is None:
            raise FUSEError(errno.ESTALE)
        return attributes

    async def forget(self, inode_list: Sequence[tuple[pyfuse3.InodeT, int]]) -> None:
        """The kernel has dropped inodes and their pages; only replaced pages are dropped here."""
        for inode, _ in inode_list:
            self._stored.discard(inode)
            page = self.namespace.page(inode)
            if page is not None and inode not in self._files and not self.namespace.shows(page):
                self.namespace.inodes.drop(inode)

    @guarded
    async def opendir(
        self, inode: pyfuse3.InodeT, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.FileHandleT:
        listing = self.namespace.listing(inode)
        if listing is None:
            raise FUSEError(self._no_listing(inode))
        caller = self._narrower.listing(ctx.pid, inode) if self._narrower else None
        handle = self._new_handle()
        self._directories[handle] = _OpenDirectory(listing, caller)
        return pyfuse3.FileHandleT(handle)

    def _no_listing(self, inode: int) -> int:
        """Return why there is no listing of ``inode``."""
        if self.namespace.page(inode):
            return errno.ENOTDIR
        return errno.EACCES if inode == ROOT else errno.ESTALE

    @guarded
    async def readdir(
        self, fh: pyfuse3.FileHandleT, start_id: int, token: pyfuse3.ReaddirToken
    ) -> None:
        directory = self._directories[fh]
        listing, namespace = directory.listing, self.namespace
        caller, directory.caller = directory.caller, None
        if caller is not None and self._narrower is not None:
            directory.entries = await self._narrower.entries(
                caller, listing.view, listing.inode, directory.entries
            )
        view = namespace.view_of(listing.inode)
        if view is None:
            raise FUSEError(errno.ESTALE)
        # The kernel may not remember names of a tree that is no longer shown.
        reply = pyfuse3.readdir_reply if view is listing.view else _reply_passing
        start = max(0, start_id)
        for position, inode in ((0, listing.inode), (1, listing.parent)):
            attributes = namespace.attributes(inode) if start <= position else None
            if attributes is None:
                continue
            if not reply(token, _DOTS[position], attributes, position + 1):
                return
        base, entries = listing.base, directory.entries
        for index in range(max(0, start - 2), len(entries)):
            name, attributes, node, _ = entries[index]
            if node:
                namespace.numbered(attributes, base | node)
            if not reply(token, name, attributes, index + 3):
                return

    @guarded
    async def releasedir(self, fh: pyfuse3.FileHandleT) -> None:
        self._directories.pop(fh, None)

    @guarded
    async def statfs(self, _ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        result = pyfuse3.StatvfsData()
        result.f_bsize = result.f_frsize = BLOCK
        result.f_blocks = result.f_bfree = result.f_bavail = result.f_files = 0
        # A hub cannot tell who asks, and tells nobody how much there is.
        view = self.namespace.view_of(ROOT)
        if view is not None:
            result.f_blocks = -(-view.size // BLOCK)
            result.f_files = len(view.tree.pages) + view.directories
        result.f_ffree = result.f_favail = 0
        result.f_namemax = 255
        return result

    # Contents

    @guarded
    async def open(
        self, inode: pyfuse3.InodeT, flags: pyfuse3.FlagT, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.FileInfo:
        if flags & _WRITING:
            raise FUSEError(errno.EROFS)
        file = self._files.get(inode)
        if file is None:
            file = self._files[inode] = self._open_file(inode, ctx.pid)
        file.opens += 1
        return file.info

    def _open_file(self, inode: pyfuse3.InodeT, pid: int) -> _OpenFile:
        """Return an inode's state at its first open; it need not be read if the kernel has it."""
        page = self._page(inode)
        file = _OpenFile(page, file_info(inode))
        if inode not in self._stored:
            # Who is shown only some pages does not go on to the next ones.
            narrows = self._narrower is not None and self._narrower.callers.narrows(pid)
            file.reading = self._begin(page, ahead=not narrows)
            if file.reading.ready:
                self._store(inode, file.reading.ready)
        return file

    def _begin(self, page: Page, *, ahead: bool = True) -> Reading | BlockReading:
        if page.pointer is None:
            return self._reader.open(page, ahead=ahead)
        if self._blocks is None:
            raise BlobDenied(f"{page.slug} is outside Chroma, where nothing may be read")
        return self._blocks.open(page.pointer)

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
            file.reading = self._begin(file.page)
        self._waiting += 1
        try:
            return await file.reading.read(off, size)
        finally:
            self._waiting -= 1

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
            return self._root_xattrs(inode)
        values = {"slug": page.slug, "version": page.version, "chunks": page.chunks}
        return {
            XATTR_PREFIX + name.encode(): str(value).encode()
            for name, value in values.items()
            if value is not None
        }

    def _root_xattrs(self, inode: int) -> dict[bytes, bytes]:
        view = self.namespace.view_of(inode)
        if view is None or inode & NODE_MASK != ROOT_NODE:
            return {}
        values = {"tree_version": view.tree.version}
        if self.age is not None:
            values["tree_age"] = f"{self.age():.0f}"  # type: ignore[assignment]
        return {XATTR_PREFIX + name.encode(): value.encode() for name, value in values.items()}

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
