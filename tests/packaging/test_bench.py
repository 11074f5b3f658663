"""``scripts/bench`` on a tree of three pages: that it measures, tells, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
BENCH = [sys.executable, str(PROJECT / "scripts/bench")]
SMALL = ["--quick", "--only", "mount/cat/", "--only", "mount/find", "--only", "ingest/embedded"]
DEADLINE = 120.0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A docs tree of three pages."""
    for number in range(3):
        page = tmp_path / "tiny" / f"part{number}" / "page.mdx"
        page.parent.mkdir(parents=True)
        page.write_text(f"# Page {number}\n\n" + "streamText is here.\n" * 100)
    return tmp_path / "tiny"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the benchmark works; its path is short, as it holds a socket."""
    with tempfile.TemporaryDirectory(prefix="b-", ignore_cleanup_errors=True) as place:
        yield Path(place)


def run(*arguments: str | Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BENCH, *map(str, arguments)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def left_behind(temporary: Path) -> list[str]:
    """Files, mounts and processes of a benchmark that worked in ``temporary``."""
    found = [str(path) for path in temporary.iterdir()]
    mounts = Path("/proc/self/mountinfo").read_text()
    found += [line for line in mounts.split("\n") if str(temporary) in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(temporary) in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_quick_run_tells_everything(tree: Path, temporary: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    done = run(
        *SMALL,
        "--corpus",
        tree,
        "--json",
        tmp_path / "bench.json",
        "--markdown",
        tmp_path / "bench.md",
        "--readme",
        readme,
        "--plot",
        tmp_path / "bench.svg",
        "--only",
        "mount/grep -rl/local",
        temporary=temporary,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_behind(temporary) == []

    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["schema"] == 1
    assert found["quick"] is True
    assert found["rounds"] == 1
    assert found["problems"] == []
    assert {"cores", "cpu", "memory_bytes", "kernel"} <= found["machine"].keys()
    assert {"python", "chromafuse", "chromadb", "pyfuse3", "libfuse", "trio"} <= (
        found["versions"].keys()
    )
    size = sum(page.stat().st_size for page in tree.rglob("*.mdx"))
    [corpus] = found["corpora"]
    assert (corpus["name"], corpus["pages"], corpus["bytes"]) == ("tiny", 3, size)
    assert corpus["records"] > corpus["chunks"] >= 3
    for figure in found["figures"]:
        values = [sample["value"] for sample in figure["samples"]]
        assert figure["min"] <= figure["median"] <= figure["max"]
        assert (figure["min"], figure["max"]) == (min(values), max(values))
        assert [sample["round"] for sample in figure["samples"]] == [1]

    measured = {(f["suite"], f["group"], f["subject"], f["measure"]) for f in found["figures"]}
    ours = [("mount", "cat", f"ours ({how})") for how in ("embedded", "chroma run")]
    assert {(*trial, measure) for trial in ours for measure in ("first", "second", "requests")} <= (
        measured
    )
    assert ("mount", "cat", "local", "second") in measured
    assert ("mount", "cat", "local", "first") not in measured
    assert ("ingest", "embedded", "bare client", "records/s") in measured
    assert ("mount", "cat", "bare client (chroma run)", "get") in measured
    assert ("mount", "cat", "ours (chroma run + filled Redis)", "first") in measured
    assert not any(group == "chroma run" for _, group, _, _ in measured)
    assert not any(subject.startswith("mirage") for _, _, subject, _ in measured)
    [again] = [
        figure
        for figure in found["figures"]
        if (figure["group"], figure["subject"]) == ("cat", "ours (chroma run)")
        and figure["measure"] == "requests, second"
    ]
    assert again["max"] == 0
    drawn = (tmp_path / "bench.svg").read_text()
    assert drawn.startswith("<svg ")
    assert drawn.endswith("</svg>\n")
    assert ">local</text>" in drawn
    targets = {(t["group"], t["measure"], t["subject"]): t for t in found["targets"]}
    speed = targets["embedded", "records/s", "library"]
    assert speed["met"] == (speed["ratio"] >= 0.8)

    told = readme.read_text()
    assert told.startswith("before\n<!-- bench:begin -->\n")
    assert told.endswith("<!-- bench:end -->\nafter\n")
    assert "old" not in told
    assert "| cat, second |" in told
    assert "| cat, requests |" not in told
    assert "| cat, requests |" in (tmp_path / "bench.md").read_text()


def test_interrupt_leaves_nothing(tree: Path, temporary: Path) -> None:
    command = [*BENCH, "--quick", "--only", "mount/find -type f/ours (embedded)"]
    with subprocess.Popen(
        [*command, "--corpus", str(tree)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as bench:
        end = time.monotonic() + DEADLINE
        while str(temporary) not in Path("/proc/self/mountinfo").read_text():
            assert bench.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        bench.send_signal(signal.SIGINT)
        said = bench.communicate(timeout=DEADLINE)[1]
    assert bench.returncode == 130, said
    assert "interrupted by SIGINT" in said
    assert left_behind(temporary) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rounds", "3"], "too few"),
        (["--only", "nonsense"], "leaves nothing"),
        (["--quick", "--readme"], "not for README.md"),
        (["--json", "/nowhere/at/all.json"], "no directory"),
    ],
)
def test_usage(arguments: list[str], complaint: str, temporary: Path) -> None:
    done = run(*arguments, temporary=temporary)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert left_behind(temporary) == []
