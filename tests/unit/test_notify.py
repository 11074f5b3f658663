"""The watchdog's sign of life comes from the loop: one that hangs gives none."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import trio

from chromafuse.daemon.notify import ServiceManager


def _count(receiver: socket.socket) -> int:
    found = 0
    while True:
        try:
            receiver.recv(100)
        except BlockingIOError:
            return found
        found += 1


def test_a_loop_that_hangs_gives_no_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "@chromafuse-test-" + tmp_path.name
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "20000")

    async def main(receiver: socket.socket) -> None:
        manager = ServiceManager.from_environment()
        assert manager is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.feed)
            while _count(receiver) == 0:
                await trio.sleep(0.005)
            _count(receiver)
            time.sleep(0.2)
            assert _count(receiver) == 0
            while _count(receiver) == 0:
                await trio.sleep(0.005)
            nursery.cancel_scope.cancel()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:])
        receiver.setblocking(False)
        trio.run(main, receiver)


@pytest.mark.parametrize("address", ["", "relative", "@"])
def test_without_a_manager_nobody_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert ServiceManager.from_environment() is None
