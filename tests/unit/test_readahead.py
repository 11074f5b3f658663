"""Read-ahead: each page ahead of a walk once, in growing steps, and nothing for anybody else."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.readahead import (
    FIRST_WINDOW,
    IDLE_SECONDS,
    MAX_GAP,
    MAX_WALKS,
    MAX_WINDOW,
    ReadAhead,
    Walk,
)

SITE = 2_000
RECOGNISED = 3
"""Opens behind which a walk is known as one: where it begins and two steps."""


def walk_through(ahead: ReadAhead, pages: Iterable[int]) -> list[list[int]]:
    """Open ``pages`` in turn; return what each open asks for."""
    return [ahead.opened(page, 0.0)[1] for page in pages]


def flat(asked: Iterable[Sequence[int]]) -> list[int]:
    return [page for pages in asked for page in pages]


def refills(asked: Iterable[Sequence[int]]) -> list[int]:
    """The sizes of the requests that were made at all."""
    return [len(pages) for pages in asked if pages]


counts = st.integers(1, 3_000)
steps = st.integers(1, MAX_GAP)


@st.composite
def opens(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A tree's size and any opens in it: jumps, walks in both directions, pages twice."""
    count = draw(counts)
    at, found = draw(st.integers(0, count - 1)), []
    for _ in range(draw(st.integers(1, 12))):
        at = draw(st.integers(0, count - 1)) if draw(st.booleans()) else at
        for step in draw(st.lists(st.integers(-MAX_GAP - 2, MAX_GAP + 2), max_size=30)):
            at = min(count - 1, max(0, at + step))
            found.append(at)
    return count, found


@given(opens())
def test_no_page_outside_the_tree_is_asked_for(case: tuple[int, list[int]]) -> None:
    count, pages = case
    assert all(0 <= page < count for page in flat(walk_through(ReadAhead(count), pages)))


@given(opens())
def test_no_page_is_asked_for_twice_within_one_walk(case: tuple[int, list[int]]) -> None:
    count, pages = case
    ahead = ReadAhead(count)
    asked: dict[int, list[int]] = {}
    walks: list[Walk] = []
    for page in pages:
        walk, wanted = ahead.opened(page, 0.0)
        walks.append(walk)  # alive, so that no other has its id
        asked.setdefault(id(walk), []).extend(wanted)
    for wanted in asked.values():
        assert len(set(wanted)) == len(wanted)


@given(opens())
def test_the_page_that_is_opened_is_never_among_those_ahead_of_it(
    case: tuple[int, list[int]],
) -> None:
    count, pages = case
    for page, wanted in zip(pages, walk_through(ReadAhead(count), pages), strict=True):
        assert page not in wanted


@given(opens())
def test_what_one_open_costs_is_bounded(case: tuple[int, list[int]]) -> None:
    count, pages = case
    ahead = ReadAhead(count)
    for page in pages:
        assert len(ahead.opened(page, 0.0)[1]) <= MAX_WINDOW
        assert len(ahead._walks) <= MAX_WALKS


@given(counts, st.booleans(), st.data())
def test_a_walk_asks_for_each_page_before_it_is_opened_nearest_first_in_few_requests(
    count: int, backwards: bool, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, count - 1))
    pages = list(range(start, -1, -1) if backwards else range(start, count))
    known: set[int] = set(pages[:RECOGNISED])
    asked = []
    ahead = ReadAhead(count)
    for page in pages:
        assert page in known
        wanted = ahead.opened(page, 0.0)[1]
        asked.append(wanted)
        known.update(wanted)
    assert flat(asked) == pages[RECOGNISED:]
    assert len(refills(asked)) <= 7 + len(pages) // MAX_WINDOW


def test_the_window_doubles_up_to_its_bound() -> None:
    asked = walk_through(ReadAhead(1 << 20), range(6_000))
    expected = FIRST_WINDOW
    for size in refills(asked):
        assert size == expected
        expected = min(MAX_WINDOW, expected * 2)
    assert expected == MAX_WINDOW


@pytest.mark.parametrize("most", [2, 5, FIRST_WINDOW, 50])
def test_no_more_is_asked_for_than_can_be_kept(most: int) -> None:
    ahead = ReadAhead(SITE, most)
    asked = walk_through(ahead, range(SITE))
    assert flat(asked) == list(range(RECOGNISED, SITE))
    last = 0
    for at, wanted in enumerate(asked):
        last = max([last, *wanted])
        assert last - at <= most * 3 // 2
        assert len(wanted) <= most


def test_where_nothing_can_be_kept_nothing_is_asked_for() -> None:
    assert flat(walk_through(ReadAhead(SITE, 0), range(SITE))) == []


def test_the_next_window_is_asked_for_while_half_of_the_last_one_is_still_ahead() -> None:
    asked = walk_through(ReadAhead(1 << 20), range(6_000))
    last = RECOGNISED - 1
    for at, wanted in enumerate(asked):
        assert at < RECOGNISED or at <= last
        if wanted:
            assert last - at <= len(wanted) // 2
            last = wanted[-1]
        assert last - at <= MAX_WINDOW * 3 // 2


@given(st.lists(steps, min_size=1, max_size=600), st.booleans())
def test_a_walk_may_pass_over_pages_and_still_finds_all_it_opens(
    gaps: list[int], backwards: bool
) -> None:
    count = sum(gaps) + 1
    at = count - 1 if backwards else 0
    pages = [at]
    for gap in gaps:
        at += -gap if backwards else gap
        pages.append(at)
    ahead = ReadAhead(count)
    seen: set[int] = set()
    walks = set()
    missed = 0
    for page in pages:
        walk, wanted = ahead.opened(page, 0.0)
        missed += page not in seen
        seen.update(wanted)
        walks.add(id(walk))
    assert len(walks) == 1
    # Besides the first ones, a gap may end beyond the first, small windows.
    assert missed <= RECOGNISED + 2


