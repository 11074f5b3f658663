"""``hub`` and ``session`` on the command line: usage, refusals, odd arguments, secrets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.mount.harness import COMMANDS, Finished, Site, mount_line, run, wait_until
from tests.support.tokens import claims, pair, sign, write

pytestmark = pytest.mark.xdist_group("session-cli")

ID = re.compile(r"[0-9a-f]{40}")
LISTED = "correct-horse-battery-staple"
FIELDS = {
    "session", "path", "groups", "pages", "opened", "ends", "grant_expires", "bound",
}  # fmt: skip


def token(*groups: str, **changes: object) -> str:
    given = claims(exp=time.time() + 600, groups=list(groups), **changes)
    return sign(pair("EdDSA").private, "EdDSA", given)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running hub that accepts JWTs and one listed token."""
    base = tmp_path_factory.mktemp("session-cli")
    source = base / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    (source / "admin.mdx").write_text("---\ngroups: [admin]\n---\n# Admin\n")
    site = Site(base)
    write(base / "key.pem", pair("EdDSA").pem)
    write(base / "tokens.toml", f'[[token]]\ntoken = "{LISTED}"\ngroups = ["admin"]\n')
    try:
        site.ingest(source)
        start_hub(site, "--jwt-key", "key.pem", "--tokens-file", "tokens.toml").expect(0)
        yield site
    finally:
        site.close()


def start_hub(
    site: Site, *options: str, place: Path | None = None, env: Mapping[str, str] | None = None
) -> Finished:
    at = ("--collection", site.collection, "--chroma", site.chroma, "--log-file", str(site.log))
    return chromafuse(site, "hub", str(place or site.mountpoint), *at, *options, **env or {})


def chromafuse(site: Site, *words: str | bytes, **env: str) -> Finished:
    command = [str(COMMANDS / "chromafuse"), *words]
    done = run(command, env=site.env | env, cwd=site.base)
    assert b"Traceback" not in done.err, done
    return done


def session(site: Site, *words: str | bytes, **env: str) -> Finished:
    """Run ``session`` for the site's hub, unless the words name another one."""
    if words and "--hub" not in words:
        words = (*words[:1], "--hub", str(site.mountpoint), *words[1:])
    return chromafuse(site, "session", *words, **env)


APART = """
grep -F ' - fuse.chromafuse ' /proc/self/mountinfo | cut -d ' ' -f 5 | grep -v "^$0/" |
  xargs -r -d '\\n' umount --lazy
exec "$@"
"""


def session_apart(site: Site, *words: str) -> Finished:
    """Run ``session`` where there are no hubs but the site's: root finds those of everybody."""
    command = [str(COMMANDS / "chromafuse"), "session", *words]
    if os.geteuid() == 0:
        command = ["unshare", "--mount", "sh", "-c", APART, str(site.base), *command]
    return run(command, env=site.env, cwd=site.base)


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can bind")


def opened(site: Site, *words: str, **env: str) -> dict[str, object]:
    told = json.loads(session(site, "open", "--json", *words, **env).expect(0).out)
    assert isinstance(told, dict)
    return told


def listed(site: Site) -> list[dict[str, object]]:
    told = json.loads(session(site, "list", "--json").expect(0).out)
    assert isinstance(told, list)
    return told


def refusal(done: Finished, code: int) -> str:
    """The one line that a command which did nothing has to say."""
    done.expect(code)
    assert done.out == b"", done
    text = done.err.decode()
    assert re.fullmatch(r"chromafuse: [^\n\x00-\x1f]+\n", text), done
    return text


@pytest.fixture
def directory(hub: Site, tmp_path: Path) -> Iterator[Path]:
    """An empty directory for a session to be bound to; nothing stays bound there."""
    place = tmp_path / "target"
    place.mkdir()
    yield place
    for one in listed(hub):
        if one["bound"] == str(place):
            session(hub, "close", str(one["session"])).expect(0)
    left = mount_line(place)
    if left is not None:
        run(["umount", "--lazy", str(place)], env=hub.env, cwd=hub.base).expect(0)
    assert left is None


# -- help and usage


