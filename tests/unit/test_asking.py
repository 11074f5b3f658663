"""Asking for objects: of a server that never answers, and again while entries are older."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from chromafuse.daemon.objects import Asking
from chromafuse.domain.access import PUBLIC
from chromafuse.domain.errors import StoreUnavailable
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.pointer import Location, Pointer, parse_location
from chromafuse.domain.tree import PathTree, TreeVersion, build_tree
from chromafuse.ports import Blob

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
    Asking(Silent().head, 0.01).as_they_are(tree, 0)
except StoreUnavailable as error:
    print(error)
"""


def test_a_process_ends_while_a_server_does_not_answer() -> None:
    """A request cannot be called off, and a service has to stop all the same."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, timeout=120
    )
    assert done.stdout == b"s3://specs/x.json: objects cannot be asked for now\n"


class Objects:
    """Tells of one object, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.etag = "new"
        self.meanwhile: Callable[[], None] = lambda: None

    def head(self, location: Location) -> Blob:
        self.asked += 1
        self.meanwhile()
        return Blob(Pointer(location, 5, self.etag), 0)


LOCATION = parse_location("s3://specs/x.json")


def _tree(*etags: str) -> PathTree:
    pointers = [Pointer(LOCATION, 5, etag) for etag in etags]
    return build_tree(
        (
            Page(Slug(f"{n}.json"), b"%d.json" % n, PUBLIC, 5, 0, pointer=pointer)
            for n, pointer in enumerate(pointers)
        ),
        TreeVersion("v"),
    )


def _shown(tree: PathTree) -> set[str]:
    return {page.pointer.etag for page in tree.pages if page.pointer is not None}


def test_a_replaced_object_is_asked_for_until_all_entries_tell_of_it() -> None:
    objects = Objects()
    asking = Asking(objects.head, 5.0)
    old, half, new = _tree("old"), _tree("new", "old"), _tree("new", "new")
    assert not asking.is_needed(old)
    asking.replaced(LOCATION)
    for tree in (old, old, half, new):
        assert asking.is_needed(tree)
        assert _shown(asking.as_they_are(tree, 0)) == {"new"}
    assert not asking.is_needed(new)
    assert not asking.is_needed(old)
    assert objects.asked == 5


def test_an_object_that_is_replaced_while_it_is_asked_for_is_asked_for_again() -> None:
    objects = Objects()
    asking = Asking(objects.head, 5.0)
    asking.replaced(LOCATION)
    objects.meanwhile = lambda: asking.replaced(LOCATION)
    asking.as_they_are(_tree("new"), 0)
    assert asking.is_needed(_tree("new"))


def test_an_object_that_cannot_be_asked_for_is_not_forgotten() -> None:
    objects = Objects()
    asking = Asking(objects.head, 5.0)
    asking.replaced(LOCATION)

    def away() -> None:
        raise StoreUnavailable("away")

    objects.meanwhile = away
    assert _shown(asking.as_they_are(_tree("old"), 0)) == {"old"}
    assert asking.is_needed(_tree("old"))
    asking.as_they_are(_tree(), 0)
    assert not asking.is_needed(_tree("old"))
