"""Which files of a tree become pages, in what order, under which names, and what is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chromafuse.domain.access import AUTHENTICATED, HIDDEN, PUBLIC, AccessRule, all_of, any_of
from chromafuse.domain.errors import IngestError
from chromafuse.ingest import files as files_module
from chromafuse.ingest.report import printable
from chromafuse.ingest.slugs import assign_slugs
from chromafuse.ingest.sources import (
    Content,
    Omission,
    SourceOptions,
    Sources,
    find_sources,
    read_source,
)

PLAIN = SourceOptions(preset="plain")


def build(root: Path, *names: str) -> Path:
    """Make empty files ``names`` below ``root``."""
    for name in names:
        write(root, name, "")
    return root


def write(root: Path, name: str, text: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def site(root: Path, *pages: object) -> Path:
    write(root, "docs.json", json.dumps({"navigation": {"pages": pages}}))
    return root


def rels(sources: Sources) -> list[str]:
    return [source.rel for source in sources.files]


def omitted(sources: Sources, *, lost: bool) -> dict[str, str]:
    return {item.path: item.reason for item in sources.omissions if item.lost is lost}


def content(sources: Sources, rel: str, options: SourceOptions = PLAIN) -> Content:
    source = next(source for source in sources.files if source.rel == rel)
    result = read_source(source)
    assert isinstance(result, Content)
    return result


# -- the tree as it is


def test_listing_order_is_by_bytes_and_depth_first(tmp_path: Path) -> None:
    build(tmp_path, "auth.mdx", "auth/b.md", "auth/a/z.md", "auth-2/x.md", "Z.md", "a.md", "é.md")
    assert rels(find_sources(tmp_path, PLAIN)) == [
        "Z.md",
        "a.md",
        "auth/a/z.md",
        "auth/b.md",
        "auth-2/x.md",
        "auth.mdx",
        "é.md",
    ]


def test_odd_names_are_taken_as_they_are(tmp_path: Path) -> None:
    names = ["[.md", "((.md", "!.md", "%2F.md", "$.md", "a b.md", "?.md", "-n.md", ".hidden.md"]
    names += ["日本.md", "n\nl.md", "q'\".md", "e\u0301.md", "\u00e9.md", "a.md", "A.md", "\\.md"]
    names += ["x" * 252 + ".md", "__path_tree__", ".chromafuse", "llms.txt", "#.md", "*.md", "~"]
    build(tmp_path, *names)
    sources = find_sources(tmp_path, PLAIN)
    assert sorted(rels(sources)) == sorted(names)
    assert sources.omissions == ()
    assert len({source.slug for source in sources.files}) == len(names)


def test_plain_leaves_out_only_tools(tmp_path: Path) -> None:
    build(tmp_path, ".git/config", "a/.svn", ".hg/x", "b/.jj/x", "node_modules/a/b.md", ".DS_Store")
    build(tmp_path, ".venv/x.md", "c/__pycache__/x", "README.md", ".github/a.md", "build/a.md")
    sources = find_sources(tmp_path, SourceOptions())
    assert rels(sources) == [".github/a.md", "README.md", "build/a.md"]
    assert list(omitted(sources, lost=False)) == [
        ".DS_Store",
        ".git/",
        ".hg/",
        ".venv/",
        "a/.svn",
        "b/.jj/",
        "c/__pycache__/",
        "node_modules/",
    ]
    assert omitted(sources, lost=True) == {}


def test_empty_directories_are_told(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert omitted(find_sources(tmp_path, PLAIN), lost=False) == {"a/b/": "empty directory"}


def test_names_that_are_not_utf8_are_lost(tmp_path: Path) -> None:
    build(tmp_path, "ok.md")
    bad = os.fsencode(tmp_path)
    (Path(os.fsdecode(bad + b"/\xff.md"))).write_text("")
    write(tmp_path, os.fsdecode(b"d\xe9/x.md"), "")
    sources = find_sources(tmp_path, PLAIN)
    assert rels(sources) == ["ok.md"]
    assert list(omitted(sources, lost=True)) == ["d\\xe9/", "\\xff.md"]


def test_special_files_are_lost(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.md")
    sock = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        sock.bind("s.md")
    finally:
        os.chdir(here)
        sock.close()
    reasons = omitted(find_sources(tmp_path, PLAIN), lost=True)
    assert reasons == {"fifo.md": "a FIFO", "s.md": "a socket"}


def test_symlinks(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside.md", "secret")
    root = tmp_path / "root"
    write(root, "a/page.md", "text")
    write(root, ".git/config", "token")
    links = {
        "inside.md": "a/page.md",
        "a/up.md": "../inside.md",
        "out.md": "../outside.md",
        "absolute.md": str(outside),
        "dangling.md": "nothing",
        "loop.md": "loop.md",
        "loop1.md": "loop2.md",
        "loop2.md": "loop1.md",
        "dir": "a",
        "dot": ".",
        "through.md": "dir/page.md",
        "git.md": ".git/config",
        "dev.md": "/dev/null",
        "node_modules": "a",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    previous = "a/page.md"
    for number in range(1_500):
        (root / f"chain{number}").symlink_to(previous)
        previous = f"chain{number}"
    sources = find_sources(root, SourceOptions(preset="plain", exclude=("chain?*", "!chain1499")))
    assert rels(sources) == ["a/page.md", "a/up.md", "inside.md", "through.md"]
    assert content(sources, "a/up.md").text == "text"
    lost = omitted(sources, lost=True)
    assert set(lost) == {"chain1499", *links} - {
        "inside.md",
        "a/up.md",
        "through.md",
        "node_modules",
    }
    assert "out of the tree" in lost["out.md"]
    assert "nothing" in lost["dangling.md"]
    assert "version control" in lost["git.md"]
    assert "directory" in lost["dir"]
    assert "node_modules" in omitted(sources, lost=False)


def test_a_link_does_not_lose_the_marks_of_its_page(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "---\ngroups: [admin]\n---\n")
    (tmp_path / "a.txt").symlink_to("a.md")
    write(tmp_path, "b.txt", "---\ngroups: [admin]\n---\n")
    (tmp_path / "b.md").symlink_to("b.txt")
    sources = find_sources(tmp_path, PLAIN)
    assert content(sources, "a.txt").rule == any_of(["admin"])
    assert content(sources, "b.md").rule == any_of(["admin"])


def test_root_may_be_a_link(tmp_path: Path) -> None:
    build(tmp_path, "real/a.md")
    (tmp_path / "link").symlink_to("real")
    assert rels(find_sources(tmp_path / "link", PLAIN)) == ["a.md"]


@pytest.mark.parametrize("name", ["missing", "file", "file/x", "nul\0", "loop"])
def test_root_must_be_a_directory(tmp_path: Path, name: str) -> None:
    write(tmp_path, "file", "")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(IngestError) as caught:
        find_sources(tmp_path / name, PLAIN)
    assert str(caught.value).isprintable()


@pytest.fixture
def deep_root(tmp_path: Path) -> Iterator[Path]:
    """A directory that is emptied by ``rm``: pytest's own way recurses and fails in later runs."""
    root = tmp_path / "deep"
    root.mkdir()
    yield root
    subprocess.run(["rm", "-rf", "--", root], check=True)


