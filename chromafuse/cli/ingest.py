"""``ingest``: a docs tree into a collection."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chromafuse.cli.app import Chroma, Collection, Config, Deadline, app, complain, given_path
from chromafuse.cli.streams import OutputError
from chromafuse.domain.errors import ConfigError

if TYPE_CHECKING:
    from chromafuse.config import Settings
    from chromafuse.ingest.write import Embedder, Progress, Summary

SHOWN = 20
"""Lines of a list in the report, unless all are asked for."""


@app.command()
def ingest(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", parser=given_path, help="The root of the docs tree.")
    ],
    collection: Collection = None,
    chroma: Chroma = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="auto|mintlify|plain",
            help="What to leave out; auto: mintlify where there is a docs.json or mint.json.",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Take what a preset leaves out."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="Leave out (gitignore syntax)."),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            "--hidden",
            metavar="omit|include",
            help="Pages of a Mintlify site that are hidden or not in the navigation [omit].",
        ),
    ] = None,
    snippets: Annotated[
        bool | None, typer.Option("--snippets", help="Take the snippets of a Mintlify site.")
    ] = None,
    default_access: Annotated[
        str | None,
        typer.Option(
            "--default-access",
            metavar="public|authenticated|hidden",
            help="Who sees pages that do not say [public].",
        ),
    ] = None,
    chunk_size: Annotated[
        int | None,
        typer.Option("--chunk-size", metavar="CHARS", help="What a chunk aims at [1600]."),
    ] = None,
    embed: Annotated[
        str | None,
        typer.Option(
            "--embed",
            metavar="none|wordllama",
            help="Vectors for similarity search by other tools [none: placeholders].",
        ),
    ] = None,
    all_lines: Annotated[
        bool, typer.Option("--report-all", help="Name everything left out, not the first 20.")
    ] = False,
    deadline: Deadline = None,
    config: Config = None,
) -> None:
    """Store a docs tree in a collection; unchanged pages are not written again.

    Readers see the old site until the new one is complete. It may be stopped at any time.

    \b
    Examples:
      chromafuse ingest ./docs --collection docs
      chromafuse ingest ./docs -c docs --chroma http://127.0.0.1:8000
      chromafuse ingest ./docs -c docs --exclude '*.png' --default-access authenticated
    """
    from chromafuse import config as configuration

    flags: dict[str, object] = {
        "collection": collection,
        "chroma": chroma,
        "preset": preset,
        "include": include or None,
        "exclude": exclude or None,
        "hidden": hidden,
        "snippets": snippets,
        "default_access": default_access,
        "chunk_size": chunk_size,
        "embed": embed,
        "deadline": deadline,
    }
    settings = configuration.load(flags, config)
    summary = _run(source, settings)
    try:
        _report(summary, None if all_lines else SHOWN)
        sys.stdout.flush()
    except OutputError as error:
        error.remedy = "the site is stored" if str(error) else ""
        raise
    if summary.lost:
        raise typer.Exit(3)


def _run(source: Path, settings: Settings) -> Summary:
    from chromafuse import log
    from chromafuse.domain.access import AUTHENTICATED, HIDDEN, PUBLIC
    from chromafuse.ingest.sources import SourceOptions
    from chromafuse.ingest.write import IngestOptions, ingest
    from chromafuse.stores.chroma import open_collection

    log.configure("warning", None)
    access = {"public": PUBLIC, "authenticated": AUTHENTICATED, "hidden": HIDDEN}
    options = IngestOptions(
        sources=SourceOptions(
            preset=settings.preset,
            include=tuple(settings.include),
            exclude=tuple(settings.exclude),
            hidden=settings.hidden == "include",
            snippets=settings.snippets,
            default_access=access[settings.default_access],
        ),
        chunk_size=settings.chunk_size,
        embedder=_embedder(settings.embed),
    )
    if not source.is_dir():
        problem = "is not a directory" if source.exists() else "does not exist"
        raise ConfigError(f"{source} {problem}", remedy="name the root of the docs tree")
    # A write of a thousand records takes a while: a deadline for reads would be too short.
    timeout = max(60.0, settings.deadline)
    store = open_collection(settings.chroma, settings.collection, create=True, timeout=timeout)
    try:
        with _progress() as progress:
            return ingest(source, store, options, progress)
    except KeyboardInterrupt:
        complain("interrupted; readers go on seeing the old site")
        raise typer.Exit(130) from None
    finally:
        store.close()


def _embedder(name: str) -> Embedder:
    from chromafuse.ingest.write import Placeholder

    if name == "none":
        return Placeholder()
    from chromafuse.ingest.embed import WordLlamaEmbedder

    return WordLlamaEmbedder()


class _Lines:
    """Progress as plain lines, where there is no terminal."""

    def phase(self, text: str, total: int | None = None) -> None:
        print(f"{text}" + (f" ({total})" if total else ""), file=sys.stderr, flush=True)

    def advance(self, steps: int = 1) -> None:
        """Plain lines tell phases only."""


class _Bar:
    """Progress as a bar on a terminal."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None

    def phase(self, text: str, total: int | None = None) -> None:
        from rich.markup import escape

        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(escape(text), total=total)

    def advance(self, steps: int = 1) -> None:
        self._bar.advance(self._task, steps)


@contextmanager
def _progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    with RichProgress(console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar)


def _report(summary: Summary, limit: int | None) -> None:
    from rich.filesize import decimal

    _list("could not be stored", [(o.path, o.reason) for o in summary.omissions if o.lost], None)
    if any(omission.reason.startswith("not UTF-8") for omission in summary.lost):
        print("  (leave files that are not text out on purpose with --exclude, as in '*.png')")
    _list("left out", [(o.path, o.reason) for o in summary.omissions if not o.lost], limit)
    _list("to know", [(notice.path, notice.text) for notice in summary.notices], limit)
    print(f"{summary.pages} pages, {summary.chunks} chunks, {decimal(summary.bytes)}")
    print(
        f"written {summary.written_pages} pages ({summary.written_chunks} chunks),"
        f" unchanged {summary.unchanged_pages}, removed {summary.removed_pages},"
        f" old records deleted {summary.removed_records}"
    )
    print(f"tree version {summary.tree_version}" + ("" if summary.switched else " (as before)"))


def _list(title: str, lines: Sequence[tuple[str, str]], limit: int | None) -> None:
    from chromafuse.log import printable

    if not lines:
        return
    print(f"{title}: {len(lines)}")
    for path, text in lines[:limit]:
        print(f"  {printable(path)}: {printable(text)}")
    if limit is not None and len(lines) > limit:
        print(f"  … and {len(lines) - limit} more (--report-all names them)")
