"""What a token says once its signature is right: who it is, for whom, and how long.

Nothing of the token goes into a message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from chromafuse.domain.access import NOBODY, Grant, Identity
from chromafuse.domain.errors import TokenError

LATEST = 253_402_300_799.0
"""The last second of the year 9999; a later time is one in milliseconds, or a mistake."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What to ask of claims.

    ``groups_claim`` is a claim's name or a path with dots; a claim that has the dots in its name
    wins. ``leeway`` are seconds by which the issuer's clock may be ahead.
    """

    groups_claim: str = "groups"
    groups_delimiter: str = ","
    audience: str | None = None
    leeway: float = 0.0


def grant_of_claims(claims: object, rules: ClaimRules, now: float) -> Grant:
    """Return what ``claims`` grant at ``now``, in seconds since 1970. Raises ``TokenError``."""
    if not isinstance(claims, dict):
        raise TokenError("the token's claims are not a JSON object")
    expires = _expiry(claims)
    if now >= expires:
        raise TokenError("the token has expired")
    for name, problem in (("nbf", "is not valid yet"), ("iat", "was issued in the future")):
        if name in claims and seconds(claims[name], name) > now + rules.leeway:
            raise TokenError(f"the token {problem}")
    _check_audience(claims, rules.audience)
    groups = _groups(_find(claims, rules.groups_claim), rules.groups_delimiter)
    return Grant(Identity(groups, signed_in=True), expires)


def seconds(value: object, name: str) -> float:
    """Return ``value`` as seconds since 1970. Raises ``TokenError``, which names ``name``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"the token's {name} is not a number of seconds")
    # Compared before it is converted: an int may be too large for a float.
    if not 0 <= value <= LATEST or not math.isfinite(value):
        raise TokenError(f"the token's {name} is not a time in seconds since 1970")
    return float(value)


def check_groups(value: object) -> frozenset[str]:
    """Return ``value`` as names of groups. Raises ``ValueError`` unless it is a list of names."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("not a list of names")
    for name in value:
        name.encode()  # half of a surrogate pair is a UnicodeEncodeError, which is a ValueError
    if NOBODY in value:
        raise ValueError("a name that nobody has")
    return frozenset(value)


def _expiry(claims: Mapping[str, object]) -> float:
    times = [seconds(claims[name], name) for name in ("exp", "expiresAt") if name in claims]
    if not times:
        raise TokenError("the token never expires: it has neither exp nor expiresAt")
    return min(times)


def _check_audience(claims: Mapping[str, object], audience: str | None) -> None:
    if "aud" not in claims:
        if audience is not None:
            raise TokenError("the token is for no audience, and one is required")
        return
    given = claims["aud"]
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TokenError("the token's aud is neither a text nor a list of texts")
    if audience is None:
        raise TokenError("the token is for an audience, and --audience is not given")
    if audience not in names:
        raise TokenError("the token is for another audience")


_ABSENT = object()


def _find(claims: Mapping[str, object], path: str) -> object:
    if path in claims:
        return claims[path]
    found: object = claims
    for name in path.split("."):
        if not isinstance(found, dict):
            raise TokenError("the token's claim above its groups is not a JSON object")
        if name not in found:
            return _ABSENT
        found = found[name]
    return found


def _groups(value: object, delimiter: str) -> frozenset[str]:
    if value is _ABSENT or value == "":
        return frozenset()
    if isinstance(value, str):
        value = [name.strip() for name in value.split(delimiter)]
    try:
        return check_groups(value)
    except ValueError:
        raise TokenError("the token's groups are not a list of names") from None
