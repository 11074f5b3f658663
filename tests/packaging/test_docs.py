"""The manual in ``docs/`` and the README say nothing that the command line contradicts."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from chromafuse.cgrep import EXPLAIN, NO_PUSHDOWN
from chromafuse.config import CONFIG_VARIABLE, ENV_PREFIX, Settings
from chromafuse.ingest.sources import SourceOptions, find_sources

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
README = PROJECT / "README.md"
CHANGELOG = PROJECT / "CHANGELOG.md"
CGREP_OPTIONS = {EXPLAIN.decode(), NO_PUSHDOWN.decode()}
SCRIPTS = ("quickstart", "setup", "soak", "test")

# Keys of Mintlify's navigation that hold further nodes.
NESTING = ("tabs", "groups", "pages")

# Options of other programs that the texts use, with the program.
STOCK_OPTIONS = {
    "--cap-add": "docker",
    "--checksum": "rsync",
    "--clear-groups": "setpriv",
    "--collector": "node_exporter",
    "--constraint": "pip",
    "--create": "systemd-tmpfiles",
    "--delete": "rsync",
    "--dev": "bwrap",
    "--device": "docker",
    "--editable": "pip",
    "--exclude-dir": "grep",
    "--files": "rg",
    "--no-index": "git",
    "--now": "systemctl",
    "--path": "chroma",
    "--pipe": "systemd-run",
    "--port": "chroma",
    "--proc": "bwrap",
    "--regid": "setpriv",
    "--reuid": "setpriv",
    "--rm": "docker",
    "--ro-bind": "bwrap",
    "--security-opt": "docker",
    "--symlink": "bwrap",
    "--unshare-all": "bwrap",
    "--wait": "systemd-run",
}

_FENCE = re.compile(r"^(`{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z]")
_HELP_LINE = re.compile(r"^ +(?:(-\w), )?(--[a-z][a-z0-9-]*[a-z])", re.MULTILINE)
_COMPONENTS = re.compile(r"</?(?:Warning|Note|Tip)>")


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def pages() -> list[Path]:
    return sorted(path for path in DOCS.rglob("*") if path.suffix in {".md", ".mdx"})


def texts() -> list[Path]:
    """Everything with sentences in it: the pages, the specification, README and changelog."""
    return [*pages(), *DOCS.rglob("*.yaml"), README, CHANGELOG]


class Page(NamedTuple):
    """A page in its two parts."""

    front: dict[str, object]
    body: str


@functools.cache
def read_page(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    opening, block, body = re.split(r"^---\n", text, maxsplit=2, flags=re.MULTILINE)
    assert opening == ""
    front = yaml.safe_load(block)
    assert isinstance(front, dict)
    return Page(front, body)


def prose(text: str) -> str:
    """``text`` without its code."""
    return _CODE.sub("", _FENCE.sub("", text))


def navigation() -> list[str]:
    return list(
        _entries(json.loads((DOCS / "docs.json").read_text(encoding="utf-8"))["navigation"])
    )


def _entries(node: object) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for item in node:
            yield from _entries(item)
    elif isinstance(node, dict):
        for key in NESTING:
            yield from _entries(node.get(key, []))


@functools.cache
def help_of(*command: str) -> str:
    program = Path(sys.executable).parent / "chromafuse"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    words = [str(program), *command] if command[:1] != ("script",) else [*command[1:]]
    done = subprocess.run(
        [*words, "--help"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@functools.cache
def commands() -> tuple[str, ...]:
    """All commands; one that belongs to a group has the group's name before it."""
    found = tuple(_commands())
    assert len(found) >= 8
    return found


def _commands(*group: str) -> Iterator[str]:
    listed = help_of(*group).partition("\nCommands:\n")[2].partition("\n\n")[0]
    for name in re.findall(r"^  (\S+)", listed, re.MULTILINE):
        below = tuple(_commands(*group, name))
        yield from below or (" ".join((*group, name)),)


def own_options(command: str) -> frozenset[str]:
    """The options of a command as ``commands`` names it."""
    return options_of(*command.split())


@functools.cache
def options_of(*command: str) -> frozenset[str]:
    """The options, short and long, that the help of a command names."""
    return frozenset(
        option for pair in _HELP_LINE.findall(help_of(*command)) for option in pair if option
    )


def script_options(script: str) -> frozenset[str]:
    return options_of("script", str(PROJECT / "scripts" / script))


