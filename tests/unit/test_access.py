"""Who may see what: the table of the rule, row by row, and that everything doubtful is hidden."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    NOBODY,
    PUBLIC,
    AccessRule,
    Identity,
    all_of,
    any_of,
    group_names,
    operator_identity,
    rule_from_entry,
    rule_from_marks,
    rule_to_entry,
)
from tests.support.strategies import GROUPS, identities, rules

SIGNED_IN = operator_identity([])
ADMIN = operator_identity(["admin"])
BILLING = operator_identity(["billing"])
EVERYBODY = [ANONYMOUS, SIGNED_IN, ADMIN, BILLING, operator_identity([*GROUPS, NOBODY, ""])]


def short(value: object) -> str:
    """A test's id, no longer than a person reads."""
    return ascii(value)[:50]


def seen_by(rule: AccessRule) -> tuple[bool, bool, bool]:
    """Whether an anonymous reader, one without a group and one in ``admin`` see it."""
    return rule.allows(ANONYMOUS), rule.allows(SIGNED_IN), rule.allows(ADMIN)


ALL, MEMBERS, ADMINS, NONE = (
    (True, True, True),
    (False, True, True),
    (False, False, True),
    (False, False, False),
)


# -- the table


@pytest.mark.parametrize(
    ("entry", "seen"),
    [
        ({"isPublic": True, "groups": []}, ALL),
        ({"isPublic": False, "groups": [], "access": "authenticated"}, MEMBERS),
        ({"isPublic": False, "groups": ["admin"]}, ADMINS),
        ({"isPublic": False, "groups": ["billing", "admin"]}, ADMINS),
        ({"isPublic": True, "groups": ["admin"]}, ADMINS),
        ({"isPublic": False, "groups": []}, NONE),
        ({"isPublic": False, "groups": ["Admin"]}, NONE),
        ({"isPublic": False, "groups": ["admin "]}, NONE),
    ],
    ids=short,
)
def test_a_tree_entry_is_seen_as_the_table_says(
    entry: dict[str, object], seen: tuple[bool, bool, bool]
) -> None:
    assert seen_by(rule_from_entry(entry)) == seen


def test_empty_groups_of_others_are_opened_to_signed_in_readers_only_on_request() -> None:
    entry = {"isPublic": False, "groups": []}
    assert seen_by(rule_from_entry(entry, empty_groups=AUTHENTICATED)) == MEMBERS
    marked = {**entry, "access": "hidden"}
    assert seen_by(rule_from_entry(marked, empty_groups=AUTHENTICATED)) == NONE


MALFORMED: list[dict[str, object]] = [
    {},
    {"groups": []},
    {"isPublic": True},
    {"isPublic": True, "groups": None},
    {"isPublic": True, "groups": "admin"},
    {"isPublic": True, "groups": {"includes": ["*"]}},
    {"isPublic": True, "groups": [3]},
    {"isPublic": True, "groups": [""]},
    {"isPublic": True, "groups": ["admin", None]},
    {"isPublic": 1, "groups": []},
    {"isPublic": "true", "groups": []},
    {"isPublic": None, "groups": []},
    {"isPublic": [], "groups": []},
    {"ispublic": True, "groups": []},
    {"isPublic": True, "groups": [], "access": "authenticated"},
    {"isPublic": True, "groups": [], "access": None},
    {"isPublic": False, "groups": [], "access": None},
    {"isPublic": False, "groups": [], "access": "public"},
    {"isPublic": False, "groups": [], "access": "Authenticated"},
    {"isPublic": False, "groups": [], "access": []},
    {"isPublic": False, "groups": [], "access": {}},
    {"isPublic": False, "groups": [], "access": {"all": [["admin"]]}},
    {"isPublic": False, "groups": [], "access": {"all": [], "excludes": []}},
    {"isPublic": False, "groups": [], "access": {"all": [[]], "excludes": []}},
    {"isPublic": False, "groups": [], "access": {"all": [["admin"], []], "excludes": []}},
    {"isPublic": False, "groups": [], "access": {"all": ["admin"], "excludes": []}},
    {"isPublic": False, "groups": [], "access": {"all": "admin", "excludes": []}},
    {"isPublic": False, "groups": [], "access": {"all": [["admin"]], "excludes": None}},
    {"isPublic": False, "groups": [], "access": {"all": [["admin"]], "excludes": "x"}},
    {"isPublic": False, "groups": [], "access": {"all": [["admin"]], "excludes": [], "more": 1}},
]


