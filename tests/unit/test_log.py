"""Log lines in the journal, and stacks on SIGUSR1, from processes of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

_LINES = """
import logging, sys
from chromafuse import log
log.configure("debug", None)
logger = logging.getLogger("chromafuse.x")
logger.debug("a=1")
logger.info("b=%s", "two\\nlines")
logger.warning("c=3")
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("d=4")
logger.critical("e=5")
"""


def lines_of(code: str, *, journal: bool) -> list[str]:
    """What ``code`` writes to a socket as stderr, as under systemd."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            state = os.fstat(theirs.fileno())
            inode = state.st_ino if journal else state.st_ino + 1
            subprocess.run(
                [sys.executable, "-c", code],
                stderr=theirs.fileno(),
                check=True,
                env=os.environ | {"JOURNAL_STREAM": f"{state.st_dev}:{inode}"},
            )
        with ours.makefile() as stream:
            return stream.read().split("\n")[:-1]


def test_every_line_in_the_journal_has_its_priority_and_no_time() -> None:
    lines = lines_of(_LINES, journal=True)
    assert lines[0] == "<7>chromafuse.x a=1"
    assert lines[1] == "<6>chromafuse.x b=two\\nlines"
    assert lines[2] == "<4>chromafuse.x c=3"
    assert lines[3] == "<3>chromafuse.x d=4"
    assert lines[4] == "<3>Traceback (most recent call last):"
    assert all(line.startswith("<3>") for line in lines[4:-1])
    assert lines[-1] == "<2>chromafuse.x e=5"


def test_a_stderr_that_is_not_the_journal_gets_times_and_no_priorities() -> None:
    lines = lines_of(_LINES, journal=False)
    assert re.match(r"\d{4}-\d\d-\d\d \S+ DEBUG chromafuse\.x a=1\Z", lines[0])
    assert not any(line.startswith("<") for line in lines)


def test_an_error_of_a_command_is_an_error_in_the_journal() -> None:
    code = (
        "import sys; sys.argv = ['chromafuse', 'umount', '/nowhere']\n"
        "from chromafuse.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
    )
    (line,) = lines_of(code, journal=True)
    assert line.startswith("<3>chromafuse: nothing of chromafuse is mounted at /nowhere")


_STACKS = """
import sys, time, trio
from chromafuse import log
from chromafuse.daemon import stacks
log.configure("error", None)
stacks.answer_signal()
async def waits_for_ever():
    await trio.sleep_forever()
async def main():
    stacks.follow(trio.lowlevel.current_root_task())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_for_ever)
        await trio.sleep(0.05)
        if sys.argv[1] == "hung":
            blocks()
        print("ready", flush=True)
        await trio.sleep_forever()
def blocks():
    print("ready", flush=True)
    time.sleep(1000)
trio.run(main)
"""


@pytest.mark.parametrize("state", ["idle", "hung"])
def test_a_signal_tells_what_threads_and_tasks_do(state: str) -> None:
    """Also twice, at any log level, and while the loop hangs."""
    with subprocess.Popen(
        [sys.executable, "-c", _STACKS, state],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(2):
                process.send_signal(signal.SIGUSR1)
                first = process.stderr.readline()
                counts = re.search(
                    r"INFO chromafuse.daemon.stacks stacks threads=(\d+) tasks=(\d+)$", first
                )
                assert counts is not None, first
                rest = [process.stderr.readline() for _ in range(int(counts[1]) + int(counts[2]))]
                assert process.stderr.readline().endswith(" stacks end\n")
                assert any(
                    re.search(r"stack task=.*waits_for_ever.*:waits_for_ever", x) for x in rest
                )
                assert any("stack thread='MainThread' at='" in x for x in rest)
                assert any(":blocks < " in x for x in rest) == (state == "hung")
        finally:
            process.kill()