def anchors(path: Path) -> set[str]:
    """The fragments of a page's headings, as Mintlify and GitHub make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def target_of(link: str, holder: Path) -> Path | None:
    """The file that an internal link leads to, or None if there is none."""
    path = link.partition("#")[0]
    if not path:
        return holder
    file = DOCS / f"{path[1:]}.mdx" if path.startswith("/") else holder.parent / path
    return file.resolve() if file.exists() else None


def internal_links(holder: Path) -> list[str]:
    links = _LINK.findall(prose(holder.read_text(encoding="utf-8")))
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def test_the_navigation_names_every_page_once_and_nothing_else() -> None:
    named = navigation()
    assert sorted(named) == sorted(set(named))
    assert sorted(named) == [path.relative_to(DOCS).with_suffix("").as_posix() for path in pages()]


def test_an_ingest_takes_every_file_without_a_word() -> None:
    found = find_sources(DOCS, SourceOptions())
    assert [f"{o.path}: {o.reason}" for o in found.omissions] == []
    assert [f"{n.path}: {n.text}" for n in found.notices] == []
    on_disk = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.is_file()}
    assert {source.rel for source in found.files} == on_disk


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_a_page_has_a_title_and_a_description(path: Path) -> None:
    front, body = read_page(path)
    assert set(front) <= {"title", "description", "groups"}
    for key in ("title", "description"):
        assert isinstance(front[key], str)
        assert front[key]
    assert body.startswith("\n")
    assert body.endswith("\n")


def test_some_pages_are_restricted_to_each_group() -> None:
    marks = [read_page(path).front.get("groups") for path in pages()]
    for wanted in (None, ["admin"], ["billing"], ["admin", "billing"]):
        assert wanted in marks


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_mdx_has_nothing_that_would_be_taken_for_code(path: Path) -> None:
    text = _COMPONENTS.sub("", prose(read_page(path).body))
    assert re.findall(r"[{}<>]", text) == []


@pytest.mark.parametrize("path", [*pages(), README, CHANGELOG], ids=name_of)
def test_internal_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in internal_links(path):
        target = target_of(link, path)
        fragment = link.partition("#")[2]
        if target is None or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_a_page_links_to_no_page_that_its_readers_cannot_see(path: Path) -> None:
    def groups(page: Path) -> set[str] | None:
        marks = read_page(page).front.get("groups")
        return set(marks) if isinstance(marks, list) else None

    mine = groups(path)
    for link in internal_links(path):
        target = target_of(link, path)
        theirs = groups(target) if target in pages() and target is not None else None
        assert theirs is None or (mine is not None and mine <= theirs), link


def test_every_option_of_every_command_is_documented() -> None:
    documented = "\n".join(path.read_text(encoding="utf-8") for path in pages())
    words = set(re.findall(r"(?<![\w-])--?[A-Za-z][a-z0-9-]*", documented))
    for command in ("", *commands()):
        missing = own_options(command) - words
        assert not missing, f"chromafuse {command}"


def test_every_command_is_in_the_readme_and_the_manual() -> None:
    manual = "\n".join(path.read_text(encoding="utf-8") for path in pages())
    for command in commands():
        assert f"chromafuse {command}" in manual
        assert f"chromafuse {command}" in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", texts(), ids=name_of)
def test_no_option_is_mentioned_that_does_not_exist(path: Path) -> None:
    known = set(STOCK_OPTIONS).union(*(own_options(name) for name in commands()), options_of())
    known = known.union(CGREP_OPTIONS, *(script_options(name) for name in SCRIPTS))
    mentioned = set(_OPTION.findall(path.read_text(encoding="utf-8")))
    assert mentioned - known == set()


@pytest.mark.parametrize("path", texts(), ids=name_of)
def test_examples_give_each_command_its_own_options(path: Path) -> None:
    names = "|".join(commands())
    text = path.read_text(encoding="utf-8")
    for command, rest in re.findall(rf"\bchromafuse ({names})\b([^|`\n&]*)", text):
        own_part = rest.partition(" -- ")[0]  # what follows belongs to another program
        given = re.findall(r"(?<!\S)(--[a-z0-9-]+|-\w)\b", own_part)
        assert set(given) - own_options(command) == set(), f"chromafuse {command}{rest}"


def test_stock_options_are_still_used() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in texts())
    assert [option for option in STOCK_OPTIONS if option not in text] == []


def test_the_options_of_quickstart_are_in_its_page() -> None:
    page = (DOCS / "quickstart.mdx").read_text(encoding="utf-8")
    assert [option for option in script_options("quickstart") - {"-h"} if option not in page] == []


def test_each_setting_is_documented_with_option_variable_and_default() -> None:
    text = (DOCS / "reference" / "configuration.mdx").read_text(encoding="utf-8")
    table = text.partition("\n## Settings\n")[2].partition("\n### Values\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")]
    documented = {row[0].strip("`"): row for row in rows if row and row[0].startswith("`")}
    assert sorted(documented) == sorted(Settings.model_fields)
    values = text.partition("\n### Values\n")[2].partition("\n## ")[0]
    for name, field in Settings.model_fields.items():
        _, option, variable, users, default = documented[name]
        flag = "--" + name.replace("_", "-")
        if name == "token":  # arguments are for everybody to see
            assert not any("--token" in own_options(command) for command in commands())
            flag = "--token-file"
        else:
            assert f"`{flag}`" in option
        assert variable == f"`{ENV_PREFIX}{name.upper()}`"
        assert users.split(", ") == [c for c in commands() if flag in own_options(c)]
        assert _shown_default(name, field.default) in (None, default)
        assert re.search(rf"^\| [^|]*`{name}`", values, re.MULTILINE), name


def _shown_default(name: str, value: object) -> str | None:
    """How the table shows a default, or None where it says it in words."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if name in ("cache_size", "pointer_grep_max") and isinstance(value, int):
        return f"`{value >> 20}M`"
    if isinstance(value, int | float):
        return f"`{value:g}`"
    return f"`{value}`" if isinstance(value, str) else None


