"""JSON that means one thing only: no key twice, no NaN, UTF-8."""

from __future__ import annotations

import json
from typing import NoReturn


def parse_json(data: bytes) -> object:
    """Return the value of a JSON text. Raises ``ValueError`` for whatever is not plain JSON."""
    try:
        return json.loads(
            data.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_unambiguous
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError("not a number")


def _unambiguous(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found