@pytest.mark.parametrize("entry", MALFORMED, ids=short)
def test_a_malformed_entry_is_hidden_from_everybody(entry: dict[str, object]) -> None:
    rule = rule_from_entry(entry)
    assert not any(rule.allows(identity) for identity in EVERYBODY)
    assert rule.is_hidden


@pytest.mark.parametrize(
    ("marks", "seen", "warning"),
    [
        ({}, ALL, None),
        ({"title": "x"}, ALL, None),
        ({"public": True}, ALL, None),
        ({"isPublic": True}, ALL, None),
        ({"public": True, "isPublic": True}, ALL, None),
        ({"public": False}, MEMBERS, None),
        ({"isPublic": False}, MEMBERS, None),
        ({"groups": ["admin"]}, ADMINS, None),
        ({"groups": ["admin"], "public": False}, ADMINS, None),
        ({"groups": ["admin"], "public": True}, ADMINS, "groups decide"),
        ({"groups": ["Admin"]}, NONE, None),
        ({"groups": []}, NONE, "not a list of names"),
        ({"groups": None}, NONE, "not a list of names"),
        ({"groups": "admin"}, NONE, "not a list of names"),
        ({"groups": ["admin", 3]}, NONE, "not a list of names"),
        ({"groups": [""]}, NONE, "not a list of names"),
        ({"groups": [["admin"]]}, NONE, "not a list of names"),
        ({"groups": [], "public": True}, NONE, "not a list of names"),
        ({"public": "yes"}, NONE, "not true or false"),
        ({"public": 1}, NONE, "not true or false"),
        ({"isPublic": None}, NONE, "not true or false"),
        ({"public": "yes", "groups": ["admin"]}, NONE, "not true or false"),
        ({"public": True, "isPublic": False}, NONE, "contradict"),
        ({"groups": {"includes": ["admin"]}}, ADMINS, None),
        ({"groups": {"includes": ["*"]}}, MEMBERS, None),
        ({"groups": {"excludes": ["billing"]}}, MEMBERS, None),
        ({"groups": {"excludes": ["admin"]}}, (False, True, False), None),
        ({"groups": {"includes": ["admin"], "excludes": ["admin"]}}, NONE, None),
        ({"groups": {"includes": ["*"], "excludes": ["*"]}}, NONE, None),
        ({"groups": {}}, NONE, "malformed"),
        ({"groups": {"includes": []}}, NONE, "malformed"),
        ({"groups": {"includes": "admin"}}, NONE, "malformed"),
        ({"groups": {"includes": ["admin"], "excludes": None}}, NONE, "malformed"),
        ({"groups": {"includes": ["admin"], "exclude": ["x"]}}, NONE, "malformed"),
        ({"groups": {1: ["admin"]}}, NONE, "malformed"),
    ],
    ids=short,
)
def test_frontmatter_marks_mean_what_the_table_says(
    marks: dict[str, object], seen: tuple[bool, bool, bool], warning: str | None
) -> None:
    rule, told = rule_from_marks(marks, PUBLIC)
    assert seen_by(rule) == seen
    assert (told is None) == (warning is None)
    assert (warning or "") in (told or "")


@pytest.mark.parametrize("default", [PUBLIC, AUTHENTICATED, HIDDEN, any_of(["admin"])], ids=short)
def test_only_a_page_without_any_mark_takes_the_default(default: AccessRule) -> None:
    assert rule_from_marks({"title": "x"}, default) == (default, None)
    assert rule_from_marks({"public": True}, default) == (PUBLIC, None)
    assert rule_from_marks({"groups": ["billing"]}, default) == (any_of(["billing"]), None)


# -- rules as such


