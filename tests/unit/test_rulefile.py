"""Rules by globs: what they say, what wins over them, and that a wrong file says nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.access import AUTHENTICATED, HIDDEN, PUBLIC, AccessRule, all_of, any_of
from chromafuse.domain.errors import ConfigError
from chromafuse.ingest.rulefile import RuleFile, read_rules
from chromafuse.ingest.sources import Content, SourceOptions, Sources, find_sources, read_source
from tests.support.sites import write_site


def rules(directory: Path, text: str | bytes, name: str = "rules.toml") -> RuleFile:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_rules(path)


def rule(glob: object, **states: object) -> str:
    lines = {"glob": glob, **states}
    return "[[rule]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in lines.items())


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def rule_of(found: RuleFile, *rels: str) -> AccessRule | None:
    stated = found.find(*rels)
    return None if stated is None else stated.rule


# -- the file


def test_each_form_of_a_rule(tmp_path: Path) -> None:
    forms: list[tuple[dict[str, object], AccessRule]] = [
        ({"access": "public"}, PUBLIC), ({"access": "authenticated"}, AUTHENTICATED),
        ({"access": "hidden"}, HIDDEN), ({"groups": ["b", "a"]}, any_of(["a", "b"])),
        ({"groups": {"includes": ["a"], "excludes": ["b"]}}, any_of(["a"], ["b"])),
        ({"groups": {"excludes": ["b"]}}, any_of(["*"], ["b"])),
    ]  # fmt: skip
    for states, expected in forms:
        found = rules(tmp_path, rule("internal/**", **states))
        assert rule_of(found, "internal/a/b.mdx") == expected
        assert rule_of(found, "other/internal/b.mdx") is None


def test_globs_are_those_of_gitignore(tmp_path: Path) -> None:
    def named(glob: object, *rels: str) -> list[bool]:
        found = rules(tmp_path, rule(glob, access="hidden"))
        return [found.find(rel) is not None for rel in rels]

    assert named("*.md", "a.md", "x/y/a.md", "a.mdx") == [True, True, False]
    assert named("/a.md", "a.md", "x/a.md") == [True, False]
    assert named("internal", "internal/x", "a/internal/b/x", "internal.md") == [True, True, False]
    assert named("internal/", "internal/x", "internal") == [True, False]
    assert named("a/*/c.md", "a/b/c.md", "a/b/b/c.md") == [True, False]
    assert named(["a/**", "!a/index.mdx"], "a/x.mdx", "a/index.mdx") == [True, False]
    assert named("Internal/", "internal/x") == [False]


def test_the_last_rule_that_names_a_file_wins(tmp_path: Path) -> None:
    text = (
        rule("*", access="authenticated")
        + rule("a/", groups=["x"])
        + rule("a/open.mdx", access="public")
    )
    found = rules(tmp_path, text)
    assert rule_of(found, "b.mdx") == AUTHENTICATED
    assert rule_of(found, "a/b.mdx") == any_of(["x"])
    assert rule_of(found, "a/open.mdx") == PUBLIC
    stated = found.find("a/b.mdx")
    assert stated is not None
    assert stated.why == "rules.toml rule 2: a/"


def test_a_link_needs_what_both_of_its_paths_need(tmp_path: Path) -> None:
    found = rules(tmp_path, rule("open/", access="public") + rule("closed/", groups=["x"]))
    assert rule_of(found, "open/link.mdx", "closed/a.mdx") == any_of(["x"])
    assert rule_of(found, "other.mdx", "closed/a.mdx") == any_of(["x"])
    assert rule_of(found, "closed/a.mdx", "closed/a.mdx") == any_of(["x"])


def test_the_copy_that_an_editor_left_is_as_its_page(tmp_path: Path) -> None:
    found = rules(tmp_path, rule("a/secret.mdx", groups=["x"]))
    for copy in ("a/secret.mdx~", "a/secret.mdx.bak", "a/.#secret.mdx.swp"):
        assert rule_of(found, copy) == any_of(["x"]), copy
    assert rule_of(found, "a/secret.md") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "[[rule]] tables"), ("[rule]", "[[rule]] tables"), ("rule = 7", "[[rule]] tables"),
        ("[[rules]]", "[[rule]] tables"), (rule("a", access="public") + "[x]\n", "[[rule]]"),
        ("rule = [7]", "rule 1: it is not a table"), ("x = ", "is not TOML"),
        (b"\xff", "is not TOML"), ("x = " + "[" * 50_000, "nested too deeply"),
        (rule("a"), "either access or groups"), ("[[rule]]\naccess='public'", "it needs glob"),
        (rule("a", access="public", groups=["a"]), "either access or groups"),
        (rule("a", acess="public"), "unknown key acess"), (rule("a", access="open"), "none of"),
        (rule("a", access=True), "none of"), (rule("a", access=["public"]), "none of"),
        (rule("a", groups=[]), "neither a list"), (rule("a", groups="a"), "neither a list"),
        (rule("a", groups=[""]), "neither a list"), (rule("a", groups=[7]), "neither a list"),
        (rule("a", groups={}), "neither a list"), (rule("a", groups={"include": ["a"]}), "neither"),
        (rule([], access="public"), "it needs glob"), (rule(7, access="public"), "it needs glob"),
        (rule(["a", 7], access="public"), "it needs glob"), (rule("", access="public"), "empty"),
        (rule("/", access="public"), "empty"), (rule("!", access="public"), "empty"),
        (rule("# a", access="public"), "comment"), (rule(" a", access="public"), "blanks"),
        (rule("a\n", access="public"), "blanks"), (rule("a\nb", access="public"), "newline"),
        (rule("a", access="public") + rule("b"), "rule 2: it needs either"),
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_a_wrong_file_is_an_error(text: str | bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(tmp_path, text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=reason):
            read_rules(path)
    with pytest.raises(ConfigError, match="not a path"):
        read_rules(Path("a\0b"))


# -- a tree


def stored(root: Path, options: SourceOptions) -> tuple[Sources, dict[str, Content]]:
    sources = find_sources(root, options)
    found = {}
    for source in sources.files:
        content = read_source(source)
        assert isinstance(content, Content)
        found[source.rel] = content
    return sources, found


def test_marks_go_before_the_navigation_and_that_before_the_rules(tmp_path: Path) -> None:
    navigation = {"navigation": {"groups": [
        {"group": "Closed", "public": False, "pages": ["nav", "both"]},
        {"group": "Silent", "pages": ["index", "ruled"]},
    ]}}  # fmt: skip
    write_site(tmp_path / "site", {
        "docs.json": json.dumps(navigation), "index.mdx": "", "nav.mdx": "",
        "both.mdx": "---\ngroups: [own]\n---\n", "broken.mdx": "---\ngroups: [a]\n",
        "ruled.mdx": "",
    })  # fmt: skip
    text = rule(["*.mdx", "!index.mdx"], groups=["ruled"])
    options = SourceOptions(preset="plain", access=rules(tmp_path, text))
    _, found = stored(tmp_path / "site", options)
    told = {rel: (content.rule, content.why) for rel, content in found.items()}
    glob = "rules.toml rule 1: *.mdx, !index.mdx"
    assert told["index.mdx"] == (PUBLIC, "")
    assert told["nav.mdx"] == (AUTHENTICATED, 'docs.json: group "Closed" has public: false')
    assert told["both.mdx"] == (any_of(["own"]), "frontmatter: groups")
    assert told["ruled.mdx"] == (any_of(["ruled"]), glob)
    assert told["broken.mdx"][0] == HIDDEN
    assert told["broken.mdx"][1].startswith("frontmatter: the `---` in its first line")
    own = [notice.text for notice in found["both.mdx"].notices]
    assert own == [f"{glob} has no effect on it: it has marks of its own"]
    assert found["ruled.mdx"].notices == ()


def test_a_specification_obeys_the_navigation_and_the_rules(tmp_path: Path) -> None:
    navigation = {"navigation": [{"group": "A", "public": False, "pages": ["api.yaml", "a"]}]}
    pages = {"docs.json": json.dumps(navigation), "api.yaml": "openapi: 3.1.0\n", "a.mdx": ""}
    write_site(tmp_path / "site", {**pages, "other.yaml": ""})
    text = rule("*", groups=["x"])
    options = SourceOptions(preset="plain", access=rules(tmp_path, text))
    _, found = stored(tmp_path / "site", options)
    assert found["api.yaml"].rule == all_of([AUTHENTICATED, any_of(["x"])])
    assert found["api.yaml"].why == (
        'docs.json: group "A" has public: false; and rules.toml rule 1: *'
    )
    assert found["a.mdx"].rule == AUTHENTICATED
    assert found["other.yaml"].rule == any_of(["x"])


def test_pages_that_are_not_stored_close_the_site_file_as_the_rules_say(tmp_path: Path) -> None:
    navigation = {"navigation": {"pages": ["index", "internal/left-out", "internal/gone"]}}
    pages = {"docs.json": json.dumps(navigation), "index.mdx": "", "internal/left-out.md": ""}
    root = write_site(tmp_path / "site", pages)
    access = rules(tmp_path, rule("internal/left-out.md", groups=["x"]))
    options = SourceOptions(preset="plain", exclude=("internal/",), access=access)
    assert find_sources(root, options).named_rule == any_of(["x"])
    access = rules(tmp_path, rule("internal/gone.*", groups=["y"]))
    options = SourceOptions(preset="plain", exclude=("internal/",), access=access)
    assert find_sources(root, options).named_rule == any_of(["y"])
    options = SourceOptions(preset="plain", exclude=("internal/",))
    assert find_sources(root, options).named_rule == PUBLIC


def test_the_default_counts_for_the_site_file_whatever_the_rules_say(tmp_path: Path) -> None:
    navigation = {"navigation": {"pages": ["index"]}}
    root = write_site(tmp_path / "site", {"docs.json": json.dumps(navigation), "index.mdx": ""})
    access = rules(tmp_path, rule("*", access="public"))
    options = SourceOptions(preset="plain", access=access, default_access=AUTHENTICATED)
    assert find_sources(root, options).named_rule == AUTHENTICATED


def test_a_rule_that_names_nothing_is_told(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site", {"a.mdx": "", "left/out.mdx": ""})
    text = rule("*.mdx", access="public") + rule(["Internal/", "x"], access="hidden")
    options = SourceOptions(
        preset="plain",
        exclude=("left/",),
        access=rules(tmp_path, text + rule("left/", groups=["a"])),
    )
    notices = [notice.text for notice in find_sources(root, options).notices]
    assert notices == [
        "rules.toml rule 2: Internal/, x names no file that is taken",
        "rules.toml rule 3: left/ names no file that is taken",
    ]


def test_the_rule_file_itself_is_no_page(tmp_path: Path) -> None:
    root = write_site(tmp_path, {"a.mdx": "", "deep/b.mdx": ""})
    access = rules(root, rule("a.mdx", groups=["a"]), "deep/rules.toml")
    (root / "link.toml").symlink_to("deep/rules.toml")
    sources = find_sources(root, SourceOptions(preset="plain", access=access))
    assert [source.rel for source in sources.files] == ["a.mdx", "deep/b.mdx"]
    told = {item.path: (item.reason, item.lost) for item in sources.omissions}
    reason = ("holds the access rules", False)
    assert told == {"deep/rules.toml": reason, "link.toml": reason}


def test_a_link_to_a_ruled_page_is_closed_with_it(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site", {"closed/a.mdx": "", "open/b.mdx": ""})
    (root / "open" / "link.mdx").symlink_to("../closed/a.mdx")
    access = rules(tmp_path, rule("closed/", groups=["x"]) + rule("open/", access="public"))
    _, found = stored(root, SourceOptions(preset="plain", access=access))
    assert found["open/link.mdx"].rule == any_of(["x"])
    assert found["open/b.mdx"].rule == PUBLIC


TEXTS = st.lists(
    st.sampled_from(["[[rule]]", "[rule]", 'glob = "a"', 'glob = ["a", "!b", "[", "\\\\"]',
                     "glob = 7", 'access = "public"', 'groups = ["a"]', "groups = {}", 'x = "y"',
                     '"', "\0"]),
    max_size=6,
).map("\n".join)  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(text=TEXTS | st.binary(max_size=40), rel=st.text(min_size=1, max_size=8))
def test_any_file_is_rules_or_an_error(text: str | bytes, rel: str, directory: Path) -> None:
    problem = ""
    try:
        rules(directory, text).find(rel)
    except ConfigError as error:
        problem = str(error)
    assert "\n" not in problem
