"""Servers as processes of their own, with which a test does as it likes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable


class ServerProcess:
    """A server that can be stopped, frozen and started again at the same address.

    ``launch`` returns a new process that answers already.
    """

    def __init__(self, launch: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = self._launch()

    def stop(self) -> None:
        """End it at once; what it stores stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Keep it from answering until ``thaw``; connections are still taken."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo ``freeze``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def come_back(self) -> None:
        """Have it answer again, whether it was stopped or frozen."""
        if self._process is None:
            self.start()
        else:
            self.thaw()
