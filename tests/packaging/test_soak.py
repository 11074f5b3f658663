"""``scripts/soak`` for seconds: that it checks, tells, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.test_bench import left_behind

pytestmark = pytest.mark.xdist_group("soak")

PROJECT = Path(__file__).resolve().parents[2]
SOAK = [sys.executable, str(PROJECT / "scripts/soak")]
DEADLINE = 240.0


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the soak works; its path is short, as it holds sockets."""
    with tempfile.TemporaryDirectory(prefix="s-", ignore_cleanup_errors=True) as place:
        yield Path(place)


def test_a_soak_of_seconds_is_right_and_leaves_nothing(temporary: Path) -> None:
    done = subprocess.run(
        [*SOAK, "--minutes", "0.08", "--seed", "7", "--readers", "2", "--no-faults"],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("soak: seed 7\n")
    for word in ("reads", "re-ingests", "growth", "wrong: 0"):
        assert word in done.stdout
    assert left_behind(temporary) == []


def test_an_interrupted_soak_leaves_nothing(temporary: Path) -> None:
    with subprocess.Popen(
        [*SOAK, "--minutes", "0.3", "--seed", "1"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("soak: seed ")
        # A server is down: everything has been started, and one thing is to be again.
        assert "SIG" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130
    assert left_behind(temporary) == []


def test_wrong_usage(temporary: Path) -> None:
    for arguments in (["--minutes", "0"], ["--readers", "-1"], ["--typo"]):
        done = subprocess.run([*SOAK, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
    done = subprocess.run([*SOAK, "--help"], capture_output=True, text=True, check=True)
    assert "examples:" in done.stdout
