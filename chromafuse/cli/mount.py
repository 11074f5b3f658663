"""``mount`` and ``umount``."""

from __future__ import annotations

from typing import Annotated

import typer

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
from chromafuse.cli.daemons import daemon_of
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
)
from chromafuse.cli.options import (
    AllowOther,
    CacheSize,
    EmptyGroups,
    Foreground,
    HideLargeFromGrep,
    LogFile,
    MaxStale,
    Metrics,
    MetricsFile,
    MountPoint,
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
    daemon_flags,
)
from chromafuse.domain.errors import MountError
from chromafuse.fs import ending, mounts
from chromafuse.fs import mountpoint as mountpoints

UMOUNT_SECONDS = 20.0


@app.command()
def mount(
    mountpoint: MountPoint,
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
    foreground: Foreground = False,
    allow_other: AllowOther = None,
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
    metrics: Metrics = None,
    metrics_file: MetricsFile = None,
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
    """Mount a collection as a folder; returns once the mount answers.

    \b
    Examples:
      chromafuse mount /mnt/docs --collection docs
      chromafuse mount /mnt/docs -c docs --chroma http://127.0.0.1:8000
      chromafuse mount /mnt/docs -c docs --groups admin,billing
      chromafuse mount /mnt/docs -c docs --token-file ~/token --jwt-key public.pem
      chromafuse mount /mnt/docs -c docs --foreground --log-level debug
    """
    # Before there is any other local name.
    flags = daemon_flags(locals(), "mountpoint", "foreground", "config")
    from chromafuse import config as configuration
    from chromafuse.cli import background
    from chromafuse.daemon.role import Role
    from chromafuse.tokens import grant_from

    settings = configuration.load(flags, config)
    role = Role(grant_from(settings))
    mounts.check_fuse(allow_other=settings.allow_other)
    real = mountpoints.prepare(mountpoint, daemon_of)
    settings = background.absolute(settings, real, foreground=foreground)
    background.run(settings, real, role, foreground=foreground)


@app.command()
def umount(
    mountpoint: Annotated[
        str,
        typer.Argument(metavar="MOUNTPOINT", parser=given_place, help="Where it is mounted."),
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
    found = mounts.require_mount(mountpoint)
    pid = daemon_of(found)
    was = ending.unmount(found, pid, lazy=lazy)
    if lazy and pid is not None and not ending.wait_for_exit(pid, 1.0):
        if was is ending.Condition.HUNG:
            print(f"detached; the daemon (pid {pid}) does not answer: end it with `kill -9 {pid}`")
        else:
            print(f"detached; the daemon (pid {pid}) ends when nobody uses it any more")
    elif pid is not None and not ending.wait_for_exit(pid, UMOUNT_SECONDS):
        raise MountError(
            f"unmounted, but the daemon (pid {pid}) still runs",
            remedy=f"kill {pid}",
        )
