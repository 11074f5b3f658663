"""Chunks join to the identical text, stay small, and cut lines only where nothing else helps."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chromafuse.domain.chunking import DEFAULT_CHUNK_SIZE, MAX_CHUNK_BYTES, Chunks, chunk_text

# Everything that some tool takes for the end of a line, beside what has 1, 2, 3 and 4 bytes.
ODD = ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\0", "\ufeff"]
WIDE = ["a", "é", "漢", "\U0001f600", " ", "\t", "# ", "## ", "<h2>", "===\n", "\n\n", "\n \n"]

characters = st.characters(exclude_categories=["Cs"])
texts = st.one_of(
    st.text(characters),
    st.lists(st.one_of(st.sampled_from(ODD + WIDE), st.text(characters, max_size=8))).map("".join),
)
sizes = st.integers(1, 16_000)
# Lines around the greatest size of a chunk, of characters of one, two, three or four bytes.
long_lines = st.tuples(
    st.sampled_from("aé漢\U0001f600"),
    st.integers(3_900, 33_000),
    st.sampled_from(["", "\n", "\r\n", "\u2028"]),
).map(lambda parts: parts[0] * parts[1] + parts[2])
large_texts = st.lists(st.one_of(long_lines, texts), min_size=1, max_size=4).map("".join)


def check(text: str, chunks: Chunks) -> None:
    """Every promise that holds whatever the text and the size."""
    assert "".join(chunks.texts) == text
    assert "".join(chunks.texts).encode() == text.encode()
    assert all(len(chunk.encode()) <= MAX_CHUNK_BYTES for chunk in chunks.texts)
    assert all(chunks.texts) or chunks.texts == ("",)
    inner_ends = [chunk.endswith("\n") for chunk in chunks.texts[:-1]]
    assert chunks.cut == (not all(inner_ends))
    longest = max(len(line.encode()) + 1 for line in text.split("\n"))
    if longest <= MAX_CHUNK_BYTES:
        assert not chunks.cut
    if longest - 1 > MAX_CHUNK_BYTES:
        assert chunks.cut


@given(texts, sizes)
def test_join_is_the_text_and_cuts_stand_behind_newlines(text: str, size: int) -> None:
    check(text, chunk_text(text, size))


@given(texts, st.integers(1, 12))
def test_tiny_chunk_sizes_keep_every_promise(text: str, size: int) -> None:
    check(text, chunk_text(text, size))


@settings(max_examples=60)
@given(large_texts, sizes)
@example("a" * MAX_CHUNK_BYTES, 1)
@example("a" * (MAX_CHUNK_BYTES + 1), 16_000)
@example("a" * (MAX_CHUNK_BYTES - 1) + "\n", 16_000)
@example("a" * MAX_CHUNK_BYTES + "\n", 16_000)
@example("é" * 8_000 + "\n" + "é" * 8_000, 16_000)
@example("漢" * 5_334, 16_000)
@example("a" * 20_000 + "\n" + ("é" * 79 + "\n") * 300, 16_000)
def test_lines_longer_than_a_chunk_are_cut_at_a_character_and_the_page_is_marked(
    text: str, size: int
) -> None:
    check(text, chunk_text(text, size))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 80, 1_600, 15_999, 16_000])
def test_every_chunk_size_keeps_every_promise(size: int) -> None:
    text = "".join(f"{'#' * (n % 4)} line {n}{ODD[n % len(ODD)]}" + "x" * (n * 7 % 211) + "\n"
                   * (n % 3) for n in range(300))  # fmt: skip
    check(text, chunk_text(text, size))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))))
def test_a_literal_without_newline_stands_whole_in_one_chunk(lines: list[str]) -> None:
    chunks = chunk_text("\n".join(lines), 20).texts
    for line in lines:
        assert any(line in chunk for chunk in chunks)


def test_an_empty_page_is_one_empty_chunk() -> None:
    assert chunk_text("") == Chunks(("",), cut=False)


def test_a_page_that_fits_is_one_chunk() -> None:
    text = "# Title\n\nOne.\n\nTwo.\n"
    assert chunk_text(text, len(text)).texts == (text,)


def test_chunks_end_where_a_section_or_paragraph_ends_rather_than_at_the_last_line() -> None:
    paragraph = "word word word\n" * 6
    text = (paragraph + "\n") * 8
    assert all(chunk.endswith("\n\n") for chunk in chunk_text(text, 160).texts)
    section = "# Title\n" + "text\n" * 20
    first, second, *_ = chunk_text(section * 5, len(section) + 30).texts
    assert first == section
    assert second.startswith("# Title\n")


@pytest.mark.parametrize("ending", ["\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1c"])
def test_only_a_newline_ends_a_line(ending: str) -> None:
    text = f"word{ending}" * 1_000
    assert chunk_text(text, 100) == Chunks((text,), cut=False)


def test_a_carriage_return_stays_with_its_newline() -> None:
    chunks = chunk_text("a line\r\n" * 500, 100).texts
    assert len(chunks) > 30
    assert all(chunk.endswith("\r\n") for chunk in chunks)


def test_chunks_are_about_as_long_as_asked_for() -> None:
    text = "".join(f"line {n} of ordinary length, as in prose\n" for n in range(2_000))
    chunks = chunk_text(text, DEFAULT_CHUNK_SIZE).texts
    assert all(len(chunk) >= DEFAULT_CHUNK_SIZE // 2 for chunk in chunks[:-1])
    assert all(len(chunk) <= DEFAULT_CHUNK_SIZE for chunk in chunks)


def test_a_line_is_cut_into_as_few_chunks_as_fit() -> None:
    chunks = chunk_text("漢" * 16_000)
    assert [len(chunk.encode()) for chunk in chunks.texts] == [15_999, 15_999, 15_999, 3]
    assert chunks.cut


@pytest.mark.parametrize(
    "pattern", ["\n", "\n \t", "# ", "\n#", "\r", "\n" * 5_000 + "x"], ids=lambda p: ascii(p)[:9]
)
def test_the_time_for_a_page_grows_with_its_length_whatever_it_holds(pattern: str) -> None:
    text = pattern * (1_000_000 // len(pattern))
    started = time.process_time()
    chunk_text(text, 16_000)
    assert time.process_time() - started < 4


@pytest.mark.parametrize("size", [0, -1])
def test_a_chunk_size_below_one_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        chunk_text("text", size)
