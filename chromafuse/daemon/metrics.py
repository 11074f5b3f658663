"""Metrics for Prometheus: numbers of the status, no names of pages, groups or sessions.

One request is answered at a time, in a thread that asks the event loop for the status: whoever
connects and says nothing, or connects many times, costs no descriptors and no threads.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import trio
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from chromafuse.config import parse_address
from chromafuse.daemon.figures import FIGURES
from chromafuse.domain.errors import ConfigError

Status = Mapping[str, Any]

SILENCE = 5.0
"""Seconds after which a client that says nothing is let go."""
REFUSED_PAUSE = 0.5
"""Seconds until a connection that could not be accepted is tried again."""
CLOSING = 1.0
"""Seconds that a request in progress has when the daemon ends."""


class Metrics:
    """Serves metrics at ``address`` (``host:port``) as soon as it is made.

    ``status`` is called on the event loop. Raises ``ConfigError`` if nobody can listen there.
    """

    def __init__(self, address: str, status: Callable[[], Status]) -> None:
        host, port = parse_address(address)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_StatusCollector(status, trio.lowlevel.current_trio_token()))
        try:
            self._server = make_server(
                host,
                port,
                make_wsgi_app(registry),
                _Server6 if ":" in host else _Server,
                _Handler,
            )
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {address}: {error.strerror}",
                remedy="choose another port with --metrics 127.0.0.1:PORT",
            ) from None
        self.address = f"{address.rpartition(':')[0]}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    async def close(self) -> None:
        """Stop serving; a request in progress may end."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING):
            await trio.to_thread.run_sync(self._server.shutdown, abandon_on_cancel=True)
        self._server.server_close()


class _Server(WSGIServer):
    def get_request(self) -> tuple[socket.socket, Any]:
        """Return the next connection; without descriptors for it, do not ask all the time."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(REFUSED_PAUSE)
            raise


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout: ClassVar[float] = SILENCE

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a request is not an event."""

    def address_string(self) -> str:
        """Ask no name server."""
        return str(self.client_address[0])


class _StatusCollector(Collector):
    def __init__(self, status: Callable[[], Status], token: trio.lowlevel.TrioToken) -> None:
        self._status = status
        self._token = token

    def describe(self) -> list[Metric]:
        """Return nothing: what there is is only known to a running daemon."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            found = trio.from_thread.run_sync(self._status, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            return
        yield from families(found)


def families(status: Status) -> Iterator[Metric]:
    """Return a daemon's ``status`` as metrics."""
    names = ("version", "role", "collection", "tree_version")
    info = GaugeMetricFamily("chromafuse_info", "Always 1.", labels=names)
    info.add_metric([str(status[name]) for name in names], 1)
    yield info
    for figure in FIGURES:
        values = figure.values(status)
        if values:
            kind = CounterMetricFamily if figure.grows else GaugeMetricFamily
            labels = [figure.label] if figure.label else []
            family = kind(f"chromafuse_{figure.name}", figure.text, labels=labels)
            for label, value in values.items():
                family.add_metric([label] if labels else [], value)
            yield family
    latencies = HistogramMetricFamily(
        "chromafuse_backend_request_seconds", "Requests to a backend.", labels=["backend"]
    )
    for name, found in status["backends"].items():
        latencies.add_metric([name], list(found["buckets"].items()), found["seconds"])
    yield latencies
