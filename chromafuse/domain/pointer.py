"""Where the bytes of a page are that is not stored in Chroma: an object in S3, or a file.

A tree comes out of a database that others may have written, so a pointer is believed only in its
strict form, and only a place that the daemon's own configuration names is ever contacted.

In an address, whatever is not a plain character of a URL is percent-encoded UTF-8. No ``.``, ``..``
or empty component, no encoded slash, no control character, no query, fragment, user or port.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote_to_bytes, urlsplit

from chromafuse.domain.errors import ConfigError

Scheme = Literal["s3", "file"]

MAX_KEY_BYTES = 1024
"""Bytes of an object's key, as S3 has it."""
MAX_ETAG = 256
MAX_OBJECT_BYTES = 1 << 46
"""Bytes of an object; S3's own limit is 50 TB."""

DEFAULT_GREP_MAX = 8 << 20
"""Bytes up to which an object is searched like any page, unless configured otherwise."""

_BUCKET = re.compile(r"(?!.*\.\.)(?!\d+\.\d+\.\d+\.\d+\Z)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ETAG = re.compile(r"(W/\"[\x21\x23-\x7e]+\"|[\x21\x23-\x7e]+)\Z")
_AT = re.compile(r"(?!s3://|file://)(.*?)=((?:s3|file)://.*)\Z", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SAFE = "/!$&'()*+,;=:@~"


class PointerProblem(ValueError):
    """An address or an entry is no pointer; the text says why and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class Location:
    """An object or a file. ``bucket`` is empty for a file, whose ``key`` lacks the first slash.

    Making one raises ``PointerProblem`` for a key that no address can have.
    """

    scheme: Scheme
    bucket: str
    key: str

    def __post_init__(self) -> None:
        _check_key(self.key)

    @property
    def url(self) -> str:
        """The address in its one canonical form."""
        return f"{self.scheme}://{self.bucket}/{quote(self.key, safe=_SAFE)}"

    @property
    def name(self) -> str:
        """The last component of the key."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Pointer:
    """One version of an object: its ``size`` in bytes, and its ``etag`` without quotes.

    An entry that does not tell both has an empty ``etag``: somebody has to ask before it is read.
    """

    location: Location
    size: int
    etag: str

    @property
    def is_known(self) -> bool:
        """Whether it tells which version it means."""
        return bool(self.etag)

    @property
    def version(self) -> str:
        """32 hexadecimal digits, other ones for every other object or version."""
        text = f"{self.location.url}\0{self.size}\0{self.etag}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Place:
    """What may be contacted: a bucket, what is below a prefix of it, or a directory.

    A prefix is whole components: ``s3://b/specs`` is not ``s3://b/specs-old/x``.
    """

    scheme: Scheme
    bucket: str
    prefix: str

    def holds(self, location: Location) -> bool:
        """Return whether ``location`` is this place or below it."""
        if (location.scheme, location.bucket) != (self.scheme, self.bucket):
            return False
        return not self.prefix or (location.key + "/").startswith(self.prefix + "/")

    @property
    def url(self) -> str:
        """The address in its canonical form, without a slash at its end."""
        tail = f"/{quote(self.prefix, safe=_SAFE)}" if self.prefix or self.scheme == "file" else ""
        return f"{self.scheme}://{self.bucket}{tail}"


Registration = Place | tuple[str, Location]
"""What to register: everything below a place, or one object at a path in the tree."""


def parse_registration(text: str) -> Registration:
    """Return what ``s3://bucket/prefix`` or ``path=s3://bucket/key`` names.

    Raises ``ConfigError``.
    """
    split = _AT.match(text)
    if split is None:
        return parse_place(text)
    path, url = split[1].removeprefix("/"), split[2]
    try:
        _check_key(path)
        return path, parse_location(url)
    except PointerProblem as problem:
        raise ConfigError(
            f"{text!r} {problem}", remedy="write path/in/the/tree=s3://bucket/key"
        ) from None


def parse_location(url: str) -> Location:
    """Return the location that ``url`` names. Raises ``PointerProblem``."""
    scheme, bucket, path = _split(url)
    if not path:
        raise PointerProblem("names no object")
    return Location(scheme, bucket, _decoded(path))


def parse_place(url: str) -> Place:
    """Return the place that ``url`` names; a slash at its end does not matter.

    Raises ``ConfigError``: places are what a user configures.
    """
    try:
        scheme, bucket, path = _split(url)
        path = path.removesuffix("/")
        if scheme == "file" and not path:
            raise PointerProblem("is the whole file system")
        prefix = _decoded(path) if path else ""
        if prefix:
            _check_key(prefix)
        return Place(scheme, bucket, prefix)
    except PointerProblem as problem:
        raise ConfigError(
            f"the place {url!r} {problem}", remedy="write s3://bucket/prefix or file:///directory"
        ) from None


def allowed(places: Iterable[Place], location: Location) -> bool:
    """Return whether one of ``places`` holds ``location``."""
    return any(place.holds(location) for place in places)


def pointer_to_entry(pointer: Pointer) -> dict[str, object]:
    """Return what stands as ``pointer`` in a tree entry; the size is the entry's own."""
    return {"url": pointer.location.url, "etag": pointer.etag}


def pointer_from_entry(value: object, size: object) -> Pointer:
    """Return the pointer of a tree entry with this ``size``. Raises ``PointerProblem``.

    Both may be left out by a writer that does not know them, the ETag and the size.
    """
    if not isinstance(value, Mapping) or not {"url"} <= set(value) <= {"url", "etag"}:
        raise PointerProblem("is malformed")
    url, etag = value["url"], value.get("etag")
    if not isinstance(url, str):
        raise PointerProblem("is malformed")
    if "etag" not in value or size is None:
        return Pointer(parse_location(url), 0, "")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_OBJECT_BYTES:
        raise PointerProblem("tells no size")
    return Pointer(parse_location(url), size, check_etag(etag))


def check_etag(etag: object) -> str:
    """Return ``etag`` if it can stand in a request's header. Raises ``PointerProblem``."""
    if not isinstance(etag, str) or len(etag) > MAX_ETAG or not _ETAG.match(etag):
        raise PointerProblem("tells no usable ETag")
    return etag


def check_endpoint(url: str) -> str:
    """Return ``url`` if it is http(s)://host[:port]. Raises ``ConfigError``, which repeats none."""
    try:
        parts = urlsplit(url)
        fits = parts.port is None or parts.port > 0
    except ValueError:
        fits = False
        parts = urlsplit("")
    tail = parts.path.strip("/") or parts.query or parts.fragment
    if not fits or parts.scheme not in ("http", "https") or not parts.hostname or tail:
        raise ConfigError("is not http(s)://host:port")
    if "@" in parts.netloc:
        raise ConfigError(
            "holds a user name or password",
            remedy="give credentials as boto3 takes them: environment, files, instance role",
        )
    return url.rstrip("/")


def _split(url: str) -> tuple[Scheme, str, str]:
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in ("s3", "file"):
        raise PointerProblem("is neither s3:// nor file://")
    if "?" in rest or "#" in rest:
        raise PointerProblem("has a query or a fragment")
    bucket, _, path = rest.partition("/")
    if scheme == "file":
        if bucket:
            raise PointerProblem("names a host")
        return "file", "", path
    if not _BUCKET.match(bucket):
        raise PointerProblem("names no bucket")
    return "s3", bucket, path


def _decoded(path: str) -> str:
    """Return the key that the path of an address stands for."""
    if _PERCENT.search(path) or "%2f" in path.lower():
        raise PointerProblem("has a percent sign that stands for nothing, or for a slash")
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeError:
        raise PointerProblem("is not UTF-8") from None


def _check_key(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise PointerProblem("is not UTF-8") from None
    if size > MAX_KEY_BYTES:
        raise PointerProblem(f"has a key over {MAX_KEY_BYTES} bytes")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise PointerProblem("has a component that is empty, . or ..")
    if _CONTROL.search(key):
        raise PointerProblem("has a control character")
