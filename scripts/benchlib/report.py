"""What a run found, told: a table on the terminal, JSON with every sample, Markdown."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchlib.model import BenchError, Figure, Key, Results, Unit, Verdict
from benchlib.suites import Suite

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run."""

    started: str
    arguments: Sequence[str]
    rounds: int
    quick: bool
    machine: Mapping[str, object]
    versions: Mapping[str, str]
    code: str
    suites: Sequence[Suite]
    results: Results
    verdicts: Sequence[Verdict]


def show(value: float, unit: Unit) -> str:
    """Return a value with three figures, in seconds or milliseconds where it is a time."""
    if unit == "s":
        if value < 0.9995:
            digits = max(0, 2 - len(str(int(value * 1000))) + 1)
            return f"{value * 1000:.{digits}f} ms"
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    return f"{value:,.0f}"


def _spread(values: Sequence[float], one: Callable[[float], str]) -> str:
    low, high = one(min(values)), one(max(values))
    number, _, unit = low.partition(" ")
    return f"{number}-{high}" if high.endswith(unit) else f"{low} - {high}"


@dataclass(frozen=True, slots=True)
class _Grid:
    """The figures of one suite on one corpus: a row a measure, a column a subject."""

    title: str
    subjects: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Figure | None]]]


COLUMNS = 6
"""Subjects side by side."""


def _blocks(whole: _Grid) -> Iterator[_Grid]:
    """Yield ``whole`` in parts that are not too wide to read, without empty rows."""
    for start in range(0, len(whole.subjects), COLUMNS):
        part = slice(start, start + COLUMNS)
        rows = [(name, cells[part]) for name, cells in whole.rows if any(cells[part])]
        yield _Grid(whole.title, whole.subjects[part], rows)


def _grids(report: Report) -> Iterator[_Grid]:
    for suite in report.suites:
        for corpus in report.results.corpora.values():
            figures = {
                key: figure
                for key, figure in report.results.figures.items()
                if (key.suite, key.corpus) == (suite.name, corpus.name)
            }
            subjects = [
                subject
                for subject in dict.fromkeys(label.subject for label in suite.labels)
                if any(key.subject == subject for key in figures)
            ]
            rows = []
            for group in dict.fromkeys(label.group for label in suite.labels):
                # In the order of the first subject, whoever happened to be measured first.
                measures = dict.fromkeys(
                    key.measure
                    for subject in subjects
                    for key in figures
                    if (key.group, key.subject) == (group, subject)
                )
                for measure in measures:
                    cells = [
                        figures.get(Key(suite.name, corpus.name, group, subject, measure))
                        for subject in subjects
                    ]
                    rows.append((f"{group}, {measure}", cells))
            if rows:
                title = (
                    f"{suite.name} · {corpus.name}: {corpus.pages:,} pages,"
                    f" {corpus.bytes / 1e6:.1f} MB, {corpus.chunks:,} chunks"
                )
                yield from _blocks(_Grid(title, subjects, rows))


def _row_name(name: str, cells: Sequence[Figure | None]) -> str:
    unit = next(cell.unit for cell in cells if cell)
    return f"{name}, {unit}" if unit in ("MiB", "KiB") else name


