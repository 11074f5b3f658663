"""What the caches of a mount save: requests are counted, never time."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.mount.conftest import fetched
from tests.mount.harness import Finished, Site, run, wait_until
from tests.support.answering_server import Answer, AnsweringServer, Request, answering_server
from tests.support.chroma_server import ChromaProcess, ChromaServer, free_port, running_chroma
from tests.support.redis_server import RedisServer, running_redis

pytestmark = pytest.mark.xdist_group("mount-caches")

COLLECTION = "docs-ai"
WORD = "streamText"
GENEROUS = 20.0
UNAVAILABLE = 6
"""The exit code for a Chroma that cannot be reached."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus ``ai``: 238 pages in 28 directories."""
    return fetched("ai", tmp_path_factory.mktemp("fetch"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Iterator[ChromaServer]:
    """A Chroma server with the corpus in its collection."""
    base = tmp_path_factory.mktemp("caches")
    with running_chroma(base / "data") as server:
        site = Site(base / "ingest", chroma=server.url, collection=COLLECTION)
        try:
            site.ingest(source)
            yield server
        finally:
            site.close()


@contextmanager
def mounted(base: Path, chroma: str, *options: str, collection: str = COLLECTION) -> Iterator[Site]:
    """A mount with caches of its own that are cold, where every search reads every file."""
    site = Site(base, chroma=chroma, collection=collection)
    try:
        site.mount("--pushdown", "off", *options)
        yield site
    finally:
        site.close()


def tool(site: Site, line: str) -> Finished:
    """Run a shell line in the mount; it has to succeed and to say nothing on standard error."""
    done = run(["bash", "-c", line], env=site.env, cwd=site.mountpoint).expect(0)
    assert done.err == b"", done
    return done


def plain(site: Site, source: Path, line: str) -> bytes:
    """What the same line prints in the plain directory."""
    return run(["bash", "-c", line], env=site.env, cwd=source).expect(0).out


def in_any_order(output: bytes) -> list[bytes]:
    return sorted(output.split(b"\n"))


def status(site: Site) -> dict[str, Any]:
    [answer] = json.loads(site.command("status", site.mountpoint, "--json").expect(0).out)
    assert isinstance(answer, dict)
    return answer


def requests(site: Site) -> int:
    return int(status(site)["reads"]["requests"])


def warmed_up(site: Site) -> dict[str, Any]:
    """What the status tells when the warm-up is over."""
    assert wait_until(lambda: status(site)["warm_up"]["state"] == "done", GENEROUS), status(site)
    return status(site)


# -- the tree


@pytest.mark.parametrize("line", ["find .", "find . -type f -size +1k", "ls -lR", "tree", "du -a"])
def test_listing_the_tree_makes_no_request(listed: Site, line: str) -> None:
    assert tool(listed, line).out
    assert requests(listed) == 0


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory, server: ChromaServer) -> Iterator[Site]:
    with mounted(tmp_path_factory.mktemp("listed"), server.url, "--warm", "off") as site:
        yield site


# -- contents


GREP = f"grep -r {WORD} ."
RG = f"rg -j8 {WORD}"
CAT = "find . -type f -print0 | xargs -0 -P4 -n4 cksum"
CAT_EACH = "find . -type f -print0 | xargs -0 -P4 -n1 cksum"


@pytest.mark.parametrize(
    ("line", "options", "most"),
    [
        pytest.param(GREP, (), 12, id="grep"),
        pytest.param(GREP, ("--warm", "all"), 12, id="grep while all is fetched"),
        pytest.param(GREP, ("--warm", "off"), 25, id="grep without warm-up"),
        pytest.param(RG, (), 20, id="rg"),
        pytest.param(RG, ("--warm", "off"), 30, id="rg without warm-up"),
        pytest.param(CAT, (), 20, id="xargs"),
        pytest.param(CAT_EACH, ("--warm", "off"), 30, id="xargs without warm-up"),
    ],
)
def test_reading_the_whole_site_makes_few_requests_and_again_none(
    tmp_path: Path, server: ChromaServer, source: Path, line: str, options: Sequence[str], most: int
) -> None:
    with mounted(tmp_path, server.url, *options) as site:
        expected = in_any_order(plain(site, source, line))
        assert in_any_order(tool(site, line).out) == expected
        cold = requests(site)
        assert cold <= most
        assert in_any_order(tool(site, line).out) == expected
        assert requests(site) == cold
        if "off" not in options:
            warmed_up(site)
            assert requests(site) <= most
        assert status(site)["reads"]["pages_fetched"] <= 238 + 10


def test_without_a_read_the_warm_up_fetches_the_site_and_status_tells_so(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    with mounted(tmp_path, server.url) as site:
        answer = warmed_up(site)
        assert answer["warm_up"] == {"state": "done", "pages": 238, "of": 238}
        assert answer["cache"]["pages"] == 238
        assert answer["reads"]["requests"] <= 6
        assert b"done, 238 of 238 pages" in site.command("status", site.mountpoint).expect(0).out
        line = GREP
        assert in_any_order(tool(site, line).out) == in_any_order(plain(site, source, line))
        assert requests(site) == answer["reads"]["requests"]


@pytest.mark.parametrize("options", [("--warm", "off"), ("--cache-size", "500K")])
def test_without_a_warm_up_nothing_is_fetched_before_somebody_reads(
    tmp_path: Path, server: ChromaServer, options: Sequence[str]
) -> None:
    with mounted(tmp_path, server.url, *options) as site:
        tool(site, "ls -lR; sleep 0.5")
        answer = status(site)
        assert answer["warm_up"]["state"] == "off"
        assert answer["reads"]["requests"] == 0


def test_a_cache_smaller_than_the_site_stays_within_its_bound(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    with mounted(tmp_path, server.url, "--cache-size", "300K", "--warm", "all") as site:
        for _ in range(2):
            assert in_any_order(tool(site, CAT).out) == in_any_order(plain(site, source, CAT))
            cache = status(site)["cache"]
            assert cache["used_bytes"] <= cache["max_bytes"] == 300 << 10


# -- the kernel's page cache


def read_without_daemon(site: Site, descriptor: int, size: int) -> bytes | None:
    """What the kernel gives while the daemon is frozen, or None if it asked the daemon."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(os.pread(descriptor, size, 0)))
    [daemon] = site.daemons()
    os.kill(daemon, signal.SIGSTOP)
    try:
        reader.start()
        reader.join(3)
        return found[0] if found else None
    finally:
        os.kill(daemon, signal.SIGCONT)
        reader.join()


def test_a_page_that_was_read_before_is_read_from_the_kernel(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    with mounted(tmp_path, server.url, "--warm", "off") as site:
        [name, *_] = sorted(tool(site, "find . -type f").out.decode().split())
        expected = (source / name).read_bytes()
        path = site.mountpoint / name
        assert path.read_bytes() == expected
        descriptor = os.open(path, os.O_RDONLY)
        try:
            assert read_without_daemon(site, descriptor, 1 << 20) == expected
        finally:
            os.close(descriptor)


def test_a_page_that_is_in_memory_is_the_kernels_from_its_first_open_on(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    with mounted(tmp_path, server.url) as site:
        warmed_up(site)
        names = tool(site, "find . -type f").out.decode().split()
        name = max(names, key=lambda name: (source / name).stat().st_size)
        expected = (source / name).read_bytes()
        assert len(expected) > 4 * 4096
        descriptor = os.open(site.mountpoint / name, os.O_RDONLY)
        try:
            assert read_without_daemon(site, descriptor, 1 << 20) == expected
        finally:
            os.close(descriptor)


def test_a_page_that_is_not_in_memory_needs_the_daemon(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    """The control of the two tests above."""
    with mounted(tmp_path, server.url, "--warm", "off") as site:
        [name, *_] = tool(site, "find . -type f").out.decode().split()
        [daemon] = site.daemons()
        os.kill(daemon, signal.SIGSTOP)
        try:
            with subprocess.Popen(["cat", site.mountpoint / name], stdout=subprocess.PIPE) as cat:
                with pytest.raises(subprocess.TimeoutExpired):
                    cat.communicate(timeout=1)
                os.kill(daemon, signal.SIGCONT)
                assert cat.communicate(timeout=GENEROUS)[0] == (source / name).read_bytes()
        finally:
            os.kill(daemon, signal.SIGCONT)


# -- Redis


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


def test_what_one_daemon_has_read_costs_the_next_no_request(
    tmp_path: Path, server: ChromaServer, source: Path, redis_server: RedisServer
) -> None:
    options = ("--redis", redis_server.url, "--warm", "off")
    with mounted(tmp_path / "one", server.url, *options) as one:
        expected = in_any_order(plain(one, source, GREP))
        assert in_any_order(tool(one, GREP).out) == expected
        assert 0 < requests(one) <= 25
        assert wait_until(lambda: len(redis_server.names()) == 238, GENEROUS)
        with mounted(tmp_path / "two", server.url, *options) as two:
            redis_server.forget_calls()
            assert in_any_order(tool(two, GREP).out) == expected
            answer = status(two)
            assert answer["reads"]["requests"] == 0
            assert answer["reads"]["pages_fetched"] == 238
            assert answer["redis"]["ok"] is True
            assert (answer["redis"]["hits"], answer["redis"]["misses"]) == (238, 0)
            assert redis_server.calls("mget") <= 25
            assert redis_server.calls("set") == 0


@pytest.mark.expects_log("Redis at .* fails .*: pages come from Chroma")
def test_redis_killed_under_a_mount_costs_nothing_but_a_log_line(
    tmp_path: Path, server: ChromaServer, source: Path, redis_server: RedisServer
) -> None:
    options = ("--redis", redis_server.url, "--warm", "off", "--cache-size", "0")
    with mounted(tmp_path, server.url, *options) as site:
        names = iter(sorted(tool(site, "find . -type f").out.decode().split()))

        def read(count: int) -> None:
            for name in (next(names) for _ in range(count)):
                assert (site.mountpoint / name).read_bytes() == (source / name).read_bytes()

        read(5)
        assert wait_until(lambda: len(redis_server.names()) >= 5, GENEROUS)
        redis_server.stop()
        read(60)
        assert status(site)["redis"]["ok"] is False
        redis_server.start()

        def is_used_again() -> bool:
            time.sleep(0.2)  # there are not pages without end
            read(1)
            return "works again" in site.log.read_text()

        assert wait_until(is_used_again, GENEROUS)
        assert status(site)["redis"]["ok"] is True
        log = site.log.read_text()
        assert len(re.findall("Redis at .* fails", log)) == 1
        assert log.count("works again") == 1


@pytest.mark.expects_log("Redis at .* fails .*: pages come from Chroma")
def test_a_mount_without_its_redis_reads_from_chroma_and_tells_no_password(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    port = free_port()
    url = f"redis://:hunter2@127.0.0.1:{port}/0"
    with mounted(tmp_path, server.url, "--redis", url) as site:
        assert in_any_order(tool(site, GREP).out) == in_any_order(plain(site, source, GREP))
        assert status(site)["redis"]["at"] == f"redis://127.0.0.1:{port}/0"
        assert b"hunter2" not in site.command("status", site.mountpoint).expect(0).out
        log = site.log.read_text()
        assert log.count("Redis at") == 1
        assert "hunter2" not in log


def test_a_wrong_redis_url_is_told_before_anything_is_mounted(
    tmp_path: Path, server: ChromaServer
) -> None:
    site = Site(tmp_path, chroma=server.url, collection=COLLECTION)
    try:
        arguments = (
            "--collection",
            COLLECTION,
            "--chroma",
            server.url,
            "--redis",
            "http://:hunter2@h",
        )
        done = site.command("mount", site.mountpoint, *arguments)
        assert done.code == 2, done
        assert b"--redis" in done.err
        assert b"hunter2" not in done.err
        assert not site.is_mounted()
    finally:
        site.close()


# -- the tree on disk


def small_site(base: Path, pages: int = 3) -> Path:
    source = base / "source"
    source.mkdir(parents=True, exist_ok=True)
    for number in range(pages):
        (source / f"p{number}.mdx").write_text(f"page {number}\n")
    return source


def names_in(site: Site) -> list[str]:
    return sorted(os.listdir(site.mountpoint))


class Watched:
    """Passes every request on to a real Chroma server and counts what asks for the tree's text."""

    def __init__(self, chroma: str, front: AnsweringServer) -> None:
        self._client = httpx.Client(base_url=chroma, timeout=60)
        self._front = front
        front.answer = self._pass_on

    def _pass_on(self, request: Request) -> Answer:
        kept = {"content-type": request.headers.get("content-type", "application/json")}
        answer = self._client.request(
            request.method, request.path, content=request.body, headers=kept
        )
        return Answer(answer.status_code, answer.content, {"content-type": "application/json"})

    def take(self) -> tuple[int, int]:
        """How many requests there were since the last call, and how many fetched the tree."""
        taken, self._front.requests = self._front.requests, []
        return len(taken), sum(self._fetches_the_tree(request) for request in taken)

    @property
    def kinds(self) -> set[tuple[str, str]]:
        """Methods and last parts of the paths of the requests since ``take`` was called."""
        return {(one.method, one.path.rpartition("/")[2]) for one in self._front.requests}

    def _fetches_the_tree(self, request: Request) -> bool:
        if not request.path.endswith("/get"):
            return False
        body = json.loads(request.body)
        return "documents" in body["include"] and "__path_tree__" in body.get("ids", [])

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def watched(server: ChromaServer) -> Iterator[tuple[str, Watched]]:
    """The URL of a counting proxy in front of the server, and the proxy."""
    with answering_server() as front:
        proxy = Watched(server.url, front)
        yield front.url, proxy
        proxy.close()


def test_the_tree_is_fetched_once_and_looked_at_from_then_on(
    tmp_path: Path, watched: tuple[str, Watched]
) -> None:
    url, proxy = watched
    site = Site(tmp_path, chroma=url, collection=f"snapshot-{os.getpid()}")
    try:
        site.ingest(small_site(tmp_path))
        proxy.take()
        site.mount("--warm", "off")
        assert proxy.take()[1] == 1
        site.umount()
        # From now on a mount asks which collection and which version there is.
        for _ in range(2):
            site.mount("--warm", "off")
            assert names_in(site) == ["p0.mdx", "p1.mdx", "p2.mdx"]
            assert proxy.take() == (2, 0)
            assert status(site)["stale_since"] is None
            site.umount()
        site.ingest(small_site(tmp_path, pages=4))
        proxy.take()
        site.mount("--warm", "off")
        assert names_in(site) == ["p0.mdx", "p1.mdx", "p2.mdx", "p3.mdx"]
        assert proxy.take()[1] == 1
    finally:
        site.close()


def test_status_counts_the_requests_that_chroma_gets(
    tmp_path: Path, watched: tuple[str, Watched]
) -> None:
    url, proxy = watched
    with mounted(tmp_path, url, "--warm", "off") as site:
        tool(site, GREP)
        # Two more found the collection and fetched the tree.
        assert proxy.take()[0] == requests(site) + 2


def test_a_mount_only_reads_from_chroma(tmp_path: Path, watched: tuple[str, Watched]) -> None:
    url, proxy = watched
    with mounted(tmp_path, url, "--warm", "all") as site:
        tool(site, GREP)
        with pytest.raises(OSError, match="Read-only"):
            (site.mountpoint / "new.mdx").write_text("no")
        site.command("refresh", site.mountpoint).expect(0)
        assert ("POST", "get") in proxy.kinds
        assert proxy.kinds <= {("POST", "get"), ("GET", COLLECTION)}


def test_the_tree_on_disk_is_nobody_elses(tmp_path: Path, server: ChromaServer) -> None:
    with mounted(tmp_path, server.url, "--warm", "off") as site:
        cache = Path(site.env["XDG_CACHE_HOME"]) / "chromafuse"
        [snapshot] = cache.iterdir()
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700
        assert stat.S_IMODE(snapshot.stat().st_mode) == 0o600


def test_a_cache_directory_that_cannot_be_used_does_not_hinder_a_mount(
    tmp_path: Path, server: ChromaServer
) -> None:
    site = Site(tmp_path, chroma=server.url, collection=COLLECTION)
    try:
        (Path(site.env["XDG_CACHE_HOME"]) / "chromafuse").write_text("in the way")
        site.mount("--warm", "off")
        assert len(tool(site, "find . -type f").out.split()) == 238
        assert "the tree is not kept on disk" in site.log.read_text()
    finally:
        site.close()


class Stoppable(ChromaProcess):
    """A site on a Chroma server of its own that can be stopped and started again."""

    def __init__(self, base: Path) -> None:
        super().__init__(base / "server")
        self.site = Site(base, chroma=f"http://127.0.0.1:{self.port}")

    def try_mount(self, *options: str) -> Finished:
        site = self.site
        target = ("--chroma", site.chroma, "--collection", site.collection)
        return site.command("mount", site.mountpoint, *target, "--log-file", site.log, *options)


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Stoppable]:
    made = Stoppable(tmp_path)
    try:
        made.start()
        made.site.ingest(small_site(tmp_path))
        yield made
    finally:
        made.stop()
        made.site.close()


@pytest.mark.expects_log("Chroma cannot be reached: showing the tree as of")
@pytest.mark.expects_log("reads from Chroma fail")
@pytest.mark.parametrize("go_away", [Stoppable.stop, Stoppable.freeze])
def test_without_chroma_the_tree_last_seen_is_shown_and_said_to_be_old(
    stoppable: Stoppable, go_away: Callable[[Stoppable], None]
) -> None:
    site = stoppable.site
    site.mount("--warm", "off")
    site.umount()
    go_away(stoppable)
    done = stoppable.try_mount("--warm", "off", "--deadline", "1.5").expect(0)
    assert b"Chroma cannot be reached: showing the tree as of" in done.err
    assert names_in(site) == ["p0.mdx", "p1.mdx", "p2.mdx"]
    assert (site.mountpoint / "p1.mdx").stat().st_size == len("page 1\n")
    assert isinstance(status(site)["stale_since"], float)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
        (site.mountpoint / "p1.mdx").read_bytes()
    assert caught.value.errno == errno.EIO
    assert site.log.read_text().count("showing the tree as of") == 1
    # Contents come back with the server.
    stoppable.come_back()

    def is_read() -> bool:
        try:
            return (site.mountpoint / "p1.mdx").read_text() == "page 1\n"
        except OSError:
            return False

    assert wait_until(is_read, GENEROUS)


def test_without_chroma_and_a_tree_young_enough_a_mount_is_refused(stoppable: Stoppable) -> None:
    site = stoppable.site
    stoppable.stop()
    never_seen = stoppable.try_mount()
    stoppable.start()
    site.mount("--warm", "off")
    site.umount()
    stoppable.stop()
    limit_of_zero = stoppable.try_mount("--max-stale", "0")
    [snapshot] = (Path(site.env["XDG_CACHE_HOME"]) / "chromafuse").iterdir()
    os.utime(snapshot, (1_700_000_000, 1_700_000_000))
    too_old = stoppable.try_mount("--max-stale", "3600")
    for done in (never_seen, limit_of_zero, too_old):
        done.expect(UNAVAILABLE)
        assert b"cannot reach Chroma" in done.err
        assert done.err.count(b"\n") == 1, done
    assert not site.is_mounted()
    assert not site.daemons()


# -- what the kernel asks


def asked(site: Site, line: str) -> dict[str, int]:
    """The FUSE requests that a line makes, by kind, without those of nothing."""
    before = status(site)["requests"]
    tool(site, line)
    after = status(site)["requests"]
    return {kind: n for kind in after if (n := after[kind] - before.get(kind, 0))}


def test_a_walk_asks_for_each_directory_once_and_for_no_name(
    tmp_path: Path, server: ChromaServer, source: Path
) -> None:
    directories = 1 + sum(len(below) for _, below, _ in os.walk(source))
    files = sum(len(names) for _, _, names in os.walk(source))
    with mounted(tmp_path, server.url) as site:
        warmed_up(site)
        for line in ("find . -type f", "find . -printf '%s %t %i\\n'", "ls -lR"):
            check_walk(asked(site, line), directories)
        for line, names in ((GREP, 0), (GREP, 0), (RG, 5 * directories + 10), (RG, 0)):
            found = asked(site, line)
            # rg looks for its ignore files, five in each directory and some above, once.
            assert found.pop("lookup", 0) <= names, line
            assert (found.pop("open"), found.pop("release")) == (files, files), line
            check_walk(found, directories)


def check_walk(found: dict[str, int], directories: int) -> None:
    """Check that nothing was asked but to list each directory; ``find`` opens the first twice."""
    # Of the whole, once or twice: how large the file system is, and for an ACL.
    for kind in ("statfs", "getxattr", "getattr"):
        assert found.pop(kind, 0) <= 2
    opened = found.pop("opendir")
    assert opened <= directories + 1
    assert found.pop("releasedir") == opened
    assert found.pop("readdir") <= 2 * opened
    assert not found


def test_a_page_that_is_not_cached_is_read_once(tmp_path: Path, server: ChromaServer) -> None:
    with mounted(tmp_path, server.url, "--warm", "off") as site:
        line = "cat $(find . -name '*.mdx' | sort | head -n1)"
        first = asked(site, line)
        assert first["open"] == first["release"] == 1
        assert 1 <= first["read"] <= 2
        assert "read" not in asked(site, line)
