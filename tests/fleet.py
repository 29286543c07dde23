"""A real queue for acceptance tests: the command line in subprocesses, a supervisor beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clawq.paths import Home
from clawq.store import views
from clawq.store.connection import open_readonly
from tests.waiting import until

CLAWQ = [sys.executable, "-m", "clawq"]
ROOT = Path(__file__).parents[1]


class Fleet:
    """Runs `clawq` in one home. Every call is a process of its own, as a crontab's would be."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.scratch = Path(home.data).parent / "scratch"
        self.scratch.mkdir(exist_ok=True)

    def clawq(
        self, *words: object, code: int | None = 0, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        argv = [*CLAWQ, *map(str, words)]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=env)
        assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.clawq(*words, "--json", code=code).stdout)

    def enqueue(self, *words: object) -> int:
        """Enqueue one job; its id."""
        return int(self.clawq("enqueue", "--print-id", *words).stdout)

    def script(self, *words: str) -> int:
        """Enqueue a shell script with options before it: ``script("--needs", "browser", "sleep 1")``."""
        return self.enqueue(*words[:-1], "--", "sh", "-c", words[-1])

    def job(self, job_id: int) -> Any:
        return self.json("show", job_id)["job"]

    def state(self, job_id: int) -> str:
        """Read from the database: a process for each look would keep a core busy that the fleet needs."""
        db = open_readonly(self.home)
        assert db is not None, "nothing was ever enqueued"
        try:
            return views.state_of(db, job_id)
        finally:
            db.close()

    def until_state(self, job_id: int, *wanted: str, seconds: float = 20) -> str:
        return until(
            lambda: (state := self.state(job_id)) in wanted and state,
            seconds,
            lambda: f"job {job_id} is {self.json('show', job_id)}",
        )

    def configure(self, text: str) -> None:
        os.makedirs(self.home.data, mode=0o700, exist_ok=True)
        # Renamed into place, as editors do: no reader sees half of it.
        draft = Path(self.home.config + ".draft")
        draft.write_text(text)
        draft.rename(self.home.config)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A supervisor in the background, once it holds the lock and listens."""
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        with open(self.scratch / "said", "w") as said:
            process = subprocess.Popen([*CLAWQ, "run", *words], stderr=said, text=True, env=env)
        until(lambda: self.holder() == process.pid or process.poll() is not None, 20, "no supervisor started")
        return process

    def holder(self) -> int | None:
        """The pid in the lock file."""
        try:
            words = Path(self.home.lock).read_text().split()
        except FileNotFoundError:
            return None
        return int(words[0]) if words else None

    @contextmanager
    def supervised(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = self.start(*words)
        try:
            yield process
        finally:
            self.end(process)

    def end(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
        """Signal a supervisor and wait for its end; what it said on stderr."""
        if process.poll() is None:
            process.send_signal(number)
        process.wait(timeout=30)
        return self.said()

    def said(self) -> str:
        """What the last supervisor in the background has said."""
        return (self.scratch / "said").read_text()

    def run_until_idle(self) -> subprocess.CompletedProcess[str]:
        return self.clawq("run", "--until-idle")

    def lines(self, name: str) -> list[str]:
        """What agents appended to a file in the scratch folder."""
        path = self.scratch / name
        return path.read_text().splitlines() if path.exists() else []
