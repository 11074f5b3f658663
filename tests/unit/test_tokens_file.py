"""Opaque tokens: what a file lists is accepted, and nothing while the file is wrong."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import Grant, Identity
from chromafuse.domain.errors import ConfigError, TokenError
from chromafuse.tokens import TokenVerifier
from chromafuse.tokens.listed import ListedTokens
from tests.support.tokens import NOW, SECRET, pair, sign, verifier, write

PLAIN = "correct-horse-battery-staple"
OTHER = "another-token-altogether"
DIGEST = hashlib.sha256(PLAIN.encode()).hexdigest()


def table(**values: str) -> str:
    return "[[token]]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def checker_of(directory: Path, text: str | bytes, mode: int = 0o600) -> TokenVerifier:
    return verifier(directory, tokens_file=write(directory / "tokens.toml", text, mode))


def refusal(directory: Path, text: str | bytes, mode: int = 0o600) -> str:
    with pytest.raises(ConfigError) as caught:
        checker_of(directory, text, mode)
    message = str(caught.value)
    assert "\n" not in message
    assert PLAIN not in message
    return message


def test_a_token_is_listed_by_its_text_or_its_digest(tmp_path: Path) -> None:
    admin = Grant(Identity(frozenset({"admin"}), signed_in=True))
    for key, value in (("token", PLAIN), ("sha256", DIGEST), ("sha256", DIGEST.upper())):
        checker = checker_of(tmp_path, table(**{key: f'"{value}"'}, groups='["admin"]'))
        assert checker.identify(PLAIN, NOW) == checker.identify(PLAIN.encode(), NOW) == admin
        for wrong in (DIGEST, PLAIN[:-1], PLAIN + "\n", PLAIN.upper(), "x" * 20_000):
            with pytest.raises(TokenError) as caught:
                checker.identify(wrong, NOW)
            assert wrong.strip() not in str(caught.value)


def test_groups_and_name_may_be_left_out(tmp_path: Path) -> None:
    text = table(token=f'"{PLAIN}"') + table(token=f'"{OTHER}"', name='"ci"', groups='["b", "a"]')
    checker = checker_of(tmp_path, text)
    assert checker.identify(PLAIN, NOW) == Grant(Identity(frozenset(), signed_in=True))
    assert checker.identify(OTHER, NOW).identity.groups == {"a", "b"}


@pytest.mark.parametrize(
    "moment", ["1800000060", "1800000060.0", "2027-01-15T08:01:00Z", "2027-01-15 09:01:00+01:00"]
)
def test_a_listed_token_ends_when_it_says(moment: str, tmp_path: Path) -> None:
    checker = checker_of(tmp_path, table(token=f'"{PLAIN}"', expires=moment))
    assert checker.identify(PLAIN, NOW + 59).expires == NOW + 60
    with pytest.raises(TokenError, match="has expired"):
        checker.identify(PLAIN, NOW + 60)


def test_a_key_and_a_list_together(tmp_path: Path) -> None:
    file = write(tmp_path / "tokens.toml", table(token=f'"{PLAIN}"', groups='["listed"]'))
    keys = pair("EdDSA")
    both = verifier(tmp_path, keys.pem, tokens_file=file)
    assert both.identify(PLAIN, NOW).identity.groups == {"listed"}
    assert both.identify(sign(keys.private, "EdDSA"), NOW).identity.groups == {"admin"}
    with pytest.raises(TokenError):
        both.identify(OTHER, NOW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\nx = ]", "is not TOML (line 2)"), ("\0", "is not TOML"), (b"\xff", "is not TOML"),
        ("a = " + "[" * 50_000, "too deeply"), (f"{PLAIN} = 1", "something else"),
        ("[token]", "something else"), ("token = []\nx = 1", "something else"),
        ("token = 7", "something else"), ("[[tokens]]", "something else"),
        ("token = [7]", "token 1: it has other keys"), ("[[token]]", "either token or sha256"),
        (table(token=f'"{PLAIN}"', sha256=f'"{DIGEST}"'), "either token or sha256"),
        (table(token=f'"{PLAIN}"', group='["a"]'), "it has other keys than name, token"),
        (table(sha256='"abc"'), "64 hexadecimal digits"), (table(sha256="7"), "64 hexadecimal"),
        (table(sha256=f'"{DIGEST}0"'), "64 hexadecimal"), (table(token="7"), "no text"),
        (table(token='""'), "empty"), (table(token='" x"'), "blanks"),
        (table(token=f'"{PLAIN}"', groups='"a"'), "groups are not"),
        (table(token=f'"{PLAIN}"', groups='[""]'), "groups are not"),
        (table(token=f'"{PLAIN}"', groups="[7]"), "groups are not"),
        (table(token=f'"{PLAIN}"', groups='["__chromafuse_nobody__"]'), "groups are not"),
        (table(token=f'"{PLAIN}"', name="7"), "its name is not a text"),
        (table(token=f'"{PLAIN}"', expires="2027-01-15"), "expires"),
        (table(token=f'"{PLAIN}"', expires="2027-01-15T08:00:00"), "no time zone"),
        (table(token=f'"{PLAIN}"', expires="true"), "expires"),
        (table(token=f'"{PLAIN}"', expires="nan"), "expires"),
        (table(token=f'"{PLAIN}"', expires="inf"), "expires"),
        (table(token=f'"{PLAIN}"', expires="1800000000000"), "expires"),
        (table(token=f'"{PLAIN}"', expires='"soon"'), "expires"),
        (table(token=f'"{PLAIN}"') + table(sha256=f'"{DIGEST}"'), "token 2: it is listed twice"),
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_a_wrong_file_is_an_error(text: str | bytes, reason: str, tmp_path: Path) -> None:
    assert reason in refusal(tmp_path, text)


def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path) -> None:
    text = table(token=f'"{PLAIN}"')
    for mode in (0o604, 0o644):
        assert "can be read by others" in refusal(tmp_path, text, mode)
    for mode in (0o620, 0o602):
        assert "can be written by others" in refusal(tmp_path, text, mode)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--tokens-file .* cannot be read"):
        verifier(tmp_path, tokens_file=tmp_path / "none")


# -- changes


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    checker = checker_of(tmp_path, table(token=f'"{PLAIN}"', groups='["a"]'))
    for number in range(5):  # faster than a file's time goes
        checker_of(tmp_path, table(token=f'"{PLAIN}"', groups=f'["{number}"]'))
        assert checker.identify(PLAIN, NOW).identity.groups == {str(number)}
    checker_of(tmp_path, table(token=f'"{OTHER}"'))
    assert checker.identify(OTHER, NOW).identity.signed_in
    with pytest.raises(TokenError, match="not known"):
        checker.identify(PLAIN, NOW)


def test_a_file_replaced_with_the_times_of_the_old_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chromafuse.tokens.listed._RACE_NS", -(10**15))
    old = write(tmp_path / "tokens.toml", table(token=f'"{PLAIN}"'))
    os.utime(old, (1_000_000_000, 1_000_000_000))
    listed = ListedTokens(old)
    new = write(tmp_path / "new", table(token=f'"{OTHER[: len(PLAIN)]:x<{len(PLAIN)}}"'))
    assert new.stat().st_size == old.stat().st_size
    os.utime(new, (1_000_000_000, 1_000_000_000))
    new.rename(old)
    assert listed.find(PLAIN.encode(), NOW) is None


def test_an_unchanged_file_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "tokens.toml", table(token=f'"{PLAIN}"'))
    listed = ListedTokens(file)
    monkeypatch.setattr("chromafuse.tokens.listed._RACE_NS", -(10**15))
    assert listed.find(PLAIN.encode(), NOW)
    opened: list[object] = []
    real = os.open

    def counting(*arguments: Any, **named: Any) -> int:
        opened.append(arguments)
        return real(*arguments, **named)

    monkeypatch.setattr(os, "open", counting)
    assert listed.find(PLAIN.encode(), NOW)
    assert opened == []


@pytest.mark.parametrize("what", ["broken", "empty", "gone", "shared", "directory"])
@pytest.mark.expects_log("no listed token is accepted until it is mended: --tokens-file ")
def test_a_file_that_becomes_wrong_closes_everything(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chromafuse")
    text = table(token=f'"{PLAIN}"')
    checker = checker_of(tmp_path, text)
    file = tmp_path / "tokens.toml"
    if what == "broken":
        write(file, text + "[[")
    elif what == "empty":
        write(file, "")
    elif what == "shared":
        file.chmod(0o644)
    else:
        file.unlink()
        if what == "directory":
            file.mkdir()
    for _ in range(3):
        with pytest.raises(TokenError, match="is wrong, see the log") as caught:
            checker.identify(PLAIN, NOW)
        assert str(tmp_path) not in str(caught.value)
    if what == "directory":
        file.rmdir()
    write(file, text)
    assert checker.identify(PLAIN, NOW).identity.signed_in
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, lines
    assert PLAIN not in "".join(lines)
    assert lines[1] == "listed tokens are accepted again"


@pytest.mark.expects_log("no listed token is accepted")
def test_a_wrong_list_does_not_close_jwts(tmp_path: Path) -> None:
    file = write(tmp_path / "tokens.toml", table(token=f'"{PLAIN}"'))
    both = verifier(tmp_path, SECRET, tokens_file=file)
    file.unlink()
    assert both.identify(sign(SECRET, "HS256"), NOW).identity.groups == {"admin"}
    with pytest.raises(TokenError, match="see the log"):
        both.identify(PLAIN, NOW)


# -- whatever comes

VALUE = st.sampled_from(
    [f'"{PLAIN}"', f'"{DIGEST}"', '["a"]', "[]", "1800000060", "nan", "-1", "2027-01-15T08:01:00Z",
     "1e400", "{}", "true", '"\\u0000"', "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"]
)  # fmt: skip
TABLE = st.dictionaries(
    st.sampled_from(["token", "sha256", "groups", "expires", "name", "other"]), VALUE
).map(lambda values: table(**values))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(
    text=st.lists(TABLE, max_size=3).map("".join) | st.text(max_size=40) | st.binary(max_size=40)
)
def test_any_file_is_a_list_or_an_error(text: str | bytes, directory: Path) -> None:
    if isinstance(text, str):
        text = text.encode(errors="surrogatepass")
    file = write(directory / "tokens.toml", text)
    problem, grant = "", None
    try:
        grant = ListedTokens(file).find(PLAIN.encode(), NOW)
    except ConfigError as error:
        problem = str(error)
    assert "\n" not in problem
    assert PLAIN not in problem
    assert grant is None or grant.identity.signed_in
