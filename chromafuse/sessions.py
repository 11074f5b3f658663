"""Sessions: who sees which view, and until when.

Opening one costs a table entry: identities that may see the same pages share one view, made once.
What a view is to the caller is the caller's business (``V``); here it is made of a pruned tree.

A session ends when it is closed or its time to live is over. When its *grant* is over, its view
shrinks to the anonymous one, under a new number: whatever the kernel knows under the old number is
worth nothing from then on. Numbers are never used twice. State is touched by the event loop only.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from chromafuse.domain.access import ANONYMOUS, AccessRule, Grant, Identity
from chromafuse.domain.errors import ChromafuseError
from chromafuse.domain.tree import PathTree, prune

V = TypeVar("V")

ID_BYTES = 20
"""Random bytes in a session's id, which is all that protects it from other users of the hub."""
KEPT_VIEWS = 16
"""Views that stay although no session has them any more."""

Visible = frozenset[AccessRule]
"""The rules of a tree that an identity meets: what decides which view it has."""


class SharedView(Generic[V]):
    """A view and the rules that are met in it."""

    __slots__ = ("__weakref__", "rules", "view")

    def __init__(self, rules: Visible, view: V) -> None:
        self.rules = rules
        self.view = view


class Views(Generic[V]):
    """The views of one tree; ``make`` turns a pruned tree into one."""

    def __init__(self, tree: PathTree, make: Callable[[PathTree], V]) -> None:
        self.tree = tree
        self._make = make
        self._rules = frozenset(page.rule for page in (*tree.pages, *tree.shadowed))
        self._views: WeakValueDictionary[Visible, SharedView[V]] = WeakValueDictionary()
        self._kept: OrderedDict[Visible, SharedView[V]] = OrderedDict()
        self._together: dict[AccessRule, Visible] = {}

    def visible(self, identity: Identity) -> Visible:
        """Return the rules that ``identity`` meets."""
        return frozenset(rule for rule in self._rules if rule.allows(identity))

    def known(self, identity: Identity) -> SharedView[V] | None:
        """Return the view of ``identity`` if somebody has had it already."""
        return self._views.get(self.visible(identity))

    def of(self, identity: Identity, pruned: PathTree | None = None) -> SharedView[V]:
        """Return the view of ``identity``.

        A new one is as much work as the tree has pages, unless the tree comes ``pruned`` already.
        """
        rules = self.visible(identity)
        found = self._views.get(rules)
        if found is None:
            found = SharedView(rules, self._make(pruned or prune(self.tree, identity)))
            self._views[rules] = found
            self._together.clear()
        self._kept[rules] = found
        self._kept.move_to_end(rules)
        if len(self._kept) > KEPT_VIEWS:
            self._kept.popitem(last=False)
        return found

    def readable_with(self, rule: AccessRule) -> Visible:
        """Return the rules that everybody meets who has a view in which ``rule`` is met.

        Whoever opens a page with ``rule`` may have others fetched with it, but no page that some
        reader of that page may not see.
        """
        found = self._together.get(rule)
        if found is None:
            found = self._rules
            for shared in self._views.values():
                if rule in shared.rules:
                    found = found & shared.rules
            self._together[rule] = found
        return found


@dataclass(slots=True)
class Session(Generic[V]):
    """One session. Times are in seconds since 1970; ``bound`` is where it was bound to."""

    id: str
    number: int
    grant: Grant
    shared: SharedView[V]
    opened: float
    ends: float | None
    bound: str | None = None

    @property
    def next_change(self) -> float | None:
        """When its time or its grant is over, whatever comes first, or None."""
        times = [time for time in (self.ends, self.grant.expires) if time is not None]
        return min(times, default=None)


class Sessions(Generic[V]):
    """All sessions of one daemon, numbered from ``first`` to ``limit``."""

    def __init__(self, views: Views[V], *, first: int, limit: int) -> None:
        self.views = views
        self._limit = limit
        self._next = first
        self._by_id: dict[str, Session[V]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session[V]]:
        return iter(tuple(self._by_id.values()))

    def get(self, session_id: str) -> Session[V] | None:
        """Return the session with this id, or None."""
        return self._by_id.get(session_id)

    def open(
        self, grant: Grant, now: float, ttl: float | None = None, bound: str | None = None
    ) -> Session[V]:
        """Begin a session of ``ttl`` seconds, or for ever. Raises ``ChromafuseError``."""
        session = Session(
            secrets.token_hex(ID_BYTES),
            self._number(),
            grant,
            self.views.of(grant.identity),
            now,
            None if ttl is None else now + ttl,
            bound,
        )
        self._by_id[session.id] = session
        return session

    def close(self, session_id: str) -> Session[V] | None:
        """End a session and return it, or None if there is none with this id."""
        return self._by_id.pop(session_id, None)

    def clock_set(self, seconds: float) -> None:
        """Follow a clock that was set forward by ``seconds``: what a session lasts stays as it was.

        When a grant is over is not ours to change: its issuer named a moment.
        """
        for session in self._by_id.values():
            session.opened += seconds
            if session.ends is not None:
                session.ends += seconds

    def changing(self, now: float) -> list[Session[V]]:
        """Return the sessions whose time or grant is over."""
        return [
            session
            for session in self._by_id.values()
            if (change := session.next_change) is not None and change <= now
        ]

    def next_change(self) -> float | None:
        """Return when the next session changes by itself, or None."""
        times = (session.next_change for session in self._by_id.values())
        return min((time for time in times if time is not None), default=None)

    def shrink(self, session: Session[V]) -> None:
        """Give a session whose grant is over the anonymous view, under a new number."""
        session.number = self._number()
        session.grant = Grant(ANONYMOUS)
        session.shared = self.views.of(ANONYMOUS)

    def _number(self) -> int:
        if self._next > self._limit:
            raise ChromafuseError(
                "this daemon has used up its session numbers",
                remedy="start it again",
            )
        number = self._next
        self._next += 1
        return number
