"""The fields of an entry that decided, named by the same rules that decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import (
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    rule_from_entry,
    rule_to_entry,
)
from chromafuse.domain.explain import deciding_fields
from tests.support.strategies import rules

EMPTY: dict[str, object] = {"isPublic": False, "groups": []}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, "isPublic is missing, or neither true nor false: hidden"),
        ({"isPublic": 1, "groups": []}, "isPublic is missing, or neither true nor false: hidden"),
        ({"isPublic": True}, "groups is missing, or no list of names: hidden"),
        ({"isPublic": True, "groups": []}, "isPublic"),
        ({"isPublic": False, "groups": ["a"]}, "groups"),
        ({"isPublic": True, "groups": ["a"]}, "groups"),
        (EMPTY, "isPublic is false and groups is empty: --empty-groups hidden"),
        ({**EMPTY, "access": "authenticated"}, "access"),
        ({**EMPTY, "access": "hidden"}, "access"),
        ({**EMPTY, "access": 7}, "access cannot be understood beside isPublic: hidden"),
        ({"isPublic": True, "groups": [], "access": "authenticated"},
         "access cannot be understood beside isPublic: hidden"),
    ],
)  # fmt: skip
def test_the_field_that_decided_is_named(entry: dict[str, object], told: str) -> None:
    assert deciding_fields(entry) == told


def test_the_choice_for_empty_groups_is_told() -> None:
    told = deciding_fields(EMPTY, empty_groups=AUTHENTICATED)
    assert told == "isPublic is false and groups is empty: --empty-groups authenticated"


VALUE: st.SearchStrategy[object] = st.sampled_from(
    [True, False, None, [], ["a"], [""], "authenticated", "hidden", 7, {}]
)


@given(entry=st.dictionaries(st.sampled_from(["isPublic", "groups", "access"]), VALUE))
def test_who_is_told_hidden_is_hidden(entry: dict[str, object]) -> None:
    hidden = rule_from_entry(entry) == HIDDEN
    told = deciding_fields(entry)
    if told != "access":
        assert told.endswith("hidden") == hidden
    if told == "isPublic":
        assert rule_from_entry(entry) == PUBLIC


@given(rule=rules)
def test_what_an_ingest_writes_is_never_misunderstood(rule: AccessRule) -> None:
    entry = rule_to_entry(rule)
    assert deciding_fields(entry) in ("isPublic", "groups", "access")
