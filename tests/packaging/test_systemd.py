"""The files in ``systemd/``: systemd takes them, and a mount works within what they leave it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, PROJECT, Site, run
from tests.support.unprivileged import UID, as_nobody

NOBODY = 65_534
"""A user that has a name, which fusermount3 wants."""
UNITS = PROJECT / "systemd"
INSTALLED = "/opt/chromafuse/.venv/bin/"
NAMES = ("chromafuse@.service", "chromafuse-hub@.service", "user/chromafuse@.service")
SYSTEM = NAMES[:2]

# Each gives a service a mount namespace of its own, in which its mounts are hidden.
HIDING = {
    "BindPaths", "BindReadOnlyPaths", "DynamicUser", "ExecPaths", "InaccessiblePaths",
    "MountAPIVFS", "NoExecPaths", "PrivateDevices", "PrivateIPC", "PrivateMounts", "PrivateTmp",
    "PrivateUsers", "ProcSubset", "ProtectControlGroups", "ProtectHome", "ProtectHostname",
    "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc",
    "ProtectSystem", "ReadOnlyPaths", "ReadWritePaths", "RootDirectory", "RootImage",
    "TemporaryFileSystem",
}  # fmt: skip
# Each implies NoNewPrivileges= for a user's service, and fusermount3 has to become root.
TYING = {
    "LockPersonality", "MemoryDenyWriteExecute", "PrivateNetwork", "ProtectClock",
    "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
    "SystemCallArchitectures", "SystemCallFilter", "SystemCallLog",
}  # fmt: skip


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / name)
    return parser


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with the commands of this checkout in the place of the installed ones."""
    for name in NAMES:
        text = (UNITS / name).read_text()
        assert text.count(INSTALLED) == 2
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text.replace(INSTALLED, f"{COMMANDS}/"))
    for name in ("chromafuse@.service.d",):
        shutil.copytree(UNITS / name, tmp_path / name)
    return tmp_path


def analyze(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"LC_ALL": "C.UTF-8", "SYSTEMD_LOG_LEVEL": "warning"}
    env["XDG_RUNTIME_DIR"] = str(cwd)
    return subprocess.run(
        ["systemd-analyze", *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_the_unit_without_a_word(units: Path, name: str) -> None:
    user = ["--user"] if name.startswith("user/") else []
    instance = name.replace("@", "@docs")
    path = units / instance
    path.symlink_to(units / name)
    done = analyze(*user, "verify", "--man=no", str(path), cwd=units)
    own = [line for line in (done.stdout + done.stderr).split("\n") if "chromafuse" in line]
    assert own == []
    assert done.returncode == 0, done


def test_verify_would_find_a_misspelt_setting(units: Path) -> None:
    path = units / NAMES[0]
    path.write_text(path.read_text().replace("WatchdogSec=", "WatchdgSec="))
    done = analyze("verify", "--man=no", str(path), cwd=units)
    assert "WatchdgSec" in done.stderr


@pytest.mark.parametrize("name", SYSTEM)
def test_the_exposure_stays_where_it_is(units: Path, name: str) -> None:
    """As low as FUSE allows: what would lower it further hides or forbids the mount."""
    done = analyze("security", "--offline=true", "--threshold=73", f"./{name}", cwd=units)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_nothing_hides_the_mount_or_ties_fusermount3(name: str) -> None:
    service = dict(unit(name)["Service"])
    assert not set(service) & (HIDING | TYING)
    assert service["NoNewPrivileges"] == "no"
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"


@pytest.mark.parametrize("name", SYSTEM)
def test_credentials_are_named_by_settings_that_exist(name: str) -> None:
    texts = [(UNITS / name).read_text(), (UNITS / "chromafuse@.service.d/token.conf").read_text()]
    for text in texts:
        loaded = set(re.findall(r"^LoadCredential=([a-z-]+):", text, re.MULTILINE))
        used = set(re.findall(r"=%d/([a-z-]+)", text))
        assert loaded == used


def test_the_lists_of_users_and_directories_work(tmp_path: Path) -> None:
    """In a root of their own, twice."""
    (tmp_path / "etc").mkdir()
    for name in ("sysusers", "tmpfiles"):
        place = tmp_path / "usr" / "lib" / f"{name}.d"
        place.mkdir(parents=True)
        shutil.copy(UNITS / f"chromafuse.{name}.conf", place / "chromafuse.conf")
    for _ in range(2):
        for words in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
            run([*words, f"--root={tmp_path}"], env=dict(os.environ), cwd=tmp_path).expect(0)
    assert "\nchromafuse:" in "\n" + (tmp_path / "etc" / "passwd").read_text()
    found = {
        place: (tmp_path / place).stat().st_mode & 0o777
        for place in ("etc/chromafuse", "srv/docs", "var/lib/chromafuse")
    }
    assert list(found.values()) == [0o750, 0o755, 0o750]


@pytest.fixture
def open_site() -> Iterator[Site]:
    """A site in a directory that any user may enter, and that belongs to one without rights."""
    base = Path(tempfile.mkdtemp(prefix="cf-unit-"))
    base.chmod(0o755)
    site = Site(base)
    try:
        (base / "source").mkdir()
        (base / "source" / "index.mdx").write_text("# Home\n")
        site.ingest(base / "source")
        for place in (base, Path(site.env["XDG_RUNTIME_DIR"])):
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", place], check=True)
        yield site
    finally:
        site.close()
        shutil.rmtree(base)


def test_a_mount_works_with_the_capabilities_that_the_unit_leaves(
    open_site: Site, tmp_path: Path
) -> None:
    """fusermount3 gains no other capabilities than these."""
    given = unit(NAMES[0])["Service"]["CapabilityBoundingSet"].lower().split()
    kept = ",".join(f"+{name.removeprefix('cap_')}" for name in given)
    site, scratch = open_site, tmp_path / "scratch"
    scratch.mkdir()
    script = (
        "set -e; grep CapBnd /proc/self/status;"
        f" chromafuse mount {site.mountpoint} -c {site.collection} --chroma {site.chroma};"
        f" cat {site.mountpoint}/index.mdx; chromafuse umount {site.mountpoint}"
    )
    words = as_nobody(["sh", "-c", script], scratch)
    bounded = f"--clear-groups --bounding-set=-all,{kept}"
    tied = [
        word.replace("--clear-groups", bounded).replace(f"USER_ID={UID}", f"USER_ID={NOBODY}")
        for word in words
    ]
    assert tied != words
    done = run(tied, env=site.env, cwd=Path("/")).expect(0)
    mask = int(done.out.split()[1], 16)
    assert mask.bit_count() == len(given)
    assert done.out.endswith(b"# Home\n")
