"""How many jobs of `true` a second, from the first start to the last recorded outcome?

Eight at a time everywhere. clawq's jobs wait in the queue already, written by one `enqueue --batch`; task-
spooler has no such thing, so its figure is add-and-run, as is nq's, which runs one at a time; GNU parallel
and xargs read their jobs from a file and record nothing. spoolctl's jobs are added before, and eight workers
drain them. Before each there is a rest: an ext4 without a journal does not give the inodes of deleted files
out again for five seconds and walks over them whenever one is made: each would pay for the one before.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

JOBS = 2000
ROUNDS = 3
AT_ONCE = 8
REST_S = 6
TARGET = 1.3
"""At least so many times GNU parallel, and more than task-spooler."""


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
    rates: dict[str, list[float]] = {
        name: []
        for name in (
            "xargs -P",
            "GNU parallel",
            "task-spooler, add and run",
            "nq, add and run one by one",
            "spoolctl, 8 workers",
            "clawq",
            "clawq, with its start and end",
        )
    }
    for _ in range(measure.size(ROUNDS, 1)):
        with measure.empty_home() as env:
            lines = Path(env["HOME"]) / "lines"
            lines.write_text("".join(f"{number}\n" for number in range(jobs())))
            _add(rates["xargs -P"], _xargs(env, lines))
            _rest()
            _add(rates["GNU parallel"], _parallel(env, lines))
            _rest()
            _add(rates["task-spooler, add and run"], _tsp(env))
            _rest()
            _add(rates["nq, add and run one by one"], _nq(env))
            _rest()
            spooled = _spoolctl(env)
            if spooled is not None:
                rates["spoolctl, 8 workers"].append(spooled)
        _rest()
        with measure.empty_home(CONFIG) as env:
            recorded, whole = _clawq(env)
            rates["clawq"].append(recorded)
            rates["clawq, with its start and end"].append(whole)
        _rest()
    parallel = measure.median(rates["GNU parallel"]) if rates["GNU parallel"] else None
    spooler = (
        measure.median(rates["task-spooler, add and run"]) if rates["task-spooler, add and run"] else None
    )
    rows = []
    for name, values in rates.items():
        if not values:
            rows.append(Row(name, measure.MISSING))
            continue
        ratio = measure.median(values) / parallel if parallel else None
        row = Row(name, *measure.rates(values), f"{ratio:.2f} x" if ratio else "")
        if name == "clawq":
            held = ratio is not None and ratio >= TARGET and measure.median(values) > (spooler or 0)
            row = row._replace(target=f">= {TARGET} x, > tsp", good=held if parallel and spooler else None)
        rows.append(row)
    return rows


def _rest() -> None:
    time.sleep(measure.size(REST_S, 0))


def _add(values: list[float], seconds: float | None) -> None:
    if seconds is not None:
        values.append(jobs() / seconds)


def _seconds(argv: list[str], env: dict[str, str], stdin: Path | None = None) -> float:
    with (stdin or Path("/dev/null")).open("rb") as source:
        began = time.perf_counter()
        subprocess.run(argv, env=env, stdin=source, capture_output=True, check=True)
        return time.perf_counter() - began


def _xargs(env: dict[str, str], lines: Path) -> float | None:
    program = measure.program("xargs")
    return _seconds([program, "-P", str(AT_ONCE), "-n", "1", "true"], env, lines) if program else None


def _parallel(env: dict[str, str], lines: Path) -> float | None:
    program = measure.program("parallel")
    if program is None:
        return None
    # Without this file it prints how it wants to be cited, and waits.
    cited = Path(env["HOME"]) / ".parallel" / "will-cite"
    cited.parent.mkdir(exist_ok=True)
    cited.touch()
    return _seconds([program, "-j", str(AT_ONCE), "true"], env, lines)


def _tsp(env: dict[str, str]) -> float | None:
    program = measure.program("tsp")
    if program is None:
        return None
    env = {**env, "TS_SOCKET": str(Path(env["HOME"]) / "ts"), "TMPDIR": env["HOME"], "TS_MAXFINISHED": "10"}
    subprocess.run([program, "-S", str(AT_ONCE)], env=env, capture_output=True, check=True)
    try:
        # The last one started is not the last one to end: wait for every slot to be free.
        loop = (
            f'i=0; while [ $i -lt {jobs()} ]; do "$0" -n true; i=$((i+1)); done; "$0" -nf -N {AT_ONCE} true'
        )
        return _seconds(["/bin/sh", "-c", loop, program], env)
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
    return seconds * 10  # it does a tenth of them: each waits for all before it


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
