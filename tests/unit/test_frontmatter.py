"""The frontmatter of a page: what counts, and that nothing unclear opens a page."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import ANONYMOUS, AUTHENTICATED, HIDDEN, any_of, rule_from_marks
from chromafuse.ingest.frontmatter import (
    HEAD_BYTES,
    MAX_BLOCK_BYTES,
    begins_with_block,
    may_have_frontmatter,
    parse_frontmatter,
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("closing", ["---", "...", "---  "])
def test_marks_are_read(newline: str, bom: str, closing: str) -> None:
    lines = ["---", "title: A", "groups: [admin, 'x y']", "public: false", closing, "# Body"]
    front = parse_frontmatter(bom + newline.join(lines))
    assert front.broken is None
    assert front.marks == {"groups": ["admin", "x y"], "public": False}
    assert not front.hidden
    assert not front.commented_rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n---\nbody",
        "---\n# only a comment\n---\n",
        "\n\n---\ntitle: not access\n---\n",
    ],
)
def test_no_marks(text: str) -> None:
    front = parse_frontmatter(text)
    assert front.broken is None
    assert front.marks == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("---\ngroups: [a]\n", "never closed"),
        ("---", "never closed"),
        ("---\r", "never closed"),
        ("---\n\nA thematic break above.\n", "***"),
        ("---\ngroups: [a\n---\n", "not YAML"),
        ("---\na: b\n\tgroups: [a]\n---\n", "not YAML"),
        ("---\njust words\n---\n", "key: value"),
        ("---\n- a\n---\n", "key: value"),
        ("---\ngroups: [a]\ngroups: [b]\n---\n", "twice"),
        ("---\npublic: true\n'public': false\n---\n", "twice"),
        ("---\ngroups: {includes: [a], includes: [b]}\n---\n", "twice"),
        ("---\na: &a {groups: [x]}\n<<: *a\n---\n", "<<"),
        ("---\nGroups: [admin]\n---\n", "not spelt"),
        ("---\ntitle: a\0b\n---\n", "not YAML"),
        ("---\ngroups: *nothing\n---\n", "not YAML"),
        ('---\ngroups: ["\\UFFFFFFFF"]\n---\n', "not YAML"),
        ("---json\n{}\n---\n", "more than that"),
        ("---\rgroups: [a]\r---\r", "more than that"),
        ("\n---\ngroups: [a]\n---\n", "must come first"),
        ("# Title\n---\ngroups: [a]\n---\n", "must come first"),
        ("\ufeff\ufeff---\npublic: false\n---\n", "must come first"),
        ("---\ntitle: x\n...\ngroups: [a]\n---\n", "behind the `...`"),
        ("---\na: 1\n--- b\nc: 2\n---\n", "not YAML"),
    ],
)
def test_broken(text: str, word: str) -> None:
    front = parse_frontmatter(text)
    assert front.broken is not None
    assert word in front.broken
    assert "\n" not in front.broken


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("groups: [1, 2]", HIDDEN),
        ("groups: admin", HIDDEN),
        ("groups:", HIDDEN),
        ("groups: []", HIDDEN),
        ("groups: &a [*a]", HIDDEN),
        ("groups: !!set {a}", HIDDEN),
        ('groups: ["\\uD800"]', HIDDEN),
        ("groups: [[a]]", HIDDEN),
        ("groups: !x [a]", HIDDEN),
        ("groups: !x {includes: [a]}", HIDDEN),
        ("public: 'true'", HIDDEN),
        ("public: !!bool maybe", HIDDEN),
        ("public: 1", HIDDEN),
        ("public: {}", HIDDEN),
        ("public: false", AUTHENTICATED),
        ("groups: {includes: [a, b], excludes: [c]}", any_of(["a", "b"], ["c"])),
        ("groups: {includes: [a], excludes: c}", HIDDEN),
        ("groups: {includes: [a], <<: {excludes: []}}", HIDDEN),
        ("groups:\n- a\n- b", any_of(["a", "b"])),
        ("base: &g [a]\ngroups: *g", any_of(["a"])),
        # What says nothing about access does not matter.
        ("date: 2024-99-99\nx: !!python/object:os.system {}\ngroups: [a]", any_of(["a"])),
    ],
)
def test_rule_of_marks(value: str, expected: object) -> None:
    front = parse_frontmatter(f"---\n{value}\n---\n")
    assert front.broken is None
    assert rule_from_marks(front.marks, AUTHENTICATED)[0] == expected


@pytest.mark.parametrize("line", ["hidden: true", "noindex: true", "hidden: 'True'", "noindex: on"])
def test_hidden(line: str) -> None:
    assert parse_frontmatter(f"---\n{line}\n---\n").hidden


@pytest.mark.parametrize("line", ["hidden: false", "title: hidden", "hidden: [true]", "noindex:"])
def test_not_hidden(line: str) -> None:
    assert not parse_frontmatter(f"---\n{line}\n---\n").hidden


@pytest.mark.parametrize("line", ["# groups: [a]", "  #public: false", "#  isPublic: no"])
def test_commented_mark_is_told(line: str) -> None:
    front = parse_frontmatter(f"---\ntitle: x\n{line}\n---\n")
    assert front.commented_rule
    assert front.marks == {}
    assert not parse_frontmatter(f"---\ntitle: x\n---\n{line}\n").commented_rule


def test_size_limit_is_in_bytes_and_exact() -> None:
    fits = "groups: [a]\n#" + "é" * ((MAX_BLOCK_BYTES - 14) // 2) + "\n"
    assert len(fits.encode()) == MAX_BLOCK_BYTES
    assert parse_frontmatter(f"---\n{fits}---\n").marks == {"groups": ["a"]}
    assert "longer than" in str(parse_frontmatter(f"---\n#{fits}---\n").broken)
    plain = "groups: [a]\n#" + "e" * (MAX_BLOCK_BYTES - 14) + "\n"
    assert parse_frontmatter(f"---\n{plain}---\n").marks == {"groups": ["a"]}


@pytest.mark.parametrize(
    "block",
    [
        "a: " + "[" * 60_000,
        "? " * 30_000,
        "- " * 30_000,
        "".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]\n" for i in range(1, 40)),
        "a: &a [x]\n" + "".join(f"b{i}: *a\n" for i in range(5_000)),
        "groups: {" + "a: 1, " * 9_000 + "}",
        "x: y\n" * 13_000,
        "? " + " " * 60_000 + "x",
    ],
)
def test_hostile_yaml_is_cheap(block: str) -> None:
    start = time.monotonic()
    front = parse_frontmatter(f"---\n{block}\n---\n")
    parse_frontmatter(f"x\n---\n{block}\n---\n")
    assert time.monotonic() - start < 5
    assert front.broken is not None or not front.marks


def test_many_keys_are_fine_and_many_aliases_are_not() -> None:
    keys = "".join(f"k{i}: [1]\n" for i in range(200))
    assert parse_frontmatter(f"---\n{keys}groups: [a]\n---\n").marks == {"groups": ["a"]}
    aliases = "a: &a x\n" + "".join(f"k{i}: *a\n" for i in range(65))
    assert "aliases" in str(parse_frontmatter(f"---\n{aliases}---\n").broken)


def test_which_names_count() -> None:
    names = ["a.md", "a.mdx", "a.markdown", "a.mkd", "a.MD", "a.md.txt", "a.mdx~", "a.mdx.orig"]
    names += ["a.md.bak", ".a.mdx.swp", "#a.md#", "a.md_old"]
    assert all(map(may_have_frontmatter, names))
    assert not any(map(may_have_frontmatter, ["a.txt", "md", "a.mdb", "x.md/a.txt", "amd.json"]))
    assert begins_with_block("a.txt", "---\ngroups: [a]\n---\n")
    assert not begins_with_block("a.yaml", "---\ngroups: [a]\n---\n")
    assert not begins_with_block("a.txt", "--- a\n")


@pytest.mark.parametrize(
    "line",
    [
        " " * 60_000 + "x",
        "?" + " " * 60_000 + "x",
        "---" + "\t" * 60_000 + "x",
        "- " * 30_000,
        "`" * 60_000 + "a`",
        "'" * 60_000,
        "a" * 60_000,
        "\u2014" * 20_000 + "x",
        "--\n" * 20_000,
        "\u00e9\n" * 20_000,
    ],
)
def test_hostile_lines_are_cheap(line: str) -> None:
    start = time.monotonic()
    assert parse_frontmatter(line).broken is None or line.startswith("---")
    assert parse_frontmatter(f"--\n{line}\n").broken is None
    assert time.monotonic() - start < 2


_MARKED = "---\ngroups: [admin]\n---\n# Secret\n"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- licence -->\n" + _MARKED,
        "<!--\nlicence\nof many lines\n-->\n\n" + _MARKED,
        "{/* licence */}\n" + _MARKED,
        "<!--\n```\n-->\n" + _MARKED,
        "***\ngroups: [admin]\n***\n",
        "___\ngroups: [admin]\n___\n",
        "`---`\ngroups: [admin]\n`---`\n",
        "\\---\ngroups: [admin]\n\\---\n",
        *(lead + _MARKED for lead in ("\u200b", "\u00a0", "\f", "\0", "\u2060", "\x1b", "\u2028")),
        "import X from '/x.mdx'\n" + _MARKED,
        "junk\n" + _MARKED,
        "<div>\n\n" + _MARKED,
        "--\ngroups: [admin]\n---\n",
        "--\ngroups: [admin]\n--\n",
        "\u2014\ngroups: [admin]\n\u2014\n",
        "\u2014-\ngroups: [admin]\n---\n",
        "\u2013\u2013\ntitle: x\ngroups: [admin]\n---\n",
        "----\ngroups: [admin]\n----\n",
        "groups: [admin]\n---\n# Secret\n",
        "title: x\nis-public: no\n---\n# Secret\n",
        "groups: [admin]\n\n# Secret\n",
        "groups:\n- admin\n---\n",
        "---\n---\n" + _MARKED,
        "---\n# nothing\n---\n\n" + _MARKED,
        "---\ntitle: x\n---\n" + _MARKED,
        "---\ntitle: x\n---\ngroups: [admin]\n---\n",
        '+++\ngroups = ["admin"]\n+++\n',
        '+++\ntitle = "x"\n[access]\ngroups = ["admin"]\n+++\n',
        '{\n  "title": "x",\n  "groups": ["admin"]\n}\n',
        " ---yaml\ngroups: [a]\n---\n",
        "<!-- x -->\r---\rgroups: [admin]\r---\r",
        "<!-- x -->\n---\ntitle: x\nbroken line\ngroups: [admin]\n---\n",
        "<!-- x -->\n---\n? [groups]\n: [admin]\n---\n",
        "<!-- x -->\n---\n{groups: [admin]}\n---\n",
        "text\n\n---\ntitle: x\nGroup : a\n---\n",
        "\uff0d\uff0d\uff0d\n\uff47roups\uff1a [admin]\n---\n",
    ],
)
def test_marks_that_would_have_no_effect_hide_the_page(text: str) -> None:
    front = parse_frontmatter(text)
    assert front.broken is not None
    assert "access mark" in front.broken


@pytest.mark.parametrize(
    "line",
    [
        '"groups ": [a]',
        "\u200bgroups: [a]",
        "? [groups]\n: [a]",
        "? {groups: x}\n: [a]",
        "group: a",
        "is_public: false",
        "is-public: false",
        "PUBLIC: false",
        "\u00a0groups: [a]",
        '"\\u200bgroups": [a]',
        "g\u00adroups: [a]",
        "\uff50ublic: false",
    ],
)
def test_marks_that_are_not_spelt_right_hide_the_page(line: str) -> None:
    front = parse_frontmatter(f"---\ntitle: x\n{line}\n---\n")
    assert front.broken is not None
    assert front.broken.isprintable()


@pytest.mark.parametrize("head", ["", "---\ntitle: x\n---\n\n", "---\n---\n", "# Title\n\n"])
@pytest.mark.parametrize(
    "body",
    [
        "```yaml\n---\ngroups: [admin]\n---\n```\n",
        "~~~\n---\ngroups: [admin]\n---\n~~~\n",
        "1. ```mdx\n   ---\n   groups: [admin]\n   ---\n   ```\n",
        "Text.\n\npublic: true\n\nMore text.\n\n---\n",
        "Title\n---\nPublic: everybody sees it.\n\nOther\n---\nText\n",
        "Text\n\n---\n\nGroups: text\n\nand more text.\n\n---\n",
        "[Groups](/x): text\n\n---\n",
        "**Public**: text\n\n---\n",
        "- Public: a\n- Private: b\n\n---\n",
        "| a | b |\n|---|---|\n| groups: | x |\n",
        "import X from 'x'\n\nexport const meta = {\n  groups: ['a'],\n  public: true,\n}\n\n# T\n",
        "Text\n\n    ---\n    groups: [a]\n    ---\n",
        "publicity: no\n---\n",
        "# Title\n\nText\n\n<X a={{\n  groups: [1],\n}} />\n",
    ],
)
def test_ordinary_pages_stay_visible(head: str, body: str) -> None:
    assert parse_frontmatter(head + body).broken is None


@pytest.mark.parametrize("corpus", ["next", "ai"])
def test_no_page_of_the_corpora_is_hidden(corpus: str) -> None:
    root = Path(__file__).parents[2] / ".corpora" / corpus
    if not root.is_dir():
        pytest.skip("the corpora are not fetched")
    pages = [path for path in root.rglob("*") if path.is_file()]
    broken = [path for path in pages if parse_frontmatter(path.read_text()).broken]
    assert broken == []


_PIECES = (
    "--- ... : - groups public isPublic hidden true false # [ ] { } &a *a ! ' << | > % @ é a 1"
)
_ALPHABET = st.sampled_from(
    [*_PIECES.split(), "\n", "\r\n", "\r", " ", "\t", "\ufeff", "\0", "\x85", "\u2028", '"', "\\U"]
)


@given(st.lists(_ALPHABET, max_size=60).map("".join) | st.text())
def test_never_raises(text: str) -> None:
    parse_frontmatter(text)
    parse_frontmatter("---\n" + text + "\n---\n")


@given(st.lists(_ALPHABET, max_size=30).map("".join))
def test_garbage_never_opens(text: str) -> None:
    """Without the words that state it, no block makes a page public where the default is not."""
    block = text.replace("true", "").replace("isPublic", "")
    front = parse_frontmatter("---\n" + block + "\n---\n")
    if front.broken is None:
        assert not rule_from_marks(front.marks, AUTHENTICATED)[0].allows(ANONYMOUS)


@given(st.lists(_ALPHABET, max_size=30).map("".join), st.integers(0, 3))
def test_head_decides(text: str, pad: int) -> None:
    """What is read of a page to select it tells the same as the whole page."""
    page = f"---\n#{'x' * (MAX_BLOCK_BYTES - pad)}\n{text}\n---\n" if pad else f"---\n{text}\n---\n"
    page += "body\n---\n" * 20_000
    head = page.encode()[:HEAD_BYTES].decode(errors="replace")
    whole, part = parse_frontmatter(page), parse_frontmatter(head)
    assert (whole.broken is None, whole.marks, whole.hidden) == (
        part.broken is None,
        part.marks,
        part.hidden,
    )