@pytest.mark.parametrize(
    "command", [("hub",), ("session", "open"), ("session", "list"), ("session", "close")]
)
def test_help_has_examples_that_name_the_command(hub: Site, command: tuple[str, ...]) -> None:
    text = chromafuse(hub, *command, "--help").expect(0).out.decode()
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0]
    assert f"chromafuse {' '.join(command)}" in examples
    assert chromafuse(hub, *command, "-h").expect(0).out.decode() == text


def test_the_group_tells_its_commands(hub: Site) -> None:
    text = chromafuse(hub, "session", "--help").expect(0).out.decode()
    assert "Commands:\n  open " in text
    session(hub).expect(2)


@pytest.mark.parametrize(
    "words",
    [
        ("nope",), ("open", "extra"), ("open", "--nope"), ("list", "extra"), ("close",),
        ("close", "a", "b"), ("open", "--hub", ""), ("open", "--bind", ""), ("list", "--hub", ""),
        ("open", "--token-file", ""), ("open", "--token-fd", "x"), ("open", "--token", "x"),
    ],
)  # fmt: skip
def test_wrong_usage(hub: Site, words: tuple[str, ...]) -> None:
    before = listed(hub)
    done = session(hub, *words).expect(2)
    assert b"Usage: chromafuse session" in done.err
    assert done.out == b""
    assert listed(hub) == before


@pytest.mark.parametrize("option", ["--ttl", "--pid"])
@pytest.mark.parametrize(
    "value", ["0", "-1", "nan", "inf", "-inf", "text", "", "1e400", "1e308", f"1{'0' * 400}"]
)
def test_times_and_processes_that_are_none(hub: Site, option: str, value: str) -> None:
    before = listed(hub)
    done = session(hub, "open", option, value).expect(2)
    assert done.out == b""
    assert option in done.err.decode() or option.lstrip("-") in refusal(done, 2)
    assert listed(hub) == before


@pytest.mark.parametrize("pid", [str(2**31), "99999999999999999999"])
def test_a_process_that_cannot_be(hub: Site, pid: str) -> None:
    assert "pid is not a process id" in refusal(session(hub, "open", "--pid", pid), 2)


def test_a_process_that_has_ended(hub: Site) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    text = refusal(session(hub, "open", "--pid", str(process.pid)), 1)
    assert f"process {process.pid} cannot be watched: No such process" in text


def test_a_session_that_is_closed_watches_no_process_any_more(hub: Site) -> None:
    (daemon,) = hub.daemons()

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{daemon}/fd"))

    before = descriptors()
    told = [opened(hub, "--pid", str(os.getpid())) for _ in range(2)]
    assert descriptors() >= before + 2
    for one in told:
        session(hub, "close", str(one["session"])).expect(0)
    assert wait_until(lambda: descriptors() == before, 10)


@pytest.mark.parametrize("groups", ["", ",", "admin,", "a,,b", " "])
def test_empty_names_of_groups(hub: Site, groups: str) -> None:
    assert "empty name" in refusal(session(hub, "open", "--groups", groups), 2)


