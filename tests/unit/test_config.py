"""Settings: flag over environment over file over default, and every mistake told at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from chromafuse import config
from chromafuse.config import LOCK_ENDINGS, Settings, load
from chromafuse.domain.errors import ConfigError
from chromafuse.domain.pointer import parse_location
from chromafuse.stores.chroma import GUARD_SUFFIX, LOCK_SUFFIX

DOCS = {"collection": "docs"}


@pytest.fixture(autouse=True)
def _nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor the files of whoever runs the tests."""
    for name in os.environ:
        if name.startswith(("CHROMAFUSE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(config, "SYSTEM_CONFIG", tmp_path / "etc" / "config.toml")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def system_file(tmp_path: Path, text: str) -> Path:
    return write(tmp_path / "etc" / "config.toml", text)


def user_file(tmp_path: Path, text: str) -> Path:
    return write(tmp_path / "home" / ".config" / "chromafuse" / "config.toml", text)


def refusal(flags: Mapping[str, object], file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(flags, file)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 2
    return text


# -- where a value comes from


def test_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    expected = Settings(
        chroma=str(tmp_path / "home/.local/share/chromafuse/chroma"),
        collection="docs",
        groups=None,
        empty_groups="hidden",
        cache_size=256 << 20,
        deadline=10.0,
        allow_other=False,
        log_level="info",
        log_file=None,
        chunk_size=1_600,
        embed="none",
        preset="auto",
        include=[],
        exclude=[],
        hidden="omit",
        snippets=False,
        default_access="public",
    )
    assert load(DOCS).model_dump() == expected.model_dump()


def test_flag_wins_over_environment_over_user_file_over_system_file_over_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(DOCS).deadline == 10
    system_file(tmp_path, "deadline = 1")
    assert load(DOCS).deadline == 1
    user_file(tmp_path, "deadline = 2")
    assert load(DOCS).deadline == 2
    monkeypatch.setenv("CHROMAFUSE_DEADLINE", "3")
    assert load(DOCS).deadline == 3
    assert load({**DOCS, "deadline": 4.0}).deadline == 4


def test_files_are_merged_key_by_key(tmp_path: Path) -> None:
    system_file(tmp_path, 'collection = "system"\ndeadline = 1')
    user_file(tmp_path, 'collection = "user"')
    settings = load({})
    assert (settings.collection, settings.deadline) == ("user", 1)


def test_a_named_file_is_read_instead_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_file(tmp_path, "deadline = 1")
    user_file(tmp_path, "nonsense = 2")
    named = write(tmp_path / "named.toml", 'collection = "named"')
    assert load({}, named).deadline == 10
    monkeypatch.setenv("CHROMAFUSE_CONFIG", str(named))
    assert load({}).collection == "named"
    other = write(tmp_path / "other.toml", 'collection = "other"')
    assert load({}, other).collection == "other"


def test_a_flag_that_was_not_given_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMAFUSE_COLLECTION", "from-environment")
    assert load({"collection": None}).collection == "from-environment"


def test_xdg_directories_are_followed_where_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    write(tmp_path / "conf" / "chromafuse" / "config.toml", "deadline = 5")
    settings = load(DOCS)
    assert settings.chroma == str(tmp_path / "data" / "chromafuse" / "chroma")
    assert settings.deadline == 5
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert load(DOCS).chroma == str(tmp_path / "home/.local/share/chromafuse/chroma")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("chroma", "http://h:1", "http://h:1"),
        ("collection", "other", "other"),
        ("groups", "admin, billing", ["admin", "billing"]),
        ("token_file", "/tmp/token", Path("/tmp/token")),
        ("token_fd", "7", 7),
        ("jwt_key", "/tmp/key.pem", Path("/tmp/key.pem")),
        ("jwt_algorithms", "PS256,ES384", ["PS256", "ES384"]),
        ("jwt_leeway", "2.5", 2.5),
        ("audience", "docs", "docs"),
        ("groups_claim", "app.roles", "app.roles"),
        ("groups_delimiter", " ", " "),
        ("tokens_file", "/tmp/tokens.toml", Path("/tmp/tokens.toml")),
        ("empty_groups", "authenticated", "authenticated"),
        ("cache_size", "64M", 64 << 20),
        ("redis", "redis://h", "redis://h"),
        ("redis_ttl", "60", 60),
        ("warm", "off", "off"),
        ("refresh", "0.5", 0.5),
        ("pin", "0123456789abcdef", "0123456789abcdef"),
        ("pushdown", "cgrep", "cgrep"),
        ("search_timeout", "0.5", 0.5),
        ("max_stale", "0.5", 0.5),
        ("pointers_allowed", "s3://b-1/x,file:///srv", ["s3://b-1/x", "file:///srv"]),
        ("metrics", "[::1]:9464", "[::1]:9464"),
        ("upload_over", "1M", 1 << 20),
        ("upload_to", "s3://b-1/x", "s3://b-1/x"),
        ("metrics_file", "/tmp/x.prom", Path("/tmp/x.prom")),
        ("pointer_grep_max", "1M", 1 << 20),
        ("hide_large_from_grep", "true", True),
        ("pointers", "s3://b-1,x/y.json=s3://b-1/z", ["s3://b-1", "x/y.json=s3://b-1/z"]),
        ("s3_endpoint", "https://h:1", "https://h:1"),
        ("s3_region", "eu-west-1", "eu-west-1"),
        ("s3_profile", "docs", "docs"),
        ("deadline", "2.5", 2.5),
        ("allow_other", "true", True),
        ("log_level", "debug", "debug"),
        ("log_file", "/tmp/x.log", Path("/tmp/x.log")),
        ("chunk_size", "800", 800),
        ("embed", "wordllama", "wordllama"),
        ("preset", "plain", "plain"),
        ("include", "*.png", ["*.png"]),
        ("exclude", "a,b", ["a", "b"]),
        ("hidden", "include", "include"),
        ("snippets", "1", True),
        ("access", "/tmp/rules.toml", Path("/tmp/rules.toml")),
        ("default_access", "hidden", "hidden"),
    ],
)
def test_every_setting_can_be_given_in_the_environment_and_in_a_file(
    name: str, text: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in Settings.model_fields
    base = {} if name == "collection" else DOCS
    with monkeypatch.context() as patch:
        patch.setenv(f"CHROMAFUSE_{name.upper()}", text)
        assert getattr(load(base), name) == value
    as_toml = str(value).lower() if isinstance(value, bool) else text
    if isinstance(value, str | Path | list) or name in (
        "cache_size",
        "pointer_grep_max",
        "upload_over",
    ):
        as_toml = f'"{text}"'
    file = write(tmp_path / "one.toml", f"{name} = {as_toml}\n")
    assert getattr(load(base, file), name) == value


def test_the_table_above_has_every_setting() -> None:
    mark = next(
        mark
        for mark in getattr(
            test_every_setting_can_be_given_in_the_environment_and_in_a_file, "pytestmark", []
        )
        if mark.name == "parametrize"
    )
    # The token itself stands in no file; it has tests of its own.
    assert {row[0] for row in mark.args[1]} == set(Settings.model_fields) - {"token"}


# -- forms of values


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("1048576", 1 << 20), ("256M", 256 << 20), ("256MB", 256 << 20),
        ("256MiB", 256 << 20), ("1G", 1 << 30), ("1 k", 1024), (" 2m ", 2 << 20), (4096, 4096),
    ],
)  # fmt: skip
def test_sizes_are_numbers_with_or_without_a_unit(text: str | int, size: int) -> None:
    assert load({**DOCS, "cache_size": text}).cache_size == size


