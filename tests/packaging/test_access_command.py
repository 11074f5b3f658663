"""``ingest --access`` and ``access``: rules from a file, and what decided about a page."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from chromafuse.stores.chroma import open_collection
from tests.support.commands import finish, run_command, start_ingest
from tests.support.sites import foreign_chunks, tree_record, write_site

RULES = """
[[rule]]
glob = ["internal/**", "*.yaml"]
groups = ["admin"]

[[rule]]
glob = "nothing/"
access = "hidden"
"""
NAVIGATION = {"navigation": {"groups": [
    {"group": "Members", "public": False, "pages": ["members"]},
    {"group": "All", "pages": ["index", "internal/billing", "internal/api"]},
]}}  # fmt: skip
SITE = {
    "docs.json": json.dumps(NAVIGATION),
    "index.mdx": "# Home\n",
    "members.mdx": "",
    "internal/api.mdx": "",
    "internal/billing.mdx": "---\ngroups: [admin, billing]\n---\n",
    "api.yaml": "openapi: 3.1.0\n",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a site that was stored with a rule file."""
    base = tmp_path_factory.mktemp("access")
    (base / "rules.toml").write_text(RULES)
    site = write_site(base / "site", SITE)
    done = finish(
        start_ingest(site, str(base / "db"), "docs", "--access", str(base / "rules.toml"))
    )
    assert done.returncode == 0, done.stderr
    assert "rules.toml rule 2: nothing/ names no file that is taken" in done.stdout
    return base


def access(base: Path, *words: str, collection: str = "docs") -> subprocess.CompletedProcess[str]:
    at = ("-c", collection, "--chroma", str(base / "db"))
    return run_command("access", *words, *at, home=base)


@pytest.mark.parametrize(
    ("path", "rule", "why"),
    [
        ("index.mdx", "public", "nothing names it: --default-access of the ingest"),
        ("members.mdx", "any signed-in reader",
         'docs.json: group "Members" has public: false'),
        ("internal/api.mdx", "any of admin", "rules.toml rule 1: internal/**, *.yaml"),
        ("internal/billing.mdx", "any of admin, billing", "frontmatter: groups"),
        ("api.yaml", "any of admin", "rules.toml rule 1: internal/**, *.yaml"),
        ("docs.json", "any of admin and any of admin, billing",
         "it names every page of the site: all their rules together"),
    ],
)  # fmt: skip
def test_what_decided_about_a_page(path: str, rule: str, why: str, base: Path) -> None:
    found = json.loads(access(base, path, "--json").stdout)
    assert (found["path"], found["access"], found["decided_by"]) == (path, rule, why)


def test_who_sees_a_page(base: Path) -> None:
    done = access(base, "internal/billing.mdx", "--as", "billing, other")
    assert done.returncode == 0
    assert done.stdout.split("\n") == [
        "page                    internal/billing.mdx",
        "slug                    internal/billing",
        "access                  any of admin, billing",
        "decided by              frontmatter: groups",
        'tree entry              {"isPublic": false, "groups": ["admin", "billing"]}',
        "anonymous               does not see it",
        "signed in, in no group  does not see it",
        "--as billing,other      sees it",
        "",
    ]
    sees = json.loads(access(base, "members.mdx", "--json", "--as", "").stdout)["sees"]
    assert sees == {"anonymous": False, "signed in, in no group": True, "--as ": True}


@pytest.mark.parametrize("path", ["/members.mdx", "./members.mdx", "members"])
def test_a_page_is_named_by_path_or_slug(path: str, base: Path) -> None:
    assert json.loads(access(base, path, "--json").stdout)["path"] == "members.mdx"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("internal/bilings.mdx", "(did you mean internal/billing.mdx?)"),
        ("billing.mdx", "(did you mean internal/billing.mdx?)"),
        ("internal", "internal is a directory of 2 pages (name a page; "),
        ("zzzzzz", "there is no page zzzzzz (`chromafuse tree --all` lists the pages)"),
        ("", "there is no page"),
        ("a\x1b[31m", "there is no page a\\x1b[31m"),
    ],
)
def test_an_unknown_page_is_an_error_with_a_suggestion(path: str, reason: str, base: Path) -> None:
    done = access(base, path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("chromafuse: ")
    assert done.stderr.count("\n") == 1
    assert reason in done.stderr


def test_a_wrong_rule_file_stores_nothing(base: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("[[rule]]\nglob = 'a'\n")
    words = ("--access", str(tmp_path / "rules.toml"))
    done = finish(start_ingest(base / "site", str(tmp_path / "db"), "docs", *words))
    assert done.returncode == 2
    assert "rules.toml, rule 1: it needs either access or groups" in done.stderr
    assert not (tmp_path / "db").exists()


def test_another_reason_alone_is_another_tree(base: Path, tmp_path: Path) -> None:
    rules = tmp_path / "other.toml"
    rules.write_text(RULES)
    site, target = write_site(tmp_path / "site", SITE), str(tmp_path / "db")
    for name in ("rules.toml", "other.toml"):
        (tmp_path / name).write_text(RULES)
        done = finish(start_ingest(site, target, "docs", "--access", str(tmp_path / name)))
        assert done.returncode == 0
    assert "written 0 pages" in done.stdout
    assert "decided by              other.toml rule 1" in access(tmp_path, "api.yaml").stdout


def test_a_tree_of_another_tool_is_explained_by_its_fields(tmp_path: Path) -> None:
    entries: dict[str, dict[str, object]] = {
        "open": {"isPublic": True, "groups": [], "why": "not believed"},
        "grouped": {"isPublic": False, "groups": ["a"]},
        "empty": {"isPublic": False, "groups": []},
        "bare": {},
        "wrong": {"isPublic": True, "groups": "a"},
        "odd": {"isPublic": False, "groups": [], "access": 7},
        "../up": {"isPublic": True, "groups": []},
    }
    store = open_collection(str(tmp_path / "db"), "foreign", create=True, timeout=10)
    chunks = [chunk for slug in entries for chunk in foreign_chunks(slug, "text")]
    store.add([*chunks, tree_record(json.dumps(entries))])
    store.close()
    expected = {
        "open": ("public", "isPublic"),
        "grouped": ("any of a", "groups"),
        "empty": ("hidden from everybody",
                  "isPublic is false and groups is empty: --empty-groups hidden"),
        "bare": ("hidden from everybody", "isPublic is missing, or neither true nor false: hidden"),
        "wrong": ("hidden from everybody", "groups is missing, or no list of names: hidden"),
        "odd": ("hidden from everybody", "access cannot be understood beside isPublic: hidden"),
    }  # fmt: skip
    for slug, wanted in expected.items():
        found = json.loads(access(tmp_path, slug, "--json", collection="foreign").stdout)
        assert (found["access"], found["decided_by"]) == wanted
    done = access(tmp_path, "../up", collection="foreign")
    assert done.returncode == 1
    assert "no mount shows ../up: name . or .." in done.stderr
