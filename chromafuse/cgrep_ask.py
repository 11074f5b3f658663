"""Asks the daemons of the mounts that a grep is about to search, before ``cgrep`` becomes it.

Loaded only when the call may search directories and something of ours is mounted, and itself not
made of more than that takes: the modules below ``socket`` and ``json`` are used alone, since the
two take longer to load than grep takes to search.
"""

from __future__ import annotations

import _socket
import os
import stat
import time
from _json import encode_basestring_ascii

from chromafuse.sockets import socket_directories, socket_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATIENCE = 0.5
"""Seconds that a search waits for the answers of all daemons together."""
EXPLICIT_PATIENCE = 10.0
"""Seconds that a person waits who asks for something else than help."""
MAX_ARGUMENTS = 131_072
"""Bytes of arguments; the daemon looks at no more."""
MAX_FILE = 131_072
"""Bytes of a file of patterns."""
MAX_REQUEST = 1 << 20
"""Bytes; the daemon takes no longer line."""
MAX_ANSWER = 1 << 26
MAX_OPERANDS = 256
"""Operands that are looked at."""
MAX_PLACES = 64

_WITH_ARGUMENT = "efmdDABC"
_LONG_WITH_ARGUMENT = (
    b"regexp",
    b"file",
    b"max-count",
    b"label",
    b"binary-files",
    b"directories",
    b"devices",
    b"include",
    b"exclude",
    b"exclude-from",
    b"exclude-dir",
    b"before-context",
    b"after-context",
    b"context",
    b"group-separator",
)
_VARIABLES = (b"LC_ALL", b"LC_CTYPE", b"LANG", b"POSIXLY_CORRECT", b"GREP_OPTIONS")


class Call:
    """A call of grep: ``program`` is its name, ``arguments`` are the words behind it."""

    def __init__(
        self, program: str, arguments: list[bytes], environment: dict[bytes, bytes]
    ) -> None:
        self.program = program
        self.arguments = arguments
        self.environment = environment
        self.operands, self.pattern_files = split(
            arguments, operands_last=b"POSIXLY_CORRECT" in environment
        )

    def request(self, places: list[bytes], **more: bool) -> dict[str, object]:
        """Return what a daemon is asked. Raises ``ValueError`` for a call that is too long."""
        if sum(map(len, self.arguments)) > MAX_ARGUMENTS:
            raise ValueError("the command line is very long")
        given = [name for name in _VARIABLES if name in self.environment]
        environ = {text_of(name): text_of(self.environment[name]) for name in given}
        files = {text_of(path): text_of(data) for path, data in self._read_patterns()}
        return {
            "command": "search",
            "program": self.program,
            "argv": [text_of(word) for word in self.arguments],
            "environ": environ,
            "files": files,
            "places": [text_of(place) for place in places[:MAX_PLACES]],
            **more,
        }

    def _read_patterns(self) -> list[tuple[bytes, bytes]]:
        found = []
        for path in self.pattern_files:
            try:
                if not stat.S_ISREG(os.stat(path).st_mode):
                    continue
                with open(path, "rb") as file:
                    data = file.read(MAX_FILE + 1)
            except (OSError, ValueError):
                continue
            if len(data) <= MAX_FILE:
                found.append((path, data))
        return found


class Daemon:
    """A mount of ours that a call touches: its ``path``, and the ``places`` in it."""

    def __init__(self, path: bytes, uid: int) -> None:
        self.path = path
        self.uid = uid
        self.places: list[bytes] = []

    def ask(self, request: dict[str, object], until: float) -> bytes:
        """Return the answer, a line of JSON. Raises ``OSError``; ``until`` is a monotonic time."""
        line = rendered(request).encode("ascii") + b"\n"
        if len(line) > MAX_REQUEST:
            raise OSError("the request is too long")
        failure: OSError = FileNotFoundError(os.fsdecode(self.path))
        for directory in socket_directories(self.uid):
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            try:
                connection.settimeout(_left(until))
                connection.connect(os.path.join(directory, socket_name(self.path)))
                return _exchange(connection, line, until)
            except FileNotFoundError:
                continue
            except OSError as error:
                failure = error
            finally:
                connection.close()
        raise failure


def narrow(call: Call, mounts: list[bytes]) -> None:
    """Ask to be shown what can match. ``mounts`` are lines of mountinfo. Raises nothing."""
    until = time.monotonic() + PATIENCE
    for daemon in touched(call.operands, mounts):
        try:
            daemon.ask(call.request(daemon.places), until)
        except (OSError, ValueError):
            continue


