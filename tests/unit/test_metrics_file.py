"""The file of metrics when it cannot be written: the old one stays whole, and one line tells."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from chromafuse.daemon.metricsfile import MetricsFile

STATUS = {
    "mountpoint": b"/srv/d\xfccs".decode(errors="surrogateescape"),
    "version": "1",
    "role": "mount",
    "collection": "docs",
    "tree_version": "0",
    "pages": 3,
    "backends": {},
}

_ON_A_FULL_DISK = f"""
import logging, pathlib, trio
from chromafuse.daemon.metricsfile import MetricsFile
logging.basicConfig(format="%(levelname)s %(message)s")
path = pathlib.Path("small/docs.prom")
path.write_text("old")
looks = 0
async def main():
    async with trio.open_nursery() as nursery:
        def status():
            global looks
            looks += 1
            if looks == 3:
                nursery.cancel_scope.cancel()
            return {STATUS!r}
        nursery.start_soon(MetricsFile(path, status, 0.0).run)
trio.run(main)
print(looks, path.read_text(), *(one.name for one in path.parent.iterdir()))
"""


def test_a_full_disk_costs_one_line_and_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    script = 'mount -t tmpfs -o size=4k none small && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script,
         sys.executable, _ON_A_FULL_DISK],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines() == [
        "ERROR metrics cannot be written to small/docs.prom: No space left on device"
    ]
    assert done.stdout == "4 old docs.prom\n"


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


@pytest.mark.expects_log("metrics cannot be written")
def test_it_is_written_again_when_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    usual = os.umask(0o077)
    path = tmp_path / "later" / "docs.prom"

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(MetricsFile(path, lambda: STATUS, 0.01).run)
            await until(lambda: "cannot be written" in caplog.text)
            path.parent.mkdir()
            await until(lambda: "metrics are written to" in caplog.text)
            assert 'chromafuse_up{mountpoint="/srv/d\ufffdcs"} 1.0' in path.read_text()
            nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    finally:
        os.umask(usual)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert 'chromafuse_up{mountpoint="/srv/d\ufffdcs"} 0.0' in path.read_text()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


@pytest.mark.expects_log("metrics cannot be written")
def test_a_link_in_the_place_of_the_other_file_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / ".docs.prom.new").symlink_to(mine)
    path = tmp_path / "docs.prom"

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(MetricsFile(path, lambda: STATUS, 0.01).run)
            await until(lambda: "cannot be written" in caplog.text)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert mine.read_text() == "mine"
