"""How ``cgrep`` reads a call and talks to a daemon: as the daemon's own modules would."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chromafuse import cgrep_ask, control
from chromafuse.domain.pattern.gnu import TABLE
from chromafuse.domain.pattern.options import NotParsed, parse
from chromafuse.fs import mounts
from chromafuse.sockets import socket_directories, socket_name

WORDS = st.one_of(
    st.sampled_from(
        [f"--{name}" for name in TABLE.long]
        + [f"--{name}=x" for name in TABLE.long]
        + [f"-{letter}" for letter in TABLE.short]
        + ["-", "--", "-rn", "-rnex", "-nf", "-C5", "-A", "-5", "--bin", "--reg", "word", "a/b", ""]
    ),
    st.text(alphabet="-efrRdn=a/", max_size=6),
)


@given(
    st.lists(WORDS, max_size=6).map(lambda words: [word.encode() for word in words]), st.booleans()
)
@example([b"--binary", b"a", b"b"], False)
@example([b"-f", b"p", b"--file=q", b"-er", b"dir"], False)
def test_operands_and_files_of_patterns_are_those_that_the_daemon_sees(
    words: list[bytes], operands_last: bool
) -> None:
    try:
        parsed = parse(words, TABLE, operands_last=operands_last)
    except NotParsed:
        cgrep_ask.split(words, operands_last=operands_last)
        return
    given_patterns = any(option.name in {"regexp", "file"} for option in parsed.options)
    operands, files = cgrep_ask.split(words, operands_last=operands_last)
    assert operands == list(parsed.operands[0 if given_patterns else 1 :])
    assert files == [option.value for option in parsed.options if option.name == "file"]


VALUES = st.recursive(
    st.one_of(st.binary().map(cgrep_ask.text_of), st.text(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


@given(VALUES)
def test_a_request_is_json(value: object) -> None:
    assert json.loads(cgrep_ask.rendered(value)) == value


@given(st.binary())
def test_bytes_survive_a_request(word: bytes) -> None:
    text = json.loads(cgrep_ask.rendered(cgrep_ask.text_of(word)))
    assert os.fsencode(text) == word


@pytest.mark.parametrize("place", ["/mnt/docs", "/mnt/ä b", "/mnt/\udcff"])
def test_a_daemon_listens_where_cgrep_asks(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Path("/tmp") / f"cf-{os.getpid()}"
    for given_directory in (str(runtime), str(tmp_path / ("long" * 40)), "relative", ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", given_directory)
        directories = [Path(name) for name in socket_directories(os.geteuid())]
        path = control.socket_path(place)
        assert path.parent in directories
        assert path.name == socket_name(os.fsencode(place))
    (runtime / "chromafuse").rmdir()
    runtime.rmdir()


def test_a_line_of_mountinfo_is_read_as_by_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        b"97 30 0:52 / /mnt/a\\040b\\134\\011c\xff ro,nosuid shared:1"
        b" - fuse.chromafuse docs ro,user_id=1000,group_id=100"
    )
    monkeypatch.setattr(Path, "read_bytes", lambda _: line + b"\n")
    (known,) = mounts.own_mounts()
    path, device, root, uid = cgrep_ask.mount_of(line)
    assert (os.fsdecode(path), os.fsdecode(device), root, uid) == (
        known.path, known.device, b"/", known.uid,
    )  # fmt: skip


LINES = [
    b"1 1 0:52 / /mnt/docs ro - fuse.chromafuse docs ro,user_id=0",
    b"2 1 0:53 / /mnt/hub ro - fuse.chromafuse docs ro,user_id=7",
    b"3 1 0:53 /0123/guides /mnt/docs/inner ro - fuse.chromafuse docs ro,user_id=7",
    b"4 1 0:54 /x /elsewhere ro - fuse.chromafuse docs ro,user_id=7",
]


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ([b"/mnt/docs"], [(b"/mnt/docs", 0, [b""])]),
        ([b"/mnt/docs/a//b/../c/"], [(b"/mnt/docs", 0, [b"a/c"])]),
        ([b"/mnt/docsx", b"/mnt", b"/"], []),
        ([b"/mnt/docs/inner/a"], [(b"/mnt/hub", 7, [b"0123/guides/a"])]),
        ([b"/mnt/docs/inner"], [(b"/mnt/hub", 7, [b"0123/guides"])]),
        (
            [b"/mnt/hub/4567", b"/mnt/docs/a", b"/mnt/hub/89"],
            [(b"/mnt/hub", 7, [b"4567", b"89"]), (b"/mnt/docs", 0, [b"a"])],
        ),
        ([b"/elsewhere/a"], []),
        ([b"nul\0"], []),
    ],
)
def test_operands_lead_to_daemons_and_places(
    operands: list[bytes], expected: list[tuple[bytes, int, list[bytes]]]
) -> None:
    found = cgrep_ask.touched(operands, LINES)
    assert [(one.path, one.uid, one.places) for one in found] == expected


def test_the_later_of_two_mounts_at_one_place_counts() -> None:
    over = b"5 1 0:60 / /mnt/docs ro - fuse.chromafuse docs ro,user_id=3"
    (found,) = cgrep_ask.touched([b"/mnt/docs/a"], [*LINES, over])
    assert (found.path, found.uid, found.places) == (b"/mnt/docs", 3, [b"a"])


def test_only_small_regular_files_of_patterns_are_read(tmp_path: Path) -> None:
    small, large, pipe = tmp_path / "small", tmp_path / "large", tmp_path / "pipe"
    small.write_bytes(b"caf\xe9\n")
    large.write_bytes(b"x" * (cgrep_ask.MAX_FILE + 1))
    os.mkfifo(pipe)
    names = [str(name).encode() for name in (small, large, pipe, tmp_path, tmp_path / "none")]
    arguments = [word for name in names for word in (b"-f", name)] + [b"-f", b"-"]
    request = cgrep_ask.Call("grep", arguments, {}).request([])
    assert request["files"] == {str(small): "caf\udce9\n"}


def test_of_the_environment_only_what_grep_reads_is_told() -> None:
    given_environment = {b"LANG": b"C.UTF-8", b"TOKEN": b"secret", b"POSIXLY_CORRECT": b""}
    request = cgrep_ask.Call("grep", [b"-r", b"x"], given_environment).request([])
    assert request["environ"] == {"LANG": "C.UTF-8", "POSIXLY_CORRECT": ""}


def test_a_call_that_is_too_long_is_not_told() -> None:
    call = cgrep_ask.Call("grep", [b"x" * (cgrep_ask.MAX_ARGUMENTS + 1)], {})
    with pytest.raises(ValueError, match="very long"):
        call.request([])
