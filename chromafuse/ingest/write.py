"""A docs tree into a collection, so that every reader sees the old site or the new one.

The order of writes is the whole of it:

1. before anything else, a record that tells that this ingest runs (its *intent*), so that others
   leave its chunks alone;
2. chunks of new and changed pages, under ids that no other ingest can have;
3. under the collection's lock: if the tree is still the one this ingest began from, the new tree
   replaces it in one write; otherwise ``SwitchConflict``, and the own chunks are taken back;
4. what no tree names any more is deleted, except what belongs to another running ingest.

A killed ingest leaves chunks that no tree names and an intent whose process is gone: the next
ingest's step 4 removes both. Records that are not ours are never touched.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from chromafuse.domain.access import AccessRule, all_of
from chromafuse.domain.chunking import DEFAULT_CHUNK_SIZE, chunk_text
from chromafuse.domain.errors import (
    IngestError,
    StoreError,
    StoreUnavailable,
    TreeError,
)
from chromafuse.domain.page import (
    IngestId,
    Metadata,
    Page,
    Slug,
    chunk_id,
    chunk_ids,
    content_digest,
    make_version,
    same_stored,
    storage_digest,
)
from chromafuse.domain.pointer import Registration
from chromafuse.domain.tree import TreeVersion, build_tree, path_problem
from chromafuse.domain.treecodec import TREE_ID, encode_tree, part_ids
from chromafuse.ingest.intent import Intent
from chromafuse.ingest.objects import Registered, Users, find_objects, page_of, place_of
from chromafuse.ingest.report import printable
from chromafuse.ingest.sources import (
    Content,
    Notice,
    Omission,
    Source,
    SourceOptions,
    Sources,
    find_sources,
    read_source,
    rule_of_lost,
)
from chromafuse.ingest.switch import switch_tree
from chromafuse.ingest.uploads import Uploaded, UploadOptions, upload
from chromafuse.ports import BlobReader, ChunkWriter, NewRecord
from chromafuse.treestore import Head, load_tree, parse_head

log = logging.getLogger(__name__)

FLUSH_BYTES = 8_000_000
"""Bytes of chunks held before they are written, whatever their number."""


class Embedder(Protocol):
    """Vectors for texts; ``name`` tells how they were made."""

    name: str
    dimension: int

    def vectors(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return one vector of ``dimension`` numbers for each text."""


