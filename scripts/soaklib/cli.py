"""The command line of ``scripts/soak``."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence

from benchlib.lab import Lab
from benchlib.model import BenchError
from benchlib.signals import Interrupted, listen

from soaklib.run import Plan, Soak

DESCRIPTION = """\
Use a hub for long, and check every byte that it shows.

Starts a Chroma server, Redis and an S3 server on loopback, ingests a tree and mounts it as a hub.
Readers (whole files, ranges, grep -r, find) run beside re-ingests of the changing tree and sessions
that are opened and closed, while servers are stopped or killed at random and come back. A file has
to be a whole version that was valid; an error needs a reason. In the end come counts, what was
wrong, and how memory, descriptors and threads of the daemon grew. Nothing is left mounted, running
or on disk, on Ctrl-C either."""

EPILOG = """\
exit codes:
  0  all was right
  1  something was wrong or grew beyond its bound, or a server did not start; it is named
  2  wrong usage
  130, 143  interrupted

examples:
  scripts/soak --minutes 60
  scripts/soak --minutes 10 --readers 8
  scripts/soak --minutes 0.2 --no-faults
  scripts/soak --minutes 10 --seed 1742
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, metavar="N", help="how long [10]")
    add("--seed", type=int, metavar="N", help="decides tree, changes and faults [random]")
    add("--readers", type=int, default=4, metavar="N", help="readers side by side [4]")
    add("--no-faults", action="store_true", help="leave the servers alone")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if not 0 < given.minutes <= 100_000 or not 0 < given.readers <= 500:
        parser.error("--minutes and --readers are positive numbers")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    listen()
    try:
        with Lab() as lab:
            print(f"soak: seed {seed}", flush=True)
            plan = Plan(given.minutes * 60, seed, given.readers, faults=not given.no_faults)
            soak = Soak(plan, lab)
            soak.run()
            print(soak.report(), flush=True)
            return int(bool(soak.history.wrong))
    except BenchError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    except Interrupted as interrupted:
        print(f"soak: interrupted by {interrupted}", file=sys.stderr)
        return 128 + interrupted.number
