"""Metrics in a file, for the textfile collector of Prometheus' node_exporter.

The collector adds the files of a host to its own metrics, and fails if two of them are the same.
So each sample names its mount point, and those of the process begin with ``chromafuse_process_``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import trio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from chromafuse.daemon.metrics import Status, families

log = logging.getLogger(__name__)

INTERVAL = 15.0
"""Seconds between two writings."""
LAST_WRITING = 1.0
"""Seconds that the last one may take."""


class MetricsFile:
    """Writes metrics to ``path`` for as long as it runs, and once more at the end.

    ``status`` is called on the event loop, every ``interval`` seconds. What is wrong with the
    file is logged, once.
    """

    def __init__(
        self, path: Path, status: Callable[[], Status], interval: float = INTERVAL
    ) -> None:
        self._path = path
        self._status = status
        self._interval = interval
        self._is_serving = True
        self._writing = threading.Lock()
        self._is_failing = False
        self._process = ProcessCollector(namespace="chromafuse", registry=None)

    async def run(self) -> None:
        """Write again and again until cancelled."""
        try:
            while True:
                await self._write()
                await trio.sleep(self._interval)
        finally:
            self._is_serving = False
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_WRITING):
                await self._write()

    async def _write(self) -> None:
        try:
            text = self._text()
            await trio.to_thread.run_sync(self._replace, text, abandon_on_cancel=True)
        except OSError as error:
            if not self._is_failing:
                log.error("metrics cannot be written to %s: %s", self._path, error.strerror)
            self._is_failing = True
        except Exception:
            # Somebody's bug: it costs the metrics, not the mount.
            if not self._is_failing:
                log.exception("unexpected error while writing metrics to %s", self._path)
            self._is_failing = True
        else:
            if self._is_failing:
                log.info("metrics are written to %s again", self._path)
            self._is_failing = False

    def _replace(self, text: bytes) -> None:
        """Put ``text`` in the place of the file, so that nobody reads a part of it.

        The collector reads what ends in ``.prom``, which the other file does not.
        """
        other = self._path.with_name(f".{self._path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        # One that was abandoned may still go on.
        with self._writing:
            try:
                with open(os.open(other, flags, 0o600), "wb") as file:
                    file.write(text)
                    # Whatever the umask of a service is: the collector is another user.
                    os.fchmod(file.fileno(), 0o644)
                os.replace(other, self._path)
            except OSError:
                with suppress(OSError):
                    os.unlink(other)
                raise

    def _text(self) -> bytes:
        status = self._status()
        # As metrics are UTF-8, and a path may be any bytes.
        place = os.fsencode(str(status["mountpoint"])).decode(errors="replace")
        up = GaugeMetricFamily(
            "chromafuse_up", "Whether the daemon serves; 0 in what it wrote last.",
            float(self._is_serving),
        )  # fmt: skip
        registry = CollectorRegistry()
        registry.register(_Labelled([up, *families(status), *self._process.collect()], place))
        return generate_latest(registry)


class _Labelled(Collector):
    def __init__(self, found: list[Metric], place: str) -> None:
        self._found = found
        self._place = place

    def describe(self) -> list[Metric]:
        """Return nothing, so that nothing is collected to find out."""
        return []

    def collect(self) -> Iterator[Metric]:
        for family in self._found:
            family.samples = [
                sample._replace(labels={"mountpoint": self._place, **sample.labels})
                for sample in family.samples
            ]
            yield family
