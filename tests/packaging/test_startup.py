"""What each command loads: start-up is what a user waits for every time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "boto3",
    "chromadb",
    "cryptography",
    "httpx",
    "jwt",
    "numpy",
    "pathspec",
    "pydantic",
    "pyfuse3",
    "redis",
    "rich",
    "trio",
    "yaml",
}

TYPER = {"pydantic"}
"""Typer loads it to convert arguments."""
HTTPX = {"httpx", "trio", "rich"}
"""httpx loads the other two for what it offers beside a client."""

_PROBE = """
import atexit, json, sys
sys.argv = ["chromafuse", *json.loads(sys.argv[1])]
out = sys.stdout
sys.stdout = sys.stderr
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=out))
from chromafuse.cli import main
main()
"""


def _loaded(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    modules = json.loads(done.stdout.strip().split("\n")[-1])
    return {str(name).partition(".")[0] for name in modules} & HEAVY


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["mount", "--help"], TYPER),
        (["status", "/nowhere", "--json"], TYPER),
        (["top", "/nowhere"], TYPER),
        (["umount", "/nowhere"], TYPER),
        (["mount", "/nowhere", "-c", "docs"], TYPER),
        (["run", "--help"], TYPER),
        (["run", "-c", "docs", "--at", "/nowhere/deep", "--", "true"], TYPER),
        (["run", "--hub", "/nowhere", "--", "true"], TYPER),
        (["tree", "-c", "docs", "--chroma", "http://127.0.0.1:9"], TYPER | HTTPX),
        (["tree", "-c", "docs", "--chroma", "/nowhere"], TYPER),
        (["access", "index.mdx", "-c", "docs", "--chroma", "/nowhere"], TYPER),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_loads_only_what_it_needs(arguments: list[str], allowed: set[str]) -> None:
    assert _loaded(*arguments) <= allowed


def test_cgrep_loads_nothing_but_the_standard_library() -> None:
    """As far as the moment of becoming grep, seen by a grep that tells what is loaded."""
    probe = (
        "import os, sys\n"
        "os.execve = lambda *_: (print(*sorted(sys.modules)), os._exit(0))\n"
        "from chromafuse import cgrep\n"
        "cgrep.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-u", "-I", "-c", probe], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split()) - _loaded_at_start()
    roots = {name.partition(".")[0] for name in modules}
    assert roots - sys.stdlib_module_names == {"chromafuse"}
    assert not modules & {"argparse", "json", "re", "subprocess", "asyncio", "logging"}


def _loaded_at_start() -> set[str]:
    """What this interpreter loads before any program: .pth files of the environment."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())
