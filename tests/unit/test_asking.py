"""Asking for objects of a server that never answers."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import threading
from chromafuse.daemon.objects import Asking
from chromafuse.domain.access import PUBLIC
from chromafuse.domain.errors import StoreUnavailable
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.pointer import Pointer, parse_location
from chromafuse.domain.tree import TreeVersion, build_tree

class Silent:
    def head(self, location):
        threading.Event().wait()

pointer = Pointer(parse_location("s3://specs/x.json"), 0, "")
page = Page(Slug("x.json"), b"x.json", PUBLIC, 0, 0, pointer=pointer)
tree = build_tree([page], TreeVersion("v"))
try:
    Asking(Silent(), 0.01).as_they_are(tree, (), 0)
except StoreUnavailable as error:
    print(error)
"""


def test_a_process_ends_while_a_server_does_not_answer() -> None:
    """A request cannot be called off, and a service has to stop all the same."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, timeout=120
    )
    assert done.stdout == b"s3://specs/x.json: objects cannot be asked for now\n"