def widen(call: Call, mounts: list[bytes]) -> bytes | None:
    """Ask to be shown everything. Returns what to tell the user if that cannot be had."""
    until = time.monotonic() + EXPLICIT_PATIENCE
    for daemon in touched(call.operands, mounts):
        try:
            answer = parsed(daemon.ask({"command": "search", "narrow": False}, until))
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "strerror", None) or error)
        else:
            # A daemon that never narrows does not know the command.
            if answer.get("needs") == "everything" or answer.get("error") == "unknown command":
                continue
            problem = str(answer.get("error"))
        return b"the daemon of " + daemon.path + b": " + os.fsencode(problem)
    return None


def parsed(answer: bytes) -> dict[str, Any]:
    """Return an answer's content. Raises ``ValueError``."""
    import json

    content = json.loads(answer)
    if not isinstance(content, dict):
        raise ValueError("its answer is malformed")
    return content


def split(words: list[bytes], *, operands_last: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the files and directories that arguments name, and their files of patterns.

    ``operands_last``: the first operand ends the options.
    """
    operands: list[bytes] = []
    pattern_files: list[bytes] = []
    is_pattern_given = False
    rest = iter(words)
    for word in rest:
        if word == b"--":
            operands += rest
        elif word.startswith(b"-") and word != b"-":
            option, value = _option(word)
            if option and value is None:
                value = next(rest, None)
            if option in ("e", "f"):
                is_pattern_given = True
                if option == "f" and value is not None:
                    pattern_files.append(value)
        else:
            operands.append(word)
            if operands_last:
                operands += rest
    return operands if is_pattern_given else operands[1:], pattern_files


def _option(word: bytes) -> tuple[str, bytes | None]:
    """Return which option of a word takes an argument ("" for none), and the argument in it."""
    if not word.startswith(b"--"):
        for at, letter in enumerate(word[1:].decode("latin-1"), start=2):
            if letter in _WITH_ARGUMENT:
                return letter, word[at:] or None
        return "", None
    name, equals, value = word[2:].partition(b"=")
    # The one option that is the beginning of another.
    if name == b"binary":
        return "", None
    for option in _LONG_WITH_ARGUMENT:
        if option.startswith(name):
            letter = {b"regexp": "e", b"file": "f"}.get(option, "other")
            return letter, value if equals else None
    return "", None


def touched(operands: list[bytes], mounts: list[bytes]) -> list[Daemon]:
    """Return the mounts that ``operands`` lie in, or the working directory if there are none.

    What is bound from a mount to another place belongs to the mount with the whole.
    """
    lines = [mount_of(line) for line in mounts]
    whole = {device: (path, uid) for path, device, root, uid in lines if root == b"/"}
    daemons: dict[bytes, Daemon] = {}
    for operand in (operands or [b"."])[:MAX_OPERANDS]:
        try:
            real = os.path.realpath(operand)
        except (OSError, ValueError):
            continue
        best = b""
        found = None
        for path, device, root, _ in lines:
            if len(path) >= len(best) and (real + b"/").startswith(path.rstrip(b"/") + b"/"):
                best, found = path, (device, root)
        if found is None or found[0] not in whole:
            continue
        device, root = found
        if device not in daemons:
            daemons[device] = Daemon(*whole[device])
        inside = os.path.join(root, real[len(best) :].lstrip(b"/"))
        daemons[device].places.append(inside.strip(b"/"))
    return list(daemons.values())


def mount_of(line: bytes) -> tuple[bytes, bytes, bytes, int]:
    """Return mount point, device, root and user of a line of mountinfo."""
    left, _, right = line.partition(b" - ")
    fields = left.split(b" ")
    user = right.partition(b"user_id=")[2].partition(b",")[0]
    return _unescaped(fields[4]), fields[2], _unescaped(fields[3]), int(user or b"0")


def _unescaped(field: bytes) -> bytes:
    """Return a field with ``\\040`` and the like resolved."""
    first, *rest = field.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def text_of(word: bytes) -> str:
    """Return bytes as the text that stands for them in a request."""
    return word.decode("utf-8", "surrogateescape")


def rendered(value: object) -> str:
    """Return texts, truth values, lists and mappings of them as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(map(rendered, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{rendered(k)}:{rendered(v)}" for k, v in value.items()) + "}"
    return encode_basestring_ascii(str(value))


def _exchange(connection: _socket.socket, line: bytes, until: float) -> bytes:
    connection.sendall(line)
    answer = b""
    while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER:
        connection.settimeout(_left(until))
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError("it hangs up")
        answer += part
    return answer


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("it does not answer")
    return left