class Placeholder:
    """No meaning, no model: Chroma wants some vector with every record."""

    name = "none"
    dimension = 1

    def vectors(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        return [(0.0,)] * len(texts)


class Progress(Protocol):
    """Who is told how far a long ingest is."""

    def phase(self, text: str, total: int | None = None) -> None:
        """A new phase begins, of ``total`` steps where that is known."""

    def advance(self, steps: int = 1) -> None:
        """Some steps of the phase are done."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to store; what to take is in ``sources``.

    ``registrations`` name the objects to point to, which ``blobs`` reads.
    """

    sources: SourceOptions = field(default_factory=SourceOptions)
    chunk_size: int = DEFAULT_CHUNK_SIZE
    embedder: Embedder = field(default_factory=Placeholder)
    registrations: Sequence[Registration] = ()
    blobs: BlobReader | None = None
    uploads: UploadOptions | None = None
    """What to upload, and where to; None: nothing."""
    switched: Callable[[], None] = lambda: None
    """Called when readers find the new tree, and before the old pages are deleted."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What an ingest did. ``bytes`` and ``chunks`` are the site's, not only what was written.

    ``pointers`` are those of its pages whose bytes are outside Chroma.
    """

    pages: int
    chunks: int
    bytes: int
    pointers: int
    uploaded: int
    written_pages: int
    written_chunks: int
    unchanged_pages: int
    removed_pages: int
    removed_records: int
    switched: bool
    tree_version: TreeVersion
    omissions: tuple[Omission, ...]
    notices: tuple[Notice, ...]

    @property
    def lost(self) -> tuple[Omission, ...]:
        """What the user gave and could not be stored."""
        return tuple(omission for omission in self.omissions if omission.lost)


def ingest(root: Path, store: ChunkWriter, options: IngestOptions, progress: Progress) -> Summary:
    """Store the tree under ``root`` and return what was done.

    Raises ``IngestError``, ``SwitchConflict``, ``TreeError``, ``StoreError``; the old site is
    then what readers go on seeing.
    """
    return _Ingest(store, options, progress).run(root)


_NAMES_ALL = "it names every page of the site: all their rules together"


class _Ingest:
    """One run. State: what is stored already, and what this run has written so far."""

    def __init__(self, store: ChunkWriter, options: IngestOptions, progress: Progress) -> None:
        self._store = store
        self._options = options
        self._progress = progress
        self._id = IngestId(secrets.token_hex(4))
        self._written: list[str] = []
        self._written_parts: Sequence[str] = ()
        self._pending: list[NewRecord] = []
        self._pending_bytes = 0
        self._intent = Intent(store, self._id, options.embedder.dimension)
        self._omissions: list[Omission] = []
        self._notices: list[Notice] = []
        self._reasons: dict[Slug, str] = {}
        self._uploaded: dict[str, Uploaded] = {}

    def run(self, root: Path) -> Summary:
        self._progress.phase("looking for pages")
        objects = self._find_objects()
        others = tuple(item.rel for item in objects)
        sources = find_sources(root, replace(self._options.sources, others=others))
        self._omissions += sources.omissions
        self._notices += sources.notices
        base = _base(self._store)
        with self._taken_back_on_failure():
            self._progress.phase("reading what is stored")
            stored = set(self._store.scan_ids())
            access = self._options.sources.access
            self._upload(sources)
            for item in objects:
                if item.rel in self._uploaded:
                    where = printable(item.blob.pointer.location.url)
                    problem = f"/{printable(item.rel)} is a file of the tree"
                    self._omissions.append(Omission(where, problem, lost=True))
            ruled = [item.source.ruled for item in self._uploaded.values()]
            ruled += [access.find(i.rel) for i in objects if i.rel not in self._uploaded]
            objects = [
                *(item.item for item in self._uploaded.values()),
                *(item for item in objects if item.rel not in self._uploaded),
            ]
            users = Users(objects, ruled)
            pages = self._store_pages(sources, base, stored, users)
            pages += self._point(objects, pages, users)
            sources.ensure_root()
            return self._finish(pages, base, stored)

    def _finish(self, pages: list[Page], base: _Base, stored: set[str]) -> Summary:
        if base.pages and not pages:
            raise IngestError(
                f"the source holds no page, and {self._store.description} has {len(base.pages):,}:"
                " nothing was switched",
                remedy="delete the collection if the site is to go, or ingest into another one",
            )
        new = build_tree(pages, TreeVersion(""))
        if new.rejected:
            refused = new.rejected[0]
            raise IngestError(f"{refused.slug} cannot be stored: {refused.reason}")
        text = encode_tree(new.pages, self._store.record_bytes, self._reasons)
        switched = text.version != base.version
        parts = part_ids(self._id, len(text.documents)) if switched else base.parts
        expected = _ids_of(new.pages) | set(parts)
        garbage = [record_id for record_id in stored if record_id not in expected]
        if switched or garbage:
            self._progress.phase("switching the tree")
            self._written_parts = parts[1:] if switched else []
            dimension = self._options.embedder.dimension
            garbage = switch_tree(
                self._store,
                self._intent,
                self._id,
                text,
                base.version,
                garbage,
                dimension=dimension,
            )
            if switched:
                self._options.switched()
            self._delete(garbage)
        pointers = sum(page.pointer is not None for page in new.pages)
        written = {
            page.slug
            for page in new.pages
            if page.pointer is None and (page.version or "")[24:] == self._id
        }
        return Summary(
            pages=len(new.pages),
            chunks=sum(page.chunks or 0 for page in new.pages),
            bytes=new.total_bytes,
            pointers=pointers,
            uploaded=sum(item.new for item in self._uploaded.values()),
            written_pages=len(written),
            written_chunks=len(self._written),
            unchanged_pages=len(new.pages) - len(written) - pointers,
            removed_pages=len(base.pages.keys() - {page.slug for page in new.pages}),
            removed_records=len(garbage),
            switched=switched,
            tree_version=text.version,
            omissions=tuple(self._omissions),
            notices=tuple(self._notices),
        )

    # Objects

    def _find_objects(self) -> list[Registered]:
        blobs = self._options.blobs
        if blobs is None or not self._options.registrations:
            return []
        self._progress.phase("looking for objects")
        objects, omissions = find_objects(self._options.registrations, blobs)
        self._omissions += omissions
        return objects

    def _upload(self, sources: Sources) -> None:
        if self._options.uploads is None:
            return
        self._progress.phase("uploading large files", len(sources.files))
        for source in sources.files:
            made = upload(source, self._options.uploads)
            self._progress.advance()
            if made is not None:
                self._uploaded[source.rel] = made

    def _point(
        self, objects: Sequence[Registered], pages: Sequence[Page], users: Users
    ) -> list[Page]:
        """Return pages for ``objects``; what the tree has at a path stays there."""
        options = self._options.sources
        paths = {page.path.decode(): page for page in pages}
        above = {path[:at] for path in paths for at in range(len(path)) if path[at] == "/"}
        slugs = {page.slug for page in pages}
        made = []
        for item in objects:
            problem = place_of(item, paths, above)
            if problem is not None:
                where = printable(item.blob.pointer.location.url)
                self._omissions.append(Omission(where, problem, lost=True))
                continue
            rule, why = users.rule(item, options.default_access)
            if item.rel in self._uploaded:
                # The navigation may say something of a file of the tree.
                rule = all_of([rule, self._uploaded[item.rel].rule])
            page = page_of(item, rule, slugs)
            slugs.add(page.slug)
            self._reasons[page.slug] = why
            made.append(page)
        return made

    # Pages

    def _store_pages(
        self, sources: Sources, base: _Base, stored: set[str], users: Users
    ) -> list[Page]:
        self._progress.phase("storing pages", len(sources.files))
        pages: list[Page] = []
        # A site file names every page, also those that are not stored.
        named = {sources.named_rule, *users.stated}
        for source in _site_files_last(sources.files):
            if source.rel in self._uploaded:
                self._progress.advance()
                named.add(self._uploaded[source.rel].rule)
                continue
            content = read_source(source)
            self._progress.advance()
            if isinstance(content, Omission):
                sources.ensure_root()
                self._omissions.append(content)
                named.add(rule_of_lost(source))
                continue
            self._notices += content.notices
            rule, why = content.rule, content.why
            if source.site_file:
                rule = all_of([*named, rule])
                why = "; and ".join(filter(None, [_NAMES_ALL, why]))
            named.add(rule)
            users.note(source.rel, "" if source.site_file else content.text, rule)
            if source.site_file:
                users.note_site(source.rel, content.text)
            problem = path_problem(source.rel.encode())
            if problem:
                self._omissions.append(Omission(source.rel, problem, lost=True))
                continue
            self._reasons[Slug(source.slug)] = why
            pages.append(
                self._page(source, content, rule, base.pages.get(Slug(source.slug)), stored)
            )
        self._flush()
        return pages

    def _page(
        self,
        source: Source,
        content: Content,
        rule: AccessRule,
        old: Page | None,
        stored: set[str],
    ) -> Page:
        digest = content_digest(content.data)
        settings = (self._options.chunk_size, self._options.embedder.name)
        storage = storage_digest(rule.key, *settings)
        path = source.rel.encode()
        if old and same_stored(old.version, digest, storage) and _ids_of([old]) <= stored:
            return replace(old, path=path, rule=rule, mtime_ns=content.mtime_ns)
        slug = Slug(source.slug)
        version = make_version(digest, storage, self._id)
        chunks = chunk_text(content.text, self._options.chunk_size)
        for index, text in enumerate(chunks.texts):
            metadata: Metadata = {
                "page": slug,
                "chunk_index": index,
                "version": version,
                "access": rule.key,
            }
            self._put(chunk_id(slug, version, index), text, metadata)
        return Page(
            slug=slug,
            path=path,
            rule=rule,
            size=len(content.data),
            mtime_ns=content.mtime_ns,
            version=version,
            chunks=len(chunks.texts),
            cut=chunks.cut,
            nul=b"\0" in content.data,
        )

    def _put(self, record_id: str, text: str, metadata: Metadata) -> None:
        self._pending.append(NewRecord(record_id, text, metadata, ()))
        self._pending_bytes += len(text)
        if len(self._pending) >= self._store.write_batch or self._pending_bytes >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        self._intent.give_sign()
        vectors = self._options.embedder.vectors([record.document for record in self._pending])
        self._written += [record.id for record in self._pending]
        self._store.add(
            [
                replace(record, vector=vector)
                for record, vector in zip(self._pending, vectors, strict=True)
            ]
        )
        self._pending = []
        self._pending_bytes = 0

    def _delete(self, ids: Sequence[str]) -> None:
        self._progress.phase("deleting old versions", len(ids))
        for start in range(0, len(ids), self._store.write_batch):
            batch = ids[start : start + self._store.write_batch]
            self._store.delete(batch)
            self._progress.advance(len(batch))

    @contextmanager
    def _taken_back_on_failure(self) -> Iterator[None]:
        """Delete what was written if the run fails, and the intent in any case."""
        try:
            yield
        except StoreUnavailable:
            # What got no answer may still happen, the switch too: the next ingest cleans up.
            raise
        except BaseException:
            # Only tidiness: what stays is removed by the next ingest.
            with suppress(StoreError, TreeError):
                mine = [*self._written, *self._written_parts]
                if mine and not self._named():
                    self._store.delete(mine)
            raise
        finally:
            self._intent.withdraw()

    def _named(self) -> bool:
        """Return whether the stored tree is this run's."""
        head = _head(self._store)
        return head is not None and head.owner == self._id


@dataclass(frozen=True, slots=True)
class _Base:
    """The stored tree that a run begins from; ``version`` None means that there is none.

    ``parts`` are the ids of its records.
    """

    version: TreeVersion | None
    pages: Mapping[Slug, Page]
    parts: Sequence[str] = ()


def _base(store: ChunkWriter) -> _Base:
    """Return what is stored.

    A tree of ours that is damaged counts as one without pages: this ingest mends it. One that
    another tool wrote is never overwritten: raises ``IngestError``.
    """
    head = _head(store)
    while head is not None:
        if head.version is None:
            raise IngestError(
                f"{store.description} holds a site that another tool wrote",
                remedy="choose another --collection, or mount that site as it is",
            )
        try:
            tree = load_tree(store, default_mtime_ns=0)
        except TreeError as error:
            log.warning("the stored tree is replaced: %s", error)
            return _Base(head.version, {}, [TREE_ID])
        before, head = head, _head(store)
        if head == before:
            parts = part_ids(before.owner or tree.version, before.parts)
            return _Base(tree.version, {page.slug: page for page in tree.pages}, parts)
    return _Base(None, {})


def _head(store: ChunkWriter) -> Head | None:
    metadata = store.metadata(TREE_ID)
    return None if metadata is None else parse_head(metadata)


def _ids_of(pages: Iterable[Page]) -> set[str]:
    return {record_id for page in pages for record_id in chunk_ids(page) or ()}


def _site_files_last(files: Sequence[Source]) -> list[Source]:
    """Return ``files`` with those that name every page at the end: their access follows theirs."""
    return sorted(files, key=lambda source: source.site_file)
