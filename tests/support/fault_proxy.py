"""A proxy on loopback before a server that speaks TCP, which counts and fails as a test likes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.support.chroma_server import free_port

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of requests and answers.

    ``answer`` is said in the server's stead, and the connection ends. Of what the server says,
    ``change`` makes something else, ``cut`` passes on the first half and ends the connection, and
    ``piece`` bytes at a time are passed on, ``delay`` seconds behind each other.
    """

    answer: bytes | None = None
    change: Callable[[bytes], bytes] | None = None
    cut: bool = False
    delay: float = 0.0
    piece: int = _PIECE


_NONE = Fault()


class FaultProxy:
    """Passes everything on to ``upstream``, a port of loopback, as ``fault`` tells.

    ``requests`` counts the pieces that clients sent: no fewer than their requests. An answer that
    has begun under a fault goes on under it, also when the proxy has none any more.
    """

    def __init__(self, upstream: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.fault = _NONE
        self.requests = 0
        self._upstream = upstream
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._stopping = threading.Event()

    def accept(self) -> None:
        """Take connections, at the same address as before."""
        listener = self._listener = socket.create_server(("127.0.0.1", self.port), backlog=100)
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def refuse(self) -> None:
        """End all connections and take none until ``accept``."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Closing alone would not wake who waits in accept().
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            _end(connection)

    def mend(self) -> None:
        """Be a mere proxy again."""
        self.fault = _NONE

    def close(self) -> None:
        self._stopping.set()
        self.refuse()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.socket() as server:
            for end in (client, server):
                # What comes in pieces is not to wait for the other side's acknowledgement.
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._guard:
                self._connections |= {client, server}
            try:
                with suppress(OSError):
                    # A server that is stopped is one that ends the connection at once.
                    server.connect(("127.0.0.1", self._upstream))
                answers = threading.Thread(target=self._answers, args=(client, server), daemon=True)
                answers.start()
                with suppress(OSError):
                    self._requests_of(client, server)
                _end(server)
                answers.join()
            finally:
                with self._guard:
                    self._connections -= {client, server}

    def _requests_of(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(_PIECE):
            with self._guard:
                self.requests += 1
            answer = self.fault.answer
            if answer is None:
                server.sendall(data)
                continue
            client.sendall(answer)
            client.shutdown(socket.SHUT_WR)
            # With something unread, closing would take the answer away from the client.
            while client.recv(_PIECE):
                pass
            return

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_PIECE):
                self._pass_on(client, data, self.fault)
        if self.fault.answer is None:
            _end(client)

    def _pass_on(self, client: socket.socket, data: bytes, fault: Fault) -> None:
        if fault.change is not None:
            data = fault.change(data)
        if fault.cut:
            client.sendall(data[: len(data) // 2])
            raise ConnectionAbortedError
        for at in range(0, len(data), fault.piece):
            if fault.delay and self._stopping.wait(fault.delay):
                return
            client.sendall(data[at : at + fault.piece])


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def fault_proxy(upstream: int) -> Iterator[FaultProxy]:
    """Run a proxy until the end of the block."""
    proxy = FaultProxy(upstream)
    proxy.accept()
    try:
        yield proxy
    finally:
        proxy.close()
