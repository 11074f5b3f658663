"""What a daemon is to be; apart, so that a command can say so before anything heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass

from chromafuse.domain.access import Grant
from chromafuse.tokens import TokenVerifier


@dataclass(frozen=True, slots=True)
class Role:
    """What a daemon is to be: a mount for one ``grant``, or a hub whose tokens ``verifier`` checks.

    ``fuse_fd`` is an opened ``/dev/fuse`` that somebody else mounts, or None to mount here.
    """

    grant: Grant | None = None
    verifier: TokenVerifier | None = None
    fuse_fd: int | None = None
