"""What is narrowed and what never is: requests are counted, nobody sees another's listing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.search_tree import search_tree
from tests.mount.harness import Finished, Site, plain_environment, run, wait_until
from tests.mount.test_caches import Watched
from tests.mount.test_faults import Served
from tests.support import chroma_server
from tests.support.answering_server import answering_server
from tests.support.chroma_server import ChromaServer
from tests.support.sites import write_site

pytestmark = pytest.mark.xdist_group("mount-differential")

COLLECTION = "pushdown"
RARE = "zanzibar"
WHERE_IT_IS = "docs/chapter-5/page-11.mdx"
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
DEADLINE = 20.0
TREE = search_tree()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``docs``, the tree as it has to look."""
    base = tmp_path_factory.mktemp("pushdown-source")
    write_site(base / "docs", TREE)
    return base


@pytest.fixture(scope="module")
def stored(
    tmp_path_factory: pytest.TempPathFactory, chroma_server: ChromaServer, source: Path
) -> Iterator[ChromaServer]:
    """The server that has the tree in ``COLLECTION``."""
    site = Site(tmp_path_factory.mktemp("ingest"), chroma=chroma_server.url, collection=COLLECTION)
    try:
        site.ingest(source / "docs")
        yield chroma_server
    finally:
        site.close()


@contextmanager
def mounted(base: Path, chroma: str, *options: str, collection: str = COLLECTION) -> Iterator[Site]:
    site = Site(base, chroma=chroma, collection=collection)
    try:
        site.mount("--warm", "off", *options)
        yield site
    finally:
        site.close()


@pytest.fixture
def cold(tmp_path: Path, stored: ChromaServer) -> Iterator[Site]:
    """A mount with nothing in memory."""
    with mounted(tmp_path / "cold", stored.url) as site:
        yield site


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, stored: ChromaServer) -> Iterator[Site]:
    """A mount of all tests to which it does not matter what is in memory."""
    with mounted(tmp_path_factory.mktemp("shared"), stored.url) as site:
        yield site


def shell(site: Site, line: str) -> Finished:
    """Run a shell line beside the mount, which is called ``docs`` there."""
    return run(["bash", "--norc", "-c", line], env=site.env, cwd=site.work)


def requests(site: Site) -> Counter[str]:
    return Counter(site.status()["requests"])


@contextmanager
def counted(site: Site) -> Iterator[Counter[str]]:
    """Counts the requests of the block; they are there behind it."""
    counts: Counter[str] = Counter()
    before = requests(site)
    yield counts
    counts.update(requests(site) - before)


# -- what a search costs


@pytest.mark.parametrize("tool", ["grep -rn", "grep -rl", "rg -j1 -n", "rg -j8 -n"])
def test_a_rare_word_opens_its_page_and_lists_the_directories_above(cold: Site, tool: str) -> None:
    with counted(cold) as counts:
        done = shell(cold, f"{tool} {RARE} docs").expect(0)
    assert done.out.decode().startswith(WHERE_IT_IS)
    assert counts["open"] == 1
    # grep opens the directory that is named twice.
    assert counts["opendir"] == (3 if tool.startswith("grep") else 2)
    assert counts["read"] <= 2


def test_a_word_that_is_nowhere_opens_nothing(cold: Site) -> None:
    with counted(cold) as counts:
        shell(cold, "grep -rn nowhere-at-all docs").expect(1)
    assert (counts["open"], counts["opendir"]) == (0, 2)
    # The pages whose text Chroma does not see whole were read by the daemon.
    assert cold.status()["cache"]["pages"] <= 5


def test_cold_it_takes_two_requests_and_then_none(tmp_path: Path, stored: ChromaServer) -> None:
    with answering_server() as front:
        proxy = Watched(stored.url, front)
        with mounted(tmp_path, front.url) as site:
            proxy.take()
            for line, most in (
                (f"grep -rn {RARE} docs", 2),
                (f"grep -rn {RARE} docs", 0),
                (f"rg -n {RARE} docs", 0),
                (f"grep -rn {RARE} docs/chapter-5 docs/chapter-1", 0),
                ("grep -rn 'resumable' docs", 2),
                ("cat docs/*/*.mdx", 100),
                ("cat docs/*/*/*.md docs/*/*.md docs/*.* docs/.hidden/* docs/.hidden.md", 100),
                ("find docs -type f -print0 | xargs -0 cat", 100),
                ("grep -rni LEAFWORD docs", 0),
                ("grep -rn nowhere-at-all docs", 0),
                ("grep -rnE '(stream|use)(Text|Chat)' docs", 0),
            ):
                shell(site, line)
                assert proxy.take()[0] <= most, line
        proxy.close()


