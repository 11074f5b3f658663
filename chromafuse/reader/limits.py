"""The reader's bounds; always used by their full names, since tests make them small."""

CONNECTIONS = 4
"""Requests in flight at once; Chroma's embedded engine and a local server gain little beyond."""
COMPANIONS = 32
"""Pages ahead that travel in the request of a live one of the same walk."""
RETRY_AFTER = 1.0
"""Seconds for which an open file repeats an error before it asks Chroma again."""
BATCH_PAGES = 200
BATCH_BYTES = 8_000_000
"""A request asks for no more than this, so that one deadline fits all requests."""
FIRST_WARM = 32
"""Pages in the first warm-up request; the next ones double up to a full request."""
WARM_ROUNDS = 3
"""How often the warm-up tries those pages again whose requests failed."""
BLOCK_BYTES = 1 << 20
"""Bytes of an object that one request brings, and that the caches hold as one."""
BLOB_CONNECTIONS = 8
"""Requests in flight at once for blocks that somebody waits for, beside those to Chroma."""
BLOB_THREADS = 64
"""Threads for all of them, those included that still wait for what nobody wants any more."""
BLOB_CONNECTIONS_AHEAD = 6
AHEAD_GROWTH = 4
"""How many times as many blocks are fetched ahead each time a reader has gone on."""
MAX_BLOCKS_AHEAD = 32
"""All in one request: each request costs the server a look at the object."""
STREAMS = 8
"""Places of an open file from which readers may go on in sequence."""
GREP_SHARE = 4
"""A search has objects of at most this part of the cache fetched before they are opened."""
ASK_ANEW_AFTER = 5.0
"""Seconds before an object is asked anew whose readers still meet another version."""
