"""``tree`` as somebody: a token, an operator's groups, everything."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import COMMAND, environment, finish, start_ingest
from tests.support.sites import write_site
from tests.support.tokens import SECRET, claims, pair, sign, write

SITE = {
    "index.mdx": b"# Home\n",
    "internal/billing.mdx": b"---\ngroups: [admin, billing]\n---\n",
    "internal/payments.mdx": b"---\ngroups: [billing]\n---\n",
    "members.mdx": b"---\npublic: false\n---\n",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a stored site, a key and a token of its admin."""
    base = tmp_path_factory.mktemp("views")
    done = finish(start_ingest(write_site(base / "site", SITE), str(base / "db"), "docs"))
    assert done.returncode == 0, done.stderr
    write(base / "key.pem", pair("EdDSA").pem)
    write(base / "token", token("admin") + "\n")
    return base


def token(*groups: str, **changes: object) -> str:
    given = claims(exp=time.time() + 600, groups=list(groups), **changes)
    return sign(pair("EdDSA").private, "EdDSA", given)


def tree(base: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), "tree", "-c", "docs", "--chroma", str(base / "db"), *words],
        cwd=base,
        env={**environment(base), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def paths(done: subprocess.CompletedProcess[str]) -> set[str]:
    assert done.returncode == 0, done.stderr
    return {json.loads(line)["path"] for line in done.stdout.splitlines()}


PUBLIC = {"index.mdx"}
MEMBER = PUBLIC | {"members.mdx"}
ADMIN = MEMBER | {"internal/billing.mdx"}


def test_the_holder_of_a_token_sees_their_view(base: Path) -> None:
    key = ("--json", "--jwt-key", "key.pem")
    assert paths(tree(base, "--json")) == PUBLIC
    assert paths(tree(base, *key)) == PUBLIC
    assert paths(tree(base, *key, "--token-file", "token")) == ADMIN
    assert paths(tree(base, *key, CHROMAFUSE_TOKEN=token())) == MEMBER
    assert paths(tree(base, *key, CHROMAFUSE_TOKEN_FILE="token")) == ADMIN
    assert paths(tree(base, *key, "--token-file", "token", "--groups-claim", "x")) == MEMBER


def test_a_token_from_a_descriptor(base: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, token("billing").encode())
    os.close(writing)
    done = subprocess.run(
        [str(COMMAND), "tree", "-c", "docs", "--chroma", "db", "--json", "--token-fd",
         str(reading), "--jwt-key", "key.pem"],
        cwd=base, env=environment(base), capture_output=True, text=True, check=False,
        pass_fds=[reading],
    )  # fmt: skip
    os.close(reading)
    assert paths(done) == ADMIN | {"internal/payments.mdx"}


def test_a_listed_token(base: Path) -> None:
    write(base / "tokens.toml", '[[token]]\ntoken = "correct-horse"\ngroups = ["admin"]\n')
    words = ("--json", "--tokens-file", "tokens.toml")
    assert paths(tree(base, *words, CHROMAFUSE_TOKEN="correct-horse")) == ADMIN


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: token("admin", nbf=4e9), "is not valid yet"),
        (lambda: token("admin") + "x", "malformed"),
        (lambda: sign(SECRET, "HS256"), "algorithm"),
        (lambda: sign(pair("EdDSA", 1).private, "EdDSA"), "signature"),
        (str, "empty"),
    ],
    ids=["not yet valid", "changed", "another algorithm", "another key", "empty"],
)
def test_a_refused_token_shows_nothing(made: Callable[[], str], reason: str, base: Path) -> None:
    given = made()  # when it is used: a token lives for minutes, the whole suite may not
    done = tree(base, "--jwt-key", "key.pem", CHROMAFUSE_TOKEN=given)
    assert done.returncode == 11
    assert done.stdout == ""
    assert done.stderr.startswith("chromafuse: ")
    assert done.stderr.count("\n") == 1
    assert reason in done.stderr
    assert not given or given[:12] not in done.stderr


def test_a_view_is_asked_for_once(base: Path) -> None:
    for words in (
        ("--all", "--as", "a"), ("--all", "--groups", "a"), ("--as", "a", "--groups", "a"),
        ("--as", "", "--token-file", "token"), ("--all", "--token-fd", "3"),
        ("--groups", "a", "--token-file", "token"),
    ):  # fmt: skip
        done = tree(base, *words, "--jwt-key", "key.pem")
        assert done.returncode == 2
        assert f"{words[0]} and " in done.stderr
        assert done.stderr.endswith(" exclude each other (give one of them)\n")


def test_an_operator_sees_the_rules_with_the_view(base: Path) -> None:
    done = tree(base, "--as", "admin")
    assert done.returncode == 0
    assert done.stdout.split("\n") == [
        ".", "├── index.mdx  [public]", "├── internal/",
        "│   └── billing.mdx  [any of admin, billing]",
        "└── members.mdx  [any signed-in reader]", "", "1 directories, 3 files", "",
    ]  # fmt: skip
    assert paths(tree(base, "--as", "", "--json")) == MEMBER
    assert paths(tree(base, "--as", " admin , nobody", "--json")) == ADMIN
    assert paths(tree(base, "--as", "Admin", "--json")) == MEMBER
    lines = tree(base, "--as", "billing", "--json").stdout.splitlines()
    assert {json.loads(line)["access"] for line in lines} >= {"any of billing", "public"}
    assert "access" not in tree(base, "--groups", "admin", "--json").stdout
    for wrong in ("admin,", ",", "a,,b"):
        done = tree(base, "--as", wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--as holds an empty name" in done.stderr


def test_an_operator_s_question_goes_before_what_the_environment_says(base: Path) -> None:
    assert paths(tree(base, "--as", "", "--json", CHROMAFUSE_GROUPS="admin")) == MEMBER
    assert paths(tree(base, "--as", "", "--json", CHROMAFUSE_TOKEN="nonsense")) == MEMBER
