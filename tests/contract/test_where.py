"""Chroma finds with a rendered query what the query is true of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import chromadb
import pytest
from chromadb.api.types import WhereDocument

from chromafuse.domain.pattern import Fold, Literal, Or, Query, matches, to_chroma
from tests.support.chroma_server import ChromaServer

TEXTS = [
    "task list",
    "TA\u017f\u212a",
    "a.b*c [d] (e) {f} ^g$ h|i ?+ \\ # & - ~ / '\" % _",
    "axbxc",
    "\u00e9t\u00e9 \u00c9T\u00c9",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "line\nbreak\ttab",
    "\u65e5\u672c\u8a9e",
    "0123",
]
QUERIES: list[Query] = [
    Literal("task", Fold.UNICODE),
    Literal("task", Fold.ASCII),
    Literal("task"),
    Literal("a.b*c [d] (e) {f} ^g$ h|i ?+ \\ # & - ~ / '\" % _"),
    Or((Literal("a.b*c [d] (e) {f} ^g$ h|i ?+ \\ # & - ~ / '\" % _"), Literal("nowhere"))),
    Or((Literal("a.b"), Literal("\t"), Literal("k\tx"))),
    Literal("\u00e9t\u00e9", Fold.UNICODE),
    Literal("\u03c3\u03af\u03c3", Fold.UNICODE),
    Or((Literal("\u672c"), Literal("12"))),
    Literal("zzz"),
]


@pytest.mark.parametrize("query", QUERIES)
def test_chroma_finds_what_the_query_admits(query: Query, chroma_server: ChromaServer) -> None:
    host, _, port = chroma_server.url.removeprefix("http://").partition(":")
    client = chromadb.HttpClient(host=host, port=int(port))
    collection = client.get_or_create_collection("where", embedding_function=None)
    names = [str(number) for number in range(len(TEXTS))]
    vectors: list[Sequence[float]] = [[0.0]] * len(TEXTS)
    collection.upsert(ids=names, documents=TEXTS, embeddings=vectors)
    found = collection.get(where_document=cast("WhereDocument", to_chroma(query)))["ids"]
    expected = [
        name for name, text in zip(names, TEXTS, strict=True) if matches(query, text.encode())
    ]
    assert sorted(found) == expected
