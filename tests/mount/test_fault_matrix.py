"""Each fault of each server behind a mount, against each thing that readers do meanwhile.

Faults are of three servers: Chroma, Redis and S3. All are real, each behind a proxy that refuses,
cuts, delays or changes what passes. Redis knows no HTTP status, so in place of 500 it is a replica
that has lost its master, in place of 429 it has no room for another client, and it may be full.
What Redis does costs no read anything: pages and objects come from elsewhere.

One hub and one set of servers go through all faults one after the other. Each fault has pages and
objects of its own that nobody has read before, far enough from each other: what is read of one
fault's is no reason to read ahead what belongs to another one.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from chromafuse import control
from tests.mount.harness import Finished, Site, run, wait_until
from tests.support.chroma_server import ChromaProcess
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.redis_server import RedisServer, running_redis
from tests.support.s3_server import CREDENTIALS, S3Process, S3Server, running_s3

pytestmark = [
    pytest.mark.xdist_group("mount-fault-matrix"),
    pytest.mark.expects_log("reads from Chroma fail"),
    pytest.mark.expects_log("Redis at .* fails .*: pages come from Chroma"),
    pytest.mark.expects_log("reads of objects fail"),
]

DEADLINE = 1.5
IN_TIME = 20.0
"""Seconds for what takes the deadline or two on an idle machine; no answer takes for ever."""
READS = 20
FRESH = 25
"""Objects that are read one by one until Redis is asked again."""
OVER = {
    "chroma": "reads from Chroma work again",
    "redis": " works again",
    "s3": "reads of objects work again",
}
APART = 64
"""Pages between those of two faults: more than a reader of one is ever thought to skip."""
PASSWORD = "unbreakable-secret"  # noqa: S105 - nobody's
WORD = "needle"
SECRET = "words that only the server knows"  # noqa: S105 - no secret of anybody

_COMPLAINT = re.compile(r"^\S+ \S+ (WARNING|ERROR|CRITICAL) |^Traceback")


@dataclass(frozen=True)
class Servers:
    """What the mount reads from, and the proxies before it."""

    chroma: ChromaProcess
    redis: RedisServer
    s3: S3Server
    proxies: dict[str, FaultProxy]


@dataclass(frozen=True)
class Case:
    """A fault of one server. ``fails`` tells whether what is not cached cannot be read."""

    backend: str
    name: str
    begin: Callable[[Servers], None]
    end: Callable[[Servers], None]
    fails: bool
    lines: int = 1

    def __str__(self) -> str:
        return f"{self.backend}-{self.name}"


def _http(status: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def _answering(backend: str, name: str, fault: Fault, *, fails: bool, lines: int = 1) -> Case:
    """A fault of the proxy before a server."""

    def begin(servers: Servers) -> None:
        servers.proxies[backend].fault = fault

    def end(servers: Servers) -> None:
        servers.proxies[backend].mend()

    return Case(backend, name, begin, end, fails, lines)


def _of_each_server(backend: str, *, fails: bool) -> list[Case]:
    def process(servers: Servers) -> ChromaProcess | RedisServer | S3Process:
        if backend == "redis":
            return servers.redis
        return servers.chroma if backend == "chroma" else servers.s3.process

    def proxy(servers: Servers) -> FaultProxy:
        return servers.proxies[backend]

    cases = [
        ("refused", lambda s: proxy(s).refuse(), lambda s: proxy(s).accept()),
        ("hanging", lambda s: process(s).freeze(), lambda s: process(s).thaw()),
        ("restarted", lambda s: process(s).stop(), lambda s: process(s).start()),
    ]
    return [Case(backend, name, begin, end, fails) for name, begin, end in cases] + [
        _answering(backend, "truncated", Fault(cut=True), fails=fails),
        _answering(backend, "trickling", Fault(piece=1, delay=0.1), fails=fails),
        _answering(backend, "slow", Fault(delay=0.05), fails=False, lines=0),
        _answering(backend, "garbage", Fault(answer=b"\0\xff garbage \r\n" * 9), fails=fails),
    ]


_JSON_ERROR = b'{"error": "InternalError", "message": "no room"}'
_XML_ERROR = f"<Error><Code>SlowDown</Code><Message>{SECRET}</Message></Error>".encode()
_PORTAL = b"<html>Please log in to the network of this hotel</html>"


def _lose_master(servers: Servers) -> None:
    servers.redis.client.config_set("replica-serve-stale-data", "no")
    servers.redis.client.replicaof("127.0.0.1", "1")


def _find_master(servers: Servers) -> None:
    servers.redis.client.replicaof("NO", "ONE")


def _take_no_client(servers: Servers) -> None:
    servers.redis.client.ping()
    servers.redis.client.config_set("maxclients", "1")
    servers.redis.client.client_kill_filter(_type="normal", skipme=True)


def _take_clients(servers: Servers) -> None:
    servers.redis.client.config_set("maxclients", "100")


def _fill(servers: Servers) -> None:
    servers.redis.client.config_set("maxmemory", "1")


def _make_room(servers: Servers) -> None:
    servers.redis.client.config_set("maxmemory", "0")


CASES = [
    *_of_each_server("chroma", fails=True),
    _answering("chroma", "500", Fault(_http("500 Error", _JSON_ERROR)), fails=True),
    _answering("chroma", "429", Fault(_http("429 Too Many Requests", _JSON_ERROR)), fails=True),
    _answering("chroma", "portal", Fault(_http("200 OK", _PORTAL, "text/html")), fails=True),
    _answering("chroma", "wrong-shape", Fault(_http("200 OK", b'{"ids": [1]}')), fails=True),
    _answering("chroma", "half-json", Fault(_http("200 OK", b'{"ids": ["a", "b')), fails=True),
    *_of_each_server("redis", fails=False),
    Case("redis", "no-master", _lose_master, _find_master, fails=False),
    Case("redis", "no-room-for-clients", _take_no_client, _take_clients, fails=False),
    Case("redis", "full", _fill, _make_room, fails=False),
    *_of_each_server("s3", fails=True),
    _answering("s3", "500", Fault(_http("500 Error", _XML_ERROR, "application/xml")), fails=True),
    _answering("s3", "429", Fault(_http("429 Slow", _XML_ERROR, "application/xml")), fails=True),
    _answering("s3", "portal", Fault(_http("200 OK", _PORTAL, "text/html")), fails=True),
]


def _is_object(case: int, group: str) -> bool:
    """Whether files are outside Chroma; of those, no other one is ever read ahead."""
    return CASES[case].backend == "s3" or group == "x"


def _page(name: str, group: str) -> str:
    lines = "".join(f"{name} line {number} {WORD}\n" for number in range(60))
    return f"---\ngroups: [{group}]\n---\n\n{lines}"


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def _object(name: str) -> bytes:
    return "".join(f"{name} line {number} {WORD}\n" for number in range(800)).encode()


class World:
    """A hub on the three servers, and the plain directories with what it shows."""

    def __init__(self, base: Path, servers: Servers) -> None:
        self.servers = servers
        self.pages = base / "source"
        self.objects = servers.s3.root / "specs" / "objects"
        for case in range(len(CASES)):
            self._write_files_of(case)
        _write(self.pages / "cached.mdx", "# always in memory\n")
        servers.s3.put("specs", "objects/cached.json", b'{"always": "in memory"}\n')
        proxies = servers.proxies
        self.site = Site(base / "site", chroma=proxies["chroma"].url)
        self.site.env.update(CREDENTIALS)
        s3 = ("--s3-endpoint", proxies["s3"].url)
        self.redis_url = f"redis://:{PASSWORD}@127.0.0.1:{proxies['redis'].port}/0"
        self.options = (
            *s3, "--pointers-allowed", "s3://specs", "--redis", self.redis_url, "--warm", "off",
            "--refresh", "0", "--deadline", str(DEADLINE), "--search-timeout", "0.5",
        )  # fmt: skip
        self.site.ingest(self.pages, *s3, "--pointers", "s3://specs")
        self.site.hub(*self.options)

    def _write_files_of(self, case: int) -> None:
        backend = CASES[case].backend
        for group, count in (("u", READS), ("g", 4), ("x", FRESH * (backend == "redis"))):
            for number in range(count):
                name = f"c{case:02}/{group}/p{number:02}"
                if _is_object(case, group):
                    self.servers.s3.write("specs", f"objects/{name}.json", _object(name))
                else:
                    _write(self.pages / f"{name}.mdx", _page(name, f"c{case}"))
        for number in range(APART * (backend != "s3")):
            name = f"c{case:02}/z/p{number:02}"
            _write(self.pages / f"{name}.mdx", "---\ngroups: [apart]\n---\n")

    def source_of(self, case: int, group: str) -> Path:
        base = self.objects if _is_object(case, group) else self.pages
        return base / f"c{case:02}" / group

    def open(self, case: int) -> Path:
        with control.Client(str(self.site.mountpoint)) as client:
            return Path(str(client.ask("open", groups=[f"c{case}"])["path"]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base = tmp_path_factory.mktemp("matrix")
    with ExitStack() as stack:
        chroma = ChromaProcess(base / "chroma")
        stack.callback(chroma.stop)
        chroma.start()
        redis = stack.enter_context(running_redis(PASSWORD))
        s3 = stack.enter_context(running_s3(base))
        ports = {"chroma": chroma.port, "redis": redis.port, "s3": s3.process.port}
        proxies = {name: stack.enter_context(fault_proxy(port)) for name, port in ports.items()}
        world = World(base, Servers(chroma, redis, s3, proxies))
        stack.callback(world.site.close)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_RUNTIME_DIR", world.site.env["XDG_RUNTIME_DIR"])
        yield world


class Incident:
    """A fault that has begun, and a session from before in which some things were read."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.case = CASES[number]
        self.session = world.open(number)
        self.cached = [
            (self.session / "cached.mdx", world.pages / "cached.mdx"),
            (self.session / "objects" / "cached.json", world.objects / "cached.json"),
            (self.names("g")[0], world.source_of(number, "g") / self.names("g")[0].name),
        ]
        for path, source in self.cached:
            assert path.read_bytes() == source.read_bytes()
        assert wait_until(self._is_quiet, IN_TIME)
        self._log_from = len(world.site.log.read_text())
        self._over = False
        self.case.begin(world.servers)

    def _is_quiet(self) -> bool:
        """Whether nothing is under way any more of what was read before the fault."""
        before = self.requests
        return not wait_until(lambda: self.requests != before, 0.1)

    def place(self, group: str) -> Path:
        middle = "objects/" if _is_object(self.number, group) else ""
        return self.session / f"{middle}c{self.number:02}" / group

    def names(self, group: str) -> list[Path]:
        source = self.world.source_of(self.number, group)
        return [self.place(group) / name for name in sorted(os.listdir(source))]

    def wanted(self, path: Path) -> bytes:
        return (self.world.source_of(self.number, path.parent.name) / path.name).read_bytes()

    @property
    def log(self) -> str:
        return self.world.site.log.read_text()[self._log_from :]

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.log.split("\n") if _COMPLAINT.search(line)]

    @property
    def requests(self) -> dict[str, int]:
        return {name: proxy.requests for name, proxy in self.world.servers.proxies.items()}

    def end(self) -> None:
        if not self._over:
            self._over = True
            self.case.end(self.world.servers)


