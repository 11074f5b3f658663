"""Objects beside Chroma: what of a tree may be read there, and with what."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from chromafuse.config import Settings
from chromafuse.domain.errors import BlobDenied, BlobMissing, StoreError, StoreUnavailable
from chromafuse.domain.page import Page, Slug, Version
from chromafuse.domain.pointer import Location, Place, Pointer, allowed
from chromafuse.domain.tree import PathTree, Rejected, build_tree
from chromafuse.ports import Blob, PageCache
from chromafuse.reader import BlockReader
from chromafuse.stores.memory import MemoryCache

if TYPE_CHECKING:
    from chromafuse.stores.blobs import Blobs

log = logging.getLogger(__name__)

ASKED_AT_ONCE = 8
NOT_ALLOWED = "pointer to a place that is not configured"


def without_refused(tree: PathTree, places: Sequence[Place]) -> PathTree:
    """Return ``tree`` without pages that point to anything outside ``places``.

    The tree may come from anybody, so it never decides what the daemon contacts. Such a page takes
    nobody's place either.
    """
    refused = {page.slug: NOT_ALLOWED for page in _every(tree) if not _may_be_read(page, places)}
    return _changed(tree, {}, refused)


class Asking:
    """Asks for objects, and remembers what was told. ``deadline`` is what one request may take.

    The tree is not held up by a server that is away: what it told before holds as long as the
    entry is the same, and what a reader meets that is another version has it asked again.
    """

    def __init__(self, head: Callable[[Location], Blob], deadline: float) -> None:
        self._head = head
        # With all its attempts, the last of which may begin late.
        self._patience = 3 * deadline
        self._work: SimpleQueue[tuple[Future[Blob], Location]] = SimpleQueue()
        self._threads = 0
        self._told: dict[Pointer, Blob] = {}
        # Of each location how often it was said: it may be said again while it is asked for.
        self._replaced: dict[Location, int] = {}

    def replaced(self, location: Location) -> None:
        """Have the object at ``location`` asked for until its entry tells of it as it is.

        Safe to call while another thread is in ``as_they_are``.
        """
        self._replaced[location] = self._replaced.get(location, 0) + 1

    def is_needed(self, tree: PathTree) -> bool:
        """Return whether ``as_they_are`` has anything to do."""
        return any(_is_asked_for(page, self._replaced) for page in _every(tree))

    def as_they_are(self, tree: PathTree, default_mtime_ns: int) -> PathTree:
        """Return ``tree`` with the objects that have to be asked for as they are now.

        These are the ones whose entry does not tell size and ETag, and those that were said to be
        ``replaced``. Makes one request for each, several at once. A page whose object cannot be had
        is left out if its entry does not tell, and stays as it is otherwise. Raises
        ``StoreUnavailable`` if an entry does not tell, was never asked for, and that may pass.
        """
        replaced = dict(self._replaced)
        asked = [
            (page, page.pointer)
            for page in _every(tree)
            if page.pointer is not None and _is_asked_for(page, replaced)
        ]
        answers = self._ask({pointer for _, pointer in asked})
        self._settle(replaced, answers)
        known: dict[Slug, Page] = {}
        missing: dict[Slug, str] = {}
        for page, pointer in asked:
            answer = answers[pointer]
            if isinstance(answer, Blob):
                tells = not pointer.is_known and page.mtime_ns != default_mtime_ns
                known[page.slug] = replace(
                    page,
                    pointer=answer.pointer,
                    size=answer.pointer.size,
                    version=Version(answer.pointer.version),
                    mtime_ns=page.mtime_ns if tells else answer.mtime_ns,
                )
            elif pointer.is_known:
                continue
            elif isinstance(answer, StoreUnavailable):
                raise answer
            else:
                missing[page.slug] = _why(answer)
        return _changed(tree, known, missing)

    def _settle(
        self, replaced: Mapping[Location, int], answers: Mapping[Pointer, Blob | StoreError]
    ) -> None:
        """Forget of ``replaced`` what every entry tells of as it is, or no entry at all."""
        newer = {
            pointer.location
            for pointer, answer in answers.items()
            if not isinstance(answer, Blob) or answer.pointer != pointer
        }
        for location, times in replaced.items():
            if location not in newer and self._replaced[location] == times:
                del self._replaced[location]

    def _ask(self, pointers: Collection[Pointer]) -> Mapping[Pointer, Blob | StoreError]:
        """Return what is told of each, or was told before if nothing is now."""
        asked = {self._submit(one.location): one for one in pointers}
        answers: dict[Pointer, Blob | StoreError] = {}
        left, in_vain = set(asked), 0
        while left and in_vain < ASKED_AT_ONCE:
            done, left = wait(left, self._patience, FIRST_COMPLETED)
            if not done:
                break
            for future in done:
                try:
                    answers[asked[future]] = future.result()
                    in_vain = 0
                except StoreError as error:
                    answers[asked[future]] = error
                    in_vain = in_vain + 1 if isinstance(error, StoreUnavailable) else 0
        for future in left:
            future.cancel()
            url = asked[future].location.url
            answers[asked[future]] = StoreUnavailable(f"{url}: objects cannot be asked for now")
        away = next((one for one in answers.values() if isinstance(one, StoreUnavailable)), None)
        if away is not None:
            log.info("an object cannot be asked for: %s", away)
        for pointer, answer in answers.items():
            if isinstance(answer, StoreUnavailable) and pointer in self._told:
                answers[pointer] = self._told[pointer]
        self._told = {one: answer for one, answer in answers.items() if isinstance(answer, Blob)}
        return answers

    def _submit(self, location: Location) -> Future[Blob]:
        """Have one of a few threads ask: a server that trickles headers holds no more than these.

        An executor's threads would keep the process from ending until they are answered.
        """
        future: Future[Blob] = Future()
        self._work.put((future, location))
        if self._threads < ASKED_AT_ONCE:
            self._threads += 1
            threading.Thread(target=self._serve, name="objects", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            future, location = self._work.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._head(location))
            except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
                future.set_exception(error)


def _every(tree: PathTree) -> Iterator[Page]:
    """Yield the pages that are shown, and those that come to light where another one is not."""
    yield from tree.pages
    yield from tree.shadowed


def _is_asked_for(page: Page, replaced: Collection[Location]) -> bool:
    pointer = page.pointer
    return pointer is not None and (not pointer.is_known or pointer.location in replaced)


def _why(error: StoreError) -> str:
    if isinstance(error, BlobMissing):
        return "pointer to an object that does not exist"
    if isinstance(error, BlobDenied):
        return "pointer to an object that may not be read"
    return "pointer to an object that cannot be asked for"


def _changed(tree: PathTree, known: Mapping[Slug, Page], refused: Mapping[Slug, str]) -> PathTree:
    """Return ``tree`` with some pages in others' stead, and without some, each for its reason."""
    if not known and not refused:
        return tree
    contended = {page.slug for page in tree.shadowed}
    rejected = [item for item in tree.rejected if item.slug not in contended]
    rejected += [Rejected(slug, why) for slug, why in refused.items()]
    kept = (known.get(page.slug, page) for page in _every(tree) if page.slug not in refused)
    return build_tree(kept, tree.version, rejected)


def _may_be_read(page: Page, places: Sequence[Place]) -> bool:
    return page.pointer is None or allowed(places, page.pointer.location)


def stored_pages(tree: PathTree) -> Sequence[Page]:
    """Return the pages whose bytes are in Chroma: only those are fetched before they are opened."""
    if all(page.pointer is None for page in tree.pages):
        return tree.pages
    return tuple(page for page in tree.pages if page.pointer is None)


def open_blobs(settings: Settings) -> Blobs | None:
    """Return the places of objects, or None if none may be read."""
    if not settings.places:
        return None
    from chromafuse.stores.blobs import Blobs

    return Blobs(settings.places, settings.s3_options(settings.deadline))


def open_blocks(
    settings: Settings, blobs: Blobs | None, cache: MemoryCache, shared: PageCache | None
) -> BlockReader | None:
    """Return what reads objects, or None if there are no ``blobs``."""
    if blobs is None:
        return None
    return BlockReader(
        blobs,
        settings.s3_endpoint or "aws",
        cache,
        settings.deadline,
        shared,
        grep_max=settings.pointer_grep_max,
    )
