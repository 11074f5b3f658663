"""Hypothesis strategies for rules, identities, pages and trees."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    Identity,
    all_of,
    any_of,
    operator_identity,
)
from chromafuse.domain.page import MAX_PAGE_BYTES, Page, Slug, Version
from chromafuse.domain.tree import NAME_MAX, path_problem
from chromafuse.ingest.slugs import assign_slugs

GROUPS = ["admin", "billing", "Admin", "é", "a,b"]

group_sets = st.frozensets(st.sampled_from(GROUPS))
some_groups = st.lists(st.sampled_from([*GROUPS, "*"]), min_size=1, max_size=3)

simple_rules = st.one_of(
    st.sampled_from([PUBLIC, AUTHENTICATED, HIDDEN]),
    some_groups.map(any_of),
    st.tuples(some_groups, st.lists(st.sampled_from([*GROUPS, "*"]), max_size=2)).map(
        lambda both: any_of(*both)
    ),
)
rules: st.SearchStrategy[AccessRule] = st.one_of(
    simple_rules, st.lists(simple_rules, max_size=3).map(all_of)
)

identities: st.SearchStrategy[Identity] = st.one_of(
    st.just(ANONYMOUS), group_sets.map(operator_identity)
)

names = st.one_of(
    st.sampled_from(
        ["a", "b", "a.mdx", "a.md", "b.md", "index.mdx", "x.mdx.mdx", "d", "README.md"]
    ),
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=6
    ).filter(lambda name: name not in (".", "..") and len(name.encode()) <= NAME_MAX),
)
rel_paths = st.lists(names, min_size=1, max_size=4).map("/".join)
versions = st.text("0123456789abcdef", min_size=32, max_size=32).map(Version)
mtimes = st.one_of(st.integers(-(1 << 62), 1 << 62), st.sampled_from([0, 1, -1, 10**9, -(10**9)]))


@st.composite
def stored_pages(draw: st.DrawFn, *, max_size: int = 12) -> Sequence[Page]:
    """Pages as an ingest of some directory makes them: unique paths, no page above another."""
    paths = draw(st.lists(rel_paths, max_size=max_size, unique=True))
    above = {path[:at] for path in paths for at in range(len(path)) if path[at] == "/"}
    fitting = [p for p in paths if p not in above and path_problem(p.encode()) is None]
    slugs = assign_slugs(fitting)
    return [draw(_stored_page(slugs[path], path)) for path in fitting]


@st.composite
def _stored_page(draw: st.DrawFn, slug: str, path: str) -> Page:
    size = draw(st.integers(0, MAX_PAGE_BYTES))
    return Page(
        Slug(slug),
        path.encode(),
        draw(rules),
        size,
        draw(mtimes),
        draw(versions),
        draw(st.integers(1, max(1, min(size, 10_000)))),
        draw(st.booleans()),
        draw(st.booleans()),
    )
