"""How the demo talks: it says what comes, shows and runs the command, and notes what went otherwise."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CLAWQ = Path(sys.executable).parent / "clawq"


class Answer(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


class Stage:
    """One demo: its queue's folder, its environment and its complaints."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.complaints: list[str] = []
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("CLAWQ_")}
        self.env |= {"CLAWQ_HOME": str(home), "PATH": f"{CLAWQ.parent}:{os.environ.get('PATH', os.defpath)}"}

    def say(self, title: str, text: str) -> None:
        print(f"\n--- {title}\n{text}", flush=True)

    def run(self, *words: str, expect: int = 0) -> Answer:
        """Show and run `clawq WORDS`; another exit code than `expect` is a complaint."""
        print(f"$ {shlex.join(('clawq', *words))}", flush=True)
        answer = self.quietly(*words)
        for text in (answer.stdout, answer.stderr):
            if text.strip():
                print(text.rstrip("\n"))
        if answer.exit_code:
            print(f"(exit {answer.exit_code})")
        sys.stdout.flush()
        self.check(answer.exit_code == expect, f"clawq {words[0]}: exit {answer.exit_code}, not {expect}")
        return answer

    def quietly(self, *words: str) -> Answer:
        done = subprocess.run(
            [str(CLAWQ), *words],
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def ask(self, *words: str) -> Any:
        """The JSON that `clawq WORDS --json` prints; not shown."""
        answer = self.quietly(*words, "--json")
        try:
            return json.loads(answer.stdout)
        except ValueError:
            raise SystemExit(f"clawq {shlex.join(words)} --json: {answer.stderr or answer.stdout}") from None

    def enqueue(self, *words: str) -> int:
        """Show and run one `clawq enqueue --print-id`; the job's id."""
        answer = self.run("enqueue", *words, "--print-id")
        return int(answer.stdout)

    def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: after {seconds:.0f} s: {what} did not happen")
            time.sleep(0.1)

    def check(self, holds: bool, complaint: str) -> None:
        if not holds:
            self.complaints.append(complaint)
            print(f"!!! {complaint}", flush=True)
