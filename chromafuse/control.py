"""Talking to a running daemon: one unix socket a mount, lines of JSON in turn.

The socket lies in a directory that only its owner can enter. The peer's process id comes from the
kernel (SO_PEERCRED), so it is right even when the daemon is too busy to answer.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chromafuse.domain.errors import ChromafuseError
from chromafuse.sockets import socket_directories, socket_name

if TYPE_CHECKING:
    import trio

log = logging.getLogger(__name__)

_MAX_DIRECTORY = 80
"""Bytes in a directory's path that leave room for the socket's name in a socket address."""
MAX_LINE = 1 << 20
PEER = "peer"
"""Key of a request under which its handler finds the client's process id, as the kernel tells."""
TIMEOUT = 5.0
"""Seconds a client waits for an answer."""

Handler = Callable[[Mapping[str, object]], Awaitable[Mapping[str, object]]]


def runtime_directory() -> Path:
    """Return this user's directory for sockets, made if missing.

    Raises ``ChromafuseError`` if it belongs to somebody else or is open to others.
    """
    directory = runtime_place()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)
    return directory


def runtime_place() -> Path:
    """Return where this user's directory for sockets is, or would be made."""
    return next(
        Path(place)
        for place in socket_directories(os.geteuid())
        if len(os.fsencode(place)) <= _MAX_DIRECTORY
    )


def check_private(directory: Path) -> None:
    """Raise ``ChromafuseError`` if ``directory`` is somebody else's or open to others.

    Raises ``OSError`` if it cannot be looked at.
    """
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ChromafuseError(
            f"{directory} is not a private directory of this user",
            remedy="remove it, or set XDG_RUNTIME_DIR",
        )


def socket_path(mount_point: str) -> Path:
    """Return where the daemon of ``mount_point`` (absolute, resolved) listens."""
    return runtime_directory() / socket_name(os.fsencode(mount_point))


class Client:
    """A connection to the daemon of one mount. Raises ``OSError`` if nobody listens."""

    def __init__(self, mount_point: str, uid: int | None = None) -> None:
        self._socket = _connect(mount_point, os.geteuid() if uid is None else uid)
        credentials = self._socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        self.pid: int = struct.unpack("3i", credentials)[0]
        self._stream = self._socket.makefile("rb")

    def ask(self, command: str, **arguments: object) -> dict[str, object]:
        """Return the answer to ``command``. Raises ``OSError``, ``ValueError``."""
        request = {"command": command, **arguments}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._stream.readline(MAX_LINE))
        if not isinstance(answer, dict):
            raise ValueError("the daemon's answer is malformed")
        return answer

    def wait(self, seconds: float) -> None:
        """Wait for answers for so long from now on."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(mount_point: str, uid: int) -> socket.socket:
    failure: OSError | None = None
    name = socket_name(os.fsencode(mount_point))
    for directory in socket_directories(uid):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT)
        try:
            connection.connect(os.path.join(directory, name))
        except OSError as error:
            connection.close()
            # Where a socket was found tells more than where none was.
            if failure is None or not isinstance(error, FileNotFoundError):
                failure = error
        else:
            return connection
    raise failure or FileNotFoundError(mount_point)


async def listen(
    path: Path,
    handlers: Mapping[str, Handler],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Answer requests at ``path`` until cancelled; the socket is removed at the end."""
    import trio

    path.unlink(missing_ok=True)
    server = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await server.bind(str(path))
    path.chmod(0o600)
    own = path.stat().st_ino
    server.listen(1024)
    try:
        task_status.started()
        await trio.serve_listeners(partial(_answer, handlers), [trio.SocketListener(server)])
    finally:
        with suppress(OSError):
            # A later mount at the same place may have its own socket there.
            if path.stat().st_ino == own:
                path.unlink()


async def _answer(handlers: Mapping[str, Handler], stream: trio.SocketStream) -> None:
    """Answer one client's requests, one after another."""
    import trio

    with suppress(trio.BrokenResourceError):  # the client went away
        async with stream:
            peer = _owner(stream)
            if peer is None:
                return
            lines = _Lines(stream)
            while True:
                with trio.move_on_after(TIMEOUT) as waiting:
                    line = await lines.next()
                if waiting.cancelled_caught or line is None:
                    return
                reply = await _reply(line, handlers, peer)
                with trio.move_on_after(TIMEOUT) as waiting:
                    await stream.send_all(json.dumps(reply).encode() + b"\n")
                if waiting.cancelled_caught:
                    return


def _owner(stream: trio.SocketStream) -> int | None:
    """Return the client's process id, or None if it is neither this user's nor root's.

    That is a second wall behind the socket's modes.
    """
    size = struct.calcsize("3i")
    credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", credentials)
    return int(pid) if uid in (0, os.geteuid()) else None


class _Lines:
    """A stream's lines; one that is too long is cut, and is no JSON then."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> bytes | None:
        """Return the next line, or None at the end."""
        while b"\n" not in self._rest and len(self._rest) < MAX_LINE:
            more = await self._stream.receive_some(65_536)
            if not more:
                break
            self._rest += more
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line


async def _reply(line: bytes, handlers: Mapping[str, Handler], peer: int) -> Mapping[str, object]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {"error": "the request is not JSON"}
    handler = handlers.get(str(request.get("command"))) if isinstance(request, dict) else None
    if handler is None:
        return {"error": "unknown command"}
    try:
        return await handler({**request, PEER: peer})
    except ChromafuseError as error:
        return {"error": str(error), "code": error.exit_code}
    except Exception as error:
        # Somebody's bug: it costs this request, not the mount.
        log.exception("unexpected error in the request %s", request["command"])
        return {"error": f"unexpected {type(error).__name__} in the daemon", "code": 1}
