"""Inodes: who shares which number, and what a number of another session leads to."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import PUBLIC
from chromafuse.domain.page import Page, Slug, Version
from chromafuse.domain.tree import TreeVersion, build_tree
from chromafuse.fs.attributes import CACHE_SECONDS, Owner
from chromafuse.fs.namespace import NODE_BITS, ROOT, Inodes, Namespace, View

PATHS = ("a.mdx", "d/b.mdx", "d/e/c.mdx", "f/g.mdx")


def view(inodes: Inodes, *paths: str, version: str = "1") -> View:
    pages = [
        Page(Slug(path), path.encode(), PUBLIC, 5, 0, version=Version(version * 32))
        for path in paths
    ]
    return View(build_tree(pages, TreeVersion("v")), inodes)


@pytest.fixture
def inodes() -> Inodes:
    return Inodes(Owner(1, 2))


@pytest.fixture
def mount(inodes: Inodes) -> Namespace:
    namespace = Namespace(inodes)
    namespace.views[0] = view(inodes, *PATHS)
    return namespace


@pytest.fixture
def hub(inodes: Inodes) -> Namespace:
    namespace = Namespace(inodes, is_hub=True)
    names = {b"one": (1, math.inf), b"two": (2, 3.5)}
    namespace.enter = names.get
    for number in (1, 2):
        namespace.views[number] = view(inodes, *PATHS)
    return namespace


def inode_at(namespace: Namespace, start: int, path: str) -> int:
    for name in path.split("/"):
        found = namespace.lookup(start, name.encode())
        assert found is not None
        start = int(found.st_ino)
    return start


def test_the_root_of_a_mount_is_its_session(mount: Namespace) -> None:
    listing = mount.listing(ROOT)
    assert listing is not None
    assert list(listing.entries) == [b"a.mdx", b"d", b"f"]
    assert (listing.inode, listing.parent, listing.base) == (ROOT, ROOT, 0)
    below = mount.listing(inode_at(mount, ROOT, "d/e"))
    assert below is not None
    assert below.parent == inode_at(mount, ROOT, "d")
    above = mount.lookup(inode_at(mount, ROOT, "d"), b"..")
    assert above is not None
    assert above.st_ino == ROOT


def test_sessions_share_pages_and_no_directory(hub: Namespace) -> None:
    one, two = inode_at(hub, ROOT, "one"), inode_at(hub, ROOT, "two")
    assert (one, two) == (1 << NODE_BITS | ROOT, 2 << NODE_BITS | ROOT)
    for path in ("d", "d/e", "f"):
        assert inode_at(hub, one, path) != inode_at(hub, two, path)
    for path in PATHS:
        assert inode_at(hub, one, path) == inode_at(hub, two, path)
    above = hub.lookup(inode_at(hub, two, "d"), b"..")
    assert above is not None
    assert above.st_ino == two


def test_a_session_s_name_is_believed_for_as_long_as_the_session_stays(hub: Namespace) -> None:
    for name, seconds in ((b"one", CACHE_SECONDS), (b"two", 3.5), (b"one", CACHE_SECONDS)):
        found = hub.lookup(ROOT, name)
        assert found is not None
        assert found.entry_timeout == seconds


def test_a_hub_s_root_has_no_listing_and_no_other_names(hub: Namespace) -> None:
    assert hub.listing(ROOT) is None
    assert hub.is_directory(ROOT)
    for name in (b"three", b"1", b"a.mdx", b"d"):
        assert hub.lookup(ROOT, name) is None
    for name in (b".", b".."):
        found = hub.lookup(ROOT, name)
        assert found is not None
        assert found.st_ino == ROOT


def test_a_closed_session_s_numbers_lead_nowhere(hub: Namespace) -> None:
    one = inode_at(hub, ROOT, "one")
    numbers = [one, inode_at(hub, one, "d"), inode_at(hub, one, "d/e")]
    del hub.views[1]
    for number in numbers:
        assert hub.attributes(number) is None
        assert hub.listing(number) is None
        assert not hub.is_directory(number)
        with pytest.raises(LookupError):
            hub.lookup(number, b"a.mdx")


def test_a_directory_pruned_from_one_view_is_none_in_its_session(inodes: Inodes) -> None:
    namespace = Namespace(inodes, is_hub=True)
    namespace.enter = {b"one": (1, math.inf), b"two": (2, math.inf)}.get
    namespace.views[1] = view(inodes, *PATHS)
    namespace.views[2] = view(inodes, "a.mdx")
    node = inode_at(namespace, inode_at(namespace, ROOT, "one"), "d") & ((1 << NODE_BITS) - 1)
    assert namespace.attributes(2 << NODE_BITS | node) is None
    assert namespace.listing(2 << NODE_BITS | node) is None


def test_numbers_stay_with_paths_and_versions(inodes: Inodes) -> None:
    old, new = Namespace(inodes), Namespace(inodes)
    old.views[0] = view(inodes, *PATHS)
    new.views[0] = view(inodes, *PATHS, "h.mdx", version="2")
    assert inode_at(old, ROOT, "d/e") == inode_at(new, ROOT, "d/e")
    before, after = inode_at(old, ROOT, "d/b.mdx"), inode_at(new, ROOT, "d/b.mdx")
    assert before != after
    page = new.page(before)
    assert page is not None
    assert page.version == Version("1" * 32)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=8))
def test_any_number_is_answered(number: int, name: bytes) -> None:
    table = Inodes(Owner(1, 2))
    namespace = Namespace(table, is_hub=True)
    namespace.enter = {b"one": (1, math.inf)}.get
    namespace.views[1] = view(table, *PATHS)
    inode_at(namespace, ROOT, "one/d/e/c.mdx")
    found = namespace.attributes(number)
    assert found is None or found.st_ino == number
    assert (namespace.listing(number) is None) or namespace.is_directory(number)
    try:
        namespace.lookup(number, name)
    except LookupError:
        assert not namespace.is_directory(number)


# -- what narrowing asks of a view


def pages_of(found: View, *paths: str) -> list[Page]:
    return [page for page in found.tree.pages if page.path.decode() in paths]


def test_a_directory_s_range_holds_what_is_below_it_and_nothing_else(inodes: Inodes) -> None:
    paths = ("d-/x", "d.mdx", "d/a", "d/b/c", "d/b/d", "d0/x", "e/d/a", "z")
    found = view(inodes, *paths)
    for directory in ("", "d", "d/b", "d-", "d0", "e", "e/d"):
        start, stop = found.range(inodes.directory(directory.encode()))
        within = {page.path.decode() for page in found.tree.pages[start:stop]}
        prefix = directory and directory + "/"
        assert within == {path for path in paths if path.startswith(prefix)}
    start, stop = found.range(inodes.directory(b"not/here"))
    assert start == stop
    assert found.range(10**6) == (0, len(paths)), "a number that is nobody's narrows nothing"


def test_the_numbers_of_pages_come_with_those_of_all_directories_above(inodes: Inodes) -> None:
    found = view(inodes, *PATHS)
    numbers = found.numbers(pages_of(found, "d/e/c.mdx"))
    namespace = Namespace(inodes)
    namespace.views[0] = found
    wanted = {inode_at(namespace, ROOT, path) for path in ("d", "d/e", "d/e/c.mdx")}
    assert numbers == wanted | {ROOT}
    assert found.numbers([]) == set()


def test_numbers_of_a_large_directory_follow_its_listing(inodes: Inodes) -> None:
    """GNU grep sorts it by number, so a search must not change who comes first."""
    names = [f"many/{n:05}/x" if n % 500 == 3 else f"many/{n:05}" for n in range(10_100)]
    found = view(inodes, *names, "many/09999/deep/er")
    found.numbers(pages_of(found, "many/05000", "many/09999/deep/er", "many/01003/x"))
    entries = found.entries(inodes.directory(b"many"))
    assert entries is not None
    order = [entry.number for entry in entries.values()]
    assert order == sorted(order)


def test_a_page_a_thousand_directories_down_has_its_numbers(inodes: Inodes) -> None:
    path = "d/" * 1_900 + "p"
    found = view(inodes, path)
    assert len(found.numbers(found.tree.pages)) == 1_902
    assert len(found.reaching(found.tree.pages)) == 1_901


@pytest.mark.parametrize(
    ("candidates", "reaching"),
    [
        (["a"], [""]),
        (["d/e/c"], ["", "d", "d/e"]),
        ([".hidden"], []),
        (["d/.h/x"], ["d/.h"]),
        (["d/.h/e/x", "d/y"], ["", "d", "d/.h", "d/.h/e"]),
        (["d/.h/.x"], []),
        (["..x/y"], ["..x"]),
    ],
)
def test_a_directory_reaches_a_page_unless_a_hidden_name_lies_between(
    inodes: Inodes, candidates: list[str], reaching: list[str]
) -> None:
    found = view(inodes, *candidates, "other/page")
    wanted = {int(inodes.directory(path.encode())) for path in reaching}
    assert found.reaching(pages_of(found, *candidates)) == wanted


def test_the_access_of_a_view_is_that_of_its_pages(inodes: Inodes) -> None:
    assert view(inodes, *PATHS).access == [PUBLIC.key]
    assert view(inodes).access == []
    foreign = Page(Slug("x"), b"x", PUBLIC, 5, 0)
    assert View(build_tree([foreign], TreeVersion("v")), inodes).access is None


@pytest.mark.parametrize("name", [".ignore", "d/.gitignore", ".git/config", "d/.rgignore"])
def test_files_by_which_ripgrep_leaves_out_others_are_noticed(inodes: Inodes, name: str) -> None:
    assert view(inodes, *PATHS, name).has_ignore_files
    assert not view(inodes, *PATHS, "ignore", "d/x.gitignore").has_ignore_files
