"""What an ingest tells of a whole tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chromafuse.ingest.report import Notice, Omission, printable
from chromafuse.ingest.rules import MINTIGNORE

SITE_NAMES = ("docs.json", "mint.json")
"""Names of the file that configures a site."""


def site_notices(site: str | None, omissions: Iterable[Omission]) -> Iterator[Notice]:
    """Yield notices about the site's configuration, which stands in the file ``site``."""
    if site is None:
        text = "there is none at the root: every page counts as one of the navigation"
        yield Notice(SITE_NAMES[0], text)
    for omission in omissions:
        if omission.path.endswith("/" + MINTIGNORE):
            yield Notice(omission.path, f"has no effect: only {MINTIGNORE} at the root has")


def twin_notices(rels: set[str], mintlify: bool) -> Iterator[Notice]:
    """Yield notices about files that would have one URL on the web."""
    for rel in sorted(rels):
        stem = rel.removesuffix(".mdx")
        if stem == rel:
            stem = rel.removesuffix(".md")
        elif stem + ".md" in rels:
            yield Notice(printable(stem + ".md"), f"has the same URL as {printable(rel)}")
        if mintlify and stem != rel and stem.endswith("/index"):
            page = stem.removesuffix("/index")
            for twin in (page + ".mdx", page + ".md"):
                if twin in rels:
                    yield Notice(printable(rel), f"has the same URL as {printable(twin)}")
