"""One soak: servers, a hub, readers, re-ingests, sessions and faults side by side."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchlib.lab import CHROMAFUSE, Lab
from benchlib.model import BenchError

from soaklib import servers
from soaklib.growth import Sample, growth, sample
from soaklib.history import GRACE, History
from soaklib.readers import Reader, View
from soaklib.servers import Server
from soaklib.source import GROUP, Source

COLLECTION = "soak"
COMMAND_SECONDS = 120.0
SAMPLE_SECONDS = 1.0
JOIN_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for. Times in seconds."""

    seconds: float
    seed: int
    readers: int
    faults: bool


class Soak:
    """A run of a plan in a lab."""

    def __init__(self, plan: Plan, lab: Lab) -> None:
        self._plan = plan
        self._lab = lab
        self._random = random.Random(plan.seed)  # noqa: S311
        source = lab.new_directory("source")
        self.history = History(Source(source, plan.seed))
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._samples: list[Sample] = []
        self._point = lab.new_directory("hub")
        self._log = lab.root / "hub.log"
        lab.environment["AWS_ACCESS_KEY_ID"], lab.environment["AWS_SECRET_ACCESS_KEY"] = (
            servers.KEYS
        )

    def run(self) -> bool:
        """Return whether all was right. Raises ``BenchError`` if it could not be done."""
        with ExitStack() as stack:
            self._servers = self._start(stack)
            self._hub()
            stack.callback(self._end_threads)
            self._begin()
            self._disturb()
            self._end_threads()
            self._final()
        return not self.history.wrong

    def _start(self, stack: ExitStack) -> list[Server]:
        started = []
        for make in (servers.chroma, servers.redis, servers.s3):
            server, url = make(self._lab)
            stack.callback(server.kill)
            # Killed while it is stopped, it would be gone as well; this is for its children.
            stack.callback(partial(server.signal, signal.SIGCONT))
            setattr(self, f"_{server.name}", url)
            started.append(server)
        return started

    # Typed here, set by name in _start.
    _chroma: str
    _redis: str
    _s3: str

    def _command(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHROMAFUSE, *map(str, words)],
            cwd=self._lab.root,
            env=self._lab.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_SECONDS,
        )

    def _must(self, *words: str | Path) -> str:
        try:
            done = self._command(*words)
        except subprocess.TimeoutExpired:
            raise BenchError(f"`chromafuse {words[0]}` took over {COMMAND_SECONDS:.0f} s") from None
        if done.returncode:
            raise BenchError(f"`chromafuse {words[0]}` ended with {done.returncode}: {done.stderr}")
        return done.stdout.rstrip("\n")

    def _where(self) -> list[str]:
        return ["--collection", COLLECTION, "--chroma", self._chroma, "--s3-endpoint", self._s3]

    def _ingest(self) -> list[str | Path]:
        place = f"s3://{servers.BUCKET}/files"
        upload = ["--upload-over", "100000", "--upload-to", place]
        return ["ingest", self.history.source.root, *self._where(), *upload]

    def _hub(self) -> None:
        number = self.history.source.next_tree()
        self.history.source.write(number)
        with self.history.ingest(number):
            self._must(*self._ingest())
        self._metrics = f"127.0.0.1:{servers.free_port()}"
        self._must(
            "hub", self._point, *self._where(),
            "--refresh", "1", "--deadline", "4", "--cache-size", "16MB", "--redis", self._redis,
            "--pointers-allowed", f"s3://{servers.BUCKET}/files",
            "--metrics", self._metrics, "--log-file", self._log,
        )  # fmt: skip
        (status,) = json.loads(self._must("status", self._point, "--json"))
        self._daemon = int(status["pid"])
        self._all = View(Path(self._open("--groups", GROUP)), sees_all=True)
        self._anonymous = View(Path(self._open()), sees_all=False)

    def _open(self, *options: str) -> str:
        return self._must("session", "open", "--hub", self._point, *options)

    # Side by side

    def _begin(self) -> None:
        work: list[Callable[[], None]] = [self._reingest, self._sessions]
        for number in range(self._plan.readers):
            view = (self._all, self._anonymous)[number % 2]
            reader = self._reader(view, f"reader {number}")
            work.append(partial(reader.run, self._stop))
        for each in work:
            thread = threading.Thread(target=self._guarded, args=(each,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _reader(self, view: View, name: str) -> Reader:
        return Reader(self.history, view, f"{self._plan.seed} {name}", self._lab.environment)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - told in the report; the others go on
            self.history.is_wrong(f"unexpected {error!r}")

    def _reingest(self) -> None:
        """Change the source and store it, again and again."""
        chance = random.Random(f"{self._plan.seed} ingest")  # noqa: S311
        while not self._stop.wait(chance.uniform(0.5, 4)):
            number = self.history.source.next_tree()
            self.history.source.write(number)
            while not self._stored(number) and not self._stop.wait(1):
                pass

    def _stored(self, number: int) -> bool:
        """Ingest once and return whether that worked; it has to, unless a server is disturbed."""
        since = time.monotonic()
        try:
            with self.history.ingest(number):
                self._must(*self._ingest())
        except BenchError as error:
            if not self.history.disturbed(since, time.monotonic(), ("chroma", "s3")):
                self.history.is_wrong(str(error))
            self.history.count("failed re-ingests")
            return False
        self.history.count("re-ingests")
        return True

    def _sessions(self) -> None:
        """Open sessions, read in them and close them: their paths are gone then."""
        chance = random.Random(f"{self._plan.seed} sessions")  # noqa: S311
        while not self._stop.wait(chance.uniform(0.2, 1)):
            sees_all = chance.random() < 0.5
            options = ["--groups", GROUP] if sees_all else []
            view = View(Path(self._open(*options)), sees_all=sees_all)
            self.history.count("sessions")
            reader = self._reader(view, f"session {chance.random()}")
            for _ in range(chance.randint(1, 20)):
                reader.whole(view)
            self._must("session", "close", "--hub", self._point, view.root)
            if os.path.exists(view.root):
                self.history.is_wrong("a closed session is still there")

    def _disturb(self) -> None:
        """Disturb servers, and watch the daemon, until the time is over."""
        ends = self.history.start + self._plan.seconds
        quiet = min(2 * GRACE, self._plan.seconds / 4)
        next_fault = time.monotonic() + self._random.uniform(1, quiet)
        while time.monotonic() < ends and not self._stop.is_set():
            self._watch()
            time.sleep(SAMPLE_SECONDS)
            if self._plan.faults and time.monotonic() > next_fault:
                self._fault()
                next_fault = time.monotonic() + self._random.uniform(1, quiet)

    def _fault(self) -> None:
        server = self._random.choice(self._servers)
        kills = self._random.random() < 0.5
        seconds = self._random.uniform(0.3, 8)
        self.history.note(f"{'SIGKILL' if kills else 'SIGSTOP'} {server.name} for {seconds:.1f} s")
        with self.history.fault(server.name):
            if kills:
                server.kill()
            else:
                server.signal(signal.SIGSTOP)
            time.sleep(seconds)
            if kills:
                server.start()
            else:
                server.signal(signal.SIGCONT)
        self.history.count(f"faults of {server.name}")

    def _watch(self) -> None:
        found = sample(self._daemon)
        if found is None:
            self.history.is_wrong("the daemon is gone")
            self._stop.set()
            return
        self._samples.append(found)
        try:
            with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as answer:
                if b"chromafuse_pages" not in answer.read():
                    self.history.is_wrong("the metrics have no chromafuse_pages")
            self.history.count("metrics")
        except OSError as error:
            self.history.is_wrong(f"the metrics do not answer: {error}")

    # The end

    def _end_threads(self) -> None:
        self._stop.set()
        ends = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
            if thread.is_alive():
                self.history.is_wrong("a reader hangs")
        self._threads.clear()

    def _final(self) -> None:
        """Store once more with all servers up, compare everything, and end the hub."""
        history, source = self.history, self.history.source
        number = source.next_tree()
        source.write(number)
        if not self._stored(number):
            history.is_wrong("the last ingest failed")
        ends = time.monotonic() + 3 * GRACE
        while (different := self._differences()) and time.monotonic() < ends:
            time.sleep(0.5)
        for line in different[:5]:
            history.is_wrong(f"in the end: {line}")
        self._must("umount", self._point)
        text = self._log.read_text(errors="replace")
        for line in text.split("\n"):
            if "Traceback" in line or "unexpected" in line or " CRITICAL " in line:
                history.is_wrong(f"logged: {line}")
        history.count("log lines", text.count("\n"))

    def _differences(self) -> list[str]:
        done = subprocess.run(
            ["diff", "-rq", str(self.history.source.root), str(self._all.root)],
            env=self._lab.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        # Directories of which nothing is left are not stored.
        lines = (done.stdout + done.stderr).split("\n")
        return [line for line in lines if line and not self._is_empty(line)]

    def _is_empty(self, line: str) -> bool:
        place, _, name = line.removeprefix("Only in ").partition(": ")
        path = Path(place, name)
        return path.is_dir() and not any(path.iterdir())

    def report(self) -> str:
        """Return what happened, in lines."""
        history = self.history
        lines, grown = growth(self._samples)
        history.wrong += grown
        counts = [f"  {name:<20} {number:,}" for name, number in sorted(history.counts.items())]
        seconds = time.monotonic() - history.start
        return "\n".join(
            [
                f"seed {self._plan.seed}, {seconds:.0f} s, {self._plan.readers} readers",
                *counts,
                *(f"  {line}" for line in lines),
                f"wrong: {len(history.wrong)}",
                *(f"  {text}" for text in history.wrong[:20]),
            ]
        )
