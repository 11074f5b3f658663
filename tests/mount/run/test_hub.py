"""Runs through a hub."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import (
    Site,
    run,
    wait_until,
)
from tests.mount.run.commands import (
    GENEROUS,
    NAMES,
    running,
    seen,
    signed,
    through,
)
from tests.support.tokens import SECRET, write
from tests.support.unprivileged import UID

pytestmark = pytest.mark.xdist_group("mount-run")


@pytest.fixture
def hub(stored: Site, tmp_path: Path) -> Iterator[Path]:
    """A hub of the site that takes tokens signed with the secret."""
    place = tmp_path / "a hub"
    place.mkdir()
    key = write(tmp_path / "key", SECRET)
    target = ["--collection", stored.collection, "--chroma", stored.chroma]
    stored.command(
        "hub", place, *target, "--jwt-key", key, "--log-file", stored.log, "--allow-other"
    ).expect(0)
    yield place
    stored.command("umount", place).expect(0)


def sessions(site: Site, hub: Path) -> list[dict[str, object]]:
    found = json.loads(site.command("session", "list", "--hub", hub, "--json").expect(0).out)
    assert isinstance(found, list)
    return found


def test_a_hub_gives_the_command_a_session_that_ends_with_it(
    stored: Site, hub: Path, missing: str, existing: Path
) -> None:
    for at in (missing, str(existing)):
        script = 'ls "$1/guide"; touch "$1/x"; echo ready; read line'
        line = through(hub, at, "sh", "-c", script, "sh", at, options=["--groups", "admin"])
        before = stored.daemons()
        with subprocess.Popen(
            line, env=stored.env, cwd=stored.base,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            head = [process.stdout.readline() for _ in range(3)]
            assert head == [b"secret.mdx\n", b"start.mdx\n", b"ready\n"]
            assert [session["groups"] for session in sessions(stored, hub)] == [["admin"]]
            assert stored.daemons() == sorted([*before, process.pid])
            assert not os.path.exists(missing)
            assert b"Read-only file system" in process.communicate(b"\n")[1]
        assert wait_until(lambda: sessions(stored, hub) == [], GENEROUS)


def test_without_a_collection_the_only_hub_is_meant(
    stored: Site, hub: Path, missing: str, tmp_path: Path
) -> None:
    line = through(None, missing, "ls", f"{missing}/guide")
    assert run(line, env=stored.env, cwd=stored.base).expect(0).out == b"start.mdx\n"
    config = write(tmp_path / "config.toml", f'collection = "{stored.collection}-not"\n')
    env = {**stored.env, "CHROMAFUSE_CONFIG": str(config), "CHROMAFUSE_CHROMA": stored.chroma}
    assert b"-not" in run(line, env=env, cwd=stored.base).expect(7).err


def test_a_hub_checks_tokens_with_its_own_keys(
    stored: Site, hub: Path, missing: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "token", signed(groups=["admin"]))
    line = through(hub, missing, "ls", f"{missing}/guide", options=["--token-file", str(file)])
    done = run(line, env=stored.env, cwd=stored.base).expect(0)
    assert done.out == b"secret.mdx\nstart.mdx\n"
    env = {**stored.env, "CHROMAFUSE_TOKEN": signed(groups=["admin"])}
    done = run(through(hub, missing, "env"), env=env, cwd=stored.base).expect(0)
    assert b"CHROMAFUSE_TOKEN" not in done.out
    write(file, signed(groups=["admin"], exp=1))
    assert run(line, env=stored.env, cwd=stored.base).expect(11).err.count(b"\n") == 1
    assert wait_until(lambda: sessions(stored, hub) == [], GENEROUS)


def test_a_hub_that_is_none_or_is_asked_for_too_much(
    stored: Site, hub: Path, missing: str, existing: Path
) -> None:
    done = run(through(existing, missing, "true"), env=stored.env, cwd=stored.base).expect(12)
    assert done.err.count(b"\n") == 1
    for option in (["--collection", "x-y-z"], ["--warm", "off"], ["--config", "/dev/null"]):
        line = through(hub, missing, "true", options=option)
        done = run(line, env=stored.env, cwd=stored.base).expect(2)
        assert b"exclude each other" in done.err
    assert sessions(stored, hub) == []


def test_killing_the_command_closes_its_session(stored: Site, hub: Path, missing: str) -> None:
    with running(through(hub, missing, "sh", "-c", "echo ready; read line"), stored) as process:
        assert len(sessions(stored, hub)) == 1
        process.kill()
        process.wait()
        assert wait_until(lambda: sessions(stored, hub) == [], GENEROUS)


def test_another_user_than_root_in_the_namespace(stored: Site, hub: Path, missing: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    command = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "ls", missing]
    assert seen(stored, missing, *command).expect(0).out == NAMES
    done = run(through(hub, missing, *command), env=stored.env, cwd=stored.base).expect(0)
    assert done.out == NAMES
