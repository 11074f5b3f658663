"""The environment of mirage-ai: it is made in the cache directory, and only when asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchlib.corpora import cache_directory

VERSION = "0.0.7"
REQUIREMENT = f"mirage-ai[chroma,fuse]=={VERSION}"
INSTALL_SECONDS = 300.0
PROGRAM = Path(__file__).with_name("peer.py")

_trouble: dict[str, str] = {}


def place() -> Path:
    """Return the environment's directory, which may not be there."""
    return cache_directory() / f"mirage-ai-{VERSION}"


def python() -> Path:
    """Return its interpreter."""
    return place() / "bin/python"


def missing() -> str | None:
    """Return what is missing, and why."""
    if python().exists():
        return None
    why = _trouble.get("why")
    return f"mirage-ai {VERSION}" + (f", which cannot be: {why}" if why else " (--peer does)")


def install() -> None:
    """Install it unless it is there; what goes wrong is told by ``missing``."""
    if python().exists():
        return
    cache_directory().mkdir(parents=True, exist_ok=True)
    commands = (
        [sys.executable, "-m", "venv", str(place())],
        [str(python()), "-m", "pip", "install", "--quiet", REQUIREMENT],
        [str(python()), "-c", "import mfusepy, mirage.vfs.chroma.chroma"],
    )
    try:
        for command in commands:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().rpartition("\n")[2]
        _trouble["why"] = said[:300]
        shutil.rmtree(place(), ignore_errors=True)
    except BaseException:
        # Half an environment would be taken for a whole one.
        shutil.rmtree(place(), ignore_errors=True)
        raise
