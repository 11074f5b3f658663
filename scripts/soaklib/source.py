"""A docs tree that changes, whose every version is known by heart.

What a file holds follows from the seed, its path and its version, so what a reader got can be
checked without having kept anything.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

DIRECTORIES = 8
PAGES = 20
"""Pages in a directory; every fifth is for the group ``admin`` alone."""
BLOBS = 4
"""Files that are no text, and lie in S3."""
NEEDLES = 40
GROUP = "admin"

_MARK = re.compile(rb"soak (\S+) (\d+)\n")

Tree = dict[str, int]
"""The version of each file that there is."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that may be there."""

    path: str
    restricted: bool = False
    blob: bool = False


FILES = {
    file.path: file
    for file in (
        *(
            File(f"part{place}/p{number:02}.mdx", restricted=number % 5 == 0)
            for place in range(DIRECTORIES)
            for number in range(PAGES)
        ),
        *(File(f"assets/b{number}.bin", blob=True) for number in range(BLOBS)),
    )
}


class Source:
    """The tree at ``root``, made anew for each generation."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311
        self.content = lru_cache(maxsize=4_000)(self._content)
        self.generations: list[Tree] = []

    def _content(self, path: str, version: int) -> bytes:
        """Return what a file holds in a version."""
        chance = random.Random(f"{self._seed} {path} {version}")  # noqa: S311
        mark = f"soak {path} {version}\n".encode()
        if FILES[path].blob:
            # Mostly small, as rclone takes seconds for a large one; more than a block now and then.
            most = chance.choices((50_000, 1_200_000), weights=(15, 1))[0]
            return b"\xff\xfe" + mark + chance.randbytes(chance.randint(1, most))
        head = f"---\ngroups: [{GROUP}]\n---\n".encode() if FILES[path].restricted else b""
        lines = (
            f"line {number} of {path} in version {version}: needle-{chance.randrange(NEEDLES):02}\n"
            for number in range(chance.randint(1, 300))
        )
        return head + mark + "".join(lines).encode()

    def version_of(self, data: bytes) -> tuple[str, int] | None:
        """Return which file in which version ``data`` begins like, or None."""
        found = _MARK.search(data)
        return (found[1].decode(), int(found[2])) if found else None

    def next_tree(self) -> int:
        """Decide on the next generation and return its number."""
        number = len(self.generations)
        before = self.generations[-1] if self.generations else {}
        share = self._random.choice((0.02, 0.1, 0.4))
        tree: Tree = {}
        for path in FILES:
            chance = self._random.random()
            if path in before and chance > share:
                tree[path] = before[path]
            elif chance > share * 0.2:
                tree[path] = number
        self.generations.append(tree)
        return number

    def write(self, number: int) -> None:
        """Make the tree on disk that of a generation."""
        before = self.generations[number - 1] if number else {}
        tree = self.generations[number]
        for path in before.keys() - tree.keys():
            (self.root / path).unlink(missing_ok=True)
        for path, version in tree.items():
            if before.get(path) != version:
                place = self.root / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(self.content(path, version))
