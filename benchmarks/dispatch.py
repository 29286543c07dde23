"""How long after `enqueue` returned does the agent execute its first instruction, on an idle machine?

The agent is `/bin/sh -c 'echo >FIFO'`; what is timed is the arrival of its line, so the start of that shell
is in the figure, for clawq as for its neighbours.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import clawq
from benchmarks import measure
from benchmarks.measure import Row

ROUNDS = 150
AGENTS = 20
TARGET_MS = 8
"""Median, below which clawq wants to stay."""
TARGET_P99_MS = 25
"""With AGENTS at work, each of which writes a line a second."""

TITLE = "enqueue returned -> the agent's first instruction, live supervisor"
CONFIG = f"[limits]\nmax_running = {AGENTS + 4}\n"


def run() -> list[Row]:
    rows = []
    with measure.empty_home(CONFIG) as env:
        fifo = Fifo(Path(env["HOME"]) / "fifo")
        spawned = fifo.times(_spawner(fifo.agent))
        rows.append(Row("posix_spawn of the same agent", *measure.milliseconds(spawned)))
        rows += [_tsp(env, fifo), _nq(env, fifo), _spoolctl(env, fifo)]
        with measure.supervisor(env):
            os.environ["CLAWQ_HOME"] = env["CLAWQ_HOME"]
            direct = fifo.times(lambda: _enqueue(fifo.agent))
            command = fifo.times(lambda: _whole([measure.CLAWQ, "enqueue", "--", *fifo.agent], env))
            busy = _beside_others(env, fifo)
        rows.append(_row("clawq.enqueue() in Python", direct))
        rows.append(_row("clawq enqueue, its process ended", command))
        p99 = measure.percentile(busy, 99) * 1000
        value, spread = measure.milliseconds(busy)
        rows.append(
            Row(
                f"clawq enqueue, {AGENTS} agents at work",
                value,
                f"{spread}, p99 {p99:.1f}",
                "",
                f"p99 < {TARGET_P99_MS} ms",
                p99 < TARGET_P99_MS,
            )
        )
    return rows


class Fifo:
    """Where agents report; `agent` is the command that writes one line there."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open for writing too: never at end of file between two agents.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.agent = ["/bin/sh", "-c", f"echo >{path}"]

    def times(self, start: Callable[[], float], rounds: int | None = None) -> list[float]:
        """Seconds from the time that `start` returns to the agent's line, ROUNDS times, idle between."""
        pauses = random.Random(1)
        taken = []
        for turn in range((rounds or measure.size(ROUNDS, 3)) + 5):
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
    program = measure.program("tsp")
    if program is None:
        return Row("task-spooler (tsp)", measure.MISSING)
    tsp_env = {**env, "TS_SOCKET": str(Path(env["HOME"]) / "ts"), "TMPDIR": env["HOME"]}
    try:
        return Row(
            "task-spooler (tsp)",
            *measure.milliseconds(fifo.times(lambda: _whole([program, *fifo.agent], tsp_env))),
        )
    finally:
        subprocess.run([program, "-K"], env=tsp_env, capture_output=True)


def _nq(env: dict[str, str], fifo: Fifo) -> Row:
    program = measure.program("nq")
    if program is None:
        return Row("nq", measure.MISSING)
    queue = {**env, "NQDIR": env["HOME"]}
    taken = fifo.times(lambda: _whole([program, "-c", "-q", *fifo.agent], queue))
    return Row("nq", *measure.milliseconds(taken))


def _spoolctl(env: dict[str, str], fifo: Fifo) -> Row:
    program = measure.program("spoolctl")
    if program is None:
        return Row("spoolctl", measure.MISSING)
    queue = ["--db", f"{env['HOME']}/spool.db"]
    worker = subprocess.Popen(
        [program, "work", *queue], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def add() -> float:
        for _ in range(5):
            try:
                return _whole([program, "add", *queue, "--", *fifo.agent], env)
            except SystemExit:  # "queue database is busy", when its worker writes
                time.sleep(0.2)
        raise SystemExit("spoolctl add failed five times")

    try:
        taken = fifo.times(add, measure.size(15, 2))
        return Row("spoolctl, one worker that polls", *measure.milliseconds(taken))
    finally:
        worker.terminate()
        worker.wait()


def _beside_others(env: dict[str, str], fifo: Fifo) -> list[float]:
    for _ in range(AGENTS):
        agent = ["sh", "-c", "while echo alive; do sleep 1; done"]
        subprocess.run([measure.CLAWQ, "enqueue", "--", *agent], env=env, check=True)
    time.sleep(measure.size(3, 0))
    return fifo.times(lambda: _whole([measure.CLAWQ, "enqueue", "--", *fifo.agent], env))


def _row(what: str, taken: list[float]) -> Row:
    value, spread = measure.milliseconds(taken)
    spread += f", p99 {measure.percentile(taken, 99) * 1000:.1f}"
    return Row(what, value, spread, "", f"< {TARGET_MS} ms", measure.median(taken) * 1000 < TARGET_MS)


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
