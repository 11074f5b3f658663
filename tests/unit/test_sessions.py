"""Sessions and views: what is shared, what never is, and what happens when time is over."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    Grant,
    Identity,
    any_of,
    operator_identity,
    rule_from_entry,
    rule_from_marks,
)
from chromafuse.domain.errors import ChromafuseError
from chromafuse.domain.page import Page, Slug, chunk_ids
from chromafuse.domain.pattern import Literal
from chromafuse.domain.tree import PathTree, TreeVersion, build_tree, prune
from chromafuse.reader import Reader
from chromafuse.search import Scope, Searcher
from chromafuse.sessions import ID_BYTES, KEPT_VIEWS, Sessions, Views
from chromafuse.stores.memory import MemoryCache
from tests.support.memory_store import MemoryDatabase, MemoryStore
from tests.support.sites import store_page
from tests.support.wrappers import Recording

GROUPS = ("admin", "billing", "dev", "ops")
RULES = (
    PUBLIC,
    AUTHENTICATED,
    HIDDEN,
    any_of(["admin"]),
    any_of(["billing", "admin"]),
    any_of(["dev"], ["ops"]),
    any_of(["*"], ["billing"]),
)


def tree_of(rules: dict[str, AccessRule]) -> PathTree:
    pages = [Page(Slug(path), path.encode(), rule, 1, 0) for path, rule in rules.items()]
    return build_tree(pages, TreeVersion("v"))


def views_of(rules: dict[str, AccessRule]) -> Views[PathTree]:
    return Views(tree_of(rules), lambda tree: tree)


@pytest.fixture
def views() -> Views[PathTree]:
    return views_of({"a": PUBLIC, "b": any_of(["admin"]), "c": any_of(["billing"])})


@pytest.fixture
def sessions(views: Views[PathTree]) -> Sessions[PathTree]:
    return Sessions(views, first=1, limit=100)


def member(*groups: str) -> Grant:
    return Grant(operator_identity(groups))


def paths(tree: PathTree) -> set[bytes]:
    return {page.path for page in tree.pages}


def test_who_sees_the_same_shares_a_view(views: Views[PathTree]) -> None:
    one = views.of(operator_identity(["admin", "x"]))
    assert views.of(operator_identity(["admin", "y"])) is one
    assert views.of(ANONYMOUS) is views.of(operator_identity(["nobody"]))
    assert views.of(ANONYMOUS) is not one


def test_views_that_nobody_has_are_let_go() -> None:
    rules = {f"p{n}": any_of([f"g{n}"]) for n in range(60)}
    views = views_of(rules)
    held = views.of(operator_identity(["g0"]))
    for number in range(1, 60):
        views.of(operator_identity([f"g{number}"]))
    gc.collect()
    known = [n for n in range(60) if views.known(operator_identity([f"g{n}"])) is not None]
    assert known == [0, *range(60 - KEPT_VIEWS, 60)]
    assert views.of(operator_identity(["g0"])) is held


def test_sessions_have_ids_and_numbers_of_their_own(sessions: Sessions[PathTree]) -> None:
    opened = [sessions.open(member("admin"), now=0.0) for _ in range(50)]
    assert len({one.id for one in opened}) == len({one.number for one in opened}) == 50
    assert all(len(one.id) == 2 * ID_BYTES and one.id.isalnum() for one in opened)
    for one in opened[:25]:
        assert sessions.close(one.id) is one
        assert sessions.close(one.id) is None
        assert sessions.get(one.id) is None
    assert sessions.open(member(), now=0.0).number > max(one.number for one in opened)
    assert len(sessions) == 26


def test_numbers_run_out_loudly(views: Views[PathTree]) -> None:
    few = Sessions(views, first=1, limit=2)
    few.open(member(), now=0.0)
    few.close(few.open(member(), now=0.0).id)
    with pytest.raises(ChromafuseError, match="session numbers"):
        few.open(member(), now=0.0)


def test_whatever_ends_first_is_the_next_change(sessions: Sessions[PathTree]) -> None:
    assert sessions.next_change() is None
    plain = sessions.open(member("admin"), now=100.0)
    short = sessions.open(member("admin"), now=100.0, ttl=5)
    granted = sessions.open(Grant(operator_identity(["admin"]), 103.0), now=100.0, ttl=50)
    assert plain.next_change is None
    assert sessions.next_change() == granted.next_change == 103.0
    assert sessions.changing(102.9) == []
    assert sessions.changing(103.0) == [granted]
    assert set(map(id, sessions.changing(105.0))) == {id(short), id(granted)}


def test_a_grant_s_end_leaves_the_anonymous_view_under_a_new_number(
    sessions: Sessions[PathTree],
) -> None:
    session = sessions.open(Grant(operator_identity(["admin"]), 103.0), now=100.0, ttl=50)
    before = session.number
    assert paths(session.shared.view) == {b"a", b"b"}
    sessions.shrink(session)
    assert session.number != before
    assert paths(session.shared.view) == {b"a"}
    assert session.next_change == 150.0
    assert sessions.get(session.id) is session


identities = st.builds(Identity, st.frozensets(st.sampled_from(GROUPS)), st.booleans())
rules_of_pages = st.dictionaries(
    st.text("ab/", min_size=1, max_size=5), st.sampled_from(RULES), max_size=12
)


@given(rules_of_pages, identities)
def test_a_view_is_a_part_of_the_tree(rules: dict[str, AccessRule], who: Identity) -> None:
    whole = tree_of(rules)
    seen = prune(whole, who)
    places = {page.path for page in (*whole.pages, *whole.shadowed)}
    assert paths(seen) <= places
    assert all(page.rule.allows(who) for page in seen.pages)
    visible = {page.path for page in whole.pages if page.rule.allows(who)}
    if not whole.shadowed:
        assert paths(seen) == visible


@given(rules_of_pages, identities, st.sampled_from(GROUPS))
def test_more_groups_never_show_less_unless_they_are_excluded(
    rules: dict[str, AccessRule], who: Identity, group: str
) -> None:
    more = Identity(who.groups | {group}, who.signed_in)
    for rule in rules.values():
        if group not in rule.excludes and rule.allows(who):
            assert rule.allows(more)


marks = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(marks, identities)
def test_malformed_groups_show_nothing_to_anybody(value: object, who: Identity) -> None:
    right = isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)
    rule, _ = rule_from_marks({"groups": value}, PUBLIC)
    if not right and not isinstance(value, dict):
        assert not rule.allows(who)
        assert not rule_from_entry({"isPublic": False, "groups": value}).allows(who)
    if not isinstance(value, bool):
        assert not rule_from_marks({"public": value}, PUBLIC)[0].allows(who)
        assert not rule_from_entry({"isPublic": value, "groups": []}).allows(who)


@given(rules_of_pages, st.lists(identities, max_size=5), st.sampled_from(RULES))
def test_what_is_fetched_together_is_seen_by_all_who_may_ask(
    rules: dict[str, AccessRule], readers: list[Identity], rule: AccessRule
) -> None:
    views = views_of(rules)
    held = [views.of(who) for who in readers]
    together = views.readable_with(rule)
    for who in readers:
        if rule.allows(who) and rule in views.visible(who):
            assert all(other.allows(who) for other in together)
    # A view that is opened later counts too.
    views.of(ANONYMOUS)
    if rule in views.visible(ANONYMOUS):
        assert all(other.allows(ANONYMOUS) for other in views.readable_with(rule))
    del held


def test_a_further_session_takes_little_memory(sessions: Sessions[PathTree]) -> None:
    many = Sessions(sessions.views, first=1, limit=10_000)
    many.open(member("admin"), now=0.0)
    tracemalloc.start()
    try:
        for number in range(1_000):
            many.open(member("admin", f"team-{number}"), now=0.0, ttl=3600)
        each = tracemalloc.get_traced_memory()[0] / 1_000
    finally:
        tracemalloc.stop()
    assert each < 2_048


# -- what is asked for a session


def test_every_query_for_a_reader_carries_what_they_may_see() -> None:
    rules = {f"p{n:03}": (PUBLIC, any_of(["admin"]), AUTHENTICATED)[n % 3] for n in range(90)}
    store = Recording(MemoryStore(MemoryDatabase()))
    pages = [
        store_page(store.inner, slug, f"words of {slug}\n", rule=rule)
        for slug, rule in rules.items()
    ]
    views = Views(build_tree(pages, TreeVersion("v")), lambda tree: tree)
    views.of(operator_identity(["admin"]))
    seen = views.of(ANONYMOUS).view
    allowed = {chunk for page in seen.pages for chunk in chunk_ids(page) or ()}
    reader = Reader(store, "docs", MemoryCache(1 << 20), deadline=5.0)
    reader.follow(views.tree.pages, views.readable_with)
    searcher = Searcher(reader, store, timeout=5.0)

    async def read() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run)
            scope = Scope(views.tree.pages, sorted({page.rule.key for page in seen.pages}))
            await searcher.search(scope, Literal("nothing like it"))
            for page in seen.pages:
                assert await reader.open(page).data() == f"words of {page.slug}\n".encode()
            nursery.cancel_scope.cancel()

    trio.run(read)
    assert {record_id for ids in store.gets for record_id in ids} == allowed
    assert store.conditions == [{"access": {"$in": ["public"]}}]


def test_a_session_lasts_as_long_as_it_was_given_when_the_clock_is_set() -> None:
    sessions = Sessions(views_of({"a": PUBLIC}), first=1, limit=100)
    grant = Grant(operator_identity(["admin"]), expires=5_000.0)
    timed, lasting = sessions.open(grant, 1_000.0, ttl=60.0), sessions.open(grant, 1_000.0)
    for moved in (-900.0, 4_000.0):
        sessions.clock_set(moved)
    assert (timed.opened, timed.ends) == (4_100.0, 4_160.0)
    assert lasting.ends is None
    # What an issuer has named is a moment.
    assert timed.grant.expires == 5_000.0
    assert sessions.changing(4_159.0) == []
    assert sessions.changing(4_160.0) == [timed]
