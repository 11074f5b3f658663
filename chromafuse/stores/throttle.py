"""Whether a request that a busy server turned away is made again, as gRPC's retry throttling does.

A single refusal among answers is not for the reader to see. A server that refuses everything gets
no more requests than there are reads.
Source: https://github.com/grpc/proposal/blob/master/A6-client-retries.md#throttling-retry-attempts
"""

from __future__ import annotations

import threading

_FULL = 10.0
_EARNED = 0.1


class RetryThrottle:
    """Allows repetitions while at most one request in ten fails. Safe for threads."""

    def __init__(self) -> None:
        self._tokens = _FULL
        self._lock = threading.Lock()

    def succeeded(self) -> None:
        """Tell that a request was answered."""
        with self._lock:
            self._tokens = min(_FULL, self._tokens + _EARNED)

    def failed(self) -> bool:
        """Tell that a request was turned away; return whether it may be made again."""
        with self._lock:
            self._tokens = max(0.0, self._tokens - 1)
            return self._tokens > _FULL / 2
