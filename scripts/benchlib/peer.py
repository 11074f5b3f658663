"""mirage-ai's mount of a collection, held. Runs in that package's own environment.

Run as ``peer.py HOST PORT COLLECTION POINT``: returns once mounted; a child of its holds the mount
until SIGTERM, or until somebody else unmounts it.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Mount in a child, and wait for its word."""
    receiving, sending = os.pipe()
    if os.fork():
        os.close(sending)
        sys.exit(0 if os.read(receiving, 1) else 1)
    os.close(receiving)
    os.setsid()
    _hold(*sys.argv[1:], sending=sending)


def _hold(host: str, port: str, collection: str, point: str, *, sending: int) -> None:
    # Imported in the child alone: threads do not survive a fork.
    from mirage import FuseManager, MountMode, Workspace  # type: ignore[import-not-found]
    from mirage.vfs.chroma import ChromaConfig, ChromaVFS  # type: ignore[import-not-found]

    config = ChromaConfig(host=host, port=int(port), collection_name=collection, slug_field="page")
    workspace = Workspace({"/docs": ChromaVFS(config)}, mode=MountMode.READ)
    manager = FuseManager()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    manager.setup(workspace.vfs, prefix="/docs", mountpoint=point)
    os.write(sending, b"1")
    os.close(sending)
    # The mount may be ended from outside, which the manager does not tell.
    while _mounted(point):
        if signal.sigtimedwait([signal.SIGTERM, signal.SIGINT], 0.2):
            manager.unmount()
    # Its threads would let it wait.
    os._exit(0)


def _mounted(point: str) -> bool:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as lines:
        return any(line.split(" ")[1] == point for line in lines)


if __name__ == "__main__":
    main()
