"""Checks of the machine: FUSE, its tools, name spaces, security modules, packages, updatedb."""

from __future__ import annotations

import ctypes
import errno
import importlib
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from chromafuse.doctor.findings import Finding, Severity
from chromafuse.domain.errors import FuseUnavailable
from chromafuse.fs import ending, mounts
from chromafuse.fs.private import PrivateNamespace

APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
APPARMOR_PROFILES = Path("/etc/apparmor.d")
UPDATEDB = Path("/etc/updatedb.conf")
TOOL_SECONDS = 3.0

_FUSE_DEVICE = os.makedev(10, 229)
_NO_DEVICE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)


def device() -> Iterator[Finding]:
    """``/dev/fuse`` exists and can be opened."""
    try:
        descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_DEVICE:
            mend = "as root: modprobe fuse; in a container: start it with --device /dev/fuse"
            yield Finding("fuse", Severity.ERROR, "there is no /dev/fuse", mend)
            return
        text = f"/dev/fuse cannot be opened: {error.strerror}"
        mend = "as root: chmod 666 /dev/fuse; in a container: start it with --device /dev/fuse"
        yield Finding("fuse", Severity.ERROR, text, mend)
        return
    try:
        number = os.fstat(descriptor).st_rdev
    finally:
        os.close(descriptor)
    if number == _FUSE_DEVICE:
        yield Finding("fuse", Severity.OK, "/dev/fuse can be opened")
    else:
        mend = "as root: rm /dev/fuse && mknod -m 666 /dev/fuse c 10 229"
        yield Finding("fuse", Severity.ERROR, "/dev/fuse is another device", mend)


def fusermount() -> Iterator[Finding]:
    """``fusermount3`` is there and has root's rights; root itself can do without."""
    is_root = os.geteuid() == 0
    program = shutil.which("fusermount3")
    if program is None:
        severity = Severity.WARNING if is_root else Severity.ERROR
        text = "fusermount3 is missing: only root can mount"
        yield Finding("fusermount3", severity, text, "apt install fuse3")
        return
    found = os.stat(program)
    if not is_root and not (found.st_uid == 0 and found.st_mode & stat.S_ISUID):
        text = f"{program} does not run as root, so users cannot mount"
        mend = f"as root: chown root {program} && chmod u+s {program}"
        yield Finding("fusermount3", Severity.ERROR, text, mend)
        return
    done = subprocess.run(
        [program, "--version"],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TOOL_SECONDS,
        env=ending.tool_environment(),
    )
    yield Finding("fusermount3", Severity.OK, f"{program}, {done.stdout.strip()}")


def allow_other(*, asked: bool) -> Iterator[Finding]:
    """``--allow-other`` is allowed, if it is asked for."""
    name = "user_allow_other"
    if mounts.user_allow_other():
        yield Finding(name, Severity.OK, f"{mounts.FUSE_CONF} allows --allow-other")
    elif os.geteuid() == 0:
        yield Finding(name, Severity.OK, "root may use --allow-other")
    elif not asked:
        text = f"{mounts.FUSE_CONF} does not allow --allow-other, which is not asked for"
        yield Finding(name, Severity.OK, text)
    else:
        text = f"--allow-other is forbidden: {mounts.FUSE_CONF} has no line {name}"
        mend = f"as root: echo {name} >> {mounts.FUSE_CONF}"
        yield Finding(name, Severity.ERROR, text, mend)


def namespaces() -> Iterator[Finding]:
    """A mount namespace can be entered, as `chromafuse run` does."""
    try:
        PrivateNamespace.enter()
    except FuseUnavailable as error:
        text = f"`chromafuse run` does not work: {error.args[0]}"
        yield Finding("namespaces", Severity.WARNING, text, error.remedy)
    else:
        yield Finding("namespaces", Severity.OK, "`chromafuse run` can make a mount namespace")


