"""Trees that other tools wrote, and hostile ones: shown right, or skipped and counted."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import chromadb
import pytest

from tests.mount.harness import Site

pytestmark = pytest.mark.xdist_group("mount-foreign")

PUBLIC = {"isPublic": True, "groups": []}


class Foreign:
    """A collection filled by hand, as another tool would."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._client: Any = chromadb.PersistentClient(site.chroma)
        self.collection: Any = self._client.get_or_create_collection(
            site.collection, embedding_function=None
        )

    def put_tree(self, tree: Mapping[str, object] | str, *, packed: bool = False) -> None:
        text = tree if isinstance(tree, str) else json.dumps(tree)
        if packed:
            text = base64.b64encode(gzip.compress(text.encode())).decode()
        self.put("__path_tree__", text, {"kind": "tree"})

    def put(self, record_id: str, text: str, metadata: Mapping[str, object]) -> None:
        self.collection.upsert(
            ids=[record_id], documents=[text], metadatas=[dict(metadata)], embeddings=[[0.5, 0.5]]
        )

    def put_page(
        self, slug: str, chunks: list[str], *, field: str = "page", as_text: bool = False
    ) -> None:
        # In no useful order, as parallel writers leave them.
        for index in reversed(range(len(chunks))):
            position: object = str(index) if as_text else index
            self.put(f"{slug}#{index}", chunks[index], {field: slug, "chunk_index": position})

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def foreign(site: Site) -> Iterator[Foreign]:
    made = Foreign(site)
    yield made
    made.close()


def _cat(site: Site, path: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["cat", site.mountpoint / path], capture_output=True, check=False)


def _status(site: Site) -> dict[str, Any]:
    answers = json.loads(site.command("status", site.mountpoint, "--json").expect(0).out)
    assert isinstance(answers[0], dict)
    return answers[0]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("field", ["page", "page_slug"])
@pytest.mark.parametrize("as_text", [False, True], ids=["integer", "text"])
def test_a_bare_tree_mounts_with_right_sizes_and_bytes(
    foreign: Foreign, packed: bool, field: str, as_text: bool
) -> None:
    long = [f"chunk {n} \u2013 é\n" for n in range(25)]
    pages = {"auth/oauth": ["# OAuth\n", "second"], "long": long, "index.mdx": ["home"]}
    foreign.put_tree(dict.fromkeys(pages, PUBLIC), packed=packed)
    for slug, chunks in pages.items():
        foreign.put_page(slug, chunks, field=field, as_text=as_text)
    foreign.site.mount()
    for path, chunks in (
        ("auth/oauth.mdx", pages["auth/oauth"]),
        ("long.mdx", long),
        ("index.mdx", pages["index.mdx"]),
    ):
        expected = "".join(chunks).encode()
        assert (foreign.site.mountpoint / path).stat().st_size == len(expected)
        assert _cat(foreign.site, path).stdout == expected


@pytest.mark.parametrize("word", ["zanzibar", "Zanzibar|quetzal", "zi"])
def test_a_search_is_shown_the_pages_that_can_match(foreign: Foreign, word: str) -> None:
    """Also where another writer has cut a line, or a word, or left a NUL."""
    pages = {f"d{n // 10}/p{n:02}": [f"page {n}\n", "common\n"] for n in range(60)}
    pages |= {
        "d1/whole": ["one zanzibar here\n", "Zanzibar\n"],
        "d3/cut": ["the end of a chunk: zan", "zibar and Zanz", "ibar\n"],
        "d5/nul": ["before\0 zanzibar Zanzibar\n"],
        "secret": ["zanzibar Zanzibar\n"],
    }
    tree: dict[str, object] = dict.fromkeys(pages, PUBLIC)
    foreign.put_tree(tree | {"secret": {"isPublic": False, "groups": ["admin"]}})
    for slug, chunks in pages.items():
        foreign.put_page(slug, chunks)
    foreign.site.mount("--warm", "off")
    line = ["grep", "-rlE", word, "docs"]
    for opens in (3, 6):
        done = subprocess.run(line, cwd=foreign.site.work, capture_output=True, check=True)
        assert done.stdout.split() == [b"docs/d1/whole.mdx", b"docs/d3/cut.mdx", b"docs/d5/nul.mdx"]
        assert foreign.site.status()["requests"]["open"] == opens


