"""Running the installed command, and programs of the tests, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).parent / "chromafuse"
DEADLINE = 120.0


def environment(home: Path) -> dict[str, str]:
    """The tests' own environment without anybody's settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CHROMAFUSE_", "XDG_"))
    }
    return kept | {"HOME": str(home), "COLUMNS": "4000"}


def start(command: list[str], home: Path) -> subprocess.Popen[str]:
    """Start a command in the project's directory; both its outputs are pipes."""
    return subprocess.Popen(
        command,
        cwd=PROJECT,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_ingest(
    source: Path, target: str, collection: str, *options: str
) -> subprocess.Popen[str]:
    """Start ``chromafuse ingest``."""
    words = ["ingest", str(source), "--collection", collection, "--chroma", target, *options]
    return start([str(COMMAND), *words], source.parent)


def run_command(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run ``chromafuse`` with ``words`` to its end."""
    return finish(start([str(COMMAND), *words], home))


def run_module(name: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests to its end."""
    return finish(start([sys.executable, "-m", name, *words], home))


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for a command and return what it said."""
    try:
        out, err = process.communicate(timeout=DEADLINE)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
