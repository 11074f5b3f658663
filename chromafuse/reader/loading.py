"""What a worker thread does for one request to Chroma: fetch, then verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chromafuse.domain.errors import ContentError
from chromafuse.domain.page import Page, Record, assemble
from chromafuse.ports import ChunkReader, PageKey
from chromafuse.treestore import fetch_pages


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a request brought: an outcome for each page, and what may be shared.

    A page without a version is not shared: another site's page may have the same key.
    """

    outcomes: list[bytes | ContentError]
    fresh: list[tuple[PageKey, bytes]]


def load(store: ChunkReader, work: Sequence[tuple[PageKey, Page]]) -> Loaded:
    """Fetch pages; runs in a worker thread. Raises ``StoreError``."""
    records = fetch_pages(store, [page for _, page in work])
    outcomes = [assembled(page, records[page.slug]) for _, page in work]
    fresh = [
        (key, outcome)
        for (key, page), outcome in zip(work, outcomes, strict=True)
        if page.version is not None and isinstance(outcome, bytes)
    ]
    return Loaded(outcomes, fresh)


def assembled(page: Page, records: list[Record]) -> bytes | ContentError:
    try:
        return assemble(page, records)
    except ContentError as error:
        return error
