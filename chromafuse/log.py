"""Logging: one line an event, to a file for a daemon in the background, to stderr otherwise."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

LOG_BYTES = 5_000_000
"""Size at which a log file is rotated; one old file is kept."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def printable(text: str) -> str:
    """Return ``text`` so that it cannot fake a line or move a terminal's cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class _Formatter(logging.Formatter):
    """One line an event, whatever it names; only tracebacks have several."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(printable(line) for line in super().formatException(ei).split("\n"))


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """Files that only their owner reads, also those that a rotation begins."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return TextIOWrapper(open(descriptor, "ab"), encoding=self.encoding, errors=self.errors)


def configure(level: str, file: Path | None) -> None:
    """Send this package's log lines of ``level`` and above to ``file``, or stderr if None.

    Other packages' lines are shown from WARNING on: httpx reports every request as INFO.
    """
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = _PrivateFile(
            file, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace"
        )
    handler.setFormatter(_Formatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("chromafuse").setLevel(level.upper())
