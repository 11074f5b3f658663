"""When it cannot be, and who may see what."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.mount.harness import (
    Site,
)
from tests.mount.run.commands import (
    seen,
    signed,
    words,
)
from tests.support.tokens import SECRET, write

pytestmark = pytest.mark.xdist_group("mount-run")


def test_a_daemon_that_fails_is_one_line_and_the_command_does_not_run(
    stored: Site, missing: str, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    empty = tmp_path / "empty"
    empty.mkdir()
    for options, code in (
        (["--chroma", "http://127.0.0.1:9"], 6),
        (["--chroma", str(empty)], 7),
        (["--collection", "other"], 7),
        (["--log-file", "/proc/no/log"], 5),
        (["--warm", "wrong"], 2),
    ):
        done = seen(stored, missing, "touch", str(marker), options=options).expect(code)
        assert done.err.startswith(b"chromafuse: "), done
        assert done.err.count(b"\n") == 1
    assert not marker.exists()


@pytest.mark.parametrize("source", ["--token-file", "--token-fd", "CHROMAFUSE_TOKEN"])
def test_a_token_is_nowhere_to_be_seen(
    stored: Site, missing: str, tmp_path: Path, source: str
) -> None:
    token = signed(groups=["admin"])
    key, file = tmp_path / "key", tmp_path / "token"
    write(key, SECRET)
    write(file, token)
    options, env = ["--jwt-key", str(key)], dict(stored.env)
    passed: tuple[int, ...] = ()
    with file.open("rb") as opened:
        if source == "--token-file":
            options += [source, str(file)]
        elif source == "--token-fd":
            options += [source, str(opened.fileno())]
            passed = (opened.fileno(),)
        else:
            env[source] = token
            env[source.title()] = token
        script = f"ls {missing}/guide; ls /proc/self/fd; env; echo ready; read line"
        with subprocess.Popen(
            words(stored, missing, "sh", "-c", script, options=options), env=env, cwd=stored.base,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=passed,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == b"secret.mdx\n"
            said = b""
            while not said.endswith(b"ready\n"):
                said += process.stdout.readline()
            assert token.encode() not in said
            assert all(str(number).encode() not in said.split(b"\n") for number in passed)
            for pid in stored.daemons():
                for name in ("environ", "cmdline"):
                    assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
                links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
                assert str(file) not in links
            assert len(stored.daemons()) >= 2
            process.communicate(b"\n")
    assert token not in stored.log.read_text()


def test_a_bad_token_is_refused_and_the_command_does_not_run(
    stored: Site, missing: str, tmp_path: Path
) -> None:
    key, file = tmp_path / "key", tmp_path / "token"
    write(key, SECRET)
    for token in (signed(groups=["admin"], exp=1), "nonsense", "x" * 100_000):
        write(file, token)
        options = ["--jwt-key", str(key), "--token-file", str(file)]
        done = seen(stored, missing, "touch", str(tmp_path / "ran"), options=options).expect(11)
        assert done.err.count(b"\n") == 1
        assert token.encode() not in done.err
    assert not (tmp_path / "ran").exists()