def test_deep_nesting(deep_root: Path) -> None:
    tmp_path = deep_root
    build(tmp_path, "ok.md", "/".join(["a"] * 500) + "/deep.md")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("dddd", dir_fd=descriptor)
        child = os.open("dddd", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
    os.close(descriptor)
    sources = find_sources(tmp_path, PLAIN)
    assert rels(sources) == ["/".join(["a"] * 500) + "/deep.md", "ok.md"]
    (reason,) = omitted(sources, lost=True).values()
    assert "directories deep" in reason
    assert isinstance(read_source(sources.files[0]), Content)


def test_long_paths(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=descriptor)
        child = os.open("x" * 250, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
        os.close(os.open("p.md", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    sources = find_sources(tmp_path, PLAIN)
    assert len(sources.files) == 15
    assert all(isinstance(read_source(source), Content) for source in sources.files)
    (reason,) = omitted(sources, lost=True).values()
    assert "longer than" in reason


# -- include and exclude


def test_exclude(tmp_path: Path) -> None:
    build(tmp_path, "a.md", "drafts/a.md", "drafts/keep.md", "x/b.tmp", "x/keep.tmp", "y/a", "y/b")
    exclude = ("drafts/", "!drafts/keep.md", "*.tmp", "!keep.tmp", "y/**", "!y/b")
    sources = find_sources(tmp_path, SourceOptions(preset="plain", exclude=exclude))
    assert rels(sources) == ["a.md", "x/keep.tmp", "y/b"]
    assert omitted(sources, lost=False) == {
        "drafts/": "excluded as asked",
        "x/b.tmp": "excluded as asked",
        "y/a": "excluded as asked",
    }


def test_include_brings_back(tmp_path: Path) -> None:
    site(tmp_path, "listed")
    build(tmp_path, "listed.md", "build/a.md", "build/b.md", "dist/c.md", "README.md", "un.md")
    build(tmp_path, ".git/x.md", "tmp/out/a.md", "tmp/b.md", "secret/no.md")
    write(tmp_path, "hid.md", "---\nhidden: true\n---\n")
    write(tmp_path, ".mintignore", "ignored.md\nsecret/\n")
    build(tmp_path, "ignored.md")
    (tmp_path / "tmp/out/empty").mkdir()
    include = (
        "/build/a.md",
        "dist/",
        "/README.md",
        "un.md",
        "hid.md",
        "ignored.md",
        ".git/",
        "out/",
    )
    options = SourceOptions(include=include, exclude=("un.md",))
    sources = find_sources(tmp_path, options)
    assert rels(sources) == [
        "README.md",
        "build/a.md",
        "dist/c.md",
        "docs.json",
        "hid.md",
        "ignored.md",
        "listed.md",
        "tmp/out/a.md",
    ]
    assert set(omitted(sources, lost=False)) == {
        ".git/",
        ".mintignore",
        "build/",
        "secret/",
        "tmp/",
        "tmp/out/empty/",
        "un.md",
    }


@pytest.mark.parametrize("field", ["include", "exclude"])
def test_malformed_patterns(tmp_path: Path, field: str) -> None:
    options = SourceOptions(**{field: ("!",)})  # type: ignore[arg-type]
    with pytest.raises(IngestError, match=f"--{field}"):
        find_sources(tmp_path, options)


# -- mintlify


def test_navigation_selects_pages_only(tmp_path: Path) -> None:
    site(tmp_path, "a", "dir", {"group": "g", "hidden": True, "pages": ["g"]}, "GET /users", "gone")
    build(
        tmp_path, "a.mdx", "dir/index.mdx", "dir/other.md", "g.md", "un.mdx", "style.css", "x.yaml"
    )
    build(tmp_path, "notes.txt", ".github/x.md", "build/x.js", "README.md", "sub/LiCense.md")
    write(tmp_path, "noindex.mdx", "---\nnoindex: true\n---\n")
    sources = find_sources(tmp_path, SourceOptions())
    assert rels(sources) == [
        "a.mdx",
        "dir/index.mdx",
        "docs.json",
        "notes.txt",
        "style.css",
        "x.yaml",
    ]
    reasons = omitted(sources, lost=False)
    assert list(reasons) == [
        ".github/",
        "README.md",
        "build/",
        "dir/other.md",
        "g.md",
        "noindex.mdx",
        "sub/LiCense.md",
        "un.mdx",
    ]
    assert reasons["un.mdx"] == "not in the navigation"
    assert reasons["g.md"] == "hidden in the navigation"
    assert "frontmatter" in reasons["noindex.mdx"]
    assert [notice.path for notice in sources.notices] == ["gone"]
    hidden = find_sources(tmp_path, SourceOptions(hidden=True))
    assert {"dir/other.md", "g.md", "noindex.mdx", "un.mdx"} <= set(rels(hidden))
    assert "README.md" not in rels(hidden)


def test_order_holds_with_pages_left_out(tmp_path: Path) -> None:
    site(tmp_path, "b", "z")
    build(tmp_path, "a.md", "b.md", "c.md", "e.txt", "z.md")
    sources = find_sources(tmp_path, SourceOptions())
    assert rels(sources) == ["b.md", "docs.json", "e.txt", "z.md"]
    assert list(omitted(sources, lost=False)) == ["a.md", "c.md"]


def test_without_navigation_nothing_is_unlisted(tmp_path: Path) -> None:
    write(tmp_path, "docs.json", "{}")
    build(tmp_path, "a.md")
    assert rels(find_sources(tmp_path, SourceOptions())) == ["a.md", "docs.json"]


def test_mintlify_without_site(tmp_path: Path) -> None:
    build(tmp_path, "a.md", "README.md")
    sources = find_sources(tmp_path, SourceOptions(preset="mintlify"))
    assert rels(sources) == ["a.md"]
    assert [notice.path for notice in sources.notices] == ["docs.json"]


def test_mintignore(tmp_path: Path) -> None:
    write(tmp_path, "docs.json", "{}")
    lines = [
        "/first.md",
        "# comment",
        "deep/**",
        "!deep/keep.md",
        "drafts/*",
        "!drafts/keep.md",
        "*.draft.mdx",
        "/only.md",
        "**/internal/**",
    ]
    write(tmp_path, ".mintignore", "\ufeff" + "\r\n".join(lines))
    build(tmp_path, "drafts/a.md", "drafts/keep.md", "x/y.draft.mdx", "only.md", "x/only.md")
    build(tmp_path, "first.md", "deep/a.md", "deep/keep.md")
    build(tmp_path, "p/internal/a.md", "p/internal/q/b.md", "sub/.mintignore")
    sources = find_sources(tmp_path, SourceOptions())
    assert rels(sources) == ["deep/keep.md", "docs.json", "drafts/keep.md", "x/only.md"]
    reasons = omitted(sources, lost=False)
    assert reasons["drafts/a.md"] == "named in .mintignore"
    assert ".mintignore" in reasons
    assert [notice.path for notice in sources.notices] == ["sub/.mintignore"]


@pytest.mark.parametrize("data", [b"\xff", b"!\n", b"x" * 2_000_000])
def test_unclear_mintignore(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "docs.json", "{}")
    write(tmp_path, ".mintignore", data)
    with pytest.raises(IngestError, match=r"\.mintignore"):
        find_sources(tmp_path, SourceOptions())


def test_snippets(tmp_path: Path) -> None:
    site(tmp_path, "a", "listed-part", "snippets/page")
    write(tmp_path, "a.mdx", 'import P from "/parts/p.mdx"\nimport L from "./listed-part.mdx"\n')
    build(tmp_path, "parts/p.mdx", "listed-part.mdx", "snippets/s.mdx", "snippets/page.mdx")
    build(tmp_path, "x/_snippets/s.mdx", "x/_snippets/s.jsx")
    sources = find_sources(tmp_path, SourceOptions())
    assert rels(sources) == ["a.mdx", "docs.json", "listed-part.mdx", "snippets/page.mdx"]
    assert set(omitted(sources, lost=False)) == {"parts/p.mdx", "snippets/", "x/_snippets/"}
    assert "snippet" in omitted(sources, lost=False)["parts/p.mdx"]
    sources = find_sources(tmp_path, SourceOptions(snippets=True))
    assert sources.omissions == ()
    assert len(sources.files) == 8
    without = find_sources(tmp_path, SourceOptions(hidden=True))
    assert "parts/p.mdx" not in rels(without)


def test_navigation_brings_back_what_only_the_preset_leaves_out(tmp_path: Path) -> None:
    site(tmp_path, "build/start", "README", "drafts/x")
    write(tmp_path, ".mintignore", "drafts/\n")
    build(tmp_path, "build/start.mdx", "build/out.md", "README.md", "drafts/x.md")
    sources = find_sources(tmp_path, SourceOptions())
    assert rels(sources) == ["README.md", "build/start.mdx", "docs.json"]
    assert [notice.text for notice in sources.notices] == [
        "the navigation in docs.json names it, but it is left out: named in .mintignore"
    ]


def test_site_files(tmp_path: Path) -> None:
    write(tmp_path, "docs.json", json.dumps({"navigation": {"$ref": "config/nav.json"}}))
    write(tmp_path, "config/nav.json", json.dumps({"pages": ["a"]}))
    write(tmp_path, "mint.json", "{}")
    write(tmp_path, "sub/docs.json", "{}")
    write(tmp_path, "other.json", "{}")
    (tmp_path / "copy.txt").symlink_to("config/nav.json")
    build(tmp_path, "a.md")
    for preset in ("auto", "plain"):
        sources = find_sources(tmp_path, SourceOptions(preset=preset))
        marked = {source.rel for source in sources.files if source.site_file}
        assert marked == {"docs.json", "mint.json", "config/nav.json", "copy.txt"}


def test_site_file_that_is_a_link(tmp_path: Path) -> None:
    write(tmp_path, "conf/real.json", json.dumps({"navigation": {"pages": ["a"]}}))
    (tmp_path / "docs.json").symlink_to("conf/real.json")
    build(tmp_path, "a.md", "b.md")
    sources = find_sources(tmp_path, SourceOptions())
    assert [(s.rel, s.site_file) for s in sources.files] == [
        ("a.md", False),
        ("conf/real.json", True),
        ("docs.json", True),
    ]


@pytest.mark.parametrize("name", ["docs.json", "mint.json"])
def test_broken_site_is_an_error(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "{")
    build(tmp_path, "a.md")
    with pytest.raises(IngestError, match=name):
        find_sources(tmp_path, SourceOptions())
    with pytest.raises(IngestError, match="--exclude"):
        find_sources(tmp_path, PLAIN)
    assert rels(find_sources(tmp_path, SourceOptions(preset="plain", exclude=("/" + name,)))) == [
        "a.md"
    ]


def test_site_of_50_mb_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "docs.json").open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(IngestError, match="larger than"):
        find_sources(tmp_path, SourceOptions())


def test_ref_through_a_link_out_of_the_tree(tmp_path: Path) -> None:
    write(tmp_path, "outside.json", "{}")
    root = tmp_path / "root"
    write(root, "docs.json", json.dumps({"navigation": {"$ref": "nav.json"}}))
    (root / "nav.json").symlink_to("../outside.json")
    with pytest.raises(IngestError, match=r'docs\.json: \$ref "nav\.json": leads out of the tree'):
        find_sources(root, SourceOptions())


def test_docs_json_directory_is_no_site(tmp_path: Path) -> None:
    build(tmp_path, "docs.json/a.md", "b.md")
    assert rels(find_sources(tmp_path, SourceOptions())) == ["b.md", "docs.json/a.md"]


def test_other_docs_json_in_a_plain_tree(tmp_path: Path) -> None:
    write(tmp_path, "docs.json", "[1]")
    sources = find_sources(tmp_path, PLAIN)
    assert [(source.rel, source.site_file) for source in sources.files] == [("docs.json", True)]


@pytest.mark.parametrize("preset", ["mintlify", "plain"])
def test_public_of_the_navigation(tmp_path: Path, preset: str) -> None:
    site(tmp_path, {"group": "g", "public": False, "pages": ["a", "b"]}, "c")
    write(tmp_path, "a.md", "text")
    write(tmp_path, "b.md", "---\npublic: true\n---\n")
    write(tmp_path, "c.md", "text")
    (tmp_path / "d.txt").symlink_to("a.md")
    options = SourceOptions(preset=preset)  # type: ignore[arg-type]
    sources = find_sources(tmp_path, options)
    rules = [content(sources, name, options).rule for name in ("a.md", "b.md", "c.md", "d.txt")]
    assert rules == [AUTHENTICATED, PUBLIC, PUBLIC, AUTHENTICATED]


def test_twins_are_told(tmp_path: Path) -> None:
    write(tmp_path, "docs.json", "{}")
    build(tmp_path, "x.md", "x.mdx", "d.mdx", "d/index.mdx")
    sources = find_sources(tmp_path, SourceOptions())
    assert [(notice.path, notice.text) for notice in sources.notices] == [
        ("d/index.mdx", "has the same URL as d.mdx"),
        ("x.md", "has the same URL as x.mdx"),
    ]


# -- files that name every page


def site_rule(root: Path, options: SourceOptions) -> AccessRule:
    return find_sources(root, options).named_rule


@pytest.mark.parametrize("preset", ["mintlify", "plain"])
@pytest.mark.parametrize("case", ["excluded", "link out", "fifo", "unclear", "utf-16"])
def test_named_pages_that_are_not_stored_close_the_site_files(
    tmp_path: Path, preset: str, case: str
) -> None:
    root = site(tmp_path / "root", "a", "secret/plan", "gone")
    build(root, "a.md", "secret/pic.png", "node_modules/x.md")
    page = root / "secret/plan.mdx"
    marked = b"---\ngroups: [admin]\n---\n"
    exclude = () if case in ("fifo", "link out") else ("secret/",)
    if case == "fifo":
        os.mkfifo(page)
    elif case == "link out":
        page.symlink_to(write(tmp_path, "out.mdx", marked))
    else:
        data = {"unclear": b"---\ngroups: [a\n---\n", "utf-16": b"\xff\xfea\0b\0"}
        write(root, "secret/plan.mdx", data.get(case, marked))
    options = SourceOptions(preset=preset, exclude=exclude)  # type: ignore[arg-type]
    expected = any_of(["admin"]) if case == "excluded" else HIDDEN
    assert site_rule(root, options) == expected


def test_what_the_navigation_omits_closes_the_site_files(tmp_path: Path) -> None:
    site(tmp_path, "h", {"group": "g", "hidden": True, "pages": ["g"]}, "i")
    write(tmp_path, "h.mdx", "---\nhidden: true\ngroups: [h]\n---\n")
    write(tmp_path, "g.mdx", "---\ngroups: [g]\n---\n")
    write(tmp_path, "i.mdx", "---\ngroups: [i]\n---\n")
    write(tmp_path, "unlisted.mdx", "---\ngroups: [u]\n---\n")
    write(tmp_path, ".mintignore", "i.mdx\n")
    expected = all_of(any_of([name]) for name in "ghi")
    assert site_rule(tmp_path, SourceOptions()) == expected


def test_a_missing_page_closes_the_site_files_as_its_entry_says(tmp_path: Path) -> None:
    site(tmp_path, "gone")
    assert site_rule(tmp_path, SourceOptions()) == PUBLIC
    assert site_rule(tmp_path, SourceOptions(default_access=HIDDEN)) == HIDDEN
    site(tmp_path, {"group": "g", "public": False, "pages": ["gone"]})
    assert site_rule(tmp_path, SourceOptions()) == AUTHENTICATED


# -- a tree that vanishes


def test_a_root_that_is_another_directory_by_now_is_noticed(tmp_path: Path) -> None:
    root = build(tmp_path / "root", "a.md")
    sources = find_sources(root, PLAIN)
    sources.ensure_root()
    root.rename(tmp_path / "old")
    with pytest.raises(IngestError, match="vanished"):
        sources.ensure_root()
    root.mkdir()
    with pytest.raises(IngestError, match="vanished"):
        sources.ensure_root()


# -- what the navigation closes


@pytest.mark.parametrize("preset", ["mintlify", "plain"])
@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("a//s", "a/s.mdx"),
        ("a/../s", "s.mdx"),
        ("a/s#top", "a/s.mdx"),
        ("s?x", "s.mdx"),
        ("./././s", "s.mdx"),
        ("s.html", "s.mdx"),
        ("a%2Fs", "a/s.mdx"),
        ("a%252Fs", "a/s.mdx"),
        ("s ", "s.mdx"),
        ("S", "s.mdx"),
        ("s", "S.mdx"),
        ("s.MDX", "s.mdx"),
        ("s/", "s/index.mdx"),
        ("A/S", "a/s/index.md"),
        ("/a\\s", "a/s.mdx"),
        ("caf\u00e9", "cafe\u0301.mdx"),
        ("s", "s.mdx~"),
        ("s", ".s.mdx.swp"),
        ("s", "s.markdown"),
    ],
)
def test_a_closing_entry_closes_its_page_however_it_is_written(
    tmp_path: Path, entry: str, name: str, preset: str
) -> None:
    site(tmp_path, {"group": "g", "public": False, "pages": [entry]}, "other")
    build(tmp_path, name, "other.md")
    options = SourceOptions(preset=preset, hidden=True)  # type: ignore[arg-type]
    sources = find_sources(tmp_path, options)
    assert content(sources, name, options).rule == AUTHENTICATED
    assert content(sources, "other.md", options).rule == PUBLIC


@pytest.mark.parametrize(
    "node",
    [
        {"public": False, "sections": [{"section": "x", "pages": ["s"]}]},
        {"public": False, "sections": ["s"]},
        {"public": False, "sections": {"a": {"b": ["s"]}}},
        {"public": False, "main": "s"},
        {"sections": [{"public": False, "pages": ["s"]}]},
    ],
)
def test_pages_below_an_unknown_key_are_closed(tmp_path: Path, node: object) -> None:
    site(tmp_path, node)
    build(tmp_path, "s.mdx", "x.md")
    options = SourceOptions(hidden=True)
    assert content(find_sources(tmp_path, options), "s.mdx", options).rule == AUTHENTICATED
    assert rels(find_sources(tmp_path, SourceOptions())) == ["docs.json"]


# -- ways around what is left out


@pytest.mark.parametrize("pattern", ["/secret.mdx", "private/", "private/**", "*cret.mdx"])
@pytest.mark.parametrize("by", ["exclude", "mintignore"])
def test_a_link_to_an_excluded_page_is_left_out_too(tmp_path: Path, pattern: str, by: str) -> None:
    write(tmp_path, "docs.json", "{}")
    target = "private/x/secret.mdx" if "/" in pattern[1:] else "secret.mdx"
    build(tmp_path, target, "README.md")
    (tmp_path / "pub.mdx").symlink_to(target)
    (tmp_path / "second.mdx").symlink_to("pub.mdx")
    (tmp_path / "readme-link.mdx").symlink_to("README.md")
    if by == "mintignore":
        write(tmp_path, ".mintignore", pattern)
    options = SourceOptions(exclude=(pattern,) if by == "exclude" else ())
    sources = find_sources(tmp_path, options)
    assert rels(sources) == ["docs.json", "readme-link.mdx"]
    reason = omitted(sources, lost=False)["pub.mdx"]
    assert reason.startswith("symlink to a file that is ")


@pytest.mark.parametrize(
    "name", ["x.mdx~", "x.mdx.orig", "x.md.bak", ".x.mdx.swp", "#x.md#", "x.txt", "x", "x.html"]
)
def test_copies_of_a_page_keep_its_marks(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "---\ngroups: [admin]\n---\n")
    assert content(find_sources(tmp_path, PLAIN), name).rule == any_of(["admin"])


@pytest.mark.parametrize("name", ["x.yaml", "x.yml", "x.json"])
def test_data_has_no_frontmatter(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "---\ngroups: [admin]\n---\n")
    assert content(find_sources(tmp_path, PLAIN), name).rule == PUBLIC


# -- slugs


def test_slugs() -> None:
    names = [
        ".mdx",
        "x.md",
        "x.mdx",
        "y.md",
        "x.md.mdx",
        "openapi.json",
        "y",
        "d/.mdx",
        "d/.md",
        "A.MD",
    ]
    assert assign_slugs(names) == {
        ".mdx": ".mdx",
        "x.mdx": "x",
        "x.md.mdx": "x.md",
        "y.md": "y",
        "x.md": "x.md~2",
        "openapi.json": "openapi.json",
        "y": "y~2",
        "d/.mdx": "d/.mdx",
        "d/.md": "d/.md",
        "A.MD": "A.MD",
    }


_NAME = st.text(st.sampled_from("ab/.~2"), min_size=1, max_size=4)
_RELS = st.sets(
    st.builds(
        lambda stem, end: stem + end, _NAME, st.sampled_from(["", ".md", ".mdx", ".md.mdx", "~2"])
    )
    | st.text(min_size=1),
    max_size=30,
)


@given(_RELS, st.randoms())
def test_slugs_are_unique_and_need_no_order(names: set[str], random: object) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    slugs = assign_slugs(shuffled)
    assert slugs == assign_slugs(sorted(names))
    assert set(slugs) == names
    assert len(set(slugs.values())) == len(names)
    assert all(slugs.values())


# -- reading


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"a\r\nb\rc\x00\x0b\x0c\xc2\x85\xe2\x80\xa8", b"\xef\xbb\xbfbom", b"x" * 4_000_000],
)
def test_content_is_identical(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, "a.md", data)
    os.utime(path, ns=(1, 1_234_567_890_123_456_789))
    result = content(find_sources(tmp_path, PLAIN), "a.md")
    assert result.data == data
    assert result.text.encode() == data
    assert result.mtime_ns == 1_234_567_890_123_456_789
    assert result.rule == PUBLIC


