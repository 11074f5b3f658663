"""Users without rights, and kernels that refuse."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import (
    MOUNT_DEADLINE,
    Site,
    run,
    wait_until,
)
from tests.mount.run.commands import (
    GENEROUS,
    NAMES,
    words,
)
from tests.support.unprivileged import UID, as_nobody

pytestmark = pytest.mark.xdist_group("mount-run")


@pytest.fixture
def own_site() -> Iterator[tuple[Site, Path]]:
    """A site of the user without rights, and an empty directory."""
    base = Path(tempfile.mkdtemp(prefix="cf-"))
    base.chmod(0o755)
    (base / "scratch").mkdir()
    (base / "source").mkdir()
    (base / "source" / "index.mdx").write_text("# Home\n")
    site = Site(base)
    site.ingest(base / "source")
    if os.geteuid() == 0:
        for place in (base, Path(site.env["XDG_RUNTIME_DIR"])):
            run(["chown", "-R", f"{UID}:{UID}", str(place)], env=site.env, cwd=base).expect(0)
    yield site, base / "scratch"
    site.close()
    shutil.rmtree(base)


def namespaces_are_allowed(site: Site, scratch: Path) -> bool:
    probe = as_nobody(["unshare", "--user", "--map-root-user", "--mount", "true"], scratch)
    return run(probe, env=site.env, cwd=site.base).code == 0


def test_a_user_without_rights(own_site: tuple[Site, Path], missing: str) -> None:
    site, scratch = own_site
    at = site.base / "at"
    at.mkdir()
    script = 'cat "$1/index.mdx"; id -u; grep CapEff /proc/self/status; touch "$1/x"; umount "$1"'
    for place in (missing, str(at)):
        line = as_nobody(words(site, place, "sh", "-c", script, "sh", place), scratch)
        done = run(line, env=site.env, cwd=site.base, deadline=MOUNT_DEADLINE)
        if not namespaces_are_allowed(site, scratch):
            assert b"this machine does not let this user" in done.expect(8).err
            continue
        uid = UID if os.geteuid() == 0 else os.geteuid()
        assert done.out.split() == [b"#", b"Home", str(uid).encode(), b"CapEff:", b"0" * 16], done
        assert b"Read-only file system" in done.err
        assert done.code != 0
        assert wait_until(lambda: not site.daemons(), GENEROUS)
        nested = words(site, f"{place}-2" if place == missing else place, "ls", place)
        line = as_nobody(words(site, place, *nested), scratch)
        done = run(line, env=site.env, cwd=site.base, deadline=MOUNT_DEADLINE)
        assert done.expect(0).out == b"index.mdx\n"


def test_root_of_a_user_namespace_gains_nothing(stored: Site, missing: str) -> None:
    """Root without the right to mount takes the way of other users, and keeps to its limits."""
    if os.geteuid() != 0:
        pytest.skip("only root can be root with fewer rights")
    shell = ["setpriv", "--bounding-set", "-sys_admin,-sys_module", "--inh-caps", "-all"]
    line = [
        *shell,
        *words(stored, missing, "sh", "-c", f"ls {missing}; grep Cap /proc/self/status"),
    ]
    done = run(line, env=stored.env, cwd=stored.base, deadline=MOUNT_DEADLINE).expect(0)
    direct = run(
        [*shell, "grep", "Cap", "/proc/self/status"], env=stored.env, cwd=stored.base
    ).expect(0)
    assert done.out == NAMES + direct.out


def test_where_the_kernel_refuses_one_line_says_so(stored: Site, missing: str) -> None:
    limit = "echo 0 > /proc/sys/user/max_mnt_namespaces"
    line = ["unshare", "--user", "--map-root-user", "sh", "-c", f'{limit}; exec "$@"', "sh"]
    done = run([*line, *words(stored, missing, "true")], env=stored.env, cwd=stored.base).expect(8)
    assert done.err.startswith(b"chromafuse: this machine does not let this user make a mount name")
    assert b"sysctl user.max_mnt_namespaces=10000" in done.err
    assert done.err.count(b"\n") == 1


def test_without_the_device_one_line_says_so(own_site: tuple[Site, Path], missing: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can hide the device")
    site, _ = own_site
    line = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/fuse; exec "$@"', "sh"]
    done = run([*line, *words(site, missing, "true")], env=site.env, cwd=site.base).expect(8)
    assert done.err.count(b"\n") == 1
