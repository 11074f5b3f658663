"""Attaching to and detaching from the kernel; one mount a process (pyfuse3 has module globals)."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pyfuse3

from chromafuse.domain.errors import FuseUnavailable, MountError
from chromafuse.fs.mounts import top_mount
from chromafuse.fs.operations import Operations

log = logging.getLogger(__name__)

SUBTYPE = "chromafuse"


def attach(operations: Operations, mount_point: str, source: str, *, allow_other: bool) -> None:
    """Mount at ``mount_point``; ``source`` is what `df` shows.

    Raises ``MountError`` or ``FuseUnavailable`` with what libfuse says of it.
    """
    options = {
        "ro",
        "nosuid",
        "nodev",
        "default_permissions",
        f"fsname={source}",
        f"subtype={SUBTYPE}",
    }
    if allow_other:
        options.add("allow_other")
    said: list[str] = []
    try:
        with _captured_stderr(said):
            pyfuse3.init(operations, mount_point, options)
    except RuntimeError:
        text = next((line for line in said if line), "libfuse gives no reason")
        if "user_allow_other" in text or "/dev/fuse" in text:
            raise FuseUnavailable(f"cannot mount at {mount_point}: {text}") from None
        raise MountError(f"cannot mount at {mount_point}: {text}") from None


def detach(mount_point: str, device: str | None) -> None:
    """Unmount, lazily where somebody still uses it, and let go of the kernel.

    libfuse unmounts whatever is on top at the path. If ``device`` (see ``mounts.Mount``), which
    ours had, is not that of the topmost mount, ours is gone already and nothing is unmounted.
    """
    try:
        top = top_mount(mount_point)
    except OSError as error:
        log.error("whether %s is still mounted cannot be seen: %s", mount_point, error.strerror)
        abandon()
        return
    pyfuse3.close(unmount=top is not None and device in (None, top.device))


def abandon() -> None:
    """Let go of the kernel but leave the dead mount: an empty directory would pass for a site."""
    pyfuse3.close(unmount=False)


@contextmanager
def _captured_stderr(lines: list[str]) -> Iterator[None]:
    """Collect what native code and fusermount3 write to descriptor 2."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines += file.read().decode(errors="replace").strip().split("\n")
