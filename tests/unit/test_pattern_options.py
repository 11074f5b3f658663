"""The command lines of grep and ripgrep: option tables, operands, and which files are needed."""

from __future__ import annotations

import re
import subprocess

import pytest

from chromafuse.domain.pattern import ALL, Needs, Program, Search, analyse
from chromafuse.domain.pattern.gnu import TABLE as GREP_TABLE
from chromafuse.domain.pattern.options import Argument, Table
from chromafuse.domain.pattern.ripgrep import TABLE as RG_TABLE

CANDIDATES, NAMES, EVERYTHING = Needs.CANDIDATES, Needs.NAMES, Needs.EVERYTHING


def search(line: str, program: str = "grep", env: dict[bytes, bytes] | None = None) -> Search:
    files: dict[bytes, bytes] = {b"words": b"alpha\nbeta\n", b"empty": b"", b"gap": b"a\n\nb\n"}
    return analyse(
        Program(program), [word.encode() for word in line.split(" ")], env or {}, files.get
    )


@pytest.mark.parametrize(
    ("line", "recursive", "operands", "needs"),
    [
        ("-rn streamText docs/", True, ["docs/"], CANDIDATES),
        ("-rn --include=*.mdx PAT docs", True, ["docs"], CANDIDATES),
        ("-r -n -H -E -I -i --exclude-dir=D --include=G PAT .", True, ["."], CANDIDATES),
        ("-rHnFZ -e PAT PATH", True, ["PATH"], CANDIDATES),
        ("-nIH -- PAT a b", False, ["a", "b"], CANDIDATES),
        ("-rn -- --save docs", True, ["docs"], CANDIDATES),
        ("PAT docs -r", True, ["docs"], CANDIDATES),
        ("-r PAT", True, [], CANDIDATES),
        ("PAT", False, [], CANDIDATES),
        ("PAT -", False, ["-"], CANDIDATES),
        ("-rePAT x", True, ["x"], CANDIDATES),
        ("-re PAT x", True, ["x"], CANDIDATES),
        ("-A3 -5 -B 2 -rm1 PAT x", True, ["x"], CANDIDATES),
        ("-rnA3 PAT x", True, ["x"], CANDIDATES),
        ("-rf words x", True, ["x"], CANDIDATES),
        ("-rf empty x", True, ["x"], EVERYTHING),
        ("-rf gap x", True, ["x"], EVERYTHING),
        ("-rf missing x", True, ["x"], EVERYTHING),
        ("-rf - x", True, ["x"], EVERYTHING),
        ("-rf /dev/stdin x", True, ["x"], EVERYTHING),
        ("-rf /proc/self/fd/3 x", True, ["x"], EVERYTHING),
        ("-d recurse PAT x", True, ["x"], CANDIDATES),
        ("-d rec PAT x", True, ["x"], CANDIDATES),
        ("-r --directories=skip PAT x", False, ["x"], CANDIDATES),
        ("-d read -R PAT x", True, ["x"], CANDIDATES),
        ("-d re PAT x", True, [], EVERYTHING),
        ("-rc PAT x", True, ["x"], NAMES),
        ("-rL PAT x", True, ["x"], NAMES),
        ("-rLl PAT x", True, ["x"], CANDIDATES),
        ("-rlL PAT x", True, ["x"], NAMES),
        ("-rcl PAT x", True, ["x"], CANDIDATES),
        ("-rcq PAT x", True, ["x"], CANDIDATES),
        ("-rLq PAT x", True, ["x"], CANDIDATES),
        ("-rv PAT x", True, ["x"], EVERYTHING),
        ("-rz PAT x", True, ["x"], EVERYTHING),
        ("-rlv PAT x", True, ["x"], EVERYTHING),
        ("-r --inv PAT x", True, ["x"], EVERYTHING),
        ("-r --null PAT x", True, ["x"], CANDIDATES),
        ("-r --null-d PAT x", True, ["x"], EVERYTHING),
        ("-r --col PAT x", True, ["x"], CANDIDATES),
        ("-r --colour=always PAT x", True, ["x"], CANDIDATES),
        ("-r --color always x", True, ["x"], CANDIDATES),
        ("-r --no PAT x", True, [], EVERYTHING),
        ("-r --nosuch PAT x", True, [], EVERYTHING),
        ("-r --count=1 PAT x", True, [], EVERYTHING),
        ("-r --fixed PAT x", True, ["x"], CANDIDATES),
        ("-rX egrep PAT x", True, [], EVERYTHING),
        ("-rj PAT x", True, [], EVERYTHING),
        ("-r", True, [], EVERYTHING),
        ("-r -e", True, [], EVERYTHING),
        ("--version", True, [], EVERYTHING),
        ("-r --help PAT", True, [], EVERYTHING),
        ("-r --binary-files=text --label=x --line-b -T -u -U PAT x", True, ["x"], CANDIDATES),
        ("-r --context=2 --after=1 --before 1 PAT x", True, ["x"], CANDIDATES),
        ("-r --regexp=a --regexp b x", True, ["x"], CANDIDATES),
        ("-r --exclude-from f --group-sep=- --no-group PAT x", True, ["x"], CANDIDATES),
    ],
)
def test_grep(line: str, recursive: bool, operands: list[str], needs: Needs) -> None:
    found = search(line)
    assert (found.recursive, [o.decode() for o in found.operands], found.needs) == (
        recursive,
        operands,
        needs,
    )
    assert (found.query == ALL) == (needs is EVERYTHING)


