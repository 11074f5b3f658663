"""What ``top`` makes of two looks at a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chromafuse.cli.rates import Look, rates, same_daemon, traffic
from chromafuse.stores.meter import Meter


def look(at: float, meter: Meter, **others: object) -> Look:
    status: dict[str, Any] = {"pid": 7, "uptime_seconds": at, "backends": {"s3": meter.status()}}
    return Look(at, {**status, **others})


def test_a_rate_is_what_was_added_a_second_and_a_level_is_none() -> None:
    meter = Meter()
    before = look(10.0, meter, requests={"open": 4}, reads={"hits": 1}, cache={"pages": 3})
    now = look(12.0, meter, requests={"open": 10, "read": 1}, reads={"hits": 1}, cache={"pages": 9})
    assert rates(before, now) == {
        "requests.open": 3.0, "requests.read": 0.5, "reads.hits": 0.0, "backends.s3.errors": 0.0,
    }  # fmt: skip


def test_latencies_are_those_of_the_requests_between_the_looks() -> None:
    meter = Meter()
    for _ in range(50):
        meter.begun()
        meter.ended(5.0, failed=True)
    before = look(1.0, meter)
    for _ in range(10):
        meter.begun()
        meter.ended(0.02, failed=False)
    meter.begun()
    found = traffic(before, look(6.0, meter))["s3"]
    assert (found.per_second, found.errors_per_second, found.running) == (2.0, 0.0, 1)
    assert found.mean_seconds == pytest.approx(0.02)
    assert found.p99_seconds is not None
    assert 0.01 < found.p99_seconds <= 0.025


def test_without_requests_there_are_no_times_and_a_new_backend_began_at_nothing() -> None:
    meter = Meter()
    silent = traffic(look(1.0, meter), look(2.0, meter))["s3"]
    assert (silent.per_second, silent.mean_seconds, silent.p99_seconds) == (0.0, None, None)
    with meter.request():
        pass
    fresh = traffic(look(1.0, meter, backends={}), look(2.0, meter))["s3"]
    assert fresh.per_second == 1.0


@pytest.mark.parametrize(
    ("other", "same"), [({}, True), ({"pid": 8}, False), ({"uptime_seconds": 0.5}, False)]
)
def test_a_daemon_that_was_started_anew_is_another(other: Mapping[str, object], same: bool) -> None:
    assert same_daemon(look(1.0, Meter()), look(2.0, Meter(), **other)) is same
