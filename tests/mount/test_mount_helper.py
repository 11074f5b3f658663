"""``mount -t chromafuse`` and ``/etc/fstab``, with the system's mount(8)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Finished, Site, mount_line, run

pytestmark = pytest.mark.xdist_group("mount-helper")

HELPER = Path("/sbin/mount.chromafuse")
INVOCATION, FAILED = 1, 32


@pytest.fixture(scope="module", autouse=True)
def _helper() -> Iterator[None]:
    assert os.geteuid() == 0, "only root can put a helper where mount(8) looks for it"
    assert not os.path.lexists(HELPER), f"{HELPER} is in the way"
    HELPER.symlink_to(COMMANDS / "mount.chromafuse")
    yield
    HELPER.unlink()


@pytest.fixture
def stored(site: Site, tmp_path: Path) -> Site:
    """A site of two pages, one of them restricted, ingested but not mounted."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    (source / "admin.mdx").write_text("---\ngroups: [admin]\n---\n# Admin\n")
    site.ingest(source)
    return site


def mount(site: Site, *words: str, options: str = "") -> Finished:
    given = f"chroma={site.chroma},log_file={site.log},{options}"
    command = ["mount", "-t", "chromafuse", *words, "-o", given]
    done = run([*command, site.collection, str(site.mountpoint)], env=site.env, cwd=Path("/"))
    assert b"Traceback" not in done.err, done
    return done


def test_mount_returns_when_the_mount_answers(stored: Site) -> None:
    mount(stored).expect(0)
    assert os.listdir(stored.mountpoint) == ["index.mdx"]
    run(["umount", str(stored.mountpoint)], env=stored.env, cwd=stored.base).expect(0)
    assert not stored.is_mounted()


def test_settings_and_options_of_every_file_system(stored: Site) -> None:
    given = 'groups="admin,billing",cache-size=1M,nofail,_netdev,x-systemd.automount,noatime,ro'
    done = mount(stored, "-v", options=given).expect(0)
    assert sorted(os.listdir(stored.mountpoint)) == ["admin.mdx", "index.mdx"]
    assert stored.status()["groups"] == ["admin", "billing"]
    assert b"--cache-size" in done.out
    assert stored.chroma.encode() not in done.out.split(b"\n")[0]


def test_noexec_is_kept(stored: Site) -> None:
    mount(stored, options="noexec").expect(0)
    line = mount_line(stored.mountpoint)
    assert line is not None
    assert {"ro", "nosuid", "nodev", "noexec"} <= line.options


def test_a_source_that_is_a_file_here_needs_the_collection_named(stored: Site) -> None:
    """mount(8) makes an absolute path of it."""
    place = stored.base / "site"
    place.mkdir()
    given = f"chroma={stored.chroma},log_file={stored.log}"
    words = ["mount", "-t", "chromafuse", "site", str(stored.mountpoint), "-o"]
    run([*words, given], env=stored.env, cwd=stored.base).expect(INVOCATION)
    run([*words, f"{given},collection=site"], env=stored.env, cwd=stored.base).expect(0)
    assert stored.status()["collection"] == "site"


def test_a_hub(stored: Site) -> None:
    mount(stored, options="hub").expect(0)
    assert stored.status()["role"] == "hub"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ("colour=red", INVOCATION, b"unknown option colour"),
        ("cache_size=big", INVOCATION, b"cache_size"),
        ("collection=absent", FAILED, b"there is no collection absent"),
    ],
)
def test_refusals(stored: Site, options: str, code: int, text: bytes) -> None:
    done = mount(stored, options=options).expect(code)
    assert text in done.err.replace(b"cache-size", b"cache_size")
    assert not stored.is_mounted()


def test_sloppy_and_fake(stored: Site) -> None:
    mount(stored, "-f").expect(0)
    mount(stored, "-f", options="colour=red").expect(INVOCATION)
    assert not stored.is_mounted()
    mount(stored, "-s", options="colour=red").expect(0)


def test_a_dead_mount_is_replaced(stored: Site) -> None:
    mount(stored).expect(0)
    stored.kill()
    mount(stored).expect(0)
    assert os.listdir(stored.mountpoint) == ["index.mdx"]


def test_fstab(stored: Site) -> None:
    """By directory, all at once, and again without a second mount."""
    fstab = stored.base / "fstab"
    options = f"ro,_netdev,nofail,x-systemd.automount,chroma={stored.chroma},log_file={stored.log}"
    fstab.write_text(f"{stored.collection} {stored.mountpoint} chromafuse {options} 0 0\n")
    script = (
        f"set -e; mount --fstab {shlex.quote(str(fstab))} {shlex.quote(str(stored.mountpoint))};"
        f" mount --fstab {shlex.quote(str(fstab))} --all"
    )
    run(["sh", "-c", script], env=stored.env, cwd=Path("/")).expect(0)
    assert os.listdir(stored.mountpoint) == ["index.mdx"]
    assert len(stored.daemons()) == 1


def test_a_user_is_told_that_only_root_keeps_programs_from_being_run(stored: Site) -> None:
    code = (
        "import os, sys\n"
        "from chromafuse.cli import helper, streams\n"
        "import chromafuse.log\n"
        "os.setuid(65534)\n"
        "sys.argv = ['mount.chromafuse', 'docs', '/nowhere', '-o', 'rw,noexec,user=me']\n"
        "helper.main()\n"
    )
    words = [str(COMMANDS / "python"), "-c", code]
    done = run(words, env=stored.env, cwd=stored.base).expect(INVOCATION)
    assert b"add the option exec" in done.err
