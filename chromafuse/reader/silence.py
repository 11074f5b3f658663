"""A server that does not answer: who comes next does not wait the whole deadline again."""

from __future__ import annotations

import trio

from chromafuse.domain.errors import StoreError
from chromafuse.reader import limits


class Silence:
    """Remembers for ``limits.RETRY_AFTER`` that a server let somebody wait in vain.

    A tool that reads thousands of files one after the other gets all its errors within one or two
    deadlines. An error that comes quickly is not remembered, nor one request's among others that
    are answered: nobody fails for the sake of a single request.
    """

    __slots__ = ("_answered", "_error", "_long", "_until")

    def __init__(self, deadline: float) -> None:
        # A store keeps to the same deadline by itself, so an error may come just before it.
        self._long = deadline / 2
        self._answered = float("-inf")
        self._until = float("-inf")
        self._error: StoreError | None = None

    def error(self) -> StoreError | None:
        """Return the error to raise at once, or None if the server is to be asked."""
        return self._error if trio.current_time() < self._until else None

    def answered(self) -> None:
        """Tell that the server has answered something useful."""
        self._answered = trio.current_time()
        self._until = float("-inf")

    def failed(self, error: StoreError, begun: float) -> None:
        """Tell that a request that began at ``begun``, in trio's time, ended with ``error``."""
        now = trio.current_time()
        if now - begun >= self._long and self._answered < begun:
            self._error, self._until = error, now + limits.RETRY_AFTER