def test_a_pattern_that_is_too_broad_is_asked_for_once(
    tmp_path: Path, stored: ChromaServer
) -> None:
    """And a Chroma that refuses is not asked again at each directory."""
    with answering_server() as front:
        proxy = Watched(stored.url, front)
        pages = {f"d{n // 20}/p{n}.md": "common\n" * 40 for n in range(60)}
        write_site(tmp_path / "broad", pages)
        site = Site(tmp_path / "site", chroma=front.url, collection="broad")
        try:
            site.ingest(tmp_path / "broad", "--chunk-size", "8")
            site.mount("--warm", "off")
            proxy.take()
            done = shell(site, "grep -rc common docs > /dev/null; grep -rn common docs | wc -l")
            assert done.out.split() == [b"2400"]
            asked = [
                r for r in front.requests if b"where_document" in r.body and b"common" in r.body
            ]
            assert 1 <= len(asked) <= 2
        finally:
            site.close()
            proxy.close()


@pytest.mark.parametrize("tool", ["grep -rl", "rg -j8 -l"])
def test_several_places_take_as_few_requests(
    tmp_path: Path, stored: ChromaServer, tool: str
) -> None:
    """Also if they are searched at the same time, or a part before the whole."""
    pages = {f"d{n % 3}/e{n % 7}/p{n}.md": f"page {n}\n" for n in range(420)}
    pages |= {f"d{n}/e{n}/rare.md": f"{RARE}\n" for n in range(3)}
    with answering_server() as front:
        proxy = Watched(stored.url, front)
        site = Site(tmp_path / "site", chroma=front.url, collection=f"places-{tool[:2]}")
        try:
            site.ingest(write_site(tmp_path / "source", pages))
            site.mount("--warm", "off", "--refresh", "0")
            proxy.take()
            done = shell(site, f"{tool} {RARE} docs/d0 docs/d1 docs/d2 | sort")
            assert done.out.decode().split() == [f"docs/d{n}/e{n}/rare.md" for n in range(3)]
            assert proxy.take()[0] <= 4
            for _ in range(3):
                shell(site, f"{tool} {RARE} docs/d2 docs docs/d0 docs/d1/e1").expect(0)
            assert proxy.take()[0] <= 2
        finally:
            site.close()
            proxy.close()


@pytest.mark.parametrize("pushdown", ["off", "cgrep"])
def test_grep_is_shown_everything_where_it_is_not_to_be_recognised(
    tmp_path: Path, stored: ChromaServer, pushdown: str
) -> None:
    with mounted(tmp_path, stored.url, "--pushdown", pushdown) as site:
        with counted(site) as counts:
            assert shell(site, f"grep -rl {RARE} docs").expect(0).out.decode().split() == [
                WHERE_IT_IS
            ]
        assert counts["open"] >= len(TREE) - 2  # an empty page is opened too, or not
        assert counts["opendir"] >= 15


# -- who is never narrowed


LIST = "import os\nprint(sum(len(names) for _, _, names in os.walk('docs')))"
EVERYBODY = (
    "find docs -type f -print0 | tr -dc '\\0' | wc -c",
    "ls -RAU1 docs/ -Q | grep -c '^\"[^/]*[^:]$'",
    "tar cf - docs | tar tf - | grep -vc '/$'",
    f'python3 -c "{LIST}"',
    "cp -r docs copy && find copy -type f -print0 | tr -dc '\\0' | wc -c; rm -rf copy",
    "du -a docs | wc -l",
    "echo docs/* docs/*/* | wc -w",
    "rg --files --hidden -0 docs | tr -dc '\\0' | wc -c",
    "diff -rq docs docs && echo same",
)


