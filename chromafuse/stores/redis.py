"""A Redis server as a cache of page bytes, shared by every daemon of a site.

Nothing depends on it: whatever Redis does, slow, full, restarted, wrong password, garbage, the
answer is "not cached". After a failure it is left alone for ``REST_SECONDS`` and then tried again;
one log line tells of the failure, one of the recovery. A full one takes no pages and still gives
those that it has, so a failed put rests puts alone, and only a put shows that it is over.

An entry is ``MAGIC``, the BLAKE2b digest of the page's bytes and the bytes compressed with zlib; it
is believed only if all of that fits.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, cast

import redis

from chromafuse.domain.errors import ConfigError
from chromafuse.ports import PageKey
from chromafuse.stores.chroma import redact_url

log = logging.getLogger(__name__)

NAMESPACE = "chromafuse:1:"
MAGIC = b"cf1\0"
TIMEOUT = 0.5
"""Seconds that one answer may take; Chroma would have answered by then."""
REST_SECONDS = 5.0
_DIGEST = 16
_LEVEL = 1

T = TypeVar("T")
_Use = Literal["get", "put"]


def encode(data: bytes) -> bytes:
    """Return the entry for a page's bytes."""
    return MAGIC + _digest(data) + zlib.compress(data, _LEVEL)


def decode(entry: bytes, size: int) -> bytes | None:
    """Return the bytes of an entry for a page of ``size`` bytes, or None if it is not right."""
    if not entry.startswith(MAGIC):
        return None
    digest, packed = entry[len(MAGIC) : len(MAGIC) + _DIGEST], entry[len(MAGIC) + _DIGEST :]
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, size + 1)
    except zlib.error:
        return None
    if len(data) != size or not unpacker.eof or _digest(data) != digest:
        return None
    return data


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


def _name(key: PageKey) -> str:
    """Return the name of an entry: a hash, since slugs may be long and hold anything."""
    text = "\0".join(key).encode(errors="surrogatepass")
    return NAMESPACE + hashlib.blake2b(text, digest_size=20).hexdigest()


def _client(url: str, shown: str) -> redis.Redis:
    """Return a client that is not connected yet. Raises ``ConfigError`` for a wrong URL."""
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, retry_on_timeout=False
        )
        pool = client.connection_pool
        # Wrong options would be told by every command, and not as an error of Redis.
        connection = pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError, redis.RedisError):
        # Without the reason: it may repeat a part of the password.
        raise ConfigError(
            f"--redis {shown} is not redis://, rediss:// or unix:// with options of redis-py",
            remedy="in a password, write %2F for /, %23 for #, %3F for ? and %40 for @",
        ) from None
    if connection.encoder.decode_responses:
        raise ConfigError(f"--redis {shown}: decode_responses does not fit, pages are bytes")
    return client


class RedisCache:
    """Pages in Redis. Blocking, safe to call from several threads, never raises for Redis."""

    def __init__(self, url: str, ttl: int) -> None:
        self.description = redact_url(url)
        self._ttl = ttl
        self._client = _client(url, self.description)
        self._lock = threading.Lock()
        self._resting_until: dict[_Use, float] = {"get": 0.0, "put": 0.0}
        self._failing: _Use | None = None
        self.hits = 0
        self.misses = 0
        self.errors = 0

    def status(self) -> Mapping[str, object]:
        """Return how it is doing, for a person."""
        return {
            "at": self.description,
            "ok": self._failing is None,
            "hits": self.hits,
            "misses": self.misses,
            "errors": self.errors,
        }

    def get_many(self, sizes: Mapping[PageKey, int]) -> dict[PageKey, bytes]:
        """Return the pages that are cached and right; ``sizes`` are theirs in bytes."""
        keys = list(sizes)
        if not keys:
            return {}
        entries = self._use(
            "get",
            lambda: cast("list[bytes | None]", self._client.mget([_name(key) for key in keys])),
        )
        if entries is None or len(entries) != len(keys):
            return {}
        found = {}
        for key, entry in zip(keys, entries, strict=True):
            data = decode(entry, sizes[key]) if isinstance(entry, bytes) else None
            if data is not None:
                found[key] = data
        self.hits += len(found)
        self.misses += len(keys) - len(found)
        return found

    def put_many(self, pages: Sequence[tuple[PageKey, bytes]]) -> None:
        """Cache pages for the time to live."""
        if not pages:
            return

        def write() -> bool:
            with self._client.pipeline(transaction=False) as pipeline:
                for key, data in pages:
                    pipeline.set(_name(key), encode(data), ex=self._ttl)
                pipeline.execute()
            return True

        self._use("put", write)

    def _use(self, use: _Use, call: Callable[[], T]) -> T | None:
        """Return what ``call`` does, or None while Redis fails or rests."""
        if time.monotonic() < self._resting_until[use]:
            return None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - see below
            # Whatever it is: the port promises that a cache is no reason for a read to fail.
            self._failed(use, error)
            return None
        self._worked(use)
        return result

    def _failed(self, use: _Use, error: Exception) -> None:
        with self._lock:
            self.errors += 1
            until = time.monotonic() + REST_SECONDS
            self._resting_until["put"] = until
            if use == "get":
                self._resting_until["get"] = until
            first = self._failing is None
            self._failing = self._failing or use
        if first:
            # The class and not the text: a text may repeat the address with its password.
            log.error(
                "Redis at %s fails (%s): pages come from Chroma",
                self.description,
                type(error).__name__,
            )

    def _worked(self, use: _Use) -> None:
        with self._lock:
            over = self._failing == use or (self._failing is not None and use == "put")
            if over:
                self._failing = None
        if over:
            log.info("Redis at %s works again", self.description)

    def close(self) -> None:
        """Release connections."""
        self._client.close()
