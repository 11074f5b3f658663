"""An httpx transport whose requests end at a point in time, whatever the server does.

httpx's own timeouts bound each single wait: a server that sends a byte now and then would keep a
thread for ever. Here every read and write of a request gets what is left until its deadline.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx


class Deadlines(threading.local):
    """The end of the current thread's request, in monotonic seconds; None without one."""

    ends: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let every network operation of this thread in the block end in ``seconds``."""
        self.ends = time.monotonic() + seconds
        try:
            yield
        finally:
            self.ends = None

    def left(self, timeout: float | None) -> float | None:
        """Return the timeout of an operation that begins now. Raises ``httpcore.ReadTimeout``."""
        if self.ends is None:
            return timeout
        left = self.ends - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the request's time is over")
        return left if timeout is None else min(left, timeout)


class DeadlineTransport(httpx.HTTPTransport):
    """``httpx.HTTPTransport`` that keeps to ``deadlines``."""

    def __init__(self, deadlines: Deadlines) -> None:
        super().__init__()
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=100,
            max_keepalive_connections=20,
            network_backend=_Backend(deadlines),
        )


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._backend.connect_tcp(
            host, port, self._deadlines.left(timeout), local_address, socket_options
        )
        return _Stream(stream, self._deadlines)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadlines: Deadlines) -> None:
        self._stream = stream
        self._deadlines = deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadlines.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadlines.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadlines.left(timeout))
        return _Stream(stream, self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
