"""Who sees what: over every call, on mounts and on hubs, before and after the end of a session."""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import shlex
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest

from chromafuse import control
from tests.mount.harness import COMMANDS, Site, run, wait_until
from tests.support.tokens import SECRET, unsigned, write

pytestmark = pytest.mark.xdist_group("mount-sessions")

GENEROUS = 20.0

NOBODY = ["__nobody__"]
KINDS = {
    "kinds/authenticated.mdx": "public: false",
    "kinds/both.mdx": "public: true\ngroups: [admin]",
    "kinds/empty.mdx": "groups: []",
    "kinds/malformed.mdx": "groups: admin",
    "kinds/rich.mdx": "groups:\n  includes: ['*']\n  excludes: [billing]",
}
"""Marks that are more than a list of groups; who sees them stands in ``VIEWS``."""

PAGES = {
    "auth/oauth.mdx": (None, "how to sign in"),
    "auth/api-keys.mdx": (None, "how to make a key"),
    "api-reference/users.mdx": (None, "the users"),
    "internal/billing.mdx": (["admin", "billing"], "zanzibar internals"),
    "api-reference/payments.mdx": (["billing"], "quetzal payments"),
    "internal/deep/er/plan.mdx": (["admin"], "xylophone plan"),
    **{path: (NOBODY, f"okapi {Path(path).stem}") for path in KINDS},
}
VIEWS: Mapping[str, tuple[str, ...]] = {
    "": (),
    "admin": (
        "internal/billing.mdx",
        "internal/deep/er/plan.mdx",
        "kinds/authenticated.mdx",
        "kinds/both.mdx",
        "kinds/rich.mdx",
    ),
    "billing": (
        "internal/billing.mdx",
        "api-reference/payments.mdx",
        "kinds/authenticated.mdx",
    ),
    "admin,billing": (
        "internal/billing.mdx",
        "internal/deep/er/plan.mdx",
        "api-reference/payments.mdx",
        "kinds/authenticated.mdx",
        "kinds/both.mdx",
    ),
    "nobody-has-this": ("kinds/authenticated.mdx", "kinds/rich.mdx"),
}
PUBLIC = tuple(path for path, (groups, _) in PAGES.items() if groups is None)
MEMBERS = [groups for groups in VIEWS if groups]


def text_of(path: str) -> str:
    groups, words = PAGES[path]
    marks = "" if groups is None else f"groups: {json.dumps(groups)}\n"
    marks = f"{KINDS[path]}\n" if path in KINDS else marks
    return f"---\ntitle: {words}\n{marks}---\n\n{words}\n"


def options(groups: str) -> list[str]:
    return ["--groups", groups] if groups else []


def visible(groups: str) -> set[str]:
    return {*PUBLIC, *VIEWS[groups]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    source = tmp_path / "source"
    for path in PAGES:
        file = source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text_of(path))
    site = Site(tmp_path / "site")
    site.ingest(source)
    try:
        yield site
    finally:
        site.close()


def walked(root: Path) -> tuple[set[str], set[str]]:
    """The files and directories that listing finds."""
    files, directories = set(), set()
    for place, below, names in os.walk(root, onerror=_raise):
        inside = Path(place).relative_to(root)
        files |= {str(inside / name) for name in names}
        directories |= {str(inside / name) for name in below}
    return files, directories


