"""``run``: a command that sees the docs, and nobody else does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chromafuse.cli import session
from chromafuse.cli.app import (
    Chroma,
    Collection,
    Config,
    Deadline,
    Groups,
    LogLevel,
    app,
    given_place,
)
from chromafuse.cli.identity import (
    Audience,
    GroupsClaim,
    GroupsDelimiter,
    JwtAlgorithms,
    JwtKey,
    JwtLeeway,
    TokenFd,
    TokenFile,
    TokensFile,
    token_flags,
    verifier_flags,
)
from chromafuse.cli.options import (
    CacheSize,
    EmptyGroups,
    HideLargeFromGrep,
    LogFile,
    MaxStale,
    Pin,
    PointerGrepMax,
    PointersAllowed,
    Pushdown,
    Redis,
    RedisTtl,
    Refresh,
    S3Endpoint,
    S3Profile,
    S3Region,
    SearchTimeout,
    Warm,
)
from chromafuse.domain.errors import ConfigError, SessionUnknown
from chromafuse.fs import mounts, private

if TYPE_CHECKING:
    from chromafuse.fs.private import Place, PrivateNamespace

LOG_NAME = "run"
"""In a log file's name, where other daemons have their mount point."""


@app.command("run", context_settings={"allow_interspersed_args": False})
def run_(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="What to run, with its arguments.")
    ],
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="DIR",
            parser=given_place,
            help="Where the command sees the docs; need not exist in the root directory.",
        ),
    ] = "/docs",
    hub: Annotated[
        str | None,
        typer.Option(
            "--hub",
            metavar="DIR",
            parser=given_place,
            help="Take a session of this hub; default without a collection: this user's only hub.",
        ),
    ] = None,
    collection: Collection = None,
    chroma: Chroma = None,
    groups: Groups = None,
    token_file: TokenFile = None,
    token_fd: TokenFd = None,
    jwt_key: JwtKey = None,
    jwt_algorithms: JwtAlgorithms = None,
    jwt_leeway: JwtLeeway = None,
    audience: Audience = None,
    groups_claim: GroupsClaim = None,
    groups_delimiter: GroupsDelimiter = None,
    tokens_file: TokensFile = None,
    cache_size: CacheSize = None,
    deadline: Deadline = None,
    redis: Redis = None,
    redis_ttl: RedisTtl = None,
    warm: Warm = None,
    refresh: Refresh = None,
    pin: Pin = None,
    pushdown: Pushdown = None,
    search_timeout: SearchTimeout = None,
    max_stale: MaxStale = None,
    pointers_allowed: PointersAllowed = None,
    pointer_grep_max: PointerGrepMax = None,
    hide_large_from_grep: HideLargeFromGrep = None,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
    s3_profile: S3Profile = None,
    empty_groups: EmptyGroups = None,
    log_file: LogFile = None,
    log_level: LogLevel = None,
    config: Config = None,
) -> None:
    """Run a command that sees the docs as a folder; nobody else does, and nothing stays behind.

    The command and what it starts see the docs at /docs (--at). The exit code is the command's:
    126 if it cannot be executed, 127 if it is not found. If chromafuse itself fails, the command
    has not run, and a line on standard error begins with "chromafuse:".

    \b
    Examples:
      chromafuse run -c docs -- grep -rn "rate limit" /docs
      chromafuse run -c docs --groups admin,billing -- bash
      chromafuse run -c docs --token-file ~/token --jwt-key public.pem --at ~/site -- ls ~/site
      chromafuse run --hub /run/docs --token-file ~/token -- my-agent
    """
    from chromafuse.cli import launch
    from chromafuse.tokens import TOKEN_VARIABLE

    environment = launch.given_environment(without=TOKEN_VARIABLE)
    own: dict[str, object] = {
        "collection": collection,
        "chroma": chroma,
        "cache_size": cache_size,
        "deadline": deadline,
        "redis": redis,
        "redis_ttl": redis_ttl,
        "warm": warm,
        "refresh": refresh,
        "pin": pin,
        "pushdown": pushdown,
        "search_timeout": search_timeout,
        "max_stale": max_stale,
        "pointers_allowed": pointers_allowed or None,
        "pointer_grep_max": pointer_grep_max,
        "hide_large_from_grep": hide_large_from_grep,
        "s3_endpoint": s3_endpoint,
        "s3_region": s3_region,
        "s3_profile": s3_profile,
        "empty_groups": empty_groups,
        "log_file": log_file,
        "log_level": log_level,
        **verifier_flags(
            jwt_key=jwt_key,
            jwt_algorithms=jwt_algorithms,
            jwt_leeway=jwt_leeway,
            audience=audience,
            groups_claim=groups_claim,
            groups_delimiter=groups_delimiter,
            tokens_file=tokens_file,
        ),
    }
    place = private.find_place(at)
    chosen = _choose_hub(hub, {**own, "config": config})
    if chosen is not None:
        namespace = _through_hub(chosen, session.reader_of(groups, token_file, token_fd), place)
    else:
        reader = {"groups": groups, **token_flags(token_file, token_fd)}
        namespace = _through_daemon({**own, **reader}, config, place)
    launch.become(command, environment, namespace)


def _choose_hub(hub: str | None, own: Mapping[str, object]) -> mounts.Mount | None:
    """Return the hub that is asked for or, if no collection is, the only one of this user.

    None stands for a daemon of our own. Raises ``ConfigError`` and ``SessionUnknown``.
    """
    given = ["--" + name.replace("_", "-") for name, value in own.items() if value is not None]
    if hub is not None:
        if given:
            raise ConfigError(
                f"--hub and {', '.join(given)} exclude each other",
                remedy="the hub has settings of its own",
            )
        return session.find_hub(hub)
    from chromafuse.config import is_set

    if given or is_set("collection"):
        return None
    try:
        return session.find_hub(None)
    except SessionUnknown:
        return None  # the missing collection is what to tell of


def _through_hub(hub: mounts.Mount, reader: Mapping[str, object], place: Place) -> PrivateNamespace:
    from chromafuse.cli import launch

    with session.connect(hub) as client:
        # Our process becomes the command: the session ends with it.
        answer = session.ask(client, "open", pid=os.getpid(), **reader)
    return launch.show_session(str(answer["path"]), place)


def _through_daemon(
    flags: Mapping[str, object], config: Path | None, place: Place
) -> PrivateNamespace:
    from chromafuse import config as configuration
    from chromafuse.cli import background, launch
    from chromafuse.tokens import grant_from

    settings = configuration.load(flags, config)
    grant = grant_from(settings)
    mounts.check_device()
    settings = background.absolute(settings, LOG_NAME, foreground=False)
    return launch.show_by_daemon(settings, grant, place)
