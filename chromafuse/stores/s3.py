"""Objects in S3, and in servers that speak its language.

Every read names the ETag and a range, and is believed only if the answer tells that ETag, that
range and the size that the tree tells: a server that ignores a condition cannot mix two versions.
boto3 is imported with the first request, in the worker thread that makes it. Requests go to the
configured endpoint or to AWS and nowhere else; a redirect is an error.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from chromafuse.domain.errors import (
    BlobChanged,
    BlobDenied,
    BlobMissing,
    CredentialsRefused,
    StoreError,
    StoreUnavailable,
)
from chromafuse.domain.pointer import (
    Location,
    Place,
    Pointer,
    PointerProblem,
    allowed,
    check_endpoint,
    check_etag,
)
from chromafuse.ports import Blob, Skipped
from chromafuse.stores.meter import Meter

log = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a request is made that fails in a way which may pass."""
BACKOFF = 0.1
"""Seconds before the second attempt; twice as much before each further one, with jitter."""
CONNECT_TIMEOUT = 3.0
CONNECTIONS = 16

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)\Z")
_REFUSED_CODES = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_PASSING_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "RequestTimeoutException", "Throttling", "ThrottlingException"}
)
_AWS = (".amazonaws.com", ".amazonaws.com.cn")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach S3; ``timeout`` is what a request may take, all its attempts together."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    timeout: float = 10.0