def test_others_see_everything_while_a_search_is_under_way_and_after_it(
    shared: Site, source: Path
) -> None:
    env = plain_environment(source)
    expected = [run(["bash", "-c", line], env=env, cwd=source).out for line in EVERYBODY]
    fifo = shared.work / "fifo"
    os.mkfifo(fifo)
    before = requests(shared)["open"]
    searches = [
        subprocess.Popen(
            [*words, RARE, "docs", "fifo"], cwd=shared.work, env=shared.env, stdout=subprocess.PIPE
        )
        for words in (["grep", "-rn"], ["rg", "-n"])
    ]
    try:
        wait_until(lambda: requests(shared)["open"] > before, DEADLINE)
        for line, wanted in zip(EVERYBODY, expected, strict=True):
            assert shell(shared, line).out == wanted, line
    finally:
        for search in searches:
            search.kill()
            search.wait()
            assert search.stdout is not None
            search.stdout.close()
        fifo.unlink()
    for line, wanted in zip(EVERYBODY, expected, strict=True):
        assert shell(shared, line).out == wanted, line


def test_a_path_that_is_named_always_opens(shared: Site) -> None:
    shell(shared, f"grep -rn {RARE} docs").expect(0)
    done = shell(shared, f"grep -c {RARE} docs/*/*.mdx docs/.hidden/page.md docs/script.py").expect(
        0
    )
    assert done.err == b""
    assert done.out.count(b"\n") == 6 * 12 + 2
    done = shell(shared, f"grep -rc {RARE} docs/chapter-0/page-00.mdx docs/chapter-1/page-05.mdx")
    assert done.out == b"docs/chapter-0/page-00.mdx:0\ndocs/chapter-1/page-05.mdx:0\n"
    assert shell(shared, f"rg -c --include-zero {RARE} docs/script.py").out == b"0\n"


def test_a_shell_that_becomes_grep_has_seen_everything_before(shared: Site) -> None:
    line = f"echo docs/*; ls docs | wc -l; exec grep -rl {RARE} docs"
    plain, words, found = shell(shared, line).expect(0).out.decode().strip().split("\n")
    assert len(plain.split()) > 10
    assert int(words) > 10
    assert found == WHERE_IT_IS


def test_a_number_that_grep_had_is_nobody_s(shared: Site) -> None:
    """``ls`` under the number of a grep that was killed in the middle of its search."""
    fifo = shared.work / "fifo"
    os.mkfifo(fifo)
    before = requests(shared)["open"]
    try:
        words = ["grep", "-rn", RARE, "docs", "fifo"]
        with subprocess.Popen(words, cwd=shared.work, env=shared.env, stdout=-1) as grep:
            wait_until(lambda: requests(shared)["open"] > before, DEADLINE)
            grep.kill()
        for _ in range(1_000):
            LAST_PID.write_text(str(grep.pid - 1))
            with subprocess.Popen(["ls", "-A", "docs"], cwd=shared.work, stdout=-1) as ls:
                out, _ = ls.communicate()
            assert len(out.split(b"\n")) > 14
            if ls.pid == grep.pid:
                return
        pytest.fail("the number was taken by others a thousand times")
    finally:
        fifo.unlink()


if not os.access(LAST_PID, os.W_OK):  # unit tests wait for the number where it cannot be chosen
    del test_a_number_that_grep_had_is_nobody_s


# -- many at once


WORDS: Mapping[str, Sequence[str]] = {
    RARE: [WHERE_IT_IS],
    "leafword": ["docs/alone/deep/er/still/leaf.md"],
    "endword": ["docs/contents/no-end.md"],
    "crlfword": ["docs/contents/crlf.md"],
    "nulhidden": ["docs/contents/nul.md"],
    "straddle": ["docs/contents/cut.md"],
    "hiddenword": ["docs/.hidden.md", "docs/.hidden/page.md"],
    "nowhere-at-all": [],
}


@pytest.mark.parametrize("tool", ["grep -rl", "rg -j8 --hidden -la", "unshare"])
def test_searches_at_once_do_not_mix(shared: Site, tool: str) -> None:
    if tool == "unshare":
        user = "" if os.geteuid() == 0 else "--user --map-root-user "
        tool = f"unshare {user}--pid --fork grep -rl"

    def search(word: str) -> list[str]:
        return sorted(shell(shared, f"{tool} {word} docs").out.decode().split("\n")[:-1])

    words = list(WORDS) * 6
    with ThreadPoolExecutor(8) as pool:
        for word, found in zip(words, pool.map(search, words), strict=True):
            assert found == sorted(WORDS[word]), word


