"""Nothing on a mount can be written by anybody, whichever call is used, and it says EROFS.

Run as a program with a mount's directory, this prints what each call of ``WRITES`` says to the user
it runs as; so the tests ask it as another user.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.harness import (
    PROJECT,
    Site,
    mount_line,
    plain_environment,
    run,
)

pytestmark = pytest.mark.xdist_group("mount-readonly")

PAGE, OTHER_PAGE, FOLDER, NEW = "page.md", "folder/other.mdx", "folder", "new"
STRANGER = 65_534  # nobody
READ_ANYTHING = "+dac_read_search"


# The calls


def _open(flags: int) -> Callable[[str], object]:
    return lambda path: os.close(os.open(path, flags, 0o644))


def _with_descriptor(call: Callable[[int], object]) -> Callable[[str], object]:
    """A call on a descriptor that was opened for reading."""

    def on_path(path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            call(descriptor)
        finally:
            os.close(descriptor)

    return on_path


def _bind(path: str) -> None:
    """Make a socket, as mknod would, under a name short enough for one."""
    folder = os.open(os.path.dirname(path), os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


WRITES: dict[str, tuple[Callable[[str], object], str]] = {
    "create": (_open(os.O_WRONLY | os.O_CREAT), NEW),
    "create new": (_open(os.O_WRONLY | os.O_CREAT | os.O_EXCL), NEW),
    "create to read": (_open(os.O_RDONLY | os.O_CREAT), NEW),
    "create in a folder": (_open(os.O_WRONLY | os.O_CREAT), f"{FOLDER}/{NEW}"),
    "create unnamed": (_open(os.O_RDWR | os.O_TMPFILE), FOLDER),
    "open to write": (_open(os.O_WRONLY), PAGE),
    "open to read and write": (_open(os.O_RDWR), PAGE),
    "open to append": (_open(os.O_WRONLY | os.O_APPEND), OTHER_PAGE),
    "open to truncate": (_open(os.O_WRONLY | os.O_TRUNC), PAGE),
    "open to read, truncating": (_open(os.O_RDONLY | os.O_TRUNC), PAGE),
    "open to write, creating": (_open(os.O_WRONLY | os.O_CREAT), PAGE),
    "truncate": (lambda path: os.truncate(path, 0), PAGE),
    "truncate to be longer": (lambda path: os.truncate(path, 1 << 20), PAGE),
    "mkdir": (os.mkdir, NEW),
    "mkdir in a folder": (os.mkdir, f"{FOLDER}/{NEW}"),
    "rmdir": (os.rmdir, FOLDER),
    "unlink": (os.unlink, PAGE),
    "unlink in a folder": (os.unlink, OTHER_PAGE),
    "unlink nothing": (os.unlink, NEW),
    "rename": (lambda path: os.rename(path, path + NEW), PAGE),
    "rename over another": (lambda path: os.rename(path, path.replace(PAGE, OTHER_PAGE)), PAGE),
    "rename a folder": (lambda path: os.rename(path, path + NEW), FOLDER),
    "link": (lambda path: os.link(path, path + NEW), PAGE),
    "symlink": (lambda path: os.symlink(PAGE, path), NEW),
    "chmod": (lambda path: os.chmod(path, 0o600), PAGE),
    "chmod to the same": (lambda path: os.chmod(path, 0o444), PAGE),
    "chmod a folder": (lambda path: os.chmod(path, 0o700), FOLDER),
    "fchmod": (_with_descriptor(lambda file: os.fchmod(file, 0o666)), PAGE),
    "chown": (lambda path: os.chown(path, os.getuid(), os.getgid()), PAGE),
    "fchown": (_with_descriptor(lambda file: os.fchown(file, os.getuid(), os.getgid())), PAGE),
    "utimes": (lambda path: os.utime(path, ns=(1, 1)), PAGE),
    "utimes now": (os.utime, PAGE),
    "utimes of a folder": (lambda path: os.utime(path, ns=(1, 1)), FOLDER),
    "futimes": (_with_descriptor(lambda file: os.utime(file, ns=(1, 1))), PAGE),
    "setxattr": (lambda path: os.setxattr(path, "user.new", b"1"), PAGE),
    "setxattr again": (lambda path: os.setxattr(path, "user.chromafuse.slug", b"1"), PAGE),
    "setxattr of a folder": (lambda path: os.setxattr(path, "user.new", b"1"), FOLDER),
    "fsetxattr": (_with_descriptor(lambda file: os.setxattr(file, "user.new", b"1")), PAGE),
    "removexattr": (lambda path: os.removexattr(path, "user.chromafuse.slug"), PAGE),
    "removexattr of nothing": (lambda path: os.removexattr(path, "user.new"), PAGE),
    "mknod of a file": (lambda path: os.mknod(path, stat.S_IFREG | 0o644), NEW),
    "mknod of a pipe": (os.mkfifo, NEW),
    "mknod of a socket": (_bind, NEW),
}


def what_is_said(call: Callable[[str], object], path: str) -> str:
    """The name of the error that ``call`` ends with, or that it ended without."""
    try:
        call(path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def what_each_write_says(mount: str) -> dict[str, str]:
    return {
        name: what_is_said(call, os.path.join(mount, path)) for name, (call, path) in WRITES.items()
    }


REFUSED = dict.fromkeys(WRITES, "EROFS")


# The site


def write_source(source: Path) -> None:
    (source / FOLDER).mkdir(parents=True)
    (source / PAGE).write_text("# A page\n\nnobody may change it\n")
    (source / OTHER_PAGE).write_text("# Another\n")


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("readonly")
    write_source(base / "source")
    site = Site(base)
    site.ingest(base / "source")
    site.mount()
    yield site.mountpoint
    site.close()


def contents(mount: Path) -> dict[str, bytes]:
    return {str(path.relative_to(mount)): path.read_bytes() for path in mount.rglob("*.md*")}


def metadata(mount: Path) -> dict[str, tuple[int, ...]]:
    infos = {str(path.relative_to(mount)): path.stat() for path in (mount, *mount.rglob("*"))}
    return {
        name: (info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid, info.st_gid, info.st_ino)
        for name, info in infos.items()
    }


# By the user who mounted it


@pytest.mark.parametrize("name", WRITES)
def test_call_is_refused(name: str, mount: Path) -> None:
    call, path = WRITES[name]
    assert what_is_said(call, str(mount / path)) == "EROFS"


def test_nothing_has_changed_after_all_calls(mount: Path) -> None:
    before = contents(mount), metadata(mount)
    what_each_write_says(str(mount))
    assert (contents(mount), metadata(mount)) == before


def test_access_says_that_nothing_is_writable(mount: Path) -> None:
    for path in (mount, mount / PAGE, mount / FOLDER):
        assert os.access(path, os.R_OK)
        assert not os.access(path, os.W_OK)


SHELL_WRITES = [
    "touch docs/page.md",
    "touch docs/new.md",
    "rm -f docs/page.md",
    "rm -rf docs/folder",
    "rmdir docs/folder",
    "mv docs/page.md docs/new.md",
    "mv docs/page.md elsewhere.md",
    "mv docs/page.md docs/folder",
    "sed -i s/page/book/ docs/page.md",
    "echo more >> docs/page.md",
    "echo less > docs/page.md",
    "echo new > docs/folder/new.md",
    ": | tee docs/page.md",
    "cp docs/page.md docs/new.md",
    "cp -f docs/page.md docs/folder/other.mdx",
    "install -m 644 docs/page.md docs/new.md",
    "mkdir docs/new",
    "mkdir -p docs/folder/new",
    "mkfifo docs/new",
    "ln docs/page.md docs/new.md",
    "ln -s page.md docs/new.md",
    "chmod u+w docs/page.md",
    "chmod -R u+w docs",
    "chown -R $(id -u) docs",
    "truncate -s 0 docs/page.md",
    "fallocate -l 100 docs/page.md",
    "dd if=/dev/zero of=docs/page.md bs=1 count=1 conv=notrunc",
    "setfattr -n user.new -v 1 docs/page.md",
    "setfattr -x user.chromafuse.slug docs/page.md",
    "python3 -c \"open('docs/page.md', 'a')\"",
    "find docs -name page.md -delete",
    "rsync -a --delete docs/folder/ docs/",
    "git init -q docs",
    "tar xf <(tar cf - docs/page.md) --overwrite",
]


@pytest.mark.parametrize("line", SHELL_WRITES)
def test_tool_fails_and_says_why(line: str, mount: Path, tmp_path: Path) -> None:
    before = contents(mount)
    done = run(["bash", "-c", line], env=plain_environment(tmp_path), cwd=mount.parent)
    assert done.code != 0, done
    assert b"Read-only file system" in done.err, done
    assert contents(mount) == before


# The mount


def test_mount_is_of_our_type_read_only_and_without_devices_or_setuid(mount: Path) -> None:
    line = mount_line(mount)
    assert line is not None
    assert line.type == "fuse.chromafuse"
    assert {"ro", "nosuid", "nodev"} <= line.options
    assert "ro" in line.super_options
    assert {f"user_id={os.getuid()}", f"group_id={os.getgid()}"} <= line.super_options
    assert "allow_other" not in line.super_options


# By others


only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def as_stranger(*command: str) -> list[str]:
    """``command`` run by a user with no rights but to read where the project may be kept."""
    return [
        *("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"),
        *(f"--inh-caps={READ_ANYTHING}", f"--ambient-caps={READ_ANYTHING}", *command),
    ]


def this_program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.mount.test_readonly", *arguments]


def answers_of(command: list[str], tmp_path: Path) -> dict[str, str]:
    done = run(command, env=plain_environment(tmp_path), cwd=PROJECT).expect(0)
    answers = json.loads(done.out)
    assert isinstance(answers, dict)
    return answers


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A new directory that, with all above it, any user may enter; it belongs to a stranger."""
    directory = Path(tempfile.mkdtemp(prefix="cf-readonly-", dir="/tmp"))
    os.chown(directory, STRANGER, STRANGER)
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@only_root
def test_another_user_sees_nothing_of_the_mount(mount: Path, tmp_path: Path) -> None:
    answers = answers_of(as_stranger(*this_program("call", str(mount))), tmp_path)
    assert answers == dict.fromkeys(WRITES, "EACCES")


