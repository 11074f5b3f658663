"""Options that every command which starts a daemon has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from chromafuse.cli.app import given_path, given_place

MountPoint = Annotated[
    str, typer.Argument(metavar="MOUNTPOINT", parser=given_place, help="An empty directory.")
]
Foreground = Annotated[bool, typer.Option("--foreground", "-f", help="Stay, and log to stderr.")]
AllowOther = Annotated[
    bool | None,
    typer.Option("--allow-other", help="Let other users in (needs user_allow_other)."),
]
CacheSize = Annotated[
    str | None,
    typer.Option("--cache-size", metavar="BYTES", help="Memory for page contents [256M]."),
]
Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="Share page contents with other daemons: redis://, rediss:// or unix://.",
    ),
]
RedisTtl = Annotated[
    int | None,
    typer.Option("--redis-ttl", metavar="SECONDS", help="How long Redis keeps a page [604800]."),
]
Warm = Annotated[
    str | None,
    typer.Option(
        "--warm",
        metavar="auto|off|all",
        help="Fetch pages in the background; auto: if all fit into the cache.",
    ),
]
Refresh = Annotated[
    float | None,
    typer.Option(
        "--refresh",
        metavar="SECONDS",
        help="How often to look for a new tree; 0: only when asked [5].",
    ),
]
Pin = Annotated[
    str | None,
    typer.Option("--pin", metavar="VERSION", help="Show this tree version only, and no later one."),
]
Pushdown = Annotated[
    str | None,
    typer.Option(
        "--pushdown",
        metavar="auto|cgrep|off",
        help="Show grep and rg only files that can match: to all, to cgrep, to nobody.",
    ),
]
SearchTimeout = Annotated[
    float | None,
    typer.Option(
        "--search-timeout",
        metavar="SECONDS",
        help="How long such a search may take before everything is shown [2].",
    ),
]
MaxStale = Annotated[
    float | None,
    typer.Option(
        "--max-stale",
        metavar="SECONDS",
        help="Without Chroma, show the tree last seen at most this long ago [3600].",
    ),
]
PointersAllowed = Annotated[
    list[str] | None,
    typer.Option(
        "--pointers-allowed",
        metavar="PLACE",
        help="Where files outside Chroma may be read: s3://bucket/prefix or file:///directory.",
    ),
]
PointerGrepMax = Annotated[
    str | None,
    typer.Option(
        "--pointer-grep-max",
        metavar="SIZE",
        help="Files outside Chroma up to this size are fetched for searches before they are"
        " opened, and left out if they cannot match [8MiB].",
    ),
]
HideLargeFromGrep = Annotated[
    bool | None,
    typer.Option(
        "--hide-large-from-grep",
        help="Do not list larger ones to grep and rg; they are then not searched.",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve metrics for Prometheus there, to whoever can connect.",
    ),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        parser=given_path,
        help="Write metrics there every 15 s, for node_exporter's textfile collector.",
    ),
]
S3Endpoint = Annotated[
    str | None,
    typer.Option("--s3-endpoint", metavar="URL", help="An S3 server other than AWS."),
]
S3Region = Annotated[
    str | None, typer.Option("--s3-region", metavar="NAME", help="The region [as boto3 finds it].")
]
S3Profile = Annotated[
    str | None,
    typer.Option("--s3-profile", metavar="NAME", help="The profile in the AWS configuration."),
]
EmptyGroups = Annotated[
    str | None,
    typer.Option(
        "--empty-groups",
        metavar="hidden|authenticated",
        help="Who sees pages of another tool's tree that are neither public nor in a group.",
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        metavar="FILE",
        parser=given_path,
        help="Log here instead of the state directory.",
    ),
]


def daemon_flags(given: Mapping[str, object], *others: str) -> dict[str, object]:
    """Return a command's options for ``config.load``: ``given`` without those of its own.

    ``given`` are the command's parameters by name, ``others`` the names that are no settings.
    An option that may be repeated and is not given is None, as all others are.
    """
    return {
        name: None if value == [] else value for name, value in given.items() if name not in others
    }
