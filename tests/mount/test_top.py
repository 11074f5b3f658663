"""``chromafuse top``: what it shows of mounts that work, hang and end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.mount.harness import COMMANDS, SITE_MARK, Site, wait_until
from tests.support.sites import write_site

pytestmark = pytest.mark.xdist_group("mount-metrics")

PAGES = {f"guide/page{n}.mdx": f"# Page {n}\n".encode() for n in range(5)}
GENEROUS = 60.0


@pytest.fixture
def mounted(site: Site) -> Site:
    site.ingest(write_site(site.base / "source", PAGES))
    site.mount()
    return site


@contextmanager
def being_read(site: Site) -> Iterator[None]:
    """Somebody opens a page again and again."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            (site.mountpoint / "guide/page1.mdx").read_bytes()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


def test_rates_are_printed_for_scripts_and_where_there_is_no_terminal(mounted: Site) -> None:
    with being_read(mounted):
        done = mounted.command("top", mounted.mountpoint, "--json", "--interval", "0.5").expect(0)
        shown = mounted.command("top", mounted.mountpoint, "-i", "0.5").expect(0).out.decode()
    (found,) = json.loads(done.out)
    assert found["mountpoint"] == str(mounted.mountpoint)
    assert found["seconds"] >= 0.4
    assert found["rates"]["requests.open"] > 0
    assert found["rates"]["reads.hits"] >= 0
    assert found["backends"]["chroma"]["errors_per_second"] == 0
    assert found["status"]["pages"] == 5
    for words in ("requests/s (", "/s from memory", "Chroma", "done, 5 of 5 pages", "checked"):
        assert words in shown
    assert "\x1b" not in shown


def test_a_wrong_interval_is_wrong_usage_and_nothing_mounted_code_5(site: Site) -> None:
    for interval in ("0", "nan", "x"):
        done = site.command("top", "--interval", interval).expect(2)
        assert "should be a number of seconds from 0.1 to 3600" in done.err.decode()
    site.command("top", site.mountpoint, "--once").expect(5)


class Screen:
    """A terminal with ``chromafuse top`` in it."""

    def __init__(self, site: Site, *options: str) -> None:
        self._seen = b""
        self._master, slave = pty.openpty()
        env = site.env | {"TERM": "xterm", "COLUMNS": "200", "LINES": "60"}
        del env[SITE_MARK]  # it is no daemon
        words = [str(COMMANDS / "chromafuse"), "top", str(site.mountpoint), *options]
        self.process = subprocess.Popen(
            words, env=env, cwd=site.base, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # EIO is a terminal's end.
        with suppress(OSError):
            while piece := os.read(self._master, 65_536):
                self._seen += piece

    def wait_for(self, text: str) -> None:
        """Wait until ``text`` is shown from now on."""
        begun = len(self._seen)
        assert wait_until(lambda: text.encode() in self._seen[begun:], GENEROUS), self.text()

    def text(self) -> str:
        return self._seen.decode(errors="replace")

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return how the command ended."""
        self.process.send_signal(number)
        code = self.process.wait(GENEROUS)
        self._reader.join(GENEROUS)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._master)


@contextmanager
def screen(site: Site, *options: str) -> Iterator[Screen]:
    shown = Screen(site, *options)
    try:
        yield shown
    finally:
        shown.close()


def test_it_follows_a_daemon_that_hangs_and_goes_on_and_ends(mounted: Site) -> None:
    (pid,) = mounted.daemons()
    with screen(mounted, "--interval", "0.2") as shown:
        shown.wait_for("from memory")
        os.kill(pid, signal.SIGSTOP)
        shown.wait_for("the daemon does not answer")
        os.kill(pid, signal.SIGCONT)
        shown.wait_for("from memory")
        os.kill(pid, signal.SIGKILL)
        shown.wait_for("its daemon is gone")
        done = mounted.command("top", mounted.mountpoint, "--once", "-i", "0.1").expect(1)
        assert "its daemon is gone" in done.out.decode()
        done = mounted.command("top", mounted.mountpoint, "--json", "-i", "0.1").expect(1)
        assert "its daemon is gone" in json.loads(done.out)[0]["error"]
        mounted.umount()
        shown.wait_for("unmounted")
        mounted.mount()
        shown.wait_for("from memory")
        assert shown.end(signal.SIGINT) == 0
        assert "Traceback" not in shown.text()
        assert shown.text().endswith("\x1b[?25h\x1b[?1049l")  # cursor and screen are there again
    with screen(mounted) as shown:
        shown.wait_for("Ctrl-C ends")
        assert shown.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert shown.text().endswith("\x1b[?25h\x1b[?1049l")