def apparmor() -> Iterator[Finding]:
    """AppArmor has no profile that limits where ``fusermount3`` mounts."""
    profile = APPARMOR_PROFILES / "fusermount3"
    off = APPARMOR_PROFILES / "disable" / "fusermount3"
    if _first_line(APPARMOR) != "Y":
        yield Finding("apparmor", Severity.OK, "AppArmor is off")
    elif os.geteuid() == 0 or not profile.exists() or off.is_symlink() or off.exists():
        yield Finding("apparmor", Severity.OK, "AppArmor does not limit FUSE mounts of this user")
    else:
        text = f"AppArmor lets users mount only at places that {profile} names"
        mend = f"if a mount is refused, as root: aa-complain {profile}"
        yield Finding("apparmor", Severity.NOTE, text, mend)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:
        return None


def libfuse() -> Iterator[Finding]:
    """libfuse and pyfuse3 can be loaded."""
    try:
        library = ctypes.CDLL("libfuse3.so.3")
    except OSError as error:
        text = f"libfuse cannot be loaded: {error}"
        yield Finding("libfuse", Severity.ERROR, text, "apt install libfuse3-3")
        return
    library.fuse_pkgversion.restype = ctypes.c_char_p
    version = library.fuse_pkgversion().decode(errors="replace")
    try:
        importlib.import_module("pyfuse3")
    except ImportError as error:
        text = f"libfuse {version} is there, and pyfuse3 does not load: {error}"
        yield Finding("libfuse", Severity.ERROR, text, "pip install --force-reinstall pyfuse3")
        return
    yield Finding("libfuse", Severity.OK, f"libfuse {version}")


def packages() -> Iterator[Finding]:
    """Every Python package that this one needs is there, in a version that fits."""
    from packaging.requirements import Requirement

    fitting = []
    for line in importlib.metadata.requires("chromafuse") or ():
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        mend = f"pip install '{needed.name}{needed.specifier}'"
        try:
            version = importlib.metadata.distribution(needed.name).metadata["Version"]
        except (importlib.metadata.PackageNotFoundError, KeyError):
            version = None
        if version is None:
            text = f"the Python package {needed.name} is missing"
            yield Finding("packages", Severity.ERROR, text, mend)
            continue
        if not needed.specifier.contains(version, prereleases=True):
            text = f"{needed.name} {version} does not fit, {needed.specifier} does"
            yield Finding("packages", Severity.ERROR, text, mend)
            continue
        fitting.append(f"{needed.name} {version}")
    yield Finding("packages", Severity.OK, ", ".join(fitting))


def updatedb() -> Iterator[Finding]:
    """The indexer of ``locate`` leaves mounts alone: it would read every name of every mount."""
    name = "updatedb"
    try:
        text = UPDATEDB.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if shutil.which("updatedb") is None:
            yield Finding(name, Severity.OK, "there is no updatedb here")
        else:
            mend = f"as root: echo 'PRUNEFS=\"{mounts.FSTYPE}\"' > {UPDATEDB}"
            yield Finding(name, Severity.WARNING, f"updatedb walks mounts: no {UPDATEDB}", mend)
        return
    setting = re.search(r'^\s*PRUNEFS\s*=\s*"([^"]*)"', text, re.MULTILINE)
    if setting is None:
        problem, mend = "has no PRUNEFS", f"echo 'PRUNEFS=\"{mounts.FSTYPE}\"' >> {UPDATEDB}"
    elif mounts.FSTYPE in setting[1].lower().split():
        yield Finding(name, Severity.OK, f"PRUNEFS in {UPDATEDB} names {mounts.FSTYPE}")
        return
    else:
        problem = f"does not name {mounts.FSTYPE} in PRUNEFS"
        mend = rf"""sed -i -E 's/^(\s*PRUNEFS\s*=\s*")/\1{mounts.FSTYPE} /' {UPDATEDB}"""
    yield Finding(
        name, Severity.WARNING, f"updatedb walks mounts: {UPDATEDB} {problem}", f"as root: {mend}"
    )