# -- which hub


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Site]:
    """A site of its own, stored and not mounted."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.mdx").write_text("# Home\n")
    site = Site(tmp_path)
    site.ingest(source)
    yield site
    site.close()


@pytest.mark.parametrize("words", [("open",), ("list",), ("close", "x")])
def test_no_hub(other: Site, words: tuple[str, ...]) -> None:
    assert "no hub runs for this user" in refusal(session_apart(other, *words), 12)
    for place in ("/", "work/docs", "nowhere"):
        assert f"no hub runs at {place}" in refusal(session(other, *words, "--hub", place), 12)


def test_an_ordinary_mount_is_no_hub(other: Site) -> None:
    other.mount()
    for words in (("open",), ("list",), ("close", "x")):
        assert "no hub runs for this user" in refusal(session_apart(other, *words), 12)
        text = refusal(session(other, *words, "--hub", "work/docs"), 12)
        assert "that mount is no hub" in text


def test_several_hubs_are_named(other: Site) -> None:
    second = other.work / "second"
    second.mkdir()
    start_hub(other).expect(0)
    start_hub(other, place=second).expect(0)
    try:
        text = refusal(session_apart(other, "open"), 2)
        assert f"several hubs run: {other.mountpoint}, {second} " in text
        assert "--hub" in text
        told = opened(other, "--hub", "work/second")
        assert told["path"] == f"{second}/{told['session']}"
        assert session(other, "list", "--hub", "work/docs").expect(0).out == b""
        wrong = session(other, "close", str(told["session"]), "--hub", "work/docs")
        assert "there is no such session" in refusal(wrong, 12)
        # A session that is named is found whatever its hub.
        session_apart(other, "close", str(told["session"])).expect(0)
        assert not os.path.exists(str(told["path"]))
    finally:
        chromafuse(other, "umount", str(second)).expect(0)


def test_a_dead_hub(other: Site) -> None:
    start_hub(other).expect(0)
    path = str(opened(other)["path"])
    other.kill()
    assert wait_until(lambda: not other.daemons(), 10)
    for words in (("open",), ("list",), ("close", path)):
        assert "no hub runs for this user" in refusal(session_apart(other, *words), 12)
        text = refusal(session(other, *words, "--hub", "work/docs"), 12)
        assert f"the hub at {other.mountpoint} does not answer: Connection refused" in text
    start_hub(other).expect(0)
    assert listed(other) == []
    assert not os.path.exists(path)


def test_a_hub_that_hangs(other: Site) -> None:
    start_hub(other).expect(0)
    daemons = other.daemons()
    for pid in daemons:
        os.kill(pid, signal.SIGSTOP)
    try:
        text = refusal(session(other, "list", "--hub", "work/docs"), 12)
        assert "does not answer: timed out" in text
    finally:
        for pid in daemons:
            os.kill(pid, signal.SIGCONT)
    assert listed(other) == []


@pytest.mark.parametrize(
    "env",
    [
        {"CHROMAFUSE_GROUPS": "admin"}, {"CHROMAFUSE_TOKEN": LISTED},
        {"CHROMAFUSE_TOKEN_FILE": "token"}, {"CHROMAFUSE_TOKEN_FD": "0"},
    ],
)  # fmt: skip
def test_a_hub_is_nobody(other: Site, env: dict[str, str]) -> None:
    assert "a hub is nobody" in refusal(start_hub(other, env=env), 2)
    assert not other.is_mounted()


def test_a_hub_is_nobody_by_its_configuration_either(other: Site) -> None:
    write(other.base / "own.toml", 'groups = ["admin"]\n')
    assert "a hub is nobody" in refusal(start_hub(other, "--config", "own.toml"), 2)
    for words in (("--groups", "admin"), ("--token-file", "x"), ("--token-fd", "0")):
        assert b"No such option" in start_hub(other, *words).expect(2).err
    assert not other.is_mounted()


def test_a_hub_refuses_what_a_mount_refuses(other: Site) -> None:
    start_hub(other).expect(0)
    assert "is already mounted" in refusal(start_hub(other), 5)
    assert "does not exist" in refusal(start_hub(other, place=other.base / "nowhere"), 5)
    assert "--jwt-key" in refusal(start_hub(other, "--jwt-key", "nowhere"), 2)
    at = ("--chroma", other.chroma)
    assert "--collection is missing" in refusal(chromafuse(other, "hub", "x", *at), 2)


# -- sessions


def test_the_only_hub_need_not_be_named(hub: Site) -> None:
    path = session_apart(hub, "open").expect(0).out.decode().rstrip("\n")
    assert os.path.dirname(path) == str(hub.mountpoint)
    assert path in {one["path"] for one in json.loads(session_apart(hub, "list", "--json").out)}
    session_apart(hub, "close", path).expect(0)


def test_a_path_is_printed_and_an_object_with_json(hub: Site) -> None:
    path = session(hub, "open", "--groups", "admin").expect(0).out.decode()
    assert re.fullmatch(rf"{re.escape(str(hub.mountpoint))}/{ID.pattern}\n", path)
    assert sorted(os.listdir(path.rstrip("\n"))) == ["admin.mdx", "index.mdx"]
    told = opened(hub, "--groups", "admin", "--ttl", "5000.5")
    assert set(told) == FIELDS
    assert told["path"] == f"{hub.mountpoint}/{told['session']}"
    assert (told["groups"], told["pages"], told["bound"]) == (["admin"], 2, None)
    assert isinstance(told["ends"], float)
    assert isinstance(told["opened"], float)
    assert told["ends"] == pytest.approx(told["opened"] + 5000.5)
    assert all(set(one) == FIELDS for one in listed(hub))
    assert listed(hub)[-1] == told


def test_the_list_for_people_has_a_line_for_each(hub: Site) -> None:
    first = opened(hub, "--groups", "a\x1b[31m\nforged,b", "--ttl", "5000")
    second = opened(hub, CHROMAFUSE_TOKEN=token("admin"))
    third = opened(hub)
    lines = session(hub, "list").expect(0).out.decode().splitlines()[-3:]
    assert [line.split()[0] for line in lines] == [one["session"] for one in (first, second, third)]
    assert "\x1b" not in "".join(lines)
    assert re.search(r"  groups .*forged,b  1 pages  open for \d+ s  ends in \d+ s$", lines[0])
    assert re.search(r"  groups admin  2 pages  open for \d+ s  token ends in \d+ s$", lines[1])
    assert re.search(r"  anonymous  1 pages  open for \d+ s$", lines[2])


def test_a_session_is_closed_by_id_by_path_and_once(hub: Site) -> None:
    for how in ("session", "path"):
        told = opened(hub)
        assert session(hub, "close", str(told[how])).expect(0).out == b""
        assert not os.path.exists(str(told["path"]))
        assert "there is no such session" in refusal(session(hub, "close", str(told[how])), 12)
    told = opened(hub)
    session(hub, "close", f"work/docs/{told['session']}").expect(0)


@pytest.mark.parametrize(
    "name",
    [
        b"", b".", b"..", b"/", b"../../etc", b"work/docs", b"0" * 40, b"a" * 100_000, b"a\nb",
        b"\x1b[31m", b"\xff\xfe", b"[bold]", b"%s", b"'; rm -rf", b"*", "é".encode(), b"null",
    ],
)  # fmt: skip
def test_ids_that_are_none_close_nothing(hub: Site, name: bytes) -> None:
    told = opened(hub)
    assert "there is no such session" in refusal(session(hub, "close", name), 12)
    assert told in listed(hub)


def test_a_part_of_an_id_or_another_case_is_no_id(hub: Site) -> None:
    name = str(opened(hub)["session"])
    for wrong in (name[:-1], name + "0", name.upper() + "A", f"{name}/..", f"x/{name}"):
        assert "there is no such session" in refusal(session(hub, "close", wrong), 12)
    assert any(one["session"] == name for one in listed(hub))


def test_a_mount_point_that_is_no_text(other: Site) -> None:
    place = os.fsencode(other.work) + b"/odd \xff\n"
    os.mkdir(place)
    at = ("--collection", other.collection, "--chroma", other.chroma)
    chromafuse(other, "hub", place, *at, "--log-file", str(other.log)).expect(0)
    try:
        path = session(other, "open", "--hub", place).expect(0).out
        assert path.startswith(place + b"/")
        assert os.listdir(path[:-1]) == [b"index.mdx"]
        assert json.loads(session(other, "open", "--json", "--hub", place).out)["pages"] == 1
        session(other, "close", path[:-1], "--hub", place).expect(0)
    finally:
        chromafuse(other, "umount", place).expect(0)


# -- tokens


def test_a_token_opens_a_session_from_each_place(hub: Site) -> None:
    write(hub.base / "token", token("admin") + "\n")
    assert opened(hub, "--token-file", "token")["groups"] == ["admin"]
    assert opened(hub, CHROMAFUSE_TOKEN=token("x"))["groups"] == ["x"]
    assert opened(hub, CHROMAFUSE_TOKEN=LISTED)["groups"] == ["admin"]
    line = '"$0" session open --hub work/docs --json --token-fd 3 3<token'
    command = ["bash", "-c", line, str(COMMANDS / "chromafuse")]
    told = json.loads(run(command, env=hub.env, cwd=hub.base).expect(0).out)
    assert told["groups"] == ["admin"]
    assert told["grant_expires"] is not None


def test_a_refused_token_opens_nothing_and_is_not_told(hub: Site) -> None:
    before = listed(hub)
    forged = sign(pair("EdDSA", 1).private, "EdDSA", claims(exp=time.time() + 600))
    for given in (forged, token("admin", nbf=4e9), "nonsense", "", "a.b.c", "x" * 20_000):
        text = refusal(session(hub, "open", CHROMAFUSE_TOKEN=given), 11)
        assert "token" in text
        assert not given or given[:12] not in text.replace("nonsense", "")
    assert listed(hub) == before


def test_groups_and_a_token_exclude_each_other(hub: Site) -> None:
    write(hub.base / "token", token("admin") + "\n")
    before = listed(hub)
    for words, env in (
        (("--groups", "a", "--token-file", "token"), {}),
        (("--groups", "a", "--token-fd", "0"), {}),
        (("--groups", "a"), {"CHROMAFUSE_TOKEN": LISTED}),
        (("--token-fd", "0", "--token-file", "token"), {}),
        (("--token-file", "token"), {"CHROMAFUSE_TOKEN": LISTED}),
    ):
        assert "exclude each other" in refusal(session(hub, "open", *words, **env), 2)
    assert "cannot be read" in refusal(session(hub, "open", "--token-file", "nowhere"), 2)
    assert listed(hub) == before


def spies(base: Path) -> tuple[Path, Path]:
    """A directory with a ``mount`` and ``umount`` that write down their environment, and where."""
    place, notes = base / "spies", base / "seen"
    place.mkdir()
    for name in ("mount", "umount", "fusermount3"):
        script = place / name
        script.write_text(f'#!/bin/sh\nenv >>"{notes}"\nPATH=/usr/bin:/bin exec {name} "$@"\n')
        script.chmod(0o755)
    return place, notes


@only_root
def test_no_program_that_is_started_gets_the_token(other: Site) -> None:
    write(other.base / "tokens.toml", f'[[token]]\ntoken = "{LISTED}"\n')
    place, notes = spies(other.base)
    env = {
        "CHROMAFUSE_TOKEN": LISTED,
        "PATH": f"{place}{os.pathsep}{other.env['PATH']}",
    }
    target = other.base / "target"
    target.mkdir()
    accept = ("--tokens-file", "tokens.toml")
    start_hub(other, *accept).expect(0)
    session(other, "open", "--bind", str(target), **env).expect(0)
    session(other, "close", str(target), **env).expect(0)
    chromafuse(other, "umount", str(other.mountpoint), **env).expect(0)
    at = ("--collection", other.collection, "--chroma", other.chroma, "--log-file", str(other.log))
    chromafuse(other, "mount", str(other.mountpoint), *at, *accept, **env).expect(0)
    for pid in other.daemons():
        assert LISTED.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    chromafuse(other, "umount", str(other.mountpoint), **env).expect(0)
    seen = notes.read_text()
    assert seen.count("LC_ALL=C\n") >= 3
    assert LISTED not in seen
    assert "CHROMAFUSE_TOKEN" not in seen
    assert LISTED not in other.log.read_text()


# -- binds


@only_root
def test_a_session_is_bound_and_the_bind_goes_with_it(hub: Site, directory: Path) -> None:
    out = session(hub, "open", "--groups", "admin", "--bind", str(directory)).expect(0).out
    assert out.decode() == f"{directory}\n"
    assert sorted(os.listdir(directory)) == ["admin.mdx", "index.mdx"]
    assert listed(hub)[-1]["bound"] == str(directory)
    assert f"bound to {directory}" in session(hub, "list").expect(0).out.decode()
    session(hub, "close", str(directory)).expect(0)
    assert os.listdir(directory) == []


@only_root
def test_a_bound_session_is_no_mount_of_its_own_and_keeps_the_hub(
    hub: Site, directory: Path
) -> None:
    opened(hub, "--bind", str(directory))
    known = json.loads(chromafuse(hub, "status", "--json").out)
    assert str(directory) not in {one["mountpoint"] for one in known}
    text = refusal(chromafuse(hub, "umount", str(hub.mountpoint)), 9)
    assert f"{hub.mountpoint} has sessions bound to {directory} " in text
    assert hub.is_mounted()
    assert os.listdir(directory) == ["index.mdx"]


@only_root
def test_a_directory_takes_one_session(hub: Site, directory: Path) -> None:
    opened(hub, "--bind", str(directory))
    before = listed(hub)
    text = refusal(session(hub, "open", "--bind", str(directory)), 5)
    assert f"{directory} shows a session already" in text
    assert listed(hub) == before


@only_root
def test_what_an_ended_session_left_is_replaced(hub: Site, directory: Path) -> None:
    told = opened(hub, "--bind", str(directory), "--ttl", "0.1")
    assert wait_until(lambda: told["session"] not in {o["session"] for o in listed(hub)}, 10)
    with pytest.raises(OSError, match="Stale file handle"):
        os.listdir(directory)
    opened(hub, "--groups", "admin", "--bind", str(directory))
    assert sorted(os.listdir(directory)) == ["admin.mdx", "index.mdx"]


@only_root
def test_a_bind_that_somebody_took_away_is_no_trouble(hub: Site, directory: Path) -> None:
    opened(hub, "--bind", str(directory))
    run(["umount", str(directory)], env=hub.env, cwd=hub.base).expect(0)
    later = opened(hub, "--groups", "admin", "--bind", str(directory))
    # The directory is the later session's now.
    session(hub, "close", str(directory)).expect(0)
    assert later["session"] not in {one["session"] for one in listed(hub)}
    assert os.listdir(directory) == []
    session(hub, "close", str(directory)).expect(0)


@pytest.mark.parametrize("kind", ["missing", "file", "dangling"])
def test_a_target_that_is_no_directory(hub: Site, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "file":
        target.write_text("x")
    if kind == "dangling":
        target.symlink_to("nowhere")
    before = listed(hub)
    text = refusal(session(hub, "open", "--bind", str(target)), 5)
    assert "is not a directory (make it first)" in text
    assert listed(hub) == before


@only_root
def test_a_bind_without_the_right_to_mount(hub: Site, directory: Path) -> None:
    before = listed(hub)
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    command = [*drop, str(COMMANDS / "chromafuse"), "session", "open"]
    command += ["--hub", str(hub.mountpoint), "--bind", str(directory)]
    done = run(command, env=hub.env, cwd=hub.base)
    assert "(--bind needs root)" in refusal(done, 5)
    assert listed(hub) == before
    assert os.listdir(directory) == []


# -- status


def test_status_tells_of_a_hub_and_its_sessions(hub: Site) -> None:
    opened(hub)
    told = json.loads(chromafuse(hub, "status", str(hub.mountpoint), "--json").expect(0).out)[0]
    assert (told["role"], told["sessions"], told["groups"]) == ("hub", len(listed(hub)), None)
    shown = chromafuse(hub, "status", str(hub.mountpoint)).expect(0).out.decode()
    assert re.search(rf"sessions +│ {told['sessions']} ", shown), shown
    assert "seen as" not in shown


def test_status_tells_when_a_mount_s_token_ends(other: Site) -> None:
    write(other.base / "key.pem", pair("EdDSA").pem)
    write(other.base / "token", token("admin"))
    other.mount("--token-file", "token", "--jwt-key", "key.pem")
    told = json.loads(chromafuse(other, "status", "work/docs", "--json").expect(0).out)[0]
    assert (told["role"], told["groups"]) == ("mount", ["admin"])
    assert time.time() < told["grant_expires"] <= time.time() + 600
    shown = chromafuse(other, "status", "work/docs").expect(0).out.decode()
    assert re.search(r"seen as +│ groups admin, token ends in \d+ s ", shown)


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"CHROMAFUSE_GROUPS": "admin,billing"}, 0),
        ({"CHROMAFUSE_GROUPS": "admin,,billing"}, 2),
        ({"CHROMAFUSE_TOKEN_FILE": "no-such-file"}, 2),
        ({"CHROMAFUSE_TOKEN_FILE": ""}, 2),
        ({"CHROMAFUSE_TOKEN_FD": "x"}, 2),
        ({"CHROMAFUSE_GROUPS": "admin", "CHROMAFUSE_TOKEN": LISTED}, 2),
    ],
)
def test_what_the_environment_says_of_the_reader_counts(
    hub: Site, env: dict[str, str], code: int
) -> None:
    done = session(hub, "open", "--json", **env).expect(code)
    if code == 0:
        assert json.loads(done.out)["groups"] == ["admin", "billing"]
