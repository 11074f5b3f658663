"""``session``: opening, listing and closing sessions of a running hub.

Talks to the hub and imports nothing heavy: a session is opened for every job of a busy machine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from chromafuse import control
from chromafuse.cli import bind as binding
from chromafuse.cli.app import Groups, app, given_path, given_place
from chromafuse.cli.identity import TokenFd, TokenFile
from chromafuse.domain.errors import ChromafuseError, ConfigError, SessionUnknown
from chromafuse.fs import mounts

sessions = typer.Typer(
    name="session",
    no_args_is_help=True,
    help="Open, list and close the sessions of a running hub.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,
)
app.add_typer(sessions)

Hub = Annotated[
    str | None,
    typer.Option(
        "--hub",
        metavar="DIR",
        parser=given_place,
        help="The hub's mount point; default: the only hub of this user.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

HELD = (
    "closed; a process inside is in the middle of a listing: the names it knows go when that ends"
)


@sessions.command("open")
def open_(
    groups: Groups = None,
    token_file: TokenFile = None,
    token_fd: TokenFd = None,
    hub: Hub = None,
    bind: Annotated[
        str | None,
        typer.Option(
            "--bind",
            metavar="TARGET",
            parser=given_place,
            help="Bind the session to this directory (as root).",
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", metavar="SECONDS", help="End the session after this time."),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option("--pid", metavar="PID", help="End the session when this process ends."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a session and print its path. Without groups or token: the anonymous view.

    \b
    Examples:
      chromafuse session open
      chromafuse session open --groups admin,billing --ttl 3600
      chromafuse session open --token-file ~/token --bind /srv/job-17/docs
      CHROMAFUSE_TOKEN=… chromafuse session open --json | jq -r .path
    """
    request = {**reader_of(groups, token_file, token_fd), "ttl": ttl, "pid": pid}
    target = None if bind is None else os.path.realpath(bind)
    if target is not None:
        request["bound"] = target
    found = find_hub(hub)
    with connect(found) as client:
        answer = ask(client, "open", **request)
        if target is not None:
            try:
                binding.bind(str(answer["path"]), target)
            except BaseException:
                ask(client, "close", session=answer["session"])
                raise
    _print_whole(json.dumps(answer) if as_json else target or str(answer["path"]))


@sessions.command("list")
def list_(hub: Hub = None, as_json: AsJson = False) -> None:
    """List the sessions, the oldest first.

    \b
    Examples:
      chromafuse session list
      chromafuse session list --json | jq -r '.[].path'
    """
    with connect(find_hub(hub)) as client:
        answer = ask(client, "list")
    found: list[Any] = answer["sessions"]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for one in found:
        print(one["session"], *_words(one), sep="  ")


@sessions.command()
def close(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, its path, or where it is bound.")
    ],
    hub: Hub = None,
) -> None:
    """Close a session; its names are gone when this returns, unless a process inside holds them.

    \b
    Examples:
      chromafuse session close /run/docs/4PmY…
      chromafuse session close /srv/job-17/docs
    """
    for found in [find_hub(hub)] if hub is not None else _hubs():
        with connect(found) as client:
            name = _id_of(client, session)
            answer = None if name is None else ask(client, "close", session=name)
        if answer is not None:
            if answer["bound"]:
                binding.unbind(str(answer["bound"]), str(answer["session"]))
            if answer["held"]:
                print(HELD)
            return
    raise SessionUnknown("there is no such session", remedy="see `chromafuse session list`")


def reader_of(groups: str | None, token_file: Any, token_fd: int | None) -> dict[str, object]:
    """Return what tells a hub for whom to open a session.

    Raises ``ConfigError`` and ``TokenError``.
    """
    from chromafuse.tokens import read_token

    given = _Given(groups, token_file, token_fd)
    token = read_token(given)
    if token is not None:
        return {"token": token}
    return {} if given.groups is None else {"groups": given.groups}