def test_a_bare_trees_restricted_pages_are_hidden_from_the_anonymous(foreign: Foreign) -> None:
    foreign.put_tree(
        {
            "open": PUBLIC,
            "admin": {"isPublic": False, "groups": ["admin"]},
            "both": {"isPublic": True, "groups": ["admin"]},
            "nobody": {"isPublic": False, "groups": []},
            "no-mark": {},
            "text-mark": {"isPublic": "true", "groups": []},
            "text-groups": {"isPublic": True, "groups": "admin"},
            "no-groups": {"isPublic": True},
            "not-an-entry": 7,
            "deep/secret/page": {"isPublic": False, "groups": ["admin"]},
        }
    )
    for slug in ("open", "admin", "both", "nobody", "deep/secret/page"):
        foreign.put_page(slug, ["x"])
    foreign.site.mount()
    assert os.listdir(foreign.site.mountpoint) == ["open.mdx"]
    for name in ("admin.mdx", "deep", "deep/secret", "no-mark.mdx"):
        with pytest.raises(FileNotFoundError):
            os.stat(foreign.site.mountpoint / name)
    foreign.site.umount()
    foreign.site.mount("--groups", "admin")
    assert sorted(os.listdir(foreign.site.mountpoint)) == [
        "admin.mdx",
        "both.mdx",
        "deep",
        "open.mdx",
    ]
    foreign.site.umount()
    foreign.site.mount("--groups", "other", "--empty-groups", "authenticated")
    assert sorted(os.listdir(foreign.site.mountpoint)) == ["nobody.mdx", "open.mdx"]


@pytest.mark.expects_log("page=(none|gap|doubled|first) cannot be read")
def test_pages_without_right_chunks_are_eio_from_the_first_open_on(foreign: Foreign) -> None:
    foreign.put_tree(dict.fromkeys(["good", "none", "gap", "doubled", "first"], PUBLIC))
    foreign.put_page("good", ["good\n"])
    foreign.put("gap0", "a", {"page": "gap", "chunk_index": 0})
    foreign.put("gap2", "c", {"page": "gap", "chunk_index": 2})
    foreign.put("doubled0", "a", {"page": "doubled", "chunk_index": 0})
    foreign.put("doubled1", "b", {"page": "doubled", "chunk_index": "0"})
    foreign.put("first1", "b", {"page": "first", "chunk_index": 1})
    foreign.site.mount()
    assert _cat(foreign.site, "good.mdx").stdout == b"good\n"
    for name in ("none", "gap", "doubled", "first"):
        done = _cat(foreign.site, f"{name}.mdx")
        assert (done.returncode, done.stdout) == (1, b""), name
        assert b"Input/output error" in done.stderr
    assert _status(foreign.site)["damaged_pages"] == 4
    for name in ("none", "gap", "doubled", "first"):
        assert foreign.site.log.read_text().count(f"page={name} cannot be read") == 1


@pytest.mark.expects_log("page=changing cannot be read")
def test_a_page_that_changed_behind_the_mount_is_eio_not_short(foreign: Foreign) -> None:
    foreign.put_tree({"changing": PUBLIC, "steady": PUBLIC})
    foreign.put_page("changing", ["0123456789"])
    foreign.put_page("steady", ["steady"])
    foreign.site.mount()
    foreign.put_page("changing", ["short"])
    done = _cat(foreign.site, "changing.mdx")
    assert (done.returncode, done.stdout) == (1, b"")
    assert _cat(foreign.site, "steady.mdx").stdout == b"steady"


_HOSTILE = {
    "": "empty name",
    "/": "empty name",
    "/etc/passwd": "empty name",
    "a//b": "empty name",
    "a/": "empty name",
    "..": "shown",  # the page "...mdx" is an ordinary name
    "../up": "name . or ..",
    "a/../../b": "name . or ..",
    "./here": "name . or ..",
    "nul\0byte": "name with NUL or slash",
    "n" * 300: "name over 255 bytes",
    "deep/" * 900 + "x": "path over 4095 bytes",
    "\ud800lone": "name not UTF-8",
}


def test_hostile_names_are_skipped_and_counted_and_their_siblings_stay(foreign: Foreign) -> None:
    good = ["fine", "sub/fine", "a/fine", "newline\nname", "日本/ページ", "-rf", "...", "d" * 251]
    tree = {**dict.fromkeys(_HOSTILE, PUBLIC), **dict.fromkeys(good, PUBLIC)}
    foreign.put_tree(tree)
    for slug in [*good, ".."]:
        foreign.put_page(slug, [f"text of {slug}"])
    foreign.site.mount()
    for slug in [*good, ".."]:
        assert _cat(foreign.site, f"{slug}.mdx").stdout == f"text of {slug}".encode()
    found = _status(foreign.site)
    assert found["pages"] == len(good) + 1
    reasons: dict[str, int] = {}
    for reason in _HOSTILE.values():
        if reason != "shown":
            reasons[reason] = reasons.get(reason, 0) + 1
    assert found["rejected_entries"] == reasons
    listed = subprocess.run(
        ["find", ".", "-type", "f"], cwd=foreign.site.mountpoint, capture_output=True, check=True
    )
    assert listed.stdout.count(b".mdx") == len(good) + 1


