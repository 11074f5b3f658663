"""Opaque tokens: those that a TOML file lists, by their text or its SHA-256.

::

    [[token]]
    name = "nightly build"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    groups = ["admin"]
    expires = 2027-01-31T00:00:00Z

The file is read again once it has changed. While it is wrong, no token of it is accepted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from chromafuse.domain.access import Grant, Identity
from chromafuse.domain.errors import ConfigError, TokenError
from chromafuse.tokens.claims import check_groups, seconds
from chromafuse.tokens.files import check_secret, read_file

OPTION = "--tokens-file"
MAX_FILE_BYTES = 16 << 20

_KEYS = ("name", "token", "sha256", "groups", "expires")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}\Z")
_PLACE = re.compile(r"\(at (line \d+)")
_RACE_NS = 2_000_000_000
"""A file changed less than this before it was read may change again without a new time."""

log = logging.getLogger(__name__)


class ListedTokens:
    """The tokens of one file. Calls from several threads do no harm: each sees a whole list."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ``ConfigError`` if it cannot be understood."""
        self._path = path
        self._problem = ""
        self._state: tuple[int, ...] | None = None
        self._grants: Mapping[bytes, Grant] = {}
        self._read()

    def find(self, token: bytes, now: float) -> Grant | None:
        """Return what ``token`` grants at ``now``, or None if it is not listed.

        Raises ``TokenError`` if it has expired, or if the file is wrong at the moment.
        """
        self._refresh()
        if self._problem:
            raise TokenError("the token cannot be looked up: --tokens-file is wrong, see the log")
        # How long a look-up takes tells of the digest only, from which nobody finds a token.
        grant = self._grants.get(hashlib.sha256(token).digest())
        if grant is not None and grant.expires is not None and now >= grant.expires:
            raise TokenError("the token has expired")
        return grant

    def _refresh(self) -> None:
        try:
            if self._state is not None and _state_of(os.stat(self._path)) == self._state:
                return
            self._read()
        except (ConfigError, OSError) as error:
            problem = str(error) if isinstance(error, ConfigError) else error.strerror or ""
            self._grants, self._state = {}, None
            if problem != self._problem:
                log.error("no listed token is accepted until it is mended: %s", problem)
            self._problem = problem or "unknown"
        else:
            if self._problem:
                log.info("listed tokens are accepted again")
            self._problem = ""

    def _read(self) -> None:
        data, info = read_file(self._path, OPTION, MAX_FILE_BYTES)
        check_secret(info, self._path, OPTION)
        self._grants = _parse(data, f"{OPTION} {self._path}")
        settled = time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) > _RACE_NS
        self._state = _state_of(info) if settled else None


def _state_of(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _parse(data: bytes, where: str) -> dict[bytes, Grant]:
    """Return the grants by digest. No message holds text of the file: it may be a token."""
    try:
        document = tomllib.loads(data.decode())
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply") from None
    except ValueError as error:  # TOML's, UTF-8's and int()'s
        place = _PLACE.search(str(error))
        at = f" ({place[1]})" if place else ""
        raise ConfigError(f"{where} is not TOML{at}") from None
    tables = document.get("token")
    if set(document) != {"token"} or not isinstance(tables, list):
        raise ConfigError(f"{where} holds something else than [[token]] tables")
    grants: dict[bytes, Grant] = {}
    for number, table in enumerate(tables, 1):
        try:
            digest, grant = _entry(table)
        except (ValueError, OverflowError, TokenError) as error:
            problem = "a text that is not UTF-8" if isinstance(error, UnicodeError) else error
            raise ConfigError(f"{where}, token {number}: {problem}") from None
        if digest in grants:
            raise ConfigError(f"{where}, token {number}: it is listed twice")
        grants[digest] = grant
    return grants


def _entry(table: object) -> tuple[bytes, Grant]:
    if not isinstance(table, dict) or not set(table) <= set(_KEYS):
        raise ValueError(f"it has other keys than {', '.join(_KEYS)}")
    if not isinstance(table.get("name", ""), str):
        raise ValueError("its name is not a text")
    try:
        groups = check_groups(table.get("groups", []))
    except ValueError:
        raise ValueError("its groups are not a list of names") from None
    expires = _time(table["expires"]) if "expires" in table else None
    return _digest(table), Grant(Identity(groups, signed_in=True), expires)


def _digest(table: Mapping[str, object]) -> bytes:
    text, digest = table.get("token"), table.get("sha256")
    if (text is None) == (digest is None):
        raise ValueError("it needs either token or sha256")
    if text is None:
        if not isinstance(digest, str) or not _DIGEST.match(digest):
            raise ValueError("its sha256 is not 64 hexadecimal digits")
        return bytes.fromhex(digest)
    if not isinstance(text, str) or not text or text != text.strip():
        raise ValueError("its token is no text, empty, or has blanks around it")
    return hashlib.sha256(text.encode()).digest()


def _time(value: object) -> float:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("its expires has no time zone: write 2027-01-31T00:00:00Z")
        return value.timestamp()
    return seconds(value, "expires")