@pytest.mark.parametrize("path", texts(), ids=name_of)
def test_no_variable_is_mentioned_that_does_not_exist(path: Path) -> None:
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE}
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(rf"{ENV_PREFIX}[A-Z][A-Z0-9_]*", text)) - known == set()


def test_the_exit_codes_are_those_of_the_help() -> None:
    told = re.findall(r"^ +(\d+) +\w", help_of().partition("Exit codes:")[2], re.MULTILINE)
    page = (DOCS / "reference" / "exit-codes.mdx").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert len(told) >= 10
    assert listed == [*told, "130"]


def test_the_promises_are_numbered_from_one() -> None:
    page = (DOCS / "reference" / "file-system.mdx").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^- \*\*P(\d+)\*\* ", page, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 30


def test_each_promise_names_tests_that_there_are() -> None:
    page = (DOCS / "reference" / "file-system.mdx").read_text(encoding="utf-8")
    promises = re.findall(r"^- \*\*(P\d+)\*\* ", page, re.MULTILINE)
    rows = re.findall(r"^\| (P\d+) \| (.+) \|$", page.partition("\n## Tests\n")[2], re.MULTILINE)
    assert [promise for promise, _ in rows] == promises
    for promise, named in rows:
        tests = [text.strip("`").partition("::") for text in named.split(", ")]
        for file, _, test in tests:
            assert test in defined_tests(PROJECT / "tests" / file), f"{promise}: {file}::{test}"


@functools.cache
def defined_tests(file: Path) -> frozenset[str]:
    """The names of the tests that a file defines."""
    return frozenset(
        node.name
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("path", sorted((DOCS / "api").rglob("*.yaml")), ids=name_of)
def test_a_specification_is_whole(path: Path) -> None:
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"3\.1\.\d", spec["openapi"])
    references = set(re.findall(r"\$ref: \"#/([^\"]+)\"", path.read_text(encoding="utf-8")))
    for reference in references:
        node = spec
        for key in reference.split("/"):
            node = node[key]
    for kind, parts in spec["components"].items():
        if kind != "securitySchemes":
            assert {f"components/{kind}/{name}" for name in parts} <= references
    used = [
        operation["operationId"]
        for item in spec["paths"].values()
        for verb, operation in item.items()
        if verb in {"get", "post", "put", "patch", "delete"}
    ]
    assert used
    assert len(used) == len(set(used))
    site = json.loads((DOCS / "docs.json").read_text(encoding="utf-8"))
    assert f'"{path.relative_to(DOCS).as_posix()}"' in json.dumps(site["navigation"])