@pytest.fixture(scope="module", params=range(len(CASES)), ids=lambda n: str(CASES[n]))
def incident(request: pytest.FixtureRequest, world: World) -> Iterator[Incident]:
    incident = Incident(world, request.param)
    yield incident
    incident.end()


def _outcome(path: Path) -> bytes | int | None:
    """The bytes of a file, or the error that reading it ends with."""
    try:
        return path.read_bytes()
    except OSError as error:
        return error.errno


def _is(path: Path, wanted: bytes) -> bool:
    """Whether a file can be read, which has to have the bytes ``wanted`` then."""
    outcome = _outcome(path)
    if isinstance(outcome, bytes):
        assert outcome == wanted, path
        return True
    return False


def _tool(place: Path, *command: str) -> Finished:
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    return run(command, env=env, cwd=place, deadline=4 * IN_TIME)


Record = Callable[[str, object], None]


def _read_the_cached(incident: Incident) -> None:
    for path, source in incident.cached:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # Not from the kernel: the daemon is to answer.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(descriptor, 1 << 20, 0) == source.read_bytes()
        finally:
            os.close(descriptor)


def _list_all(incident: Incident) -> None:
    for group in ("u", "g"):
        source = incident.world.source_of(incident.number, group)
        assert sorted(os.listdir(incident.place(group))) == sorted(os.listdir(source))
        for path in incident.names(group):
            assert path.stat().st_size == (source / path.name).stat().st_size


