"""``cgrep`` in a mount: grep's answer from the files that can match, with or without a daemon."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chromafuse.sockets import socket_name
from tests.mount.harness import COMMANDS, Finished, Site, run
from tests.packaging.test_cgrep import SLOW, loaded

pytestmark = pytest.mark.xdist_group("cgrep")

PAGES = 60
RARE = "guides/n07.md"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 pages, of which one tells of zebras."""
    source = tmp_path_factory.mktemp("cgrep-source")
    for directory in ("guides", "api/deep er"):
        (source / directory).mkdir(parents=True)
        for number in range(PAGES // 2):
            (source / directory / f"n{number:02}.md").write_text(f"# Page {number}\ncommon\n")
    with (source / RARE).open("a") as page:
        page.write("A zebra.\nCafé\n")
    return source


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Iterator[Site]:
    """A site that cgrep alone is helped in; a page is never fetched unasked."""
    site = Site(tmp_path_factory.mktemp("cgrep"))
    try:
        site.ingest(source)
        site.mount("--pushdown", "cgrep", "--warm", "off")
        yield site
    finally:
        site.close()


@pytest.fixture(scope="module")
def automatic(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Iterator[Site]:
    """A site where every grep is helped."""
    site = Site(tmp_path_factory.mktemp("cgrep-auto"))
    try:
        site.ingest(source)
        site.mount("--pushdown", "auto", "--warm", "off")
        yield site
    finally:
        site.close()


def search(
    site: Site, *words: str | bytes, program: str = "cgrep", cwd: Path | None = None, **env: str
) -> Finished:
    name = str(COMMANDS / "cgrep") if program == "cgrep" else program
    return run([name, *words], env=site.env | env, cwd=cwd or site.work)


def opens(site: Site) -> int:
    """How many files have been opened since the start."""
    return int(site.status()["requests"].get("open", 0))


def opened_by(
    site: Site, *words: str | bytes, program: str = "cgrep", cwd: Path | None = None, **env: str
) -> tuple[Finished, int]:
    before = opens(site)
    done = search(site, *words, program=program, cwd=cwd, **env)
    return done, opens(site) - before


def test_it_opens_the_files_that_can_match_where_grep_opens_all(stored: Site) -> None:
    expected, by_grep = opened_by(stored, "-rn", "zebra", "docs", program="grep")
    found, by_cgrep = opened_by(stored, "-rn", "zebra", "docs")
    assert expected.out == f"docs/{RARE}:3:A zebra.\n".encode()
    assert (found.code, found.out, found.err) == (0, expected.out, b"")
    assert (by_grep, by_cgrep) == (PAGES, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["-r", "zebra"],
        ["-R", "zebra", "."],
        ["--recurs", "zebra"],
        ["--dereference-recursive", "zebra", "guides/"],
        ["-d", "recurse", "zebra", "guides", "api"],
        ["--directories=recurse", "zebra", "../docs"],
        ["-hrie", "ZEBRA"],
        ["-rlF", "zebra", "--include=*.md", "guides", "api/deep er"],
        ["-rE", "zebra|okapi", "/proc/self/cwd/guides"],
        [b"-r", "Café".encode()],
        ["-rc", "zebra", "-q"],
    ],
    ids=str,
)
def test_however_a_recursive_search_is_written_it_is_helped(
    words: list[str | bytes], stored: Site
) -> None:
    expected = search(stored, *words, program="grep", cwd=stored.mountpoint)
    found, count = opened_by(stored, *words, cwd=stored.mountpoint)
    assert (found.code, found.out, found.err) == (expected.code, expected.out, expected.err)
    assert found.code == 0
    assert count == 1


@pytest.mark.parametrize(
    "words",
    [
        ["-rv", "zebra"],
        ["-rL", "zebra"],
        ["-rc", "zebra"],
        ["-rz", "zebra"],
        ["-rP", r"\bz(?=e)"],
        ["-r", "okapi"],
        ["-r", "zebra", "/nonexistent", "."],
        ["-r"],
        ["-r", "(", "-E"],
        ["-rn", "z", "--context=1", "guides/n07.md", "api"],
        [b"-r", b"caf\xe9"],
        ["-rf", "/dev/null"],
    ],
    ids=str,
)
def test_the_answer_is_always_that_of_grep(words: list[str | bytes], stored: Site) -> None:
    expected = search(stored, *words, program="grep", cwd=stored.mountpoint)
    found = search(stored, *words, cwd=stored.mountpoint)
    assert (found.code, found.out, found.err) == (expected.code, expected.out, expected.err)


def test_through_links_it_is_helped_too(stored: Site, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(stored.mountpoint)
    (tmp_path / "far").symlink_to("docs/guides")
    for cwd, place in ((tmp_path, "docs/"), (tmp_path, "far/"), (tmp_path / "far", "")):
        done, count = opened_by(stored, "-rl", "zebra", *([place] if place else []), cwd=cwd)
        assert done.out.endswith(b"n07.md\n")
        assert count == 1


def test_a_file_of_patterns_is_read_for_the_daemon(stored: Site, tmp_path: Path) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_text("zebra\nokapi\n")
    words = ["-rhf", str(patterns), "docs"]
    done, count = opened_by(stored, *words)
    assert (done.code, done.out) == (0, b"A zebra.\n")
    assert count == 1


def test_the_kin_of_grep_are_helped_too(stored: Site, tmp_path: Path) -> None:
    for name, words in (
        ("egrep", ["-r", "(zebra)"]),
        ("fgrep", ["-r", "zebra"]),
        ("rgrep", ["zebra"]),
        ("grep", ["-r", "zebra"]),
    ):
        link = tmp_path / name
        link.symlink_to(COMMANDS / "cgrep")
        path = f"{tmp_path}:{stored.env['PATH']}"
        done, count = opened_by(stored, "-h", *words, "docs", program=name, PATH=path)
        assert (done.code, done.out) == (0, b"A zebra.\n"), name
        assert count == 1, name


def test_no_pushdown_opens_everything_whatever_the_daemon_would_do_unasked(
    automatic: Site,
) -> None:
    helped, by_grep = opened_by(automatic, "-rn", "zebra", "docs", program="grep")
    whole, by_cgrep = opened_by(automatic, "--no-pushdown", "-rn", "zebra", "docs")
    assert (whole.code, whole.out, whole.err) == (0, helped.out, b"")
    assert (by_grep, by_cgrep) == (1, PAGES)


def test_an_explanation_tells_pattern_filter_and_candidates(source: Path, tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.ingest(source)
        site.mount("--warm", "off")
        done = search(site, "--explain", "-rni", "zebra", "docs/")
        assert (done.code, done.err) == (0, b"")
        text = done.out.decode()
        assert f"mount: {site.mountpoint}\n" in text
        assert "pattern: 'zebra' in any case\n" in text
        assert "needs: candidates (" in text
        assert f"{site.mountpoint}: 1 of {PAGES} pages can match\n" in text
        assert 'Chroma filter: {"$regex": "' in text
        assert "Chroma: 1 chunks match, " in text
        assert text.endswith(f"\n  {site.mountpoint}/{RARE}\n")
        assert opens(site) == 0
        again = search(site, "--explain", "-rni", "zebra", "docs/guides")
        assert f"{site.mountpoint}/guides: 1 of {PAGES // 2} pages".encode() in again.out
        assert b"found by an earlier search:\n" in again.out
        everything = search(site, "--explain", "-rv", "zebra", "docs")
        assert everything.code == 1
        assert b"needs: everything (--invert-match is given)\n" in everything.out
        one = search(site, "--explain", "zebra", f"docs/{RARE}")
        assert one.code == 1
        assert b"no directory is searched" in one.out
        site.umount()
        site.mount("--pushdown", "off")
        off = search(site, "--explain", "-r", "zebra", "docs")
        assert off.code == 1
        assert b"needs: everything (pushdown is off)\n" in off.out
        assert search(site, "--no-pushdown", "-rl", "zebra", "docs").code == 0
    finally:
        site.close()


def test_sessions_of_a_hub_are_searched_and_explained(source: Path, tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.ingest(source)
        site.hub("--pushdown", "cgrep", "--warm", "off")
        session = site.open_session()
        done, count = opened_by(site, "-rl", "zebra", str(session))
        assert done.out == f"{session}/{RARE}\n".encode()
        assert count == 1
        done, count = opened_by(site, "-rl", "zebra", cwd=session / "guides")
        assert (done.out, count) == (b"n07.md\n", 1)
        told = search(site, "--explain", "-r", "zebra", f"{session}/guides")
        assert told.code == 0
        assert f"{session}/guides: 1 of {PAGES // 2} pages".encode() in told.out
        assert told.out.endswith(f"  {session}/{RARE}\n".encode())
        both, count = opened_by(site, "-rl", "zebra", str(session), str(site.open_session()))
        assert both.out.count(b"\n") == 2
        assert count == 2
    finally:
        site.close()


@contextmanager
def false_daemon(site: Site, runtime: Path, answer: bytes | None) -> Iterator[list[bytes]]:
    """Somebody at the place of the site's socket who answers so, or never; yields the requests."""
    directory = runtime / "chromafuse"
    directory.mkdir(mode=0o700)
    requests: list[bytes] = []
    held: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory / socket_name(os.fsencode(site.mountpoint))))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                requests.append(connection.recv(65_536))
                if answer is not None:
                    connection.sendall(answer)
                    held.pop().close()

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join()
            for connection in held:
                connection.close()


ANSWERS = {
    "never": None,
    "hangs up": b"",
    "half a line": b'{"needs": ',
    "garbage": b"\xff\x00garbage\n",
    "a list": b"[]\n",
    "an error": b'{"error": "unexpected", "code": 1}\n',
    "a long line": b"x" * 300_000 + b"\n",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_daemon_that_answers_oddly_costs_the_help_and_nothing_else(
    answer: str, stored: Site, short_directory: Path
) -> None:
    expected = search(stored, "-rn", "zebra", "docs", program="grep")
    with false_daemon(stored, short_directory, ANSWERS[answer]) as requests:
        runtime = str(short_directory)
        found = search(stored, "-rn", "zebra", "docs", XDG_RUNTIME_DIR=runtime)
        assert (found.code, found.out, found.err) == (0, expected.out, b"")
        assert len(requests) == 1
        if ANSWERS[answer] is None:
            return
        for mode in ("--no-pushdown", "--explain"):
            told = search(stored, mode, "-rn", "zebra", "docs", XDG_RUNTIME_DIR=runtime)
            assert (told.code, told.out) == (2, b""), mode
            assert told.err.startswith(b"cgrep: the daemon of ")
            assert told.err.count(b"\n") == 1


def test_without_a_daemon_it_is_grep_unless_something_else_was_asked(
    stored: Site, short_directory: Path
) -> None:
    runtime = str(short_directory)
    found, count = opened_by(stored, "-rn", "zebra", "docs", XDG_RUNTIME_DIR=runtime)
    assert (found.code, found.err, count) == (0, b"", PAGES)
    for mode in ("--no-pushdown", "--explain"):
        told = search(stored, mode, "-rn", "zebra", "docs", XDG_RUNTIME_DIR=runtime)
        assert (told.code, told.out) == (2, b"")
        assert told.err.startswith(f"cgrep: the daemon of {stored.mountpoint}".encode())


@pytest.fixture
def short_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new directory whose path leaves room for a socket's name."""
    directory = Path(tempfile.mkdtemp(prefix="cf-"))
    yield directory
    shutil.rmtree(directory)


def test_a_search_in_a_mount_loads_nothing_slow(stored: Site) -> None:
    runtime = stored.env["XDG_RUNTIME_DIR"]
    names = loaded(["-rn", "zebra", "."], stored.mountpoint, XDG_RUNTIME_DIR=runtime)
    assert "chromafuse.cgrep_ask" in names
    assert not names & SLOW
