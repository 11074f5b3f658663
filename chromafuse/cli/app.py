"""The typer application: commands, help, exit codes, one-line errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from chromafuse import __version__
from chromafuse.domain.errors import ChromafuseError

EXIT_CODES = """\b
Exit codes:
  0  done
  1  something failed that has no code of its own
  2  wrong usage or settings
  3  ingest: the site is stored, but something given could not be (named in the report)
  4  ingest: another ingest changed the site in the meantime; run it again
  5  the mount point cannot be used
  6  Chroma cannot be reached or refuses
  7  no such collection, or no path tree in it
  8  this machine does not allow FUSE mounts as asked
  9  the mount is in use
  10 ingest: nothing was stored: the source is unclear, or the collection is another tool's
  11 the token is not accepted
  12 no such session, or no hub
  13 doctor: something wants mending
  126 run: the command cannot be executed
  127 run: the command is not found
"""

app = typer.Typer(
    name="chromafuse",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"chromafuse {__version__}")
        raise typer.Exit


@app.callback()
def _chromafuse(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A documentation site stored in a Chroma vector database, as a read-only folder.

    \b
    Examples:
      chromafuse ingest ./docs --collection docs
      mkdir -p ~/site && chromafuse mount ~/site --collection docs
      grep -rn "rate limit" ~/site
      chromafuse umount ~/site

    Settings can also stand in the environment (CHROMAFUSE_COLLECTION for --collection) and in
    a TOML file (/etc/chromafuse/config.toml, ~/.config/chromafuse/config.toml, --config FILE).
    """


def given_path(text: str) -> Path:
    """Return a path given as an argument; an empty one would be the current directory."""
    if not text:
        raise typer.BadParameter("is empty")
    return Path(text)


def given_place(text: str) -> str:
    """Return a mount point as it was given: a ``Path`` would lose a slash at its end."""
    given_path(text)
    return text


Collection = Annotated[
    str | None, typer.Option("--collection", "-c", metavar="NAME", help="Chroma collection.")
]
Chroma = Annotated[
    str | None,
    typer.Option(
        "--chroma",
        metavar="TARGET",
        help="A directory (embedded database; default: chromafuse/chroma in the XDG data"
        " directory) or http(s)://host:port of a Chroma server.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=given_path,
        help="Read this TOML file instead of the usual two.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups", metavar="A,B", help="See what members of these groups see; default: anonymous."
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option("--deadline", metavar="SECONDS", help="How long to wait for Chroma [10]."),
]
LogLevel = Annotated[
    str | None,
    typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error [info]."),
]


def run() -> None:
    """Run the command line and exit."""
    # Register the commands; each module is light.
    from chromafuse.cli import (  # noqa: F401
        access,
        doctor,
        hub,
        ingest,
        mount,
        refresh,
        run,
        session,
        shellenv,
        status,
        top,
        tree,
    )

    code = _guarded(app)
    sys.exit(_guarded(sys.stdout.flush) or code)


def _guarded(action: Callable[[], object]) -> int:
    """Return the exit code of ``action``; what it fails with is told in one line."""
    try:
        action()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ChromafuseError as error:
        if text := str(error):
            complain(text)
        return error.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except (OSError, RuntimeError, UnicodeError, MemoryError) as error:
        if _is_debugging():
            sys.excepthook(type(error), error, error.__traceback__)
        complain(_description(error))
        return 1
    return 0


def complain(text: str, level: int = logging.ERROR) -> None:
    """Print one line for a person on standard error; ``level`` is for the journal."""
    from chromafuse.log import journal_prefix, printable

    prefix = journal_prefix(level, sys.stderr)
    print(f"{prefix}chromafuse: {printable(text)}", file=sys.stderr, flush=True)


def _is_debugging() -> bool:
    # The settings may be what failed.
    wanted = os.environ.get("CHROMAFUSE_LOG_LEVEL") == "debug"
    return wanted or logging.getLogger("chromafuse").isEnabledFor(logging.DEBUG)


def _description(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{place}{error.strerror}"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