def test_what_is_cached_is_read_without_a_request(
    incident: Incident, record_property: Record
) -> None:
    before, begun = incident.requests, time.perf_counter()
    _read_the_cached(incident)
    record_property("cached_ms", (time.perf_counter() - begun) * 1e3 / len(incident.cached))
    assert incident.requests == before


def test_listing_makes_no_request(incident: Incident, record_property: Record) -> None:
    before, begun = incident.requests, time.perf_counter()
    _list_all(incident)
    record_property("list_ms", (time.perf_counter() - begun) * 1e3)
    source = incident.world.source_of(incident.number, "u")
    for command in (
        ["find", ".", "-type", "f", "-size", "+1", "-printf", "%p %s %y\n"],
        ["ls", "-R"],
    ):
        listed = _tool(incident.place("u"), *command).expect(0).out.split(b"\n")
        assert sorted(listed) == sorted(_tool(source, *command).expect(0).out.split(b"\n"))
    assert incident.requests == before


def test_a_session_opens_without_a_request(incident: Incident, record_property: Record) -> None:
    before, begun = incident.requests, time.perf_counter()
    session = incident.world.open(incident.number)
    record_property("session_ms", (time.perf_counter() - begun) * 1e3)
    assert set(os.listdir(session)) == set(os.listdir(incident.session))
    assert incident.requests == before


