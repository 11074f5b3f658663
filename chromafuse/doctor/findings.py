"""What a check tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from chromafuse.domain.errors import ChromafuseError


class Severity(StrEnum):
    """How bad it is: ``WARNING`` and ``ERROR`` want mending, ``NOTE`` and ``OK`` do not."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def wants_mending(self) -> bool:
        """Whether somebody should act."""
        return self in (Severity.WARNING, Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: ``text`` is what was found, ``mend`` what to do about it, or ''."""

    check: str
    severity: Severity
    text: str
    mend: str = ""

    @classmethod
    def of(cls, check: str, error: ChromafuseError, severity: Severity = Severity.ERROR) -> Finding:
        """Return what ``error`` says as a finding."""
        return cls(check, severity, str(error.args[0]), error.remedy)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long check is, in pages."""

    done: int
    total: int


Check = Callable[[], Iterator[Finding | Progress]]
