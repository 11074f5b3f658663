"""Sites for tests: written to a directory, ingested, put into a store by hand, read back whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from chromafuse.domain.access import PUBLIC, AccessRule
from chromafuse.domain.chunking import chunk_text
from chromafuse.domain.errors import ContentError, TreeError
from chromafuse.domain.page import (
    IngestId,
    Metadata,
    Page,
    Record,
    Slug,
    assemble,
    chunk_id,
    chunk_ids,
    content_digest,
    make_version,
    storage_digest,
)
from chromafuse.domain.tree import PathTree
from chromafuse.domain.treecodec import TREE_ID, part_ids
from chromafuse.ingest.write import IngestOptions, Summary, ingest
from chromafuse.ports import ChunkReader, ChunkWriter, NewRecord
from chromafuse.treestore import (
    fetch_pages,
    load_tree,
    measure,
    needs_measuring,
    parse_head,
)

PAGES_AT_ONCE = 200


class Quiet:
    """Progress that nobody looks at."""

    def phase(self, text: str, total: int | None = None) -> None:
        """Nothing is shown."""

    def advance(self, steps: int = 1) -> None:
        """Nothing is shown."""


def write_site(root: Path, pages: Mapping[str, str | bytes]) -> Path:
    """Make ``root`` hold exactly ``pages`` by path; unchanged files keep their time."""
    root.mkdir(parents=True, exist_ok=True)
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(root).as_posix() not in pages:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for rel, content in pages.items():
        path = root / rel
        data = content if isinstance(content, bytes) else content.encode()
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return root


def run_ingest(root: Path, store: ChunkWriter, **options: object) -> Summary:
    return ingest(root, store, IngestOptions(**options), Quiet())  # type: ignore[arg-type]


def read_site(store: ChunkReader) -> dict[str, bytes]:
    """Return every page of the stored site; one that is not whole raises ``ContentError``."""
    return read_pages(store, load_tree(store, default_mtime_ns=0))


def read_pages(store: ChunkReader, tree: PathTree) -> dict[str, bytes]:
    if needs_measuring(tree):
        tree = measure(store, tree)
    assert not tree.rejected
    found: dict[str, bytes] = {}
    for start in range(0, len(tree.pages), PAGES_AT_ONCE):
        pages = tree.pages[start : start + PAGES_AT_ONCE]
        records = fetch_pages(store, pages)
        for page in pages:
            try:
                found[page.path.decode()] = assemble(page, records[page.slug])
            except ContentError as error:
                raise ContentError(f"{page.slug}: {error}") from None
    return found


def read_current_site(store: ChunkReader) -> dict[str, bytes]:
    """Return the site as a reader beside a running ingest gets it.

    Chunks may be gone because the tree was switched after it was loaded, so a failure counts only
    if the tree is still the one that was read.
    """
    while True:
        tree = load_tree(store, default_mtime_ns=0)
        try:
            return read_pages(store, tree)
        except ContentError:
            if load_tree(store, default_mtime_ns=0).version == tree.version:
                raise


def all_records(store: ChunkReader) -> dict[str, tuple[str | None, dict[str, object]]]:
    """Return everything that the collection holds, by id."""
    return {r.id: (r.document, dict(r.metadata)) for r in store.scan(documents=True)}


def orphans(store: ChunkWriter) -> list[str]:
    """Return the ids of records that the stored tree does not need."""
    wanted: set[str] = set()
    try:
        tree = load_tree(store, default_mtime_ns=0)
    except TreeError:
        pass
    else:
        metadata = store.metadata(TREE_ID)
        assert metadata is not None
        head = parse_head(metadata)
        wanted |= set(part_ids(head.owner or tree.version, head.parts))
        for page in tree.pages:
            wanted |= set(chunk_ids(page) or ())
    return sorted(set(store.scan_ids()) - wanted)


def store_page(
    store: ChunkWriter,
    slug: str,
    text: str,
    *,
    size: int = 20,
    ingest_id: str = "0000000a",
    rule: AccessRule = PUBLIC,
) -> Page:
    """Write a page's chunks as an ingest does, and return what a tree says of it."""
    data = text.encode()
    storage = storage_digest(rule.key, size, "none")
    version = make_version(content_digest(data), storage, IngestId(ingest_id))
    texts = chunk_text(text, size).texts
    store.add(
        [
            NewRecord(
                chunk_id(Slug(slug), version, index),
                chunk,
                {"page": slug, "chunk_index": index, "version": version, "access": rule.key},
                (0.0,),
            )
            for index, chunk in enumerate(texts)
        ]
    )
    path = f"{slug}.mdx".encode()
    return Page(Slug(slug), path, rule, len(data), 7, version, len(texts))


def foreign_chunks(
    slug: str, text: str, *, fields: tuple[str, ...] = ("page",), as_text: bool = False
) -> list[NewRecord]:
    """Return a page's chunks as another tool writes them: no versions, ids of its own."""
    records = []
    for index, chunk in enumerate(chunk_text(text, 20).texts):
        metadata: dict[str, str | float | bool] = dict.fromkeys(fields, slug)
        metadata["chunk_index"] = str(index) if as_text else index
        digest = hashlib.sha1(f"{slug} {index}".encode(), usedforsecurity=False).hexdigest()
        records.append(NewRecord(f"foreign-{digest}", chunk, metadata, (0.0,)))
    return records


def tree_record(document: str, metadata: Metadata | None = None) -> NewRecord:
    """Return a tree as another tool writes it, with some metadata, as Chroma wants any."""
    return NewRecord(TREE_ID, document, metadata or {"kind": "tree"}, (0.0,))


def stored_chunks(store: ChunkReader, slug: str) -> list[Record]:
    """Return the records of one page in order."""
    records = store.find({"page": slug})
    return sorted(records, key=lambda record: int(record.metadata["chunk_index"]))
