"""``tree``: what a collection holds, without mounting it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from chromafuse.cli.app import Chroma, Collection, Config, Deadline, Groups, app
from chromafuse.cli.identity import (
    AsGroups,
    Audience,
    GroupsClaim,
    GroupsDelimiter,
    JwtAlgorithms,
    JwtKey,
    JwtLeeway,
    TokenFd,
    TokenFile,
    TokensFile,
    group_list,
    token_flags,
    verifier_flags,
)

if TYPE_CHECKING:
    from chromafuse.config import Settings
    from chromafuse.domain.access import Identity
    from chromafuse.domain.page import Page
    from chromafuse.domain.tree import Directory, PathTree


@app.command()
def tree(
    collection: Collection = None,
    chroma: Chroma = None,
    groups: Groups = None,
    token_file: TokenFile = None,
    token_fd: TokenFd = None,
    jwt_key: JwtKey = None,
    jwt_algorithms: JwtAlgorithms = None,
    jwt_leeway: JwtLeeway = None,
    audience: Audience = None,
    groups_claim: GroupsClaim = None,
    groups_delimiter: GroupsDelimiter = None,
    tokens_file: TokensFile = None,
    as_groups: AsGroups = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every page, with who may see it (for operators).")
    ] = False,
    level: Annotated[
        int | None, typer.Option("--level", "-L", metavar="N", min=1, help="At most N deep.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a page, one a line.")
    ] = False,
    deadline: Deadline = None,
    config: Config = None,
) -> None:
    """Show the stored tree as an identity sees it.

    \b
    Examples:
      chromafuse tree --collection docs -L 2
      chromafuse tree -c docs --as admin
      chromafuse tree -c docs --token-file ~/token --jwt-key public.pem
      chromafuse tree -c docs --all --json | jq -r 'select(.access != "public").path'
    """
    from chromafuse import config as configuration
    from chromafuse.domain.access import AUTHENTICATED, HIDDEN
    from chromafuse.domain.tree import prune
    from chromafuse.log import printable
    from chromafuse.stores.chroma import open_collection
    from chromafuse.treestore import load_tree, measure, needs_measuring

    flags = {
        "collection": collection,
        "chroma": chroma,
        "groups": groups,
        "deadline": deadline,
        **token_flags(token_file, token_fd),
        **verifier_flags(
            jwt_key=jwt_key,
            jwt_algorithms=jwt_algorithms,
            jwt_leeway=jwt_leeway,
            audience=audience,
            groups_claim=groups_claim,
            groups_delimiter=groups_delimiter,
            tokens_file=tokens_file,
        ),
    }
    settings = configuration.load(flags, config)
    asked = {"--groups": groups, "--token-file": token_file, "--token-fd": token_fd}
    identity = _identity(settings, asked, as_groups, everything=everything)
    marks = everything or as_groups is not None
    store = open_collection(
        settings.chroma, settings.collection, create=False, timeout=settings.deadline
    )
    try:
        empty = AUTHENTICATED if settings.empty_groups == "authenticated" else HIDDEN
        found = load_tree(store, default_mtime_ns=0, empty_groups=empty)
        if identity is not None:
            found = prune(found, identity)
        if needs_measuring(found):
            found = measure(store, found)
    finally:
        store.close()
    sys.stdout.flush()
    if as_json:
        for page in found.pages:
            text = json.dumps(_as_object(page, marks=marks), ensure_ascii=False)
            # JSON is UTF-8 in every locale; a lone surrogate's escape is JSON's too.
            sys.stdout.buffer.write(text.encode(errors="backslashreplace") + b"\n")
        return
    for line in _lines(found, level, marks=marks):
        sys.stdout.buffer.write(line + b"\n")
    if everything:
        for rejected in found.rejected:
            print(f"not shown: {rejected.slug!r}: {printable(rejected.reason)}")


def _identity(
    settings: Settings, asked: Mapping[str, object], as_groups: str | None, *, everything: bool
) -> Identity | None:
    """Return whose view is asked for, None for everything; ``asked`` are options that say so."""
    from chromafuse.domain.access import operator_identity
    from chromafuse.domain.errors import ConfigError
    from chromafuse.tokens import forget_variable, grant_from

    chosen = ["--all"] * everything + ["--as"] * (as_groups is not None)
    chosen += [name for name, value in asked.items() if value is not None]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} exclude each other", remedy="give one of them")
    if not everything and as_groups is None:
        return grant_from(settings).identity
    forget_variable()
    return None if as_groups is None else operator_identity(group_list(as_groups))


def _as_object(page: Page, *, marks: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "path": page.path.decode(),
        "slug": page.slug,
        "size": page.size,
        "mtime": page.mtime_ns / 1e9,
        "version": page.version,
        "chunks": page.chunks,
    }
    if marks:
        found["access"] = page.rule.describe()
    return found


def _lines(found: PathTree, level: int | None, *, marks: bool) -> Iterator[bytes]:
    """Yield the lines of a drawn tree; kept free of recursion, as trees nest deep."""
    from chromafuse.domain.tree import Directory as Dir

    yield b"."
    stack: list[tuple[bytes, list[tuple[bytes, Directory | Page]]]] = [
        (b"", list(found.root.children.items()))
    ]
    directories = 0
    while stack:
        indent, children = stack[-1]
        if not children:
            stack.pop()
            continue
        name, child = children.pop(0)
        last = not children
        is_directory = isinstance(child, Dir)
        directories += is_directory
        branch = "└── " if last else "├── "
        mark = b"" if isinstance(child, Dir) or not marks else _mark(child)
        yield indent + branch.encode() + _printable(name) + (b"/" if is_directory else mark)
        if isinstance(child, Dir) and (level is None or len(stack) < level):
            deeper = indent + ("    " if last else "│   ").encode()
            stack.append((deeper, list(child.children.items())))
    yield b""
    yield f"{directories} directories, {len(found.pages)} files".encode()


def _mark(page: Page) -> bytes:
    return b"  [" + _printable(page.rule.describe().encode()) + b"]"


def _printable(name: bytes) -> bytes:
    from chromafuse.log import printable

    return printable(name.decode(errors="replace")).encode()
