"""``access``: who sees a page, and what decided it."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from chromafuse.cli.app import Chroma, Collection, Config, Deadline, app
from chromafuse.cli.identity import AsGroups, group_list
from chromafuse.domain.errors import ChromafuseError

if TYPE_CHECKING:
    from chromafuse.domain.access import AccessRule
    from chromafuse.domain.page import Page
    from chromafuse.domain.tree import PathTree

_MANY = 20_000
"""Names among which a similar one is looked for; comparing more takes too long."""


@dataclass(frozen=True, slots=True)
class _Answer:
    page: Page
    decided_by: str
    fields: Mapping[str, object]
    sees: Mapping[str, bool]


@app.command()
def access(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The page's path on a mount, or its slug.")
    ],
    collection: Collection = None,
    chroma: Chroma = None,
    as_groups: AsGroups = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    deadline: Deadline = None,
    config: Config = None,
) -> None:
    """Explain who sees a stored page, and what decided it; for operators.

    \b
    Examples:
      chromafuse access internal/billing.mdx --collection docs
      chromafuse access internal/billing.mdx -c docs --as admin
    """
    from chromafuse import config as configuration
    from chromafuse.domain.access import AUTHENTICATED, HIDDEN
    from chromafuse.stores.chroma import open_collection
    from chromafuse.tokens import forget_variable
    from chromafuse.treestore import decode_text, fetch_text

    flags = {"collection": collection, "chroma": chroma, "deadline": deadline}
    settings = configuration.load(flags, config)
    forget_variable()
    groups = None if as_groups is None else group_list(as_groups)
    store = open_collection(
        settings.chroma, settings.collection, create=False, timeout=settings.deadline
    )
    try:
        text = fetch_text(store)
    finally:
        store.close()
    empty = AUTHENTICATED if settings.empty_groups == "authenticated" else HIDDEN
    tree = decode_text(text, default_mtime_ns=0, empty_groups=empty)
    answer = _answer(_find(tree, path), text.document, groups, ours=text.is_ours, empty=empty)
    sys.stdout.flush()
    lines = [_as_json(answer)] if as_json else _as_lines(answer)
    for line in lines:
        sys.stdout.buffer.write(line.encode(errors="backslashreplace") + b"\n")


def _answer(
    page: Page, document: str, groups: list[str] | None, *, ours: bool, empty: AccessRule
) -> _Answer:
    from chromafuse.domain.access import ANONYMOUS, operator_identity
    from chromafuse.domain.explain import deciding_fields
    from chromafuse.domain.treecodec import raw_entry

    entry = raw_entry(document, page.slug)
    fields = {name: entry[name] for name in ("isPublic", "groups", "access") if name in entry}
    why = entry.get("why")
    if not ours:
        decided_by = deciding_fields(entry, empty_groups=empty)
    elif isinstance(why, str):
        decided_by = why
    else:
        decided_by = "nothing names it: --default-access of the ingest"
    identities = {
        "anonymous": ANONYMOUS,
        "signed in, in no group": operator_identity([]),
    }
    if groups is not None:
        identities[f"--as {','.join(groups)}"] = operator_identity(groups)
    sees = {name: page.rule.allows(identity) for name, identity in identities.items()}
    return _Answer(page, decided_by, fields, sees)


def _find(tree: PathTree, given: str) -> Page:
    """Return the page at the path, or else with the slug, ``given``.

    Raises ``ChromafuseError`` if there is none, with the name of one that may be meant.
    """
    name = os.fsencode(given).removeprefix(b"./").strip(b"/")
    found = tree.by_path.get(name)
    if found is not None:
        return found
    text = name.decode(errors="replace")
    for page in tree.pages:
        if page.slug in (given, text):
            return page
    for rejected in tree.rejected:
        if rejected.slug in (given, text):
            raise ChromafuseError(f"no mount shows {text}: {rejected.reason}")
    below = sum(page.path.startswith(name + b"/") for page in tree.pages)
    if below:
        raise ChromafuseError(
            f"{text} is a directory of {below:,} pages",
            remedy="name a page; `chromafuse tree --all` lists them",
        )
    raise ChromafuseError(f"there is no page {text}", remedy=_suggestion(tree, text))


def _suggestion(tree: PathTree, text: str) -> str:
    above, _, last = text.rpartition("/")
    names = [page.path.decode() for page in tree.pages]
    for name in names:
        same = name.rpartition("/")[2]
        if last in (same, same.rpartition(".")[0]):
            return f"did you mean {name}?"
    beside = [name for name in names if name.rpartition("/")[0] == above]
    for choice in (beside, names):
        found = difflib.get_close_matches(text, choice[:_MANY], n=1)
        if found:
            return f"did you mean {found[0]}?"
    return "`chromafuse tree --all` lists the pages"


def _as_json(answer: _Answer) -> str:
    found = {
        "path": answer.page.path.decode(),
        "slug": answer.page.slug,
        "access": answer.page.rule.describe(),
        "decided_by": answer.decided_by,
        "fields": answer.fields,
        "sees": answer.sees,
    }
    return json.dumps(found, ensure_ascii=False)


def _as_lines(answer: _Answer) -> list[str]:
    from chromafuse.log import printable

    rows = {
        "page": answer.page.path.decode(),
        "slug": answer.page.slug,
        "access": answer.page.rule.describe(),
        "decided by": answer.decided_by,
        "tree entry": json.dumps(answer.fields, ensure_ascii=False),
        **{name: "sees it" if seen else "does not see it" for name, seen in answer.sees.items()},
    }
    width = max(map(len, rows))
    return [f"{printable(name):<{width}}  {printable(value)}" for name, value in rows.items()]
