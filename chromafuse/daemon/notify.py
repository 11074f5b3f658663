"""What a service manager is told: systemd's sd_notify(3) and its watchdog."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import trio

_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG = "WATCHDOG_USEC"
_WATCHDOG_PID = "WATCHDOG_PID"


class ServiceManager:
    """Sends datagrams to a manager's socket; one that takes none is no reason to fail.

    ``watchdog`` is the interval in seconds within which it wants a sign of life, or None.
    """

    def __init__(self, address: str, watchdog: float | None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog = watchdog
        self._is_stopping = False

    @classmethod
    def from_environment(cls) -> ServiceManager | None:
        """Return the manager that started this process, or None; no child is told of it."""
        address = os.environ.pop(_SOCKET, "")
        interval = os.environ.pop(_WATCHDOG, "")
        owner = os.environ.pop(_WATCHDOG_PID, "")
        if not address.startswith(("/", "@")) or len(address) < 2:
            return None
        watched = interval.isdecimal() and int(interval) > 0 and owner in ("", str(os.getpid()))
        return cls(address, int(interval) / 1e6 if watched else None)

    def note(self, text: str) -> None:
        """Something takes long."""
        self._send(f"STATUS={_one_line(text)}")

    def ready(self, text: str) -> None:
        """The mount answers."""
        self._send(f"READY=1\nSTATUS={_one_line(text)}")

    def stopping(self) -> None:
        """The mount is about to end; told once."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1\nSTATUS=stopping")

    async def feed(self) -> None:
        """Give a sign of life twice an interval, from the loop: one that hangs gives none."""
        if self.watchdog is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self.watchdog / 2)

    def _send(self, text: str) -> None:
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
        ):
            sender.sendto(text.encode(errors="backslashreplace"), self._address)


def _one_line(text: str) -> str:
    return text.replace("\n", " ")
