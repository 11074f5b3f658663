"""The wall clock set while a daemon runs: durations stay what they are."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from chromafuse import refresh
from chromafuse.domain.access import ANONYMOUS, PUBLIC, Grant
from chromafuse.domain.errors import StoreUnavailable
from chromafuse.domain.page import Page, Slug
from chromafuse.domain.tree import PathTree, TreeVersion, build_tree
from chromafuse.fs import gate as gates
from chromafuse.fs.attributes import Owner
from chromafuse.fs.gate import Gate
from chromafuse.fs.namespace import Inodes, Namespace
from chromafuse.refresh import Refresher

HOUR = 3_600.0


class Clock(SimpleNamespace):
    """Stands for the module ``time``: a wall clock that is ``ahead``, and one that nobody sets."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME
    ahead = 0.0
    slept = 0.0

    def time(self) -> float:
        return time.time() + self.ahead + self.slept

    def clock_gettime(self, clock: int) -> float:
        return time.clock_gettime(clock) + self.slept


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(gates, "time", clock)
    monkeypatch.setattr(refresh, "time", clock)
    return clock


@pytest.fixture
def tree() -> PathTree:
    return build_tree([Page(Slug("a"), b"a.mdx", PUBLIC, 1, 0)], TreeVersion("v"))


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_session_neither_ends_early_nor_lasts_longer(
    clock: Clock, tree: PathTree, ahead: float
) -> None:
    async def main() -> None:
        gate = Gate(tree, Namespace(Inodes(Owner(0, 0)), is_hub=True, mtime_ns=0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gate.run)
            session = await gate.open(Grant(ANONYMOUS), 600.0, None, None)
            await trio.testing.wait_all_tasks_blocked()
            clock.ahead = ahead
            with trio.fail_after(60):
                while session.ends is not None and abs(session.ends - clock.time()) > 700:
                    await trio.sleep(0.02)
            assert gate.sessions.get(session.id) is session
            nursery.cancel_scope.cancel()

    trio.run(main)


class Away:
    """A database that cannot be reached."""

    async def version(self) -> TreeVersion:
        raise StoreUnavailable("away")

    async def load(self) -> PathTree:
        raise StoreUnavailable("away")


async def _shown(_: PathTree) -> int:
    return 0


@pytest.mark.expects_log("stale: the tree shown")
def test_how_old_a_tree_is_does_not_depend_on_the_clock_that_is_set(clock: Clock) -> None:
    refresher = Refresher(
        Away(), _shown, TreeVersion("v"), checked=clock.time(), interval=1, max_stale=600
    )
    for clock.ahead in (HOUR, -HOUR):
        trio.run(refresher.look)
        assert refresher.status()["stale"] is False
        assert 0 <= refresher.age < 60
    # A machine that slept is another thing.
    clock.slept = HOUR
    trio.run(refresher.look)
    assert refresher.status()["stale"] is True
    assert refresher.age >= HOUR
