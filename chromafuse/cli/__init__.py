"""The command line. Each command imports what it needs when it runs."""

from __future__ import annotations


def main() -> None:
    """Entry point of ``chromafuse``."""
    from chromafuse.cli import streams

    streams.prepare()
    from chromafuse.cli.app import run

    run()
