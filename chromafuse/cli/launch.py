"""Making the docs visible to this process alone, then becoming the command that wants them.

No process of ours stays between the caller and the command: exit code, signals, terminal and job
control are the command's own. The daemon is outside of the namespace, nobody's child, and ends when
the kernel takes the mount away with the last process that sees it; however that ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from chromafuse import log  # noqa: F401  # to be there when the docs hide what it is loaded from
from chromafuse.cli import background
from chromafuse.cli.app import complain
from chromafuse.domain.errors import ChromafuseError, MountError
from chromafuse.fs import ending, private, syscalls
from chromafuse.fs.private import Place, PrivateNamespace

if TYPE_CHECKING:
    from chromafuse.config import Settings
    from chromafuse.domain.access import Grant

ANSWER_SECONDS = 30.0

Environment = Sequence[bytes]
"""``NAME=value`` items."""


class CommandError(ChromafuseError):
    """The command cannot be executed; the exit code is that of shells."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot run {command}: {error.strerror}")
        self.exit_code = 127 if isinstance(error, FileNotFoundError) else 126


def given_environment(without: str) -> Environment:
    """Return the environment that this process was started with, less a variable.

    Python itself may have added to its own; ``without`` is compared in any case, as it is read.
    """
    items = Path("/proc/self/environ").read_bytes().split(b"\0")
    name = without.encode().upper()
    return [item for item in items if item and item.partition(b"=")[0].upper() != name]


def show_by_daemon(settings: Settings, grant: Grant, place: Place) -> PrivateNamespace:
    """Enter a namespace in which a daemon of our own shows what ``grant`` allows at ``place``.

    ``settings`` hold in a process without a working directory. Raises ``ChromafuseError``.
    """
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    _spawn(settings, grant, place, theirs, writing)
    os.close(writing)
    theirs.close()
    try:
        with ours:
            told = ours.recv(32)
            if not told:
                raise MountError(
                    "the daemon did not start", remedy="see how many processes may run"
                )
            namespace = PrivateNamespace.enter()
            namespace.make_place(place)
            device = private.open_device()
            try:
                private.mount_device(device, place.path, settings.collection)
                socket.send_fds(ours, [b"\0"], [device])
            finally:
                # Or the kernel would not see the daemon's end.
                os.close(device)
        background.await_ready(reading, settings, _note)
    finally:
        os.close(reading)
    _require_answer(place, int(told))
    namespace.enter_directory_again(place)
    return namespace


def show_session(path: str, place: Place) -> PrivateNamespace:
    """Enter a namespace in which a hub's session at ``path`` is at ``place`` too.

    Raises ``ChromafuseError``.
    """
    namespace = PrivateNamespace.enter()
    namespace.make_place(place)
    private.bind(path, place.path)
    namespace.enter_directory_again(place)
    return namespace


def become(
    command: Sequence[str], environment: Environment, namespace: PrivateNamespace
) -> NoReturn:
    """Execute ``command`` in the place of this process. Raises ``CommandError``."""
    namespace.give_up_privileges()
    # Python ignores these two, and what is ignored stays so in the program executed.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    error = syscalls.execute([os.fsencode(word) for word in command], environment)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    raise CommandError(command[0], error)


def _note(text: str) -> None:
    """Tell a person. A program can rely on it that a line of ours means that nothing has run."""
    if sys.stderr.isatty():
        complain(text)


def _spawn(
    settings: Settings, grant: Grant, place: Place, theirs: socket.socket, writing: int
) -> None:
    """Start the daemon; it tells its process id through ``theirs`` and waits for its mount there.

    The process between ends at once: the command is not to find a child that it never made.
    """
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    try:
        if os.fork() == 0:
            _be_daemon(settings, grant, place, theirs, writing)
    finally:
        os._exit(0)


def _be_daemon(
    settings: Settings, grant: Grant, place: Place, theirs: socket.socket, writing: int
) -> NoReturn:
    from chromafuse.daemon.role import Role

    theirs.sendall(str(os.getpid()).encode())
    _close_all_but(theirs.fileno(), writing)
    devices = socket.recv_fds(theirs, 1, 1)[1]
    if not devices:
        os._exit(0)  # who started us could not mount, and has said so
    theirs.close()
    os.set_inheritable(devices[0], False)
    role = Role(grant, fuse_fd=devices[0])
    background.detached(settings, place.path, role, writing)


def _close_all_but(*kept: int) -> None:
    """Close what the caller passed on to its command: a pipe's reader would wait for us too."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _require_answer(place: Place, daemon: int) -> None:
    """Raise ``MountError`` unless a ``stat`` at ``place`` is answered in time.

    Another process asks: who waits for a daemon that hangs cannot even be killed.
    """
    asking = os.fork()
    if asking == 0:
        try:
            os.stat(place.path)
            os._exit(0)
        finally:
            os._exit(1)
    if not ending.wait_for_exit(asking, ANSWER_SECONDS):
        os.kill(daemon, signal.SIGKILL)
    if os.waitpid(asking, 0)[1] != 0:
        raise MountError(f"the docs at {place.path} do not answer")
