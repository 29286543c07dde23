"""Ends what tests leave behind when they are killed: ``python -m tests.guardian``, a home to watch a line.

Supervisors' agents outlive everybody, as they should; the end of stdin says that those who would have ended
them are gone. A line "-HOME" says that nothing is left there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil


class Guardian:
    """The process, as those see it whom it watches. It is no part of their group, so that no signal of theirs
    reaches it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
            start_new_session=True,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def dismiss(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def end_what_is_left(root: Path) -> None:
    """End a home's supervisor and agents: those named in a file they hold open."""
    held = [(root / "clawq.lock", 0), *((path, 1) for path in (root / "run").glob("*"))]
    for path, word in held:
        if not path.is_file():  # a pipe that a test put there would hold us up
            continue
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        # The lock names its holder in its first word; an attempt file says "r PID".
        for pid in {int(pid) for line in lines for pid in line.split()[word : word + 1] if pid.isdigit()}:
            if pid != os.getpid() and _holds_open(pid, path):
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)


def _holds_open(pid: int, path: Path) -> bool:
    try:
        return any(file.path == str(path) for file in psutil.Process(pid).open_files())
    except psutil.Error:
        return False


def main() -> None:
    watched: set[str] = set()
    for line in sys.stdin:
        home = line.rstrip("\n")
        if home.startswith("-"):
            watched.discard(home[1:])
        else:
            watched.add(home)
    for home in watched:
        end_what_is_left(Path(home))
        shutil.rmtree(Path(home).parent, ignore_errors=True)


if __name__ == "__main__":
    main()