def test_a_search_in_another_process_namespace_is_narrowed(shared: Site) -> None:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    line = f"unshare {' '.join(user)} --pid --fork grep -rl {RARE} docs"
    with counted(shared) as counts:
        assert shell(shared, line).out.decode().split() == [WHERE_IT_IS]
    assert counts["open"] == 1


def test_a_daemon_in_a_process_namespace_without_its_proc_narrows_nobody(
    tmp_path: Path, stored: ChromaServer
) -> None:
    """Numbers mean other processes in /proc there."""
    site = Site(tmp_path, chroma=stored.url, collection=COLLECTION)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    chromafuse = str(Path(sys.executable).parent / "chromafuse")
    mount = [chromafuse, "mount", str(site.mountpoint), "--foreground", "--warm", "off"]
    target = ["--collection", COLLECTION, "--chroma", stored.url]
    script = (
        f'"$@" & wait_for=$!; for _ in $(seq 400); do [ -e docs/script.py ] && break; sleep 0.05; '
        f"done; grep -rl {RARE} docs; ls docs | wc -l; kill $wait_for; wait"
    )
    words = ["unshare", *user, "--pid", "--fork", "sh", "-c", script, "sh", *mount, *target]
    try:
        done = run(words, env=site.env, cwd=site.work)
        found, count = done.out.decode().strip().split("\n")
        assert (found, int(count) > 10) == (WHERE_IT_IS, True), done
    finally:
        site.close()


def test_greps_that_xargs_starts_are_narrowed_each_for_itself(shared: Site) -> None:
    line = "printf '%s\\n' {} | xargs -P8 -I@ grep -rl @ docs | sort"
    done = shell(shared, line.format(" ".join(WORDS)))
    assert done.out.decode().split() == sorted(f for found in WORDS.values() for f in found)


# -- hubs


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Site]:
    """A hub with 60 pages for everybody and 20 each for two groups, all with the same words."""
    pages = {f"open/p{n:02}.md": f"common word{n:02}\n" for n in range(60)}
    for group in ("red", "blue"):
        marks = f"---\ngroups: [{group}]\n---\n"
        pages |= {f"{group}/p{n:02}.md": f"{marks}common word{n:02}\n" for n in range(20)}
        pages |= {f"open/{group}-{n}.md": f"{marks}common {group}word{n}\n" for n in range(5)}
    write_site(tmp_path / "source", pages)
    site = Site(tmp_path / "site")
    try:
        site.ingest(tmp_path / "source")
        site.hub("--warm", "off")
        yield site
    finally:
        site.close()


def test_restricted_pages_never_show_and_sessions_do_not_mix(hub: Site) -> None:
    groups = {"": [], "red": ["red"], "blue": ["blue"], "red,blue": ["red", "blue"]}
    sessions = {
        name: [hub.open_session(*(["--groups", name] if name else [])) for _ in range(2)]
        for name in groups
    }
    jobs: list[tuple[Path, str, list[str]]] = []
    for name, members in groups.items():
        for session in sessions[name]:
            for number in (3, 17, 44):
                word = f"word{number:02}"
                files = [f"open/p{number:02}.md"]
                files += [f"{group}/p{number:02}.md" for group in members if number < 20]
                jobs.append((session, word, files))
            for group in ("red", "blue"):
                files = [f"open/{group}-2.md"] if group in members else []
                jobs.append((session, f"{group}word2", files))

    def search(job: tuple[Path, str, list[str]]) -> list[str]:
        session, word, _ = job
        tool = "grep -rl" if len(word) % 2 else "rg -j4 -l"
        out = run(["sh", "-c", f"{tool} {word} ."], env=hub.env, cwd=session).out.decode()
        return sorted(line.removeprefix("./") for line in out.split())

    with ThreadPoolExecutor(8) as pool:
        for job, found in zip(jobs * 2, pool.map(search, jobs * 2), strict=True):
            assert found == sorted(job[2]), job


def test_one_grep_over_two_sessions_is_shown_of_each_what_it_has(hub: Site) -> None:
    red, blue = (hub.open_session("--groups", name) for name in ("red", "blue"))
    done = run(["grep", "-rl", "word03", str(red), str(blue)], env=hub.env, cwd=hub.base)
    assert done.out.decode().split() == [
        f"{red}/open/p03.md",
        f"{red}/red/p03.md",
        f"{blue}/blue/p03.md",
        f"{blue}/open/p03.md",
    ]