@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_over_more_than_the_gap_is_no_walk(sign: int) -> None:
    middle = SITE // 2
    for step, expected in ((MAX_GAP + 1, 0), (MAX_GAP, FIRST_WINDOW)):
        pages = [middle + sign * step * n for n in range(RECOGNISED)]
        assert len(flat(walk_through(ReadAhead(SITE), pages))) == expected


def test_a_jump_within_what_was_asked_for_continues_the_walk() -> None:
    ahead = ReadAhead(SITE)
    asked = flat(walk_through(ahead, range(100)))
    walk, _ = ahead.opened(99 + (asked[-1] - 99) // 2, 0.0)
    assert walk.step == 1
    assert len(ahead._walks) == 1


@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_parallel_readers_each_get_ahead_on_their_stretch(
    readers: int, chance: random.Random
) -> None:
    length = 120
    ahead = ReadAhead(readers * length)
    left = {
        reader: list(range(reader * length, (reader + 1) * length)) for reader in range(readers)
    }
    seen: set[int] = set()
    asked: list[int] = []
    missed = 0
    while left:
        reader = chance.choice(list(left))
        page = left[reader].pop(0)
        if not left[reader]:
            del left[reader]
        missed += page not in seen
        wanted = ahead.opened(page, 0.0)[1]
        asked += [page for page in wanted if page not in seen]
        seen.update(wanted)
    assert missed <= RECOGNISED * readers
    assert len(asked) == len(set(asked))


def test_readers_of_two_directions_do_not_disturb_each_other() -> None:
    ahead = ReadAhead(SITE)
    up, down = range(500), range(SITE - 1, SITE - 501, -1)
    asked: list[int] = []
    for one, other in zip(up, down, strict=True):
        asked += ahead.opened(one, 0.0)[1] + ahead.opened(other, 0.0)[1]
    assert {*up[RECOGNISED:], *down[RECOGNISED:]} <= set(asked)
    assert len(asked) == len(set(asked))
    assert len(ahead._walks) == 2


@given(st.lists(st.integers(0, SITE // (MAX_GAP + 1) - 1), unique=True, max_size=200))
def test_random_access_asks_for_nothing(places: list[int]) -> None:
    # No two of these are near each other.
    pages = [place * (MAX_GAP + 1) for place in places]
    assert flat(walk_through(ReadAhead(SITE), pages)) == []


@given(st.lists(st.integers(0, 1 << 30), max_size=100))
def test_the_number_of_walks_is_bounded(pages: list[int]) -> None:
    ahead = ReadAhead(1 << 30)
    for page in pages:
        ahead.opened(page, 0.0)
        assert len(ahead._walks) <= MAX_WALKS


def test_a_walk_survives_as_many_single_opens_as_there_is_room_for_walks() -> None:
    ahead = ReadAhead(1 << 20)
    [*_, (walk, _)] = [ahead.opened(page, 0.0) for page in range(50)]
    for n in range(MAX_WALKS - 1):
        ahead.opened(10_000 * (n + 1), 0.0)
    assert ahead.opened(50, 0.0)[0] is walk
    # Each of its opens counts anew.
    for n in range(MAX_WALKS - 1):
        ahead.opened(300_000 + 10_000 * n, 0.0)
    assert ahead.opened(51, 0.0)[0] is walk
    for n in range(MAX_WALKS):
        ahead.opened(600_000 + 10_000 * n, 0.0)
    assert ahead.opened(52, 0.0)[0] is not walk


def test_opens_that_come_slightly_out_of_order_are_still_one_walk() -> None:
    """Parallel readers of one directory overtake each other."""
    chance = random.Random(1)
    pages = sorted(range(SITE), key=lambda page: page + chance.uniform(0, 4))
    ahead = ReadAhead(SITE)
    seen: set[int] = set()
    missed = 0
    requests = 0
    for page in pages:
        missed += page not in seen
        new = set(ahead.opened(page, 0.0)[1]) - seen
        requests += bool(new)
        seen |= new
    assert missed <= 10
    assert requests <= 40


@pytest.mark.parametrize("times", [2, 3])
def test_pages_that_are_opened_several_times_each_are_walked_like_others(times: int) -> None:
    """``head`` and then ``wc``, or a shell loop with two commands a file."""
    pages = [page for page in range(SITE) for _ in range(times)]
    asked = walk_through(ReadAhead(SITE), pages)
    once = list(dict.fromkeys(flat(asked)))
    assert once == list(range(RECOGNISED, SITE))
    assert max(refills(asked)) == MAX_WINDOW


def test_a_page_opened_again_and_again_asks_for_nothing() -> None:
    assert flat(walk_through(ReadAhead(SITE), [7] * 100)) == []


def test_a_walk_is_idle_when_nothing_was_opened_for_a_while() -> None:
    ahead = ReadAhead(SITE)
    ahead.opened(0, 100.0)
    walk, _ = ahead.opened(1, 101.0)
    assert not walk.is_idle(101.0 + IDLE_SECONDS)
    assert walk.is_idle(101.1 + IDLE_SECONDS)
    assert ahead.opened(2, 110.0)[0] is walk
    assert not walk.is_idle(110.0 + IDLE_SECONDS)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_tree_of_hardly_any_pages_asks_for_nothing(count: int) -> None:
    assert flat(walk_through(ReadAhead(count), range(count))) == []