@pytest.mark.parametrize(
    ("line", "operands", "needs"),
    [
        ("streamText docs/", ["docs/"], CANDIDATES),
        ("-l token docs -g *.mdx", ["docs"], CANDIDATES),
        ("-i -C 2 limit docs --sort path", ["docs"], CANDIDATES),
        ("PAT", [], CANDIDATES),
        ("-c token docs", ["docs"], CANDIDATES),
        ("--count-matches token", [], CANDIDATES),
        ("-o -N --no-filename use[A-Z]\\w+ docs", ["docs"], CANDIDATES),
        ("--files docs", ["docs"], EVERYTHING),
        ("--files docs more", ["docs", "more"], EVERYTHING),
        ("--json -i --regexp resumable --threads 4 docs", ["docs"], EVERYTHING),
        ("--json --no-json PAT docs", ["docs"], CANDIDATES),
        ("--stats PAT", [], EVERYTHING),
        ("--stats --no-stats PAT", [], CANDIDATES),
        ("-v PAT", [], EVERYTHING),
        ("-v --no-invert-match PAT", [], CANDIDATES),
        ("--no-invert-match -v PAT", [], EVERYTHING),
        ("--files-without-match PAT", [], EVERYTHING),
        ("-c --include-zero PAT", [], EVERYTHING),
        ("--passthru PAT", [], EVERYTHING),
        ("--passthrough PAT", [], EVERYTHING),
        ("--null-data PAT", [], EVERYTHING),
        ("--debug PAT", [], EVERYTHING),
        ("-z PAT", [], EVERYTHING),
        ("--pre cat PAT", [], EVERYTHING),
        ("--pre cat --no-pre PAT", [], CANDIDATES),
        ("-E latin1 PAT", [], EVERYTHING),
        ("-E utf-8 PAT", [], CANDIDATES),
        ("-E none PAT", [], CANDIDATES),
        ("--type-list", [], EVERYTHING),
        ("-V", [], EVERYTHING),
        ("--hidden -uuu -. -L -0 -p PAT", [], CANDIDATES),
        ("-U --multiline-dotall PAT x", ["x"], CANDIDATES),
        ("-tmd -T py --type-add x:*.y PAT x", ["x"], CANDIDATES),
        ("-e a -f words x", ["x"], CANDIDATES),
        ("-f gap", [], EVERYTHING),
        ("-f -", [], EVERYTHING),
        ("-e -foo x", ["x"], CANDIDATES),
        ("-e -- x", [], EVERYTHING),
        ("-e=foo x", [], EVERYTHING),
        ("--regexp==foo x", [], EVERYTHING),
        ("-g=*.md foo x", [], EVERYTHING),
        ("-A -1 foo x", [], EVERYTHING),
        ("-- -foo x", ["x"], CANDIDATES),
        ("--no-such PAT", [], EVERYTHING),
        ("--smart PAT", [], EVERYTHING),
        ("--engine pcre2 PAT", [], CANDIDATES),
        ("--engine perl PAT", [], EVERYTHING),
        ("--hyperlink-format=none -d 3 --stop-on-nonmatch PAT D", ["D"], CANDIDATES),
        # It would complain if all candidates were left out and other files were not.
        ("-d 3 PAT", [], EVERYTHING),
        ("-g *.mdx PAT", [], EVERYTHING),
        ("-t md PAT", [], EVERYTHING),
        ("-i", [], EVERYTHING),
    ],
)
def test_ripgrep(line: str, operands: list[str], needs: Needs) -> None:
    found = search(line, "rg")
    assert found.recursive
    assert ([o.decode() for o in found.operands], found.needs) == (operands, needs)
    assert (found.query == ALL) == (needs is EVERYTHING)


