"""Mounting and unmounting: what the commands promise about processes, exit codes and leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Site, mount_line, wait_until

pytestmark = pytest.mark.xdist_group("mount-lifecycle")


@pytest.fixture
def small(site: Site, tmp_path: Path) -> Site:
    """A site of two pages, ingested but not mounted."""
    source = tmp_path / "source"
    (source / "guide").mkdir(parents=True)
    (source / "index.mdx").write_text("# Home\n")
    (source / "guide" / "start.mdx").write_text("# Start\n\nhello\n")
    site.ingest(source)
    return site


def _arguments(site: Site) -> list[str]:
    return [str(site.mountpoint), "--collection", site.collection, "--chroma", site.chroma]


def _runs(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to look does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _status(site: Site) -> dict[str, object]:
    answers = json.loads(site.command("status", site.mountpoint, "--json").expect(0).out)
    assert isinstance(answers, list)
    assert isinstance(answers[0], dict)
    return answers[0]


@contextmanager
def _foreground(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(COMMANDS / "chromafuse"), "mount", *_arguments(site), "--foreground"]
    with subprocess.Popen(
        command, env=site.env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stderr is not None
            ready = wait_until((site.mountpoint / "index.mdx").exists, 20)
            assert ready, "the mount did not answer"
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_mount_answers_as_soon_as_the_command_returns(small: Site) -> None:
    for _ in range(5):
        small.mount()
        assert sorted(os.listdir(small.mountpoint)) == ["guide", "index.mdx"]
        small.umount()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_foreground_cleanly(small: Site, number: signal.Signals) -> None:
    with _foreground(small) as process:
        process.send_signal(number)
        assert process.wait(20) == 0
    assert not small.is_mounted()


def test_a_signal_ends_the_daemon_even_with_a_file_open(small: Site) -> None:
    small.mount()
    descriptor = os.open(small.mountpoint / "index.mdx", os.O_RDONLY)
    assert os.read(descriptor, 1) == b"#"
    os.kill(small.daemons()[0], signal.SIGTERM)
    assert wait_until(lambda: not small.daemons(), 20)
    assert not small.is_mounted()
    with suppress(OSError):  # ENOTCONN: nobody is there to be told of the close
        os.close(descriptor)


def test_an_unmount_from_outside_ends_the_foreground_with_success(small: Site) -> None:
    with _foreground(small) as process:
        subprocess.run(["fusermount3", "-u", str(small.mountpoint)], check=True)
        assert process.wait(20) == 0


def test_umount_waits_until_the_daemon_is_gone(small: Site) -> None:
    small.mount()
    pid = small.daemons()[0]
    small.command("umount", small.mountpoint).expect(0)
    assert not _runs(pid)


def test_umount_names_who_is_busy_and_leaves_the_mount_alone(small: Site) -> None:
    small.mount()
    with subprocess.Popen(["sleep", "60"], cwd=small.mountpoint / "guide") as user:
        refused = small.command("umount", small.mountpoint).expect(9)
        assert f"sleep (pid {user.pid}".encode() in refused.err
        assert b"\n" not in refused.err.strip()
        assert (small.mountpoint / "index.mdx").read_text() == "# Home\n"
        user.kill()
    small.umount()


def test_a_lazy_umount_detaches_a_busy_mount(small: Site) -> None:
    small.mount()
    with subprocess.Popen(["sleep", "60"], cwd=small.mountpoint) as user:
        done = small.command("umount", "--lazy", small.mountpoint, deadline=10).expect(0)
        assert b"detached" in done.out
        assert not small.is_mounted()
        user.kill()
    assert wait_until(lambda: not small.daemons(), 20)


def test_a_dead_mount_is_cleaned_up_by_the_next_mount(small: Site) -> None:
    small.mount()
    small.kill()
    assert wait_until(lambda: not small.daemons(), 10)
    # No other call before: the kernel answers a stat of the root from its cache.
    dead = small.command("status", small.mountpoint, "--json").expect(1)
    assert b"daemon is gone" in dead.out
    with pytest.raises(OSError, match="not connected"):
        os.listdir(small.mountpoint)
    small.mount()
    assert (small.mountpoint / "index.mdx").read_text() == "# Home\n"


def test_a_mount_over_a_dead_one_needs_nothing_before(small: Site) -> None:
    small.mount()
    small.kill()
    assert wait_until(lambda: not small.daemons(), 10)
    small.mount()
    assert (small.mountpoint / "index.mdx").read_text() == "# Home\n"


def test_a_failure_after_attaching_leaves_nothing_mounted(small: Site) -> None:
    """The socket's place is taken by a directory, which is noticed last."""
    small.mount()
    runtime = Path(small.env["XDG_RUNTIME_DIR"]) / "chromafuse"
    (socket,) = runtime.iterdir()
    small.umount()
    socket.mkdir()
    (socket / "in-the-way").touch()
    done = small.command("mount", *_arguments(small))
    assert done.code != 0
    assert done.err.strip().count(b"\n") == 0
    assert not small.is_mounted()
    assert not small.daemons()


