"""A Redis server as a cache of page bytes, shared by every daemon of a site.

Nothing depends on it: whatever Redis does, slow, full, restarted, wrong password, garbage, the
answer is "not cached". After a failure it is left alone for a second and then tried again, after
each further one twice as long, up to ``REST_SECONDS``; one log line tells of the failure, one of
the recovery. A full one takes no pages and still gives those that it has, so a failed put rests
puts alone, and only a put shows that it is over.

An entry is the end of its own name, so that none is taken for another one's, and a Zstandard frame
that tells its size and its checksum; it is believed only if all three fit.
Of 36 MB in 4,760 pages, zlib and a digest take 0.16 s to read, this takes 0.04 s.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, cast

import redis
import zstandard

from chromafuse.domain.errors import ConfigError, StoreDenied, StoreUnavailable
from chromafuse.ports import PageKey
from chromafuse.stores.chroma import redact_url
from chromafuse.stores.meter import Meter

log = logging.getLogger(__name__)

NAMESPACE = "chromafuse:3:"
TIMEOUT = 0.5
"""Seconds to wait for anything to come; Chroma would have answered by then."""
WHOLE_TIMEOUT = 2 * TIMEOUT
"""Seconds that a call may take, however many small answers it gets."""
FIRST_REST_SECONDS = 1.0
REST_SECONDS = 5.0
_LEVEL = 3
_TAG_BYTES = 16

T = TypeVar("T")
_Use = Literal["get", "put"]


class Packer:
    """Turns page bytes into entries and back; used by one thread at a time."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._decompressor = zstandard.ZstdDecompressor()

    def encode(self, data: bytes) -> bytes:
        """Return the entry for a page's bytes."""
        return self._compressor.compress(data)

    def decode(self, entry: bytes, size: int) -> bytes | None:
        """Return the bytes of an entry for a page of ``size`` bytes, or None if it is not right."""
        try:
            told = zstandard.get_frame_parameters(entry)
            # The size decides what is allocated, so it comes first.
            if told.content_size != size or not told.has_checksum:
                return None
            data = self._decompressor.decompress(entry, allow_extra_data=False)
        except zstandard.ZstdError:
            return None
        return data if len(data) == size else None


def _name(key: PageKey) -> str:
    """Return the name of an entry: a hash, since slugs may be long and hold anything."""
    text = "\0".join(key).encode(errors="surrogatepass")
    return NAMESPACE + hashlib.blake2b(text, digest_size=20).hexdigest()


def _tag(name: str) -> bytes:
    return name[-_TAG_BYTES:].encode()


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
        self.meter = Meter()
        self._ttl = ttl
        self._client = _client(url, self.description)
        self._lock = threading.Lock()
        self._resting_until: dict[_Use, float] = {"get": 0.0, "put": 0.0}
        self._rest = FIRST_REST_SECONDS
        self._failing: _Use | None = None
        self.hits = 0
        self.misses = 0
        self.errors = 0

    def ping(self) -> None:
        """Raise ``StoreDenied`` or ``StoreUnavailable`` unless Redis answers."""
        try:
            self._client.ping()
        except redis.AuthenticationError:
            raise StoreDenied(
                f"Redis at {self.description} refuses the password", remedy="check --redis"
            ) from None
        except Exception as error:  # noqa: BLE001 - the text may repeat the password
            raise StoreUnavailable(
                f"Redis at {self.description} does not answer ({type(error).__name__})",
                remedy="start it, or leave out --redis",
            ) from None

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
        names = [_name(key) for key in keys]
        entries = self._use(
            "get",
            lambda: self._entries(names),
        )
        if entries is None or len(entries) != len(keys):
            return {}
        found = {}
        packer = Packer()
        for key, name, entry in zip(keys, names, entries, strict=True):
            if not isinstance(entry, bytes) or not entry.startswith(_tag(name)):
                continue
            data = packer.decode(entry[_TAG_BYTES:], sizes[key])
            if data is not None:
                found[key] = data
        self.hits += len(found)
        self.misses += len(keys) - len(found)
        return found

    def _entries(self, names: Sequence[str]) -> list[bytes | None]:
        with self.meter.request():
            return cast("list[bytes | None]", self._client.mget(names))

    def put_many(self, pages: Sequence[tuple[PageKey, bytes]]) -> None:
        """Cache pages for the time to live."""
        if not pages:
            return

        packer = Packer()

        def write() -> bool:
            with self._client.pipeline(transaction=False) as pipeline:
                for key, data in pages:
                    name = _name(key)
                    pipeline.set(name, _tag(name) + packer.encode(data), ex=self._ttl)
                with self.meter.request():
                    pipeline.execute()
            return True

        self._use("put", write)

    def _use(self, use: _Use, call: Callable[[], T]) -> T | None:
        """Return what ``call`` does, or None while Redis fails or rests."""
        if time.monotonic() < self._resting_until[use]:
            return None
        try:
            result = self._in_time(call)
        except Exception as error:  # noqa: BLE001 - see below
            # Whatever it is: the port promises that a cache is no reason for a read to fail.
            self._failed(use, error)
            return None
        self._worked(use)
        return result

    def _in_time(self, call: Callable[[], T]) -> T:
        """Return what ``call`` does; its connection is ended when it takes too long.

        A socket's own timeout begins anew with every byte that comes.
        """
        late = threading.Timer(WHOLE_TIMEOUT, self._client.connection_pool.disconnect)
        late.daemon = True
        late.start()
        try:
            return call()
        finally:
            late.cancel()

    def _failed(self, use: _Use, error: Exception) -> None:
        with self._lock:
            self.errors += 1
            now = time.monotonic()
            # Several threads may fail in one attempt.
            if now >= self._resting_until[use]:
                until = now + min(self._rest, REST_SECONDS)
                self._rest = min(2 * self._rest, REST_SECONDS)
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
                self._rest = FIRST_REST_SECONDS
        if over:
            log.info("Redis at %s works again", self.description)

    def close(self) -> None:
        """Release connections."""
        self._client.close()
