"""Counting requests: what is counted, and what is read off a histogram."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from chromafuse.stores.meter import BOUNDS, Meter, quantile


def test_a_request_is_counted_while_it_runs_and_when_it_ends() -> None:
    meter = Meter()
    with meter.request():
        assert (meter.status()["running"], meter.status()["requests"]) == (1, 0)
    with pytest.raises(KeyError), meter.request():
        raise KeyError
    found = meter.status()
    assert (found["running"], found["requests"], found["errors"]) == (0, 2, 1)


def test_a_meter_without_requests_tells_no_times() -> None:
    found = Meter().status()
    assert (found["requests"], found["seconds"]) == (0, 0)
    assert [found[name] for name in ("mean_seconds", "p50_seconds", "p99_seconds")] == [None] * 3


def test_buckets_hold_how_many_took_at_most_their_bound() -> None:
    meter = Meter()
    for seconds in (0.0001, 0.0005, 0.0006, 3.0, 60.0):
        meter.begun()
        meter.ended(seconds, failed=False)
    found = meter.status()
    buckets = found["buckets"]
    assert isinstance(buckets, dict)
    assert list(buckets) == [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    assert [buckets[key] for key in ("0.0005", "0.001", "2.5", "5", "10", "+Inf")] == [
        2, 3, 3, 4, 4, 5,
    ]  # fmt: skip
    assert all(one <= other for one, other in pairwise(buckets.values()))
    assert found["seconds"] == pytest.approx(63.0012)


def test_a_quantile_is_read_off_the_bucket_that_holds_it() -> None:
    assert quantile([0] * 15, 0.5, 0.0) is None
    assert quantile([0, 0, 0, 0, 0, 0, 0, 4] + [0] * 7, 0.5, 1.0) == pytest.approx(0.075)
    assert quantile([99] + [0] * 13 + [1], 0.99, 99.0) == pytest.approx(0.0005)
    assert quantile([1] + [0] * 13 + [99], 0.5, 9_000.0) == BOUNDS[-1]


def test_a_quantile_of_one_request_is_its_time() -> None:
    meter = Meter()
    meter.begun()
    meter.ended(0.0101, failed=False)
    assert meter.status()["p50_seconds"] == meter.status()["mean_seconds"] == 0.0101


def test_threads_lose_no_request() -> None:
    meter = Meter()

    def ask() -> None:
        for _ in range(500):
            with meter.request():
                pass

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (meter.status()["requests"], meter.status()["running"]) == (4_000, 0)
