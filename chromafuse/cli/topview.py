"""What ``top`` shows of a mount, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from chromafuse.cli.rates import Traffic, rates, traffic
from chromafuse.cli.status import BACKENDS, shown_seconds
from chromafuse.cli.top import Watch
from chromafuse.log import printable


def tables(watches: Sequence[Watch]) -> list[Table]:
    """Return a table for each mount."""
    found = []
    for watch in watches:
        title = Text(printable(watch.mount.path), "table.title")
        table = Table(title=title, show_header=False, title_justify="left")
        for name, value in rows(watch):
            table.add_row(name, Text(printable(value)))
        found.append(table)
    return found


def rows(watch: Watch) -> list[tuple[str, str]]:
    """Return what is shown of a mount, as names and texts."""
    if not watch.is_mounted:
        return [("state", "unmounted")]
    waits, now, before = watch.waits, watch.now, watch.before
    if waits:
        return [("state", f"the daemon does not answer, for {waits:.0f} s now")]
    if now is None:
        return [("state", watch.error or "not asked yet")]
    state = (
        f"{now.status['role']} of {now.status['collection']}, pid {now.status['pid']},"
        f" up {now.status['uptime_seconds']:.0f} s"
    )
    if before is None:
        return [("state", state + ", first look")]
    return [
        ("state", state),
        *_flow(now.status, rates(before, now)),
        *_backends(traffic(before, now)),
        *_levels(now.status),
    ]


def _flow(status: Mapping[str, Any], found: Mapping[str, float]) -> list[tuple[str, str]]:
    kinds = {
        path.partition(".")[2]: value
        for path, value in found.items()
        if path.startswith("requests.") and value
    }
    most = sorted(kinds.items(), key=lambda one: -one[1])[:4]
    names = ", ".join(f"{name} {value:.1f}" for name, value in most)
    listed = [
        ("kernel", f"{sum(kinds.values()):.1f} requests/s" + (f" ({names})" if names else "")),
        (
            "opened",
            f"{kinds.get('open', 0.0):.1f} files/s, {found['reads.hits']:.1f}/s from memory,"
            f" {found['reads.misses']:.1f}/s fetched",
        ),
        (
            "fetched",
            f"{found['reads.pages_fetched']:.1f} pages/s,"
            f" {decimal(int(found['reads.bytes_fetched']))}/s,"
            f" {found['reads.pages_ahead']:.1f}/s of them ahead",
        ),
    ]
    if status["redis"] is not None:
        hits, misses = found["redis.hits"], found["redis.misses"]
        listed.append(("from Redis", f"{hits:.1f}/s, {misses:.1f}/s were not there"))
    if status["objects"] is not None:
        listed.append(
            (
                "blocks of files",
                f"{found['objects.hits']:.1f}/s from memory,"
                f" {found['objects.blocks_fetched']:.1f}/s fetched,"
                f" {decimal(int(found['objects.bytes_fetched']))}/s",
            )
        )
    if status["searches"] is not None:
        narrowed, full = (found.get(f"searches.{kind}", 0.0) for kind in ("narrowed", "full"))
        listed.append(("searches", f"{narrowed:.1f} listings/s narrowed, {full:.1f}/s full"))
    return listed


def _backends(found: Mapping[str, Traffic]) -> list[tuple[str, str]]:
    listed = []
    for name, one in found.items():
        words = [f"{one.per_second:.1f} requests/s"]
        if one.mean_seconds is not None and one.p99_seconds is not None:
            mean, most = shown_seconds(one.mean_seconds), shown_seconds(one.p99_seconds)
            words.append(f"mean {mean}, p99 {most}")
        if one.running:
            words.append(f"{one.running} under way")
        if one.errors_per_second:
            words.append(f"{one.errors_per_second:.1f}/s failed")
        listed.append((BACKENDS.get(name, name), ", ".join(words)))
    return listed


def _levels(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    cache, warm_up, refresh = status["cache"], status["warm_up"], status["refresh"]
    used = f"{decimal(cache['used_bytes'])} of {decimal(cache['max_bytes'])}"
    of = "" if warm_up["state"] == "off" else f", {warm_up['pages']} of {warm_up['of']} pages"
    age = f"checked {refresh['age_seconds']:.0f} s ago" + (", stale" if refresh["stale"] else "")
    failed = f"{status['reads']['errors']} fetches, {status['damaged_pages']} pages damaged"
    open_now = [f"{status['open_files']} files"]
    if status["role"] == "hub":
        open_now.append(f"{status['sessions']} sessions")
    return [
        ("open", ", ".join(open_now)),
        ("cache", f"{used}, {cache['pages']} pages"),
        ("warm-up", f"{warm_up['state']}{of}"),
        ("tree", f"{status['tree_version']}, {age}"),
        (
            "errors",
            failed + (f"; {status['chroma']['error']}" if status["chroma"]["error"] else ""),
        ),
    ]
