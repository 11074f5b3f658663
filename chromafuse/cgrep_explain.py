"""``cgrep --explain``: what a search would be shown, and how that is found out."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from chromafuse.cgrep import TROUBLE, restore_signals
from chromafuse.cgrep_ask import Call, Daemon, parsed, touched

PATIENCE = 65.0
"""Seconds; a search may be allowed 60."""
EVERYTHING = 1
"""Exit code if the search is shown everything somewhere, or nothing of ours is searched."""


def explain(
    program: str, arguments: list[bytes], environment: dict[bytes, bytes], mounts: list[bytes]
) -> int:
    """Print an explanation and return the exit code.

    0: only some files are shown; 1: everything is; 2: a daemon cannot be asked.
    """
    call = Call(program, arguments, environment)
    daemons = touched(call.operands, mounts)
    restore_signals()
    if not daemons:
        _print("nothing of chromafuse is searched: plain grep")
        return EVERYTHING
    code = 0
    for daemon in daemons:
        problem, answer = _asked(call, daemon)
        if answer is None:
            message = f"cgrep: the daemon of {_shown(daemon.path)}: {problem}\n"
            os.write(2, message.encode(errors="surrogateescape"))
            return TROUBLE
        if not _told(daemon, answer):
            code = EVERYTHING
    return code


def _asked(call: Call, daemon: Daemon) -> tuple[str, Any]:
    """Return what went wrong, or the answer."""
    try:
        request = call.request(daemon.places, explain=True)
        answer = parsed(daemon.ask(request, time.monotonic() + PATIENCE))
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error), None
    if answer.get("error") == "unknown command":
        return "", {
            "needs": "everything",
            "recursive": True,
            "reason": "pushdown is off",
            "query": "",
        }
    return answer.get("error", ""), None if "error" in answer else answer


def _told(daemon: Daemon, answer: Any) -> bool:
    """Print an answer; return whether only some files are shown."""
    narrows: bool = answer["needs"] == "candidates" and answer["recursive"]
    _print(f"mount: {_shown(daemon.path)}")
    _print(f"pattern: {answer['query'] or 'not looked at'}")
    reason = answer["reason"] if answer["recursive"] else "no directory is searched"
    _print(f"needs: {answer['needs'] if narrows else 'everything'} ({reason})")
    if "analysis_seconds" in answer:
        _print(f"analysis: {_duration(answer['analysis_seconds'])}")
    if answer.get("hide_over") is not None:
        limit = f"{answer['hide_over']} bytes"
        _print(f"left out: files outside Chroma over {limit} (--hide-large-from-grep)")
    if not narrows:
        return False
    for place in answer["places"]:
        _print("")
        narrows = _place(daemon, place) and narrows
    return narrows


def _place(daemon: Daemon, found: Any) -> bool:
    where = _shown(os.path.join(daemon.path, os.fsencode(found["place"])).rstrip(b"/"))
    candidates = found["candidates"]
    if candidates is None:
        _print(f"{where}: all {found['pages']} pages are shown ({found['reason']})")
    else:
        _print(f"{where}: {len(candidates)} of {found['pages']} pages can match")
    if found["remembered"]:
        _print("found by an earlier search:")
    memory, chroma = _duration(found["memory_seconds"]), _duration(found["chroma_seconds"])
    _print(f"tested in memory: {found['tested']} pages, {memory}")
    if found["asked"] is None:
        _print("Chroma: not asked")
    else:
        _print(f"Chroma filter: {json.dumps(found['asked'], ensure_ascii=False)}")
        _print(f"Chroma: {found['matching_chunks']} chunks match, {chroma}")
    if found["fetch_seconds"]:
        _print(f"fetched to be tested: {_duration(found['fetch_seconds'])}")
    for path in candidates or []:
        _print("  " + _shown(os.path.join(daemon.path, os.fsencode(path))))
    return candidates is not None


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _shown(path: bytes) -> str:
    """Return a path for a person: what would move the cursor is escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else ascii(text)[1:-1]


def _print(line: str) -> None:
    sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()
