"""The stored form of the tree: exact for our own, careful with that of others."""

from __future__ import annotations

import base64
import gzip
import json
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import (
    ANONYMOUS,
    AUTHENTICATED,
    HIDDEN,
    PUBLIC,
    AccessRule,
    Identity,
    any_of,
)
from chromafuse.domain.errors import TreeError
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.tree import PathTree, TreeVersion, build_tree, prune
from chromafuse.domain.treecodec import (
    TREE_ID,
    decode_tree,
    encode_tree,
    part_ids,
    text_version,
    unpack,
)
from tests.support.strategies import identities, stored_pages

DEFAULT_NS = 1_700_000_000_000_000_007
SHOWN = {"isPublic": True, "groups": []}

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.sampled_from(["1e999999", "-9e999999", "9" * 400, "1700000000.25", "2024-13-45T99"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["isPublic", "groups", "access", "size", "mtime", "updated_at", "version", "chunks",
          "file", "marks"]  # fmt: skip
entries = st.one_of(
    json_values,
    st.dictionaries(st.sampled_from(FIELDS), json_values),
    st.dictionaries(st.sampled_from(FIELDS), json_values).map(lambda entry: {**SHOWN, **entry}),
)
hostile_slugs = st.one_of(
    st.text(),
    st.lists(st.sampled_from(["..", ".", "", "a", "b", "\0", "\ud800", "x" * 300]), max_size=4).map(
        "/".join
    ),
)


def decode(document: str, **options: object) -> PathTree:
    return decode_tree(
        document,
        TreeVersion("v"),
        default_mtime_ns=DEFAULT_NS,
        **options,  # type: ignore[arg-type]
    )


def short(value: object) -> str:
    """A test's id: the same in every process, and no longer than a person reads."""
    return ascii(value)[:40]


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


# -- our own trees


@given(stored_pages(), st.integers(1, 200))
def test_any_tree_comes_back_equal_whatever_the_size_of_a_record(
    pages: Sequence[Page], record_bytes: int
) -> None:
    tree = build_tree(pages, TreeVersion("v"))
    text = encode_tree(tree.pages, record_bytes)
    assert all(0 < len(document.encode()) <= record_bytes for document in text.documents)
    found = decode("".join(text.documents))
    assert not found.rejected
    assert [_comparable(page) for page in found.pages] == [_comparable(p) for p in tree.pages]


def _comparable(page: Page) -> tuple[object, ...]:
    # Two rules that nobody can meet are one rule.
    rule = HIDDEN if page.rule.is_hidden else page.rule
    return (page.slug, page.path, rule, page.size, page.mtime_ns, page.version, page.chunks,
            page.cut, page.nul, page.damage)  # fmt: skip


@given(stored_pages(), st.integers(1, 200))
def test_the_text_depends_on_the_pages_only(pages: Sequence[Page], record_bytes: int) -> None:
    one = encode_tree(pages, record_bytes)
    other = encode_tree(list(reversed(pages)), record_bytes)
    assert one == other
    assert encode_tree(pages, 10_000).version == one.version


@given(stored_pages(), identities)
def test_a_reader_of_the_bare_shape_shows_no_more_than_the_mount(
    pages: Sequence[Page], identity: Identity
) -> None:
    """Such a reader knows ``isPublic`` and ``groups`` and compares groups as strings."""
    text = encode_tree(pages, 1_000_000)
    bare = json.loads(gzip.decompress(base64.b64decode("".join(text.documents))))
    rules: dict[str, AccessRule] = {page.slug: page.rule for page in pages}
    assert set(bare) == set(rules)
    for slug, entry in bare.items():
        shown = entry["isPublic"] or not identity.groups.isdisjoint(entry["groups"])
        assert not shown or rules[slug].allows(identity)


def test_a_page_whose_slug_ends_like_a_file_keeps_its_name() -> None:
    page = Page(Slug("a.mdx"), b"a.mdx.mdx", PUBLIC, 0, 0)
    plain = Page(Slug("a"), b"a.mdx", PUBLIC, 0, 0)
    text = encode_tree([page, plain], 10_000)
    assert [found.path for found in decode(text.documents[0]).pages] == [b"a.mdx", b"a.mdx.mdx"]


@pytest.mark.parametrize("mtime_ns", [0, 1, -1, 10**9, -(10**9), -(10**9) - 1, 123_456_789_012])
def test_times_are_exact_to_the_nanosecond_also_before_1970(mtime_ns: int) -> None:
    text = encode_tree([Page(Slug("a"), b"a.mdx", PUBLIC, 0, mtime_ns)], 10_000)
    assert decode(text.documents[0]).pages[0].mtime_ns == mtime_ns


def test_a_time_is_decimal_seconds_for_other_readers() -> None:
    pages = [Page(Slug("a"), b"a.mdx", PUBLIC, 0, 1_700_000_000_250_000_000)]
    raw = unpack(encode_tree(pages, 10_000).documents[0])
    assert json.loads(raw)["a"]["mtime"] == "1700000000.25"


def test_a_changed_page_changes_the_version() -> None:
    page = Page(Slug("a"), b"a.mdx", PUBLIC, 0, 0)
    others = [
        Page(Slug("b"), b"a.mdx", PUBLIC, 0, 0),
        Page(Slug("a"), b"a.md", PUBLIC, 0, 0),
        Page(Slug("a"), b"a.mdx", HIDDEN, 0, 0),
        Page(Slug("a"), b"a.mdx", PUBLIC, 1, 0),
        Page(Slug("a"), b"a.mdx", PUBLIC, 0, 1),
        Page(Slug("a"), b"a.mdx", PUBLIC, 0, 0, cut=True),
    ]
    versions = {encode_tree([one], 1_000).version for one in [page, *others]}
    assert len(versions) == 1 + len(others)
    assert encode_tree([page], 1_000).version == encode_tree([page], 1_000).version


def test_only_the_first_record_of_a_tree_has_a_fixed_id() -> None:
    one, other = part_ids(TreeVersion("1"), 3), part_ids(TreeVersion("2"), 3)
    assert one[0] == other[0] == TREE_ID
    assert len({*one, *other}) == 5
    assert part_ids(TreeVersion("1"), 1) == [TREE_ID]


# -- trees of others


BARE = {
    "auth/oauth": {"isPublic": True, "groups": []},
    "admin": {"isPublic": False, "groups": ["admin"]},
    "internal": {"isPublic": False, "groups": []},
    "readme.mdx": {"isPublic": True, "groups": []},
}


@pytest.mark.parametrize(
    "document",
    [
        json.dumps(BARE),
        json.dumps(BARE, indent=2),
        "\n " + json.dumps(BARE) + "\n",
        packed(json.dumps(BARE)),
        packed(json.dumps(BARE)) + "\n",
    ],
    ids=["json", "indented", "padded", "gzip", "gzip-newline"],
)
def test_the_bare_shape_is_read_plain_or_packed(document: str) -> None:
    tree = decode(document)
    assert [page.path for page in tree.pages] == [
        b"admin.mdx", b"auth/oauth.mdx", b"internal.mdx", b"readme.mdx"
    ]  # fmt: skip
    assert {page.slug: page.rule for page in tree.pages} == {
        "auth/oauth": PUBLIC, "admin": any_of(["admin"]), "internal": HIDDEN, "readme.mdx": PUBLIC
    }  # fmt: skip
    for page in tree.pages:
        assert (page.version, page.chunks, page.size) == (None, None, 0)
        assert page.mtime_ns == DEFAULT_NS


def test_empty_groups_of_others_mean_what_the_operator_says() -> None:
    tree = decode(json.dumps(BARE), empty_groups=AUTHENTICATED)
    assert {page.slug: page.rule for page in tree.pages}[Slug("internal")] == AUTHENTICATED
    assert len(prune(tree, ANONYMOUS).pages) == 2


@pytest.mark.parametrize(
    "given_ones",
    [
        {"size": 12},
        {"size": 12, "chunks": 1},
        {"version": "0" * 32, "chunks": 1},
        {"version": "0" * 32, "size": 12},
        {"version": "1.0", "size": 12, "chunks": 1},
        {"version": "0" * 32, "size": -1, "chunks": 1},
        {"version": "0" * 32, "size": 12.0, "chunks": 1},
        {"version": "0" * 32, "size": True, "chunks": 1},
        {"version": "0" * 32, "size": 12, "chunks": 0},
        {"version": "0" * 32, "size": 12, "chunks": 13},
        {"version": "0" * 32, "size": 1 << 62, "chunks": 1},
        {"version": "0" * 32, "size": 10**30, "chunks": 10**30},
    ],
)
def test_sizes_that_cannot_be_believed_are_measured_instead(given_ones: dict[str, object]) -> None:
    page = decode(json.dumps({"a": {**SHOWN, **given_ones}})).pages[0]
    assert (page.version, page.size, page.chunks) == (None, 0, None)


NO_TIMES: list[object] = [
    None, True, [], {}, "", "soon", "nan", "inf", "-inf", "1e999999", "9e999999", "-9e999999",
    "1e9999999999999", "9" * 5_000, 10**40, "2024-13-01T00:00:00", float("inf"), float("nan"),
    "0x10", "T", "--",
]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "expected_ns"),
    [
        ({"mtime": "1700000000.000000001"}, 1_700_000_000_000_000_001),
        ({"mtime": 1_700_000_000}, 1_700_000_000_000_000_000),
        ({"updated_at": "2024-01-02T03:04:05.25Z"}, 1_704_164_645_250_000_000),
        ({"updated_at": "2024-01-02T03:04:05.25"}, 1_704_164_645_250_000_000),
        ({"updated_at": "2024-01-02T04:04:05.25+01:00"}, 1_704_164_645_250_000_000),
        ({"updated_at": "2024-01-02"}, 1_704_153_600_000_000_000),
        ({"updated_at": "1969-12-31T23:59:59.5Z"}, -500_000_000),
        *(({"mtime": value}, DEFAULT_NS) for value in NO_TIMES),
    ],
    ids=short,
)  # fmt: skip
def test_times_of_others_are_read_or_replaced_never_an_error(
    entry: dict[str, object], expected_ns: int
) -> None:
    assert decode(json.dumps({"a": {**SHOWN, **entry}})).pages[0].mtime_ns == expected_ns


