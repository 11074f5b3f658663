"""Where a command gets its token from: a file, a descriptor or the environment, never its words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from chromafuse.domain.access import ANONYMOUS, Grant, operator_identity
from chromafuse.domain.errors import ConfigError, TokenError
from chromafuse.tokens.verifier import MAX_TOKEN_BYTES, VerifierSettings, verifier_from

TOKEN_VARIABLE = "CHROMAFUSE_TOKEN"  # noqa: S105  # a name, not a secret


class Secret(Protocol):
    """A text that does not print itself, as pydantic's."""

    def get_secret_value(self) -> str: ...


class TokenSource(Protocol):
    """The settings that say where a token is, and which groups an operator states."""

    @property
    def groups(self) -> list[str] | None: ...
    @property
    def token_file(self) -> Path | None: ...
    @property
    def token_fd(self) -> int | None: ...
    @property
    def token(self) -> Secret | None: ...


class TokenSettings(TokenSource, VerifierSettings, Protocol):
    """The settings that say who somebody is."""


def grant_from(settings: TokenSettings) -> Grant:
    """Return whom ``settings`` speak of: the token's holder, the operator's groups, or anybody.

    Raises ``ConfigError`` and ``TokenError``.
    """
    token = read_token(settings)
    if token is not None:
        return verifier_from(settings).identify(token)
    if settings.groups is not None:
        return Grant(operator_identity(settings.groups))
    return Grant(ANONYMOUS)


def read_token(settings: TokenSource) -> str | None:
    """Return the token that ``settings`` give, or None if they give none.

    Afterwards the variable is gone from this process's environment, and the descriptor is closed.
    Raises ``ConfigError`` if there are several tokens, one together with ``--groups``, or if one
    cannot be read; ``TokenError`` if it cannot be a token at all.
    """
    forget_variable()
    sources = {
        "--token-file": settings.token_file,
        "--token-fd": settings.token_fd,
        TOKEN_VARIABLE: settings.token,
    }
    given = [name for name, value in sources.items() if value is not None]
    if not given:
        return None
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other", remedy="give one of them")
    if settings.groups is not None:
        raise ConfigError(
            f"--groups and a token ({given[0]}) exclude each other", remedy="give one of them"
        )
    if settings.token is not None:
        return _text(settings.token.get_secret_value().encode(errors="surrogateescape"), given[0])
    try:
        if settings.token_fd is not None:
            return _text(_read_descriptor(settings.token_fd), given[0])
        path = Path(settings.token_file or "").expanduser()
        with open(path, "rb", buffering=0) as file:
            return _text(_read(file.fileno()), given[0])
    except OSError as error:
        place = settings.token_fd if settings.token_file is None else settings.token_file
        raise ConfigError(f"{given[0]} {place} cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the path
        raise ConfigError(f"{given[0]} is not a path") from None


def forget_variable() -> None:
    """Remove the token's variable from the environment, here and in what ``/proc`` shows.

    What the kernel shows of a process is the memory it started with: that is overwritten too.
    """
    # Settings are read from the environment whatever the case of the name.
    names = [name for name in os.environb if name.upper() == TOKEN_VARIABLE.encode()]
    if not names:
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in names:
        place = libc.getenv(name)
        if place:
            ctypes.memset(place, ord("x"), len(ctypes.string_at(place)))
        del os.environb[name]


def _read_descriptor(descriptor: int) -> bytes:
    if descriptor in (1, 2):
        raise ConfigError("--token-fd is an output")
    try:
        return _read(descriptor)
    finally:
        if descriptor == 0:
            # A free descriptor 0 would be taken by the next file.
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
        else:
            os.close(descriptor)


def _read(descriptor: int) -> bytes:
    found = b""
    while len(found) <= MAX_TOKEN_BYTES + 2 and (part := os.read(descriptor, MAX_TOKEN_BYTES)):
        found += part
    return found


def _text(data: bytes, source: str) -> str:
    """Return ``data`` without a newline at its end."""
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    if not data:
        raise TokenError(f"the token from {source} is empty")
    if len(data) > MAX_TOKEN_BYTES:
        raise TokenError(f"the token from {source} is longer than {MAX_TOKEN_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TokenError(f"the token from {source} is not text") from None
