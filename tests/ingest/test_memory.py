"""An ingest's memory does not grow with the texts of the site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.answering_server import answering_server
from tests.support.commands import run_module
from tests.support.forgetful_server import Forgetful

MEGABYTE = 1 << 20
PAGE_BYTES = MEGABYTE // 2


@pytest.fixture
def target() -> Iterator[str]:
    """A server that takes everything at once, so that only the client is measured."""
    with answering_server() as server:
        Forgetful(server)
        yield server.url


def peak(source: Path, target: str, *options: str) -> int:
    """The most memory, in bytes, that ``chromafuse ingest`` of ``source`` had."""
    done = run_module(
        "tests.support.peak_memory",
        "ingest", str(source), "--collection", "docs", "--chroma", target, *options,
        home=source.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout.rstrip().rpartition("\n")[2])


def make_site(root: Path, pages: int) -> Path:
    line = "a line of text as it stands in documents, 64 bytes with its end\n"
    for n in range(pages):
        path = root / f"d{n % 7}" / f"p{n}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Page {n}\n\n" + line * (PAGE_BYTES // len(line)))
    return root


def test_memory_stays_bounded_whatever_the_size_of_the_site(target: str, tmp_path: Path) -> None:
    small = peak(make_site(tmp_path / "small", 8), target)
    large = make_site(tmp_path / "large", 120)
    first = peak(large, target)
    # Everything is written anew, and the 60 MB that are stored are replaced.
    again = peak(large, target, "--chunk-size", "1200")
    unchanged = peak(large, target, "--chunk-size", "1200")
    # What grows are the ids of the chunks, some hundred bytes each, and no texts.
    assert first - small < 45 * MEGABYTE
    assert again - small < 70 * MEGABYTE
    assert unchanged - small < 45 * MEGABYTE
    assert first < 250 * MEGABYTE
