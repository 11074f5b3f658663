"""Talking to a running daemon: one unix socket a mount, one line of JSON each way.

The socket lies in a directory that only its owner can enter. The peer's process id comes from the
kernel (SO_PEERCRED), so it is right even when the daemon is too busy to answer.
"""

from __future__ import annotations

import hashlib
import json
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

if TYPE_CHECKING:
    import trio

_MAX_DIRECTORY = 80
"""Bytes in a directory's path that leave room for the socket's name in a socket address."""
MAX_LINE = 1 << 20
TIMEOUT = 5.0
"""Seconds a client waits for an answer."""

Handler = Callable[[Mapping[str, object]], Awaitable[Mapping[str, object]]]


def runtime_directory() -> Path:
    """Return this user's directory for sockets, made if missing.

    Raises ``ChromafuseError`` if it belongs to somebody else or is open to others.
    """
    directory = next(
        place for place in _candidates(os.geteuid()) if len(os.fsencode(place)) <= _MAX_DIRECTORY
    )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ChromafuseError(
            f"{directory} is not a private directory of this user",
            remedy="remove it, or set XDG_RUNTIME_DIR",
        )
    return directory


def _candidates(uid: int) -> list[Path]:
    """Return where the sockets of user ``uid`` may lie, the likeliest first."""
    places = []
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/") and uid == os.geteuid():
        places.append(Path(given) / "chromafuse")
    user = Path(f"/run/user/{uid}")
    if user.is_dir():
        places.append(user / "chromafuse")
    if uid == 0:
        places.append(Path("/run/chromafuse"))
    return [*places, Path(f"/tmp/chromafuse-{uid}")]  # noqa: S108 - made 0700, owner checked


def _socket_name(mount_point: str) -> str:
    return hashlib.blake2b(os.fsencode(mount_point), digest_size=10).hexdigest() + ".sock"


def socket_path(mount_point: str) -> Path:
    """Return where the daemon of ``mount_point`` (absolute, resolved) listens."""
    return runtime_directory() / _socket_name(mount_point)


class Client:
    """A connection to the daemon of one mount. Raises ``OSError`` if nobody listens."""

    def __init__(self, mount_point: str, uid: int | None = None) -> None:
        self._socket = _connect(mount_point, os.geteuid() if uid is None else uid)
        credentials = self._socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        self.pid: int = struct.unpack("3i", credentials)[0]

    def ask(self, command: str, **arguments: object) -> dict[str, object]:
        """Return the answer to ``command``. Raises ``OSError``, ``ValueError``."""
        request = {"command": command, **arguments}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        with self._socket.makefile("rb") as stream:
            line = stream.readline(MAX_LINE)
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("the daemon's answer is malformed")
        return answer

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(mount_point: str, uid: int) -> socket.socket:
    failure: OSError | None = None
    for directory in _candidates(uid):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT)
        try:
            connection.connect(str(directory / _socket_name(mount_point)))
        except OSError as error:
            connection.close()
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
    server.listen(16)
    try:
        task_status.started()
        await trio.serve_listeners(partial(_answer, handlers), [trio.SocketListener(server)])
    finally:
        with suppress(OSError):
            # A later mount at the same place may have its own socket there.
            if path.stat().st_ino == own:
                path.unlink()


async def _answer(handlers: Mapping[str, Handler], stream: trio.SocketStream) -> None:
    import trio

    with trio.move_on_after(TIMEOUT):
        try:
            line = await _read_line(stream)
            reply = await _reply(line, handlers)
            await stream.send_all(json.dumps(reply).encode() + b"\n")
        except trio.BrokenResourceError:
            return  # the client went away
        finally:
            await stream.aclose()


async def _read_line(stream: trio.SocketStream) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE:
        more = await stream.receive_some(65_536)
        if not more:
            break
        line += more
    return line


async def _reply(line: bytes, handlers: Mapping[str, Handler]) -> Mapping[str, object]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {"error": "the request is not JSON"}
    handler = handlers.get(str(request.get("command"))) if isinstance(request, dict) else None
    if handler is None:
        return {"error": "unknown command"}
    try:
        return await handler(request)
    except ChromafuseError as error:
        return {"error": str(error)}
