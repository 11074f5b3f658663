"""Who may see what: rules, identities, and how a rule is written in a tree entry.

A rule is a conjunction of clauses; a clause is a set of group names of which the identity must
have one. That covers all marks with one evaluation:

* public: no clause, no sign-in
* any signed-in reader: no clause, sign-in
* ``groups: [a, b]``: the one clause ``{a, b}``
* a file that repeats what several restricted pages say: one clause for each of them
* hidden: the empty clause, which nobody can meet

``excludes`` wins over everything. Missing or malformed marks mean hidden (fail closed).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NewType

AccessKey = NewType("AccessKey", str)
"""Short name of a rule, equal for equal rules; the value of a chunk's ``access`` metadata."""

WILDCARD = "*"
NOBODY = "__chromafuse_nobody__"
"""Plain ``groups`` of an entry whose rule other readers do not know: to them nobody has it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of a reader: whether signed in, and with which groups."""

    groups: frozenset[str] = frozenset()
    signed_in: bool = False


ANONYMOUS = Identity()


def operator_identity(groups: Iterable[str]) -> Identity:
    """Return the identity that an operator states outright with ``--groups``."""
    return Identity(frozenset(groups), signed_in=True)


@dataclass(frozen=True, slots=True)
class Grant:
    """An identity, and until when it holds: seconds since 1970, or None for ever."""

    identity: Identity
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A rule in canonical form; build it with the functions below.

    ``clauses`` and the names in them are sorted and free of doubles, so that equal rules are
    equal values.
    """

    signed_in: bool = False
    clauses: tuple[tuple[str, ...], ...] = ()
    excludes: tuple[str, ...] = ()

    def allows(self, identity: Identity) -> bool:
        """Return whether ``identity`` may see what carries this rule."""
        if not self.signed_in and not self.clauses and not self.excludes:
            return True
        if not identity.signed_in:
            return False
        if WILDCARD in self.excludes or not identity.groups.isdisjoint(self.excludes):
            return False
        return all(
            WILDCARD in clause or not identity.groups.isdisjoint(clause) for clause in self.clauses
        )

    @property
    def is_hidden(self) -> bool:
        """Whether nobody at all can see it."""
        return () in self.clauses or WILDCARD in self.excludes

    @property
    def key(self) -> AccessKey:
        """The rule's short name."""
        if self == PUBLIC:
            return AccessKey("public")
        if self == AUTHENTICATED:
            return AccessKey("authenticated")
        if self.is_hidden:
            return AccessKey("hidden")
        text = json.dumps([self.signed_in, self.clauses, self.excludes], ensure_ascii=True)
        return AccessKey("rule:" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest())

    def describe(self) -> str:
        """Return the rule in words, for an operator."""
        if self == PUBLIC:
            return "public"
        if self.is_hidden:
            return "hidden from everybody"
        if not self.clauses and not self.excludes:
            return "any signed-in reader"
        words = " and ".join("any of " + ", ".join(c) for c in self.clauses) or "signed in"
        return words + (f", none of {', '.join(self.excludes)}" if self.excludes else "")


PUBLIC = AccessRule()
AUTHENTICATED = AccessRule(signed_in=True)
HIDDEN = AccessRule(signed_in=True, clauses=((),))


def any_of(groups: Iterable[str], excludes: Iterable[str] = ()) -> AccessRule:
    """Return the rule "one of ``groups``, none of ``excludes``"; no groups at all is hidden."""
    return AccessRule(True, (tuple(sorted(set(groups))),), tuple(sorted(set(excludes))))


# A tree has many pages and few rules: equal ones are one object.
_any_of_names = functools.lru_cache(maxsize=4096)(any_of)


def all_of(rules: Iterable[AccessRule]) -> AccessRule:
    """Return the rule met by exactly the identities that meet every one of ``rules``."""
    signed_in = False
    clauses: set[tuple[str, ...]] = set()
    excludes: set[str] = set()
    for rule in rules:
        signed_in = signed_in or rule.signed_in
        clauses.update(rule.clauses)
        excludes.update(rule.excludes)
    if not (signed_in or clauses or excludes):
        return PUBLIC
    return AccessRule(True, tuple(sorted(clauses)), tuple(sorted(excludes)))


