"""Runs the ``chromafuse`` command and prints the most memory it had, in bytes, as its last line.

``python -m tests.support.peak_memory ingest …``. The kernel's own count (VmHWM) is that of this
program; ``getrusage`` would also tell of the process that started it.
"""

from __future__ import annotations

import re
from pathlib import Path

from chromafuse.cli import main

if __name__ == "__main__":
    try:
        main()
    finally:
        status = Path("/proc/self/status").read_text()
        [kilobytes] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        print(int(kilobytes) * 1024)
