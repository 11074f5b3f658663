"""``hub``: one mount for any number of sessions."""

from __future__ import annotations

from chromafuse.cli.app import Chroma, Collection, Config, Deadline, LogLevel, app
from chromafuse.cli.daemons import daemon_of
from chromafuse.cli.identity import (
    Audience,
    GroupsClaim,
    GroupsDelimiter,
    JwtAlgorithms,
    JwtKey,
    JwtLeeway,
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
from chromafuse.domain.errors import ConfigError
from chromafuse.fs import mountpoint as mountpoints
from chromafuse.fs import mounts


@app.command()
def hub(
    mountpoint: MountPoint,
    collection: Collection = None,
    chroma: Chroma = None,
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
    """Mount a collection for many readers, each of whom gets a session of their own.

    Nothing is visible at the mount itself: `chromafuse session open` prints the path of a
    session, which shows what its holder may see. End it with `chromafuse umount`.

    \b
    Examples:
      chromafuse hub /run/docs --collection docs --jwt-key public.pem
      chromafuse session open --token-file ~/token
      chromafuse session open --groups admin --ttl 3600
    """
    # Before there is any other local name.
    flags = daemon_flags(locals(), "mountpoint", "foreground", "config")
    from chromafuse import config as configuration
    from chromafuse.cli import background
    from chromafuse.daemon.role import Role
    from chromafuse.tokens import forget_variable, verifier_from

    settings = configuration.load(flags, config)
    forget_variable()
    own = (settings.groups, settings.token, settings.token_file, settings.token_fd)
    if any(value is not None for value in own):
        raise ConfigError(
            "a hub is nobody: groups and tokens belong to its sessions",
            remedy="remove groups and tokens from the environment and the configuration file",
        )
    role = Role(verifier=verifier_from(settings))
    mounts.check_fuse(allow_other=settings.allow_other)
    real = mountpoints.prepare(mountpoint, daemon_of)
    settings = background.absolute(settings, real, foreground=foreground)
    background.run(settings, real, role, foreground=foreground)
