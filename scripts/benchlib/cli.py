"""The command line of ``scripts/bench``."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchlib import corpora, machine, peers, plot, report
from benchlib.ingest_suite import INGEST
from benchlib.lab import PROJECT, Lab
from benchlib.model import BenchError, Results, judge
from benchlib.mount_suite import MOUNT
from benchlib.mounts import SUBJECTS
from benchlib.pointer_suite import POINTERS
from benchlib.rounds import Teller, measure
from benchlib.search_suite import SEARCH
from benchlib.session_suite import SESSIONS
from benchlib.signals import Interrupted, listen
from benchlib.suites import Label, Setting, Suite
from benchlib.targets import TARGETS

SUITES = {suite.name: suite for suite in (INGEST, MOUNT, SEARCH, SESSIONS, POINTERS)}
SLOW = frozenset(kind.name for kind in SUBJECTS if kind.slow)
MIN_ROUNDS = 5
README = PROJECT / "README.md"

DESCRIPTION = """\
Measure ingest, mounts, searches, sessions and large objects, beside their peers, in one run on
one machine.

Subjects that are compared run side by side within a round, in changing order; a first round is
discarded. Printed are median, least and most of the rounds, and targets, met or missed: a ratio
is the median of the rounds' ratios. Progress goes to stderr. Everything happens in a temporary
directory and on loopback, and nothing stays mounted or running, on Ctrl-C either."""

EPILOG = """\
exit codes:
  0  everything was measured, whatever the targets say
  1  something failed; it is named under the tables and in the JSON
  2  wrong usage
  130, 143  interrupted; nothing is written

examples:
  scripts/bench --json build/bench.json
  scripts/bench mount --corpus ai20 --only grep
  scripts/bench ingest --corpus next --only ingest/embedded
  scripts/bench --corpus ai --corpus ai20 --readme