# -- Chroma gone, slow or wrong


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A mount with short deadlines on a server of its own, nothing cached."""
    port = chroma_server.free_port()
    site = Site(tmp_path, chroma=f"http://127.0.0.1:{port}")
    served = Served(site, tmp_path / "server", port)
    pages = {f"d{n // 10}/p{n:02}.md": f"page {n}\ncommon\n" for n in range(60)}
    try:
        site.ingest(write_site(tmp_path / "source", pages | {"d2/rare.md": f"{RARE}\n"}))
        site.mount("--deadline", "1", "--warm", "off", "--search-timeout", "0.3")
        yield served
    finally:
        served.signal(signal.SIGCONT)
        served.kill()
        site.close()


@pytest.mark.expects_log("reads from Chroma fail")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_without_chroma_the_search_complains_of_every_page(
    served: Served, how: signal.Signals
) -> None:
    site = served.site
    served.kill() if how is signal.SIGKILL else served.signal(how)
    words = ["grep", "-rl", RARE, "docs"]
    env = site.env
    with subprocess.Popen(words, cwd=site.work, env=env, stderr=-1, stdout=-1) as grep:
        assert grep.stdout is not None
        assert grep.stderr is not None
        for number in range(3):  # the rest takes as long each
            message = f"grep: docs/d0/p{number:02}.md: Input/output error\n"
            assert grep.stderr.readline().decode() == message
        if how is signal.SIGKILL:
            assert len(grep.stderr.readlines()) == 58
            assert grep.wait() == 2
            served.start()
        else:
            grep.kill()
            served.signal(signal.SIGCONT)
        assert grep.stdout.read() == b""
    assert wait_until(lambda: shell(site, "cat docs/d2/rare.md").code == 0, DEADLINE)
    found = b"docs/d2/rare.md\n"
    assert wait_until(lambda: shell(site, f"grep -rl {RARE} docs").out == found, DEADLINE)


def test_a_search_that_is_killed_leaves_nothing_behind(served: Served) -> None:
    site = served.site
    served.signal(signal.SIGSTOP)
    with subprocess.Popen(["grep", "-r", RARE, "docs"], cwd=site.work, stdout=-1) as grep:
        time.sleep(0.05)
        grep.kill()
    served.signal(signal.SIGCONT)
    assert shell(site, f"grep -rl {RARE} docs").out == b"docs/d2/rare.md\n"


@pytest.mark.expects_log("cannot be read")
def test_a_page_that_was_found_damaged_goes_on_being_complained_of(served: Served) -> None:
    site = served.site
    _delete_chunks(served, "d1/p13")
    plain = shell(site, "cat docs/d1/p13.md").expect(1)
    assert b"Input/output error" in plain.err
    for _ in range(2):
        done = shell(site, f"grep -rl {RARE} docs").expect(2)
        assert done.out == b"docs/d2/rare.md\n"
        assert done.err == b"grep: docs/d1/p13.md: Input/output error\n"


@pytest.mark.expects_log("cannot be read")
def test_pages_replaced_under_the_mount_are_complained_of_and_not_passed_over(
    tmp_path: Path, served: Served
) -> None:
    """The mount shows the old site, whose changed pages cannot be read any more."""
    version = served.site.status()["tree_version"]
    served.site.umount()
    served.site.mount("--warm", "off", "--pin", version)
    pages = {f"d{n // 10}/p{n:02}.md": f"page {n}\ncommon\n" for n in range(60)}
    write_site(tmp_path / "source", pages | {"d2/rare.md": "it is gone\n"})
    served.site.ingest(tmp_path / "source")
    for word in (RARE, "quetzal"):
        done = shell(served.site, f"grep -rl {word} docs").expect(2)
        assert done.out == b""
        assert done.err == b"grep: docs/d2/rare.md: Stale file handle\n"


def _delete_chunks(served: Served, slug: str) -> None:
    import chromadb

    url = served.site.chroma
    client: Any = chromadb.HttpClient("127.0.0.1", int(url.rpartition(":")[2]))
    collection = client.get_collection(served.site.collection, embedding_function=None)
    found = (
        collection.get(where={"page": slug + ".md"})["ids"]
        or collection.get(where={"page": slug})["ids"]
    )
    assert found, json.dumps(collection.get()["metadatas"][:3])
    collection.delete(ids=found)
