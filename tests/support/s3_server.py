"""A real S3 server on loopback, ``rclone serve s3``, and a proxy before it that counts and fails.

A bucket is a directory of the server's own, which tests fill and change as they like.
"""

from __future__ import annotations

import http.client
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.chroma_server import free_port
from tests.support.processes import ServerProcess

START_SECONDS = 30.0
LISTINGS_KEPT = 0.02
"""Seconds for which the server keeps what is in a directory; without it, it stalls for seconds."""
ACCESS_KEY = "TESTACCESSKEY"
SECRET_KEY = "testsecretkey0123456789"  # noqa: S105 - nobody's
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that reached the proxy, and the bytes of the answer's body that it passed on."""

    method: str
    path: str
    range: str | None
    sent: int


Fault = Callable[["_Handler"], None]
"""Answers a request in the real server's stead."""


@dataclass
class S3Server:
    """``url`` is the proxy's. While ``faults`` holds something, each GET of an object takes one.

    ``direct`` is the server's own address, for measuring and for another proxy.
    """

    root: Path
    url: str
    direct: str
    process: S3Process
    faults: list[Fault] = field(default_factory=list)
    write_faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def put(self, bucket: str, key: str, data: bytes) -> Path:
        place = self.write(bucket, key, data)
        # Until then the server may tell of what was there.
        time.sleep(2 * LISTINGS_KEPT)
        return place

    def write(self, bucket: str, key: str, data: bytes) -> Path:
        """Put an object that nobody has asked for, nor for what is beside it."""
        place = self.root / bucket / key
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return place

    @property
    def reads(self) -> list[Request]:
        """The requests for bytes of objects."""
        return [r for r in self.requests if r.method == "GET" and r.range is not None]

    @property
    def bytes_sent(self) -> int:
        return sum(request.sent for request in self.reads)


class S3Process(ServerProcess):
    """The server itself, which a test stops, freezes and starts again."""

    def __init__(self, directory: Path, root: Path, etag_hash: str) -> None:
        super().__init__(self._listening)
        self.port = free_port()
        self._log = directory / "rclone.log"
        self._command = [
            str(Path(sys.executable).parent / "rclone"), "serve", "s3", str(root),
            "--config", "/dev/null", "--addr", f"127.0.0.1:{self.port}",
            "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--dir-cache-time", f"{LISTINGS_KEPT}s",
            "--etag-hash", etag_hash, "--vfs-cache-mode", "off",
            "--cache-dir", str(directory / "cache"),
        ]  # fmt: skip

    def _listening(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                process.wait()
                raise AssertionError(self._log.read_text())
            time.sleep(0.05)
        return process


@contextmanager
def running_s3(directory: Path, *, etag_hash: str = "md5") -> Iterator[S3Server]:
    """Run a server, which computes ``etag_hash`` of the whole object for each request."""
    root = directory / "buckets"
    root.mkdir(parents=True)
    process = S3Process(directory, root, etag_hash)
    try:
        process.start()
        proxy = _Proxy(("127.0.0.1", 0), _Handler)
        proxy.upstream = process.port
        url = f"http://127.0.0.1:{proxy.server_address[1]}"
        server = S3Server(root, url, f"http://127.0.0.1:{process.port}", process)
        proxy.server = server
        thread = threading.Thread(target=proxy.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            proxy.stopping.set()
            proxy.shutdown()
            thread.join()
            proxy.server_close()
    finally:
        process.stop()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    upstream: int
    server: S3Server

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.stopping = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        state = self.server.server
        self.sent = 0
        # Noted before a byte goes out, or a test could look too early.
        faults = state.write_faults if self.command in ("PUT", "POST") else state.faults
        if (faults is state.write_faults or self.headers.get("Range")) and faults:
            fault = faults.pop(0)
            self.note()
            fault(self)
            return
        status, headers, body = self.upstream()
        self.sent = len(body)
        self.note()
        self.reply(status, headers, body)

    def note(self) -> None:
        self.server.server.requests.append(
            Request(self.command, self.path, self.headers.get("Range"), self.sent)
        )

    def upstream(self) -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask the real server the same."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(self.body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def status(number: int, code: str = "") -> Fault:
    """An answer with this status and S3's XML for ``code``."""

    def fault(handler: _Handler) -> None:
        body = f"<Error><Code>{code}</Code><Message>secret words</Message></Error>".encode()
        handler.reply(number, [("Content-Type", "application/xml")], body if code else b"")

    return fault


def passed_on(handler: _Handler) -> None:
    """No fault."""
    handler.reply(*handler.upstream())


def xml_with_200(handler: _Handler) -> None:
    body = b"<Error><Code>InternalError</Code></Error>"
    handler.reply(200, [("Content-Type", "application/xml")], body)


def short_body(handler: _Handler) -> None:
    code, headers, body = handler.upstream()
    handler.send_response_only(code)
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True


def reset(handler: _Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        handler.connection.close()
    handler.close_connection = True


def hang(handler: _Handler) -> None:
    handler.server.stopping.wait(60)
    handler.close_connection = True


def no_ranges(handler: _Handler) -> None:
    """A server that sends something else than what was asked for."""
    code, headers, body = handler.upstream()
    handler.reply(code, [(n, v) for n, v in headers if n.lower() != "content-range"], body)


def other_etag(handler: _Handler) -> None:
    code, headers, body = handler.upstream()
    kept = [(name, value) for name, value in headers if name.lower() != "etag"]
    handler.reply(code, [*kept, ("ETag", '"another"')], body)


def redirect(url: str) -> Fault:
    def fault(handler: _Handler) -> None:
        handler.reply(307, [("Location", url)], b"")

    return fault
