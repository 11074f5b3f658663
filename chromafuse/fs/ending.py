"""Ending mounts of ours: those that live, and what a killed or hanging daemon has left.

A call into a mount whose daemon hangs cannot always be killed. So only other processes make such
calls here, and whoever does not come back is left behind.
"""

from __future__ import annotations

import enum
import errno
import os
import select
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from chromafuse.domain.errors import FuseUnavailable, MountBusy, MountError
from chromafuse.fs import syscalls
from chromafuse.fs.mounts import Mount, listed

UNMOUNT_SECONDS = 15.0
PROBE_SECONDS = 3.0
"""How long a mount may take to tell whether it lives."""
REAP_SECONDS = 0.5
"""How long a killed process is waited for."""
CONNECTIONS = "/sys/fs/fuse/connections"

_DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
_SIGKILL_PENDING = 1 << (signal.SIGKILL - 1)


class Condition(enum.Enum):
    """What has become of a mount's daemon."""

    ALIVE = enum.auto()
    DEAD = enum.auto()
    """It has ended, so that every access fails, or waits for what will not come."""
    HUNG = enum.auto()
    """It does not answer in time."""


def condition(mount: Mount, daemon: int | None) -> Condition:
    """Return how the daemon of ``mount`` is; ``daemon`` is its process id, if that is known.

    ``stat`` would be answered from the kernel's cache for a day, so the file system itself is
    asked.
    """
    if daemon is not None and has_ended(daemon):
        return Condition.DEAD
    done = _run(["stat", "-f", "--", mount.path], PROBE_SECONDS)
    if done is None:
        return Condition.HUNG
    dead = any(os.strerror(code) in done.stderr for code in _DEAD)
    return Condition.DEAD if dead else Condition.ALIVE


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, or has been killed and cannot end.

    A thread that waits for the kernel, which waits for the mount, survives SIGKILL: the mount has
    nobody then who serves it, and nobody else is told.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").split("\n")
    except (FileNotFoundError, ProcessLookupError):
        return True
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return fields.get("State", "")[:1] in ("Z", "X") or bool(pending & _SIGKILL_PENDING)


def unmount(mount: Mount, daemon: int | None, *, lazy: bool = False) -> Condition:
    """End ``mount`` and return how its daemon was.

    What is dead is detached whoever uses it, and so is, with ``lazy``, what hangs; who waits for it
    gets an error. Raises ``MountBusy`` naming who uses it, ``MountError`` otherwise.
    """
    found = condition(mount, daemon)
    if found is Condition.DEAD or (lazy and found is Condition.HUNG):
        detach(mount)
        return found
    if found is Condition.HUNG:
        # The system's tool would wait for the daemon too.
        raise _does_not_answer(mount.path)
    if not lazy and (places := _bound(mount)):
        # They would keep the daemon, and show their sessions, when the hub's name is gone.
        raise MountBusy(
            f"{mount.path} has sessions bound to {', '.join(places)}",
            remedy="close them, or use `chromafuse umount --lazy`",
        )
    _unmount(mount.path, lazy=lazy)
    return found


def detach(mount: Mount) -> None:
    """End a mount that nobody serves: whoever waits for it gets an error. Raises ``MountError``."""
    abort(mount)
    try:
        _unmount(mount.path, lazy=True)
    except MountBusy:
        if os.geteuid() != 0:
            raise
        # The tool waited for the mount; the kernel does not.
        try:
            syscalls.umount(mount.path, syscalls.MNT_DETACH)
        except OSError as error:
            raise MountError(f"cannot unmount {mount.path}: {error.strerror}") from None


def abort(mount: Mount) -> bool:
    """Fail all that waits for the daemon of ``mount``, for ever; return whether that was allowed.

    The mount's owner may do so where the file system ``fusectl`` is mounted, and root anywhere.
    """
    file = f"{CONNECTIONS}/{mount.device.partition(':')[2]}/abort"
    if _written(file):
        return True
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        aborted = False
        try:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_SLAVE)
            syscalls.mount("fusectl", CONNECTIONS, "fusectl")
            aborted = _written(file)
        finally:
            os._exit(int(not aborted))
    return os.waitpid(child, 0)[1] == 0


def _written(file: str) -> bool:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, b"1")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _bound(hub: Mount) -> list[str]:
    return [one.path for one, root in listed() if one.device == hub.device and root != "/"]


def _unmount(path: str, *, lazy: bool) -> None:
    done = _run([*_unmount_command(lazy=lazy), "--", path], UNMOUNT_SECONDS)
    if done is None:
        raise _does_not_answer(path)
    if done.returncode == 0:
        return
    text = done.stderr.strip().split("\n")[-1]
    if "busy" in text.lower():
        users = busy_processes(path)
        who = ", ".join(users[:5]) or "a process of another user or namespace"
        raise MountBusy(
            f"{path} is in use by {who}",
            remedy="let them leave it, or use `chromafuse umount --lazy`",
        )
    raise MountError(f"cannot unmount {path}: {text}")


def _does_not_answer(path: str) -> MountBusy:
    return MountBusy(
        f"the daemon of {path} does not answer",
        remedy="use `chromafuse umount --lazy`, then end the daemon",
    )


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Return how ``command`` ended, or None if it did not in time; it may run on then."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=tool_environment(),
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=REAP_SECONDS)
        return None
    return subprocess.CompletedProcess(command, process.returncode, "", said)


def tool_environment() -> dict[str, str]:
    """Return the environment of the system's mount tools: nobody's token, and known messages."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _unmount_command(*, lazy: bool) -> list[str]:
    if os.geteuid() == 0 and (program := shutil.which("umount")):
        return [program, *(["-l"] if lazy else [])]
    program = shutil.which("fusermount3")
    if program is None:
        raise FuseUnavailable("fusermount3 is missing", remedy="apt install fuse3")
    return [program, "-u", *(["-z"] if lazy else [])]


def busy_processes(path: str) -> list[str]:
    """Return "name (pid N, how)" of the processes seen to use something at or below ``path``.

    Reads only links in /proc, so that a hung mount does not hang us.
    """
    found = []
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda p: int(p.name)):
        how = _use_of(process, path)
        if how:
            try:
                name = (process / "comm").read_text(errors="replace").strip()
            except OSError:
                continue
            found.append(f"{name} (pid {process.name}, {how})")
    return found


def _use_of(process: Path, path: str) -> str | None:
    def below(link: Path) -> bool:
        try:
            target = os.readlink(link)
        except OSError:
            return False
        return target == path or target.startswith(path.rstrip("/") + "/")

    if below(process / "cwd"):
        return "its working directory"
    if below(process / "root") or below(process / "exe"):
        return "its root or program"
    try:
        files = list((process / "fd").iterdir())
        maps = (process / "maps").read_text(errors="replace")
    except OSError:
        return None
    if any(below(link) for link in files):
        return "an open file"
    return "a mapped file" if f" {path.rstrip('/')}/" in maps else None


def wait_for_exit(pid: int, seconds: float) -> bool:
    """Wait until process ``pid`` is gone; return whether it is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