def group_names(value: object) -> tuple[str, ...] | None:
    """Return ``value`` as group names, or None unless it is a list of non-empty strings."""
    if not isinstance(value, list):
        return None
    names = [name for name in value if isinstance(name, str) and name]
    return tuple(names) if len(names) == len(value) else None


def rule_from_marks(
    marks: Mapping[str, object], default: AccessRule
) -> tuple[AccessRule, str | None]:
    """Return the rule that ``groups``, ``public`` and ``isPublic`` state, and a warning or None.

    ``marks`` is a page's frontmatter. Without any of the three the rule is ``default``.
    A wrong type, an empty list or a contradiction never opens a page.
    """
    flags = {name: marks[name] for name in ("public", "isPublic") if name in marks}
    wrong = [name for name, value in flags.items() if not isinstance(value, bool)]
    if wrong:
        return HIDDEN, f"`{wrong[0]}` is not true or false: hidden from everybody"
    if "groups" in marks:
        value = marks["groups"]
        if isinstance(value, dict):
            return _rule_from_mapping(value)
        names = group_names(value)
        if not names:
            return HIDDEN, "`groups` is not a list of names: hidden from everybody"
        if True in flags.values():
            return any_of(names), "`public: true` together with `groups`: the groups decide"
        return any_of(names), None
    if not flags:
        return default, None
    if all(flags.values()):
        return PUBLIC, None
    if any(flags.values()):
        return HIDDEN, "`public` and `isPublic` contradict each other: hidden from everybody"
    return AUTHENTICATED, None


def _rule_from_mapping(value: Mapping[object, object]) -> tuple[AccessRule, str | None]:
    """Return the rule of Mintlify's ``{includes: [...], excludes: [...]}``."""
    includes = group_names(value.get("includes", [WILDCARD]))
    excludes = group_names(value.get("excludes", []))
    if set(value) - {"includes", "excludes"} or not value or not includes or excludes is None:
        return HIDDEN, "`groups` is malformed: hidden from everybody"
    return any_of(includes, excludes), None


def rule_to_entry(rule: AccessRule) -> dict[str, object]:
    """Return the fields of a tree entry that carry ``rule``.

    A reader that knows only ``isPublic`` and ``groups`` never sees more than we would show.
    """
    if rule == PUBLIC:
        return {"isPublic": True, "groups": []}
    if rule == AUTHENTICATED:
        return {"isPublic": False, "groups": [], "access": "authenticated"}
    if rule.is_hidden:
        return {"isPublic": False, "groups": [], "access": "hidden"}
    plain = not rule.excludes and len(rule.clauses) == 1 and WILDCARD not in rule.clauses[0]
    if plain:
        return {"isPublic": False, "groups": list(rule.clauses[0])}
    return {
        "isPublic": False,
        "groups": [NOBODY],
        "access": {"all": [list(c) for c in rule.clauses], "excludes": list(rule.excludes)},
    }


def rule_from_entry(
    entry: Mapping[str, object], *, empty_groups: AccessRule = HIDDEN
) -> AccessRule:
    """Return the rule of a tree entry; anything unexpected is hidden.

    ``empty_groups`` is the meaning of ``isPublic: false, groups: []`` without our own mark.
    """
    public, groups = entry.get("isPublic"), group_names(entry.get("groups"))
    if not isinstance(public, bool) or groups is None:
        return HIDDEN
    if "access" in entry:
        return HIDDEN if public else _rule_from_access(entry["access"])
    if groups:
        return _any_of_names(groups)
    return PUBLIC if public else empty_groups


def _rule_from_access(value: object) -> AccessRule:
    if value == "authenticated":
        return AUTHENTICATED
    if not isinstance(value, dict) or set(value) != {"all", "excludes"}:
        return HIDDEN
    excludes, clauses = group_names(value["excludes"]), value["all"]
    if excludes is None or not isinstance(clauses, list):
        return HIDDEN
    names = [group_names(clause) for clause in clauses]
    if not all(names):
        return HIDDEN
    return all_of(any_of(clause or (), excludes) for clause in names) if names else HIDDEN
