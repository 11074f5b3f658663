"""How fast a tree gets into Chroma, beside a bare client that adds the same records."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchlib.lab import CHROMAFUSE, Lab
from benchlib.model import CorpusFacts, Reading, Trial
from benchlib.services import BACKENDS, COLLECTION, Backend, Work, embedded, facts, work
from benchlib.suites import Label, Setting, Suite

ABOUT = """\
Every trial begins with an empty database, and for `chroma run` with a new server.
  bare client  a chromadb client adds the very records that an ingest of the tree makes, from
               memory, 1,000 a call; `call` is the adding alone
  library      chromafuse.ingest with all imported and the collection open; `call` is the one call:
               reading, chunking, writing, switching the tree
  command      `chromafuse ingest`; `unchanged` is the same once more
`process` is the life of the whole process, Python's start and imports included; pages/s and
records/s are by `call`, for the command by `process`. CPU is the client's own, the embedded
database's with it, a server's not."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    lab: Lab
    tree: Path
    facts: CorpusFacts
    records: Path


def _prepare(setting: Setting, wanted: Sequence[Label]) -> list[Trial]:
    lab, tree = setting.lab, setting.corpus.tree
    records = lab.new_directory("records") / "records.json"
    setting.teller.say(f"ingest {setting.corpus.name} · learning what the records are")
    with embedded(lab) as target:
        found = facts(setting.corpus, work(lab, "ingest", target, tree))
        work(lab, "dump", target, records)
    setting.results.corpora[setting.corpus.name] = found
    prepared = _Prepared(lab, tree, found, records)
    return [
        Trial(
            label.group,
            label.subject,
            partial(_on_empty, BACKENDS[label.group], SUBJECTS[label.subject], prepared),
        )
        for label in wanted
    ]


def _on_empty(
    backend: Backend, run: Callable[[_Prepared, str], list[Reading]], prepared: _Prepared
) -> list[Reading]:
    with backend(prepared.lab) as target:
        # The last trial's dirty pages are not for this one to write back. Nothing is dropped.
        os.sync()
        return run(prepared, target)


def _bare(prepared: _Prepared, target: str) -> list[Reading]:
    return _from_within(prepared, work(prepared.lab, "bare", target, prepared.records))


def _library(prepared: _Prepared, target: str) -> list[Reading]:
    return _from_within(prepared, work(prepared.lab, "ingest", target, prepared.tree))


def _from_within(prepared: _Prepared, done: Work) -> list[Reading]:
    seconds = done.told["seconds"]
    return [
        Reading("call", "s", seconds),
        Reading("call, CPU", "s", done.told["cpu"]),
        *_rates(prepared.facts, seconds),
        Reading("process", "s", done.ran.seconds),
        Reading("memory", "MiB", done.ran.peak_bytes / 2**20),
    ]


def _command(prepared: _Prepared, target: str) -> list[Reading]:
    command = [CHROMAFUSE, "ingest", str(prepared.tree), "--chroma", target]
    command += ["--collection", COLLECTION]
    first = prepared.lab.run(command)
    again = prepared.lab.run(command)
    return [
        *_rates(prepared.facts, first.seconds),
        Reading("process", "s", first.seconds),
        Reading("memory", "MiB", first.peak_bytes / 2**20),
        Reading("unchanged", "s", again.seconds),
    ]


def _rates(found: CorpusFacts, seconds: float) -> list[Reading]:
    return [
        Reading("pages/s", "pages/s", found.pages / seconds),
        Reading("records/s", "records/s", found.records / seconds),
    ]


SUBJECTS = {"bare client": _bare, "library": _library, "command": _command}

INGEST = Suite(
    name="ingest",
    about=ABOUT,
    labels=[Label(backend, subject) for backend in BACKENDS for subject in SUBJECTS],
    prepare=_prepare,
)
