"""How fast stock tools are on our mounts, beside a plain directory and squashfuse_ll."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchlib.corpora import Corpus
from benchlib.lab import Lab
from benchlib.model import BenchError, Reading, Trial
from benchlib.mounts import SUBJECTS, Subject
from benchlib.suites import Label, Setting, Suite

ABOUT = """\
Every trial has a mount of its own: a new daemon, an empty cache directory. A task's command runs
twice on it, `first` and `second`; the plain directory is only told warm. `mount` is from the start
of the mount command to the end of the first `ls`. Commands run at the root of the tree (`.`).
`requests` are the Chroma requests for page contents during the two runs; `memory` is the most the
daemon had resident. The answers of every subject are compared with the plain directory's: another
answer is a failure, not a figure. Nothing is dropped from the system's caches: the squashfs image
and the database's files are in the kernel's page cache for all."""

PATTERN = "streamText"


@dataclass(frozen=True, slots=True)
class Task:
    """A command on a tree; ``essence`` is what of its output has to be the same everywhere."""

    name: str
    command: Callable[[Corpus], Sequence[str]] | None = None
    essence: Callable[[bytes], object] = lambda output: sorted(output.split(b"\n"))
    codes: tuple[int, ...] = (0,)


TASKS = (
    Task("mount"),
    Task("find -type f", lambda _: ("find", ".", "-type", "f")),
    # Block counts, owners and link counts are a file system's own.
    Task("ls -lR", lambda _: ("ls", "-lR", "."), lambda output: output.count(b"\n")),
    Task("cat", lambda corpus: ("cat", corpus.middle_page), bytes),
    Task("grep -rl", lambda _: ("grep", "-rl", PATTERN, "."), codes=(0, 1)),
    Task("rg -l", lambda _: ("rg", "-l", PATTERN, "."), codes=(0, 1)),
)


def _prepare(setting: Setting, wanted: Sequence[Label]) -> list[Trial]:
    subjects = _prepared_subjects(setting, {label.subject for label in wanted})
    answers = {}
    for task in TASKS:
        if task.command and any(label.group == task.name for label in wanted):
            command = task.command(setting.corpus)
            if not shutil.which(command[0]):
                setting.results.left_out.append(f"{task.name}: {command[0]} is not installed")
                continue
            ran = setting.lab.run(command, cwd=setting.corpus.tree, codes=task.codes)
            answers[task.name] = task.essence(ran.output)
    tasks = {task.name: task for task in TASKS if task.command is None or task.name in answers}
    return [
        Trial(
            label.group,
            label.subject,
            partial(
                _run,
                setting.lab,
                setting.corpus,
                subjects[label.subject],
                tasks[label.group],
                answers.get(label.group),
            ),
        )
        for label in wanted
        if label.subject in subjects and label.group in tasks
    ]


def _prepared_subjects(setting: Setting, names: set[str]) -> dict[str, Subject]:
    prepared = {}
    for kind in SUBJECTS:
        if kind.name not in names:
            continue
        subject = kind()
        if missing := subject.missing():
            setting.results.left_out.append(f"{kind.name}: install {missing}")
            continue
        setting.teller.say(f"mount {setting.corpus.name} · preparing {kind.name}")
        try:
            subject.prepare(setting)
        except BenchError as error:
            setting.results.problems.append(f"{kind.name} cannot be prepared: {error}")
            continue
        prepared[kind.name] = subject
    return prepared


def _run(lab: Lab, corpus: Corpus, subject: Subject, task: Task, answer: object) -> list[Reading]:
    with subject.shown() as tree:
        if task.command is None:
            return [Reading("first ls", "s", tree.first_ls)] if tree.first_ls else []
        command = task.command(corpus)
        readings = []
        for phase in ("first", "second"):
            ran = lab.run(command, cwd=tree.root, codes=task.codes)
            if task.essence(ran.output) != answer:
                raise BenchError(f"{phase} `{' '.join(command)}` answers something else")
            if subject.has_first or phase == "second":
                readings.append(Reading(phase, "s", ran.seconds))
        return readings + tree.counters()


MOUNT = Suite(
    name="mount",
    about=ABOUT,
    labels=[
        Label(task.name, kind.name)
        for task in TASKS
        for kind in SUBJECTS
        if task.command or kind.name != "local"
    ],
    prepare=_prepare,
)