def test_times_with_absurd_exponents_cost_nothing() -> None:
    document = json.dumps({f"p{n}": {**SHOWN, "mtime": "1e900000"} for n in range(200)})
    started = time.process_time()
    assert len(decode(document).pages) == 200
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("slug", "entry", "reason"),
    [
        ("", {}, "empty name"),
        ("a/", {}, "empty name"),
        ("/a", {}, "empty name"),
        ("a//b", {}, "empty name"),
        ("../a", {}, "name . or .."),
        ("a/../b", {}, "name . or .."),
        ("a/./b", {}, "name . or .."),
        ("a\0b", {}, "name with NUL or slash"),
        ("n" * 300, {}, "name over 255 bytes"),
        ("é" * 126, {}, "name over 255 bytes"),
        ("d/" * 2_050 + "x", {}, "path over 4095 bytes"),
        ("\ud800", {}, "name not UTF-8"),
        ("a/\udcff/b", {}, "name not UTF-8"),
        ("a", {"file": "\ud800"}, "name not UTF-8"),
        ("\ud800", {"file": "fine/name.md"}, "name not UTF-8"),
        ("a", {"file": ""}, "empty name"),
        ("a", {"file": ".."}, "name . or .."),
        ("a", {"file": "../../etc/passwd"}, "name . or .."),
        ("a", {"file": "/etc/passwd"}, "empty name"),
        ("a", {"file": "a\0"}, "name with NUL or slash"),
        ("a", {"file": "n" * 300}, "name over 255 bytes"),
        ("a", {"file": 3}, "file name is not text"),
        ("a", {"file": ["a.md"]}, "file name is not text"),
        ("good", {"file": "dir"}, "a page where a directory stands"),
        ("twin", {"file": "good.mdx"}, "same path as another page"),
    ],
    ids=short,
)
def test_a_hostile_name_is_rejected_and_counted_and_its_siblings_stay(
    slug: str, entry: dict[str, object], reason: str
) -> None:
    hostile = {
        "aaa": SHOWN,
        slug: {**SHOWN, **entry},
        "dir/below": SHOWN,
        "good" if slug != "good" else "better": SHOWN,
    }
    tree = decode(json.dumps(hostile))
    assert tree.rejections() == {reason: 1}
    assert len(tree.pages) == 3
    assert b"dir/below.mdx" in tree.by_path
    assert b"aaa.mdx" in tree.by_path


