"""Options that say who somebody is, and which tokens are accepted; for every command that asks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chromafuse.cli.app import given_path
from chromafuse.domain.errors import ConfigError

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        parser=given_path,
        help="See what the holder of the token in this file sees (also: CHROMAFUSE_TOKEN).",
    ),
]
TokenFd = Annotated[
    int | None,
    typer.Option("--token-fd", metavar="N", help="Read the token from this descriptor."),
]
JwtKey = Annotated[
    Path | None,
    typer.Option(
        "--jwt-key",
        metavar="FILE",
        parser=given_path,
        help="Accept JWTs signed with this key: PEM, JWKS or shared secret.",
    ),
]
JwtAlgorithms = Annotated[
    str | None,
    typer.Option(
        "--jwt-algorithms", metavar="A,B", help="Only these, such as PS256 [what fits the key]."
    ),
]
JwtLeeway = Annotated[
    float | None,
    typer.Option(
        "--jwt-leeway", metavar="SECONDS", help="How far the issuer's clock may be ahead [0]."
    ),
]
Audience = Annotated[
    str | None,
    typer.Option("--audience", metavar="TEXT", help="Accept JWTs for this audience only."),
]
GroupsClaim = Annotated[
    str | None,
    typer.Option(
        "--groups-claim",
        metavar="PATH",
        help="The claim with the groups, as in app.roles [groups].",
    ),
]
GroupsDelimiter = Annotated[
    str | None,
    typer.Option(
        "--groups-delimiter", metavar="TEXT", help="Between groups in a claim that is a text [,]."
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens-file",
        metavar="FILE",
        parser=given_path,
        help="Accept the tokens that this TOML file lists.",
    ),
]

AsGroups = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="A,B",
        help="What members of these groups see, and by which rule (for operators);"
        " '' is somebody signed in without groups.",
    ),
]


def group_list(text: str) -> list[str]:
    """Return the groups in the value of ``--as``: none if it is empty. Raises ``ConfigError``."""
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if "" in names:
        raise ConfigError("--as holds an empty name")
    return names


def token_flags(token_file: Path | None, token_fd: int | None) -> dict[str, object]:
    """Return the flags for ``config.load`` that say where the token is."""
    return {"token_file": token_file, "token_fd": token_fd}


def verifier_flags(
    *,
    jwt_key: Path | None,
    jwt_algorithms: str | None,
    jwt_leeway: float | None,
    audience: str | None,
    groups_claim: str | None,
    groups_delimiter: str | None,
    tokens_file: Path | None,
) -> dict[str, object]:
    """Return the flags for ``config.load`` that say which tokens are accepted."""
    return {
        "jwt_key": jwt_key,
        "jwt_algorithms": jwt_algorithms,
        "jwt_leeway": jwt_leeway,
        "audience": audience,
        "groups_claim": groups_claim,
        "groups_delimiter": groups_delimiter,
        "tokens_file": tokens_file,
    }
