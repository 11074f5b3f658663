"""Errors are one line for a person, and the exit codes are those that ``--help`` documents."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chromafuse.cli.background import Told
from chromafuse.domain import errors
from chromafuse.domain.errors import (
    ChromafuseError,
    ConfigError,
    ContentError,
    IngestError,
    MountError,
    StoreError,
    StoreUnavailable,
    SwitchConflict,
    TreeError,
)
from chromafuse.fs.errnos import errno_of
from chromafuse.stores.chroma import AlreadyExists

COMMAND = Path(sys.executable).parent / "chromafuse"

# What each class means to a caller, in the words of the help.
MEANING: dict[type[ChromafuseError], str] = {
    errors.ChromafuseError: "has no code of its own",
    Told: "has no code of its own",
    errors.ConfigError: "wrong usage or settings",
    errors.AccessError: "wrong usage or settings",
    errors.TokenError: "the token is not accepted",
    errors.SessionUnknown: "no such session",
    errors.TreeError: "no path tree",
    errors.TreeMissing: "no path tree",
    errors.StoreError: "Chroma cannot be reached or refuses",
    errors.StoreUnavailable: "Chroma cannot be reached or refuses",
    errors.StoreDenied: "Chroma cannot be reached or refuses",
    errors.BlobChanged: "Chroma cannot be reached or refuses",
    errors.BlobMissing: "Chroma cannot be reached or refuses",
    errors.BlobDenied: "Chroma cannot be reached or refuses",
    errors.CredentialsRefused: "Chroma cannot be reached or refuses",
    AlreadyExists: "Chroma cannot be reached or refuses",
    errors.StoreMissing: "no such collection",
    errors.ContentError: "has no code of its own",
    errors.PageReplaced: "has no code of its own",
    errors.IngestError: "nothing was stored",
    errors.SwitchConflict: "another ingest changed the site",
    errors.MountError: "mount point cannot be used",
    errors.MountPointError: "mount point cannot be used",
    errors.FuseUnavailable: "does not allow FUSE",
    errors.MountBusy: "the mount is in use",
}


def all_classes(kind: type[ChromafuseError]) -> list[type[ChromafuseError]]:
    found = [kind]
    for inner in kind.__subclasses__():
        found += all_classes(inner)
    return found


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def documented() -> dict[int, str]:
    """The exit codes that ``chromafuse --help`` tells."""
    done = run("--help")
    assert done.returncode == 0
    text = done.stdout.partition("Exit codes:")[2]
    lines = re.findall(r"^ +(\d+) +(.*(?:\n {4,}\D.*)*)", text, re.MULTILINE)
    return {int(code): " ".join(words.split()) for code, words in lines}


def test_help_documents_every_exit_code(documented: dict[int, str]) -> None:
    assert sorted(documented) == [*range(14), 126, 127]
    assert documented[0] == "done"


@pytest.mark.parametrize("kind", all_classes(ChromafuseError), ids=lambda kind: kind.__name__)
def test_the_exit_code_of_each_error_is_documented_with_its_meaning(
    kind: type[ChromafuseError], documented: dict[int, str]
) -> None:
    assert MEANING[kind] in documented[kind.exit_code]


def test_every_error_of_the_module_stands_in_its_drawing() -> None:
    drawn = re.findall(r"^(?:[ │├└─]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    own = [
        kind.__name__ for kind in all_classes(ChromafuseError) if kind.__module__ == errors.__name__
    ]
    assert set(own) <= set(drawn)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--no-such-option"], 2),
        (["ingest", "/does/not/exist", "--collection", "docs", "--chroma", "{tmp}/db"], 2),
        (["ingest", "{tmp}"], 2),
        (["tree", "--collection", "docs", "--chroma", "{tmp}/none"], 7),
        (["tree", "--collection", "docs", "--chroma", "http://127.0.0.1:1"], 6),
    ],
)
def test_the_command_ends_with_the_code_and_one_line(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    done = run(*(word.replace("{tmp}", str(tmp_path)) for word in arguments))
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if not arguments[0].startswith("--"):
        assert done.stderr.startswith("chromafuse: ")
        assert done.stderr.count("\n") == 1


def test_the_text_is_message_and_remedy_on_one_line() -> None:
    assert str(StoreError("it fails")) == "it fails"
    assert str(StoreError("it fails", remedy="mend it")) == "it fails (mend it)"
    assert StoreError("it fails").remedy == ""


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.AccessError("x"), errno.EACCES),
        (errors.TokenError("x"), errno.EACCES),
        (ContentError("x"), errno.EIO),
        (StoreUnavailable("x"), errno.EIO),
        (errors.BlobChanged("x"), errno.ESTALE),
        (errors.BlobMissing("x"), errno.ENOENT),
        (errors.BlobDenied("x"), errno.EACCES),
        (errors.CredentialsRefused("x"), errno.EACCES),
        (ConfigError("x"), errno.EIO),
        (TreeError("x"), errno.EIO),
        (IngestError("x"), errno.EIO),
        (SwitchConflict("x"), errno.EIO),
        (MountError("x"), errno.EIO),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_system_call_gets_a_number_for_every_error(error: ChromafuseError, number: int) -> None:
    assert errno_of(error) == number
