"""The trees that are measured on."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchlib.lab import PROJECT, Lab
from benchlib.model import BenchError

FETCHED = PROJECT / ".corpora"


class Recipe(NamedTuple):
    """A named corpus: a fetched one, ``copies`` times as v01, v02, …; once is as it is."""

    source: str
    copies: int = 1


NAMED = {
    "next": Recipe("next"),
    "ai": Recipe("ai"),
    "ai20": Recipe("ai", copies=20),
}


@dataclass(frozen=True, slots=True)
class Corpus:
    """A tree of its own, outside any repository, whose ignore rules ``rg`` would follow."""

    name: str
    tree: Path
    files: tuple[tuple[str, int], ...]
    """Relative path and size in bytes of every file."""

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def middle_page(self) -> str:
        """The page of median size."""
        ordered = sorted(self.files, key=lambda file: (file[1], file[0]))
        return ordered[len(ordered) // 2][0]


def cache_directory() -> Path:
    """Return where what is made once is kept, over runs; it may not be there yet."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "chromafuse-bench"


def load(name: str, lab: Lab) -> Corpus:
    """Return the corpus ``name``, or the one in the directory ``name``. Raises ``BenchError``."""
    recipe = NAMED.get(name)
    if recipe is None:
        source = Path(name)
        if not source.is_dir():
            raise BenchError(f"there is no corpus and no directory {name}")
        place = lab.new_directory("tree") / "docs"
        _copy(source, place, 1)
        return _corpus(source.resolve().name, place)
    source = FETCHED / recipe.source
    if not source.with_suffix(".json").exists():
        raise BenchError(f"{source} is missing; run scripts/fetch-corpora {recipe.source}")
    return _corpus(name, _cached(name, source, recipe.copies))


def _cached(name: str, source: Path, copies: int) -> Path:
    """Return the copy in the cache directory, made if it is not there or out of date."""
    cache = cache_directory()
    place = cache / f"{name}-{_fingerprint(source)}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{name}-") as beside:
            _copy(source, Path(beside) / "docs", copies)
            (Path(beside) / "docs").rename(place)
    return place


def _copy(source: Path, place: Path, copies: int) -> None:
    if copies == 1:
        shutil.copytree(source, place, symlinks=True)
        return
    for number in range(1, copies + 1):
        shutil.copytree(source, place / f"v{number:02}", symlinks=True)


def _corpus(name: str, tree: Path) -> Corpus:
    files = tuple(_files(tree))
    if not files:
        raise BenchError(f"the corpus {name} is empty")
    return Corpus(name, tree, files)


def _files(tree: Path) -> list[tuple[str, int]]:
    return sorted(
        (path.relative_to(tree).as_posix(), path.stat().st_size)
        for path in tree.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def _fingerprint(source: Path) -> str:
    """Return a word that changes with names, sizes and times below ``source``."""
    digest = hashlib.blake2b(digest_size=6)
    for rel, size in _files(source):
        digest.update(f"{rel}\0{size}\0{(source / rel).stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()
