"""The path tree: its order, what it rejects, and what an identity sees of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import (
    ANONYMOUS,
    HIDDEN,
    PUBLIC,
    AccessRule,
    Identity,
    any_of,
    operator_identity,
)
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.tree import (
    Directory,
    PathTree,
    Rejected,
    TreeVersion,
    build_tree,
    name_problem,
    path_problem,
    prune,
    select,
)
from tests.support.strategies import GROUPS, identities, stored_pages

VERSION = TreeVersion("v")


def make_page(path: bytes | str, rule: AccessRule = PUBLIC, slug: str = "", mtime: int = 0) -> Page:
    raw = path if isinstance(path, bytes) else path.encode()
    return Page(Slug(slug or raw.decode(errors="replace")), raw, rule, 1, mtime)


def short(value: object) -> str:
    """A test's id, no longer than a person reads."""
    return ascii(value)[:40]


def tree_of(*paths: str | bytes) -> PathTree:
    return build_tree([make_page(path) for path in paths], VERSION)


def paths_of(tree: PathTree) -> list[bytes]:
    return [page.path for page in tree.pages]


def walk(directory: Directory) -> Iterator[Directory | Page]:
    """Everything below ``directory``, depth first, in the order in which it is listed."""
    stack: list[Iterator[Directory | Page]] = [iter(directory.children.values())]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
            continue
        yield child
        if isinstance(child, Directory):
            stack.append(iter(child.children.values()))


def check(tree: PathTree) -> None:
    """Every promise of a tree's form."""
    everything = list(walk(tree.root))
    assert tuple(node for node in everything if isinstance(node, Page)) == tree.pages
    assert dict(tree.by_path) == {page.path: page for page in tree.pages}
    for directory in [tree.root, *(n for n in everything if isinstance(n, Directory))]:
        children = directory.children
        assert list(children) == sorted(children)
        assert all(name == child.name for name, child in children.items())
        inner = [child for child in children.values() if isinstance(child, Directory)]
        assert directory.subdirectories == len(inner)
        assert directory is tree.root or children
        start = directory.path + b"/" if directory.path else b""
        below = [page.mtime_ns for page in tree.pages if page.path.startswith(start)]
        assert directory.mtime_ns == max([0, *below])
        assert all(child.path == start + name for name, child in children.items())


@given(stored_pages(max_size=20), st.randoms(use_true_random=False))
def test_any_pages_in_any_order_make_one_well_formed_tree(
    pages: Sequence[Page], shuffler: object
) -> None:
    tree = build_tree(pages, VERSION)
    check(tree)
    assert sorted(tree.pages, key=lambda page: page.path) == sorted(pages, key=lambda p: p.path)
    assert not tree.rejected
    assert build_tree(list(reversed(pages)), VERSION) == tree


def test_listing_is_depth_first_in_byte_order_with_directories_at_their_names_place() -> None:
    tree = tree_of("b.md", "a/z.md", "a.md", "a-b/x.md", "B.md", "a/b/c.md", "日.md", "a/B.md")
    assert paths_of(tree) == [
        b"B.md", b"a/B.md", b"a/b/c.md", b"a/z.md", b"a-b/x.md", b"a.md", b"b.md", "日.md".encode()
    ]  # fmt: skip
    check(tree)


def test_an_empty_tree_is_a_root_without_children() -> None:
    tree = build_tree([], VERSION)
    assert not tree.pages
    assert not tree.root.children
    assert tree.total_bytes == 0


def test_a_directory_has_the_time_of_its_newest_page() -> None:
    tree = build_tree(
        [
            make_page("a/b/x.md", mtime=30),
            make_page("a/y.md", mtime=20),
            make_page("z.md", mtime=9),
        ],
        VERSION,
    )
    found = {node.path: node.mtime_ns for node in walk(tree.root) if isinstance(node, Directory)}
    assert found == {b"a": 30, b"a/b": 30}
    assert tree.root.mtime_ns == 30


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        (b"a", True), (b"x" * 255, True), (b"x" * 256, False), (b"", False), (b".", False),
        (b"..", False), (b"...", True), (b".hidden", True), (b"a\0b", False), (b"a/b", False),
        (b"-n", True), (b" ", True), (b"\n", True), (b"\\", True),
        (("é" * 127 + "x").encode(), True), (("é" * 128).encode(), False),
    ],
    ids=short,
)  # fmt: skip
def test_what_can_be_a_file_name(name: bytes, fits: bool) -> None:
    assert (name_problem(name) is None) == fits


@pytest.mark.parametrize(
    "path",
    [
        b"../a.md", b"a/../b.md", b"/a.md", b"a//b.md", b"a/", b".", b"a/./b", b"x/" + b"n" * 300,
        b"n" * 300 + b"/x", b"a\0", b"d/" * 2_040 + b"x" * 20,
    ],
    ids=short,
)  # fmt: skip
def test_a_path_that_cannot_be_is_rejected_and_its_siblings_stay(path: bytes) -> None:
    tree = build_tree(
        [make_page("a.md"), make_page(path, slug="bad"), make_page("d/b.md")], VERSION
    )
    assert paths_of(tree) == [b"a.md", b"d/b.md"]
    assert [rejected.slug for rejected in tree.rejected] == ["bad"]
    assert sum(tree.rejections().values()) == 1
    assert path_problem(path) in tree.rejections()
    check(tree)


