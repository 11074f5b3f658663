"""Logging: one line an event, to a file for a daemon in the background, to stderr otherwise.

If stderr is systemd's journal, each line begins with its priority, as sd-daemon(3) says, and has no
time, which the journal adds.
"""

from __future__ import annotations

import errno
import logging
import logging.handlers
import math
import os
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

LOG_BYTES = 5_000_000
"""Size at which a log file is rotated; one old file is kept."""
REFUSED_SECONDS = 60.0

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


_JOURNAL_FORMAT = "%(name)s %(message)s"
_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.NOTSET, 7),
)
"""The least level and syslog's number for it."""


def journal_prefix(level: int, stream: TextIO) -> str:
    """Return what begins a line of ``level`` on ``stream``: nothing unless it is the journal."""
    given = os.environ.get("JOURNAL_STREAM")
    if given is None:
        return ""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return ""
    if given != f"{found.st_dev}:{found.st_ino}":
        return ""
    return next(f"<{number}>" for least, number in _PRIORITIES if level >= least)


def printable(text: str) -> str:
    """Return ``text`` so that it cannot fake a line or move a terminal's cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class _Formatter(logging.Formatter):
    """One line an event, whatever it names; only tracebacks have several."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(printable(line) for line in super().formatException(ei).split("\n"))


class _JournalFormatter(_Formatter):
    """Every line with its priority, the further lines of a traceback too."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = journal_prefix(record.levelno, sys.stderr)
        return "\n".join(prefix + line for line in super().format(record).split("\n"))


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """Files that only their owner reads, also those that a rotation begins."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return TextIOWrapper(open(descriptor, "ab"), encoding=self.encoding, errors=self.errors)


def _is_missed(record: logging.LogRecord) -> bool:
    """Return False for a reply that nobody waits for: the asker or the mount is gone."""
    return not record.getMessage().endswith(f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}")


class _Refused(logging.Filter):
    """One line a minute for clients that cannot be let in, where trio logs a traceback each time.

    They are tried again ten times a second for as long as the process is out of descriptors.
    """

    _quiet_until = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + REFUSED_SECONDS
        record.msg, record.args = f"commands are not answered: {record.getMessage()}", None
        record.exc_info = record.exc_text = None
        return True


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
    if file is None and journal_prefix(logging.INFO, sys.stderr):
        handler.setFormatter(_JournalFormatter(_JOURNAL_FORMAT))
    else:
        handler.setFormatter(_Formatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pyfuse3").addFilter(_is_missed)
    logging.getLogger("trio.serve_listeners").addFilter(_Refused())
    logging.getLogger("chromafuse").setLevel(level.upper())
