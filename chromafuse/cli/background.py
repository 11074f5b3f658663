"""A daemon's process: in the background, told ready by a pipe, or here at the terminal."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from chromafuse.cli.app import complain
from chromafuse.domain.errors import ChromafuseError, MountError

if TYPE_CHECKING:
    from chromafuse.config import Settings
    from chromafuse.daemon.notify import ServiceManager
    from chromafuse.daemon.role import Role


def absolute(settings: Settings, mount_point: str, *, foreground: bool) -> Settings:
    """Return ``settings`` with paths that hold in a process without a working directory.

    The token is left out: it has been read.
    """
    from chromafuse.config import state_directory

    changes: dict[str, object] = {"token": None}
    if "://" not in settings.chroma:
        changes["chroma"] = os.path.abspath(os.path.expanduser(settings.chroma))
    if settings.metrics_file is not None:
        changes["metrics_file"] = Path(os.path.abspath(settings.metrics_file.expanduser()))
    if settings.log_file is not None:
        changes["log_file"] = Path(os.path.abspath(settings.log_file.expanduser()))
    elif not foreground:
        name = mount_point.strip("/").replace("/", "-")[-100:] or "root"
        changes["log_file"] = state_directory() / f"{settings.collection}-{name}.log"
    return settings.model_copy(update=changes)


LEAST_DESCRIPTORS = 64
"""What a daemon opens to begin with, and some for its clients."""


class _Announcer:
    """Tells a person at a terminal, and the service manager if there is one."""

    def __init__(self, manager: ServiceManager | None) -> None:
        self._manager = manager

    def note(self, text: str) -> None:
        complain(text, logging.WARNING)
        if self._manager is not None:
            self._manager.note(text)

    def ready(self, text: str) -> None:
        complain(f"mounted {text}", logging.INFO)
        if self._manager is not None:
            self._manager.ready(text)


class _Pipe:
    """Tells the process that waits at the other end of a pipe, one JSON object a line.

    Once the mount is ready nobody waits, and nothing more is told.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def note(self, text: str) -> None:
        self.send(note=text)

    def ready(self, text: str) -> None:
        self.send(ready=text)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def send(self, **event: object) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(event).encode() + b"\n")
        except BrokenPipeError:
            return  # who started us no longer waits


def run(settings: Settings, mount_point: str, role: Role, *, foreground: bool) -> None:
    """Serve at ``mount_point``, here or in the background. Raises ``ChromafuseError``."""
    _allow_descriptors()
    if foreground:
        from chromafuse.daemon.notify import ServiceManager

        manager = ServiceManager.from_environment()
        _serve(settings, mount_point, _Announcer(manager), role, manager)
    else:
        start(settings, mount_point, role)


def _serve(
    settings: Settings,
    mount_point: str,
    listener: Any,
    role: Role,
    manager: ServiceManager | None = None,
) -> None:
    from chromafuse import log
    from chromafuse.daemon.core import run as run_daemon

    _allow_descriptors()
    try:
        log.configure(settings.log_level, settings.log_file)
    except OSError as error:
        raise MountError(
            f"cannot write the log {settings.log_file}: {error.strerror}",
            remedy="choose another --log-file",
        ) from None
    run_daemon(settings, mount_point, listener, role, manager)


def _allow_descriptors() -> None:
    """Allow this process as many open files as it may have. Raises ``MountError`` if few.

    The usual limit is low, for the sake of programs that use select(2), and clients and watched
    processes take one each.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        raise MountError(
            f"the daemon may open only {hard} files and needs {LEAST_DESCRIPTORS}",
            remedy="raise the limit: `ulimit -Hn`, or LimitNOFILE in a unit of systemd",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def start(settings: Settings, mount_point: str, role: Role) -> int:
    """Serve in a process of its own; return its id once it says that the mount answers.

    It is forked before anything with threads is imported. Raises ``ChromafuseError``.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        detached(settings, mount_point, role, writing)
    os.close(writing)
    try:
        await_ready(reading, settings)
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    except Told:
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reading)
    return child


def detached(settings: Settings, mount_point: str, role: Role, writing: int) -> NoReturn:
    """Be the daemon: no terminal, no working directory, stderr into the log.

    ``writing`` is the end of a pipe whose other end is given to ``await_ready``.
    """
    pipe = _Pipe(writing)
    code = 0
    try:
        os.setsid()
        os.chdir("/")
        _redirect(settings.log_file)
        _serve(settings, mount_point, pipe, role)
    except ChromafuseError as error:
        pipe.send(error=str(error), code=error.exit_code)
        code = error.exit_code
    except BaseException as error:
        import logging

        logging.getLogger("chromafuse").critical("crashed", exc_info=error)
        text = f"the daemon crashed: {type(error).__name__} (see {settings.log_file})"
        pipe.send(error=text, code=1)
        code = 1
    finally:
        # Not exit(): worker threads may still wait for Chroma.
        sys.stderr.flush()
        os._exit(code)


def _redirect(log_file: Path | None) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    target = null
    if log_file is not None:
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise MountError(
                f"cannot write the log {log_file}: {error.strerror}",
                remedy="choose another --log-file",
            ) from None
    os.dup2(target, 2)


def await_ready(reading: int, settings: Settings, note: Callable[[str], None] = complain) -> None:
    """Return when the daemon that writes to the pipe says that it serves.

    ``note`` is told what a person may want to know meanwhile. Raises ``Told`` for what the daemon
    fails with, ``MountError`` if it just ends.
    """
    with os.fdopen(os.dup(reading), "rb") as stream:
        for line in stream:
            event = json.loads(line)
            if "ready" in event:
                return
            if "note" in event:
                note(str(event["note"]))
            if "error" in event:
                raise Told(str(event["error"]), int(event["code"]))
    raise MountError(
        "the daemon ended before the mount was ready", remedy=f"see {settings.log_file}"
    )


class Told(ChromafuseError):
    """An error that the daemon told, with its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code