def test_a_page_where_a_directory_stands_is_skipped(foreign: Foreign) -> None:
    foreign.put_tree(dict.fromkeys(["a.mdx/b", "a", "auth", "auth/oauth"], PUBLIC))
    for slug in ("a.mdx/b", "a", "auth", "auth/oauth"):
        foreign.put_page(slug, [slug])
    foreign.site.mount()
    assert _cat(foreign.site, "a.mdx/b.mdx").stdout == b"a.mdx/b"
    assert _cat(foreign.site, "auth.mdx").stdout == b"auth"
    assert _cat(foreign.site, "auth/oauth.mdx").stdout == b"auth/oauth"
    assert _status(foreign.site)["rejected_entries"] == {"a page where a directory stands": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "not base64 at all!",
        base64.b64encode(b"not gzip").decode(),
        base64.b64encode(gzip.compress(b"{}")[:-9]).decode(),
        base64.b64encode(gzip.compress(b"[1]")).decode(),
        "[" * 100_000,
    ],
    ids=["empty", "cut", "list", "null", "words", "no gzip", "cut gzip", "packed list", "deep"],
)
def test_a_tree_that_is_none_is_refused_in_one_line(foreign: Foreign, text: str) -> None:
    foreign.put_tree(text)
    site = foreign.site
    done = site.command(
        "mount", site.mountpoint, "--collection", site.collection, "--chroma", site.chroma
    ).expect(7)
    assert done.err.startswith(b"chromafuse: ")
    assert done.err.strip().count(b"\n") == 0
    assert not site.is_mounted()


def test_a_tree_of_a_later_format_is_refused(foreign: Foreign) -> None:
    foreign.put("__path_tree__", "{}", {"format": 99})
    site = foreign.site
    done = site.command("mount", site.mountpoint, "-c", site.collection, "--chroma", site.chroma)
    assert b"update chromafuse" in done.expect(7).err


def test_an_empty_tree_mounts_as_an_empty_directory(foreign: Foreign) -> None:
    foreign.put_tree({})
    foreign.site.mount()
    assert os.listdir(foreign.site.mountpoint) == []


def test_ingest_does_not_overwrite_a_foreign_site(foreign: Foreign) -> None:
    foreign.put_tree({"page": PUBLIC})
    foreign.put_page("page", ["text"])
    source = foreign.site.base / "source"
    source.mkdir()
    (source / "new.mdx").write_text("new")
    done = foreign.site.ingest(source, expect=10)
    assert b"another tool wrote" in done.err
    foreign.site.mount()
    assert os.listdir(foreign.site.mountpoint) == ["page.mdx"]


def test_a_run_tells_how_long_it_takes_only_to_a_person(foreign: Foreign) -> None:
    """A program can rely on it that a line of chromafuse means that the command has not run."""
    foreign.put_tree({"index": PUBLIC})
    foreign.put_page("index", ["home"])
    site = foreign.site
    target = ["--collection", site.collection, "--chroma", site.chroma, "--log-file", str(site.log)]
    words = ["run", *target, "--at", str(site.mountpoint), "--", "cat"]
    done = site.command(*words, site.mountpoint / "index.mdx").expect(0)
    assert (done.out, done.err) == (b"home", b"")
    line = " ".join(["chromafuse", *words, str(site.mountpoint / "index.mdx")])
    shown = subprocess.run(
        ["script", "--quiet", "--return", "--command", line, "/dev/null"],
        env=site.env, cwd=site.base, stdin=subprocess.DEVNULL, capture_output=True, check=True,
    )  # fmt: skip
    assert shown.stdout.startswith(b"chromafuse: the tree tells no sizes")
    assert shown.stdout.endswith(b"home")


def test_a_tree_without_sizes_is_refreshed_too(foreign: Foreign) -> None:
    """Its pages are read once more, and nobody is told: who mounted has gone long since."""
    foreign.put_tree({"index": PUBLIC})
    foreign.put_page("index", ["home"])
    foreign.site.mount("--refresh", "0")
    foreign.put_tree({"index": PUBLIC, "new": PUBLIC})
    foreign.put_page("new", ["news"])
    foreign.site.command("refresh", foreign.site.mountpoint).expect(0)
    assert (foreign.site.mountpoint / "new.mdx").read_text() == "news"
