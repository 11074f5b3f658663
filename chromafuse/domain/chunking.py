"""Text into chunks whose join is the identical text.

Chunks are cut only behind a newline, preferably where a paragraph or a section ends, so that a
literal without a newline that occurs in the page occurs whole in one chunk: a search by chunk
then loses nothing. A line too long for a chunk is cut between two characters, and the page is
marked, so that a search knows. ``"\\n"`` alone ends a line, as for grep; Python's ``splitlines``
also cuts at VT, FF, NEL, U+2028.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

DEFAULT_CHUNK_SIZE = 1_600
"""Characters a chunk aims at."""

MAX_CHUNK_BYTES = 16_000
"""UTF-8 bytes a chunk never exceeds (Chroma Cloud refuses documents over 16,384)."""

_PARAGRAPH_END = re.compile(r"\n[ \t\r]*\n(?=\S)")
_HEADING_START = re.compile(r"\n(?=#{1,6} |={3,}\n|<h[1-6])")


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of one page, in order; ``"".join(texts)`` is the page.

    ``cut`` tells that some line stands in two chunks.
    """

    texts: tuple[str, ...]
    cut: bool


def chunk_text(text: str, size: int = DEFAULT_CHUNK_SIZE) -> Chunks:
    """Cut ``text`` into chunks of about ``size`` characters; an empty page is one empty chunk.

    Raises ``ValueError`` if ``size`` is not positive.
    """
    if size < 1:
        raise ValueError("chunk size must be at least 1")
    texts: list[str] = []
    cut = False
    for start, end in _spans(text, size):
        piece = text[start:end]
        if len(piece) * 4 <= MAX_CHUNK_BYTES or len(piece.encode()) <= MAX_CHUNK_BYTES:
            texts.append(piece)
        else:
            parts = list(_fit(piece))
            cut = cut or any(not part.endswith("\n") for part in parts[:-1])
            texts.extend(parts)
    return Chunks(tuple(texts) or ("",), cut)


def _spans(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) offsets of chunks that end behind a newline or at the end of ``text``."""
    start, length = 0, len(text)
    while length - start > size:
        end = _best_cut(text, start, start + size)
        yield start, end
        start = end
    if start < length:
        yield start, length


def _best_cut(text: str, start: int, limit: int) -> int:
    """Return the best cut in ``text`` behind ``start``, at ``limit`` or earlier where possible.

    In order: the last heading or paragraph border in the second half of the room, the last line
    end before the limit, the first line end behind it, the end of the text.
    """
    floor = start + (limit - start) // 2
    for border in (_HEADING_START, _PARAGRAPH_END):
        cuts = [match.end() for match in border.finditer(text, floor, limit)]
        if cuts:
            return cuts[-1]
    newline = text.rfind("\n", start, limit)
    if newline < 0:
        newline = text.find("\n", limit)
    return len(text) if newline < 0 else newline + 1


def _fit(piece: str) -> Iterator[str]:
    """Yield ``piece`` in parts of at most ``MAX_CHUNK_BYTES``, cut at line ends where possible."""
    data = piece.encode()
    start = 0
    while len(data) - start > MAX_CHUNK_BYTES:
        end = data.rfind(b"\n", start, start + MAX_CHUNK_BYTES) + 1
        if end == 0:
            end = start + MAX_CHUNK_BYTES
            while data[end] & 0xC0 == 0x80:
                end -= 1
        yield data[start:end].decode()
        start = end
    yield data[start:].decode()
