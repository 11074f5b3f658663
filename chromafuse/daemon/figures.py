"""The numbers of a daemon's status, by name: what metrics tell and ``top`` makes rates of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the status, or as many as a ``*`` in its ``path`` stands for.

    ``path`` are the keys that lead to it, with dots; ``label`` says what the ``*`` is. ``grows``:
    it only grows while the daemon lives. ``metric`` is its name among the metrics.
    """

    path: str
    text: str
    grows: bool = False
    label: str = ""
    metric: str = ""

    @property
    def name(self) -> str:
        """The name of the metric, without what all of them begin with."""
        return self.metric or self.path.replace(".*", "").replace(".", "_")

    def values(self, status: Mapping[str, object]) -> Mapping[str, float]:
        """Return what ``status`` tells, by label; nothing if it does not tell it."""
        found = {}
        for label, value in _at(status, self.path.split(".")):
            if isinstance(value, int | float):
                found[label] = float(value)
        return found


def _at(node: object, keys: list[str]) -> Iterator[tuple[str, object]]:
    """Yield what ``keys`` lead to, each with what a ``*`` stood for, or the empty string."""
    if not keys:
        yield "", node
    elif isinstance(node, Mapping) and keys[0] == "*":
        for name, below in node.items():
            for _, value in _at(below, keys[1:]):
                yield str(name), value
    elif isinstance(node, Mapping) and keys[0] in node:
        yield from _at(node[keys[0]], keys[1:])


FIGURES = (
    Figure("pages", "Pages in the tree."),
    Figure("directories", "Directories in the tree."),
    Figure("bytes", "Bytes of all pages.", metric="tree_bytes"),
    Figure("damaged_pages", "Pages whose chunks are not as the tree says."),
    Figure("rejected_entries.*", "Entries of the tree that are not shown.", label="reason"),
    Figure("uptime_seconds", "Since the daemon began."),
    Figure("open_files", "Files that are open."),
    Figure("sessions", "Sessions of a hub."),
    Figure("grant_expires", "End of a token.", metric="grant_expires_timestamp_seconds"),
    Figure("requests.*", "Requests of the kernel.", grows=True, label="kind"),
    Figure("cache.pages", "Pages and blocks in memory."),
    Figure("cache.used_bytes", "Memory that they take."),
    Figure("cache.max_bytes", "The bound of it."),
    Figure("reads.hits", "Files opened whose content was in memory.", grows=True),
    Figure("reads.misses", "Fetches begun.", grows=True),
    Figure("reads.requests", "Requests to Chroma for pages.", grows=True),
    Figure("reads.request_seconds", "How long fetches took, Redis included.", grows=True),
    Figure("reads.pages_fetched", "Pages fetched.", grows=True),
    Figure("reads.bytes_fetched", "Their bytes.", grows=True),
    Figure("reads.pages_ahead", "Pages fetched ahead of a walk.", grows=True),
    Figure("reads.errors", "Fetches of pages that failed.", grows=True),
    Figure("searches.*", "Listings for searches.", grows=True, label="shown"),
    Figure("warm_up.pages", "Pages that the warm-up has fetched."),
    Figure("warm_up.of", "Pages that it is to fetch.", metric="warm_up_pages_wanted"),
    Figure("refresh.refreshes", "Trees shown since.", grows=True, metric="refreshes"),
    Figure("refresh.stale", "Whether the tree is older than --max-stale.", metric="stale"),
    Figure("refresh.behind", "Whether another tree is stored than is shown.", metric="behind"),
    Figure("refresh.age_seconds", "Since the tree was checked.", metric="tree_age_seconds"),
    Figure("chroma.ok", "Whether Chroma answered last.", metric="chroma_up"),
    Figure("redis.ok", "Whether Redis answered last.", metric="redis_up"),
    Figure("redis.hits", "Pages and blocks that Redis had.", grows=True),
    Figure("redis.misses", "Pages and blocks that it had not.", grows=True),
    Figure("redis.errors", "Requests to Redis that failed.", grows=True),
    Figure("objects.ok", "Whether files outside Chroma could be read last.", metric="objects_up"),
    Figure("objects.hits", "Blocks of such files that were in memory.", grows=True),
    Figure("objects.misses", "Blocks that were not.", grows=True),
    Figure("objects.blocks_fetched", "Blocks fetched.", grows=True),
    Figure("objects.blocks_ahead", "Blocks fetched ahead of a reader.", grows=True),
    Figure("objects.bytes_fetched", "Their bytes.", grows=True),
    Figure("objects.errors", "Reads of blocks that failed.", grows=True),
    Figure("backends.*.errors", "Requests to a backend that failed.", True, "backend",
           "backend_errors"),
    Figure("backends.*.running", "Requests to a backend under way.", False, "backend",
           "backend_requests_running"),
)  # fmt: skip
"""All of them but the histograms of ``backends``."""
