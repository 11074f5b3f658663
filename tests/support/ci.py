"""Which tests may be skipped, and which log lines a test expects: the same everywhere."""

from __future__ import annotations

import os
import re

import pytest

ALLOW_NO_FUSE = "CHROMAFUSE_TEST_ALLOW_NO_FUSE"


def why_no_fuse() -> str:
    """Why nothing can be mounted here, or an empty text."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"no FUSE here: {error}"
    return ""


def may_skip() -> bool:
    """Whether a test may be skipped: not in CI, unless it is said to have no FUSE and has none."""
    if os.environ.get(ALLOW_NO_FUSE) and why_no_fuse():
        return True
    return not os.environ.get("CI")


def expected_lines(request: pytest.FixtureRequest) -> list[re.Pattern[str]]:
    """What the test's ``expects_log`` marks name."""
    return [
        re.compile(pattern)
        for mark in request.node.iter_markers("expects_log")
        for pattern in mark.args
    ]
