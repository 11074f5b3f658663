"""Random searches with texts they are likely to match, run with the real grep and ripgrep.

A trial is one search over the texts of its batch. It fails if the program finds a text that the
query of the search does not admit.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chromafuse.domain.pattern import Needs, Program, Search, analyse, matcher
from tests.support.pattern_grammar import (
    DIALECTS,
    Dialect,
    Grammar,
    Sample,
    damaged,
    swapped,
)

LOCALES = (b"C", b"C.UTF-8", b"en_US.UTF-8", b"POSIX")
TIMEOUT_S = 20.0
ROUNDS_PER_BATCH = 25


@dataclass(frozen=True, slots=True)
class Trial:
    """One command line, without the files, and the environment it runs in."""

    program: Program
    argv: tuple[bytes, ...]
    environ: dict[bytes, bytes] = field(default_factory=dict)

    def search(self, directory: Path) -> Search:
        """Return what the analysis says; files of patterns are in ``directory``."""

        def read(path: bytes) -> bytes:
            return (directory / os.fsdecode(path)).read_bytes()

        return analyse(self.program, self.argv, self.environ, read)

    def __str__(self) -> str:
        return f"{self.environ.get(b'LC_ALL')!r} {self.program.value} {self.argv}"


@dataclass(slots=True)
class Tally:
    """What happened: trials, those with a filter, those that also matched; and failures."""

    trials: int = 0
    narrowed: int = 0
    matched: int = 0
    rejected: int = 0
    kept: int = 0
    files: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.trials} trials, {self.rejected} refused or stopped by the program, "
            f"{self.narrowed} with a filter, {self.matched} of them with matches, "
            f"{self.kept / max(1, self.files):.0%} of the files admitted by a filter, "
            f"{len(self.failures)} false negatives"
        )


class Fuzzer:
    """Runs random trials; all files are made in ``directory``."""

    def __init__(self, rng: random.Random, directory: Path) -> None:
        self._rng = rng
        self._directory = directory
        self.tally = Tally()

    def batch(self, rounds: int = ROUNDS_PER_BATCH) -> None:
        """Make ``rounds`` trials and run each over the texts of all."""
        made = [self.trial() for _ in range(rounds)]
        texts = list(dict.fromkeys(text for _, texts in made for text in texts))
        for number, text in enumerate(texts):
            (self._directory / str(number)).write_bytes(text)
        for trial, _ in made:
            self._run(trial, texts)

    def trial(self) -> tuple[Trial, list[bytes]]:
        """Return a trial, and texts it is likely to find."""
        rng = self._rng
        dialect = rng.choice(DIALECTS)
        patterns, texts = [], []
        single = dialect.options == ("-P",) and dialect.program is Program.GREP
        for _ in range(1 if single else rng.choice((1, 1, 1, 1, 2, 3))):
            pattern, sample = Grammar(rng, dialect).pattern()
            if rng.random() < 0.12:
                pattern = damaged(rng, pattern)
            patterns.append(pattern)
            texts += [self._text(sample) for _ in range(3)]
            texts.append(self._text(lambda pattern=pattern: pattern))  # type: ignore[misc]
        return self._command(dialect, patterns), texts

    def _text(self, sample: Sample) -> bytes:
        rng = self._rng
        lines = [rng.choice(("", "other", "a b", "x\0y"))] if rng.random() < 0.3 else []
        text = sample()
        if rng.random() < 0.4:
            text = swapped(rng, text)
        if rng.random() < 0.4:
            text = rng.choice(("", "a", " ", "é", "z ")) + text + rng.choice(("", "s", " ", "."))
        lines.append(text)
        end = rng.choice(("\n", "\n", "\r\n", ""))
        return ("\n".join(lines) + end).encode(errors="replace")

    def _command(self, dialect: Dialect, patterns: list[str]) -> Trial:
        rng = self._rng
        options = list(dialect.options)
        for option, chance in (("-i", 0.35), ("-w", 0.12), ("-x", 0.1), ("-a", 0.2), ("-n", 0.1)):
            if rng.random() < chance:
                options.append(option)
        environ = {b"PATH": os.fsencode(os.environ["PATH"])}
        if dialect.program is Program.RG:
            options += rng.choice(((), (), ("-S",), ("-U",), ("-U", "--multiline-dotall")))
            options += rng.choice(((), (), (), ("--engine=auto",), ("--crlf",)))
        else:
            environ[b"LC_ALL"] = rng.choice(LOCALES)
            if rng.random() < 0.05:
                options.append("--no-ignore-case")
        rng.shuffle(options)
        words = [option.encode() for option in options]
        encoded = [pattern.encode() for pattern in patterns]
        how = rng.random()
        if how < 0.1:
            name = f"patterns{rng.randrange(1 << 40):x}"
            content = b"\n".join(encoded) + rng.choice((b"\n", b""))
            (self._directory / name).write_bytes(content)
            return Trial(dialect.program, (*words, b"-f", name.encode()), environ)
        if how < 0.2 and dialect.program is Program.GREP:
            return Trial(dialect.program, (*words, b"-e", b"\n".join(encoded)), environ)
        for pattern in encoded:
            words += [b"-e", pattern] if how < 0.6 else [b"--regexp=" + pattern]
        return Trial(dialect.program, tuple(words), environ)

    def _run(self, trial: Trial, texts: Sequence[bytes]) -> None:
        tally = self.tally
        tally.trials += 1
        search = trial.search(self._directory)
        found = run(trial, self._directory, len(texts))
        if found is None:
            tally.rejected += 1
            return
        if search.needs is Needs.EVERYTHING:
            return
        tally.narrowed += 1
        tally.matched += bool(found)
        admits = matcher(search.query)
        admitted = {number for number, text in enumerate(texts) if admits(text)}
        tally.kept += len(admitted)
        tally.files += len(texts)
        tally.failures += [
            f"{trial} finds {texts[number]!r}, which {search.query} does not admit"
            for number in sorted(found - admitted)
        ]


def run(trial: Trial, directory: Path, count: int) -> set[int] | None:
    """Return the numbers of the texts found, or None if the program refused the pattern."""
    listing = (b"-l", b"--null", b"--")
    options = (b"--no-config", b"-j1") if trial.program is Program.RG else (b"-s",)
    names = (b"%d" % number for number in range(count))
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [trial.program.value.encode(), *trial.argv, *options, *listing, *names],
            cwd=directory,
            env=trial.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            close_fds=False,
            check=False,
        )
        if done.returncode in {0, 1}:
            return {int(name) for name in done.stdout.split(b"\0") if name}
    return None


def fuzz(seed: int, trials: int, directory: Path) -> Iterator[Tally]:
    """Run ``trials`` trials from ``seed`` and give the tally after each batch."""
    fuzzer = Fuzzer(random.Random(seed), directory)
    while fuzzer.tally.trials < trials:
        fuzzer.batch(min(ROUNDS_PER_BATCH, trials - fuzzer.tally.trials))
        for path in directory.iterdir():
            path.unlink()
        yield fuzzer.tally


def main(argv: Sequence[str] | None = None) -> int:
    """Run as ``scripts/fuzz-patterns``."""
    import argparse
    import tempfile

    parser = argparse.ArgumentParser(
        prog="fuzz-patterns",
        description="Run random searches with grep and rg, and check that no filter loses a "
        "file that they find. Exits with 1 if one does.",
        epilog="example: scripts/fuzz-patterns --trials 100000 --seed 7",
    )
    parser.add_argument(
        "--trials", type=int, default=10_000, metavar="N", help="how many (default: 10000)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="where to begin (default: a random number)"
    )
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    tally = Tally()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for tally in fuzz(seed, options.trials, Path(directory)):
            if tally.failures:
                break
            if tally.trials % 5_000 < ROUNDS_PER_BATCH:
                print(tally, flush=True)
    print(tally)
    print("\n".join(tally.failures[:20]), end="\n" if tally.failures else "")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
