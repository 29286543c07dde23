"""What does one call of clawq cost, as a whole process? For a crontab line, and for an agent inside its job.

The reference is a bare script that opens the same database and inserts one row, durable. Everything is taken
in turns, after a warm-up. The hot verbs are called with the environment of a job that runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

ROUNDS = 60
TARGET = 1.3
"""At most so many times the bare script."""
TARGET_STATUS = 2.0

TITLE = "One call of clawq, the whole process, against a bare script that inserts one row"
CONFIG = "[budgets.tokens]\nlimit = 1000000000\nper = '1m'\n"

Argv = Callable[[int], list[str]]


def run() -> list[Row]:
    rounds = measure.size(ROUNDS, 2)
    with measure.empty_home(CONFIG) as env, measure.supervisor(env):
        inside = env | _job(env)
        bare = [
            sys.executable,
            str(Path(__file__).with_name("bare_insert.py")),
            f"{env['CLAWQ_HOME']}/clawq.db",
        ]
        calls: dict[str, tuple[Argv, dict[str, str], float | None]] = {
            "python -c pass": (lambda n: [sys.executable, "-c", "pass"], env, None),
            "bare script: same database, one row": (lambda n: bare, env, None),
            "clawq enqueue -- true": (lambda n: [CLAWQ, "enqueue", "--", "true"], env, TARGET),
            "clawq beat": (lambda n: [CLAWQ, "beat"], inside, TARGET),
            "clawq effect begin KEY": (lambda n: [CLAWQ, "effect", "begin", f"key {n}"], inside, TARGET),
            "clawq spend BUDGET N": (lambda n: [CLAWQ, "spend", "tokens", str(n + 1)], inside, TARGET),
            "clawq throttle R --for 0": (
                lambda n: [CLAWQ, "throttle", "shell", "--for", "0s"],
                inside,
                TARGET,
            ),
            "clawq fail --class transient": (
                lambda n: [CLAWQ, "fail", "--class", "transient"],
                inside,
                TARGET,
            ),
            "clawq wait ID (an ended job)": (lambda n: [CLAWQ, "wait", "2"], env, TARGET),
            "a completion: clawq _offer kinds": (lambda n: [CLAWQ, "_offer", "kinds"], env, TARGET_STATUS),
            "clawq status --json": (lambda n: [CLAWQ, "status", "--json"], env, TARGET_STATUS),
        }
        _add_neighbours(calls, env)
        taken: dict[str, list[float]] = {name: [] for name in calls}
        measure.until(
            lambda: subprocess.run([CLAWQ, "wait", "2"], env=env, capture_output=True).returncode == 0
        )
        try:
            for turn in range(-1, rounds):
                for name, (argv, environment, _) in calls.items():
                    took = measure.whole_process(argv(turn + 1), environment)
                    if turn >= 0:
                        taken[name].append(took)
        finally:
            for argv, environment, _ in calls.values():
                if "TS_SOCKET" in environment:  # its server outlives it
                    subprocess.run([argv(0)[0], "-K"], env=environment, capture_output=True)
    reference = measure.median(taken["bare script: same database, one row"])
    rows = []
    for name, (_, _, target) in calls.items():
        ratio = measure.median(taken[name]) / reference
        aim = "" if target is None else f"<= {target} x"
        good = None if target is None else ratio <= target
        rows.append(Row(name, *measure.milliseconds(taken[name]), f"{ratio:.2f} x", aim, good))
    missing = [name for name in ("spoolctl", "tsp", "nq") if measure.program(name) is None]
    return rows + [Row(name, measure.MISSING) for name in missing]


def _job(env: dict[str, str]) -> dict[str, str]:
    """The CLAWQ_ variables of job 1, which runs until the home is taken down. Job 2 has ended by then."""
    told = Path(env["HOME"]) / "told"
    script = f"env | grep ^CLAWQ_ > {told}.new; mv {told}.new {told}; exec sleep 600"
    for argv in (["sh", "-c", script], ["true"]):
        subprocess.run([CLAWQ, "enqueue", "--needs", "shell", "--", *argv], env=env, check=True)
    measure.until(told.exists)
    return dict(line.split("=", 1) for line in told.read_text().splitlines())


def _add_neighbours(calls: dict[str, tuple[Argv, dict[str, str], float | None]], env: dict[str, str]) -> None:
    spoolctl, tsp, nq = (measure.program(name) for name in ("spoolctl", "tsp", "nq"))
    if spoolctl:
        add = [spoolctl, "add", "--db", f"{env['HOME']}/spool.db", "--", "true"]
        calls["spoolctl add -- true"] = (lambda n: add, env, None)
    if tsp:
        own = {**env, "TS_SOCKET": f"{env['HOME']}/ts", "TMPDIR": env["HOME"], "TS_MAXFINISHED": "5"}
        calls["tsp -n true (keeps nothing on disk)"] = (lambda n: [tsp, "-n", "true"], own, None)
    if nq:
        queue = {**env, "NQDIR": env["HOME"]}
        calls["nq -q true (a log file is the queue)"] = (lambda n: [nq, "-c", "-q", "true"], queue, None)


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
