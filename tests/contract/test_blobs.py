"""Objects beside Chroma: one suite over S3 and a directory, and what can go wrong with each."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Protocol

import pytest

from chromafuse.domain.errors import (
    BlobChanged,
    BlobDenied,
    BlobMissing,
    ConfigError,
    CredentialsRefused,
    StoreError,
    StoreUnavailable,
)
from chromafuse.domain.pointer import (
    Location,
    Place,
    check_endpoint,
    parse_location,
    parse_place,
)
from chromafuse.ports import Blob, BlobReader, Skipped
from chromafuse.stores import s3 as s3_module
from chromafuse.stores.blobs import Blobs
from chromafuse.stores.s3 import ATTEMPTS, S3Options
from tests.support import s3_server
from tests.support.s3_server import CREDENTIALS, Fault, S3Server, running_s3

DATA = random.Random(7).randbytes(300_000)
NAMES = ["plain.json", "a b.json", "100%.json", "é/ü#?.yaml", "deep/er/+&=.bin", "'\"*.txt"]


class Kind(Protocol):
    """A place with objects, and a reader that may contact it."""

    blobs: BlobReader

    @property
    def place(self) -> Place: ...

    def put(self, name: str, data: bytes) -> Location: ...


class InFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.place = parse_place(f"file://{directory}")
        self.blobs: BlobReader = Blobs([self.place], S3Options())

    def put(self, name: str, data: bytes) -> Location:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return Location("file", "", str(path)[1:])


class InS3:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.server = server
        self.bucket = bucket
        (server.root / bucket / "specs").mkdir(parents=True)
        self.place = parse_place(f"s3://{bucket}/specs")
        self.blobs: BlobReader = Blobs([self.place], S3Options(server.url, timeout=5.0))

    def put(self, name: str, data: bytes) -> Location:
        self.server.put(self.bucket, f"specs/{name}", data)
        return Location("s3", self.bucket, f"specs/{name}")


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(
    _server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[InS3]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_module, "BACKOFF", 0.001)
    found = InS3(_server, f"bucket-{len(os.listdir(_server.root))}")
    _server.requests.clear()
    _server.faults.clear()
    yield found
    found.blobs.close()


@pytest.fixture
def files(tmp_path: Path) -> InFiles:
    return InFiles(tmp_path / "specs")


@pytest.fixture(params=["s3", "files"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.getfixturevalue(request.param)
    return found


# -- what holds for both


@pytest.mark.parametrize("name", NAMES)
def test_every_range_is_read_exactly(kind: Kind, name: str) -> None:
    location = kind.put(name, DATA)
    assert parse_location(location.url) == location
    pointer = kind.blobs.head(location).pointer
    assert pointer.size == len(DATA)
    ranges = random.Random(3)
    for _ in range(20):
        start = ranges.randrange(len(DATA))
        length = ranges.randrange(len(DATA) - start + 1)
        assert kind.blobs.read(pointer, start, length) == DATA[start : start + length]
    assert kind.blobs.read(pointer, 0, len(DATA)) == DATA


def test_pieces_of_one_answer_are_those_that_were_asked_for(kind: Kind) -> None:
    pointer = kind.blobs.head(kind.put("x.json", DATA)).pointer
    lengths = (70_000, 1, 100_000, 30_000)
    pieces = list(kind.blobs.stream(pointer, 1_000, lengths))
    assert tuple(map(len, pieces)) == lengths
    assert b"".join(pieces) == DATA[1_000:201_001]


def test_an_empty_object_has_no_bytes(kind: Kind) -> None:
    pointer = kind.blobs.head(kind.put("empty.json", b"")).pointer
    assert kind.blobs.read(pointer, 0, 0) == b""


def test_everything_below_a_place_is_listed_as_head_tells_it(kind: Kind) -> None:
    places = [kind.put(name, name.encode()) for name in NAMES]
    listed = [blob for blob in kind.blobs.scan(kind.place) if isinstance(blob, Blob)]
    assert sorted(blob.pointer.location.url for blob in listed) == sorted(p.url for p in places)
    for blob in listed:
        assert kind.blobs.head(blob.pointer.location).pointer == blob.pointer


def test_a_replaced_object_is_never_read(kind: Kind) -> None:
    pointer = kind.blobs.head(kind.put("x.json", b"old bytes")).pointer
    kind.put("x.json", b"new bytes")
    with pytest.raises(BlobChanged):
        kind.blobs.read(pointer, 0, 4)


def test_an_object_that_became_shorter_is_never_read(kind: Kind) -> None:
    pointer = kind.blobs.head(kind.put("x.json", DATA)).pointer
    kind.put("x.json", DATA[:10])
    with pytest.raises(BlobChanged):
        kind.blobs.read(pointer, 100, 4)


def test_what_is_gone_is_missing(kind: Kind, tmp_path: Path) -> None:
    location = Location(kind.place.scheme, kind.place.bucket, kind.place.prefix + "/none.json")
    with pytest.raises(BlobMissing):
        kind.blobs.head(location)


def test_what_is_not_configured_is_refused(kind: Kind) -> None:
    inside = kind.put("x.json", b"x")
    prefix = kind.place.prefix
    for key in (prefix + "-old/x.json", "etc/passwd", prefix[:-1]):
        with pytest.raises(BlobDenied):
            kind.blobs.head(Location(kind.place.scheme, kind.place.bucket, key))
    with pytest.raises(BlobDenied):
        kind.blobs.head(Location("s3", "other-bucket", inside.key))
    with pytest.raises(BlobDenied):
        list(kind.blobs.scan(Place("s3", "other-bucket", "")))


def test_several_threads_read_at_once(kind: Kind) -> None:
    pointer = kind.blobs.head(kind.put("x.json", DATA)).pointer
    with ThreadPoolExecutor(8) as pool:
        starts = range(0, 200_000, 5_000)
        pieces = list(pool.map(lambda start: kind.blobs.read(pointer, start, 5_000), starts))
    assert b"".join(pieces) == DATA[:200_000]


# -- a directory


def _outside(files: InFiles) -> Path:
    outside = files.directory.parent / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text("secret")
    return outside


def test_no_symlink_is_followed(files: InFiles) -> None:
    outside = _outside(files)
    (files.directory / "link.json").symlink_to(outside / "secret.json")
    (files.directory / "links").symlink_to(outside)
    (files.directory / "inside").symlink_to(".")
    key = str(files.directory)[1:]
    for name in ("link.json", "links/secret.json", "inside/link.json"):
        with pytest.raises(BlobDenied):
            files.blobs.head(Location("file", "", f"{key}/{name}"))
    found = list(files.blobs.scan(files.place))
    assert found == [
        Skipped(str(files.directory / name), "a symlink, which is not followed")
        for name in ("inside", "link.json", "links")
    ]


def test_a_fifo_and_a_directory_are_no_objects_and_nobody_waits(files: InFiles) -> None:
    os.mkfifo(files.directory / "fifo")
    (files.directory / "sub").mkdir()
    key = str(files.directory)[1:]
    for name in ("fifo", "sub"):
        with pytest.raises(BlobDenied):
            files.blobs.head(Location("file", "", f"{key}/{name}"))


def test_a_file_replaced_by_a_symlink_is_refused(files: InFiles) -> None:
    outside = _outside(files)
    pointer = files.blobs.head(files.put("x.json", b"secret")).pointer
    (files.directory / "x.json").unlink()
    (files.directory / "x.json").symlink_to(outside / "secret.json")
    with pytest.raises(BlobDenied):
        files.blobs.read(pointer, 0, 6)


def test_the_directory_itself_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.json").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    place = parse_place(f"file://{tmp_path}/link")
    blobs = Blobs([place], S3Options())
    pointer = blobs.head(Location("file", "", f"{place.prefix}/x.json")).pointer
    assert blobs.read(pointer, 0, 1) == b"x"


# -- S3


@pytest.mark.parametrize(
    "fault",
    [
        s3_server.status(500),
        s3_server.status(502),
        s3_server.status(503, "SlowDown"),
        s3_server.status(429),
        s3_server.status(400, "RequestTimeout"),
        s3_server.short_body,
        s3_server.reset,
        s3_server.xml_with_200,
        s3_server.no_ranges,
    ],
    ids=["500", "502", "SlowDown", "429", "RequestTimeout", "short", "reset", "xml", "range"],
)
def test_what_may_pass_is_tried_again_and_not_for_ever(s3: InS3, fault: Fault) -> None:
    pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
    s3.server.faults[:] = [fault] * (ATTEMPTS - 1)
    assert s3.blobs.read(pointer, 5, 1_000) == DATA[5:1_005]
    assert len(s3.server.reads) == ATTEMPTS
    s3.server.faults[:] = [fault] * (ATTEMPTS + 3)
    with pytest.raises(StoreUnavailable) as caught:
        s3.blobs.read(pointer, 5, 1_000)
    assert len(s3.server.reads) == 2 * ATTEMPTS
    assert "secret words" not in str(caught.value)


def test_an_answer_that_breaks_off_goes_on_where_it_did(s3: InS3) -> None:
    pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
    s3.server.faults[:] = [s3_server.short_body, s3_server.short_body]
    pieces = list(s3.blobs.stream(pointer, 0, [50_000] * 6))
    assert pieces == [DATA[start : start + 50_000] for start in range(0, 300_000, 50_000)]
    ranges = [request.range for request in s3.server.reads]
    assert ranges == ["bytes=0-299999", "bytes=150000-299999", "bytes=200000-299999"]


def test_pieces_of_two_versions_never_come_from_one_stream(s3: InS3) -> None:
    pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
    s3.server.faults[:] = [s3_server.short_body]
    pieces = s3.blobs.stream(pointer, 0, [50_000] * 6)
    came = [next(pieces)]
    s3.put("x.json", bytes(len(DATA)))
    with pytest.raises(BlobChanged):
        came.extend(map(_old, pieces))
    assert came[0] == DATA[:50_000]


def _old(piece: bytes) -> bytes:
    assert piece in DATA
    return piece


def test_a_stream_that_is_given_up_leaves_nothing_for_the_next_request(s3: InS3) -> None:
    pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
    for _ in range(3):
        pieces = s3.blobs.stream(pointer, 0, [50_000] * 6)
        assert next(pieces) == DATA[:50_000]
        del pieces
        assert s3.blobs.read(pointer, 7, 100) == DATA[7:107]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (s3_server.status(403, "AccessDenied"), BlobDenied),
        (s3_server.status(400, "ExpiredToken"), CredentialsRefused),
        (s3_server.status(403, "InvalidAccessKeyId"), CredentialsRefused),
        (s3_server.status(403, "SignatureDoesNotMatch"), CredentialsRefused),
        (s3_server.status(401, "Whatever"), CredentialsRefused),
        (s3_server.status(404, "NoSuchKey"), BlobMissing),
        (s3_server.status(404, "NoSuchBucket"), BlobMissing),
        (s3_server.status(412, "PreconditionFailed"), BlobChanged),
        (s3_server.status(416, "InvalidRange"), BlobChanged),
        (s3_server.status(400, "Whatever"), StoreError),
        (s3_server.other_etag, BlobChanged),
    ],
    ids=["403", "expired", "key", "signature", "401", "404", "bucket", "412", "416", "400", "etag"],
)
def test_what_will_not_pass_is_asked_once(s3: InS3, fault: Fault, error: type[StoreError]) -> None:
    pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
    s3.server.faults[:] = [fault]
    with pytest.raises(error) as caught:
        s3.blobs.read(pointer, 5, 1_000)
    assert type(caught.value) is error
    assert len(s3.server.reads) == 1
    assert "secret words" not in str(caught.value)
    assert s3.blobs.read(pointer, 5, 1_000) == DATA[5:1_005]


def test_a_hanging_server_costs_no_more_than_the_timeout(s3: InS3) -> None:
    pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
    impatient = Blobs([s3.place], S3Options(s3.server.url, timeout=0.3))
    s3.server.faults[:] = [s3_server.hang] * 9
    with pytest.raises(StoreUnavailable):
        impatient.read(pointer, 0, 10)
    assert len(s3.server.faults) >= 7
    impatient.close()


_TIME = "Fri, 01 Mar 2024 00:00:00 GMT"


@pytest.mark.parametrize("left_out", ["ETag", "Content-Length", "Last-Modified"])
def test_a_server_that_does_not_tell_which_version_it_has_is_a_clear_refusal(
    s3: InS3, left_out: str
) -> None:
    headers = {
        "ETag": '"e"',
        "Content-Length": "9",
        "Last-Modified": "Fri, 01 Mar 2024 00:00:00 GMT",
    }

    class Silent(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(200)
            for name in headers.keys() - {left_out}:
                self.send_header(name, headers[name])
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Silent) as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.02,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{other.server_address[1]}"
            blobs = Blobs([s3.place], S3Options(url))
            with pytest.raises(StoreError, match=r"specs/x\.json"):
                blobs.head(Location("s3", s3.bucket, "specs/x.json"))
            blobs.close()
        finally:
            other.shutdown()
            thread.join()


def test_no_redirect_is_followed(s3: InS3) -> None:
    reached = threading.Event()

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reached.set()
            self.send_error(404)

    other = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=other.serve_forever, args=(0.02,))
    thread.start()
    try:
        pointer = s3.blobs.head(s3.put("x.json", DATA)).pointer
        url = f"http://127.0.0.1:{other.server_address[1]}/x.json"
        s3.server.faults[:] = [s3_server.redirect(url)] * 9
        with pytest.raises(StoreError):
            s3.blobs.read(pointer, 0, 10)
        assert not reached.is_set()
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


def test_a_refused_place_is_never_contacted(s3: InS3) -> None:
    s3.put("x.json", DATA)
    for url in ("s3://other-bucket/x", f"s3://{s3.bucket}/x", f"s3://{s3.bucket}/specs-2/x"):
        with pytest.raises(BlobDenied):
            s3.blobs.head(parse_location(url))
    assert s3.server.requests == []


def test_no_credentials_is_a_clear_refusal(
    s3: InS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    location = s3.put("x.json", DATA)
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    blobs = Blobs([s3.place], S3Options(s3.server.url))
    with pytest.raises(CredentialsRefused, match="no usable credentials"):
        blobs.head(location)
    blobs = Blobs([s3.place], S3Options(s3.server.url, profile="nobody"))
    with pytest.raises(CredentialsRefused, match="no usable credentials"):
        blobs.head(location)


def test_wrong_credentials_are_a_refusal_that_does_not_repeat_them(
    s3: InS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = s3.put("x.json", DATA)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    blobs = Blobs([s3.place], S3Options(s3.server.url))
    with pytest.raises(BlobDenied) as caught:
        blobs.head(location)
    assert "another-secret" not in str(caught.value)
    blobs.close()


def test_a_listing_goes_on_over_several_pages(s3: InS3) -> None:
    for number in range(1_004):
        s3.server.write(s3.bucket, f"specs/{number:04}.json", b"x")
    s3.put("last.json", b"x")
    assert len(list(s3.blobs.scan(s3.place))) == 1_005


@pytest.mark.parametrize(
    "url",
    ["ftp://h", "127.0.0.1:9000", "http://", "http://u:hunter2@h", "http://h/x", "http://h:x"],
)
def test_an_endpoint_is_a_server_and_nothing_else(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_endpoint(url)
    assert "hunter2" not in str(caught.value)
