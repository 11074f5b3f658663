"""Logging: one line an event, to a file for a daemon in the background, to stderr otherwise."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path

LOG_BYTES = 5_000_000
"""Size at which a log file is rotated; one old file is kept."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure(level: str, file: Path | None) -> None:
    """Send this package's log lines of ``level`` and above to ``file``, or stderr if None.

    Other packages' lines are shown from WARNING on: httpx reports every request as INFO.
    """
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("chromafuse").setLevel(level.upper())
