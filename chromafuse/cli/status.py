"""``status``: mounts and how they are doing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from chromafuse.cli.app import app, given_place
from chromafuse.cli.daemons import ask
from chromafuse.fs import mounts


@app.command()
def status(
    mountpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[MOUNTPOINT]", parser=given_place, help="Default: all mounts of this user."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Show mounts and how they are doing. Exit code 1 if one is dead or does not answer.

    \b
    Examples:
      chromafuse status
      chromafuse status /mnt/docs --json | jq '.[0].cache'
    """
    chosen = [mounts.require_mount(mountpoint)] if mountpoint else mounts_of_this_user()
    answers = [ask_status(found) for found in chosen]
    if as_json:
        print(json.dumps(answers, indent=2))
    elif not answers:
        print("nothing is mounted")
    else:
        for answer in answers:
            _print_status(answer)
    if any("error" in answer for answer in answers):
        raise typer.Exit(1)


def mounts_of_this_user() -> list[mounts.Mount]:
    """Return the mounts whose daemons this user may ask."""
    uid = os.geteuid()
    return [found for found in mounts.own_mounts() if uid in (0, found.uid)]


def ask_status(found: mounts.Mount) -> dict[str, object]:
    """Return a mount's status; ``error`` tells why there is none."""
    answer = ask(found, "status")
    if "error" in answer:
        return {"mountpoint": found.path, "collection": found.source, **answer}
    return answer


def _print_status(answer: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from chromafuse.log import printable

    # As a plain str, what somebody named would be read as markup.
    title = Text(printable(str(answer["mountpoint"])), "table.title")
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in _rows(answer):
        table.add_row(name, Text(printable(value)))
    Console(soft_wrap=True).print(table)


def _seen(answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return the row about who sees the mount, or a hub's about its sessions."""
    if answer["role"] == "hub":
        return "sessions", str(answer["sessions"])
    groups, expires = answer["groups"], answer["grant_expires"]
    text = "anonymous" if groups is None else "groups " + (", ".join(groups) or "none")
    if expires is not None:
        text += f", token ends in {expires - time.time():.0f} s"
    return "seen as", text


def _warm_up(warm_up: Mapping[str, Any]) -> str:
    if warm_up["state"] == "off":
        return "off"
    return f"{warm_up['state']}, {warm_up['pages']} of {warm_up['of']} pages"


def _freshness(refresh: Mapping[str, Any]) -> str:
    age = f"{refresh['age_seconds']:.0f} s ago"
    words = ["stale, " + age if refresh["stale"] else age]
    if refresh["behind"]:
        words.append("another one is stored" + (" (--pin)" if refresh["pinned"] else ""))
    if refresh["error"]:
        words.append(str(refresh["error"]))
    return ", ".join(words)


BACKENDS = {"chroma": "Chroma", "redis": "Redis", "s3": "S3", "file": "files"}
"""What requests go to, by the name that a status gives it, as a person reads it."""


def _backends(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a row for each place that the daemon asks: whether it works, how much and how fast."""
    chroma, redis, objects = answer["chroma"], answer["redis"], answer["objects"]
    states = {
        "chroma": chroma["error"] or "ok",
        "redis": "ok" if redis is None or redis["ok"] else "fails",
    }
    elsewhere = "ok" if objects is None or objects["ok"] else "fails"
    return [
        (BACKENDS.get(name, name), f"{states.get(name, elsewhere)}, {traffic(found)}")
        for name, found in answer["backends"].items()
    ]


def traffic(found: Mapping[str, Any]) -> str:
    """Return what a status tells of the requests to one backend, in words."""
    words = [f"{found['requests']} requests"]
    if found["requests"]:
        times = ("mean_seconds", "p50_seconds", "p99_seconds")
        mean, half, most = (shown_seconds(found[name]) for name in times)
        words += [f"mean {mean}", f"p50 {half}", f"p99 {most}"]
    if found["running"]:
        words.append(f"{found['running']} under way")
    if found["errors"]:
        words.append(f"{found['errors']} failed")
    return ", ".join(words)


def shown_seconds(seconds: float) -> str:
    """Return a time as a person reads it."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1_000:.3g} ms"


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "error" in answer:
        return [("collection", str(answer["collection"])), ("state", str(answer["error"]))]
    from rich.filesize import decimal

    cache, reads = answer["cache"], answer["reads"]
    rejected = answer["rejected_entries"]
    return [
        ("from", str(answer["source"])),
        _seen(answer),
        (
            "pages",
            f"{answer['pages']} in {answer['directories']} directories, {decimal(answer['bytes'])}",
        ),
        ("tree version", str(answer["tree_version"])),
        ("tree checked", _freshness(answer["refresh"])),
        ("rejected entries", ", ".join(f"{n} ({why})" for why, n in rejected.items()) or "none"),
        ("damaged pages", str(answer["damaged_pages"])),
        (
            "cache",
            f"{decimal(cache['used_bytes'])} of {decimal(cache['max_bytes'])},"
            f" {cache['pages']} pages",
        ),
        ("warm-up", _warm_up(answer["warm_up"])),
        ("opens", f"{reads['hits']} from memory, {reads['misses']} from Chroma"),
        *_backends(answer),
        (
            "daemon",
            f"pid {answer['pid']}, version {answer['version']},"
            f" up {answer['uptime_seconds']:.0f} s",
        ),
        ("log", str(answer["log_file"] or "stderr")),
    ]
