"""Session tokens: where a token comes from, and whom it makes its holder.

A token is a JWT that one of the operator's keys has signed, or an opaque text that the operator's
file lists. No message and no log line holds a token or a part of it.
"""

from __future__ import annotations

from chromafuse.tokens.source import TOKEN_VARIABLE, forget_variable, grant_from, read_token
from chromafuse.tokens.verifier import (
    MAX_TOKEN_BYTES,
    TokenVerifier,
    VerifierSettings,
    verifier_from,
)

__all__ = [
    "MAX_TOKEN_BYTES",
    "TOKEN_VARIABLE",
    "TokenVerifier",
    "VerifierSettings",
    "forget_variable",
    "grant_from",
    "read_token",
    "verifier_from",
]
