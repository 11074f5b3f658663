"""A real HTTP server on loopback that gives the answers a test prepares, right or wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_PREFIX = "/api/v2/tenants/default_tenant/databases/default_database/collections"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """``cut`` closes the connection in the middle of the body; ``hang`` never answers."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    hang: bool = False


def as_json(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"content-type": "application/json"})


class AnsweringServer:
    """``answer`` decides what each request gets; ``requests`` are all that came.

    With ``forget`` they are not kept.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.forget = False
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda _: as_json({})

    def to_reads(self, answer: Answer) -> None:
        """Open every collection, and give ``answer`` to each request that is about one."""
        self.answer = lambda request: (
            answer
            if request.path.count("/") > _PREFIX.count("/") + 1
            else as_json({"id": "5c0e0000-0000-0000-0000-000000000001", "metadata": None})
        )


@contextmanager
def answering_server() -> Iterator[AnsweringServer]:
    """Serve until the end of the block; requests that hang are let go then."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing: standard error belongs to the tests."""

        def _handle(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            request = Request(
                self.command,
                urlsplit(self.path).path,
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            if not state.forget:
                state.requests.append(request)
            answer = state.answer(request)
            if answer.hang:
                released.wait(60)
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body) + 100 * answer.cut))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.cut

        do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - the names of http.server

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away is what some tests are about."""

    with Server(("127.0.0.1", 0), Handler) as server:
        state = AnsweringServer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield state
        finally:
            released.set()
            server.shutdown()
            thread.join()
