"""An ingest that kills itself just before its nth write, in small batches so that there are many.

``python -m tests.support.dying_ingest TARGET COLLECTION SOURCE N``; N is 0 for never. Prints the
number of writes if it survives.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from chromafuse.stores.chroma import ChromaCollection, Limits, Transport
from tests.support.sites import run_ingest
from tests.support.wrappers import Interrupted, Recording, SmallRecords

SMALL = Limits(read_records=50, write_records=8, document_bytes=1_000_000)
RECORD_BYTES = 400
CHUNK_SIZE = 60


def _transport(target: str) -> Transport:
    if "://" in target:
        from chromafuse.stores.chroma_http import HttpTransport

        return HttpTransport(target, 60.0, SMALL)
    from chromafuse.stores.chroma_embedded import EmbeddedTransport

    return EmbeddedTransport(Path(target), SMALL, write=True)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(target: str, name: str, source: str, nth: str) -> None:
    transport = _transport(target)
    transport.open_collection(name, create=True)
    store = ChromaCollection(transport, name)
    recording = Recording(Interrupted(store, int(nth), _die))
    run_ingest(Path(source), SmallRecords(recording, RECORD_BYTES), chunk_size=CHUNK_SIZE)
    store.close()
    print(len(recording.writes))


if __name__ == "__main__":
    main(*sys.argv[1:])
