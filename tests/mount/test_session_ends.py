"""Sessions end in time, whatever the processes inside do to hold them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.harness import Site, wait_until
from tests.support.chroma_server import ChromaServer, running_chroma
from tests.support.holding import HOLDING

pytestmark = pytest.mark.xdist_group("mount-session-ends")

GENEROUS = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ChromaServer]:
    with running_chroma(tmp_path / "server") as server:
        yield server
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def hub(server: ChromaServer, tmp_path: Path) -> Iterator[Site]:
    """A hub whose pages are not in memory, and that waits long for Chroma."""
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "one.mdx").write_text("some text\n" * 1_000)
    site = Site(tmp_path, chroma=server.url)
    try:
        site.ingest(source)
        site.hub("--warm", "off", "--deadline", "60")
        yield site
    finally:
        os.kill(server.pid, signal.SIGCONT)
        site.close()


def gone(path: Path) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ESTALE)
    return False


def test_a_directory_that_is_held_delays_the_end_of_no_other_session(
    hub: Site, server: ChromaServer
) -> None:
    held = hub.open_session("--ttl", "5")
    others = [hub.open_session("--ttl", "6"), hub.open_session("--pid", str(os.getpid()))]
    assert all((root / "sub/one.mdx").exists() for root in (held, *others))
    os.kill(server.pid, signal.SIGSTOP)
    command = [sys.executable, "-c", HOLDING, str(held / "sub/one.mdx"), str(held / "sub")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"listing\n"
            assert wait_until(lambda: gone(held), GENEROUS)
            assert wait_until(lambda: gone(others[0] / "sub/one.mdx"), GENEROUS)
            hub.command("session", "close", others[1]).expect(0)
            assert gone(others[1] / "sub/one.mdx")
            # Or nothing was held.
            assert holder.poll() is None
        finally:
            holder.kill()
            os.kill(server.pid, signal.SIGCONT)


def test_a_search_program_that_prints_to_an_ended_directory_stops_nobody(hub: Site) -> None:
    ended, other = hub.open_session(), hub.open_session()
    output = os.open(ended / "sub", os.O_RDONLY)
    try:
        hub.command("session", "close", ended).expect(0)
        # The kernel does not know the attributes any more: who wants them asks the daemon.
        search = subprocess.Popen(["grep", "-rc", "text", other], stdout=output)
        if not wait_until(lambda: search.poll() is not None, GENEROUS):
            hub.kill()
        search.wait()
        assert hub.status()["sessions"] == 1
    finally:
        os.close(output)