@pytest.mark.parametrize("text", ["", "M", "1T", "-1", "1.5G", "lots", "1G2", "0x10", -1])
def test_what_is_no_size_is_refused(text: str | int) -> None:
    assert refusal({**DOCS, "cache_size": text}).startswith("--cache-size ")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("abc", True), ("a1c", True), ("A.b-c_d", True), ("a" * 512, True), ("a" * 513, False),
        ("ab", False), ("", False), ("-abc", False), ("abc.", False), ("a b", False),
        ("abc\n", False), ("a/b", False), ("äbc", False),
    ],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_collection_names_are_those_that_chroma_takes(name: str, fits: bool) -> None:
    if fits:
        assert load({"collection": name}).collection == name
    else:
        assert refusal({"collection": name}).startswith("--collection ")


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        ("a", ["a"]), ("a,b", ["a", "b"]), (" a , B ", ["a", "B"]), (["a", "b c"], ["a", "b c"]),
    ],
)  # fmt: skip
def test_groups_are_names_between_commas_case_kept(given: object, groups: list[str]) -> None:
    assert load({**DOCS, "groups": given}).groups == groups


@pytest.mark.parametrize("given", ["", "a,", ",", "a,,b"])
def test_an_empty_group_name_is_refused(given: str) -> None:
    assert "empty name" in refusal({**DOCS, "groups": given})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deadline", 0), ("deadline", -1), ("deadline", 3601), ("deadline", "soon"),
        ("deadline", "nan"), ("deadline", "inf"), ("chunk_size", 0), ("chunk_size", 16_001),
        ("chunk_size", "big"), ("embed", "openai"), ("preset", "hugo"), ("hidden", "yes"),
        ("default_access", "open"), ("empty_groups", "public"), ("log_level", "loud"),
        ("allow_other", "maybe"), ("chroma", ""), ("token_fd", -1), ("token_fd", 2**31),
        ("token_fd", "stdin"), ("jwt_leeway", -1), ("jwt_leeway", 301), ("jwt_leeway", "nan"),
        ("pointers_allowed", ["/etc"]), ("pointers_allowed", ["s3://bucket/../x"]),
        ("pointers", ["/srv"]), ("pointers", ["../x=s3://bucket/x"]), ("pointers", ["x=s3://b"]),
        ("s3_endpoint", "http://user:word@h"), ("s3_endpoint", "h:1"), ("s3_region", ""),
        ("metrics", "9464"), ("metrics", ":1"), ("metrics", "h:"), ("metrics", "h:65536"),
        ("metrics_file", "/tmp/x"), ("metrics_file", "/tmp/.prom"), ("metrics_file", ""),
        ("metrics", "::1:9"), ("metrics", "[h]:1"), ("metrics", "h:-1"), ("metrics", "h:1x"),
        ("audience", ""), ("groups_claim", ""), ("groups_delimiter", ""), ("jwt_key", ""),
        ("jwt_algorithms", "RS256,"), ("token_file", ""), ("tokens_file", ""),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_and_its_flag_named(name: str, value: object) -> None:
    assert refusal({**DOCS, name: value}).startswith("--" + name.replace("_", "-") + " ")


