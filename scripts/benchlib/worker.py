"""Pieces of work that are measured from within, each in a process of its own.

Run as ``worker.py TASK TARGET COLLECTION PATH``; prints one JSON object. Imports, opening and
preparing are never in the seconds that are told, neither for us nor for the bare client.

``ingest``  PATH, a tree, through ``chromafuse.ingest``
``dump``    all records of a collection into PATH
``bare``    the records in PATH through a chromadb client
``bulk``    read all chunks, as fast as a chromadb client can, in calls of ``PAGE`` records
``get``     read the chunks of the page whose slug is PATH
``sessions``  open as many sessions of the hub TARGET as PATH tells, and read its page in each
``download``  the object PATH of the bucket COLLECTION at TARGET, and its first MiB, with boto3
``sequential``  the file PATH twice from its beginning to its end, after COLLECTION beside it
``shape``   what was dumped into PATH, as other tools store a tree: chunks without their version
            that are lines joined by a line break, slugs with an ending, the tree as plain JSON
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

BARE_BATCH = 1_000
"""Records a call. Batches of 300 to 5,000 are equally fast."""
PAGE = 5_000
PIECE = 1 << 20


class _Silent:
    def phase(self, text: str, total: int | None = None) -> None:
        """Nobody listens."""

    def advance(self, steps: int = 1) -> None:
        """Nobody listens."""


def ingest(target: str, collection: str, path: str) -> Mapping[str, object]:
    from chromafuse.ingest.write import IngestOptions
    from chromafuse.ingest.write import ingest as run
    from chromafuse.stores.chroma import open_collection

    store = open_collection(target, collection, create=True, timeout=60.0)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    summary = run(Path(path), store, IngestOptions(), _Silent())
    seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    records = sum(1 for _ in store.scan_ids())
    store.close()
    return {
        "seconds": seconds,
        "cpu": cpu,
        "pages": summary.pages,
        "chunks": summary.chunks,
        "records": records,
        "bytes": summary.bytes,
    }


def _client(target: str) -> ClientAPI:
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    if "://" not in target:
        return chromadb.PersistentClient(target, settings=settings)
    parts = urlsplit(target)
    return chromadb.HttpClient(parts.hostname or "", parts.port or 8000, settings=settings)


def dump(target: str, collection: str, path: str) -> Mapping[str, object]:
    found = _client(target).get_collection(collection, embedding_function=None)
    columns: dict[str, list[Any]] = {
        "ids": [],
        "documents": [],
        "metadatas": [],
        "embeddings": [],
    }
    while True:
        answer = found.get(
            limit=PAGE,
            offset=len(columns["ids"]),
            include=["documents", "metadatas", "embeddings"],
        )
        columns["ids"] += answer["ids"]
        columns["documents"] += answer["documents"] or []
        columns["metadatas"] += answer["metadatas"] or []
        vectors = answer["embeddings"]
        columns["embeddings"] += [] if vectors is None else [list(map(float, v)) for v in vectors]
        if len(answer["ids"]) < PAGE:
            break
    if len({len(column) for column in columns.values()}) != 1:
        raise SystemExit("Chroma returned columns of different lengths")
    Path(path).write_text(json.dumps(columns))
    return {"records": len(columns["ids"])}


def bare(target: str, collection: str, path: str) -> Mapping[str, object]:
    columns: dict[str, list[Any]] = json.loads(Path(path).read_text())
    created = _client(target).create_collection(collection, embedding_function=None)
    count = len(columns["ids"])
    begun, begun_cpu = time.perf_counter(), time.process_time()
    for start in range(0, count, BARE_BATCH):
        end = start + BARE_BATCH
        created.add(**{name: column[start:end] for name, column in columns.items()})
    seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    return {"seconds": seconds, "cpu": cpu, "records": count}


def bulk(target: str, collection: str, path: str) -> Mapping[str, object]:
    del path
    found = _client(target).get_collection(collection, embedding_function=None)
    begun = time.perf_counter()
    count = 0
    while True:
        answer = found.get(limit=PAGE, offset=count, include=["documents", "metadatas"])
        count += len(answer["ids"])
        if len(answer["ids"]) < PAGE:
            break
    return {"seconds": time.perf_counter() - begun, "records": count}


def get(target: str, collection: str, path: str) -> Mapping[str, object]:
    found = _client(target).get_collection(collection, embedding_function=None)
    begun = time.perf_counter()
    answer = found.get(where={"page": path}, include=["documents", "metadatas"])
    return {"seconds": time.perf_counter() - begun, "records": len(answer["ids"])}


def shape(target: str, collection: str, path: str) -> Mapping[str, object]:
    given = json.loads(Path(path).read_text())
    names: dict[str, str] = given["names"]
    dumped = given["records"]
    chunks = [
        (key, text, about, vector)
        for key, text, about, vector in zip(
            dumped["ids"],
            dumped["documents"],
            dumped["metadatas"],
            dumped["embeddings"],
            strict=True,
        )
        if about.get("page") in names and "chunk_index" in about
    ]
    last: dict[str, int] = {}
    for _, _, about, _ in chunks:
        last[about["page"]] = max(last.get(about["page"], 0), about["chunk_index"])
    created = _client(target).create_collection(collection, embedding_function=None)
    for start in range(0, len(chunks), BARE_BATCH):
        part = chunks[start : start + BARE_BATCH]
        created.add(
            ids=[key for key, _, _, _ in part],
            documents=[
                text if about["chunk_index"] == last[about["page"]] else text.removesuffix("\n")
                for _, text, about, _ in part
            ],
            metadatas=[
                {"page": names[about["page"]], "chunk_index": about["chunk_index"]}
                for _, _, about, _ in part
            ],
            embeddings=[vector for _, _, _, vector in part],
        )
    created.add(
        ids=["__path_tree__"],
        documents=[json.dumps({names[slug]: {} for slug in last})],
        embeddings=[chunks[0][3]],
    )
    return {"records": len(chunks)}


def sessions(target: str, collection: str, path: str) -> Mapping[str, object]:
    import os

    from chromafuse import control

    del collection
    asked = json.loads(path)
    opened, read = [], []
    with control.Client(target) as client:
        _settle(client)
        before = _resident_kib(client.pid)
        for number in range(asked["count"]):
            begun = time.perf_counter()
            answer = client.ask("open", groups=[f"group-{number}"])
            opened.append(time.perf_counter() - begun)
            page = f"{answer['path']}/{asked['page']}"
            with open(page, "rb", buffering=0) as file:
                if not file.read():
                    raise SystemExit(f"{page} is empty")
            read.append(time.perf_counter() - begun)
        grown = _resident_kib(client.pid) - before
        fresh = client.ask("open")["path"]
        begun = time.perf_counter()
        names = os.listdir(str(fresh))
        listed = time.perf_counter() - begun
        begun = time.perf_counter()
        with open(f"{fresh}/{asked['page']}", "rb", buffering=0) as file:
            file.read()
        catted = time.perf_counter() - begun
    if not names:
        raise SystemExit("a session shows nothing")
    told = {"first open + read": read[0], "ls": listed, "cat": catted, "memory_kib": grown}
    if asked["count"] > 1:
        for name, values in (("open", opened), ("open + read", read)):
            values.sort()
            for percent in (50, 90, 99):
                told[f"{name}, p{percent}"] = values[len(values) * percent // 100]
    return told


def download(target: str, collection: str, path: str) -> Mapping[str, object]:
    import boto3

    client = boto3.client("s3", endpoint_url=target, region_name="us-east-1")
    # The connection is there already for the others too.
    client.list_objects_v2(Bucket=collection)
    told: dict[str, object] = {}
    for name, more in (("first byte", {"Range": f"bytes=0-{PIECE - 1}"}), ("first", {})):
        begun = time.perf_counter()
        body = client.get_object(Bucket=collection, Key=path, **more)["Body"]
        while body.read(PIECE):
            pass
        told[name] = time.perf_counter() - begun
    return told


def sequential(target: str, collection: str, path: str) -> Mapping[str, object]:
    del target
    file = Path(path)
    # Whatever is imported and connected with the first read of all is not what is measured.
    if collection:
        file.with_name(collection).read_bytes()
    told: dict[str, object] = {}
    for which in ("first", "second"):
        begun = time.perf_counter()
        with file.open("rb", buffering=0) as opened:
            opened.read(1)
            told.setdefault("first byte", time.perf_counter() - begun)
            while opened.read(PIECE):
                pass
        told[which] = time.perf_counter() - begun
    return told


def _settle(client: Any) -> None:
    end = time.monotonic() + 60
    while client.ask("status")["warm_up"]["state"] != "done" and time.monotonic() < end:
        time.sleep(0.05)


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().split("\n"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("the hub has ended")


TASKS: Mapping[str, Callable[[str, str, str], Mapping[str, object]]] = {
    "ingest": ingest,
    "dump": dump,
    "bare": bare,
    "bulk": bulk,
    "get": get,
    "sessions": sessions,
    "download": download,
    "sequential": sequential,
    "shape": shape,
}

if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    print(json.dumps(TASKS[task](*arguments)))
