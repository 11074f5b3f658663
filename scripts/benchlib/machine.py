"""What a run was made on."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("chromafuse", "chromadb", "pyfuse3", "trio", "httpx", "redis")
PROGRAMS = {
    "libfuse": ("fusermount3", "--version"),
    "squashfuse": ("squashfuse_ll", "--help"),
    "coreutils": ("ls", "--version"),
    "findutils": ("find", "--version"),
    "grep": ("grep", "--version"),
    "redis-server": ("redis-server", "--version"),
    "ripgrep": ("rg", "--version"),
}


def machine() -> dict[str, object]:
    """Return the machine, and how busy it was with other things just now."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _first(r"^model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.machine(),
        "memory_bytes": int(_first(r"^MemTotal:\s*(\d+) kB", "/proc/meminfo") or 0) * 1024,
        "kernel": platform.release(),
        "system": _first(r'^PRETTY_NAME="?([^"\n]*)', "/etc/os-release") or platform.system(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _first(pattern: str, path: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None


def versions() -> dict[str, str]:
    """Return the versions of what takes part; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for name, command in PROGRAMS.items():
        if version := _said_version(command):
            found[name] = version
    return found


def _said_version(command: tuple[str, ...]) -> str | None:
    if not shutil.which(command[0]):
        return None
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    version = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return version[0] if version else None


def code() -> str:
    """Return a word that changes with the program's text: a checkout's version does not."""
    spec = importlib.util.find_spec("chromafuse")
    digest = hashlib.blake2b(digest_size=6)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(place).rglob("*.py")):
            digest.update(f"{file.relative_to(place)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
