"""Checks of the site: tokens, Redis, Chroma, the stored tree and, on demand, every page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chromafuse.config import Settings
from chromafuse.doctor.findings import Finding, Progress, Severity
from chromafuse.domain.access import AUTHENTICATED, HIDDEN
from chromafuse.domain.errors import (
    BlobDenied,
    ChromafuseError,
    ContentError,
    CredentialsRefused,
    StoreError,
)
from chromafuse.domain.page import Page, Record, assemble
from chromafuse.domain.pointer import Place
from chromafuse.domain.tree import PathTree
from chromafuse.ports import BlobReader, ChunkReader
from chromafuse.tokens import grant_from, verifier_from

BATCH_PAGES = 100
BATCH_BYTES = 8 << 20
SHOWN_PAGES = 20
"""Damaged pages that are named; the rest is counted."""


def tokens(settings: Settings) -> Iterator[Finding]:
    """Keys and lists of tokens can be read, and the token that is set is accepted."""
    verifier_from(settings)
    sources = [
        f"{option} {value}"
        for option, value in (
            ("--jwt-key", settings.jwt_key),
            ("--tokens-file", settings.tokens_file),
        )
        if value is not None
    ]
    text = (
        f"accepted by {' and '.join(sources)}" if sources else "no token is accepted: none set up"
    )
    if settings.token is not None or settings.token_file is not None:
        grant_from(settings)
        text += "; the token that is set is one of them"
    yield Finding("tokens", Severity.OK, text)


def redis(settings: Settings) -> Iterator[Finding]:
    """Redis answers, if it is set; mounts work without it."""
    if settings.redis is None:
        yield Finding("redis", Severity.OK, "none is set")
        return
    from chromafuse.stores.redis import RedisCache

    cache = RedisCache(settings.redis, settings.redis_ttl)
    try:
        cache.ping()
    except ChromafuseError as error:
        yield Finding.of("redis", error, Severity.WARNING)
    else:
        yield Finding("redis", Severity.OK, f"{cache.description} answers")
    finally:
        cache.close()


def objects(settings: Settings) -> Iterator[Finding]:
    """Each place of files outside Chroma answers, if there is one."""
    if not settings.places:
        yield Finding("objects", Severity.OK, "no place is set")
        return
    from chromafuse.stores.blobs import Blobs

    blobs = Blobs(settings.places, settings.s3_options(settings.deadline))
    try:
        for place in settings.places:
            yield _place(blobs, place)
    finally:
        blobs.close()


def _place(blobs: BlobReader, place: Place) -> Finding:
    try:
        first = next(iter(blobs.scan(place)), None)
    except CredentialsRefused as error:
        return Finding.of("objects", error)
    except BlobDenied as error:
        # Who may read objects need not be allowed to list them.
        return Finding.of("objects", error, Severity.NOTE)
    except StoreError as error:
        mend = error.remedy or (
            "make the directory, or correct --pointers-allowed"
            if place.scheme == "file"
            else "check bucket, --s3-endpoint, region and credentials, and that the server runs"
        )
        return Finding("objects", Severity.ERROR, str(error.args[0]), mend)
    held = "answers" if first else "answers, and holds nothing"
    return Finding("objects", Severity.OK if first else Severity.NOTE, f"{place.url} {held}")


def chroma(settings: Settings, *, deep: bool) -> Iterator[Finding | Progress]:
    """Chroma answers, the collection is there, and its tree is consistent.

    ``deep`` reads every page and puts it together.
    """
    from chromafuse.stores.chroma import open_collection
    from chromafuse.treestore import decode_text, fetch_text

    store = open_collection(
        settings.chroma, settings.collection, create=False, timeout=settings.deadline
    )
    try:
        yield Finding("chroma", Severity.OK, f"{store.description} answers")
        empty = AUTHENTICATED if settings.empty_groups == "authenticated" else HIDDEN
        tree = decode_text(fetch_text(store), default_mtime_ns=0, empty_groups=empty)
        rejected = tree.rejections()
        for reason, count in sorted(rejected.items()):
            text = f"{count} entries of the tree cannot be shown: {reason}"
            mend = f"chromafuse tree --all --collection {settings.collection}"
            yield Finding("tree", Severity.WARNING, text, mend)
        yield Finding("tree", Severity.OK, f"{len(tree.pages)} pages, version {tree.version}")
        if deep:
            yield from _pages(store, tree)
    finally:
        store.close()


def _pages(store: ChunkReader, tree: PathTree) -> Iterator[Finding | Progress]:
    from chromafuse.treestore import fetch_pages, measure, needs_measuring

    total = len(tree.pages)
    if needs_measuring(tree):
        yield Progress(0, total)
        tree = measure(store, tree)
    done = damaged = 0
    for batch in _batches(tree.pages):
        records = fetch_pages(store, batch)
        for page in batch:
            damage = _damage(page, records[page.slug])
            if damage is None:
                continue
            damaged += 1
            if damaged <= SHOWN_PAGES:
                text = f"page {page.slug} cannot be read: {damage}"
                yield Finding("pages", Severity.ERROR, text, "ingest again")
        done += len(batch)
        yield Progress(done, total)
    if damaged > SHOWN_PAGES:
        text = f"{damaged - SHOWN_PAGES} further pages cannot be read"
        yield Finding("pages", Severity.ERROR, text, "ingest again")
    yield Finding("pages", Severity.OK, f"{total - damaged} of {total} pages are whole")


def _damage(page: Page, records: Sequence[Record]) -> str | None:
    if page.damage is not None:
        return page.damage
    try:
        assemble(page, records)
    except ContentError as error:
        return str(error)
    return None


def _batches(pages: Sequence[Page]) -> Iterator[list[Page]]:
    batch: list[Page] = []
    size = 0
    for page in pages:
        if batch and (len(batch) == BATCH_PAGES or size + page.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(page)
        size += page.size
    if batch:
        yield batch