def test_a_slug_that_is_page_and_prefix_shows_both() -> None:
    tree = decode(json.dumps({"auth": SHOWN, "auth/oauth": SHOWN}))
    assert [page.path for page in tree.pages] == [b"auth/oauth.mdx", b"auth.mdx"]
    assert not tree.rejected


def test_two_thousand_levels_of_directories_are_read() -> None:
    tree = decode(json.dumps({"/".join(["d"] * 2_000): SHOWN, "a": SHOWN}))
    assert len(tree.pages) == 2
    assert not tree.rejected


@given(st.dictionaries(hostile_slugs, entries, max_size=6))
def test_no_entry_whatever_breaks_the_tree_or_shows_more_than_its_marks(
    tree: dict[str, object],
) -> None:
    found = decode(json.dumps(tree))
    assert len(found.pages) + len(found.rejected) == len(tree)
    for page in prune(found, ANONYMOUS).pages:
        entry = tree[page.slug]
        assert isinstance(entry, dict)
        assert entry["isPublic"] is True
        assert entry["groups"] == []
        assert "access" not in entry


@given(st.one_of(st.text(), st.binary().map(lambda raw: base64.b64encode(raw).decode()),
                 st.text().map(packed), json_values.map(json.dumps),
                 json_values.map(json.dumps).map(packed)))  # fmt: skip