def test_what_hides_from_grep_needs_to_know_who_is_grep() -> None:
    given = {**DOCS, "hide_large_from_grep": True}
    assert load(given).hide_large_from_grep
    for pushdown in ("cgrep", "off"):
        assert "needs pushdown auto" in refusal({**given, "pushdown": pushdown})


# -- mistakes


def test_a_missing_collection_says_how_to_give_it() -> None:
    assert refusal({}) == "--collection is missing (or set CHROMAFUSE_COLLECTION)"


def test_all_mistakes_are_told_together_each_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHROMAFUSE_LOG_LEVEL", "loud")
    monkeypatch.setenv("CHROMAFUSE_COLLETCION", "docs")
    system = system_file(tmp_path, "typo = 1\nhidden = 'perhaps'")
    user = user_file(tmp_path, "also_a_typo = 2")
    text = refusal({"deadline": -1.0})
    for part in (
        "--deadline ", "CHROMAFUSE_LOG_LEVEL ", "unknown variable CHROMAFUSE_COLLETCION",
        f"unknown key typo in {system}", f"hidden in {system}",
        f"unknown key also_a_typo in {user}", "--collection is missing",
    ):  # fmt: skip
        assert part in text


def test_an_unknown_variable_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMAFUSE_DEADLIN", "3")
    assert "CHROMAFUSE_DEADLIN" in refusal(DOCS)


