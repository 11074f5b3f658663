"""Addresses of objects: strict, canonical, and never wider than what is configured."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import PUBLIC
from chromafuse.domain.errors import ConfigError
from chromafuse.domain.page import Page, Slug, Version, chunk_ids
from chromafuse.domain.pointer import (
    MAX_KEY_BYTES,
    Location,
    Pointer,
    PointerProblem,
    allowed,
    parse_location,
    parse_place,
    pointer_from_entry,
    pointer_to_entry,
)
from chromafuse.domain.tree import PathTree, TreeVersion
from chromafuse.domain.treecodec import decode_tree, encode_tree

SHOWN = {"isPublic": True, "groups": []}


def _fits(key: str) -> bool:
    try:
        Location("s3", "bucket", key)
    except PointerProblem:
        return False
    return True


keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(_fits)


@given(keys)
def test_an_address_leads_back_to_its_location(key: str) -> None:
    for location in (Location("s3", "bucket", key), Location("file", "", key)):
        assert parse_location(location.url) == location
        assert location.url.isascii()
        assert not set(location.url) & set(' "<>\\^`{|}?#\n')


@given(st.text(max_size=30))
def test_whatever_is_parsed_has_no_way_up_and_no_empty_part(text: str) -> None:
    for start in ("s3://bucket/", "file:///", ""):
        try:
            location = parse_location(start + text)
        except PointerProblem:
            continue
        assert not {"", ".", ".."} & set(location.key.split("/"))
        assert parse_location(location.url) == location


@pytest.mark.parametrize(
    "url",
    [
        "", "/etc/passwd", "http://169.254.169.254/latest", "S3://bucket/x", "s3:/bucket/x",
        "s3://bucket", "s3://bucket/", "s3:///x", "s3://Bucket/x", "s3://b/x", "s3://a..b/x",
        "s3://169.254.169.254/x", "s3://bucket:80/x", "s3://user@bucket/x", "s3://bu%63ket/x",
        "s3://bucket/../x", "s3://bucket/a/../x", "s3://bucket/..", "s3://bucket/./x",
        "s3://bucket//x", "s3://bucket/x/", "s3://bucket/a//x", "s3://bucket/%2e%2e/x",
        "s3://bucket/.%2E/x", "s3://bucket/a%2fb", "s3://bucket/a%2Fb", "s3://bucket/x?version=1",
        "s3://bucket/x#y", "s3://bucket/100%", "s3://bucket/%zz", "s3://bucket/%00",
        "s3://bucket/%ff", "s3://bucket/a\nb", "s3://bucket/\ud800", "s3://bucket\n/x",
        "file://etc/passwd", "file://localhost/etc/passwd", "file:///", "file:////etc/passwd",
        "file:///srv/../etc/passwd", "file:///srv/%2e%2e/etc", "s3://bucket/" + "x" * 1_025,
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(PointerProblem) as caught:
        parse_location(url)
    assert not url or url not in str(caught.value)


def test_the_longest_key_is_one() -> None:
    key = "é" * (MAX_KEY_BYTES // 2)
    assert parse_location(Location("s3", "bucket", key).url).key == key


@pytest.mark.parametrize(
    ("place", "url", "is_allowed"),
    [
        ("s3://bucket", "s3://bucket/x", True),
        ("s3://bucket/", "s3://bucket/a/b", True),
        ("s3://bucket", "s3://bucket2/x", False),
        ("s3://bucket", "s3://my-bucket/x", False),
        ("s3://bucket/a", "s3://bucket/a/x", True),
        ("s3://bucket/a/", "s3://bucket/a/x", True),
        ("s3://bucket/a", "s3://bucket/a", True),
        ("s3://bucket/a", "s3://bucket/ab", False),
        ("s3://bucket/a", "s3://bucket/ab/x", False),
        ("s3://bucket/a", "s3://bucket/A/x", False),
        ("s3://bucket/a%20b", "s3://bucket/a%20b/x", True),
        ("file:///srv/specs", "file:///srv/specs/x", True),
        ("file:///srv/specs/", "file:///srv/specs-old/x", False),
        ("file:///srv/specs", "file:///etc/passwd", False),
        ("file:///srv", "s3://srv/x", False),
    ],
)
def test_only_what_is_below_a_place_is_allowed(place: str, url: str, is_allowed: bool) -> None:
    assert allowed([parse_place(place)], parse_location(url)) is is_allowed
    assert not allowed([], parse_location(url))


@pytest.mark.parametrize("text", ["bucket", "s3://", "file:///", "file://host/x", "s3://b/../x"])
def test_a_place_that_is_none_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_place(text)


# -- in the tree


def decode(entries: object) -> PathTree:
    return decode_tree(json.dumps(entries), TreeVersion("v"), default_mtime_ns=0)


@given(keys, st.integers(0, 1 << 40), st.text("0123456789abcdef-", min_size=1, max_size=40))
def test_an_entry_leads_back_to_its_pointer(key: str, size: int, etag: str) -> None:
    pointer = Pointer(Location("s3", "bucket", key), size, etag)
    assert pointer_from_entry(pointer_to_entry(pointer), size) == pointer
    page = Page(
        Slug("api-specs/x.json"), b"api-specs/x.json", PUBLIC, size, 5_000_000_000,
        Version(pointer.version), 0, pointer=pointer,
    )  # fmt: skip
    text = encode_tree([page], 100_000)
    tree = decode_tree("".join(text.documents), text.version, default_mtime_ns=0)
    assert tree.pages == (page,)
    assert chunk_ids(page) == []


@pytest.mark.parametrize(
    ("entry", "size"),
    [
        (None, 5),
        ("s3://bucket/x", 5),
        ([], 5),
        ({}, 5),
        ({"etag": "e"}, 5),
        ({"url": "s3://bucket/x", "etag": "e", "more": 1}, 5),
        ({"url": 7, "etag": "e"}, 5),
        ({"url": "s3://bucket/../x", "etag": "e"}, 5),
        ({"url": "s3://bucket/x", "etag": ""}, 5),
        ({"url": "s3://bucket/x", "etag": 'a"b'}, 5),
        ({"url": "s3://bucket/x", "etag": "a\r\nHost: b"}, 5),
        ({"url": "s3://bucket/x", "etag": "é"}, 5),
        ({"url": "s3://bucket/x", "etag": "e" * 257}, 5),
        ({"url": "s3://bucket/x", "etag": None}, 5),
        ({"url": "s3://bucket/../x"}, None),
        ({"url": "s3://bucket/x", "etag": "e"}, -1),
        ({"url": "s3://bucket/x", "etag": "e"}, True),
        ({"url": "s3://bucket/x", "etag": "e"}, 1 << 60),
    ],
)
def test_a_damaged_pointer_is_rejected_and_its_siblings_stay(entry: object, size: object) -> None:
    tree = decode(
        {
            "bad": {**SHOWN, "pointer": entry, "size": size},
            "good": {**SHOWN, "pointer": {"url": "s3://bucket/x", "etag": "e"}, "size": 3},
        }
    )
    assert [page.slug for page in tree.pages] == ["good"]
    assert [r.slug for r in tree.rejected] == ["bad"]
    assert tree.rejected[0].reason.startswith("pointer ")


@pytest.mark.parametrize(
    ("told", "size"),
    [({"etag": "e"}, None), ({}, 5), ({}, None)],
)
def test_what_an_entry_does_not_tell_is_not_known_and_no_damage(
    told: dict[str, object], size: object
) -> None:
    entry = {**SHOWN, "pointer": {"url": "s3://bucket/x", **told}}
    tree = decode({"page": entry if size is None else {**entry, "size": size}})
    [page] = tree.pages
    assert page.pointer is not None
    assert not page.pointer.is_known
    assert page.size == 0


def test_every_object_and_version_has_a_page_version_of_its_own() -> None:
    made = {
        Pointer(Location("s3", bucket, key), size, etag).version
        for bucket in ("aaa", "bbb")
        for key in ("x", "y")
        for size in (1, 2)
        for etag in ("e", "f")
    }
    assert len(made) == 16