def test_not_utf8_is_lost(tmp_path: Path) -> None:
    write(tmp_path, "a.md", b"abc\xff")
    (source,) = find_sources(tmp_path, PLAIN).files
    assert read_source(source) == Omission("a.md", "not UTF-8 text (byte 3)", lost=True)


def test_rules_and_notices(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "---\ngroups: [x]\npublic: true\n---\n")
    write(tmp_path, "b.md", "---\n# groups: [x]\n---\n")
    write(tmp_path, "c.md", "---\nunclosed\n")
    write(tmp_path, "d.txt", "---\nunclosed\n")
    write(tmp_path, "e.MD", "---\ngroups: [x]\n---\n")
    options = SourceOptions(default_access=AUTHENTICATED)
    sources = find_sources(tmp_path, options)
    found = {source.rel: content(sources, source.rel, options) for source in sources.files}
    assert {rel: item.rule for rel, item in found.items()} == {
        "a.md": any_of(["x"]),
        "b.md": AUTHENTICATED,
        "c.md": HIDDEN,
        "d.txt": HIDDEN,
        "e.MD": any_of(["x"]),
    }
    assert {rel: len(item.notices) for rel, item in found.items()} == {
        "a.md": 1,
        "b.md": 1,
        "c.md": 1,
        "d.txt": 1,
        "e.MD": 0,
    }
    assert "hidden from everybody" in found["c.md"].notices[0].text