def _raise(error: OSError) -> None:
    raise error


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or the error it ends with."""
    try:
        return call()
    except OSError as error:
        return error.errno


def calls(path: Path) -> dict[str, object]:
    """What every call that takes a path answers."""
    attempts: dict[str, Callable[[], object]] = {
        "stat": lambda: os.stat(path),
        "lstat": lambda: os.lstat(path),
        "open": lambda: os.close(os.open(path, os.O_RDONLY)),
        "open for writing": lambda: os.close(os.open(path, os.O_WRONLY)),
        "opendir": lambda: os.listdir(path),
        "access": lambda: os.access(path, os.R_OK),
        "getxattr": lambda: os.getxattr(path, "user.chromafuse.slug"),
        "listxattr": lambda: os.listxattr(path),
        "chdir": lambda: os.chdir(path),
        "statvfs": lambda: os.statvfs(path),
        "realpath": lambda: os.path.realpath(path, strict=True),
        "unlink": lambda: os.unlink(path),
        "mkdir": lambda: os.mkdir(path),
        "rename": lambda: os.rename(path, path.with_name("other")),
        "link": lambda: os.link(path, path.with_name("other")),
        "symlink": lambda: os.symlink("x", path),
        "truncate": lambda: os.truncate(path, 0),
        "chmod": lambda: os.chmod(path, 0o700),
        "utime": lambda: os.utime(path),
        "parent of it": lambda: os.stat(path / ".."),
        "below it": lambda: os.stat(path / "x"),
    }
    return {name: outcome(attempt) for name, attempt in attempts.items()}


def check_view(root: Path, groups: str) -> None:
    """Check that ``root`` shows what members of ``groups`` may see, and tells of nothing else."""
    expected = visible(groups)
    files, directories = walked(root)
    assert files == expected
    above = {str(parent) for path in expected for parent in Path(path).parents} - {"."}
    assert directories == above
    for path in PAGES:
        if path in expected:
            assert (root / path).read_text() == text_of(path)
            slug = os.getxattr(root / path, "user.chromafuse.slug").decode()
            assert slug == path.removesuffix(".mdx")
            continue
        hidden = calls(root / path)
        absent = calls((root / path).with_name("no-such-page.mdx"))
        assert hidden == absent, path
        assert hidden["open"] == errno.ENOENT
    for place in {str(parent) for path in PAGES for parent in Path(path).parents} - above - {"."}:
        assert calls(root / place) == calls(root / absent_twin(place, above)), place


def absent_twin(place: str, visible: set[str]) -> Path:
    """``place`` with another name where it leaves what is visible."""
    whole = (*reversed(Path(place).parents), Path(place))
    leaves = next(at for at in whole if str(at) not in visible | {"."})
    return leaves.with_name("no-such") / Path(place).relative_to(leaves)


def secrets_in(text: str, groups: str) -> list[str]:
    """What ``text`` says of pages that members of ``groups`` may not see."""
    words = [word for path, (_, words) in PAGES.items() if path not in visible(groups)
             for word in (Path(path).name, words)]  # fmt: skip
    return [word for word in words if word in text]


@pytest.mark.parametrize("groups", VIEWS)
def test_a_mount_shows_a_view_and_tells_of_nothing_else(site: Site, groups: str) -> None:
    site.mount(*options(groups))
    check_view(site.mountpoint, groups)
    found = os.statvfs(site.mountpoint)
    files, directories = walked(site.mountpoint)
    assert found.f_files == len(files) + len(directories) + 1
    assert found.f_blocks == -(-sum(len(text_of(path)) for path in files) // found.f_frsize)
    told = site.status()
    assert told["pages"] == len(files)
    assert told["bytes"] == sum(len(text_of(path)) for path in files)
    human = site.command("status", site.mountpoint).expect(0).out.decode()
    assert not secrets_in(json.dumps(told) + human, groups)
    assert not secrets_in(site.log.read_text(), groups)


@pytest.mark.parametrize("order", [MEMBERS, MEMBERS[::-1]], ids=["forwards", "backwards"])
@pytest.mark.parametrize("first", ["", None], ids=["anonymous first", "anonymous last"])
def test_sessions_of_a_hub_show_their_views_in_any_order(
    site: Site, order: list[str], first: str | None
) -> None:
    site.hub()
    names = ["", *order] if first == "" else [*order, ""]
    opened = [(groups, site.open_session(*options(groups))) for groups in names]
    for groups, root in opened:
        check_view(root, groups)
    for groups, root in reversed(opened):
        check_view(root, groups)


def test_what_a_session_may_not_see_takes_as_many_requests_as_what_is_not_there(
    site: Site,
) -> None:
    site.hub()
    root = site.open_session()
    list(root.iterdir())

    def lookups(path: str) -> int:
        before = site.status()["requests"].get("lookup", 0)
        for _ in range(3):
            with pytest.raises(FileNotFoundError):
                os.stat(root / path)
        return int(site.status()["requests"].get("lookup", 0) - before)

    assert lookups("auth/no-such.mdx") == lookups("api-reference/payments.mdx")
    assert lookups("no-such") == lookups("internal")
    # And what is known to be absent is not asked for again.
    assert lookups("internal") == 0


def test_the_root_of_a_hub_tells_nothing(site: Site) -> None:
    site.hub()
    root = site.open_session("--groups", "admin")
    with pytest.raises(PermissionError):
        os.listdir(site.mountpoint)
    found = os.statvfs(site.mountpoint)
    assert (found.f_files, found.f_blocks) == (0, 0)
    assert os.stat(site.mountpoint).st_nlink == 1
    for name in ("x", root.name[:-1], root.name + "0", root.name.upper(), "1", "auth", "é" * 40):
        assert not (site.mountpoint / name).exists()
    assert os.stat(root / "..").st_ino == os.stat(site.mountpoint).st_ino


def test_directories_are_a_session_s_own_and_pages_are_everybody_s(site: Site) -> None:
    site.hub()
    roots = [site.open_session(*options(groups)) for groups in ("", "", "admin", "billing")]
    for path in ("", "auth", "api-reference"):
        numbers = {os.stat(root / path).st_ino for root in roots}
        assert len(numbers) == len(roots), path
    for path in PUBLIC:
        assert len({os.stat(root / path).st_ino for root in roots}) == 1
    for root in roots:
        for place, directories, files in os.walk(root):
            for name in (*directories, *files):
                listed = {e.name: e.inode() for e in os.scandir(place)}
                assert listed[name] == os.stat(Path(place) / name).st_ino


LIBC = ctypes.CDLL(None, use_errno=True)
HANDLE = struct.Struct("=IiIII")
"""A ``struct file_handle`` of FUSE: bytes and type, the inode's halves, its generation."""