def test_a_long_runtime_directory_is_no_obstacle(small: Site, tmp_path: Path) -> None:
    runtime = tmp_path / ("r" * 90)
    runtime.mkdir(mode=0o700)
    small.env["XDG_RUNTIME_DIR"] = str(runtime)
    small.mount()
    assert _status(small)["pages"] == 2


def test_a_dead_mount_can_be_unmounted(small: Site) -> None:
    small.mount()
    small.kill()
    small.command("umount", small.mountpoint).expect(0)
    assert not small.is_mounted()


def test_a_second_mount_is_refused_and_the_first_stays(small: Site) -> None:
    small.mount()
    refused = small.command("mount", *_arguments(small)).expect(5)
    assert b"already mounted" in refused.err
    assert (small.mountpoint / "index.mdx").exists()


def _refusals(site: Site, tmp_path: Path) -> dict[str, tuple[list[str], int, str]]:
    """Wrong calls: arguments, exit code, a part of the message."""
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("")
    full.mkdir()
    (full / "x").write_text("")
    rest = _arguments(site)[1:]
    point = str(site.mountpoint)
    return {
        "missing mount point": ([str(tmp_path / "none"), *rest], 5, "mkdir -p"),
        "a file as mount point": ([str(file), *rest], 5, "not a directory"),
        "a directory that is not empty": ([str(full), *rest], 5, "not empty"),
        "no collection": ([point, *rest[:1], "other", *rest[2:]], 7, "no collection other"),
        "no database": ([point, *rest[:3], str(tmp_path / "void")], 7, "no Chroma database"),
        "nobody listens": ([point, *rest[:3], "http://127.0.0.1:9"], 6, "cannot reach Chroma"),
        "a strange target": ([point, *rest[:3], "ftp://x"], 2, "neither a directory nor"),
        "a bad collection name": ([point, "--collection", "-"], 2, "--collection should be"),
        "a bad number": ([point, *rest, "--deadline", "0"], 2, "--deadline should be"),
        "no log": ([point, *rest, "--log-file", "/proc/none/x"], 5, "cannot write the log"),
    }


_CASES = [
    "missing mount point",
    "a file as mount point",
    "a directory that is not empty",
    "no collection",
    "no database",
    "nobody listens",
    "a strange target",
    "a bad collection name",
    "a bad number",
    "no log",
]


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("where", ["background", "foreground"])
def test_a_failing_mount_says_one_line_and_leaves_nothing(
    small: Site, tmp_path: Path, case: str, where: str
) -> None:
    arguments, code, text = _refusals(small, tmp_path)[case]
    options = ["--foreground"] if where == "foreground" else []
    done = small.command("mount", *arguments, *options).expect(code)
    said = done.err.decode().strip()
    assert said.count("\n") == 0, said
    assert said.startswith("chromafuse: ")
    assert text in said
    assert "Traceback" not in said
    assert not small.daemons()
    assert mount_line(small.mountpoint) is None
    assert not (tmp_path / "void").exists(), "a wrong path was created"


def test_a_collection_without_a_tree_is_said_so(site: Site, tmp_path: Path) -> None:
    import chromadb

    client = chromadb.PersistentClient(site.chroma)
    client.create_collection(site.collection, embedding_function=None)
    done = site.command("mount", *_arguments(site)).expect(7)
    assert b"no path tree" in done.err


