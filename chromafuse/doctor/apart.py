"""Running a check in a process of its own, which is left behind if it hangs.

A thread would not do: Chroma's embedded client holds the interpreter's lock while it waits, and a
call into a mount whose daemon hangs cannot even be killed.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NoReturn

from chromafuse.doctor.findings import Check, Finding, Progress, Severity
from chromafuse.domain.errors import ChromafuseError

REAP_SECONDS = 1.0
"""How long a killed check is waited for."""


def run_apart(
    name: str, check: Check, seconds: float, mend: str = ""
) -> Iterator[Finding | Progress]:
    """Yield what ``check`` does. It is given up after ``seconds`` without a sign of life.

    ``mend`` is what to do then, or about an error that does not say.
    The calling process must have a single thread.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_check(name, check, writing, mend)
    os.close(writing)
    ended = False
    try:
        for event in _events(reading, seconds):
            if event is None:
                text = f"no answer within {seconds:g} s"
                yield Finding(name, Severity.ERROR, text, mend)
                ended = True
            elif "end" in event:
                ended = True
            elif "done" in event:
                yield Progress(**event)
            else:
                yield Finding(**{**event, "severity": Severity(event["severity"])})
        if not ended:
            yield Finding(name, Severity.ERROR, "the check ended before it had an answer", mend)
    finally:
        os.close(reading)
        _end(child)


def _events(reading: int, seconds: float) -> Iterator[dict[str, Any] | None]:
    rest = b""
    while select.select([reading], [], [], seconds)[0]:
        more = os.read(reading, 65_536)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        yield from map(json.loads, lines)
    yield None


def _end(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    ends = time.monotonic() + REAP_SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < ends:
        time.sleep(0.005)


def _be_check(name: str, check: Check, writing: int, mend: str) -> NoReturn:
    """Tell what ``check`` finds and end. What it prints or logs is dropped."""

    def tell(event: object) -> None:
        os.write(writing, json.dumps(event).encode() + b"\n")

    try:
        # Whoever reads our caller's output must not wait for a check that hangs.
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        logging.disable()
        try:
            for event in check():
                tell(asdict(event))
        except ChromafuseError as error:
            found = Finding.of(name, error)
            tell(asdict(replace(found, mend=found.mend or mend)))
        except Exception as error:  # noqa: BLE001 - a fault of one check is no reason to lose the others
            text = f"unexpected {type(error).__name__}: {error}"
            tell(asdict(Finding(name, Severity.ERROR, text)))
        tell({"end": True})
    finally:
        os._exit(0)
