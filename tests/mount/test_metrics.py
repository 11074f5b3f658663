"""Metrics of a daemon: the status in Prometheus' words, and nothing that stops a mount."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chromafuse.daemon.figures import FIGURES
from tests.mount.harness import PROJECT, Site, wait_until
from tests.support.redis_server import running_redis
from tests.support.sites import write_site

pytestmark = pytest.mark.xdist_group("mount-metrics")

PAGES = {f"guide/page{n}.mdx": f"# Page {n}\n\nhay\n".encode() for n in range(40)}
DASHBOARD = PROJECT / "docs" / "files" / "chromafuse-dashboard.json"
MONITORING = PROJECT / "docs" / "operations" / "monitoring.mdx"
GENEROUS = 60.0
PAGES["secret/plan.mdx"] = b"---\ngroups: [board]\n---\nhay\n"


@pytest.fixture
def stored(site: Site) -> Site:
    site.ingest(write_site(site.base / "source", PAGES))
    return site


def address(site: Site) -> str:
    found = re.search(r"metrics at=(http://\S+)", site.log.read_text())
    assert found is not None
    return found[1]


def fetched(url: str) -> tuple[str, dict[str, float]]:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
        text = answer.read().decode()
    return text, samples(text)


def samples(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_numbers_are_those_of_the_status(stored: Site, host: str) -> None:
    stored.mount("--metrics", f"{host}:0")
    subprocess.run(["grep", "-rl", "hay", stored.mountpoint], check=True, capture_output=True)
    text, found = fetched(address(stored))
    status = stored.status()
    assert found["chromafuse_pages"] == status["pages"] == 40
    assert found["chromafuse_chroma_up"] == 1
    assert found["chromafuse_stale"] == 0
    assert found["chromafuse_requests_total{open}"] == status["requests"]["open"] >= 40
    assert found["chromafuse_reads_pages_fetched_total"] == status["reads"]["pages_fetched"]
    assert found["chromafuse_searches_total{narrowed}"] == status["searches"]["narrowed"] > 0
    asked = status["backends"]["chroma"]
    assert list(status["backends"]) == ["chroma"]
    assert asked["errors"] == 0
    assert 0 < asked["p50_seconds"] <= asked["p99_seconds"]
    counted = found["chromafuse_backend_request_seconds_count{chroma}"]
    assert 0 < counted <= asked["requests"]  # a look for a new tree may have come between
    assert found["chromafuse_backend_request_seconds_bucket{chroma}{+Inf}"] == counted
    assert found["chromafuse_backend_errors_total{chroma}"] == 0
    assert found["process_open_fds"] > 0
    assert "page1" not in text
    assert "board" not in text


def test_silent_clients_cost_no_threads_and_no_mount(stored: Site) -> None:
    stored.mount("--metrics", "127.0.0.1:0")
    url = address(stored)
    port = int(url.rpartition(":")[2].partition("/")[0])
    before = fetched(url)[1]["process_open_fds"]
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    try:
        assert (stored.mountpoint / "guide/page1.mdx").read_bytes() == PAGES["guide/page1.mdx"]
        (pid,) = stored.daemons()
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            threads = int(next(line for line in status if line.startswith("Threads")).split()[1])
        assert threads < 40
    finally:
        for connection in silent:
            connection.close()
    assert fetched(url)[1]["process_open_fds"] <= before + 2
    stored.umount()


def read_file(path: Path) -> dict[str, float]:
    return samples(path.read_text())


def test_a_file_holds_the_same_numbers_and_at_the_end_that_it_is_over(stored: Site) -> None:
    path = stored.base / "docs.prom"
    stored.mount("--metrics-file", str(path), "--metrics", "127.0.0.1:0")
    assert wait_until(path.exists, GENEROUS)
    place = f"{{{stored.mountpoint}}}"
    found = read_file(path)
    assert found["chromafuse_up" + place] == 1
    assert found["chromafuse_pages" + place] == 40
    assert found["chromafuse_process_open_fds" + place] > 0
    served = fetched(address(stored))[1]
    own = {name.partition("{")[0].removeprefix("chromafuse_") for name in found} - {"up"}
    # It may have been written before the first request of the kernel.
    assert own | {"requests_total"} == {
        name.partition("{")[0].removeprefix("chromafuse_") for name in served
    }
    assert {name for name in found if place not in name} == set()
    assert (path.stat().st_mode & 0o444) == 0o444
    stored.umount()
    assert read_file(path)["chromafuse_up" + place] == 0
    assert [one.name for one in stored.base.iterdir() if "prom" in one.name] == ["docs.prom"]


@pytest.mark.expects_log("metrics cannot be written")
def test_a_directory_that_is_missing_costs_one_line_and_no_mount(stored: Site) -> None:
    stored.mount("--metrics-file", str(stored.base / "none" / "docs.prom"))
    assert (stored.mountpoint / "guide/page1.mdx").read_bytes() == PAGES["guide/page1.mdx"]
    stored.umount()
    assert stored.log.read_text().count("metrics cannot be written to") == 1


def test_an_address_that_is_taken_is_told_and_nothing_is_mounted(stored: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = stored.command(
            "mount", stored.mountpoint, *stored._target(), "--metrics", place
        ).expect(2)
    assert f"metrics cannot be served at {place}: Address already in use" in done.err.decode()
    assert not stored.is_mounted()


def test_a_hub_counts_sessions(stored: Site) -> None:
    stored.hub("--metrics", "127.0.0.1:0")
    stored.open_session()
    stored.open_session("--groups", "board")
    found = fetched(address(stored))[1]
    assert found["chromafuse_sessions"] == 2
    assert found["chromafuse_pages"] == 41


NO_FIGURES = {
    "grant_expires", "pid", "refresh.checked", "refresh.interval", "refresh.pinned", "stale_since",
}  # fmt: skip
"""Numbers of the status that are no measures, or are told by another."""


def numbers(node: object, path: str = "") -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, below in node.items():
            yield from numbers(below, f"{path}.{key}" if path else key)
    elif isinstance(node, int | float):
        yield path


def test_every_number_of_the_status_is_a_figure_and_every_figure_a_number(stored: Site) -> None:
    files = stored.base / "files"
    files.mkdir()
    (files / "data.bin").write_bytes(b"data")
    place = f"file://{files}"
    stored.ingest(stored.base / "source", "--pointers", place)
    path = stored.base / "docs.prom"
    options = ("--pointers-allowed", place, "--metrics-file", str(path))
    with running_redis() as server:
        stored.hub("--redis", server.url, "--metrics", "127.0.0.1:0", *options)
        session = stored.open_session()
        assert (session / "data.bin").read_bytes() == b"data"
        assert (session / "guide/page1.mdx").read_bytes() == PAGES["guide/page1.mdx"]
        subprocess.run(["grep", "-rl", "hay", session], check=True, capture_output=True)
        status = stored.status()
        found = fetched(address(stored))[1]
        stored.umount()
    assert set(status["backends"]) == {"chroma", "redis", "file"}
    assert status["backends"]["file"]["requests"] > 0
    assert status["backends"]["redis"]["requests"] > 0
    assert list(documented_check(status)) == [True]
    status["chroma"]["ok"] = False
    assert list(documented_check(status)) == [False]
    told = {path for path in numbers(status) if not path.startswith("backends.")} - NO_FIGURES
    patterns = [re.compile(re.escape(one.path).replace(r"\*", r"[^.]+") + r"\Z") for one in FIGURES]
    assert {path for path in told if not any(one.match(path) for one in patterns)} == set()
    silent = [one.path for one in FIGURES if not one.values(status)]
    assert set(silent) == {"grant_expires", "rejected_entries.*"}
    names = {name.partition("{")[0] for name in found}
    told_names = {name.removesuffix("_total") for name in names}
    assert {f"chromafuse_{one.name}" for one in FIGURES if one.path not in silent} <= told_names
    names |= {name.partition("{")[0] for name in read_file(path)}
    assert dashboard_metrics() - names == set()
    alarms = set(re.findall(r"chromafuse_\w*[a-z]\b", MONITORING.read_text(encoding="utf-8")))
    assert len(alarms) > 8
    assert alarms - names == set()


def documented_check(status: Mapping[str, object]) -> Iterator[bool]:
    """What the programs for jq in the manual say of a status."""
    text = MONITORING.read_text(encoding="utf-8")
    for program in re.findall(r"jq -e '([^']+)'", text):
        done = subprocess.run(
            ["jq", "-e", program],
            input=json.dumps([status]), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        yield done.returncode == 0


def dashboard_metrics() -> set[str]:
    """The metrics that the dashboard asks for, in panels and variables."""
    text = DASHBOARD.read_text(encoding="utf-8")
    return set(re.findall(r"\b(?:chromafuse|process)_\w+", text))


def test_the_dashboard_is_one_that_grafana_can_import() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    variables = [one["name"] for one in board["templating"]["list"]]
    assert board["templating"]["list"][0]["type"] == "datasource"
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text(encoding="utf-8")))
    assert used - {"__rate_interval", "__all"} == set(variables)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["targets"]
            assert all(one["expr"].count("(") == one["expr"].count(")") for one in panel["targets"])
    assert len(dashboard_metrics()) > 20