def test_status_without_mounts_and_of_no_mount(site: Site, tmp_path: Path) -> None:
    site.command("status", tmp_path).expect(5)
    site.command("umount", tmp_path).expect(5)


def test_status_tells_what_is_mounted(small: Site) -> None:
    small.mount("--groups", "admin")
    (small.mountpoint / "index.mdx").read_bytes()
    (small.mountpoint / "index.mdx").read_bytes()
    answer = _status(small)
    assert answer["pages"] == 2
    assert answer["directories"] == 2
    assert answer["groups"] == ["admin"]
    assert answer["pid"] == small.daemons()[0]
    assert answer["mountpoint"] == str(small.mountpoint)
    assert answer["chroma"] == {"ok": True, "error": None}
    reads = answer["reads"]
    assert isinstance(reads, dict)
    assert reads["requests"] == 1
    table = small.command("status", small.mountpoint).expect(0).out.decode()
    assert str(small.mountpoint) in table


def test_a_daemon_that_is_stopped_does_not_hang_status(small: Site) -> None:
    small.mount()
    pid = small.daemons()[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        done = small.command("status", small.mountpoint, "--json").expect(1)
        assert time.monotonic() - started < 15
        assert b"does not answer" in done.out
    finally:
        os.kill(pid, signal.SIGCONT)


def test_ctrl_c_while_mounting_leaves_nothing(small: Site) -> None:
    """Chroma that accepts and never answers: the command waits, and is interrupted."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [str(COMMANDS / "chromafuse"), "mount", str(small.mountpoint)]
        command += ["--collection", "site", "--chroma", target, "--deadline", "60"]
        with subprocess.Popen(command, env=small.env, stderr=subprocess.PIPE) as process:
            time.sleep(1.5)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
        assert process.returncode == 130
        assert b"Traceback" not in said
    assert wait_until(lambda: not small.daemons(), 10)
    assert not small.is_mounted()


def test_a_server_that_never_answers_is_an_error_within_the_deadline(small: Site) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        done = small.command(
            "mount", small.mountpoint, "-c", "site", "--chroma", target, "--deadline", "2"
        ).expect(6)
        assert time.monotonic() - started < 6
        assert b"in time" in done.err or b"within" in done.err


def test_other_users_are_kept_out(small: Site) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    small.mount()
    code = f"import os; os.setuid(65534); os.listdir({str(small.mountpoint)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"PermissionError" in done.stderr


def test_allow_other_is_refused_with_words_where_it_is_forbidden(
    small: Site, tmp_path: Path
) -> None:
    """As another user, through fusermount3, on a machine whose fuse.conf says nothing."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    conf = Path("/etc/fuse.conf")
    if conf.exists() and any(
        line.strip() == "user_allow_other" for line in conf.read_text().split("\n")
    ):
        pytest.fail(f"{conf} allows it: this test needs the default")
    code = (
        "import os, sys\n"
        "os.environ.update(HOME='/nonexistent')\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "from chromafuse.domain.errors import FuseUnavailable\n"
        "from chromafuse.fs.mounts import check_fuse\n"
        "try:\n"
        "    check_fuse(allow_other=True)\n"
        "except FuseUnavailable as error:\n"
        "    print(error, error.exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, env=small.env
    )
    assert b"user_allow_other" in done.stdout or b"no permission" in done.stdout, done
    assert b" 8\n" in done.stdout


def test_settings_come_from_environment_and_file_too(small: Site, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'collection = "wrong"\nchroma = "{small.chroma}"\n')
    small.env["CHROMAFUSE_COLLECTION"] = small.collection
    small.command("mount", small.mountpoint, "--config", config).expect(0)
    assert _status(small)["collection"] == small.collection


def test_all_setting_errors_are_told_at_once(small: Site, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("typo = 1\ndeadline = -1\n")
    small.env["CHROMAFUSE_WRONG"] = "x"
    done = small.command("mount", small.mountpoint, "--config", config).expect(2)
    for part in (b"typo", b"deadline", b"CHROMAFUSE_WRONG", b"--collection is missing"):
        assert part in done.err
    assert b"\n" not in done.err.strip()
