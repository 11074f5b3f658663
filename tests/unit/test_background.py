"""What a daemon tells the process that started it."""

from __future__ import annotations

import json
import os

from chromafuse.cli.background import _Pipe


def test_nothing_is_told_once_the_mount_is_ready() -> None:
    """The descriptor's number is another file's by then: a note would land in it."""
    reading, writing = os.pipe()
    pipe = _Pipe(writing)
    pipe.note("slow")
    pipe.ready("3 pages")
    with os.fdopen(reading) as told:
        assert [json.loads(line) for line in told] == [{"note": "slow"}, {"ready": "3 pages"}]
    other = os.memfd_create("other")
    try:
        os.dup2(other, writing)
        pipe.note("late")
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)
        os.close(writing)