@given(rules, identities)
def test_the_hidden_are_hidden_from_everybody_and_only_they(
    rule: AccessRule, identity: Identity
) -> None:
    assert not (rule.is_hidden and rule.allows(identity))
    assert HIDDEN.is_hidden
    assert not HIDDEN.allows(identity)


@given(rules)
def test_an_anonymous_reader_sees_what_is_public_and_nothing_else(rule: AccessRule) -> None:
    assert rule.allows(ANONYMOUS) == (rule == PUBLIC)


@given(st.lists(rules, max_size=4), identities)
def test_what_repeats_several_pages_is_seen_by_who_sees_all_of_them(
    several: list[AccessRule], identity: Identity
) -> None:
    assert all_of(several).allows(identity) == all(rule.allows(identity) for rule in several)


@given(rules, identities, st.sampled_from(GROUPS))
def test_one_more_group_never_hides_a_page_that_excludes_nobody(
    rule: AccessRule, identity: Identity, more: str
) -> None:
    if not rule.excludes and rule.allows(identity):
        assert rule.allows(operator_identity(identity.groups | {more}))


@given(rules, identities, st.sampled_from(GROUPS))
def test_an_excluded_group_wins_over_every_other(
    rule: AccessRule, identity: Identity, excluded: str
) -> None:
    shut = all_of([rule, any_of(["*"], [excluded])])
    assert not shut.allows(operator_identity(identity.groups | {excluded}))


@given(rules, identities)
def test_a_rule_comes_back_from_its_entry_with_the_same_meaning(
    rule: AccessRule, identity: Identity
) -> None:
    entry = json.loads(json.dumps(rule_to_entry(rule)))
    found = rule_from_entry(entry)
    assert found.allows(identity) == rule.allows(identity)
    assert found.key == rule.key
    assert rule.is_hidden or found == rule


@given(rules, identities)
def test_a_reader_that_knows_only_the_bare_fields_never_sees_more(
    rule: AccessRule, identity: Identity
) -> None:
    entry = rule_to_entry(rule)
    groups = entry["groups"]
    assert isinstance(groups, list)
    if entry["isPublic"] is True or not identity.groups.isdisjoint(groups):
        assert rule.allows(identity)


@given(rules, rules)
def test_keys_are_equal_for_equal_rules_and_only_for_those(
    one: AccessRule, other: AccessRule
) -> None:
    same = one == other or (one.is_hidden and other.is_hidden)
    assert (one.key == other.key) == same


def test_rules_are_the_same_value_however_their_groups_are_written() -> None:
    assert any_of(["b", "a", "b"], ["d", "c"]) == any_of(["a", "b"], ["c", "d", "c"])
    assert any_of([]) == HIDDEN
    assert all_of([]) == PUBLIC
    assert all_of([PUBLIC, PUBLIC]) == PUBLIC
    assert all_of([AUTHENTICATED, PUBLIC]) == AUTHENTICATED


def test_what_an_operator_states_counts_as_signed_in() -> None:
    assert AUTHENTICATED.allows(operator_identity([]))
    assert not AUTHENTICATED.allows(ANONYMOUS)
    assert not AUTHENTICATED.allows(Identity(frozenset(["admin"]), signed_in=False))
    assert not any_of(["admin"]).allows(Identity(frozenset(["admin"]), signed_in=False))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (PUBLIC, "public"),
        (HIDDEN, "hidden from everybody"),
        (AUTHENTICATED, "any signed-in reader"),
        (any_of(["b", "a"]), "any of a, b"),
        (any_of(["a"], ["x"]), "any of a, none of x"),
        (all_of([any_of(["a"]), any_of(["b"])]), "any of a and any of b"),
        (any_of(["a"], ["*"]), "hidden from everybody"),
    ],
)
def test_a_rule_is_told_in_words(rule: AccessRule, text: str) -> None:
    assert rule.describe() == text


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (["a", "b"], ("a", "b")), ([], ()), (("a",), None), ("a", None), (None, None), ({}, None),
        (["a", ""], None), ([1], None), (["a", ["b"]], None), (True, None),
    ],
    ids=short,
)  # fmt: skip
def test_group_names_are_a_list_of_texts_or_nothing(
    value: object, names: tuple[str, ...] | None
) -> None:
    assert group_names(value) == names
