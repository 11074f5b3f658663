"""From a token to an identity, or to the reason why not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from chromafuse.domain.access import Grant
from chromafuse.domain.errors import ConfigError, TokenError
from chromafuse.tokens.claims import ClaimRules, grant_of_claims
from chromafuse.tokens.keys import Key, load_keys
from chromafuse.tokens.listed import ListedTokens
from chromafuse.tokens.strict_json import parse_json

MAX_TOKEN_BYTES = 16_384
"""A longer token is refused unread."""

_MALFORMED = "the token is malformed"


class VerifierSettings(Protocol):
    """The settings that say which tokens are accepted."""

    @property
    def jwt_key(self) -> Path | None: ...
    @property
    def jwt_algorithms(self) -> Sequence[str] | None: ...
    @property
    def jwt_leeway(self) -> float: ...
    @property
    def audience(self) -> str | None: ...
    @property
    def groups_claim(self) -> str: ...
    @property
    def groups_delimiter(self) -> str: ...
    @property
    def tokens_file(self) -> Path | None: ...


class TokenVerifier:
    """Accepts JWTs signed with ``keys`` and the tokens that ``listed`` holds."""

    def __init__(
        self,
        keys: Sequence[Key] = (),
        rules: ClaimRules | None = None,
        listed: ListedTokens | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._rules = rules or ClaimRules()
        self._listed = listed

    @property
    def accepts_tokens(self) -> bool:
        """Whether there is anything to check a token with."""
        return bool(self._keys) or self._listed is not None

    def identify(self, token: str | bytes, now: float | None = None) -> Grant:
        """Return what ``token`` grants at ``now``, in seconds since 1970 (None: the clock's time).

        Reads the tokens file again if it has changed. Raises ``TokenError`` with a reason that
        holds nothing of the token.
        """
        moment = time.time() if now is None else now
        data = _checked(token)
        if not self.accepts_tokens:
            raise TokenError("no token is accepted here", remedy="give --jwt-key or --tokens-file")
        if self._listed is not None:
            # A JWT has a second chance, whatever is wrong with the list.
            try:
                grant = self._listed.find(data, moment)
            except TokenError:
                if not self._keys or data.count(b".") != 2:
                    raise
                grant = None
            if grant is not None:
                return grant
            if not self._keys:
                raise TokenError("the token is not known")
        return grant_of_claims(self._claims(data), self._rules, moment)

    def _claims(self, data: bytes) -> object:
        """Return the claims of a JWT whose signature is right."""
        import jwt

        header = _header(data)
        key = self._key(header)
        if header.get("alg") not in tuple(key.algorithms):
            raise TokenError("the token's algorithm is not one that its key is used with")
        try:
            payload = jwt.PyJWS().decode(
                data,
                key.material,
                algorithms=sorted(key.algorithms),
                options={"enforce_minimum_key_length": True},
            )
        except jwt.InvalidSignatureError:
            raise TokenError("the token's signature is wrong") from None
        except jwt.PyJWTError:
            raise TokenError(_MALFORMED) from None
        try:
            return parse_json(payload)
        except ValueError:
            raise TokenError("the token's claims are not JSON") from None

    def _key(self, header: Mapping[str, object]) -> Key:
        first = self._keys[0]
        if not first.from_set:
            return first
        kid = header.get("kid")
        if kid is None and len(self._keys) == 1:
            return first
        if not isinstance(kid, str):
            raise TokenError("the token does not say which key of the JWKS signed it")
        found = next((key for key in self._keys if key.kid == kid), None)
        if found is None:
            raise TokenError("the token names a key that the JWKS does not have")
        return found


def verifier_from(settings: VerifierSettings) -> TokenVerifier:
    """Return the verifier that ``settings`` describe; without key and list it refuses everything.

    Raises ``ConfigError`` if a key, a list or a combination of settings cannot be used.
    """
    if settings.jwt_key is None and (settings.jwt_algorithms or settings.audience):
        raise ConfigError("--jwt-algorithms and --audience have no meaning without --jwt-key")
    keys: Sequence[Key] = ()
    if settings.jwt_key is not None:
        keys = load_keys(_absolute(settings.jwt_key), settings.jwt_algorithms)
    rules = ClaimRules(
        groups_claim=settings.groups_claim,
        groups_delimiter=settings.groups_delimiter,
        audience=settings.audience,
        leeway=settings.jwt_leeway,
    )
    file = settings.tokens_file
    listed = None if file is None else ListedTokens(_absolute(file))
    return TokenVerifier(keys, rules, listed)


def _absolute(path: Path) -> Path:
    """Return ``path`` so that it holds after a change of the working directory."""
    return path.expanduser().absolute()


def _checked(token: str | bytes) -> bytes:
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenError(f"the token is longer than {MAX_TOKEN_BYTES:,} bytes")
    try:
        data = token.encode() if isinstance(token, str) else token
    except UnicodeEncodeError:
        raise TokenError(_MALFORMED) from None
    if len(data) > MAX_TOKEN_BYTES:
        raise TokenError(f"the token is longer than {MAX_TOKEN_BYTES:,} bytes")
    if not data:
        raise TokenError("the token is empty")
    return data


def _header(data: bytes) -> Mapping[str, object]:
    """Return the header of a JWT; nothing of it is believed yet.

    PyJWT reads it again; what it could read in two ways is refused here.
    """
    from jwt.utils import base64url_decode

    if data.count(b".") != 2:
        raise TokenError(_MALFORMED)
    try:
        header = parse_json(base64url_decode(data.partition(b".")[0]))
    except ValueError:
        raise TokenError(_MALFORMED) from None
    if not isinstance(header, dict):
        raise TokenError(_MALFORMED)
    if "crit" in header or "b64" in header:
        raise TokenError("the token asks for extensions that are not supported")
    return header
