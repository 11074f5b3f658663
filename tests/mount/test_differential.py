"""A search prints the same with its listings narrowed, without, and on a plain directory.

``WAYS`` are the mounts that are compared. ``cold`` keeps no page, so that Chroma is really asked;
with ``cgrep`` that is what grep means.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from chromafuse.domain.pattern import Needs, Program
from tests.fixtures.search_tree import search_tree
from tests.mount.harness import COMMANDS, MountedCorpus, Site, differences, plain_environment, run
from tests.mount.test_shell_lines import LINES_FILE as SHELL_LINES_FILE
from tests.mount.test_shell_lines import MEMORY, lay_out
from tests.support.chroma_server import ChromaServer
from tests.support.pattern_fuzz import Fuzzer, Trial
from tests.support.sites import write_site

pytestmark = pytest.mark.xdist_group("mount-differential")

LINE_DEADLINE = 60.0
COLLECTION = "search-tree"
WAYS: Mapping[str, tuple[str, ...]] = {
    "off": ("--pushdown", "off"),
    "warm": ("--warm", "all"),
    "cold": ("--warm", "off", "--cache-size", "1"),
    "cgrep": ("--warm", "off", "--cache-size", "1", "--pushdown", "cgrep"),
}
CGREP = re.compile(r"grep|xargs|find")
"""Lines in which it matters whether grep is cgrep."""


def lines_of(file: Path) -> list[str]:
    return [line for line in file.read_text().split("\n") if line and not line.startswith("#")]


LINES = lines_of(SHELL_LINES_FILE.with_name("search-lines.txt"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("search") / "source", search_tree())


@pytest.fixture(scope="module")
def reference(source: Path) -> Iterator[Path]:
    """A directory in memory that holds ``docs``, a copy that looks as the mounts have to."""
    with tempfile.TemporaryDirectory(prefix="chromafuse-reference-", dir=MEMORY) as base:
        yield lay_out(source, Path(base))


@pytest.fixture(scope="module")
def ways(
    tmp_path_factory: pytest.TempPathFactory, chroma_server: ChromaServer, source: Path
) -> Iterator[Mapping[str, Site]]:
    """The tree, mounted in each of the ways."""
    base = tmp_path_factory.mktemp("ways")
    sites: dict[str, Site] = {}
    try:
        for name, options in WAYS.items():
            site = Site(base / name, chroma=chroma_server.url, collection=COLLECTION)
            sites[name] = site
            if site.ingested is None and len(sites) == 1:
                site.ingest(source, "--chunk-size", "40")
            site.mount(*options)
        yield sites
    finally:
        for site in sites.values():
            site.close()


@pytest.fixture(scope="module")
def cgrep_first(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory for PATH in which grep is cgrep."""
    directory = tmp_path_factory.mktemp("bin")
    for name in ("grep", "egrep", "fgrep", "rgrep"):
        (directory / name).symlink_to(COMMANDS / "cgrep")
    return str(directory)


def test_there_are_enough_lines_and_each_once() -> None:
    assert len(LINES) >= 300
    assert len(set(LINES)) == len(LINES)


def test_the_mounts_hold_the_tree(ways: Mapping[str, Site], reference: Path) -> None:
    for site in ways.values():
        run(["diff", "-r", "docs", str(site.mountpoint)], env=site.env, cwd=reference).expect(0)


@pytest.mark.parametrize("line", LINES)
def test_a_search_prints_the_same_everywhere(
    line: str, ways: Mapping[str, Site], reference: Path, tmp_path: Path, cgrep_first: str
) -> None:
    env = plain_environment(tmp_path)
    command = ["bash", "--norc", "-c", line]
    expected = run(command, env=env, cwd=reference, deadline=LINE_DEADLINE)
    for name, site in ways.items():
        if name == "cgrep":
            if not CGREP.search(line):
                continue
            env |= {"PATH": f"{cgrep_first}:{env['PATH']}"}
        found = run(command, env=env, cwd=site.work, deadline=LINE_DEADLINE)
        parted = differences(expected, found)
        assert not parted, "\n".join([f"{name}: {line}", *map(str, parted)])


# -- files that tell ripgrep what to leave out, in the tree itself

IGNORING_LINES = [
    f"{place}rg -j1{more} {word}{where}; echo $?"
    for word in ("resumable", "ignoredword", "onlyhere", "onlyhere2", "zanzibar", "nowhere")
    for place, where in (("", " docs"), ("cd docs && ", ""), ("cd docs/sub && ", ""))
    for more in ("", " --hidden", " --no-ignore")
]


@pytest.fixture(scope="module")
def ignoring(
    tmp_path_factory: pytest.TempPathFactory, chroma_server: ChromaServer
) -> Iterator[tuple[Path, Site]]:
    """A plain copy of the tree with ignore files, and a mount of it."""
    base = tmp_path_factory.mktemp("ignoring")
    source = write_site(base / "source", search_tree(ignoring=True))
    site = Site(base / "site", chroma=chroma_server.url, collection="ignoring")
    with tempfile.TemporaryDirectory(prefix="chromafuse-reference-", dir=MEMORY) as memory:
        try:
            site.ingest(source)
            site.mount(*WAYS["cold"])
            yield lay_out(source, Path(memory)), site
        finally:
            site.close()


