"""Ingests two sources in turn, many times, as another process would.

``python -m tests.support.reingest TARGET COLLECTION ONE OTHER TIMES``
"""

from __future__ import annotations

import sys
from pathlib import Path

from chromafuse.stores.chroma import open_collection
from tests.support.sites import run_ingest


def main(target: str, name: str, one: str, other: str, times: str) -> None:
    store = open_collection(target, name, create=True, timeout=60)
    for n in range(int(times)):
        run_ingest(Path(other if n % 2 else one), store, chunk_size=80)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
