"""Signals end a run, and never in the middle of its tidying."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """The user or the system wants this to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


def listen() -> None:
    """Let signals end the run by way of ``Interrupted``, so that everything is tidied."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


@contextmanager
def deaf() -> Iterator[None]:
    """Do not let another signal disturb the tidying.

    A handler, not SIG_IGN: that would be inherited by the commands run meanwhile.
    """
    before: Mapping[signal.Signals, object] = {
        number: signal.signal(number, lambda *_: None) for number in SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() returned
