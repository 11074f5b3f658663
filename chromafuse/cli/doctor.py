"""``doctor``: what stands in the way of a mount, and how to mend it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chromafuse.cli.app import Chroma, Collection, Config, Deadline, app, complain
from chromafuse.cli.identity import (
    Audience,
    GroupsClaim,
    GroupsDelimiter,
    JwtAlgorithms,
    JwtKey,
    JwtLeeway,
    TokensFile,
    verifier_flags,
)
from chromafuse.cli.options import (
    AllowOther,
    LogFile,
    PointersAllowed,
    Redis,
    S3Endpoint,
    S3Profile,
    S3Region,
)

if TYPE_CHECKING:
    from chromafuse.doctor import Finding, Plan, Progress

FINDINGS = 13
"""Exit code when something wants mending."""
_UNNAMED = "unnamed"


@app.command()
def doctor(
    collection: Collection = None,
    chroma: Chroma = None,
    redis: Redis = None,
    pointers_allowed: PointersAllowed = None,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
    s3_profile: S3Profile = None,
    jwt_key: JwtKey = None,
    jwt_algorithms: JwtAlgorithms = None,
    jwt_leeway: JwtLeeway = None,
    audience: Audience = None,
    groups_claim: GroupsClaim = None,
    groups_delimiter: GroupsDelimiter = None,
    tokens_file: TokensFile = None,
    allow_other: AllowOther = None,
    log_file: LogFile = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every page and check that it is whole.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    deadline: Deadline = None,
    config: Config = None,
) -> None:
    """Examine machine, settings, mounts and site; name each fault with its cause and its remedy.

    Takes the options that a mount would get. Changes nothing. Exit code 13 if something wants
    mending.

    \b
    Examples:
      chromafuse doctor
      chromafuse doctor --collection docs --allow-other
      chromafuse doctor --collection docs --deep
      chromafuse doctor --json | jq '.findings'
    """
    from chromafuse.doctor import examine

    flags: dict[str, object] = {
        "collection": collection,
        "chroma": chroma,
        "redis": redis,
        "pointers_allowed": pointers_allowed or None,
        "s3_endpoint": s3_endpoint,
        "s3_region": s3_region,
        "s3_profile": s3_profile,
        "allow_other": allow_other,
        "log_file": log_file,
        "deadline": deadline,
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
    found = _told(examine(_plan(flags, config, deep=deep)), as_lines=not as_json)
    wrong = [finding for finding in found if finding.severity.wants_mending]
    if as_json:
        print(
            json.dumps(
                {"findings": list(map(_object, wrong)), "checks": list(map(_object, found))},
                indent=2,
            )
        )
    else:
        print(f"{len(wrong)} to mend" if wrong else "all is well")
    if wrong:
        raise typer.Exit(FINDINGS)


def _plan(flags: dict[str, object], config: Path | None, *, deep: bool) -> Plan:
    from chromafuse import config as configuration
    from chromafuse.doctor import Plan
    from chromafuse.domain.errors import ConfigError
    from chromafuse.tokens import forget_variable

    named = flags["collection"] is not None or configuration.is_set("collection", config)
    if not named:
        flags = {**flags, "collection": _UNNAMED}
    try:
        settings = configuration.load(flags, config)
    except ConfigError as error:
        return Plan(None, str(error))
    finally:
        forget_variable()
    return Plan(settings, has_collection=named, deep=deep)


def _told(events: Iterable[Finding | Progress], *, as_lines: bool) -> list[Finding]:
    """Return the findings, having shown them as they come, and progress on standard error."""
    from chromafuse.doctor import Finding
    from chromafuse.log import printable

    found = []
    for event in events:
        if not isinstance(event, Finding):
            complain(f"{event.done} of {event.total} pages read")
            continue
        found.append(event)
        if as_lines:
            print(f"{event.severity:<8}{printable(f'{event.check}: {event.text}')}")
            if event.mend:
                print(f"{'':<8}-> {printable(event.mend)}")
            sys.stdout.flush()
    return found


def _object(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "severity": str(finding.severity),
        "text": finding.text,
        "mend": finding.mend,
    }