@pytest.mark.parametrize("change", ["gone", "fifo", "directory", "link", "parent"])
def test_changes_between_finding_and_reading(tmp_path: Path, change: str) -> None:
    write(tmp_path, "secret.md", "secret")
    root = tmp_path / "root"
    page = write(root, "d/a.md", "text")
    (source,) = find_sources(root, PLAIN).files
    page.unlink()
    if change == "fifo":
        os.mkfifo(page)
    elif change == "directory":
        page.mkdir()
    elif change == "link":
        page.symlink_to(tmp_path / "secret.md")
    elif change == "parent":
        page.parent.rmdir()
        write(tmp_path, "other/a.md", "secret")
        page.parent.symlink_to(tmp_path / "other")
    result = read_source(source)
    assert isinstance(result, Omission)
    assert result.lost
    assert result.path == "d/a.md"


def test_growing_file_is_read_anew_or_lost(tmp_path: Path) -> None:
    """A file of /proc has size 0 but content: it never agrees with its own size."""
    with pytest.raises(files_module.RefusedError, match="keeps changing"):
        files_module.read_whole(Path(f"/proc/{os.getpid()}/status"))
    write(tmp_path, "a.md", "12345")
    with pytest.raises(files_module.RefusedError, match="larger"):
        files_module.read_whole(tmp_path / "a.md", 4)


def test_no_descriptor_leaks(tmp_path: Path) -> None:
    build(tmp_path, "a/b/c.md", "docs.json/x", "d.md")
    os.mkfifo(tmp_path / "f.md")
    (tmp_path / "l.md").symlink_to("nothing")

    def once() -> int:
        sources = find_sources(tmp_path, SourceOptions(preset="mintlify"))
        for source in sources.files:
            read_source(source)
        for name in ("f.md", "l.md", "a", "missing/x"):
            with pytest.raises((OSError, files_module.RefusedError)):
                files_module.read_whole(tmp_path / name)
        return len(os.listdir("/proc/self/fd"))

    assert once() == once()


@given(st.text() | st.binary().map(os.fsdecode))
def test_printable(name: str) -> None:
    assert printable(name).isprintable()


@example(b"\xff", b"\\xff")
@given(st.binary(), st.binary())
def test_printable_tells_names_apart(one: bytes, other: bytes) -> None:
    same = printable(os.fsdecode(one)) == printable(os.fsdecode(other))
    assert same == (one == other)
