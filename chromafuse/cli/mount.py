"""``mount``, ``umount`` and ``status``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from chromafuse.cli.app import (
    Chroma,
    Collection,
    Config,
    Deadline,
    Groups,
    LogLevel,
    app,
    complain,
    given_path,
)
from chromafuse.domain.errors import ChromafuseError, MountError
from chromafuse.fs import mounts

if TYPE_CHECKING:
    from chromafuse.config import Settings


def _given_place(text: str) -> str:
    """Return a mount point as it was given: a ``Path`` would lose a slash at its end."""
    given_path(text)
    return text


MountPoint = Annotated[
    str, typer.Argument(metavar="MOUNTPOINT", parser=_given_place, help="An empty directory.")
]

UMOUNT_SECONDS = 20.0


@app.command()
def mount(
    mountpoint: MountPoint,
    collection: Collection = None,
    chroma: Chroma = None,
    groups: Groups = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", "-f", help="Stay, and log to stderr.")
    ] = False,
    allow_other: Annotated[
        bool | None,
        typer.Option("--allow-other", help="Let other users in (needs user_allow_other)."),
    ] = None,
    cache_size: Annotated[
        str | None,
        typer.Option("--cache-size", metavar="BYTES", help="Memory for page contents [256M]."),
    ] = None,
    deadline: Deadline = None,
    redis: Annotated[
        str | None,
        typer.Option(
            "--redis",
            metavar="URL",
            help="Share page contents with other daemons: redis://, rediss:// or unix://.",
        ),
    ] = None,
    redis_ttl: Annotated[
        int | None,
        typer.Option(
            "--redis-ttl", metavar="SECONDS", help="How long Redis keeps a page [604800]."
        ),
    ] = None,
    warm: Annotated[
        str | None,
        typer.Option(
            "--warm",
            metavar="auto|off|all",
            help="Fetch pages in the background; auto: if all fit into the cache.",
        ),
    ] = None,
    max_stale: Annotated[
        float | None,
        typer.Option(
            "--max-stale",
            metavar="SECONDS",
            help="Without Chroma, show the tree last seen at most this long ago [3600].",
        ),
    ] = None,
    empty_groups: Annotated[
        str | None,
        typer.Option(
            "--empty-groups",
            metavar="hidden|authenticated",
            help="Who sees pages of another tool's tree that are neither public nor in a group.",
        ),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file",
            metavar="FILE",
            parser=given_path,
            help="Log here instead of the state directory.",
        ),
    ] = None,
    log_level: LogLevel = None,
    config: Config = None,
) -> None:
    """Mount a collection as a folder; returns once the mount answers.

    \b
    Examples:
      chromafuse mount /mnt/docs --collection docs
      chromafuse mount /mnt/docs -c docs --chroma http://127.0.0.1:8000
      chromafuse mount /mnt/docs -c docs --groups admin,billing
      chromafuse mount /mnt/docs -c docs --foreground --log-level debug
    """
    from chromafuse import config as configuration

    flags: dict[str, object] = {
        "collection": collection,
        "chroma": chroma,
        "groups": groups,
        "allow_other": allow_other,
        "cache_size": cache_size,
        "deadline": deadline,
        "redis": redis,
        "redis_ttl": redis_ttl,
        "warm": warm,
        "max_stale": max_stale,
        "empty_groups": empty_groups,
        "log_file": log_file,
        "log_level": log_level,
    }
    settings = configuration.load(flags, config)
    mounts.check_fuse(allow_other=settings.allow_other)
    real = mounts.prepare_mount_point(mountpoint)
    settings = _absolute(settings, real, foreground=foreground)
    if foreground:
        _serve(settings, real, _Announcer())
    else:
        _in_background(settings, real)


def _absolute(settings: Settings, mount_point: str, *, foreground: bool) -> Settings:
    """Return ``settings`` with paths that hold in a process without a working directory."""
    from chromafuse.config import xdg

    changes: dict[str, object] = {}
    if "://" not in settings.chroma:
        changes["chroma"] = os.path.abspath(os.path.expanduser(settings.chroma))
    if settings.log_file is not None:
        changes["log_file"] = Path(os.path.abspath(settings.log_file.expanduser()))
    elif not foreground:
        name = mount_point.strip("/").replace("/", "-")[-100:] or "root"
        state = xdg("XDG_STATE_HOME", ".local/state") / "chromafuse"
        changes["log_file"] = state / f"{settings.collection}-{name}.log"
    return settings.model_copy(update=changes)


class _Announcer:
    """Tells a person at a terminal."""

    def note(self, text: str) -> None:
        complain(text)

    def ready(self, text: str) -> None:
        complain(f"mounted {text}")


class _Pipe:
    """Tells the process that waits at the other end of a pipe, one JSON object a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def note(self, text: str) -> None:
        self.send(note=text)

    def ready(self, text: str) -> None:
        self.send(ready=text)
        os.close(self._descriptor)

    def send(self, **event: object) -> None:
        try:
            os.write(self._descriptor, json.dumps(event).encode() + b"\n")
        except BrokenPipeError:
            return  # who started us no longer waits


