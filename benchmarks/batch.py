"""How many jobs a second does `clawq enqueue --batch` take, and what does a job weigh?

The reference is a bare loop that inserts one row a job into a plain table (no index, no check, nothing read
from a file), durable, a thousand to a transaction: a floor for whatever keeps jobs in SQLite. The batch's
whole process is measured, start and end included. huey's figure is its own SQLite storage, task by task, as
it is used.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

JOBS = 200_000
ROUNDS = 3
TARGET = 3.0
"""The bare loop may be at most so many times as fast."""

TITLE = "Jobs a second into the queue, a thousand to a transaction"
CONFIG = "[limits]\nmax_queued = 100000000\nmax_queued_per_tenant = 100000000\n"
LINES: dict[str, Callable[[int], str]] = {
    "one command, a payload": lambda n: f'{{"command": ["true"], "payload": {{"n": {n}}}}}\n',
    "a command of its own each": lambda n: f'{{"command": ["echo", "page {n}"]}}\n',
    "a payload and a dedupe key": lambda n: (
        f'{{"command": ["true"], "payload": {{"n": {n}}}, "dedupe_key": "k{n}"}}\n'
    ),
}
_HUEY = """
import sys, time
from huey import SqliteHuey
huey = SqliteHuey(filename=sys.argv[1])
@huey.task()
def nothing(n):
    pass
began = time.perf_counter()
for n in range(int(sys.argv[2])):
    nothing(n)
print(int(sys.argv[2]) / (time.perf_counter() - began))
"""


def run() -> list[Row]:
    jobs = measure.size(JOBS, 2_000)
    rates: dict[str, list[float]] = {"bare loop": [], **{name: [] for name in LINES}, "huey on SQLite": []}
    weight = 0.0
    for _ in range(measure.size(ROUNDS, 1)):
        with measure.empty_home() as env:
            rates["bare loop"].append(_bare(f"{env['HOME']}/bare.db", jobs))
            huey = _huey(env, jobs // 20)
            if huey is not None:
                rates["huey on SQLite"].append(huey)
        for name, line in LINES.items():
            with measure.empty_home(CONFIG) as env:
                rate, weight_now = _batch(env, "".join(line(n) for n in range(jobs)), jobs)
                rates[name].append(rate)
                weight = weight_now if name == "one command, a payload" else weight
    floor = measure.median(rates["bare loop"])
    rows = []
    for name, values in rates.items():
        if not values:
            rows.append(Row(name, measure.MISSING))
            continue
        ratio = measure.median(values) / floor
        row = Row(name, *measure.rates(values), f"1 / {1 / ratio:.1f}")
        if name in LINES:
            row = row._replace(what=f"clawq enqueue --batch, {name}")
        if name == "one command, a payload":
            row = row._replace(target=f">= 1 / {TARGET:g}", good=ratio >= 1 / TARGET)
        rows.append(row)
    rows.append(Row("bytes of the database a queued job", f"{weight:.0f}"))
    return rows


def _bare(path: str, jobs: int) -> float:
    db = apsw.Connection(path)
    db.pragma("journal_mode", "wal")
    db.execute("PRAGMA synchronous=FULL")
    db.execute(
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind, tenant, band, priority, needs, state, changed_at,"
        " command, cwd, rank, created_at, accepted_at, run_after, ready_at)"
    )
    insert = (
        "INSERT INTO jobs (kind, tenant, band, priority, needs, state, changed_at, command, cwd, rank,"
        " created_at, accepted_at, run_after, ready_at)"
        " VALUES ('default', 'default', 2, 0, '', 'queued', ?1, '[\"true\"]', ?2, ?1, ?1, ?1, ?1, ?1)"
    )
    began = time.perf_counter()
    for first in range(0, jobs, 1_000):
        db.execute("BEGIN IMMEDIATE")
        for number in range(first, first + 1_000):
            db.execute(insert, (number, "/tmp"))
        db.execute("COMMIT")
    took = time.perf_counter() - began
    db.close()
    return jobs / took


def _batch(env: dict[str, str], lines: str, jobs: int) -> tuple[float, float]:
    """(jobs a second, bytes a job)."""
    file = Path(env["HOME"]) / "lines"
    file.write_text(lines)
    subprocess.run([CLAWQ, "config", "check"], env=env, capture_output=True, check=True)
    subprocess.run([CLAWQ, "enqueue", "--", "true"], env=env, check=True)  # the configuration is compiled now
    took = measure.whole_process([CLAWQ, "enqueue", "--batch", str(file)], env)
    home = Path(env["CLAWQ_HOME"])
    return jobs / took, sum((home / name).stat().st_size for name in ("clawq.db", "clawq.db-wal")) / jobs


def _huey(env: dict[str, str], tasks: int) -> float | None:
    python = measure.PEERS / "bin" / "python"
    if measure.program("huey_consumer") is None or not python.exists():
        return None
    done = subprocess.run(
        [str(python), "-c", _HUEY, f"{env['HOME']}/huey.db", str(tasks)],
        env=env,
        capture_output=True,
        text=True,
    )
    return float(done.stdout) if done.returncode == 0 else None


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
