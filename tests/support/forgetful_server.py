"""Answers like Chroma, but of a document keeps the length only: for tests of a client's memory.

It is the answering server with this in front; what is stored is not the subject of such a test.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from chromafuse.domain.treecodec import TREE_ID
from tests.support.answering_server import Answer, AnsweringServer, Request, as_json

_COLLECTION = "5c0e0000-0000-0000-0000-000000000001"
_COLLECTIONS_DEPTH = 8


class Forgetful:
    """One collection. Give ``answer`` to an ``AnsweringServer``."""

    def __init__(self, server: AnsweringServer) -> None:
        self._records: dict[str, tuple[str | int, dict[str, Any]]] = {}
        self._guard = threading.Lock()
        server.answer = self.answer
        server.forget = True

    @property
    def ids(self) -> list[str]:
        return list(self._records)

    def answer(self, request: Request) -> Answer:
        parts = request.path.strip("/").split("/")[_COLLECTIONS_DEPTH - 1 :]
        if len(parts) < 2:
            # A lock is given to everybody: there is one client.
            return as_json({"id": _COLLECTION, "metadata": None})
        body = json.loads(request.body)
        with self._guard:
            if parts[1] in ("add", "upsert"):
                self._write(body)
            elif parts[1] == "delete":
                for record_id in body["ids"]:
                    self._records.pop(record_id, None)
            else:
                return as_json(self._get(body))
        return as_json({})

    def _write(self, body: dict[str, Any]) -> None:
        for record_id, document, metadata in zip(
            body["ids"], body["documents"], body["metadatas"], strict=True
        ):
            kept = document if record_id.startswith(TREE_ID) else len(document)
            self._records[record_id] = (kept, metadata)

    def _get(self, body: dict[str, Any]) -> dict[str, Any]:
        wanted = body.get("ids", list(self._records))
        found = [one for one in wanted if one in self._records and self._matches(one, body)]
        found = found[body["offset"] : body["offset"] + body["limit"]]
        answer: dict[str, Any] = {"ids": found}
        if "documents" in body["include"]:
            answer["documents"] = [self._document(one) for one in found]
        if "metadatas" in body["include"]:
            answer["metadatas"] = [self._records[one][1] for one in found]
        return answer

    def _matches(self, record_id: str, body: dict[str, Any]) -> bool:
        metadata = self._records[record_id][1]
        return all(metadata.get(name) == value for name, value in body.get("where", {}).items())

    def _document(self, record_id: str) -> str:
        kept = self._records[record_id][0]
        return kept if isinstance(kept, str) else "x" * kept