@pytest.mark.parametrize(
    ("line", "program", "env", "needs"),
    [
        ("-r PAT x", "grep", {b"GREP_OPTIONS": b"-v"}, EVERYTHING),
        ("-r PAT x", "grep", {b"GREP_OPTIONS": b""}, CANDIDATES),
        ("PAT x", "rg", {b"RIPGREP_CONFIG_PATH": b"/x"}, EVERYTHING),
        ("PAT x", "rg", {b"RIPGREP_CONFIG_PATH": b""}, CANDIDATES),
        ("--no-config PAT x", "rg", {b"RIPGREP_CONFIG_PATH": b"/x"}, CANDIDATES),
        ("-r PAT x", "grep", {b"LC_ALL": b"ja_JP.SJIS"}, EVERYTHING),
        ("PAT x", "rg", {b"LC_ALL": b"ja_JP.SJIS"}, CANDIDATES),
    ],
)
def test_environment(line: str, program: str, env: dict[bytes, bytes], needs: Needs) -> None:
    assert search(line, program, env).needs is needs


def test_posixly_correct_ends_the_options_at_the_first_operand() -> None:
    found = search("PAT x -r", env={b"POSIXLY_CORRECT": b""})
    assert not found.recursive
    assert found.operands == (b"x", b"-r")


def test_other_names_of_grep() -> None:
    assert search("a+b x", "rgrep").recursive
    assert search("-r a+b", "fgrep").query == search("-rF a+b").query
    assert search("-r a+b", "egrep").query == search("-rE a+b").query != search("-r a+b").query
    assert search("-rG a+b", "egrep").query == search("-r a+b").query


def test_a_very_long_command_line_is_not_analysed() -> None:
    found = analyse(Program.GREP, [b"-r", b"x" * 140_000], {}, lambda _path: None)
    assert found.needs is EVERYTHING


def long_options(program: str) -> dict[str, bool]:
    """Every long option that the installed program's help names, and whether it has a value."""
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    found: dict[str, bool] = {}
    for line in text.splitlines():
        if re.match(r" {0,8}-", line):
            head = re.split(r"  +[^- ]", line.strip())[0]
            takes = "=" in head or "<" in head
            found |= dict.fromkeys(re.findall(r"--([a-z0-9-]+)", head), takes)
    assert len(found) > 40
    return found


@pytest.mark.parametrize(("program", "table"), [("grep", GREP_TABLE), ("rg", RG_TABLE)])
def test_every_option_of_the_installed_program_is_known(program: str, table: Table) -> None:
    for name, takes in long_options(program).items():
        assert name in table.long
        assert (table.long[name].argument is not Argument.NO) == takes, name


def test_every_short_option_of_the_installed_programs_is_known() -> None:
    for program, table in (("grep", GREP_TABLE), ("rg", RG_TABLE)):
        text = subprocess.run(
            [program, "--help"], capture_output=True, text=True, check=True
        ).stdout
        letters = set(re.findall(r"^ {0,8}-(.), --", text, re.MULTILINE))
        assert len(letters) > 20
        assert letters <= set(table.short)


@pytest.mark.parametrize("option", sorted(GREP_TABLE.long))
def test_grep_takes_each_long_option_as_the_table_says(option: str) -> None:
    argument = GREP_TABLE.long[option].argument
    value = {"color": "never", "colour": "never", "directories": "read", "devices": "read"}
    given = f"--{option}"
    if argument is not Argument.NO:
        given += "=" + value.get(option, "text" if option == "binary-files" else "1")
    if option in {"file", "exclude-from"}:
        given = f"--{option}=/dev/null"
    done = subprocess.run(
        ["grep", given, "-s", "-e", "x", "/dev/null"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
