"""How fast stock tools are on our mounts, beside a plain directory and squashfuse_ll."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchlib.corpora import Corpus
from benchlib.lab import Lab
from benchlib.model import BenchError, Reading, Trial
from benchlib.mounts import SUBJECTS, ChromafuseServer, Subject, database, slug_of
from benchlib.services import BACKENDS, work
from benchlib.suites import Label, Setting, Suite

ABOUT = """\
Every trial has a mount of its own: a new daemon, an empty cache directory. A task's command runs
twice on it: `first` begins when the mount command has returned, while our mount still warms up in
the background, `second` when it is done with that; the plain directory is only told warm. `mount`
is from the start of the mount command to the end of the first `ls`. Commands run at the root of
the tree (`.`).
`requests` are the Chroma requests for page contents since the mount, a warm-up's too, and
`requests, second` those during the second run; `memory` is the most the
daemon had resident. The answers of every subject are compared with the plain directory's: another
answer is a failure, not a figure. Nothing is dropped from the system's caches: the squashfs image
and the database's files are in the kernel's page cache for all. Our mounts show searches every
file (`--pushdown off`); the suite `search` measures what is gained by showing them fewer.
  --warm off            fetches nothing but what is read: its requests are the command's alone
  filled Redis          filled by an earlier mount; nothing else is cached
  20 ms                 a relay on loopback lets every request to Chroma wait for so long
  tree on disk          the cache directory is that of an earlier mount
  14,080 slugs on disk  the same with as many pages as MDN has, of one line each
  bare client           a chromadb client in a new process, its imports and opening not timed:
                        `bulk read` of all chunks, and `get` of the page that `cat` reads
  mirage-ai             only with --peer, on a copy of the chunks in its own form"""

PATTERN = "streamText"
EIGHT_SUBJECT = ChromafuseServer.name
BARE = {f"bare client ({backend})": backend for backend in BACKENDS}
BARE_TASKS = {"cat": "get", "grep -rl": "bulk"}


@dataclass(frozen=True, slots=True)
class Task:
    """A command on a tree; ``essence`` is what of its output has to be the same everywhere."""

    name: str
    command: Callable[[Corpus], Sequence[str]] | None = None
    essence: Callable[[bytes], object] = lambda output: sorted(output.split(b"\n"))
    codes: tuple[int, ...] = (0,)
    subjects: frozenset[str] | None = None
    """Names of the subjects that do it; None: all."""


EIGHT = f"{{ for i in 1 2 3 4 5 6 7 8; do rg -l {PATTERN} . & done; wait; }} | cat"

TASKS = (
    Task("mount"),
    Task("find -type f", lambda _: ("find", ".", "-type", "f")),
    # Block counts, owners and link counts are a file system's own.
    Task("ls -lR", lambda _: ("ls", "-lR", "."), lambda output: output.count(b"\n")),
    Task("cat", lambda corpus: ("cat", corpus.middle_page), bytes),
    Task("grep -rl", lambda _: ("grep", "-rl", PATTERN, "."), codes=(0, 1)),
    Task("rg -l", lambda _: ("rg", "-l", PATTERN, "."), codes=(0, 1)),
    Task("rg -j8 -l", lambda _: ("rg", "-j8", "-l", PATTERN, "."), codes=(0, 1)),
    # Eight writers part its lines anywhere; they share a pipe, as in a memory file they would
    # overwrite each other.
    Task("8 x rg -l", lambda _: ("sh", "-c", EIGHT), len, subjects=frozenset({EIGHT_SUBJECT})),
)


def prepare_tasks(
    tasks_of_suite: Sequence[Task],
    kinds: Sequence[type[Subject]],
    setting: Setting,
    wanted: Sequence[Label],
) -> list[Trial]:
    """Make a trial of each of the suite's tasks for each of its subjects that is wanted."""
    subjects = _prepared_subjects(kinds, setting, {label.subject for label in wanted})
    for subject in {label.subject for label in wanted} & BARE.keys():
        database(setting, BARE[subject])
    answers = {}
    for task in tasks_of_suite:
        if task.command and any(label.group == task.name for label in wanted):
            command = task.command(setting.corpus)
            if not shutil.which(command[0]):
                setting.results.left_out.append(f"{task.name}: {command[0]} is not installed")
                continue
            ran = setting.lab.run(command, cwd=setting.corpus.tree, codes=task.codes)
            answers[task.name] = task.essence(ran.output)
    tasks = {
        task.name: task for task in tasks_of_suite if task.command is None or task.name in answers
    }
    bare = [
        Trial(label.group, label.subject, partial(_bare, setting, label))
        for label in wanted
        if label.subject in BARE
    ]
    return bare + [
        Trial(
            label.group,
            label.subject,
            rounds=setting.peer_rounds if subjects[label.subject].slow else None,
            run=partial(
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


def _prepared_subjects(
    kinds: Sequence[type[Subject]], setting: Setting, names: set[str]
) -> dict[str, Subject]:
    prepared = {}
    for kind in kinds:
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
        for phase in subject.phases:
            before = None
            if phase == "second":
                tree.settle()
                before = tree.requests()
            ran = lab.run(command, cwd=tree.root, codes=task.codes)
            if task.essence(ran.output) != answer:
                raise BenchError(f"{phase} `{' '.join(command)}` answers something else")
            if subject.has_first or phase == "second":
                readings.append(Reading(phase, "s", ran.seconds))
            if before is not None and (after := tree.requests()) is not None:
                readings.append(Reading("requests, second", "requests", after - before))
        return readings + tree.counters()


def _bare(setting: Setting, label: Label) -> list[Reading]:
    target = database(setting, BARE[label.subject])
    if BARE_TASKS[label.group] == "get":
        done = work(setting.lab, "get", target, slug_of(setting.corpus.middle_page))
        if not done.told["records"]:
            raise BenchError(f"no chunks of {setting.corpus.middle_page}")
        return [Reading("get", "s", done.told["seconds"])]
    done = work(setting.lab, "bulk", target, "-")
    if done.told["records"] < setting.results.corpora[setting.corpus.name].chunks:
        raise BenchError("not all chunks were read")
    return [Reading("bulk read", "s", done.told["seconds"])]


def does(kind: type[Subject], task: Task) -> bool:
    """Return whether a subject takes part in a task."""
    if kind.tasks is not None and task.name not in kind.tasks:
        return False
    if task.subjects is not None and kind.name not in task.subjects:
        return False
    return task.command is not None or kind.name != "local"


MOUNT = Suite(
    name="mount",
    about=ABOUT,
    labels=[
        *(Label(task.name, kind.name) for task in TASKS for kind in SUBJECTS if does(kind, task)),
        *(Label(task, subject) for task in BARE_TASKS for subject in BARE),
    ],
    prepare=partial(prepare_tasks, TASKS, SUBJECTS),
)
