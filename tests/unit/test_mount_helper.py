"""The arguments of a mount helper."""

from __future__ import annotations

import inspect

import pytest

from chromafuse.cli.helper import FLAGS, VALUES, UsageError, parse
from chromafuse.cli.mount import mount


def words(options: str, *more: str) -> list[str]:
    return list(parse(["docs", "/mnt", *more, "-o", options]).words)


def test_what_mount_hands_over_becomes_a_command() -> None:
    given = words("rw,nosuid,cache-size=1G,groups=admin,allow_other,_netdev,x-systemd.automount")
    assert given == [
        "mount", "--cache-size=1G", "--groups=admin", "--allow-other", "--collection=docs", "--",
        "/mnt",
    ]  # fmt: skip


def test_without_options() -> None:
    assert parse(["docs", "/mnt"]).words == ["mount", "--collection=docs", "--", "/mnt"]


def test_a_hub_and_another_collection_than_the_source_names() -> None:
    assert words("hub,collection=site") == ["hub", "--collection=site", "--", "/mnt"]


@pytest.mark.parametrize("text", [r"groups=a\,b", 'groups="a,b"', '"groups=a,b"'])
def test_commas_in_values(text: str) -> None:
    assert words(f"ro,{text},warm=off")[1:3] == ["--groups=a,b", "--warm=off"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("colour=red", "unknown option colour"),
        ("token=secret", "unknown option token"),
        ("token_fd=3", "unknown option token_fd"),
        ("foreground", "unknown option foreground"),
        ("chroma", "the option chroma wants a value"),
        ("allow_other=yes", "unknown option allow_other"),
        ("remount,ro", "cannot be changed"),
        ('groups="a', "quote"),
    ],
)
def test_refusals(options: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        words(options)


@pytest.mark.parametrize(
    "given", [[], ["docs"], ["docs", "/a", "/b"], ["docs", ""], ["-x", "a", "b"]]
)
def test_wrong_usage(given: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(given)


def test_sloppy_ignores_what_is_unknown_and_keeps_the_rest() -> None:
    assert words("colour=red,warm=off", "-s")[1] == "--warm=off"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("rw", False), ("noexec", True), ("noexec,exec", False), ("user", True),
        ("users,exec", False), ("rw,noexec,nosuid,nodev,user=me", True),
    ],
)  # fmt: skip
def test_whether_programs_may_be_run(options: str, expected: bool) -> None:
    assert parse(["docs", "/mnt", "-o", options]).noexec is expected


def test_letters() -> None:
    request = parse(["docs", "/mnt", "-fnv", "-t", "chromafuse", "-o", "rw"])
    assert request.is_fake
    assert request.is_verbose


def test_every_setting_of_a_mount_is_an_option() -> None:
    own = set(inspect.signature(mount).parameters)
    assert own - {"mountpoint", "foreground", "token_fd"} == VALUES | FLAGS
