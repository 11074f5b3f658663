"""Files outside Chroma in a real mount: right bytes, few requests, the right errno."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mount.harness import HarnessError, Site, wait_until
from tests.mount.test_foreign_trees import PUBLIC, Foreign
from tests.support import s3_server
from tests.support.redis_server import running_redis
from tests.support.s3_server import CREDENTIALS, Fault, S3Server, running_s3
from tests.support.sites import write_site

pytestmark = pytest.mark.xdist_group("mount-pointers")

BLOCK = 1 << 20
LINES = "".join(
    f'  "line {number}": "of a specification that is long",\n' for number in range(60_000)
)
SPEC = ('{\n  "openapi": "3.1.0",\n' + LINES + '  "paths": {"/a": {}, "/b": {}}\n}\n').encode()
OPTIONS = ("--pointers-allowed", "s3://specs/api")


class Pointing:
    """A site whose tree is written by hand, and a server with the objects it points to."""

    def __init__(self, site: Site, server: S3Server) -> None:
        self.site = site
        self.server = server
        self.entries: dict[str, object] = {"page": {**PUBLIC, "file": "page.md"}}
        site.env.update(CREDENTIALS)
        (server.root / "specs" / "api").mkdir(parents=True, exist_ok=True)
        server.requests.clear()
        server.faults.clear()

    def point(self, path: str, url: str, data: bytes, **marks: object) -> None:
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        name = path.rpartition("/")[2]
        self.entries[path] = {
            **PUBLIC, **marks, "file": name, "size": len(data), "mtime": "1700000000",
            "pointer": {"url": url, "etag": etag},
        }  # fmt: skip

    def put(self, name: str, data: bytes, **marks: object) -> Path:
        """Store an object and point to it; return its path in the mount."""
        self.server.put("specs", f"api/{name}", data)
        self.point(f"api-specs/{name}", f"s3://specs/api/{name}", data, **marks)
        return self.site.mountpoint / "api-specs" / name

    def write(self) -> None:
        """Store the tree."""
        foreign = Foreign(self.site)
        foreign.put_tree(json.dumps(self.entries))
        foreign.put_page("page", ["a page\n"])
        foreign.close()

    def mount(self, *options: str) -> None:
        self.write()
        self.site.mount(*OPTIONS, "--s3-endpoint", self.server.url, *options)


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def pointing(site: Site, _server: S3Server) -> Pointing:
    return Pointing(site, _server)


def _out(*command: str | Path) -> bytes:
    return subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout


def _reads(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


def test_names_and_sizes_ask_nobody(pointing: Pointing) -> None:
    spec = pointing.put("spec.json", SPEC)
    pointing.mount()
    assert spec.stat().st_size == len(SPEC)
    assert spec.stat().st_mtime == 1_700_000_000
    _out("ls", "-lR", pointing.site.mountpoint)
    found = _out("find", pointing.site.mountpoint, "-type", "f", "-size", "+1M")
    assert found.decode().split() == [str(spec)]
    assert pointing.server.requests == []


def test_the_head_and_the_tail_take_one_block_each(pointing: Pointing) -> None:
    spec = pointing.put("spec.json", SPEC)
    pointing.mount()
    assert _out("head", "-c", "100", spec) == SPEC[:100]
    assert len(pointing.server.reads) == 1
    assert pointing.server.bytes_sent == BLOCK
    assert _out("tail", "-c", "100", spec) == SPEC[-100:]
    assert len(pointing.server.reads) <= 3
    assert pointing.server.bytes_sent <= 3 * BLOCK


def test_the_whole_file_is_right_and_each_block_comes_once(pointing: Pointing) -> None:
    spec = pointing.put("spec.json", SPEC)
    pointing.mount()
    assert spec.read_bytes() == SPEC
    assert spec.read_bytes() == SPEC
    assert len(pointing.server.reads) <= -(-len(SPEC) // BLOCK)
    assert pointing.server.bytes_sent == len(SPEC)
    told = pointing.site.status()["objects"]
    assert told["blocks_fetched"] == -(-len(SPEC) // BLOCK)
    assert told["bytes_fetched"] == len(SPEC)


def test_tools_agree_with_the_source(pointing: Pointing, tmp_path: Path) -> None:
    spec = pointing.put("spec.json", SPEC)
    source = tmp_path / "spec.json"
    source.write_bytes(SPEC)
    pointing.mount()
    for command in (
        ["jq", "-c", ".paths|keys"], ["grep", "-c", "line 5"], ["sha256sum", "-"], ["wc"],
        ["tail", "-n", "3"], ["head", "-n", "3"], ["tail", "-c", "+1048570"],
    ):  # fmt: skip
        results = []
        for path in (spec, source):
            with path.open("rb") as file:
                done = subprocess.run(command, stdin=file, capture_output=True, check=True)
                results.append(done.stdout)
        assert results[0] == results[1], command
    ranges = random.Random(2)
    with spec.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        for _ in range(100):
            start, length = ranges.randrange(len(SPEC)), ranges.randrange(200_000)
            assert os.pread(file.fileno(), length, start) == SPEC[start : start + length]
            assert mapped[start : start + length] == SPEC[start : start + length]


@pytest.mark.expects_log("reads of objects fail|an object cannot be read")
@pytest.mark.parametrize(
    ("fault", "number"),
    [
        (s3_server.status(403, "AccessDenied"), errno.EACCES),
        (s3_server.status(404, "NoSuchKey"), errno.ENOENT),
        (s3_server.status(416, "InvalidRange"), errno.ESTALE),
        (s3_server.status(503, "SlowDown"), errno.EIO),
        (s3_server.xml_with_200, errno.EIO),
        (s3_server.short_body, errno.EIO),
        (s3_server.reset, errno.EIO),
        (s3_server.hang, errno.EIO),
    ],
    ids=["403", "404", "416", "503", "xml", "short", "reset", "hang"],
)
def test_what_fails_has_its_errno_and_comes_back(
    pointing: Pointing, fault: Fault, number: int
) -> None:
    spec = pointing.put("spec.json", SPEC)
    pointing.mount("--deadline", "2")
    pointing.server.faults[:] = [fault] * 40
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
        spec.read_bytes()
    assert caught.value.errno == number
    assert (pointing.site.mountpoint / "page.md").read_text() == "a page\n"
    pointing.server.faults.clear()
    assert wait_until(lambda: _reads(spec), 20)
    assert spec.read_bytes() == SPEC
    log = pointing.site.log.read_text()
    assert log.count("ERROR") == 1
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in log
    assert "secret words" not in log


def test_blocks_come_from_redis_if_they_are_right(pointing: Pointing) -> None:
    """A second daemon asks S3 for nothing; what is no block of this version is not believed."""
    with running_redis() as redis:
        options = ("--redis", redis.url)
        spec = pointing.put("spec.json", SPEC)
        pointing.mount(*options)
        assert spec.read_bytes() == SPEC
        blocks = -(-len(SPEC) // BLOCK)
        assert wait_until(lambda: len(redis.names()) >= blocks, 60)
        pointing.site.umount()
        pointing.server.requests.clear()
        s3 = (*OPTIONS, "--s3-endpoint", pointing.server.url, *options)
        pointing.site.mount(*s3)
        assert spec.read_bytes() == SPEC
        assert pointing.server.requests == []
        pointing.site.umount()
        # Neither what is garbage nor one block in another's place.
        names = sorted(redis.names())
        values = [redis.client.dump(name) or b"" for name in names]
        for name, value in zip(names, [*values[1:], values[0]], strict=True):
            redis.client.restore(name, 0, value, replace=True)
        redis.client.set(names[0], b"garbage")
        pointing.site.mount(*s3)
        assert spec.read_bytes() == SPEC
        assert pointing.server.requests != []
        # Blocks are handed over before Redis has them, and Redis is about to end.
        pointing.site.umount()


def test_an_object_under_a_new_etag_takes_nothing_of_the_old_one_from_redis(
    pointing: Pointing,
) -> None:
    other = SPEC.swapcase()
    assert len(other) == len(SPEC)
    blocks = -(-len(SPEC) // BLOCK)
    with running_redis() as redis:
        for data, stored in ((SPEC, blocks), (other, 2 * blocks)):
            spec = pointing.put("spec.json", data)
            pointing.mount("--redis", redis.url)
            assert spec.read_bytes() == data
            assert wait_until(lambda: len(redis.names()) >= stored, 60)  # noqa: B023
            pointing.site.umount()


@pytest.mark.expects_log("an object cannot be read")
def test_a_replaced_object_is_estale_and_never_a_mixture(pointing: Pointing) -> None:
    spec = pointing.put("spec.json", SPEC)
    pointing.mount()
    assert _out("head", "-c", "100", spec) == SPEC[:100]
    pointing.server.put("specs", "api/spec.json", bytes(len(SPEC)))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
        spec.read_bytes()
    assert caught.value.errno == errno.ESTALE


@pytest.mark.expects_log("an object cannot be read")
@pytest.mark.parametrize(
    "new",
    [SPEC[: len(SPEC) // 2], SPEC + b"more", SPEC.swapcase()],
    ids=["shorter", "longer", "as long"],
)
def test_a_replaced_object_is_shown_as_it_is_after_the_first_read_that_met_it(
    pointing: Pointing, new: bytes
) -> None:
    """The tree still tells of the old one, and who holds that open keeps what of it was read."""
    spec = pointing.put("spec.json", SPEC)
    pointing.mount("--refresh", "0")
    with spec.open("rb") as old:
        assert old.read(100) == SPEC[:100]
        pointing.server.put("specs", "api/spec.json", new)
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
            spec.read_bytes()
        assert caught.value.errno == errno.ESTALE
        inode = os.fstat(old.fileno()).st_ino
        assert wait_until(lambda: spec.stat().st_ino != inode, 20)
        assert spec.read_bytes() == new
        assert os.pread(old.fileno(), 100, 0) == SPEC[:100]
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is asserted below
            os.pread(old.fileno(), 100, len(SPEC) - 100)
        assert caught.value.errno == errno.ESTALE


@pytest.mark.expects_log("an object cannot be read")
def test_an_object_that_was_away_before_it_was_replaced_is_shown_as_it_is(
    pointing: Pointing,
) -> None:
    """Asked anew while it is away, it has no other version yet."""
    spec = pointing.put("spec.json", SPEC)
    pointing.mount("--refresh", "0")
    (pointing.server.root / "specs" / "api" / "spec.json").unlink()
    assert wait_until(lambda: not _reads(spec), 20)
    assert wait_until(lambda: pointing.site.status()["refresh"]["refreshes"] == 1, 20)
    pointing.server.put("specs", "api/spec.json", SPEC.swapcase())
    assert wait_until(lambda: _reads(spec), 20)
    assert spec.read_bytes() == SPEC.swapcase()


@pytest.mark.expects_log("an object cannot be read")
@pytest.mark.parametrize("tells", [True, False])
def test_the_tree_is_followed_while_objects_cannot_be_asked_for(
    pointing: Pointing, tells: bool
) -> None:
    """Access that is taken away may not wait until another server is back."""
    new = SPEC + b"more"
    spec = pointing.put("spec.json", SPEC)
    other = pointing.put("other.json", SPEC)
    if not tells:
        entry: Any = pointing.entries["api-specs/spec.json"]
        del entry["size"]
    pointing.mount("--refresh", "0", "--deadline", "2")
    pointing.server.put("specs", "api/spec.json", new)
    assert not _reads(spec)
    assert wait_until(lambda: spec.stat().st_size == len(new), 20)
    pointing.point("api-specs/other.json", "s3://specs/api/other.json", SPEC, isPublic=False)
    pointing.write()
    pointing.server.process.stop()
    try:
        pointing.site.command("refresh", pointing.site.mountpoint).expect(0)
        assert not other.exists()
        assert spec.stat().st_size == len(new)
    finally:
        pointing.server.process.start()
    assert wait_until(lambda: _reads(spec), 20)
    assert spec.read_bytes() == new


def test_what_comes_to_light_where_another_object_is_missing_is_asked_for_too(
    pointing: Pointing,
) -> None:
    spec = pointing.put("spec.json", SPEC)
    entry: Any = pointing.entries.pop("api-specs/spec.json")
    del entry["size"]
    first = {**entry, "pointer": {"url": "s3://specs/api/gone.json"}}
    pointing.entries |= {"api-specs/a": first, "api-specs/b": entry}
    pointing.mount()
    assert spec.read_bytes() == SPEC


def test_entries_that_do_not_tell_size_and_version_are_asked_for_once(pointing: Pointing) -> None:
    told = pointing.put("told.json", b"told")
    for name, left_out in (("size", ["size"]), ("etag", ["etag"]), ("both", ["size", "etag"])):
        pointing.put(f"{name}.json", SPEC)
        entry: Any = pointing.entries[f"api-specs/{name}.json"]
        for word in left_out:
            (entry if word == "size" else entry["pointer"]).pop(word)
    gone = {"file": "gone.json", "pointer": {"url": "s3://specs/api/gone.json"}}
    pointing.entries["api-specs/gone.json"] = {**entry, **gone}
    del (untimed := {**entry, "file": "untimed.json"})["mtime"]
    pointing.entries["api-specs/untimed.json"] = untimed
    pointing.mount()
    heads = [request.path for request in pointing.server.requests]
    assert {request.method for request in pointing.server.requests} == {"HEAD"}
    assert sorted(heads) == sorted(
        f"/specs/api/{name}.json" for name in ("size", "etag", "both", "gone")
    )
    directory = told.parent
    sizes = {path.name: path.stat().st_size for path in directory.iterdir()}
    large = dict.fromkeys(["size.json", "etag.json", "both.json", "untimed.json"], len(SPEC))
    assert sizes == {"told.json": 4, **large}
    assert len(pointing.server.requests) == 4
    times = {name: (directory / name).stat().st_mtime for name in ("both.json", "untimed.json")}
    original = (pointing.server.root / "specs" / "api" / "both.json").stat().st_mtime
    assert times == {"both.json": 1_700_000_000, "untimed.json": int(original)}
    assert (directory / "both.json").read_bytes() == SPEC
    reasons = pointing.site.status()["rejected_entries"]
    assert reasons == {"pointer to an object that does not exist": 1}


def test_a_server_that_is_away_when_it_has_to_be_asked_is_a_clear_end(pointing: Pointing) -> None:
    pointing.put("spec.json", SPEC)
    entry: Any = pointing.entries["api-specs/spec.json"]
    del entry["size"]
    pointing.write()
    with pytest.raises(HarnessError, match=r"s3://specs/api/spec\.json"):
        pointing.site.mount(*OPTIONS, "--s3-endpoint", "http://127.0.0.1:9", "--deadline", "2")
    assert not pointing.site.is_mounted()


def test_the_tree_never_decides_what_is_contacted(pointing: Pointing, tmp_path: Path) -> None:
    pointing.put("spec.json", SPEC)
    pointing.server.put("other-bucket", "x.json", b"x")
    pointing.server.put("specs", "private/x.json", b"x")
    for number, url in enumerate(
        [
            "s3://other-bucket/x.json",
            "s3://specs/private/x.json",
            "s3://specs/api-2/x.json",
            "s3://specs/api/../private/x.json",
            "file:///etc/passwd",
            "http://169.254.169.254/latest",
        ]
    ):
        pointing.point(f"evil/{number}.json", url, b"x")
    pointing.mount()
    assert sorted(os.listdir(pointing.site.mountpoint)) == ["api-specs", "page.md"]
    assert sum(pointing.site.status()["rejected_entries"].values()) == 6
    assert pointing.server.requests == []


def test_a_restricted_object_does_not_exist_for_others(pointing: Pointing) -> None:
    marks = {"isPublic": False, "groups": ["admin"]}
    spec = pointing.put("spec.json", SPEC, **marks)
    pointing.mount()
    with pytest.raises(FileNotFoundError):
        spec.read_bytes()
    assert os.listdir(pointing.site.mountpoint) == ["page.md"]
    pointing.site.umount()
    pointing.site.mount(*OPTIONS, "--s3-endpoint", pointing.server.url, "--groups", "admin")
    assert spec.read_bytes() == SPEC


@pytest.mark.parametrize("name", ["grep", "cgrep", "rg"])
def test_a_search_never_leaves_an_object_out(pointing: Pointing, name: str) -> None:
    pointing.put("spec.json", SPEC)
    pointing.put("small.json", b'{"openapi": "3.0.0", "x": "needle in hay"}\n')
    pointing.mount()
    for pattern, wanted in (("line 59999", {"spec.json"}), ("needle in", {"small.json"})):
        for _ in range(2):  # the second time the object's text may be known
            done = subprocess.run(
                [name, *(["-r"] if name != "rg" else []), "-l", pattern, "."],
                cwd=pointing.site.mountpoint, env=pointing.site.env,
                capture_output=True, check=False,
            )  # fmt: skip
            assert {Path(line).name for line in done.stdout.decode().split()} == wanted


@pytest.mark.parametrize("name", ["grep", "cgrep", "rg"])
def test_large_objects_are_hidden_from_searches_on_demand(pointing: Pointing, name: str) -> None:
    """Whatever is searched for, at any size of page, and from nobody else."""
    pointing.put("spec.json", SPEC)
    pointing.put("small.json", b'{"openapi": "3.0.0", "x": "needle in hay, line 59999"}\n')
    limit = ("--pointer-grep-max", str(len(SPEC) - 1))
    pointing.mount(*limit, "--hide-large-from-grep")
    recursive = [] if name == "rg" else ["-r"]
    for words in (["line 59999"], ["-v", "no such text"], ["[0-9]"], ["."], ["-i", "OPENAPI"]):
        for place in (".", "api-specs"):
            done = subprocess.run(
                [name, *recursive, "-l", *words, place],
                cwd=pointing.site.mountpoint, env=pointing.site.env,
                capture_output=True, check=False,
            )  # fmt: skip
            found = {Path(line).name for line in done.stdout.decode().split()}
            assert found - {"page.md"} == {"small.json"}, (words, done)
    assert all("spec.json" not in request.path for request in pointing.server.requests)
    spec = pointing.site.mountpoint / "api-specs" / "spec.json"
    assert sorted(os.listdir(spec.parent)) == ["small.json", "spec.json"]
    done = subprocess.run(["grep", "-c", "line 59999", spec], capture_output=True, check=True)
    assert done.stdout == b"1\n"
    pointing.site.umount()
    pointing.site.mount(
        *OPTIONS, "--s3-endpoint", pointing.server.url,
        "--pointer-grep-max", str(len(SPEC)), "--hide-large-from-grep",
    )  # fmt: skip
    done = subprocess.run(
        [name, *recursive, "-l", "line 59999", "."],
        cwd=pointing.site.mountpoint, env=pointing.site.env, capture_output=True, check=True,
    )  # fmt: skip
    assert {Path(line).name for line in done.stdout.decode().split()} == {"small.json", "spec.json"}


def test_an_explanation_leaves_out_what_no_search_is_shown(pointing: Pointing) -> None:
    pointing.put("spec.json", SPEC)
    pointing.put("small.json", b'{"openapi": "3.0.0", "x": "line 59999"}\n')
    pointing.mount("--pointer-grep-max", "1000", "--hide-large-from-grep")
    for pattern, candidates in (("line 59999", {"small.json"}), (".", set())):
        done = subprocess.run(
            ["cgrep", "--explain", "-r", pattern, "."],
            cwd=pointing.site.mountpoint, env=pointing.site.env,
            capture_output=True, check=False,
        )  # fmt: skip
        told = done.stdout.decode()
        assert "outside Chroma over 1000 bytes (--hide-large-from-grep)" in told, done
        assert {
            line.rpartition("/")[2] for line in told.splitlines() if "json" in line
        } == candidates


def test_a_directory_serves_as_well_and_no_link_leads_out(site: Site, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "spec.json").write_bytes(SPEC)
    (specs / "link.json").symlink_to("/etc/passwd")
    found = (specs / "spec.json").stat()
    foreign = Foreign(site)
    etag = f"{found.st_size:x}-{found.st_mtime_ns:x}-{found.st_ino:x}"
    pointer = {"url": f"file://{specs}/spec.json", "etag": etag}
    link = {"url": f"file://{specs}/link.json", "etag": etag}
    foreign.put_tree(
        {
            "a": {**PUBLIC, "file": "a.json", "size": len(SPEC), "pointer": pointer},
            "b": {**PUBLIC, "file": "b.json", "size": len(SPEC), "pointer": link},
        }
    )
    foreign.close()
    site.mount("--pointers-allowed", f"file://{specs}")
    assert (site.mountpoint / "a.json").read_bytes() == SPEC


@pytest.mark.expects_log("an object cannot be read")
def test_a_link_out_of_the_directory_is_refused(site: Site, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "link.json").symlink_to("/etc/passwd")
    foreign = Foreign(site)
    link = {"url": f"file://{specs}/link.json", "etag": "e"}
    foreign.put_tree({"b": {**PUBLIC, "file": "b.json", "size": 100, "pointer": link}})
    foreign.close()
    site.mount("--pointers-allowed", f"file://{specs}")
    with pytest.raises(PermissionError):
        (site.mountpoint / "b.json").read_bytes()


def _ingest(pointing: Pointing, *options: str, expect: int = 0) -> None:
    pointing.site.ingest(
        pointing.site.base / "source", "--s3-endpoint", pointing.server.url, *options, expect=expect
    )


def test_an_ingest_registers_objects_and_a_second_one_their_new_versions(
    pointing: Pointing,
) -> None:
    site, server = pointing.site, pointing.server
    source = site.base / "source"
    source.mkdir()
    (source / "index.md").write_text("home\n")
    (source / "admin.md").write_text("---\ngroups: [admin]\n---\nsee closed.json\n")
    server.put("bucket-1", "specs/v1/api.json", SPEC)
    server.put("bucket-1", "specs/closed.json", SPEC)
    server.put("bucket-1", "specs/logo.png", b"\x89PNG\x00\xff")
    server.put("bucket-1", "private/x.json", SPEC)
    places = ("--pointers", "s3://bucket-1/specs")
    _ingest(pointing, *places)
    site.mount("--pointers-allowed", "s3://bucket-1/specs", "--s3-endpoint", server.url)
    found = {path.relative_to(site.mountpoint).as_posix() for path in site.mountpoint.rglob("*.*")}
    assert found == {"index.md", "logo.png", "api-specs/v1/api.json"}
    spec = site.mountpoint / "api-specs" / "v1" / "api.json"
    assert _out("jq", "-c", ".paths|keys", spec) == b'["/a","/b"]\n'
    assert (site.mountpoint / "logo.png").read_bytes() == b"\x89PNG\x00\xff"
    newer = SPEC.replace(b"3.1.0", b"3.1.1") + b"\n"
    server.put("bucket-1", "specs/v1/api.json", newer)
    _ingest(pointing, *places)  # it also has the mount look at the tree
    assert spec.stat().st_size == len(newer)
    assert spec.read_bytes() == newer


def test_what_an_ingest_uploads_is_read_through_a_mount(site: Site, tmp_path: Path) -> None:
    picture = random.Random(1).randbytes(3_000_000)
    place = tmp_path / "place"
    place.mkdir()
    source = write_site(
        tmp_path / "docs",
        {"index.mdx": b"# Home\n", "big.json": SPEC, "img/logo.png": picture},
    )
    site.ingest(source, "--upload-over", "1MB", "--upload-to", f"file://{place}")
    site.mount("--pointers-allowed", f"file://{place}")
    done = subprocess.run(["diff", "-r", source, site.mountpoint], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    site.umount()
    site.mount()
    assert os.listdir(site.mountpoint) == ["index.mdx"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--pointers", "s3://no-such-bucket"), 6),
        (("--pointers", "s3://bucket-2/none"), 3),
        (("--pointers", "http://169.254.169.254/latest"), 2),
        (("--pointers", "x.json=s3://bucket-2/../x"), 2),
        (("--s3-endpoint", "http://u:p@127.0.0.1"), 2),
    ],
)
def test_an_ingest_says_what_is_wrong_with_a_place(
    pointing: Pointing, options: tuple[str, ...], code: int
) -> None:
    source = pointing.site.base / "source"
    source.mkdir()
    (source / "index.md").write_text("home\n")
    pointing.server.put("bucket-2", "x.json", b"{}")
    _ingest(pointing, *options, expect=code)
