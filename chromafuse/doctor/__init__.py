"""What stands in the way of a mount: examined without changing anything, and never hanging.

Each check runs in a process of its own under a deadline, since what it looks at may never answer.
"""

from __future__ import annotations

from chromafuse.doctor.examine import Plan, examine
from chromafuse.doctor.findings import Finding, Progress, Severity

__all__ = ["Finding", "Plan", "Progress", "Severity", "examine"]
