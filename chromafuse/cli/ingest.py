"""``ingest``: a docs tree into a collection."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chromafuse.cli.app import Chroma, Collection, Config, Deadline, app, complain, given_path
from chromafuse.cli.options import S3Endpoint, S3Profile, S3Region
from chromafuse.cli.streams import OutputError
from chromafuse.domain.errors import ConfigError

if TYPE_CHECKING:
    from chromafuse.config import Settings
    from chromafuse.ingest.uploads import UploadOptions
    from chromafuse.ingest.write import Embedder, Progress, Summary
    from chromafuse.ports import BlobReader

SHOWN = 20
"""Lines of a list in the report, unless all are asked for."""


TELLING_SECONDS = 5.0
"""How long an ingest waits for a mount to show the new tree."""


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
    access: Annotated[
        Path | None,
        typer.Option(
            "--access",
            metavar="RULES",
            parser=given_path,
            help="A TOML file that says by globs who sees pages that do not say.",
        ),
    ] = None,
    default_access: Annotated[
        str | None,
        typer.Option(
            "--default-access",
            metavar="public|authenticated|hidden",
            help="Who sees pages that nothing else names [public].",
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
    pointers: Annotated[
        list[str] | None,
        typer.Option(
            "--pointers",
            metavar="PLACE|PATH=URL",
            help="Show objects that stay where they are: s3://bucket/prefix or file:///directory.",
        ),
    ] = None,
    upload_over: Annotated[
        str | None,
        typer.Option(
            "--upload-over",
            metavar="SIZE",
            help="Upload larger specifications, and all that is not text, to --upload-to.",
        ),
    ] = None,
    upload_to: Annotated[
        str | None,
        typer.Option(
            "--upload-to",
            metavar="PLACE",
            help="Where to upload: s3://bucket/prefix or file:///directory.",
        ),
    ] = None,
    s3_endpoint: S3Endpoint = None,
    s3_region: S3Region = None,
    s3_profile: S3Profile = None,
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
      chromafuse ingest ./docs -c docs --exclude '*.png' --access rules.toml
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
        "access": access,
        "default_access": default_access,
        "chunk_size": chunk_size,
        "embed": embed,
        "pointers": pointers or None,
        "upload_over": upload_over,
        "upload_to": upload_to,
        "s3_endpoint": s3_endpoint,
        "s3_region": s3_region,
        "s3_profile": s3_profile,
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
    from chromafuse.ingest.rulefile import NO_RULES, WORDS, read_rules
    from chromafuse.ingest.sources import SourceOptions
    from chromafuse.ingest.write import IngestOptions, ingest
    from chromafuse.stores.chroma import open_collection

    log.configure("warning", None)
    options = IngestOptions(
        sources=SourceOptions(
            preset=settings.preset,
            include=tuple(settings.include),
            exclude=tuple(settings.exclude),
            hidden=settings.hidden == "include",
            snippets=settings.snippets,
            default_access=WORDS[settings.default_access],
            access=NO_RULES if settings.access is None else read_rules(settings.access),
        ),
        chunk_size=settings.chunk_size,
        embedder=_embedder(settings.embed),
        registrations=settings.registrations,
        blobs=_blobs(settings),
        uploads=_uploads(settings),
        switched=partial(_tell_mounts, settings.collection),
    )
    if not source.is_dir():
        problem = "is not a directory" if source.exists() else "does not exist"
        raise ConfigError(f"{source} {problem}", remedy="name the root of the docs tree")
    store = open_collection(
        settings.chroma, settings.collection, create=True, timeout=_timeout(settings)
    )
    try:
        with _progress() as progress:
            return ingest(source, store, options, progress)
    except KeyboardInterrupt:
        complain("interrupted; readers go on seeing the old site")
        raise typer.Exit(130) from None
    finally:
        store.close()


def _timeout(settings: Settings) -> float:
    """Return how many seconds a request may take: a deadline for reads is too short for writes."""
    return max(60.0, settings.deadline)


def _uploads(settings: Settings) -> UploadOptions | None:
    if settings.upload_over is None:
        if settings.upload_to is not None:
            raise ConfigError(
                "--upload-to needs --upload-over",
                remedy="say over which size to upload specifications: --upload-over 1MB",
            )
        return None
    if settings.upload_to is None:
        raise ConfigError(
            "--upload-over needs --upload-to",
            remedy="name the place: s3://bucket/prefix or file:///directory",
        )
    from chromafuse.domain.pointer import parse_place
    from chromafuse.ingest.uploads import UploadOptions
    from chromafuse.stores.uploads import Uploads

    place = parse_place(settings.upload_to)
    options = settings.s3_options(_timeout(settings))
    return UploadOptions(place, settings.upload_over, Uploads(place, options))


def _blobs(settings: Settings) -> BlobReader | None:
    """Return what reads the objects to register: nothing else can be asked for."""
    from chromafuse.domain.pointer import Place

    if not settings.registrations:
        return None
    from chromafuse.stores.blobs import Blobs

    places = [
        item if isinstance(item, Place) else Place(item[1].scheme, item[1].bucket, item[1].key)
        for item in settings.registrations
    ]
    return Blobs(places, settings.s3_options(_timeout(settings)))


def _tell_mounts(collection: str) -> None:
    """Have this user's mounts of the collection show the new tree, before old pages go."""
    from chromafuse.cli.refresh import ask_refresh
    from chromafuse.cli.status import mounts_of_this_user

    for found in mounts_of_this_user():
        if found.source == collection:
            # One that does not answer finds out by itself.
            ask_refresh(found, TELLING_SECONDS)


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
        f" old records deleted {summary.removed_records}",
    )
    if summary.pointers:
        print(f"outside Chroma {summary.pointers} pages, uploaded {summary.uploaded}")
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
