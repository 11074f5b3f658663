"""SIGUSR1 writes what every thread and every task is doing to the log.

A thread of its own waits for the signal, so that the loop is told of even when it hangs.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

import trio

log = logging.getLogger(__name__)

MAX_FRAMES = 60
"""Of one stack, the innermost."""
MAX_TASKS = 5_000

_root: trio.lowlevel.Task | None = None


def answer_signal() -> None:
    """Answer SIGUSR1 from now on. Call it while there is one thread: later ones have to inherit."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    threading.Thread(target=_answer, name="stacks", daemon=True).start()


def follow(root: trio.lowlevel.Task | None) -> None:
    """Tell of ``root`` and all tasks below it."""
    global _root  # noqa: PLW0603 - one loop a process
    _root = root


def _answer() -> None:
    while True:
        signal.sigwait({signal.SIGUSR1})
        for line in _lines():
            # Whoever asks wants it whatever the level of the log is.
            log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, line, (), None))


def _lines() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    threads = {ident: frame for ident, frame in sys._current_frames().items() if ident != own}
    tasks = list(islice(_below(_root), MAX_TASKS))
    yield f"stacks threads={len(threads)} tasks={len(tasks)}"
    for ident, frame in threads.items():
        yield f"stack thread={names.get(ident, str(ident))!r} at={_joined(_outward(frame))!r}"
    for task in tasks:
        inward = [_place(frame, line) for frame, line in task.iter_await_frames()]
        yield f"stack task={task.name!r} at={_joined(reversed(inward))!r}"
    yield "stacks end"


def _outward(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield _place(frame, frame.f_lineno)
        frame = frame.f_back


def _place(frame: FrameType, line: int | None) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{line or 0}:{frame.f_code.co_name}"


def _joined(places: Iterable[str]) -> str:
    """Return a stack as one text, the innermost place first."""
    return " < ".join(islice(places, MAX_FRAMES))


def _below(root: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    """Yield ``root`` and its descendants; copies, as the loop may go on meanwhile."""
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in list(task.child_nurseries):
            waiting += list(nursery.child_tasks)
