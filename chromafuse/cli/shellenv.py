"""``shellenv``: what a shell evaluates to let ``grep`` mean ``cgrep``."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from typing import Annotated

import typer

from chromafuse.cli.app import app
from chromafuse.domain.errors import ConfigError

# `function` keeps an alias for grep, which many have, from being put in place of the name.
_FUNCTION = 'function grep {{ {cgrep} "$@"; }}'
_FORMS = {
    "bash": _FUNCTION,
    "zsh": _FUNCTION,
    "fish": "function grep --wraps grep; {cgrep} $argv; end",
    "sh": 'unalias grep 2>/dev/null || :\ngrep() {{ {cgrep} "$@"; }}',
}


def _known_shell(text: str) -> str:
    if text not in _FORMS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(_FORMS)}")
    return text


@app.command()
def shellenv(
    shell: Annotated[
        str | None,
        typer.Option(
            "--shell",
            metavar="bash|zsh|fish|sh",
            parser=_known_shell,
            help="For this shell; default: that of SHELL, else sh.",
        ),
    ] = None,
) -> None:
    """Print what lets grep mean cgrep in a shell.

    \b
    Examples:
      eval "$(chromafuse shellenv)"
      chromafuse shellenv --shell fish | source
    """
    if shell is None:
        shell = os.path.basename(os.environ.get("SHELL", ""))
    form = _FORMS.get(shell, _FORMS["sh"])
    quote = _quoted_for_fish if shell == "fish" else shlex.quote
    print(form.format(cgrep=quote(_cgrep())))


def _cgrep() -> str:
    """Return the path of the ``cgrep`` that was installed with this program."""
    for directory in (os.path.dirname(sys.argv[0]), sysconfig.get_path("scripts")):
        path = os.path.abspath(os.path.join(directory, "cgrep"))
        if os.access(path, os.X_OK):
            return path
    raise ConfigError("there is no cgrep beside chromafuse", remedy="install chromafuse again")


def _quoted_for_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