class _Given:
    """What options and environment say, in the form that the token's reader wants.

    Configuration files are for daemons: to read them takes longer than all the rest.
    """

    def __init__(self, groups: str | None, token_file: Any, token_fd: int | None) -> None:
        groups = os.environ.get("CHROMAFUSE_GROUPS") if groups is None else groups
        self.groups = None if groups is None else [name.strip() for name in groups.split(",")]
        if self.groups is not None and "" in self.groups:
            raise ConfigError("--groups holds an empty name")
        if token_file is None and (named := os.environ.get("CHROMAFUSE_TOKEN_FILE")) is not None:
            token_file = given_path(named)
        self.token_file = token_file
        if token_fd is None and (number := os.environ.get("CHROMAFUSE_TOKEN_FD")) is not None:
            if not number.isdecimal() or not number.isascii():
                raise ConfigError("CHROMAFUSE_TOKEN_FD is not a number")
            token_fd = int(number)
        self.token_fd = token_fd
        self.token = _Secret.from_environment()


class _Secret:
    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def from_environment(cls) -> _Secret | None:
        value = os.environ.get("CHROMAFUSE_TOKEN")
        return None if value is None else cls(value)

    def get_secret_value(self) -> str:
        return self._value


def find_hub(given: str | None) -> mounts.Mount:
    """Return the hub that is meant. Raises ``SessionUnknown``."""
    if given is not None:
        found = mounts.find_mount(given)
        if found is None:
            raise SessionUnknown(f"no hub runs at {given}", remedy="see `chromafuse status`")
        return found
    hubs = _hubs()
    if len(hubs) > 1:
        places = ", ".join(hub.path for hub in hubs)
        raise ConfigError(f"several hubs run: {places}", remedy="choose one with --hub")
    return hubs[0]


def _hubs() -> list[mounts.Mount]:
    """Return the hubs of this user, at least one. Raises ``SessionUnknown``."""
    uid = os.geteuid()
    hubs = [found for found in mounts.own_mounts() if uid in (0, found.uid) and _is_hub(found)]
    if not hubs:
        raise SessionUnknown("no hub runs for this user", remedy="start one: `chromafuse hub DIR`")
    return hubs


def _is_hub(found: mounts.Mount) -> bool:
    try:
        with control.Client(found.path, found.uid) as client:
            return client.ask("status").get("role") == "hub"
    except (OSError, ValueError):
        return False


def connect(hub: mounts.Mount) -> control.Client:
    """Return a connection to a hub. Raises ``SessionUnknown``."""
    try:
        return control.Client(hub.path, hub.uid)
    except OSError as error:
        raise SessionUnknown(
            f"the hub at {hub.path} does not answer: {error.strerror or error}",
            remedy="see `chromafuse status`",
        ) from None


class _Refused(ChromafuseError):
    """What the hub told."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def ask(client: control.Client, command: str, **arguments: object) -> dict[str, Any]:
    """Return the hub's answer. Raises ``ChromafuseError`` for what it refuses."""
    try:
        answer = client.ask(command, **arguments)
    except (OSError, ValueError) as error:
        raise SessionUnknown(f"the hub does not answer: {error}") from None
    if answer.get("error") == "unknown command":
        raise SessionUnknown("that mount is no hub", remedy="start one: `chromafuse hub DIR`")
    if "error" in answer:
        code = answer.get("code")
        raise _Refused(str(answer["error"]), code if isinstance(code, int) else 1)
    return answer


def _id_of(client: control.Client, given: str) -> str | None:
    """Return the id of the session that is meant by id, path or bind target, or None."""
    place = os.path.realpath(os.path.dirname(given) or ".")
    path = os.path.join(place, os.path.basename(given))
    # A directory may have been taken from an older session by hand and given to a later one.
    for one in reversed(ask(client, "list")["sessions"]):
        if given == one["session"] or path in (one["path"], one["bound"]):
            return str(one["session"])
    return None


def _words(one: Mapping[str, Any]) -> list[str]:
    from chromafuse.log import printable

    now = time.time()
    groups, ends, expires = one["groups"], one["ends"], one["grant_expires"]
    words = ["anonymous" if groups is None else "groups " + (",".join(groups) or "none")]
    words.append(f"{one['pages']} pages")
    words.append(f"open for {now - one['opened']:.0f} s")
    if expires is not None:
        words.append(f"token ends in {expires - now:.0f} s")
    if ends is not None:
        words.append(f"ends in {ends - now:.0f} s")
    if one["bound"]:
        words.append(f"bound to {one['bound']}")
    return [printable(word) for word in words]


def _print_whole(line: str) -> None:
    """Print a path or JSON: a path that is no text comes out as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(line) + b"\n")
    sys.stdout.buffer.flush()
