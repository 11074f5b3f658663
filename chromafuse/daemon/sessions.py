"""A hub's answers to ``session open``, ``list`` and ``close``.

Whoever can reach the control socket is the hub's owner, so groups are believed; a token is believed
as far as the hub's keys say.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from chromafuse.control import PEER, Handler
from chromafuse.domain.access import ANONYMOUS, Grant, group_names, operator_identity
from chromafuse.domain.errors import ChromafuseError, ConfigError, SessionUnknown
from chromafuse.fs.gate import Gate
from chromafuse.fs.namespace import View
from chromafuse.sessions import Session
from chromafuse.tokens import TokenVerifier

Request = Mapping[str, object]

MAX_TTL = 100 * 365.25 * 86_400
"""Seconds that a session may be told to last."""
MAX_PID = 2**31 - 1
HELD_SECONDS = 2.0
"""How long the end of a session waits for processes inside that hold its names."""

_FIELDS = {"command", PEER, "groups", "token", "ttl", "bound", "pid"}


class SessionHandlers:
    """The commands about sessions."""

    def __init__(self, gate: Gate, mount_point: str, verifier: TokenVerifier) -> None:
        self._gate = gate
        self._mount_point = mount_point
        self._verifier = verifier

    def handlers(self) -> Mapping[str, Handler]:
        """Return them by name."""
        return {"open": self.open, "list": self.list, "close": self.close}

    async def open(self, request: Request) -> Request:
        """Begin a session for ``groups``, for a ``token``'s holder, or for anybody."""
        if unknown := set(request) - _FIELDS:
            raise ConfigError(f"unknown fields {', '.join(sorted(unknown))}")
        ttl, pid = _seconds(request.get("ttl")), _process(request.get("pid"))
        bound = request.get("bound")
        if not (bound is None or isinstance(bound, str)):
            raise ConfigError("bound is not a path")
        grant = await self._grant(request)
        try:
            session = await self._gate.open(grant, ttl, bound, pid)
        except OSError as error:
            raise ChromafuseError(f"process {pid} cannot be watched: {error.strerror}") from None
        return self._told(session)

    async def _grant(self, request: Request) -> Grant:
        token, groups = request.get("token"), request.get("groups")
        if token is not None and groups is not None:
            raise ConfigError("groups and a token exclude each other")
        if token is not None:
            if not isinstance(token, str):
                raise ConfigError("the token is not text")
            # In a thread: the tokens file may have to be read.
            return await trio.to_thread.run_sync(self._verifier.identify, token)
        if groups is None:
            return Grant(ANONYMOUS)
        names = group_names(groups)
        if names is None:
            raise ConfigError("groups are not a list of names")
        return Grant(operator_identity(names))

    async def list(self, _: Request) -> Request:
        """Tell of all sessions, the oldest first."""
        return {"sessions": [self._told(session) for session in self._gate.sessions]}

    async def close(self, request: Request) -> Request:
        """End a session; the answer comes when its names are gone, or are held."""
        session_id = request.get("session")
        ended = self._gate.end(session_id) if isinstance(session_id, str) else None
        if ended is None:
            raise SessionUnknown("there is no such session", remedy="see `chromafuse session list`")
        with trio.move_on_after(HELD_SECONDS):
            await ended.gone.wait()
        return {**self._told(ended.session), "held": not ended.gone.is_set()}

    def _told(self, session: Session[View]) -> Request:
        identity = session.grant.identity
        return {
            "session": session.id,
            "path": f"{self._mount_point}/{session.id}",
            "groups": sorted(identity.groups) if identity.signed_in else None,
            "pages": len(session.shared.view.tree.pages),
            "opened": session.opened,
            "ends": session.ends,
            "grant_expires": session.grant.expires,
            "bound": session.bound,
        }


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError("ttl is not a number of seconds")
    # In this form not a number is refused too, and an int that no float can hold.
    if not 0 < value <= MAX_TTL:
        raise ConfigError("ttl is not a positive number of seconds, or over a hundred years")
    return float(value)


def _process(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_PID:
        raise ConfigError("pid is not a process id")
    return value