"""


def _parser() -> argparse.ArgumentParser:
    labels = "\n".join(
        f"  {suite.name}: groups {', '.join(dict.fromkeys(x.group for x in suite.labels))};"
        f" subjects {', '.join(dict.fromkeys(x.subject for x in suite.labels))}"
        for suite in SUITES.values()
    )
    abouts = "\n\n".join(f"{suite.name}:\n{suite.about}" for suite in SUITES.values())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=DESCRIPTION,
        epilog=f"{abouts}\n\nnames for --only:\n{labels}\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("suite", nargs="?", choices=[*SUITES, "all"], default="all", help="default: all")
    add(
        "--corpus",
        action="append",
        metavar=f"{'|'.join(corpora.NAMED)}|DIR",
        help="a tree of scripts/fetch-corpora (ai20: ai as twenty versions) or a directory;"
        " may be repeated [ai]",
    )
    add("--rounds", type=int, metavar="N", help=f"at least {MIN_ROUNDS} [{MIN_ROUNDS}]")
    add("--only", action="append", metavar="NAME", help="trials with NAME in suite/group/subject")
    add("--quick", action="store_true", help="one round, no warm-up: does it work at all")
    add("--json", type=Path, metavar="FILE", help="write everything, with every raw sample")
    add("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown")
    add("--plot", type=Path, metavar="FILE", help="draw cold and warm grep, as SVG")
    add(
        "--peer",
        type=int,
        nargs="?",
        const=0,
        metavar="N",
        help=f"also mirage-ai {peers.VERSION}, in N of the rounds [all]; it is slow, and installed"
        " from PyPI in the cache directory",
    )
    add(
        "--readme",
        type=Path,
        nargs="?",
        const=README,
        metavar="FILE",
        help=f"replace what stands between {report.BEGIN} and {report.END} there [README.md]",
    )
    return parser


@dataclass(frozen=True, slots=True)
class _Plan:
    suites: list[tuple[Suite, list[Label]]]
    corpora: list[str]
    rounds: int
    quick: bool
    peer: int | None


def _plan(options: argparse.Namespace) -> _Plan:
    """Return what to do. Raises ``BenchError`` for what cannot be meant."""
    names = list(SUITES) if options.suite == "all" else [options.suite]
    chosen = []
    for suite in (SUITES[name] for name in names):
        labels = [
            label
            for label in suite.labels
            if (options.peer is not None or label.subject not in SLOW)
            and (
                not options.only
                or any(
                    name in f"{suite.name}/{label.group}/{label.subject}" for name in options.only
                )
            )
        ]
        if labels:
            chosen.append((suite, labels))
    if not chosen:
        raise BenchError(f"--only {' '.join(options.only)} leaves nothing; see --help for names")
    rounds = options.rounds or (1 if options.quick else MIN_ROUNDS)
    if rounds < MIN_ROUNDS and not options.quick:
        raise BenchError(f"--rounds {rounds} is too few to tell a spread; --quick takes fewer")
    if options.readme:
        if options.quick and options.readme.resolve() == README:
            raise BenchError("a quick look is not for README.md")
        report.check_readme(options.readme)
    for path in (options.json, options.markdown, options.plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise BenchError(f"there is no directory {path.parent}")
    return _Plan(chosen, options.corpus or ["ai"], rounds, options.quick, options.peer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    listen()
    teller = Teller()
    try:
        plan = _plan(options)
    except BenchError as error:
        teller.line(str(error))
        return 2
    try:
        found = _run(plan, given, teller)
    except Interrupted as interrupt:
        teller.line(f"interrupted by {interrupt}; everything is stopped and unmounted")
        return 128 + interrupt.number
    except BenchError as error:
        teller.line(str(error))
        return 1
    report.print_report(found)
    if options.json:
        options.json.write_text(report.as_json(found), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(report.as_markdown(found, compact=False), encoding="utf-8")
    if options.plot:
        drawn = plot.grep_plot(found)
        if drawn is None:
            teller.line("there is no grep to plot")
        else:
            options.plot.write_text(drawn, encoding="utf-8")
    if found.results.problems:
        return 1
    if options.readme:
        report.write_readme(options.readme, found)
    return 0


def _run(plan: _Plan, arguments: Sequence[str], teller: Teller) -> report.Report:
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about_machine, code = machine.machine(), machine.code()
    if os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 2:
        teller.line("this machine is busy with other things: expect a wide spread")
    results = Results()
    if plan.peer is not None:
        teller.say(f"installing mirage-ai {peers.VERSION} unless it is there")
        peers.install()
    with Lab() as lab:
        for name in plan.corpora:
            corpus = corpora.load(name, lab)
            for suite, labels in plan.suites:
                _measure(plan, suite, labels, corpus, lab, results, teller)
        results.problems += [f"logged by a daemon: {line}" for line in lab.complaints()]
    if machine.code() != code and not plan.quick:
        results.problems.append("chromafuse was changed while it was measured")
    teller.line("done; everything is stopped and unmounted")
    verdicts = [
        verdict
        for target in TARGETS
        for corpus_name in results.corpora
        if (verdict := judge(target, corpus_name, results))
    ]
    return report.Report(
        started=started,
        arguments=arguments,
        rounds=plan.rounds,
        quick=plan.quick,
        machine=about_machine,
        versions=machine.versions(),
        code=code,
        suites=[suite for suite, _ in plan.suites],
        results=results,
        verdicts=verdicts,
    )


def _measure(
    plan: _Plan,
    suite: Suite,
    labels: Sequence[Label],
    corpus: corpora.Corpus,
    lab: Lab,
    results: Results,
    teller: Teller,
) -> None:
    with ExitStack() as stack:
        try:
            trials = suite.prepare(
                Setting(lab, corpus, stack, results, teller, peer_rounds=plan.peer or plan.rounds),
                labels,
            )
        except BenchError as error:
            results.problems.append(f"{suite.name} {corpus.name} cannot be prepared: {error}")
            return
        measure(
            suite.name,
            corpus.name,
            trials,
            results,
            teller,
            rounds=plan.rounds,
            warm_up=not plan.quick,
        )
