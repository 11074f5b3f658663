"""How a run ends: exit codes, signals, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.mount.harness import (
    MOUNT_DEADLINE,
    Site,
    wait_until,
)
from tests.mount.run.commands import (
    GENEROUS,
    end_of_the_daemon_alone,
    running,
    seen,
    words,
)

pytestmark = pytest.mark.xdist_group("mount-run")


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_command_s(stored: Site, missing: str, code: int) -> None:
    done = seen(stored, missing, "sh", "-c", f"exit {code}").expect(code)
    assert (done.out, done.err) == (b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL])
def test_death_by_a_signal_is_the_command_s(
    stored: Site, missing: str, number: signal.Signals
) -> None:
    done = seen(stored, missing, "sh", "-c", f"kill -{int(number)} $$")
    assert done.code == -number


def test_a_command_that_cannot_be_run_has_the_codes_of_a_shell(
    stored: Site, missing: str, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("exit 5\n")
    for command, code in (("no-such-command", 127), (str(tmp_path / "no"), 127), (str(plain), 126)):
        done = seen(stored, missing, command).expect(code)
        assert done.err.startswith(f"chromafuse: cannot run {command}: ".encode())
        assert done.err.count(b"\n") == 1
    plain.chmod(0o755)
    seen(stored, missing, str(plain)).expect(5)


def test_a_child_in_the_background_keeps_its_docs(stored: Site, missing: str) -> None:
    script = f"(read line <&3; cat {missing}/index.mdx) & exit 0"
    reading, writing = os.pipe()
    with subprocess.Popen(
        words(stored, missing, "bash", "-c", f"exec 3<&{reading}; {script}"),
        env=stored.env, cwd=stored.base, stdout=subprocess.PIPE, pass_fds=(reading,),
    ) as process:  # fmt: skip
        os.close(reading)
        assert process.wait(MOUNT_DEADLINE) == 0
        time.sleep(0.2)
        os.write(writing, b"go\n")
        assert process.stdout is not None
        assert process.stdout.read() == b"# Home\n"
    os.close(writing)


def test_descriptors_of_the_command_are_not_kept_open_by_the_daemon(
    stored: Site, missing: str
) -> None:
    reading, writing = os.pipe()
    script = f"exec {writing}>&-; echo ready; read line; cat {missing}/index.mdx"
    with subprocess.Popen(
        words(stored, missing, "bash", "-c", script), env=stored.env, cwd=stored.base,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(writing,),
    ) as process:  # fmt: skip
        os.close(writing)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert os.read(reading, 1) == b""
        assert process.communicate(b"\n")[0] == b"# Home\n"
    os.close(reading)


def test_killing_the_command_ends_the_daemon(stored: Site, missing: str) -> None:
    with running(words(stored, missing, "sh", "-c", "echo ready; read line"), stored) as process:
        assert end_of_the_daemon_alone(stored, process.pid)
        process.kill()
        process.wait()
        assert wait_until(lambda: not stored.daemons(), GENEROUS)


def test_killing_the_daemon_leaves_errors_to_the_command_and_nothing_else(
    stored: Site, missing: str
) -> None:
    script = f"echo ready; read line; cat {missing}/index.mdx"
    with running(words(stored, missing, "sh", "-c", script), stored) as process:
        for pid in end_of_the_daemon_alone(stored, process.pid):
            os.kill(pid, signal.SIGKILL)
        assert process.communicate(b"\n")[0] == b""
        assert process.returncode == 1


def test_killing_chromafuse_while_it_starts_leaves_nothing(stored: Site, missing: str) -> None:
    for delay in (0.1, 0.2, 0.3, 0.4, 0.6, 0.8):
        with subprocess.Popen(
            words(stored, missing, "sleep", "60"), env=stored.env, cwd=stored.base
        ) as process:
            time.sleep(delay)
            process.kill()
        assert wait_until(lambda: not stored.daemons(), GENEROUS)