def test_what_is_not_cached_is_right_or_eio_in_time(
    incident: Incident, record_property: Record
) -> None:
    """Many readers at once, and while they wait, what is cached and listed answers."""
    paths = incident.names("u")
    begun = time.perf_counter()
    with ThreadPoolExecutor(READS) as pool:
        waiting = [pool.submit(_outcome, path) for path in paths]
        asked = time.perf_counter()
        _read_the_cached(incident)
        _list_all(incident)
        record_property("both_while_waiting_ms", (time.perf_counter() - asked) * 1e3)
        outcomes = [future.result() for future in waiting]
    seconds = time.perf_counter() - begun
    record_property("uncached_ms", seconds * 1e3)
    if incident.case.fails:
        assert outcomes == [errno.EIO] * READS
    else:
        assert outcomes == [incident.wanted(path) for path in paths]
    assert seconds < IN_TIME


def test_grep_tells_of_every_file_that_it_could_not_read(
    incident: Incident, record_property: Record
) -> None:
    """It finds what there is, and never less than that without saying so."""
    begun = time.perf_counter()
    found = _tool(incident.place("g"), "grep", "-r", WORD)
    record_property("grep_ms", (time.perf_counter() - begun) * 1e3)
    wanted = _tool(incident.world.source_of(incident.number, "g"), "grep", "-r", WORD).out
    lines = sorted(wanted.split(b"\n"))
    if incident.case.fails:
        readable, *others = [os.fsencode(path.name) for path in incident.names("g")]
        lines = [line for line in lines if not line or line.startswith(readable)]
        complaints = [b"grep: " + name + b": Input/output error" for name in others]
        assert sorted(found.err.split(b"\n")) == [b"", *complaints]
    else:
        assert found.err == b""
    assert sorted(found.out.split(b"\n")) == lines
    assert found.code == (2 if incident.case.fails else 0)


def test_the_tree_that_is_shown_stays(incident: Incident) -> None:
    """Also if somebody asks for a newer one meanwhile; only Chroma is asked for that."""
    if incident.case.backend == "chroma":
        site = incident.world.site
        done = site.command("refresh", site.mountpoint)
        assert (done.code != 0) == incident.case.fails, done
    _list_all(incident)


def test_it_is_logged_once_and_all_is_right_when_it_is_over(
    incident: Incident, record_property: Record
) -> None:
    """Without a new mount. Nothing of what was answered meanwhile was kept, if it was wrong."""
    site = incident.world.site
    with ThreadPoolExecutor(READS) as pool:
        list(pool.map(_outcome, incident.names("u")))
    assert len(incident.complaints) == incident.case.lines, incident.complaints
    begun = time.perf_counter()
    incident.end()
    paths = [*incident.names("u"), *incident.names("g")]
    for path in paths:
        wanted = incident.wanted(path)
        # What was under way when the fault ended may still fail; what comes is right.
        assert wait_until(lambda: _is(path, wanted), IN_TIME), path  # noqa: B023 - called here
    record_property("recovery_ms", (time.perf_counter() - begun) * 1e3)
    assert len(incident.complaints) == incident.case.lines, incident.complaints
    fresh = iter(incident.names("x") if incident.case.backend == "redis" else [])

    def is_told() -> bool:
        path = next(fresh, None)
        assert path is None or path.read_bytes() == incident.wanted(path)
        time.sleep(0.3 if path else 0)
        return incident.log.count(OVER[incident.case.backend]) == incident.case.lines

    assert wait_until(is_told, IN_TIME), incident.log
    record_property("told_ms", (time.perf_counter() - begun) * 1e3)
    assert PASSWORD not in incident.log
    assert SECRET not in incident.log
    assert site.is_mounted()


def test_a_second_daemon_finds_nothing_wrong_in_what_the_first_has_shared(
    world: World, tmp_path: Path
) -> None:
    """All that the faults have left in Redis, read by somebody who has nothing else.

    And once more when each entry there is another one's, or garbage: then none is believed.
    """
    second = Site(tmp_path, chroma=world.site.chroma)
    second.env.update(CREDENTIALS)
    groups = ",".join(f"c{case}" for case in range(len(CASES)))
    redis = world.servers.redis
    try:
        for spoilt in (False, True):
            second.mount(*world.options, "--deadline", "20", "--groups", groups)
            _check_same(world.pages, second.mountpoint, "--exclude=objects", "--exclude=z")
            _check_same(world.objects, second.mountpoint / "objects")
            assert (second.status()["redis"]["hits"] == 0) == spoilt
            second.umount()
            names = redis.names()
            values = [redis.client.get(name) or b"" for name in names]
            for number, name in enumerate(names):
                redis.client.set(name, values[number - 1] if number % 4 else b"garbage")
    finally:
        second.close()


def _check_same(one: Path, other: Path, *options: str) -> None:
    done = _tool(one, "diff", "-r", *options, str(one), str(other)).expect(0)
    assert (done.out, done.err) == (b"", b"")
