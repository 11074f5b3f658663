"""The switch from one tree to the next, and the removal of what no tree names any more."""

from __future__ import annotations

import time
from collections.abc import Iterable

from chromafuse.domain.errors import SwitchConflict
from chromafuse.domain.page import (
    IngestId,
    Record,
    Slug,
    chunk_id,
    chunk_index,
    page_slug,
    parse_version,
)
from chromafuse.domain.tree import TreeVersion
from chromafuse.domain.treecodec import TREE_ID, TreeText, part_ids, part_owner
from chromafuse.ingest.intent import INTENT_PREFIX, Intent
from chromafuse.ports import ChunkWriter, NewRecord
from chromafuse.treestore import head_metadata, head_version


def switch_tree(
    store: ChunkWriter,
    intent: Intent,
    ingest: IngestId,
    text: TreeText,
    base: TreeVersion | None,
    garbage: Iterable[str],
    *,
    dimension: int,
) -> list[str]:
    """Put the tree ``text`` in the place of ``base`` and return which of ``garbage`` may go.

    ``garbage`` are ids seen in the collection that the new tree does not name. The choice among
    them is made under the lock: an ingest that began later has ids not in ``garbage``, one that
    still runs has its intent, and one that has ended has switched the tree, which is noticed
    here. Raises ``SwitchConflict`` if the stored tree is no longer ``base``, ``StoreError``.
    """
    changed = text.version != base
    records = _tree_records(ingest, text, dimension)
    if changed:
        intent.give_sign()
        for start in range(1, len(records), store.write_batch):
            store.upsert(records[start : start + store.write_batch])
    with store.exclusive():
        if head_version(store) != base:
            raise SwitchConflict(
                "another ingest has changed the site in the meantime; nothing was switched",
                remedy="run this ingest again",
            )
        running = intent.others_running()
        if changed:
            store.upsert(records[:1])
    return _removable(store, garbage, running)


def _tree_records(ingest: IngestId, text: TreeText, dimension: int) -> list[NewRecord]:
    ids = part_ids(ingest, len(text.documents))
    head = head_metadata(text.version, len(ids), time.time_ns(), ingest)
    zero = (0.0,) * dimension
    return [
        NewRecord(
            record_id, document, head if record_id == TREE_ID else {"tree": text.version}, zero
        )
        for record_id, document in zip(ids, text.documents, strict=True)
    ]


def _removable(store: ChunkWriter, garbage: Iterable[str], running: set[IngestId]) -> list[str]:
    """Return those of ``garbage`` that are ours and belong to no ingest of ``running``."""
    chosen: list[str] = []
    unsure: list[str] = []
    for record_id in garbage:
        owner = part_owner(record_id)
        if record_id.startswith(INTENT_PREFIX):
            owner = record_id.removeprefix(INTENT_PREFIX)
        if owner is not None:
            if owner not in running:
                chosen.append(record_id)
        elif record_id[:8] not in running:
            unsure.append(record_id)
    # In portions: with the records come their texts.
    for start in range(0, len(unsure), store.write_batch):
        records = store.get(unsure[start : start + store.write_batch])
        chosen += [record.id for record in records if _is_our_chunk(record)]
    return chosen


def _is_our_chunk(record: Record) -> bool:
    slug, version = page_slug(record.metadata), parse_version(record.metadata.get("version"))
    index = chunk_index(record.metadata)
    if slug is None or version is None or index is None:
        return False
    return chunk_id(Slug(slug), version, index) == record.id
