"""Which fields of a tree entry decided who sees its page, in words for an operator."""

from __future__ import annotations

from collections.abc import Mapping

from chromafuse.domain.access import AUTHENTICATED, HIDDEN, AccessRule, group_names, rule_from_entry


def deciding_fields(entry: Mapping[str, object], *, empty_groups: AccessRule = HIDDEN) -> str:
    """Return what in ``entry`` leads to the rule that ``rule_from_entry`` finds in it."""
    if not isinstance(entry.get("isPublic"), bool):
        return "isPublic is missing, or neither true nor false: hidden"
    groups = group_names(entry.get("groups"))
    if groups is None:
        return "groups is missing, or no list of names: hidden"
    if "access" in entry:
        hidden = rule_from_entry(entry, empty_groups=empty_groups) == HIDDEN
        known = hidden and entry["access"] != "hidden"
        return "access cannot be understood beside isPublic: hidden" if known else "access"
    if groups:
        return "groups"
    if entry["isPublic"]:
        return "isPublic"
    choice = "authenticated" if empty_groups == AUTHENTICATED else "hidden"
    return f"isPublic is false and groups is empty: --empty-groups {choice}"
