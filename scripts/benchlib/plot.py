"""The plot of a run: cold and warm ``grep -rl`` over the subjects, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from xml.sax.saxutils import escape

from benchlib.model import Figure, Key
from benchlib.report import Report, show

GROUP = "grep -rl"
PHASES = {"first": "cold: the first grep after the mount", "second": "warm: the second"}
WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 860, 250, 90, 84, 34, 58

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.small { font-size: 12px; fill: #59636e; }
.paper { fill: #ffffff; }
.grid { stroke: #d1d9e0; }
.first { fill: #b35900; stroke: #b35900; }
.second { fill: #0969da; stroke: #0969da; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.small { fill: #9198a1; }
.paper { fill: #0d1117; }
.grid { stroke: #3d444d; }
.first { fill: #f0883e; stroke: #f0883e; }
.second { fill: #58a6ff; stroke: #58a6ff; }
}"""


def grep_plot(report: Report) -> str | None:
    """Return the plot of the largest corpus, or None if there was no grep."""
    found = sorted(report.results.corpora.values(), key=lambda corpus: corpus.bytes)
    for corpus in reversed(found):
        rows: dict[str, dict[str, Figure]] = {}
        for suite in report.suites:
            for subject in dict.fromkeys(label.subject for label in suite.labels):
                for phase in PHASES:
                    key = Key(suite.name, corpus.name, GROUP, subject, phase)
                    if figure := report.results.figures.get(key):
                        rows.setdefault(subject, {})[phase] = figure
        if rows:
            title = (
                f"{GROUP} streamText on {corpus.name}: {corpus.pages:,} pages,"
                f" {corpus.bytes / 1e6:.0f} MB"
            )
            note = f"median and range of {report.rounds} rounds, {report.started[:10]}"
            return "\n".join(_lines(title, note, rows)) + "\n"
    return None


def _lines(title: str, note: str, rows: dict[str, dict[str, Figure]]) -> Iterator[str]:
    values = [value for row in rows.values() for figure in row.values() for value in figure.values]
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)
    height = TOP + ROW * len(rows) + BOTTOM
    floor = TOP + ROW * len(rows)

    def at(seconds: float) -> float:
        return LEFT + (math.log10(seconds) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">'
    )
    yield f"<style>{STYLE}\n</style>"
    yield f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>'
    yield f'<text class="title" x="16" y="28">{escape(title)}</text>'
    for number, (phase, words) in enumerate(PHASES.items()):
        left = 22 + 270 * number
        yield f'<circle class="{phase}" cx="{left}" cy="50" r="5"/>'
        yield f'<text x="{left + 12}" y="54.5">{escape(words)}</text>'
    for power in range(low, high + 1):
        for step in (1, 2, 5) if power < high else (1,):
            seconds = step * 10.0**power
            x = at(seconds)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{floor}"/>'
            label = f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
            yield (
                f'<text class="small" x="{x:.1f}" y="{floor + 18}" text-anchor="middle">'
                f"{label}</text>"
            )
    yield (
        f'<text class="small" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{floor + 40}"'
        f' text-anchor="middle">{escape(f"time, logarithmic; less is better; {note}")}</text>'
    )
    for number, (subject, row) in enumerate(rows.items()):
        y = TOP + ROW * (number + 0.5)
        yield (
            f'<text x="{LEFT - 14}" y="{y + 4.5:.1f}" text-anchor="end">{escape(subject)}</text>'
        )
        for phase, figure in row.items():
            yield from _mark(figure, phase, at, y + (3 if phase == "second" else -3))
    yield "</svg>"


def _mark(figure: Figure, phase: str, at: Callable[[float], float], y: float) -> Iterator[str]:
    least, most = at(min(figure.values)), at(max(figure.values))
    x = at(figure.median)
    yield (
        f'<line class="{phase}" stroke-width="2" x1="{least:.1f}" x2="{most:.1f}"'
        f' y1="{y:.1f}" y2="{y:.1f}"/>'
    )
    yield f'<circle class="{phase}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    anchor, label_x = ("end", least - 9) if phase == "second" else ("start", most + 9)
    yield (
        f'<text class="small" x="{label_x:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">'
        f"{show(figure.median, figure.unit)}</text>"
    )