def test_garbage_is_a_tree_error_or_an_empty_tree(document: str) -> None:
    _check_garbage(document)


@given(stored_pages(), st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_byte_never_shows_anything_wrong(
    pages: Sequence[Page], position: int, value: int
) -> None:
    raw = bytearray(base64.b64decode(encode_tree(pages, 1 << 30).documents[0]))
    raw[position % len(raw)] = value
    try:
        found = decode(base64.b64encode(raw).decode())
    except TreeError:
        return
    assert sorted(_comparable(p) for p in found.pages) == sorted(_comparable(p) for p in pages)


@given(stored_pages(), st.data())
def test_a_cut_text_is_an_error(pages: Sequence[Page], data: st.DataObject) -> None:
    document = encode_tree(pages, 1 << 30).documents[0]
    with pytest.raises(TreeError):
        decode(document[: data.draw(st.integers(0, len(document) - 1))])


@pytest.mark.parametrize(
    "document",
    [
        "", " ", "null", "[]", "3", '"text"', "{", "{}x", '{"a":}', "{" * 100_000,
        '{"a":' * 100_000, '{"a":' + "[" * 100_000, "{\0}", '{"a":' + "9" * 5_000, "\ud800",
        '{"\ud800', "é", "AAAA", packed("[]"), packed("null"), packed("{"), packed(""),
        base64.b64encode(zlib.compress(b"{}")).decode(),
        base64.b64encode(gzip.compress(b"\xff\xfe{}", mtime=0)).decode(),
        base64.b64encode(gzip.compress(b"{}", mtime=0)[:-1]).decode(),
        base64.b64encode(gzip.compress(b"{}", mtime=0)[:-8] + b"\0" * 8).decode(),
        packed(packed("{}")),
    ],
    ids=short,
)  # fmt: skip
def test_known_garbage_is_a_tree_error(document: str) -> None:
    with pytest.raises(TreeError) as caught:
        decode(document)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def _check_garbage(document: str) -> None:
    try:
        found = decode(document)
    except TreeError:
        return
    text_version(document)
    assert len(prune(found, ANONYMOUS).pages) <= len(found.pages)


def test_random_bytes_never_raise_anything_else() -> None:
    source = random.Random(7)
    start = gzip.compress(b'{"a": {"isPublic": true, "groups": []}}', mtime=0)
    for _ in range(2_000):
        raw = bytearray(start)
        for _ in range(source.randint(1, 6)):
            raw[source.randrange(len(raw))] = source.randrange(256)
        _check_garbage(base64.b64encode(raw).decode())


def test_any_text_has_a_version() -> None:
    assert text_version("{}") != text_version("{} ")
    assert text_version("\ud800")


# -- size


def bomb(unpacked_bytes: int) -> str:
    """A text that unpacks to so many bytes, made without ever holding them."""
    packer = zlib.compressobj(9, wbits=31)
    block = b" " * (1 << 20)
    parts = [packer.compress(block) for _ in range(unpacked_bytes >> 20)]
    return base64.b64encode(b"".join([*parts, packer.flush()])).decode()


def traced_peak(function: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_refused_in_bounded_memory() -> None:
    limit = 8 << 20
    document = bomb(256 << 20)

    def refused() -> None:
        with pytest.raises(TreeError, match="unpacks to more than"):
            unpack(document, limit)

    assert traced_peak(refused) < 4 * limit + 4 * len(document)


def test_a_bomb_within_a_real_limit_is_refused_too() -> None:
    with pytest.raises(TreeError, match="unpacks to more than 1048576 bytes"):
        unpack(bomb(3 << 20), 1 << 20)
    assert len(unpack(bomb(1 << 20), 1 << 20)) == 1 << 20


def test_a_million_entries_load_within_seconds() -> None:
    slugs = (f"section-{n % 1_000}/topic-{n % 7}/page-{n}" for n in range(1_000_000))
    document = "{" + ",".join(f'"{slug}":{{"isPublic":true,"groups":[]}}' for slug in slugs) + "}"
    started = time.process_time()
    tree = decode(document)
    took = time.process_time() - started
    assert len(tree.pages) == 1_000_000
    assert took < 40


@pytest.mark.parametrize(
    "claim", [{"size": 1 << 60, "chunks": 4}, {"size": 1 << 28, "chunks": 200_000_000}]
)
def test_a_page_larger_than_any_ingest_writes_is_damaged_and_never_fetched(
    claim: dict[str, int],
) -> None:
    entry = {"isPublic": True, "groups": [], "version": "1" * 32, **claim}
    [page] = decode(json.dumps({"a": entry})).pages
    assert page.damage is not None
    assert (page.size, page.chunks) == (0, None)


def test_a_slug_or_mark_that_stands_twice_is_hidden() -> None:
    restricted, public = '{"isPublic":false,"groups":["x"]}', '{"isPublic":true,"groups":[]}'
    twice = f'{{"a":{restricted},"a":{public},"b":{public}}}'
    assert [page.rule.is_hidden for page in decode(twice).pages] == [True, False]
    marks = '{"a":{"isPublic":false,"isPublic":true,"groups":[]}}'
    assert [page.rule.is_hidden for page in decode(marks).pages] == [True]
