"""Page names that are unique over a tree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count


def assign_slugs(rels: Iterable[str]) -> dict[str, str]:
    """Return a slug for each path of ``rels``, unique and the same for every order of ``rels``.

    ``x.mdx`` is ``x``; ``x.md`` is ``x`` where that is free; any other file keeps its path. Where
    a name is taken the path itself is tried, then the path with a number behind it.
    """
    paths = list(rels)
    slugs: dict[str, str] = {}
    taken: set[str] = set()

    def take(rel: str, slug: str) -> None:
        if rel not in slugs and slug not in taken:
            slugs[rel] = slug
            taken.add(slug)

    for suffix in (".mdx", ".md"):
        for rel in paths:
            stem = rel.removesuffix(suffix)
            if stem != rel and stem and not stem.endswith("/"):
                take(rel, stem)
    for rel in paths:
        take(rel, rel)
    for rel in paths:
        for number in count(2):
            if rel in slugs:
                break
            take(rel, f"{rel}~{number}")
    return slugs
