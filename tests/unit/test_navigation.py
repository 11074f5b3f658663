"""The navigation of a Mintlify site, from files on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from chromafuse.domain.access import AUTHENTICATED, HIDDEN, PUBLIC
from chromafuse.domain.errors import IngestError
from chromafuse.ingest.navigation import (
    MAX_CONFIG_BYTES,
    Entry,
    Navigation,
    is_endpoint,
    read_navigation,
)
from chromafuse.ingest.selection import Listed, imported_files, resolve_entries
from chromafuse.ingest.sources import SourceOptions, find_sources


def read(root: Path, files: dict[str, object], *, lenient: bool = False) -> Navigation:
    """Write ``files``, JSON unless text, and read the navigation of ``docs.json``."""
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))

    def load(rel: str, limit: int) -> tuple[str, bytes]:
        try:
            data = (root / rel).read_bytes()
        except OSError as error:
            raise IngestError(str(error.strerror)) from None
        if len(data) > limit:
            raise IngestError("too large")
        return rel, data

    return read_navigation("docs.json", load, lenient=lenient)


def pages(navigation: Navigation) -> list[str]:
    assert navigation.entries is not None
    return [entry.page for entry in navigation.entries]


def nav(value: object) -> dict[str, object]:
    return {"docs.json": {"navigation": value}}


def test_every_container(tmp_path: Path) -> None:
    group = {"group": "G", "root": "g/root", "pages": ["g/a", {"group": "H", "pages": ["/g/b"]}]}
    tree = {
        "languages": [
            {
                "language": "en",
                "versions": [
                    {
                        "version": "1",
                        "products": [
                            {
                                "product": "p",
                                "tabs": [
                                    {"tab": "t", "menu": [{"item": "i", "pages": ["menu"]}]},
                                    {
                                        "tab": "u",
                                        "dropdowns": [{"dropdown": "d", "groups": [group]}],
                                    },
                                ],
                            }
                        ],
                    }
                ],
            }
        ],
        "global": {"anchors": [{"anchor": "x", "href": "/ignored", "pages": ["./anchor"]}]},
        "pages": "single",
    }
    found = pages(read(tmp_path, nav(tree)))
    assert set(found) == {"menu", "g/root", "g/a", "g/b", "anchor", "single"}


def test_old_list_and_bom(tmp_path: Path) -> None:
    text = "\ufeff" + json.dumps({"navigation": [{"group": "a", "pages": ["x", "x"]}]})
    assert pages(read(tmp_path, {"docs.json": text})) == ["x", "x"]


def test_no_navigation(tmp_path: Path) -> None:
    assert read(tmp_path, {"docs.json": {"name": "x"}}).entries is None
    assert read(tmp_path, nav({})).entries == ()


def test_hidden_and_public_are_inherited(tmp_path: Path) -> None:
    tree = {
        "pages": ["free"],
        "groups": [
            {
                "group": "h",
                "hidden": True,
                "pages": ["h1", {"group": "i", "hidden": False, "pages": ["h2"]}],
            },
            {
                "group": "p",
                "public": False,
                "pages": ["p1", {"group": "q", "public": True, "pages": ["p2"]}],
            },
            {"group": "w", "public": "yes", "pages": ["w1"]},
        ],
    }
    navigation = read(tmp_path, nav(tree))
    assert navigation.entries is not None
    assert set(navigation.entries) == {
        Entry("free", False, None),
        Entry("h1", True, None),
        Entry("h2", True, None),
        Entry("p1", False, AUTHENTICATED),
        Entry("p2", False, PUBLIC),
        Entry("w1", False, HIDDEN),
    }
    assert len(navigation.notices) == 1
    assert "`public` is not true or false" in navigation.notices[0].text


def test_refs(tmp_path: Path) -> None:
    files: dict[str, object] = {
        "docs.json": {
            "navigation": {"$ref": "./config/nav.json", "hidden": True},
            "redirects": {"$ref": "config/redirects.json"},
        },
        "config/nav.json": {
            "hidden": False,
            "tabs": [{"$ref": "deep/tab.json"}, {"$ref": "deep/tab.json"}],
        },
        "config/deep/tab.json": {"tab": "t", "pages": {"$ref": "../../list.json", "ignored": 1}},
        "list.json": ["a", "b"],
        "config/redirects.json": [],
    }
    navigation = read(tmp_path, files)
    assert pages(navigation) == ["a", "b", "a", "b"]
    assert all(entry.hidden for entry in navigation.entries or ())
    assert navigation.site_files == set(files)


@pytest.mark.parametrize(
    ("ref", "word"),
    [
        ("../up.json", "out of the site"),
        ("a/../../up.json", "out of the site"),
        ("/etc/passwd", "out of the site"),
        ("docs.json", "circle"),
        ("missing.json", "No such file"),
        ("", "not a path"),
        ("a\0b", "not a path"),
        ("\ud800", "not a path"),
        (7, "not a path"),
        ("text.json", "not JSON"),
        ("a\nb\x1b[31m", "\\u000ab\\u001b"),
    ],
)
def test_bad_refs_name_file_and_ref(tmp_path: Path, ref: object, word: str) -> None:
    files: dict[str, object] = {
        "docs.json": {"navigation": {"$ref": "config.json"}},
        "config.json": {"pages": [{"$ref": ref}]},
        "text.json": "no json",
    }
    with pytest.raises(IngestError) as caught:
        read(tmp_path, files)
    message = str(caught.value)
    assert message.startswith("config.json: $ref")
    assert word in message
    assert message.isprintable()


def test_ref_cycle_of_two(tmp_path: Path) -> None:
    files: dict[str, object] = {
        "docs.json": {"navigation": {"$ref": "a.json"}},
        "a.json": {"pages": [{"$ref": "b.json"}]},
        "b.json": {"pages": [{"$ref": "a.json"}]},
    }
    with pytest.raises(IngestError, match="circle"):
        read(tmp_path, files)


@pytest.mark.parametrize(("length", "fine"), [(32, True), (33, False)])
def test_refs_in_a_row(tmp_path: Path, length: int, fine: bool) -> None:
    files: dict[str, object] = {"docs.json": {"navigation": {"$ref": "1.json"}}}
    files |= {f"{i}.json": {"$ref": f"{i + 1}.json"} for i in range(1, length)}
    files[f"{length}.json"] = {"pages": ["x"]}
    if fine:
        assert pages(read(tmp_path, files)) == ["x"]
    else:
        with pytest.raises(IngestError, match="in a row"):
            read(tmp_path, files)


def test_ref_bomb(tmp_path: Path) -> None:
    files: dict[str, object] = {"docs.json": {"navigation": {"$ref": "1.json"}}}
    files |= {f"{i}.json": {"pages": [{"$ref": f"{i + 1}.json"}] * 10} for i in range(1, 20)}
    files["20.json"] = {"pages": ["x"]}
    with pytest.raises(IngestError, match="too many entries"):
        read(tmp_path, files)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"navigation":' + "[" * 300 + "]" * 300 + "}", "nested too deeply"),
        ('{"navigation": null}', "neither an object nor a list"),
        ('{"navigation": "x"}', "neither an object nor a list"),
        ('{"$ref": "list.json"}', "does not lead to a JSON object"),
        ('{"navigation": {}, "a": ' + "1" * 5_000 + "}", "not JSON"),
    ],
)
def test_unsafe_documents(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(IngestError, match=word):
        read(tmp_path, {"docs.json": text, "list.json": []})


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "docs.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(IngestError, match="not UTF-8"):
        read(tmp_path, {})


def test_size_limit_counts_all_files(tmp_path: Path) -> None:
    half = '{"x": "' + "a" * (MAX_CONFIG_BYTES // 2) + '"}'
    files: dict[str, object] = {"docs.json": {"a": {"$ref": "1.json"}}, "1.json": half}
    assert read(tmp_path, files).entries is None
    files = {"docs.json": {"a": {"$ref": "1.json"}, "b": {"$ref": "2.json"}}, "2.json": half}
    with pytest.raises(IngestError, match="too large"):
        read(tmp_path, files)


def test_lenient_takes_other_json(tmp_path: Path) -> None:
    assert read(tmp_path, {"docs.json": "[1, 2]"}, lenient=True).entries is None
    with pytest.raises(IngestError):
        read(tmp_path, {"docs.json": "{"}, lenient=True)


def test_foreign_entries(tmp_path: Path) -> None:
    navigation = read(tmp_path, nav({"pages": ["../x", "/", "a\0b", 5, None, ["nested"]]}))
    assert pages(navigation) == ["../x", "", "a\0b", "nested"]
    assert len(navigation.notices) == 1


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("GET /users", True),
        ("post /users/{id}", True),
        ("/openapi.json DELETE /x", True),
        ("webhook order.created", True),
        ("guides/get", False),
        ("get", False),
        ("a/GET /users", False),
    ],
)
def test_endpoints(entry: str, expected: bool) -> None:
    assert is_endpoint(entry) is expected


def _entry(page: str, *, hidden: bool = False, rule: object = None) -> Entry:
    return Entry(page, hidden, rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "files"),
    [
        ("foo", ["foo.md", "foo.mdx"]),
        ("bar", ["bar/index.mdx"]),
        ("old", ["old/index.md"]),
        ("foo.mdx", ["foo.mdx"]),
        ("", ["index.mdx"]),
        ("get started", ["get started.md"]),
        ("Foo", []),
        ("foo/", ["foo.md", "foo.mdx"]),
        ("../foo", []),
        ("bar/index", ["bar/index.mdx"]),
    ],
)
def test_files_of_an_entry(entry: str, files: list[str]) -> None:
    rels = {"foo.md", "foo.mdx", "foo/index.mdx", "bar/index.mdx", "old/index.md", "index.mdx"}
    rels.add("get started.md")
    listed, missing = resolve_entries([_entry(entry)], rels)
    assert sorted(listed) == sorted(files)
    assert missing == ([] if files else [entry])


def test_first_entry_decides_access_but_never_against_a_closing_one() -> None:
    def rule(*rules: object) -> object:
        return resolve_entries([_entry("a", rule=item) for item in rules], {"a.md"})[0]["a.md"].rule

    assert rule(PUBLIC, AUTHENTICATED) == PUBLIC
    assert rule(AUTHENTICATED, PUBLIC) == AUTHENTICATED
    assert rule(None, PUBLIC) is None
    assert rule(None, AUTHENTICATED) == AUTHENTICATED
    assert rule(None, HIDDEN, PUBLIC) == HIDDEN


def test_visible_if_shown_anywhere() -> None:
    entries = [_entry("a", hidden=True), _entry("a"), _entry("b", hidden=True)]
    listed, missing = resolve_entries(
        [*entries, _entry("GET /x"), _entry("c"), _entry("c")], {"a.md", "b.md"}
    )
    assert listed == {"a.md": Listed(True, None), "b.md": Listed(False, None)}
    assert missing == ["c"]


def test_imports() -> None:
    head = "\n".join(
        [
            'import A from "/snippets/a.mdx"',
            "import { b, c } from './b.mdx';",
            'import D from "../../d.md"',
            'import "side.mdx"',
            'import E from "/e.jsx"',
            "```js",
            'import X from "/x.mdx"',
            "~~~",
            'import X from "/x.mdx"',
            "```",
            'import F from "/f.mdx"',
            'text import Y from "/y.mdx"',
        ]
    )
    found = imported_files("a/b/page.mdx", head)
    assert found == {"snippets/a.mdx", "a/b/b.mdx", "d.md", "a/b/side.mdx", "f.mdx"}


def test_no_site_is_read_through_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "docs.json")
    with pytest.raises(IngestError, match="FIFO"):
        find_sources(tmp_path, SourceOptions())