def test_of_two_pages_with_one_path_the_first_by_slug_stays_and_the_other_is_counted() -> None:
    first, second = make_page("a.md", slug="one"), make_page("a.md", slug="two", mtime=7)
    for pages in ([first, second], [second, first]):
        tree = build_tree(pages, VERSION)
        assert tree.pages == (first,)
        assert tree.rejected == (Rejected("two", "same path as another page"),)


def test_a_page_where_a_directory_stands_is_rejected_and_the_directory_stays() -> None:
    tree = tree_of("auth", "auth/oauth.md", "auth/a/b.md", "auth/a", "z")
    assert paths_of(tree) == [b"auth/a/b.md", b"auth/oauth.md", b"z"]
    assert tree.rejections() == {"a page where a directory stands": 2}
    check(tree)


def test_rejections_of_the_caller_are_counted_with_the_own_ones() -> None:
    given_ones = [Rejected("x", "name not UTF-8"), Rejected("y", "name not UTF-8")]
    tree = build_tree([make_page("..", slug="z")], VERSION, given_ones)
    assert tree.rejections() == {"name not UTF-8": 2, "name . or ..": 1}


def test_two_thousand_levels_are_a_tree_like_any_other() -> None:
    deep = b"/".join([b"d"] * 2_000 + [b"x"])
    tree = tree_of(deep, b"d/d/y", b"z")
    assert paths_of(tree) == [deep, b"d/d/y", b"z"]
    assert sum(isinstance(node, Directory) for node in walk(tree.root)) == 2_000


def test_two_hundred_thousand_pages_are_built_and_pruned_in_seconds() -> None:
    admin = any_of(["admin"])
    pages = [
        make_page(f"d{n % 97}/s{n % 1_009}/p{n}.mdx", admin if n % 3 else PUBLIC)
        for n in range(200_000)
    ]
    started = time.process_time()
    tree = build_tree(pages, VERSION)
    assert len(prune(tree, ANONYMOUS).pages) == 66_667
    assert time.process_time() - started < 20
    assert len(tree.pages) == 200_000


# -- pruning


@given(stored_pages(), identities)
def test_a_pruned_tree_holds_exactly_what_the_rules_allow(
    pages: Sequence[Page], identity: Identity
) -> None:
    tree = build_tree(pages, VERSION)
    view = prune(tree, identity)
    assert view.pages == tuple(page for page in tree.pages if page.rule.allows(identity))
    assert view.version == tree.version
    check(view)


@given(stored_pages(), st.frozensets(st.sampled_from(GROUPS)), st.sampled_from(GROUPS))
def test_one_more_group_never_shows_less_where_nothing_is_excluded(
    pages: Sequence[Page], groups: frozenset[str], more: str
) -> None:
    plain = select(build_tree(pages, VERSION), lambda page: not page.rule.excludes)
    less = set(prune(plain, operator_identity(groups)).by_path)
    assert less <= set(prune(plain, operator_identity(groups | {more})).by_path)
    assert set(prune(plain, ANONYMOUS).by_path) <= less


def test_a_directory_of_hidden_pages_only_does_not_exist() -> None:
    pages = [make_page("a/b/x.md", HIDDEN), make_page("a/c/y.md", any_of(["admin"]))]
    view = prune(build_tree([*pages, make_page("z.md")], VERSION), ANONYMOUS)
    assert list(view.root.children) == [b"z.md"]
    view = prune(build_tree(pages, VERSION), ANONYMOUS)
    assert not view.root.children
    assert not view.pages


def test_times_of_directories_do_not_tell_of_hidden_pages() -> None:
    pages = [make_page("a/x.md", mtime=1), make_page("a/y.md", HIDDEN, mtime=99)]
    view = prune(build_tree(pages, VERSION), ANONYMOUS)
    assert view.root.mtime_ns == 1


@pytest.mark.parametrize("pages", [[make_page("a.md")], [make_page("a.md", HIDDEN)]])
def test_rejected_entries_are_not_told_to_an_identity(pages: list[Page]) -> None:
    tree = build_tree([*pages, make_page("..", slug="secret")], VERSION)
    assert tree.rejected
    assert not prune(tree, ANONYMOUS).rejected


def test_a_page_that_is_not_seen_takes_no_name_from_one_that_is() -> None:
    hidden = make_page("a.mdx", any_of(["admin"]), slug="a")
    tree = build_tree([hidden, make_page("a.mdx", slug="a.mdx")], VERSION)
    seen = prune(tree, ANONYMOUS)
    assert [page.slug for page in seen.pages] == ["a.mdx"]
    assert seen.rejections() == {}
    assert [page.slug for page in prune(tree, operator_identity(["admin"])).pages] == ["a"]


def test_a_page_that_is_not_seen_makes_no_directory_of_one_that_is() -> None:
    below = make_page("a.mdx/b.mdx", any_of(["admin"]), slug="a.mdx/b")
    tree = build_tree([below, make_page("a.mdx", slug="a")], VERSION)
    assert paths_of(prune(tree, ANONYMOUS)) == [b"a.mdx"]
    assert paths_of(prune(tree, operator_identity(["admin"]))) == [b"a.mdx/b.mdx"]
