"""How fast recursive searches are that are shown only the files that can match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchlib.corpora import Corpus
from benchlib.lab import COMMANDS
from benchlib.mount_suite import Task, does, prepare_tasks
from benchlib.mounts import ChromafuseServer, Local, Subject
from benchlib.suites import Label, Suite

ABOUT = """\
Stock grep and rg in a plain directory and on mounts on `chroma run`, warmed up unless it says so.
`first` follows the mount at once; `second` is the same command once more, for which the mount
remembers the candidates.
  every file     --pushdown off: what there is to gain
  nothing cached --warm off, a new daemon: Chroma is asked
  cgrep          --pushdown cgrep: only what `cgrep` asks for is narrowed"""

RARE, ABSENT = "resumable", "nosuchwordanywhere"
BROAD = "stream(Text|Object)"
ANY = "[0-9][0-9]*"
CGREP = str(COMMANDS / "cgrep")


class EveryFile(ChromafuseServer):
    """Searches are shown everything."""

    name = "every file"
    phases = ("second",)


class Narrowed(ChromafuseServer):
    """Searches are shown the files that can match; all is in memory."""

    name = "narrowed"
    pushdown = "auto"


class NothingCached(Narrowed):
    """The same, and nothing is fetched but what is wanted."""

    name = "narrowed, nothing cached"
    begins_within = 0.0

    def options(self) -> Sequence[str]:
        return ("--warm", "off")


class ByCgrep(Narrowed):
    """Only ``cgrep`` is shown less."""

    name = "cgrep"
    pushdown = "cgrep"
    tasks = frozenset({"cgrep rare"})


def _command(*words: str) -> Callable[[Corpus], Sequence[str]]:
    return lambda _: words


_FOUND = (0, 1)
TASKS = (
    Task("grep rare", _command("grep", "-rn", RARE, "."), codes=_FOUND),
    Task("grep absent", _command("grep", "-rn", ABSENT, "."), codes=_FOUND),
    Task("grep broad", _command("grep", "-rnE", BROAD, "."), codes=_FOUND),
    Task("grep anything", _command("grep", "-rn", ANY, "."), codes=_FOUND),
    Task("rg rare", _command("rg", "-n", RARE, "."), codes=_FOUND),
    Task(
        "cgrep rare",
        _command(CGREP, "-rn", RARE, "."),
        codes=_FOUND,
        subjects=frozenset({ByCgrep.name, "narrowed"}),
    ),
)
SUBJECTS: tuple[type[Subject], ...] = (Local, EveryFile, Narrowed, NothingCached, ByCgrep)

SEARCH = Suite(
    name="search",
    about=ABOUT,
    labels=[Label(task.name, kind.name) for task in TASKS for kind in SUBJECTS if does(kind, task)],
    prepare=partial(prepare_tasks, TASKS, SUBJECTS),
)
