"""Waiting for requests in place: what is told, and how long it may take nothing else away."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import trio

from chromafuse.fs import loop


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("spin", [0.0, loop.SPIN])
def test_what_is_readable_is_told_at_once(pipe: tuple[int, int], spin: float) -> None:
    patience = loop.Patience(spin=spin)
    assert not patience.wait(pipe[0])
    os.write(pipe[1], b"x")
    assert all(patience.wait(pipe[0]) for _ in range(3))


class _CountingSelect:
    """``select`` that counts the looks which do not sleep."""

    def __init__(self) -> None:
        self.looks = 0
        self.sleeps = 0

    def select(
        self, waiting: list[int], _w: object, _x: object, timeout: float
    ) -> tuple[list[int]]:
        self.looks += timeout == 0
        self.sleeps += timeout > 0
        return ([],)


def test_a_slow_client_is_waited_for_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = _CountingSelect()
    monkeypatch.setattr(loop, "select", counting)
    patience = loop.Patience(spin=loop.SPIN)
    awake = 0
    for _ in range(200):
        before = counting.looks
        assert not patience.wait(0)
        awake += counting.looks > before
    assert counting.sleeps == 200
    # 1, 3, 7, 15 and then 31 waits go by between two tries.
    assert awake == 1 + 4 + (200 - 31) // 32


def test_one_request_in_time_ends_the_rest(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    patience = loop.Patience(spin=loop.SPIN)
    for _ in range(20):
        patience.wait(pipe[0])
    os.write(pipe[1], b"x")
    for _ in range(loop.SPIN_REST + 1):
        assert patience.wait(pipe[0])
    os.read(pipe[0], 1)
    counting = _CountingSelect()
    monkeypatch.setattr(loop, "select", counting)
    patience.wait(pipe[0])
    assert counting.looks > 0


def test_a_single_processor_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert loop.spin_seconds() == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    assert loop.spin_seconds() == loop.SPIN


def test_other_tasks_run_however_many_requests_come(pipe: tuple[int, int]) -> None:
    waiting = loop._Trio().lowlevel
    os.write(pipe[1], b"x")
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await trio.sleep(0)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            deadline = trio.current_time() + 10 * loop.SLICE
            while trio.current_time() < deadline:
                await waiting.wait_readable(pipe[0])
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert others >= 3


def test_a_waiter_gets_the_lock_when_its_holder_waits() -> None:
    lock = loop.EagerLock()
    order: list[str] = []

    async def take(name: str) -> None:
        async with lock:
            order.append(name)
            await trio.sleep(0)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(take, name)

    trio.run(run)
    assert sorted(order) == ["a", "b", "c"]


def test_descriptors_that_select_cannot_take_are_left_to_trio(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(loop, "SELECTABLE", 0)
    monkeypatch.setattr(loop.Patience, "wait", lambda *_: pytest.fail("select was used"))
    os.write(pipe[1], b"x")

    async def run() -> None:
        for _ in range(3):
            await loop._Trio().lowlevel.wait_readable(pipe[0])

    trio.run(run)
