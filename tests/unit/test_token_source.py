"""A token comes from one place, and leaves no trace where others look."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chromafuse import config
from chromafuse.config import Settings, load
from chromafuse.domain.access import ANONYMOUS, Grant, operator_identity
from chromafuse.domain.errors import ConfigError, TokenError
from chromafuse.tokens import MAX_TOKEN_BYTES, grant_from, read_token
from tests.support.tokens import SECRET, sign, write

TOKEN = "eyJhbGciOi.correct-horse.battery-staple"


@pytest.fixture(autouse=True)
def _nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("CHROMAFUSE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(config, "SYSTEM_CONFIG", tmp_path / "etc" / "config.toml")


def given(**flags: object) -> Settings:
    return load({"collection": "docs", **flags})


def pipe_with(data: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def test_no_token_is_none() -> None:
    assert read_token(given()) is None
    assert grant_from(given()) == Grant(ANONYMOUS)
    assert grant_from(given(groups="a")) == Grant(operator_identity(["a"]))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_token_from_a_file_without_its_newline(end: str, tmp_path: Path) -> None:
    file = write(tmp_path / "token", TOKEN + end)
    assert read_token(given(token_file=str(file))) == TOKEN


def test_only_one_newline_is_taken_off(tmp_path: Path) -> None:
    file = write(tmp_path / "token", TOKEN + "\n\n")
    assert read_token(given(token_file=str(file))) == TOKEN + "\n"


def test_a_token_file_in_the_home(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    write(tmp_path / "home" / "token", TOKEN)
    assert read_token(given(token_file="~/token")) == TOKEN


def test_a_token_from_a_descriptor_which_is_closed() -> None:
    reading = pipe_with(TOKEN.encode() + b"\n")
    assert read_token(given(token_fd=reading)) == TOKEN
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


def test_a_token_that_comes_in_pieces() -> None:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        for piece in TOKEN:
            os.write(writing, piece.encode())
        os._exit(0)
    os.close(writing)
    assert read_token(given(token_fd=reading)) == TOKEN
    os.waitpid(process, 0)


def test_a_token_from_the_environment_which_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMAFUSE_TOKEN", TOKEN)
    settings = given()
    assert TOKEN not in repr(settings)
    assert TOKEN not in str(settings.model_dump())
    assert read_token(settings) == TOKEN
    assert "CHROMAFUSE_TOKEN" not in os.environ


def test_neither_the_process_nor_its_children_show_the_variable() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from chromafuse.config import load\n"
        "from chromafuse.tokens import read_token\n"
        "token = read_token(load({'collection': 'docs'}))\n"
        f"assert token == {TOKEN!r}, token\n"
        "own = open('/proc/self/environ', 'rb').read()\n"
        f"assert {TOKEN[:12]!r}.encode() not in own\n"
        "assert b'PATH=' in own\n"
        "child = subprocess.run(['cat', '/proc/self/environ'], capture_output=True).stdout\n"
        "assert b'PATH=' in child and b'TOKEN' not in child.upper(), child\n"
        "if os.fork() == 0:\n"
        "    os.execvp('env', ['env'])\n"
        "os.wait()\n"
    )
    for name in ("CHROMAFUSE_TOKEN", "chromafuse_token"):
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", name: TOKEN}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "PATH=" in done.stdout
        assert TOKEN not in done.stdout + done.stderr


def test_several_places_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(write(tmp_path / "token", TOKEN))
    with pytest.raises(ConfigError, match="--token-file and --token-fd exclude each other"):
        read_token(given(token_file=file, token_fd=0))
    with pytest.raises(ConfigError, match=r"--groups and a token \(--token-file\) exclude"):
        read_token(given(token_file=file, groups="a"))
    monkeypatch.setenv("CHROMAFUSE_TOKEN", TOKEN)
    settings = given(token_file=file)
    with pytest.raises(ConfigError, match="--token-file and CHROMAFUSE_TOKEN exclude") as caught:
        read_token(settings)
    assert TOKEN not in str(caught.value)
    assert "CHROMAFUSE_TOKEN" not in os.environ


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--token-file .*none cannot be read: No such file"):
        read_token(given(token_file=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"--token-file .* cannot be read: Is a directory"):
        read_token(given(token_file=str(tmp_path)))
    closed = pipe_with(b"")
    os.close(closed)
    with pytest.raises(ConfigError, match=f"--token-fd {closed} cannot be read: Bad file"):
        read_token(given(token_fd=closed))
    for output in (1, 2):
        with pytest.raises(ConfigError, match="is an output"):
            read_token(given(token_fd=output))


def test_what_is_no_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data, reason in (
        (b"", "is empty"), (b"\n", "is empty"), (b"\xff" * 9, "not text"),
        (b"x" * (MAX_TOKEN_BYTES + 1), "longer than"), (b"x" * 10**6, "longer than"),
    ):  # fmt: skip
        settings = given(token_file=str(write(tmp_path / "token", data)))
        with pytest.raises(TokenError, match=reason):
            read_token(settings)
    monkeypatch.setenv("CHROMAFUSE_TOKEN", "")
    with pytest.raises(TokenError, match="the token from CHROMAFUSE_TOKEN is empty"):
        read_token(given())
    longest = write(tmp_path / "token", b"x" * MAX_TOKEN_BYTES + b"\r\n")
    assert read_token(given(token_file=str(longest))) == "x" * MAX_TOKEN_BYTES


def test_a_configuration_file_holds_no_token(tmp_path: Path) -> None:
    file = write(tmp_path / "one.toml", f'token = "{TOKEN}"\n')
    with pytest.raises(ConfigError, match=f"token in {file} should not be there") as caught:
        load({"collection": "docs"}, file)
    assert TOKEN not in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_grant_of_the_settings_is_the_token_s(tmp_path: Path) -> None:
    key = str(write(tmp_path / "key", SECRET))
    token = str(write(tmp_path / "token", sign(SECRET, "HS256", {"exp": 4e9, "groups": ["a"]})))
    found = grant_from(given(jwt_key=key, token_file=token))
    assert found == Grant(operator_identity(["a"]), 4e9)
    with pytest.raises(TokenError, match="no token is accepted here"):
        grant_from(given(token_file=token))