def _serve(settings: Settings, mount_point: str, listener: Any) -> None:
    from chromafuse import daemon, log

    try:
        log.configure(settings.log_level, settings.log_file)
    except OSError as error:
        raise MountError(
            f"cannot write the log {settings.log_file}: {error.strerror}",
            remedy="choose another --log-file",
        ) from None
    daemon.run(settings, mount_point, listener)


def _in_background(settings: Settings, mount_point: str) -> None:
    """Serve in a process of its own; return once it says that the mount answers.

    It is forked before anything with threads is imported.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _detached(settings, mount_point, writing)
    os.close(writing)
    try:
        _await_ready(reading, settings, child)
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reading)


def _detached(settings: Settings, mount_point: str, writing: int) -> NoReturn:
    """Be the daemon: no terminal, no working directory, stderr into the log."""
    pipe = _Pipe(writing)
    code = 0
    try:
        os.setsid()
        os.chdir("/")
        _redirect(settings.log_file)
        _serve(settings, mount_point, pipe)
    except ChromafuseError as error:
        pipe.send(error=str(error), code=error.exit_code)
        code = error.exit_code
    except BaseException as error:
        import logging

        logging.getLogger("chromafuse").critical("crashed", exc_info=error)
        text = f"the daemon crashed: {type(error).__name__} (see {settings.log_file})"
        pipe.send(error=text, code=1)
        code = 1
    finally:
        # Not exit(): worker threads may still wait for Chroma.
        sys.stderr.flush()
        os._exit(code)


def _redirect(log_file: Path | None) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    target = null
    if log_file is not None:
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise MountError(
                f"cannot write the log {log_file}: {error.strerror}",
                remedy="choose another --log-file",
            ) from None
    os.dup2(target, 2)


def _await_ready(reading: int, settings: Settings, child: int) -> None:
    with os.fdopen(os.dup(reading), "rb") as stream:
        for line in stream:
            event = json.loads(line)
            if "ready" in event:
                return
            if "note" in event:
                complain(str(event["note"]))
            if "error" in event:
                os.waitpid(child, 0)
                raise _Told(str(event["error"]), int(event["code"]))
    raise MountError(
        "the daemon ended before the mount was ready", remedy=f"see {settings.log_file}"
    )


class _Told(ChromafuseError):
    """An error that the daemon told, with its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


