"""How many jobs of `true` a second, from the first start to the last recorded outcome?

Eight at a time everywhere. clawq's jobs wait in the queue already, written by one `enqueue --batch`; task-
spooler has no such thing, so its figure is add-and-run, as is nq's, which runs one at a time; GNU parallel
and xargs read their jobs from a file and record nothing. spoolctl's jobs are added before, and eight workers
drain them. task-spooler keeps a job's output in a file, as clawq does, unless it is asked with `-n` to keep
nothing at all.

Each has a home of its own, and what it costs to make a file there is measured before it begins: the one
before must not have made it dearer (measure.run_folder).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

JOBS = 2000
ROUNDS = 3
AT_ONCE = 8
TARGET = 1.3
"""At least so many times GNU parallel, and more than task-spooler."""
XARGS, PARALLEL, NQ, SPOOLCTL = (
    "xargs -P",
    "GNU parallel",
    "nq, add and run one by one",
    "spoolctl, 8 workers",
)
TSP, TSP_N = "task-spooler, add and run", "task-spooler -n, which keeps no output"
CLAWQ_JOBS, CLAWQ_WHOLE = "clawq", "clawq, with its start and end"


def jobs() -> int:
    """How many, in this run."""
    return measure.size(JOBS, 40)


TITLE = f"{JOBS:,} jobs of `true`, {AT_ONCE} at a time, median of {ROUNDS} rounds taken in turns"

CONFIG = f"""\
[limits]
max_running = {AT_ONCE}
max_queued = {JOBS * 2}
max_queued_per_tenant = {JOBS * 2}
"""


def run() -> list[Row]:
    contestants: dict[str, Callable[[dict[str, str]], float | None]] = {
        XARGS: _xargs,
        PARALLEL: _parallel,
        TSP: _tsp,
        TSP_N: partial(_tsp, options="-n"),
        NQ: _nq,
        SPOOLCTL: _spoolctl,
    }
    names = (*contestants, CLAWQ_JOBS, CLAWQ_WHOLE)
    rates: dict[str, list[float]] = {name: [] for name in names}
    new_files: list[float] = []
    for _ in range(measure.size(ROUNDS, 1)):
        for name, contest in contestants.items():
            with measure.empty_home() as env:
                new_files.append(measure.new_file_us(Path(env["HOME"])))
                rate = contest(env)
                if rate is not None:
                    rates[name].append(rate)
        with measure.empty_home(CONFIG) as env:
            new_files.append(measure.new_file_us(Path(env["HOME"])))
            recorded, whole = _clawq(env)
            rates[CLAWQ_JOBS].append(recorded)
            rates[CLAWQ_WHOLE].append(whole)
    middle = {name: measure.median(values) for name, values in rates.items() if values}
    rows = []
    for name in names:
        if name not in middle:
            rows.append(Row(name, measure.MISSING))
            continue
        row = Row(name, *measure.rates(rates[name]))
        if PARALLEL in middle:
            ratio = middle[name] / middle[PARALLEL]
            row = row._replace(ratio=f"{ratio:.2f} x")
            if name == CLAWQ_JOBS:
                row = row._replace(target=f">= {TARGET} x", good=ratio >= TARGET)
        rows.append(row)
    for name in (TSP, TSP_N):
        if name in middle:
            ratio = middle[CLAWQ_JOBS] / middle[name]
            row = Row(f"clawq to {name.partition(',')[0]}", "", ratio=f"{ratio:.2f} x")
            rows.append(row._replace(target="> 1 x", good=ratio > 1) if name == TSP else row)
    spread = f"{min(new_files):.0f} to {max(new_files):.0f}"
    return [*rows, Row("a new file, before each of them", f"{measure.median(new_files):.0f} us", spread)]


def _seconds(argv: list[str], env: dict[str, str], stdin: Path | None = None) -> float:
    with (stdin or Path("/dev/null")).open("rb") as source:
        began = time.perf_counter()
        subprocess.run(argv, env=env, stdin=source, capture_output=True, check=True)
        return time.perf_counter() - began


def _lines(env: dict[str, str]) -> Path:
    """A line for each job."""
    lines = Path(env["HOME"]) / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(jobs())))
    return lines


def _xargs(env: dict[str, str]) -> float | None:
    program = measure.program("xargs")
    if program is None:
        return None
    return jobs() / _seconds([program, "-P", str(AT_ONCE), "-n", "1", "true"], env, _lines(env))


def _parallel(env: dict[str, str]) -> float | None:
    program = measure.program("parallel")
    if program is None:
        return None
    # Without this file it prints how it wants to be cited, and waits.
    cited = Path(env["HOME"]) / ".parallel" / "will-cite"
    cited.parent.mkdir(exist_ok=True)
    cited.touch()
    return jobs() / _seconds([program, "-j", str(AT_ONCE), "true"], env, _lines(env))


def _tsp(env: dict[str, str], options: str = "") -> float | None:
    program = measure.program("tsp")
    if program is None:
        return None
    env = {**env, "TS_SOCKET": str(Path(env["HOME"]) / "ts"), "TS_MAXFINISHED": "10"}
    subprocess.run([program, "-S", str(AT_ONCE)], env=env, capture_output=True, check=True)
    try:
        # The last one started is not the last one to end: wait for every slot to be free.
        add = f'i=0; while [ $i -lt {jobs()} ]; do "$0" {options} true; i=$((i+1)); done'
        return jobs() / _seconds(["/bin/sh", "-c", f'{add}; "$0" -nf -N {AT_ONCE} true', program], env)
    finally:
        subprocess.run([program, "-K"], env=env, capture_output=True)


def _nq(env: dict[str, str]) -> float | None:
    program = measure.program("nq")
    if program is None:
        return None
    queue = Path(env["HOME"]) / "nq"
    queue.mkdir()
    loop = f'i=0; while [ $i -lt {jobs() // 10} ]; do "$0" -c -q true; i=$((i+1)); done; "$0" -q -w'
    seconds = _seconds(["/bin/sh", "-c", loop, program], {**env, "NQDIR": str(queue)})
    return jobs() // 10 / seconds  # it does a tenth of them: each waits for all before it


def _spoolctl(env: dict[str, str]) -> float | None:
    """Jobs a second; a tenth of them, since to add one costs what running one does elsewhere."""
    program = measure.program("spoolctl")
    if program is None:
        return None
    count = max(2, jobs() // 20)
    queue = ["--db", f"{env['HOME']}/spool.db"]
    for _ in range(count):
        subprocess.run([program, "add", *queue, "--", "true"], env=env, capture_output=True, check=True)
    began = time.perf_counter()
    workers = [
        subprocess.Popen(
            [program, "work", *queue, "--drain", "--worker-id", f"w{number}"],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(AT_ONCE)
    ]
    for worker in workers:
        worker.wait()
    return count / (time.perf_counter() - began)


def _clawq(env: dict[str, str]) -> tuple[float, float]:
    """Jobs a second from the first claim to the last recorded end, and by the supervisor's whole process."""
    batch = Path(env["HOME"]) / "batch"
    batch.write_text('{"command": ["true"]}\n' * jobs())
    subprocess.run([CLAWQ, "enqueue", "--batch", str(batch)], env=env, capture_output=True, check=True)
    whole = _seconds([CLAWQ, "run", "--until-idle"], env)
    import apsw

    db = apsw.Connection(str(Path(env["CLAWQ_HOME"]) / "clawq.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ended, first, last = db.execute(
        "SELECT count(*), min(claimed_at), max(ended_at) FROM attempts WHERE outcome = 'succeeded'"
    ).fetchall()[0]
    db.close()
    if ended != jobs() or not isinstance(first, int) or not isinstance(last, int):
        raise SystemExit(f"clawq recorded {ended} of {jobs()} jobs")
    return jobs() / ((last - first) / 1000), jobs() / whole


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
