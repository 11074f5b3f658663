"""What holds for every test: no unexpected warning in the log, and a Chroma server on demand."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.chroma_server import ChromaServer, running_chroma
from tests.support.ci import expected_lines, may_skip

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile(
    "chromafuse", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("chromafuse")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "expects_log(pattern): the test makes the code log a line with level WARNING or worse in "
        "which the regular expression is found; any other such line fails it",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too, but has run.
    if report.skipped and not hasattr(report, "wasxfail") and not may_skip():
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped in CI, and this one was: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _no_unexpected_warning(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    yield
    expected = expected_lines(request)
    unexpected = [
        f"{record.levelname} {record.name}: {record.getMessage()}"
        for record in caplog.get_records("call")
        if record.levelno >= logging.WARNING
        and not any(pattern.search(record.getMessage()) for pattern in expected)
    ]
    if unexpected:
        pytest.fail("logged and not expected:\n" + "\n".join(unexpected))


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    """A real Chroma server; each test takes a collection name of its own."""
    with running_chroma(tmp_path_factory.mktemp("chroma-server") / "data") as server:
        yield server