def handle_of(path: Path) -> tuple[int, int]:
    """The type of a file's handle, and its generation."""
    found = ctypes.create_string_buffer(HANDLE.pack(12, 0, 0, 0, 0))
    done = LIBC.name_to_handle_at(-100, os.fsencode(path), found, ctypes.byref(ctypes.c_int()), 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    _, kind, *_, generation = HANDLE.unpack(found.raw[: HANDLE.size])
    return kind, generation


def opens_by_handle(mount: int, inode: int, kind: int, generation: int) -> bool:
    """Whether a process with the right to do so gets at an inode by its number."""
    given = HANDLE.pack(12, kind, inode >> 32, inode & 0xFFFFFFFF, generation)
    descriptor = LIBC.open_by_handle_at(mount, ctypes.create_string_buffer(given), os.O_RDONLY)
    if descriptor >= 0:
        os.close(descriptor)
    return bool(descriptor >= 0)


def test_file_handles_of_another_view_cannot_be_worked_out(site: Site) -> None:
    site.hub("--warm", "off")
    own, other = site.open_session(), site.open_session("--groups", "admin")
    walked(own)
    walked(other)
    inside = os.open(own, os.O_RDONLY)
    try:
        kind, root_generation = handle_of(own)
        _, page_generation = handle_of(own / "auth/oauth.mdx")
        may = os.geteuid() == 0
        assert opens_by_handle(inside, own.stat().st_ino, kind, root_generation) == may
        for name in ("", "auth", "internal", "internal/billing.mdx"):
            inode = (other / name).stat().st_ino
            for generation in (0, root_generation, page_generation):
                assert not opens_by_handle(inside, inode, kind, generation), name
    finally:
        os.close(inside)


def test_a_page_that_one_session_has_read_is_read_by_the_next_from_the_kernel(site: Site) -> None:
    site.hub("--warm", "off")
    first, second = site.open_session("--groups", "admin"), site.open_session()
    (first / PUBLIC[0]).read_text()
    before = site.status()
    assert (second / PUBLIC[0]).read_text() == text_of(PUBLIC[0])
    after = site.status()
    assert after["requests"].get("read", 0) == before["requests"].get("read", 0)
    assert after["reads"]["requests"] == before["reads"]["requests"]


def test_a_page_is_fetched_ahead_only_for_those_who_may_see_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(120):
        marks = "groups: [admin]\n" if number % 2 else ""
        (source / f"p{number:03}.mdx").write_text(f"---\ntitle: x\n{marks}---\n{number}\n")
    site = Site(tmp_path / "site")
    try:
        site.ingest(source)
        site.hub("--warm", "off")
        root = site.open_session()
        subprocess.run(["grep", "-r", "x", root], check=True, capture_output=True)
        assert site.status()["reads"]["pages_fetched"] == 60
        admin = site.open_session("--groups", "admin")
        subprocess.run(["grep", "-r", "x", admin], check=True, capture_output=True)
        assert site.status()["reads"]["pages_fetched"] == 120
    finally:
        site.close()


# -- the end of a session


def gone(path: Path) -> bool:
    return outcome(lambda: os.stat(path)) in (errno.ENOENT, errno.ESTALE)


def all_names(root: Path) -> list[Path]:
    files, directories = walked(root)
    return [root, *(root / path for path in sorted(files | directories))]


def test_closing_takes_every_name_away_that_the_kernel_knows(site: Site) -> None:
    site.hub()
    root, other = site.open_session("--groups", "admin"), site.open_session()
    names = all_names(root)
    for name in names:
        assert name.exists()
    site.command("session", "close", root).expect(0)
    for name in names:
        assert gone(name), name
    check_view(other, "")


def test_a_process_inside_a_closed_session_finds_nothing_there(site: Site) -> None:
    site.hub()
    root = site.open_session("--groups", "admin")
    script = (
        "cd internal; ls -R; cat billing.mdx; echo ready; read go;"
        " cat billing.mdx; cat deep/er/plan.mdx; ls; ls deep; ls ..;"
        " cat ../auth/oauth.mdx; echo end"
    )
    with subprocess.Popen(
        ["sh", "-c", script], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        before = "".join(iter(process.stdout.readline, "ready\n"))
        assert "zanzibar" in before
        site.command("session", "close", root.name).expect(0)
        process.stdin.write("go\n")
        process.stdin.flush()
        after = process.stdout.read()
    assert "zanzibar" not in after
    assert "xylophone" not in after
    assert "how to" not in after
    assert "mdx\n" not in after.replace("billing.mdx", "").replace("plan.mdx", "")
    assert after.endswith("end\n")


def test_what_is_held_open_stays_readable_and_only_that(site: Site) -> None:
    site.hub("--warm", "off")
    root = site.open_session("--groups", "admin")
    with open(root / "internal/billing.mdx") as held:
        directory = os.open(root / "internal", os.O_RDONLY)
        site.command("session", "close", root).expect(0)
        assert held.read() == text_of("internal/billing.mdx")
        assert outcome(lambda: os.listdir(directory)) == errno.ESTALE
        assert outcome(lambda: os.open("billing.mdx", os.O_RDONLY, dir_fd=directory)) in (
            errno.ESTALE,
            errno.ENOENT,
        )
        os.close(directory)


def test_a_session_ends_with_its_time(site: Site) -> None:
    site.hub()
    root = site.open_session("--groups", "admin", "--ttl", "1")
    names = all_names(root)
    assert wait_until(lambda: gone(root), GENEROUS)
    assert all(map(gone, names))
    assert site.status()["sessions"] == 0


def test_a_session_ends_with_its_process(site: Site) -> None:
    site.hub()
    with subprocess.Popen(["sleep", "600"]) as process:
        root = site.open_session("--pid", str(process.pid))
        assert (root / PUBLIC[0]).exists()
        process.kill()
        process.wait()
    assert wait_until(lambda: gone(root / PUBLIC[0]), GENEROUS)
    site.command("session", "open", "--hub", site.mountpoint, "--pid", str(process.pid)).expect(1)


def token(seconds: float, groups: list[str]) -> str:
    return jwt.encode({"exp": time.time() + seconds, "groups": groups}, SECRET, "HS256")


@pytest.fixture
def keyed(site: Site, tmp_path: Path) -> Site:
    write(tmp_path / "key", SECRET)
    return site


def test_a_token_s_end_leaves_a_session_what_everybody_sees(keyed: Site, tmp_path: Path) -> None:
    keyed.hub("--jwt-key", str(tmp_path / "key"))
    given = write(tmp_path / "token", token(4, ["admin"]))
    root = keyed.open_session("--token-file", str(given))
    names = [name for name in all_names(root) if "internal" in str(name.relative_to(root))]
    assert names
    check_view(root, "admin")
    assert wait_until(lambda: gone(root / "internal/billing.mdx"), GENEROUS)
    assert all(map(gone, names))
    check_view(root, "")


def test_a_token_s_end_leaves_a_mount_what_everybody_sees(keyed: Site, tmp_path: Path) -> None:
    given = write(tmp_path / "token", token(6, ["admin"]))
    keyed.mount("--jwt-key", str(tmp_path / "key"), "--token-file", str(given))
    names = [name for name in all_names(keyed.mountpoint) if "internal" in name.parts]
    check_view(keyed.mountpoint, "admin")
    assert keyed.status()["groups"] == ["admin"]
    assert wait_until(lambda: gone(keyed.mountpoint / "internal/billing.mdx"), GENEROUS)
    assert all(map(gone, names))
    check_view(keyed.mountpoint, "")
    assert keyed.status()["groups"] is None
    assert not secrets_in(json.dumps(keyed.status()), "")


# -- tokens that are refused


def bad_tokens() -> dict[str, str]:
    now = time.time()
    good = token(600, ["admin"])
    head, body, signature = good.split(".")
    return {
        "nonsense": "nonsense",
        "expired": token(-10, ["admin"]),
        "not yet valid": jwt.encode({"exp": now + 99, "nbf": now + 50}, SECRET, "HS256"),
        "wrong audience": jwt.encode({"exp": now + 99, "aud": "others"}, SECRET, "HS256"),
        "unsigned": unsigned({"alg": "none"}, {"exp": now + 99, "groups": ["admin"]}),
        "another key": jwt.encode({"exp": now + 99}, b"x" * 40, "HS256"),
        "changed": f"{head}.{body[:-4]}AAAA.{signature}",
        "oversized": good + "A" * 20_000,
    }


@pytest.mark.parametrize("kind", bad_tokens())
@pytest.mark.parametrize("way", ["file", "descriptor", "variable"])
def test_a_bad_token_mounts_nothing_and_is_told_nowhere(
    keyed: Site, tmp_path: Path, kind: str, way: str
) -> None:
    bad = bad_tokens()[kind]
    given = write(tmp_path / "token", bad)
    words = ["--jwt-key", str(tmp_path / "key")]
    if way == "file":
        words += ["--token-file", str(given)]
    elif way == "descriptor":
        words += ["--token-fd", "0"]
    elif kind == "oversized":
        keyed.env["CHROMAFUSE_TOKEN"] = bad[:100_000]
    else:
        keyed.env["CHROMAFUSE_TOKEN"] = bad
    command = ["mount", str(keyed.mountpoint), "-c", "site", "--chroma", keyed.chroma]
    done = subprocess.run(
        ["chromafuse", *command, "--log-file", str(keyed.log), *words],
        env=keyed.env, input=bad.encode(), capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    keyed.env.pop("CHROMAFUSE_TOKEN", None)
    assert done.returncode == 11, done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not keyed.is_mounted()
    assert not keyed.daemons()
    texts = done.stderr + done.stdout + (keyed.log.read_bytes() if keyed.log.exists() else b"")
    assert bad[:30].encode() not in texts


def test_a_good_token_is_told_nowhere(keyed: Site, tmp_path: Path) -> None:
    good = token(600, ["admin"])
    keyed.env["CHROMAFUSE_TOKEN"] = good
    keyed.mount("--jwt-key", str(tmp_path / "key"), "--log-level", "debug")
    del keyed.env["CHROMAFUSE_TOKEN"]
    check_view(keyed.mountpoint, "admin")
    parts = [part.encode() for part in good.split(".")]
    (daemon,) = keyed.daemons()
    for name in ("environ", "cmdline"):
        seen = Path(f"/proc/{daemon}/{name}").read_bytes()
        assert not any(part in seen for part in parts), name
    told = json.dumps(keyed.status()).encode() + keyed.log.read_bytes()
    assert not any(part in told for part in parts)


# -- the socket


def test_sessions_are_opened_many_times_over_one_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.hub()
    monkeypatch.setenv("XDG_RUNTIME_DIR", site.env["XDG_RUNTIME_DIR"])
    with control.Client(str(site.mountpoint)) as client:
        opened = [client.ask("open", groups=["admin"]) for _ in range(200)]
        assert len({str(one["session"]) for one in opened}) == 200
        for one in opened:
            assert (Path(str(one["path"])) / "internal/billing.mdx").exists()
        found = client.ask("list")["sessions"]
        assert [one["session"] for one in found] == [one["session"] for one in opened]  # type: ignore[attr-defined]
        for one in opened:
            client.ask("close", session=one["session"])
        assert client.ask("list") == {"sessions": []}


@pytest.mark.parametrize(("soft", "hard", "watched"), [(300, 4_000, 400), (300, 300, 150)])
def test_sessions_that_watch_processes_leave_descriptors_for_the_rest(
    site: Site, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, watched: int
) -> None:
    command = shlex.join(
        [str(COMMANDS / "chromafuse"), "hub", str(site.mountpoint), "--collection", site.collection,
         "--chroma", site.chroma, "--log-file", str(site.log)]
    )  # fmt: skip
    limited = f"ulimit -Sn {soft} && ulimit -Hn {hard} && exec {command}"
    run(["bash", "-c", limited], env=site.env, cwd=site.base).expect(0)
    monkeypatch.setenv("XDG_RUNTIME_DIR", site.env["XDG_RUNTIME_DIR"])
    with control.Client(str(site.mountpoint)) as client:
        answers = [client.ask("open", pid=os.getpid()) for _ in range(400)]
    assert [answer.get("code") for answer in answers] == [None] * watched + [1] * (400 - watched)
    assert all("watches 150 processes" in str(answer["error"]) for answer in answers[watched:])
    check_view(site.open_session("--groups", "admin"), "admin")


REFUSED: Mapping[str, Mapping[str, object]] = {
    "unknown field": {"command": "open", "group": ["admin"]},
    "groups not a list": {"command": "open", "groups": "admin"},
    "groups of numbers": {"command": "open", "groups": [1]},
    "groups with an empty name": {"command": "open", "groups": [""]},
    "token not text": {"command": "open", "token": ["x"]},
    "no key for tokens": {"command": "open", "token": "x.y.z"},
    "token and groups": {"command": "open", "token": "x", "groups": []},
    "ttl of text": {"command": "open", "ttl": "1"},
    "ttl negative": {"command": "open", "ttl": -1},
    "ttl zero": {"command": "open", "ttl": 0},
    "ttl true": {"command": "open", "ttl": True},
    "ttl NaN": {"command": "open", "ttl": float("nan")},
    "ttl infinite": {"command": "open", "ttl": float("inf")},
    "pid negative": {"command": "open", "pid": -1},
    "pid of text": {"command": "open", "pid": "1"},
    "pid of nobody": {"command": "open", "pid": 2**22 + 5},
    "pid huge": {"command": "open", "pid": 2**70},
    "bound not text": {"command": "open", "bound": 3},
    "no such session": {"command": "close", "session": "x"},
    "session not text": {"command": "close", "session": ["x"]},
    "session missing": {"command": "close"},
    "unknown command": {"command": "drop"},
    "command of a list": {"command": ["open"]},
}


def test_what_the_socket_refuses_opens_nothing_and_the_hub_lives(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.hub()
    monkeypatch.setenv("XDG_RUNTIME_DIR", site.env["XDG_RUNTIME_DIR"])
    path = str(control.socket_path(str(site.mountpoint)))
    lines = [json.dumps(request).encode() for request in REFUSED.values()]
    lines += [b"", b"{", b"[]", b"null", b"1", b'"open"', b"[" * 100_000, b"\xff\xfe", b"\0" * 50]
    for line in lines:
        assert "error" in _asked(path, line), line[:60]
    assert _asked(path, b'{"command": "list"}') == {"sessions": []}
    assert not secrets_in(site.log.read_text(), "")


def _asked(path: str, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(line + b"\n")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile().readline()
    found = json.loads(answer)
    assert isinstance(found, dict)
    return found


def test_readers_walk_while_sessions_come_and_go(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.hub()
    monkeypatch.setenv("XDG_RUNTIME_DIR", site.env["XDG_RUNTIME_DIR"])
    steady = {groups: site.open_session(*options(groups)) for groups in VIEWS}
    stop, wrong = threading.Event(), []

    def read() -> None:
        for groups in itertools.cycle(VIEWS):
            if stop.is_set():
                return
            found = outcome(lambda groups=groups: walked(steady[groups])[0])  # type: ignore[misc]
            if found != visible(groups):
                wrong.append((groups, found))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    with control.Client(str(site.mountpoint)) as client:
        for _ in range(60):
            one = client.ask("open", groups=["admin"])
            root = Path(str(one["path"]))
            assert walked(root)[0] == visible("admin")
            client.ask("close", session=one["session"])
            assert gone(root / "internal/billing.mdx")
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