def print_report(report: Report) -> None:
    """Print tables, targets and what went wrong to stdout."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    for grid in _grids(report):
        table = Table(title=grid.title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("")
        for subject in grid.subjects:
            table.add_column(subject, justify="right")
        for name, cells in grid.rows:
            table.add_row(_row_name(name, cells), *(_cell(cell, "\n") for cell in cells))
        console.print(table)
    for line in _facts(report):
        console.print(line, markup=False)
    if report.verdicts:
        table = Table(title="targets", title_justify="left", box=box.SIMPLE_HEAD)
        for column in ("", "measured", "ratio", "target", "requests", ""):
            table.add_column(column)
        for verdict in report.verdicts:
            style = "green" if verdict.met else "red"
            told = "met" if verdict.met else "MISSED"
            table.add_row(*_verdict_cells(verdict), told, style=style)
        console.print(table)
    for text in report.results.left_out:
        console.print(f"left out: {text}", markup=False)
    for text in report.results.problems:
        console.print(f"PROBLEM: {text}", markup=False)


def _cell(figure: Figure | None, between: str) -> str:
    if figure is None:
        return "-"
    text = show(figure.median, figure.unit)
    values = figure.values
    if min(values) == max(values):
        return text
    return f"{text}{between}({_spread(values, lambda value: show(value, figure.unit))})"


def _facts(report: Report) -> Iterator[str]:
    machine = report.machine
    memory = int(str(machine["memory_bytes"])) / 2**30
    yield (
        f"{machine['cores']} cores of {machine['cpu']}, {memory:.0f} GiB, {machine['system']},"
        f" Linux {machine['kernel']}; load before: {machine['load_before']}"
    )
    yield ", ".join(f"{name} {version}" for name, version in report.versions.items())
    if report.quick:
        yield "A quick look without warm-up: these numbers are not for comparing."
    yield (
        f"{report.started[:10]}; median (least-most) of {report.rounds} rounds, subjects"
        " interleaved; ratios are medians of the rounds' ratios."
    )


def _verdict_cells(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Return what is told of a verdict: of what, measured, ratio, bound, requests."""
    what = verdict.target.what
    name = f"{verdict.corpus} · {what.group}, {what.measure}: {what.subject}"
    unit = verdict.unit
    ratio = ""
    if verdict.ratios:
        ratio = f"{statistics.median(verdict.ratios):.2f} x"
        if len(verdict.ratios) > 1:
            ratio += f" ({_spread(verdict.ratios, lambda one: f'{one:.2f}')})"
    text = (
        f"{verdict.target.text}: {show(verdict.limit, unit)}"
        if verdict.target.of
        else (f"{verdict.target.sense} {show(verdict.limit, unit)}")
    )
    requests = "" if verdict.requests is None else show(verdict.requests, "requests")
    return name, show(verdict.median, unit), ratio, text, requests


def as_json(report: Report) -> str:
    """Return everything, every raw sample included, as JSON text."""
    figures = [
        {
            **figure.key._asdict(),
            "unit": figure.unit,
            "median": figure.median,
            "min": min(figure.values),
            "max": max(figure.values),
            "samples": [sample._asdict() for sample in figure.samples],
        }
        for figure in report.results.figures.values()
    ]
    targets = [
        {
            "suite": verdict.target.suite,
            "corpus": verdict.corpus,
            **verdict.target.what._asdict(),
            "unit": verdict.unit,
            "target": verdict.target.text,
            "median": verdict.median,
            "limit": verdict.limit,
            "ratio": statistics.median(verdict.ratios) if verdict.ratios else None,
            "ratios": verdict.ratios,
            "requests": verdict.requests,
            "met": verdict.met,
        }
        for verdict in report.verdicts
    ]
    whole = {
        "schema": SCHEMA,
        "started": report.started,
        "arguments": list(report.arguments),
        "rounds": report.rounds,
        "quick": report.quick,
        "machine": dict(report.machine),
        "versions": dict(report.versions),
        "code": report.code,
        "corpora": [corpus._asdict() for corpus in report.results.corpora.values()],
        "figures": figures,
        "targets": targets,
        "left_out": report.results.left_out,
        "problems": report.results.problems,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def as_markdown(report: Report, *, compact: bool) -> str:
    """Return the tables in Markdown; ``compact`` leaves out counts of requests."""
    blocks = [" ".join(f"{line.rstrip('.')}." for line in _facts(report))]
    for grid in _grids(report):
        lines = [
            f"| {grid.title} | {' | '.join(grid.subjects)} |",
            "|---" * (len(grid.subjects) + 1) + "|",
        ]
        for name, cells in grid.rows:
            if compact and any(cell and cell.unit == "requests" for cell in cells):
                continue
            texts = [_cell(cell, " ") for cell in cells]
            lines.append(f"| {_row_name(name, cells)} | {' | '.join(texts)} |")
        blocks.append("\n".join(lines))
    if report.verdicts:
        lines = ["| target | measured | ratio | bound | requests | |", "|---|---|---|---|---|---|"]
        for verdict in report.verdicts:
            row = " | ".join(_verdict_cells(verdict))
            lines.append(f"| {row} | {'met' if verdict.met else '**missed**'} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def check_readme(path: Path) -> None:
    """Raise ``BenchError`` unless ``path`` has a place for the figures."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot read {path}: {error.strerror}") from None
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        raise BenchError(f"{path} has no place for the figures: {BEGIN} … {END}")


def write_readme(path: Path, report: Report) -> None:
    """Put the compact tables into ``path``, in the place of the former ones."""
    check_readme(path)
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    block = as_markdown(report, compact=True)
    path.write_text(f"{before}{BEGIN}\n{block}{END}{after}", encoding="utf-8")
