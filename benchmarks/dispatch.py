"""How long after `enqueue` returned does the agent execute its first instruction, on an idle machine?

The agent is `/bin/sh -c 'echo >FIFO'`; what is timed is the arrival of its line, so the start of that shell
is in the figure, for clawq as for its neighbours.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import clawq
from benchmarks import measure
from benchmarks.measure import Row

ROUNDS = 150
TARGET_MS = 8
"""Median, below which clawq wants to stay."""

TITLE = "enqueue returned -> the agent's first instruction, idle machine, live supervisor"


def run() -> list[Row]:
    rows = []
    with measure.empty_home() as env:
        fifo = Fifo(Path(env["HOME"]) / "fifo")
        spawned = fifo.times(_spawner(fifo.agent))
        rows.append(Row("posix_spawn of the same agent", *measure.milliseconds(spawned)))
        rows.append(_tsp(env, fifo))
        with measure.supervisor(env):
            os.environ["CLAWQ_HOME"] = env["CLAWQ_HOME"]
            direct = fifo.times(lambda: _enqueue(fifo.agent))
            command = fifo.times(lambda: _whole([measure.CLAWQ, "enqueue", "--", *fifo.agent], env))
        rows.append(_row("clawq.enqueue() in Python", direct))
        rows.append(_row("clawq enqueue, its process ended", command))
    return rows


class Fifo:
    """Where agents report; `agent` is the command that writes one line there."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open for writing too: never at end of file between two agents.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.agent = ["/bin/sh", "-c", f"echo >{path}"]

    def times(self, start: Callable[[], float]) -> list[float]:
        """Seconds from the time that `start` returns to the agent's line, ROUNDS times, idle between."""
        pauses = random.Random(1)
        taken = []
        for turn in range(ROUNDS + 5):
            time.sleep(0.03 + pauses.random() * 0.04)  # let the end of the one before be recorded
            returned = start()
            if not select.select([self.descriptor], [], [], 10)[0]:
                raise SystemExit("no agent reported within ten seconds")
            arrived = time.perf_counter()
            os.read(self.descriptor, 4096)
            if turn >= 5:
                taken.append(arrived - returned)
        return taken


def _enqueue(agent: list[str]) -> float:
    clawq.enqueue(command=agent)
    return time.perf_counter()


def _whole(argv: list[str], env: dict[str, str]) -> float:
    measure.whole_process(argv, env)
    return time.perf_counter()


def _spawner(agent: list[str]) -> Callable[[], float]:
    pids: list[int] = []

    def spawn() -> float:
        if pids:
            os.waitpid(pids.pop(), 0)
        began = time.perf_counter()
        pids.append(os.posix_spawn(agent[0], agent, {}))
        return began

    return spawn


def _tsp(env: dict[str, str], fifo: Fifo) -> Row:
    program = shutil.which("tsp")
    if program is None:
        return Row("task-spooler (tsp)", "not installed")
    tsp_env = {**env, "TS_SOCKET": str(Path(env["HOME"]) / "ts"), "TMPDIR": env["HOME"]}
    try:
        return Row(
            "task-spooler (tsp)",
            *measure.milliseconds(fifo.times(lambda: _whole([program, *fifo.agent], tsp_env))),
        )
    finally:
        subprocess.run([program, "-K"], env=tsp_env, capture_output=True)


def _row(what: str, taken: list[float]) -> Row:
    value, spread = measure.milliseconds(taken)
    spread += f", p99 {measure.percentile(taken, 99) * 1000:.1f}"
    return Row(what, value, spread, "", f"< {TARGET_MS} ms", measure.median(taken) * 1000 < TARGET_MS)


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
