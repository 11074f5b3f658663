"""Takes a collection's lock, says so on standard output, and keeps it until it is killed.

``python -m tests.support.lock_holder TARGET COLLECTION``
"""

from __future__ import annotations

import sys
import time

from chromafuse.stores.chroma import open_collection


def main(target: str, name: str) -> None:
    with open_collection(target, name, create=False, timeout=60).exclusive():
        print("held", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