@app.command()
def umount(
    mountpoint: Annotated[
        str,
        typer.Argument(metavar="MOUNTPOINT", parser=_given_place, help="Where it is mounted."),
    ],
    lazy: Annotated[
        bool, typer.Option("--lazy", "-l", help="Detach now, even if somebody still uses it.")
    ] = False,
) -> None:
    """End a mount; returns once its daemon is gone.

    \b
    Examples:
      chromafuse umount /mnt/docs
      chromafuse umount --lazy /mnt/docs
    """
    from chromafuse import control

    found = mounts.require_mount(mountpoint)
    pid: int | None
    try:
        with control.Client(found.path, found.uid) as client:
            pid = client.pid
    except OSError:
        pid = None
    mounts.unmount(found, lazy=lazy)
    if lazy and pid is not None and not mounts.wait_for_exit(pid, 1.0):
        print(f"detached; the daemon (pid {pid}) ends when nobody uses it any more")
    elif pid is not None and not mounts.wait_for_exit(pid, UMOUNT_SECONDS):
        raise MountError(
            f"unmounted, but the daemon (pid {pid}) still runs",
            remedy=f"kill {pid}",
        )


@app.command()
def status(
    mountpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[MOUNTPOINT]", parser=_given_place, help="Default: all mounts of this user."
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
    chosen = [mounts.require_mount(mountpoint)] if mountpoint else _mounts_of_this_user()
    answers = [_ask_status(found) for found in chosen]
    if as_json:
        print(json.dumps(answers, indent=2))
    elif not answers:
        print("nothing is mounted")
    else:
        for answer in answers:
            _print_status(answer)
    if any("error" in answer for answer in answers):
        raise typer.Exit(1)


def _mounts_of_this_user() -> list[mounts.Mount]:
    uid = os.geteuid()
    return [found for found in mounts.own_mounts() if uid in (0, found.uid)]


def _ask_status(found: mounts.Mount) -> dict[str, object]:
    from chromafuse import control

    unknown: dict[str, object] = {"mountpoint": found.path, "collection": found.source}
    try:
        with control.Client(found.path, found.uid) as client:
            return client.ask("status")
    except (FileNotFoundError, ConnectionRefusedError):
        problem = "its daemon is not one of this user, or has no control socket"
    except (OSError, ValueError) as error:
        return {**unknown, "error": f"the daemon does not answer: {error}"}
    if found.is_dead:
        problem = "its daemon is gone; `chromafuse umount` or a new `mount` cleans it up"
    return {**unknown, "error": problem}


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


def _warm_up(warm_up: Mapping[str, Any]) -> str:
    if warm_up["state"] == "off":
        return "off"
    return f"{warm_up['state']}, {warm_up['pages']} of {warm_up['of']} pages"


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "error" in answer:
        return [("collection", str(answer["collection"])), ("state", str(answer["error"]))]
    from rich.filesize import decimal

    cache, reads, groups = answer["cache"], answer["reads"], answer["groups"]
    rejected = answer["rejected_entries"]
    chroma = answer["chroma"]
    return [
        ("from", str(answer["source"])),
        ("seen as", "anonymous" if groups is None else "groups " + ", ".join(groups)),
        (
            "pages",
            f"{answer['pages']} in {answer['directories']} directories, {decimal(answer['bytes'])}",
        ),
        ("tree version", str(answer["tree_version"])),
        ("rejected entries", ", ".join(f"{n} ({why})" for why, n in rejected.items()) or "none"),
        ("damaged pages", str(answer["damaged_pages"])),
        (
            "cache",
            f"{decimal(cache['used_bytes'])} of {decimal(cache['max_bytes'])},"
            f" {cache['pages']} pages",
        ),
        ("warm-up", _warm_up(answer["warm_up"])),
        ("opens", f"{reads['hits']} from memory, {reads['misses']} from Chroma"),
        ("Chroma", chroma["error"] or f"ok, {reads['requests']} requests"),
        (
            "daemon",
            f"pid {answer['pid']}, version {answer['version']},"
            f" up {answer['uptime_seconds']:.0f} s",
        ),
        ("log", str(answer["log_file"] or "stderr")),
    ]