@pytest.mark.parametrize("text", ["deadline = ", "[", "a = 1\na = 2", "\ufeffdeadline = 1", "x\0"])
def test_a_file_that_is_not_toml_is_named(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.toml", text)
    assert f"{file} is not TOML" in refusal(DOCS, file)


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(b"collection = '\xff'")
    assert f"{file} is not TOML" in refusal({}, file)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert f"cannot read {tmp_path / 'none.toml'}" in refusal(DOCS, tmp_path / "none.toml")
    assert f"cannot read {tmp_path}" in refusal(DOCS, tmp_path)


def test_pointers_may_be_a_table_of_paths(tmp_path: Path) -> None:
    text = '[pointers]\n"reference/api.json" = "s3://bucket/v1/api.json"\n'
    settings = load(DOCS, write(tmp_path / "one.toml", text))
    assert settings.registrations == [
        ("reference/api.json", parse_location("s3://bucket/v1/api.json"))
    ]


def test_a_table_in_a_file_is_an_unknown_key(tmp_path: Path) -> None:
    file = write(tmp_path / "table.toml", "[mount]\ndeadline = 3")
    assert f"unknown key mount in {file}" in refusal(DOCS, file)


def test_a_secret_of_a_refused_target_is_not_told(tmp_path: Path) -> None:
    file = write(tmp_path / "x.toml", 'chroma = "http://user:hunter2@h"\ndeadline = -1')
    assert "hunter2" not in refusal(DOCS, file)


def test_one_load_does_not_leak_into_the_next(tmp_path: Path) -> None:
    assert load({}, write(tmp_path / "x.toml", 'collection = "one"\ndeadline = 7')).deadline == 7
    assert load(DOCS).deadline == 10


def test_settings_cannot_be_changed() -> None:
    settings = load(DOCS)
    with pytest.raises(ValueError, match="frozen"):
        settings.deadline = 3.0


# -- forms that are nearly right


@pytest.mark.parametrize(
    "name",
    [
        "cache_size", "deadline", "max_stale", "chunk_size", "search_timeout", "refresh",
        "redis_ttl", "token_fd", "jwt_leeway",
    ],
)  # fmt: skip
def test_a_boolean_is_no_number(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / "one.toml", f"{name} = true\n")
    assert refusal(DOCS, file) == f"{name} in {file} should be a number, not true or false"


def test_a_size_of_thousands_of_digits_is_refused_clearly(tmp_path: Path) -> None:
    largest = 2**63 - 1
    for text in ("1" * 5_000, "9" * 19, "9000000000G"):
        assert refusal({**DOCS, "cache_size": text}) == (
            f"--cache-size should be less than or equal to {largest}"
        )
    assert load({**DOCS, "cache_size": str(largest)}).cache_size == largest
    assert load({**DOCS, "cache_size": "0" * 5_000 + "7"}).cache_size == 7
    file = write(tmp_path / "one.toml", f"cache_size = {'1' * 5_000}\n")
    assert f"{file} is not TOML" in refusal(DOCS, file)
    file = write(tmp_path / "deep.toml", f"exclude = {'[' * 50_000}\n")
    assert f"{file} is nested too deeply" in refusal(DOCS, file)


@pytest.mark.parametrize("name", ["include", "exclude", "groups"])
def test_a_list_in_the_environment_may_be_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"CHROMAFUSE_{name.upper()}"
    monkeypatch.setenv(variable, '["*.mdx", "a,b"]')
    assert getattr(load(DOCS), name) == ["*.mdx", "a,b"]
    for text in ('["*.mdx"', '["a",]', '["a"],b', '["a", ' + "[" * 50_000):
        monkeypatch.setenv(variable, text)
        assert refusal(DOCS).startswith(f"{variable} begins like a JSON list and is none: ")
    for text in ('["a", 1]', '["a", ""]'):
        monkeypatch.setenv(variable, text)
        assert refusal(DOCS).startswith(f"{variable} ")
    monkeypatch.setenv(variable, "[ab].md,[c]")
    assert getattr(load(DOCS), name) == ["[ab].md", "[c]"]


def test_a_home_that_nobody_has_is_refused() -> None:
    for name in ("chroma", "log_file", "token_file", "jwt_key", "tokens_file", "metrics_file"):
        flag = "--" + name.replace("_", "-")
        assert refusal({**DOCS, name: "~nouser/x"}).startswith(f"{flag} begins with ~nouser")
    assert load({**DOCS, "chroma": "~/x"}).chroma == "~/x"


def test_an_empty_log_file_is_refused() -> None:
    assert refusal({**DOCS, "log_file": ""}) == "--log-file should not be empty"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert "set HOME" in refusal(DOCS)


@pytest.mark.parametrize("name", ["docs.switch", "docs.takeover"])
def test_a_collection_named_like_a_lock_is_refused(name: str) -> None:
    assert "name of a lock" in refusal({"collection": name})


def test_the_endings_refused_are_those_of_the_locks() -> None:
    assert set(LOCK_ENDINGS) == {LOCK_SUFFIX, GUARD_SUFFIX}