def test_ripgrep_leaves_out_what_ignore_files_name(
    ignoring: tuple[Path, Site], tmp_path: Path
) -> None:
    work, site = ignoring
    env = plain_environment(tmp_path)
    for line in IGNORING_LINES:
        command = ["bash", "--norc", "-c", line]
        expected, found = (run(command, env=env, cwd=cwd) for cwd in (work, site.work))
        parted = differences(expected, found)
        assert not parted, "\n".join([line, *map(str, parted)])


# -- order in a directory of more entries than grep takes as they come


@pytest.mark.xdist_group("mount-odd")
def test_a_large_directory_is_searched_in_the_same_order(
    odd: MountedCorpus, tmp_path: Path
) -> None:
    """GNU grep sorts it by inode; numbers must not tell what was searched for before."""
    sites = [Site(tmp_path / name, chroma=odd.site.chroma) for name in ("off", "auto")]
    try:
        for site, options in zip(sites, (WAYS["off"], ("--warm", "off")), strict=True):
            site.mount(*options)
        for line in (
            "grep -rl needle-13 docs",
            "grep -rl needle-17 docs/crowded",
            "grep -rl 'needle-9' docs/crowded",
            "rg -j1 -l 'needle-13' docs/crowded",
            "grep -rl 'needle-1' docs",
            "ls -fi docs/crowded | awk '{print $2}'",
            "cd docs/crowded && rg -j1 -l 'needle-[45]'",
        ):
            command = ["bash", "--norc", "-c", line]
            expected, found = (run(command, env=site.env, cwd=site.work) for site in sites)
            assert expected.out.count(b"\n") > 100
            assert not differences(expected, found), line
    finally:
        for site in sites:
            site.close()


# -- random searches

TRIALS = 80
SECONDS_PER_SEARCH = 10.0
FLAGS = {
    Program.GREP: ("-n", "-l", "-c", "-o", "-h", "-b", "-q", "-m1", "-A1", "-L", "-s", "-Z"),
    Program.RG: ("-n", "-l", "-c", "-o", "--no-heading", "-b", "-q", "-m1", "-A1", "--vimgrep"),
}
PLACES = ("docs", "docs/", "docs/a", "docs/a/b docs/c", ".", "docs/nothing docs")


@pytest.fixture(scope="module")
def fuzzed(
    tmp_path_factory: pytest.TempPathFactory, chroma_server: ChromaServer
) -> Iterator[tuple[int, list[Trial], list[Site]]]:
    """A seed, trials made from it, and mounts of their texts; files of patterns lie beside."""
    seed = int(os.environ.get("CHROMAFUSE_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    rng = random.Random(seed)
    base = tmp_path_factory.mktemp("fuzzed")
    patterns = base / "patterns"
    patterns.mkdir()
    made = [Fuzzer(rng, patterns).trial() for _ in range(TRIALS)]
    texts = list(dict.fromkeys(text for _, some in made for text in some))
    places = ("", "a/", "a/b/", "c/", "c/.d/", "e/f/g/")
    pages = {f"{rng.choice(places)}{n}.md": text for n, text in enumerate(texts)}
    source = write_site(base / "source", pages)
    sites: list[Site] = []
    try:
        for name, options in WAYS.items():
            sites.append(Site(base / name, chroma=chroma_server.url, collection="fuzzed"))
            if len(sites) == 1:
                sites[0].ingest(source)
            sites[-1].mount(*options)
            for file in patterns.iterdir():
                shutil.copy(file, sites[-1].work)
        yield seed, [trial for trial, _ in made], sites
    finally:
        for site in sites:
            site.close()


def test_random_searches_print_the_same(
    fuzzed: tuple[int, list[Trial], list[Site]],
) -> None:
    seed, trials, sites = fuzzed
    rng = random.Random(seed)
    narrowed = 0
    for number, trial in enumerate(trials):
        own = ["-j1", "--no-config"] if trial.program is Program.RG else ["-r"]
        flags = rng.sample(FLAGS[trial.program], rng.choice((0, 1, 1, 2)))
        places = rng.choice(PLACES).split()
        words: list[str | bytes] = [trial.program.value, *trial.argv, *own, *flags, "--", *places]
        results = [_searched(site, words, trial.environ) for site in sites[:-1]]
        if trial.program is Program.GREP:
            words[0] = str(COMMANDS / "cgrep")
            results.append(_searched(sites[-1], words, trial.environ))
        narrowed += trial.search(sites[0].work).needs is not Needs.EVERYTHING
        for way, result in zip(WAYS, results, strict=False):
            assert result == results[0], (
                f"seed {seed}, trial {number}, {way}: {trial.environ} {words}\n"
                f"expected {results[0]}\nfound    {result}"
            )
    assert narrowed > TRIALS // 4


def _searched(
    site: Site, words: list[str | bytes], environ: Mapping[bytes, bytes]
) -> tuple[int, bytes, bytes] | None:
    """What a search ends with and prints, or None if it takes too long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [os.fsencode(word) for word in words],
            cwd=site.work,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_PER_SEARCH,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr
    return None