class S3Blobs:
    """Reads ``s3://`` for ``blobs.Blobs``."""

    def __init__(self, places: Sequence[Place], options: S3Options) -> None:
        self._places = [place for place in places if place.scheme == "s3"]
        self._options = options
        self._lock = threading.Lock()
        self._client: Any = None
        self._failing = False
        if options.endpoint is not None:
            check_endpoint(options.endpoint)
        self.meter = Meter()

    def stream(self, pointer: Pointer, offset: int, lengths: Sequence[int]) -> Iterator[bytes]:
        """Yield pieces from one request; the timeout is for each, and begins anew with it."""
        self._check(pointer.location)
        left = [length for length in lengths if length]
        attempts = self._attempts()
        while left:
            try:
                with _translated(pointer.location.url):
                    for piece in self._pieces(pointer, offset, tuple(left), attempts):
                        self._failing = False
                        yield piece
                        offset += len(piece)
                        del left[0]
                        attempts.renew()
            except StoreUnavailable:
                if not attempts.again():
                    self._failing = True
                    raise

    def head(self, location: Location) -> Blob:
        self._check(location)

        def ask(client: Any) -> Blob:
            answer = client.head_object(Bucket=location.bucket, Key=location.key)
            return _blob(location, answer, "ContentLength")

        return self._persistently(location.url, ask)

    def scan(self, place: Place) -> Iterator[Blob | Skipped]:
        """Yield the objects below ``place``; a key that is no address is skipped."""
        if not any(
            (mine.scheme, mine.bucket) == (place.scheme, place.bucket)
            and (not mine.prefix or (place.prefix + "/").startswith(mine.prefix + "/"))
            for mine in self._places
        ):
            raise BlobDenied(f"{place.url} is no place that is configured")
        prefix = f"{place.prefix}/" if place.prefix else ""
        token: dict[str, str] = {}
        while True:
            more = dict(Bucket=place.bucket, Prefix=prefix, **token)
            page = self._persistently(place.url, partial(_list_once, more))
            for item in page.get("Contents", ()):
                if item["Key"].endswith("/") and not item["Size"]:
                    continue
                try:
                    location = Location("s3", place.bucket, item["Key"])
                except PointerProblem as problem:
                    yield Skipped(f"s3://{place.bucket}/{item['Key']}", f"its key {problem}")
                    continue
                yield _blob(location, item, "Size")
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def upload(self, location: Location, file: BinaryIO) -> None:
        """Write ``file`` from its beginning to ``location``, in parts if it is large."""
        self._check(location)

        def send(client: Any) -> None:
            from boto3.exceptions import S3UploadFailedError
            from boto3.s3.transfer import TransferConfig

            file.seek(0)
            # Closed by the transfer otherwise, and then there is no second attempt.
            with open(os.dup(file.fileno()), "rb") as body:
                try:
                    client.upload_fileobj(
                        body,
                        location.bucket,
                        location.key,
                        Config=TransferConfig(use_threads=False),
                    )
                except S3UploadFailedError:
                    raise StoreUnavailable(f"{location.url}: the upload failed") from None

        self._persistently(location.url, send)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _check(self, location: Location) -> None:
        if not allowed(self._places, location):
            raise BlobDenied(f"{location.url} is no place that is configured")

    # Requests

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        import boto3
        from botocore.config import Config

        options = self._options
        config = Config(
            connect_timeout=min(CONNECT_TIMEOUT, options.timeout),
            read_timeout=options.timeout,
            retries={"total_max_attempts": 1},
            max_pool_connections=CONNECTIONS,
            # Servers other than AWS have no name of their own for every bucket.
            s3={"addressing_style": "path" if options.endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        session = boto3.Session(profile_name=options.profile, region_name=options.region)
        client = session.client(
            "s3",
            endpoint_url=options.endpoint,
            config=config,
            **({} if session.region_name else {"region_name": "us-east-1"}),
        )
        client.meta.events.register("before-send.s3", self._guard)
        return client

    def _guard(self, request: Any, **_: object) -> None:
        """Let no request go anywhere else, whatever led there."""
        host = urlsplit(request.url).netloc
        endpoint = self._options.endpoint
        if endpoint is not None:
            fits = host == urlsplit(endpoint).netloc
        else:
            fits = host.rpartition(":")[0].endswith(_AWS) or host.endswith(_AWS)
        if not fits:
            raise BlobDenied("S3 sent us to another host, and we do not follow")

    def _persistently(self, url: str, ask: Callable[[Any], T]) -> T:
        """Return what ``ask`` returns, trying again within the timeout what may pass."""
        attempts = self._attempts()
        while True:
            try:
                with _translated(url):
                    client = self._connected()
                    with self.meter.request():
                        result = ask(client)
            except StoreUnavailable:
                if not attempts.again():
                    self._failing = True
                    raise
            else:
                self._failing = False
                return result

    def _attempts(self) -> _Attempts:
        """Return several attempts, or one: once they were in vain, until a request succeeds."""
        return _Attempts(self._options.timeout, 1 if self._failing else ATTEMPTS)

    def _pieces(
        self, pointer: Pointer, offset: int, lengths: Sequence[int], attempts: _Attempts
    ) -> Iterator[bytes]:
        location = pointer.location
        length = sum(lengths)
        client = self._connected()
        with self.meter.request():
            answer = client.get_object(
                Bucket=location.bucket,
                Key=location.key,
                Range=f"bytes={offset}-{offset + length - 1}",
                IfMatch=_quoted(pointer.etag),
            )
            body = answer["Body"]
            try:
                _check_answer(answer, pointer, offset, length)
                with _in_time(body, attempts):
                    for number, size in enumerate(lengths, 1):
                        piece = _whole(body, size, location.url)
                        if number == len(lengths) and body.read(1):
                            raise StoreUnavailable(f"{location.url}: the answer is too long")
                        yield piece
            except BaseException:
                # What is left in it must not be taken for the answer to another request.
                body.close()
                raise


class _Attempts:
    """What is left of the attempts at a request, and of the seconds for all of them."""

    def __init__(self, timeout: float, most: int) -> None:
        self._timeout = timeout
        self.renew()
        self._most = most

    def renew(self) -> None:
        """Begin anew: something useful has come."""
        self._most = ATTEMPTS
        self._made = 0
        self._until = time.monotonic() + self._timeout

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def again(self) -> bool:
        """Return whether there is another one, after the pause that is due before it."""
        self._made += 1
        pause = BACKOFF * 2 ** (self._made - 1) * random.uniform(0.5, 1.5)  # noqa: S311
        if self._made >= self._most or time.monotonic() + pause > self._until:
            return False
        time.sleep(pause)
        return True


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn what boto3 raises into ``StoreError``."""
    from botocore import exceptions as wrong

    try:
        yield
    except StoreError:
        raise
    except wrong.ClientError as error:
        raise _from_answer(url, error.response) from None
    except (
        wrong.NoCredentialsError,
        wrong.PartialCredentialsError,
        wrong.ProfileNotFound,
        wrong.UnauthorizedSSOTokenError,
    ) as error:
        raise CredentialsRefused(
            f"{url}: no usable credentials ({type(error).__name__})",
            remedy="give them as boto3 takes them: environment, files, instance role",
        ) from None
    except wrong.ParamValidationError:
        raise StoreError(f"{url} cannot be asked for") from None
    except (wrong.BotoCoreError, OSError) as error:
        # The class and not the text, which may hold addresses and what a server said.
        raise StoreUnavailable(f"{url}: {type(error).__name__}") from None


def _bare(etag: str) -> str:
    """Return an ETag without its quotes: some servers leave them out where they list objects."""
    return etag[1:-1] if len(etag) > 2 and etag[0] == etag[-1] == '"' else etag


def _quoted(etag: str) -> str:
    return etag if etag.startswith("W/") else f'"{etag}"'


def _list_once(query: Mapping[str, str], client: Any) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = client.list_objects_v2(**query)
    return answer


def _whole(body: Any, length: int, url: str) -> bytes:
    """Return the next ``length`` bytes of the body."""
    piece: bytes = body.read(length)
    if len(piece) != length:
        raise StoreUnavailable(f"{url}: the answer is too short")
    return piece


@contextmanager
def _in_time(body: Any, attempts: _Attempts) -> Iterator[None]:
    """End the reading of ``body`` when it is late.

    The socket's own timeout begins anew with every byte: a server that sends one now and then
    would keep a thread for as long as it likes.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(attempts.left):
            if not attempts.left:
                # It may have come to its end, or have broken off, at this very moment.
                with suppress(OSError, RuntimeError, ValueError):
                    body._raw_stream.shutdown()
                return

    threading.Thread(target=watch, name="s3-deadline", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _check_answer(answer: Mapping[str, Any], pointer: Pointer, offset: int, length: int) -> None:
    url = pointer.location.url
    etag = answer.get("ETag")
    if not etag:
        raise StoreUnavailable(f"{url}: the answer tells no ETag")
    if _bare(etag) != pointer.etag:
        raise BlobChanged(f"{url} was replaced")
    told = _RANGE.match(answer.get("ContentRange") or "")
    if told is None:
        if (offset, length) == (0, pointer.size) and answer.get("ContentLength") == length:
            return
        raise StoreUnavailable(f"{url}: the server does not answer by range")
    if int(told[3]) != pointer.size:
        raise BlobChanged(f"{url} has another size")
    if (int(told[1]), int(told[2])) != (offset, offset + length - 1):
        raise StoreUnavailable(f"{url}: the answer is another range")


def _from_answer(url: str, response: Mapping[str, Any]) -> StoreError:
    """Return the error that a server's answer stands for, without its text."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(response.get("Error", {}).get("Code", ""))
    if status in (412, 416):
        return BlobChanged(f"{url} was replaced")
    if status == 404:
        return BlobMissing(f"{url} does not exist")
    if status == 401 or code in _REFUSED_CODES:
        return CredentialsRefused(
            f"{url}: the server does not accept the credentials (status {status})",
            remedy="check access key, secret and token, and that --s3-endpoint is their server",
        )
    if status == 403 or code == "AccessDenied":
        return BlobDenied(f"{url}: the server refuses (status {status})")
    if status == 429 or status >= 500 or code in _PASSING_CODES:
        return StoreUnavailable(f"{url}: the server cannot answer now (status {status})")
    if 300 <= status < 400:
        return StoreError(f"{url}: the server sent us elsewhere, and we do not follow")
    return StoreError(f"{url}: the server refuses (status {status})")


def _blob(location: Location, told: Mapping[str, Any], size: str) -> Blob:
    """Return the object that a server tells of, its size under the name ``size``."""
    try:
        checked = check_etag(_bare(told.get("ETag") or ""))
    except PointerProblem as problem:
        raise StoreError(f"{location.url} {problem}") from None
    if size not in told or "LastModified" not in told:
        raise StoreError(f"{location.url}: the server tells no size, or no time")
    mtime_ns = int(told["LastModified"].timestamp()) * 1_000_000_000
    return Blob(Pointer(location, told[size], checked), mtime_ns)
