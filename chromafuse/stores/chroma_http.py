"""Chroma's v2 REST API over httpx.

The chromadb client is not used for servers: it has no timeouts, takes half a second to import and
builds whatever embedding function the server's configuration names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, cast

import httpx
import orjson
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential

from chromafuse.domain.errors import (
    ConfigError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
)
from chromafuse.domain.page import Metadata, MetadataValue, Record
from chromafuse.ports import NewRecord
from chromafuse.stores.chroma import AlreadyExists, Limits, Query, redact_url, remedy_for
from chromafuse.stores.deadline_http import Deadlines, DeadlineTransport
from chromafuse.stores.meter import Meter
from chromafuse.stores.throttle import RetryThrottle

if TYPE_CHECKING:
    from concurrent.futures import Future

_PREFIX = "/api/v2/tenants/default_tenant/databases/default_database/collections"
# Not compressed: what an answer takes in memory is then what came over the wire.
_HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}

_TURNED_AWAY = {429, 503}
"""The server has not begun with the request."""
_LOST = {502, 504}
"""Somebody before the server does not know what became of the request."""
_TRIES = 4
_WAIT = 0.1
"""Seconds before the second try, at most; twice that before the third, and so on."""

ANSWER_BYTES = 64 << 20
ANSWER_BYTES_PER_RECORD = 100_000
"""What an answer may have in bytes: in the worst JSON a chunk takes six times its 16,000 bytes."""


class HttpTransport:
    """Implements ``chroma.Transport`` for a Chroma server."""

    def __init__(self, url: str, timeout: float, limits: Limits) -> None:
        self.limits = limits
        self.description = redact_url(url)
        self.meter = Meter()
        self._timeout = timeout
        self._deadlines = Deadlines()
        self._throttle = RetryThrottle()
        try:
            self._client = httpx.Client(
                base_url=url.rstrip("/"),
                timeout=timeout,
                headers=_HEADERS,
                follow_redirects=False,
                transport=DeadlineTransport(self._deadlines),
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"--chroma {self.description} is no URL: {error}") from None
        self._name = ""
        self._id: str | None = None

    def open_collection(self, name: str, *, create: bool, lazy: bool = False) -> None:
        self._name = name
        if create:
            body = {"name": name, "get_or_create": True}
            self._id = _collection_id(self._call("POST", "", body))
        elif not lazy:
            self._id = self._resolve()

    def get(self, query: Query) -> list[Record]:
        include = [
            name
            for name, wanted in (("documents", query.documents), ("metadatas", query.metadatas))
            if wanted
        ]
        body: dict[str, object] = {"include": include, "offset": query.offset}
        if query.limit is not None:
            body["limit"] = query.limit
        if query.ids is not None:
            if not query.ids:
                return []
            body["ids"] = list(query.ids)
        if query.where is not None:
            body["where"] = query.where
        if query.document is not None:
            body["where_document"] = query.document
        asked = len(query.ids) if query.ids is not None else query.limit or 0
        return _records(self._on_collection("get", body, asked), query)

    def write(self, verb: str, records: Sequence[NewRecord]) -> None:
        self._on_collection(
            verb,
            {
                "ids": [record.id for record in records],
                "documents": [record.document for record in records],
                "metadatas": [record.metadata for record in records],
                "embeddings": [record.vector for record in records],
            },
        )

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            self._on_collection("delete", {"ids": list(ids)})

    def create_marker(self, name: str, metadata: Mapping[str, MetadataValue]) -> None:
        self._call("POST", "", {"name": name, "metadata": metadata})

    def read_marker(self, name: str) -> Metadata | None:
        try:
            found = self._call("GET", f"/{name}").get("metadata")
        except StoreMissing:
            return None
        return found if isinstance(found, dict) else {}

    def delete_marker(self, name: str) -> None:
        try:
            self._call("DELETE", f"/{name}")
        except StoreMissing:
            return

    def close(self) -> None:
        self._client.close()

    def _on_collection(
        self, verb: str, body: Mapping[str, object], records: int = 0
    ) -> dict[str, Any]:
        """Call ``verb`` on the collection; one that was deleted and made anew is found again."""
        if self._id is None:
            self._id = self._resolve()
        known = self._id
        try:
            return self._call("POST", f"/{known}/{verb}", body, records)
        except StoreMissing:
            self._id = self._resolve()
            if self._id == known:
                raise
        return self._call("POST", f"/{self._id}/{verb}", body, records)

    def _resolve(self) -> str:
        try:
            return _collection_id(self._call("GET", f"/{self._name}"))
        except StoreMissing:
            raise StoreMissing(
                f"there is no collection {self._name} in {self.description}",
                remedy="check --collection, or fill it with `chromafuse ingest`",
            ) from None

    def _call(
        self, method: str, path: str, body: object = None, records: int = 0
    ) -> dict[str, Any]:
        reads = method == "GET" or path.endswith("/get")
        with self.meter.request():
            return self._decoded(method, path, body, records, reads=reads)

    def _decoded(
        self, method: str, path: str, body: object, records: int, *, reads: bool
    ) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body)
        room = ANSWER_BYTES + records * ANSWER_BYTES_PER_RECORD
        again = Retrying(
            retry=lambda state: self._again(state, reads=reads),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random_exponential(_WAIT, max=_WAIT * 2**_TRIES),
            retry_error_callback=lambda state: cast("Future[Any]", state.outcome).result(),
        )
        try:
            with self._deadlines.within(self._timeout):
                response: httpx.Response = again(
                    self._exchange, method, _PREFIX + path, content, room
                )
        except httpx.TimeoutException:
            raise StoreUnavailable(
                f"Chroma at {self.description} did not answer in time",
                remedy="check that the server runs and is not overloaded",
            ) from None
        except httpx.RequestError as error:
            full = os.strerror(errno.EMFILE) in str(error)
            raise StoreUnavailable(
                f"cannot reach Chroma at {self.description}: {error}",
                remedy="allow this process more open files: `ulimit -n`"
                if full
                else "check --chroma and that the server runs",
            ) from None
        if response.is_success:
            return self._decode(response)
        raise self._error(response)

    def _again(self, state: RetryCallState, *, reads: bool) -> bool:
        """Return whether to make a request again; what may have changed something is not."""
        outcome = state.outcome
        if outcome is None:
            return False
        error = outcome.exception()
        if error is None:
            status = outcome.result().status_code
            if status not in _TURNED_AWAY | _LOST:
                self._throttle.succeeded()
                return False
            may = reads or status in _TURNED_AWAY
        else:
            # A connection that was kept open is dropped when the server is started anew.
            may = reads and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
        return may and self._throttle.failed()

    def _exchange(self, method: str, path: str, content: bytes | None, room: int) -> httpx.Response:
        """Return the whole answer. Raises ``StoreUnavailable`` for one of over ``room`` bytes."""
        with self._client.stream(method, path, content=content) as response:
            pieces = bytearray()
            for piece in response.iter_raw():
                pieces += piece
                if len(pieces) > room:
                    raise StoreUnavailable(
                        f"{self.description} answers more than {room} bytes",
                        remedy="check --chroma",
                    )
            return httpx.Response(
                response.status_code, content=bytes(pieces), request=response.request
            )

    def _decode(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = orjson.loads(response.content) if response.content else {}
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise StoreUnavailable(
                f"{self.description} answers something that is not Chroma's",
                remedy="check --chroma",
            )
        return answer

    def _error(self, response: httpx.Response) -> StoreError:
        status = response.status_code
        text = f"Chroma at {self.description} answers {status}: {_message(response)}"
        if status == 404 and b"NotFoundError" in response.content:
            return StoreMissing(text)
        if status == 409:
            return AlreadyExists(text)
        if status in (401, 403):
            return StoreDenied(text, remedy="check the credentials")
        if status == 429 or status >= 500:
            return StoreUnavailable(text)
        return StoreError(text, remedy=remedy_for(text))


def _message(response: httpx.Response) -> str:
    """Return the first line of an error answer, short enough for a log line."""
    try:
        answer = orjson.loads(response.content)
        text = answer.get("message") or answer.get("error")
    except (orjson.JSONDecodeError, AttributeError):
        text = response.text
    line = str(text or response.reason_phrase).strip().split("\n")[0][:200]
    return "".join(char if char.isprintable() else " " for char in line)


def _collection_id(answer: Mapping[str, object]) -> str:
    found = answer.get("id")
    if not isinstance(found, str):
        raise StoreUnavailable("Chroma's answer names no collection", remedy="check --chroma")
    return found


def _records(answer: Mapping[str, Any], query: Query) -> list[Record]:
    ids: list[str] = _column(answer, "ids", str)
    absent: list[None] = [None] * len(ids)
    documents = _column(answer, "documents", str | None) if query.documents else absent
    metadatas = _column(answer, "metadatas", dict | None) if query.metadatas else absent
    if not len(ids) == len(documents) == len(metadatas):
        raise StoreUnavailable(_WRONG_SHAPE)
    return [
        Record(record_id, document, metadata or {})
        for record_id, document, metadata in zip(ids, documents, metadatas, strict=True)
    ]


_WRONG_SHAPE = "Chroma's answer does not hold what was asked for"


def _column(answer: Mapping[str, Any], name: str, kind: type | UnionType) -> list[Any]:
    found = answer.get(name)
    if not isinstance(found, list) or not all(isinstance(item, kind) for item in found):
        raise StoreUnavailable(_WRONG_SHAPE)
    return found
