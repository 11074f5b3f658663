"""A page is its chunks in order, exactly as promised, or an error; never something else."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import AUTHENTICATED, PUBLIC
from chromafuse.domain.chunking import chunk_text
from chromafuse.domain.errors import ContentError
from chromafuse.domain.page import (
    IngestId,
    Metadata,
    MetadataValue,
    Page,
    Record,
    Slug,
    Version,
    assemble,
    chunk_id,
    chunk_ids,
    chunk_index,
    content_digest,
    make_version,
    ordered_documents,
    page_slug,
    parse_version,
    same_stored,
    storage_digest,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
INGEST = IngestId("0123abcd")


def make_page(text: str, chunks: int | None = 1, slug: str = "guide") -> Page:
    data = text.encode()
    version = make_version(content_digest(data), storage_digest(PUBLIC.key, 1600), INGEST)
    return Page(Slug(slug), b"guide.mdx", PUBLIC, len(data), 0, version, chunks)


def _about(index: int | None) -> dict[str, MetadataValue]:
    """The metadata of a chunk of a public page."""
    return {"access": "public"} | ({} if index is None else {"chunk_index": index})


def records_of(texts: list[str] | tuple[str, ...]) -> list[Record]:
    return [
        Record(f"id{n}", text, {"chunk_index": n, "access": "public"})
        for n, text in enumerate(texts)
    ]


@given(texts, st.integers(1, 40), st.randoms(use_true_random=False))
def test_chunks_in_any_order_give_the_identical_bytes(
    text: str, size: int, shuffler: random.Random
) -> None:
    chunks = chunk_text(text, size).texts
    records = records_of(chunks)
    shuffler.shuffle(records)
    assert assemble(make_page(text, len(chunks)), records) == text.encode()


@given(texts, st.integers(1, 40), st.integers(0, 60), st.integers(0, 60))
def test_a_range_of_the_page_is_that_slice_of_the_source(
    text: str, size: int, offset: int, length: int
) -> None:
    chunks = chunk_text(text, size).texts
    data = assemble(make_page(text, len(chunks)), records_of(chunks))
    assert data[offset : offset + length] == text.encode()[offset : offset + length]


@pytest.mark.parametrize("as_text", [False, True])
def test_order_is_by_number_beyond_ten_chunks(as_text: bool) -> None:
    parts = [f"part {n}\n" for n in range(120)]
    indices: list[Metadata] = [{"chunk_index": str(n) if as_text else n} for n in range(120)]
    records = [
        Record(str(n), part, index)
        for n, (part, index) in enumerate(zip(parts, indices, strict=True))
    ]
    random.Random(1).shuffle(records)
    assert ordered_documents(records) == parts


def test_integer_and_text_indices_may_stand_side_by_side() -> None:
    records = [Record("b", "two", {"chunk_index": "1"}), Record("a", "one ", {"chunk_index": 0})]
    assert ordered_documents(records) == ["one ", "two"]


TEXT = "one\ntwo\nthree\n"
PARTS = ("one\n", "two\n", "three\n")


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (records_of(PARTS)[:2], "2 of 3 chunks"),
        (records_of(PARTS)[1:], "chunk 0 is missing"),
        ([records_of(PARTS)[0], records_of(PARTS)[2]], "chunk 1 is missing"),
        ([*records_of(PARTS), Record("x", "two\n", _about(1))], "chunk 1 is there twice"),
        (records_of((*PARTS, "four\n")), "4 of 3 chunks"),
        (records_of(("one\n", "twx\n", "three\n")), "do not match their checksum"),
        (records_of(("one\n", "two", "three\n")), "13 bytes instead of 14"),
        (records_of(("one\n", "three\n", "two\n")), "do not match their checksum"),
        (
            [*records_of(PARTS)[:2], Record("x", None, _about(2))],
            "chunk 2 has no text",
        ),
        (
            [*records_of(PARTS)[:2], Record("x", "three\n", _about(None))],
            "no usable chunk_index",
        ),
        ([], "no chunk is there"),
    ],
)
def test_chunks_that_are_not_as_promised_are_an_error(records: list[Record], reason: str) -> None:
    with pytest.raises(ContentError, match=re.escape(reason)):
        assemble(make_page(TEXT, 3), records)


@pytest.mark.parametrize("mark", ["authenticated", "rule:0123", "", None, 1, True])
def test_a_chunk_marked_for_other_readers_is_an_error(mark: MetadataValue | None) -> None:
    records = records_of(PARTS)
    marks = {} if mark is None else {"access": mark}
    records[1] = Record("id1", PARTS[1], {"chunk_index": 1, **marks})
    with pytest.raises(ContentError, match="other readers"):
        assemble(make_page(TEXT, 3), records)


def test_a_page_without_version_is_held_to_its_measured_size() -> None:
    page = replace(make_page(TEXT, 3), version=None)
    assert assemble(page, records_of(PARTS)) == TEXT.encode()
    with pytest.raises(ContentError, match="instead of"):
        assemble(page, records_of(("one\n", "two\n", "three")))
    with pytest.raises(ContentError, match="no chunk"):
        assemble(replace(page, chunks=None, size=0), [])


@given(texts, st.data())
def test_losing_or_doubling_any_chunk_is_noticed(text: str, data: st.DataObject) -> None:
    chunks = chunk_text(text, 8).texts
    page, records = make_page(text, len(chunks)), records_of(chunks)
    victim = data.draw(st.integers(0, len(records) - 1))
    with pytest.raises(ContentError):
        assemble(page, records[:victim] + records[victim + 1 :])
    with pytest.raises(ContentError):
        assemble(page, [*records, records[victim]])


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (0, 0), (17, 17), ("0", 0), ("17", 17), ("007", 7), (-1, None), ("-1", None), (True, None),
        (1.0, None), ("1.0", None), ("", None), (" 1", None), ("1\n", None), ("٣", None),
        ("9999999999", None), ("²", None),
    ],
)  # fmt: skip
def test_a_chunk_index_is_a_natural_number_or_its_digits(
    value: str | float | bool, index: int | None
) -> None:
    assert chunk_index({"chunk_index": value}) == index


def test_a_chunk_without_index_has_none() -> None:
    assert chunk_index({}) is None


def test_the_slug_of_a_chunk_is_page_or_else_page_slug() -> None:
    assert page_slug({"page": "a"}) == "a"
    assert page_slug({"page_slug": "b"}) == "b"
    assert page_slug({"page": "a", "page_slug": "b"}) == "a"
    assert page_slug({"page": 3}) is None
    assert page_slug({}) is None


def test_a_version_changes_with_content_access_and_settings() -> None:
    content = content_digest(b"text")
    storage = storage_digest(PUBLIC.key, 1600, "none")
    version = make_version(content, storage, INGEST)
    assert parse_version(version) == version
    assert same_stored(version, content, storage)
    assert same_stored(make_version(content, storage, IngestId("ffffffff")), content, storage)
    assert not same_stored(version, content_digest(b"text "), storage)
    for other in (
        storage_digest(AUTHENTICATED.key, 1600, "none"),
        storage_digest(PUBLIC.key, 1601, "none"),
        storage_digest(PUBLIC.key, 1600, "wordllama"),
    ):
        assert not same_stored(version, content, other)
    assert not same_stored(None, content, storage)


@pytest.mark.parametrize(
    "value", [None, 5, "", "0" * 31, "0" * 33, "0" * 32 + "\n", "A" * 32, "g" * 32, b"0" * 32]
)
def test_what_is_no_version_of_ours_is_none(value: object) -> None:
    assert parse_version(value) is None


@given(st.sets(st.tuples(st.text(max_size=5), st.integers(0, 3)), min_size=2))
def test_chunk_ids_differ_and_begin_with_their_ingest(keys: set[tuple[str, int]]) -> None:
    version = Version("0" * 24 + INGEST)
    ids = {chunk_id(Slug(slug), version, index) for slug, index in keys}
    assert len(ids) == len(keys)
    assert all(len(one) == 32 and one.startswith(INGEST) for one in ids)


def test_chunk_ids_are_known_only_with_version_and_number() -> None:
    page = make_page("text", 3)
    assert page.version is not None
    assert chunk_ids(page) == [chunk_id(page.slug, page.version, n) for n in range(3)]
    assert chunk_ids(replace(page, version=None)) is None
    assert chunk_ids(replace(page, chunks=None)) is None
