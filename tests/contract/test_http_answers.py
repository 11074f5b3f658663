"""Whatever a server answers, or does not, is a ``StoreError`` of the right kind on one line."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chromafuse.domain.errors import (
    ConfigError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
)
from chromafuse.ports import NewRecord
from chromafuse.stores.chroma import (
    CLOUD_LIMITS,
    AlreadyExists,
    ChromaCollection,
    open_collection,
    redact_url,
)
from chromafuse.stores.chroma_http import HttpTransport
from tests.support.answering_server import (
    Answer,
    AnsweringServer,
    Request,
    answering_server,
    as_json,
)
from tests.support.chroma_server import free_port

SECRET = "hunter2"  # noqa: S105 - what must not be told


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering_server() as found:
        yield found


def with_password(url: str) -> str:
    return url.replace("http://", f"http://user:{SECRET}@")


def opened(server: AnsweringServer, timeout: float = 10.0) -> ChromaCollection:
    return open_collection(with_password(server.url), "docs", create=False, timeout=timeout)


def failure(store: ChromaCollection) -> StoreError:
    """What a read raises; always one short line that holds no secret."""
    try:
        with pytest.raises(StoreError) as caught:
            store.get(["a"])
    finally:
        store.close()
    error = caught.value
    for text in (str(error), repr(error), str(error.__cause__ or "")):
        assert SECRET not in text
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    return error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, StoreError), (401, StoreDenied), (403, StoreDenied), (404, StoreMissing),
        (409, AlreadyExists), (413, StoreError), (422, StoreError), (429, StoreUnavailable),
        (500, StoreUnavailable), (502, StoreUnavailable), (503, StoreUnavailable),
        (504, StoreUnavailable), (301, StoreError), (302, StoreError), (307, StoreError),
    ],
)  # fmt: skip
def test_each_status_is_its_kind_of_error(
    server: AnsweringServer, status: int, kind: type[StoreError]
) -> None:
    name = "NotFoundError" if status == 404 else "SomeError"
    server.to_reads(as_json({"error": name, "message": "told by Chroma"}, status))
    error = failure(opened(server))
    assert type(error) is kind
    if status != 404:
        assert str(status) in str(error)
        assert "told by Chroma" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff\xfe\0", b"<html>\n<h1>Bad gateway</h1>\n" * 50, b"{", b"[]", b"null",
        b'{"message": null}', b'{"message": {"a": 1}}', b'{"message": "one\\ntwo\\r\\nthree"}',
        b'"' + b"x" * 5_000 + b'"', b"\n\n\nlate", b"one\rtwo\x0bthree\x85four",
    ],
    ids=lambda body: ascii(body)[:30],
)  # fmt: skip
def test_an_error_with_any_body_is_one_short_line(server: AnsweringServer, body: bytes) -> None:
    server.to_reads(Answer(500, body))
    error = failure(opened(server))
    assert type(error) is StoreUnavailable
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"3", b'"text"', b"<html></html>", b"\xff", b"\0",
        b'{"ids": ["a"]}garbage', b"NaN", b"[" * 100_000, gzip.compress(b'{"ids": []}', mtime=0),
    ],
    ids=lambda body: ascii(body)[:30],
)  # fmt: skip
def test_a_success_that_is_not_chromas_is_unavailable(server: AnsweringServer, body: bytes) -> None:
    server.to_reads(Answer(200, body))
    assert type(failure(opened(server))) is StoreUnavailable


GOOD = {"ids": ["a"], "documents": ["text"], "metadatas": [{"page": "a", "chunk_index": 0}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": None}, {"ids": "a"}, {"ids": [1]}, {"ids": [None]}, {"ids": [["a"]]},
        {"ids": {"a": 1}}, {"ids": ["a", "b"]}, {"ids": []},
        {"documents": []}, {"documents": ["text", "more"]}, {"documents": 5},
        {"documents": "t"}, {"documents": {"0": "text"}}, {"documents": [5]},
        {"documents": [["text"]]}, {"documents": [{}]}, {"documents": None},
        {"metadatas": []}, {"metadatas": None}, {"metadatas": 5}, {"metadatas": ["page"]},
        {"metadatas": [[]]}, {"metadatas": [5]}, {"metadatas": {"0": {}}},
    ],
    ids=lambda changes: ascii(changes)[:40],
)  # fmt: skip
def test_an_answer_of_the_wrong_shape_is_unavailable(
    server: AnsweringServer, changes: dict[str, object]
) -> None:
    server.to_reads(as_json({**GOOD, **changes}))
    assert type(failure(opened(server))) is StoreUnavailable


def test_an_answer_of_the_right_shape_is_read(server: AnsweringServer) -> None:
    server.to_reads(as_json({**GOOD, "uris": None, "include": ["documents"]}))
    store = opened(server)
    [found] = store.get(["a"])
    assert (found.id, found.document, dict(found.metadata)) == (
        "a", "text", {"page": "a", "chunk_index": 0}
    )  # fmt: skip
    store.close()


def test_metadata_and_documents_that_a_record_lacks_are_none(server: AnsweringServer) -> None:
    server.to_reads(as_json({"ids": ["a"], "documents": [None], "metadatas": [None]}))
    store = opened(server)
    [found] = store.get(["a"])
    assert (found.document, dict(found.metadata)) == (None, {})
    store.close()


def test_a_cut_body_is_unavailable(server: AnsweringServer) -> None:
    server.to_reads(Answer(200, json.dumps(GOOD).encode(), cut=True))
    assert type(failure(opened(server))) is StoreUnavailable


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_does_not_unpack_is_unavailable(server: AnsweringServer, encoding: str) -> None:
    server.to_reads(Answer(200, b"not packed at all", {"content-encoding": encoding}))
    assert type(failure(opened(server))) is StoreUnavailable


class Answers:
    """Each request about the collection gets the next answer; from the last on always GOOD."""

    def __init__(self, server: AnsweringServer, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked = 0
        server.to_reads(as_json(GOOD))
        self._otherwise, server.answer = server.answer, self._next

    def _next(self, request: Request) -> Answer:
        otherwise = self._otherwise(request)
        if otherwise != as_json(GOOD):
            return otherwise
        self.asked += 1
        return self._answers.pop(0) if self._answers else otherwise


BUSY = as_json({"error": "RateLimitError", "message": "slow down"}, 429)


@pytest.mark.parametrize(
    "answer",
    [BUSY, Answer(503), Answer(502), Answer(504), Answer(200, b"{", cut=True)],
    ids=["429", "503", "502", "504", "cut"],
)
def test_a_read_that_is_turned_away_is_made_again(server: AnsweringServer, answer: Answer) -> None:
    answers = Answers(server, answer, answer)
    store = opened(server)
    assert len(store.get(["a"])) == 1
    assert answers.asked == 3
    store.close()


@pytest.mark.parametrize("status", [400, 401, 403, 409, 413, 422, 500, 307])
def test_another_error_is_told_at_once(server: AnsweringServer, status: int) -> None:
    answers = Answers(server, Answer(status))
    failure(opened(server))
    assert answers.asked == 1


def test_a_write_is_made_again_only_if_it_was_not_begun(server: AnsweringServer) -> None:
    record = NewRecord("a", "text", {"page": "a"}, (0.0,))
    answers = Answers(server, BUSY, Answer(503))
    store = opened(server)
    store.add([record])
    assert answers.asked == 3
    for lost in (Answer(502), Answer(504), Answer(200, b"{", cut=True)):
        answers = Answers(server, lost)
        with pytest.raises(StoreUnavailable):
            store.add([record])
        assert answers.asked == 1
    store.close()


def test_a_server_that_turns_everything_away_is_not_asked_more_than_there_are_reads(
    server: AnsweringServer,
) -> None:
    answers = Answers(server, *[BUSY] * 1_000)
    store = opened(server)
    for _ in range(40):
        with pytest.raises(StoreUnavailable, match="slow down"):
            store.get(["a"])
    assert 40 < answers.asked < 50
    store.close()


def test_no_try_is_made_after_the_deadline(server: AnsweringServer) -> None:
    answers = Answers(server, BUSY, Answer(hang=True))
    store = opened(server, timeout=0.5)
    began = time.monotonic()
    assert "did not answer in time" in str(failure(store))
    assert time.monotonic() - began < 5
    assert answers.asked == 2


def test_a_redirect_is_not_followed(server: AnsweringServer) -> None:
    with answering_server() as elsewhere:
        elsewhere.to_reads(as_json(GOOD))
        server.to_reads(Answer(307, b"", {"location": elsewhere.url + "/stolen"}))
        assert type(failure(opened(server))) is StoreError
        assert elsewhere.requests == []


def test_a_server_that_hangs_is_left_within_the_timeout(server: AnsweringServer) -> None:
    server.to_reads(Answer(hang=True))
    store = opened(server, timeout=0.5)
    started = time.monotonic()
    error = failure(store)
    assert type(error) is StoreUnavailable
    assert "did not answer in time" in str(error)
    assert 0.4 < time.monotonic() - started < 5


@pytest.mark.parametrize("create", [True, False])
def test_a_server_that_hangs_at_opening_is_left_too(server: AnsweringServer, create: bool) -> None:
    server.answer = lambda _: Answer(hang=True)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        open_collection(server.url, "docs", create=create, timeout=0.5)
    assert time.monotonic() - started < 5


def test_a_refused_connection_is_unavailable_and_names_the_server() -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable) as caught:
        open_collection(f"http://user:{SECRET}@127.0.0.1:{port}", "docs", create=False, timeout=5)
    text = str(caught.value)
    assert f"127.0.0.1:{port}" in text
    assert SECRET not in text
    assert "user" not in text
    assert "\n" not in text


def test_a_name_that_does_not_resolve_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot reach Chroma at http://nowhere\.invalid"):
        open_collection("http://nowhere.invalid:1", "docs", create=False, timeout=5)


def test_another_program_at_the_port_is_told(server: AnsweringServer) -> None:
    server.answer = lambda _: Answer(200, b"<html>hello</html>")
    with pytest.raises(StoreUnavailable, match="not Chroma's"):
        open_collection(server.url, "docs", create=False, timeout=5)
    server.answer = lambda _: as_json({"hello": "world"})
    with pytest.raises(StoreUnavailable, match="names no collection"):
        open_collection(server.url, "docs", create=True, timeout=5)


def test_password_and_user_go_to_the_server_and_nowhere_else(
    server: AnsweringServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.to_reads(as_json(GOOD))
    store = opened(server)
    store.get(["a"])
    assert SECRET not in store.description
    store.close()
    assert all(r.headers["authorization"].startswith("Basic ") for r in server.requests)
    assert all(SECRET not in r.path for r in server.requests)


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "http://h:abc", "http://h:99999", "http://", "http:///docs", "ftp://h",
        "file:///etc", "http://h\0x", f"http://user:{SECRET}@h:abc", f"http://user:{SECRET}@[::1",
        f"ftp://user:{SECRET}@h",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_target_that_is_no_url_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_collection(url, "docs", create=False, timeout=5)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--chroma" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://user:pw@h:8000/base?token=pw#pw", "http://h:8000/base"),
        ("https://:pw@h", "https://h"),
        ("http://pw@h", "http://h"),
        ("http://user:pw@[::1]:8000", "http://[::1]:8000"),
        ("http://user:pw@[::1", "http://…"),
        ("http://user:pw@h:port", "http://…"),
    ],
)
def test_messages_show_a_url_without_its_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_no_request_carries_a_none_filter(server: AnsweringServer) -> None:
    """A server takes a filter of null for no filter at all, so it is left out or whole."""
    server.to_reads(as_json(GOOD))
    store = opened(server)
    store.get(["a"])
    store.get(["a"], {"page": "a"})
    store.find({"page": "a"})
    store.close()
    bodies = [json.loads(request.body) for request in server.requests if request.body]
    assert [body.get("where", "absent") for body in bodies] == [
        "absent", {"page": "a"}, {"page": "a"}
    ]  # fmt: skip
    assert all("ids" in body or "where" in body for body in bodies)


def test_reads_of_cloud_are_paged_by_its_quota(server: AnsweringServer) -> None:
    server.to_reads(as_json({"ids": [], "documents": [], "metadatas": []}))
    transport = HttpTransport(server.url, 5, CLOUD_LIMITS)
    transport.open_collection("docs", create=False)
    store = ChromaCollection(transport, "docs")
    store.get([f"id{n}" for n in range(700)])
    store.add([NewRecord(f"id{n}", "text", {"n": n}, (0.0,)) for n in range(700)])
    store.delete([f"id{n}" for n in range(700)])
    store.close()
    sent = [json.loads(request.body) for request in server.requests if request.body]
    assert [len(body["ids"]) for body in sent] == [300, 300, 100] * 3
    assert all(body["limit"] <= 300 for body in sent[:3])


def test_a_directory_is_never_taken_for_a_url(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match="no Chroma database"):
        open_collection(str(tmp_path / "none"), "docs", create=False, timeout=5)
    assert not (tmp_path / "none").exists()
