"""``mount.chromafuse``: what mount(8) calls for ``mount -t chromafuse COLLECTION DIR``.

It becomes the command ``chromafuse mount``, or ``hub``, with the options of ``-o`` as its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

USAGE = "usage: mount.chromafuse COLLECTION DIR [-fnsv] [-o OPTIONS]"

VALUES = frozenset(
    {
        "audience", "cache_size", "chroma", "collection", "config", "deadline", "empty_groups",
        "groups", "groups_claim", "groups_delimiter", "jwt_algorithms", "jwt_key", "jwt_leeway",
        "log_file", "log_level", "max_stale", "metrics", "metrics_file", "pin", "pointer_grep_max",
        "pointers_allowed", "pushdown", "redis", "redis_ttl", "refresh", "s3_endpoint",
        "s3_profile", "s3_region", "search_timeout", "token_file", "tokens_file", "warm",
    }
)  # fmt: skip
"""Settings that take a value; dashes will do for underscores."""
FLAGS = frozenset({"allow_other", "hide_large_from_grep"})
HUB = "hub"

_PLAIN = frozenset(
    {
        "_netdev", "async", "atime", "auto", "defaults", "dev", "diratime", "dirsync", "exec",
        "group", "iversion", "lazytime", "loud", "mand", "noatime", "noauto", "nodev",
        "nodiratime", "nofail", "noiversion", "nolazytime", "nomand", "norelatime",
        "nostrictatime", "nosuid", "nosymfollow", "nouser", "owner", "relatime", "ro", "rw",
        "silent", "strictatime", "suid", "symfollow", "sync", "user", "users",
    }
)  # fmt: skip
"""Options of every file system: mount(8) has obeyed them, or a mount of ours is that way anyway."""
_NOEXEC = "noexec"
_COMMENTS = ("x-", "X-", "comment=", "user=")

INVOCATION, SYSTEM, INTERRUPTED, FAILED = 1, 2, 8, 32
"""Exit codes of mount(8)."""
_CODES = {0: 0, 2: INVOCATION, 8: SYSTEM, 11: INVOCATION, 130: INTERRUPTED}


class UsageError(Exception):
    """The arguments are not those of a mount helper; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """What mount(8) asks for. ``words`` are the arguments of ``chromafuse``."""

    directory: str
    words: Sequence[str]
    is_fake: bool = False
    is_verbose: bool = False
    noexec: bool = False


def parse(arguments: Sequence[str]) -> Request:
    """Return what a helper's ``arguments`` ask for. Raises ``UsageError``."""
    places: list[str] = []
    options: list[str] = []
    letters: set[str] = set()
    words = iter(arguments)
    for word in words:
        if word in ("-o", "-t"):
            value = next(words, None)
            if value is None:
                raise UsageError(f"{word} wants a value")
            options += [value] if word == "-o" else []
        elif word.startswith("-") and set(word[1:]) <= set("fnsv") and word != "-":
            letters.update(word[1:])
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word}")
        else:
            places.append(word)
    if len(places) != 2 or "" in places:
        raise UsageError(USAGE)
    collection, directory = places
    settings, noexec = _settings(options, sloppy="s" in letters)
    command = settings.pop(HUB, "mount")
    settings.setdefault("--collection", collection)
    given = [name if value is None else f"{name}={value}" for name, value in settings.items()]
    return Request(
        directory,
        [command or HUB, *given, "--", directory],
        is_fake="f" in letters,
        is_verbose="v" in letters,
        noexec=noexec,
    )


def _settings(options: Sequence[str], *, sloppy: bool) -> tuple[dict[str, str | None], bool]:
    """Return options of the command, the later of two alike, and whether nothing may be run."""
    found: dict[str, str | None] = {}
    noexec = False
    for option in (part for text in options for part in _split(text)):
        name, equals, value = option.partition("=")
        key = name.replace("-", "_")
        if option in (_NOEXEC, "exec", "user", "users", "owner", "group"):
            # Those for other users forbid to run anything, unless ``exec`` follows.
            noexec = option != "exec"
        elif option in _PLAIN or option.startswith(_COMMENTS):
            continue
        elif key in VALUES and equals:
            found["--" + key.replace("_", "-")] = value
        elif key in FLAGS and not equals:
            found["--" + key.replace("_", "-")] = None
        elif option == HUB:
            found[HUB] = HUB
        elif key in VALUES:
            raise UsageError(f"the option {name} wants a value")
        elif option == "remount":
            raise UsageError("a mount cannot be changed: unmount it and mount it again")
        elif not sloppy:
            raise UsageError(f"unknown option {name}")
    return found, noexec


def _split(text: str) -> Iterator[str]:
    """Yield the options of a list; quotes, or a backslash, keep a comma in a value."""
    option, quoted = "", False
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            option += next(letters, "\\")
        elif letter == '"':
            quoted = not quoted
        elif letter == "," and not quoted:
            if option:
                yield option
            option = ""
        else:
            option += letter
    if quoted:
        raise UsageError("a quote is not closed")
    if option:
        yield option


def main() -> NoReturn:
    """Entry point of ``mount.chromafuse``."""
    from chromafuse.cli import streams

    streams.prepare()
    try:
        request = parse(sys.argv[1:])
        if request.noexec and os.geteuid() != 0:
            raise UsageError("only root can keep programs from being run: add the option exec")
    except UsageError as error:
        sys.exit(_complain(str(error)))
    if request.is_verbose:
        # Not the values: the address of a server may hold a password.
        names = [word.partition("=")[0] for word in request.words]
        print(f"mount.chromafuse: chromafuse {' '.join(names)}", flush=True)
    if request.is_fake:
        sys.exit(0)
    sys.exit(_mount(request))


def _mount(request: Request) -> int:
    from chromafuse.cli.app import run

    sys.argv = ["chromafuse", *request.words]
    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    if code == 0 and request.noexec:
        from chromafuse.fs import mounts, syscalls

        flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
        try:
            syscalls.mount(
                None,
                mounts.resolved(request.directory),
                flags=flags | syscalls.MS_REMOUNT | syscalls.MS_BIND,
            )
        except OSError as error:
            _complain(f"{request.directory} is mounted without noexec: {error.strerror}")
            return FAILED
    return _CODES.get(code, FAILED)


def _complain(text: str) -> int:
    from chromafuse.log import printable

    print(f"mount.chromafuse: {printable(text)}", file=sys.stderr, flush=True)
    return INVOCATION