@only_root
def test_another_user_may_write_nothing_where_all_may_read(site: Site, tmp_path: Path) -> None:
    write_source(tmp_path / "source")
    site.ingest(tmp_path / "source")
    site.mount("--allow-other")
    answers = answers_of(as_stranger(*this_program("call", str(site.mountpoint))), tmp_path)
    assert answers == REFUSED


@only_root
def test_another_user_may_write_nothing_on_a_mount_of_theirs(
    open_directory: Path, tmp_path: Path
) -> None:
    """They mount it where no one else sees it, on a /dev/fuse that is open to all."""
    device = """
        set -e
        mount -t tmpfs -o dev,mode=755 none /mnt
        mknod -m 666 /mnt/fuse c 10 229
        mount --bind /mnt/fuse /dev/fuse
        exec "$@"
    """
    theirs = as_stranger(*this_program("mount-and-call", str(open_directory / "site")))
    apart = ["unshare", "--mount", "--propagation=private", "bash", "-c", device, "bash", *theirs]
    assert answers_of(apart, tmp_path) == REFUSED


@only_root
def test_daemon_refuses_what_the_kernel_would_let_through(site: Site, tmp_path: Path) -> None:
    """Root can make any mount writable; the daemon has to say no itself then."""
    write_source(tmp_path / "source")
    site.ingest(tmp_path / "source")
    site.mount()
    remount = ["mount", "-i", "-o", "remount,rw", str(site.mountpoint)]
    run(remount, env=site.env, cwd=tmp_path).expect(0)
    line = mount_line(site.mountpoint)
    assert line is not None
    assert "rw" in line.options & line.super_options
    before = contents(site.mountpoint), metadata(site.mountpoint)
    kernels_own = {"unlink nothing": "ENOENT", "create unnamed": "ENOTSUP"}
    assert what_each_write_says(str(site.mountpoint)) == REFUSED | kernels_own
    assert (contents(site.mountpoint), metadata(site.mountpoint)) == before


def mount_and_call(base: Path) -> dict[str, str]:
    """Make a site of one's own in the new directory ``base`` and try all calls on it."""
    write_source(base / "source")
    site = Site(base)
    try:
        site.ingest(base / "source")
        site.mount()
        return what_each_write_says(str(site.mountpoint))
    finally:
        site.close()


def main(mode: str, place: str) -> None:
    answers = (
        mount_and_call(Path(place)) if mode == "mount-and-call" else what_each_write_says(place)
    )
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
