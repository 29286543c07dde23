"""How many jobs a second does `clawq enqueue --batch` take, and what does a job weigh?

Two loops stand beside it, both durable, with a thousand rows to a transaction. The harsh one is the
reference and the target's: one row a job into a plain table, with no index and no check, and nothing read
from a file: a floor for whatever keeps jobs in SQLite. The fair one does what a script would have to: it
reads the same lines with `json.loads` and inserts them into the table `jobs` of a real queue, indexes, checks
and triggers as they are. What the batch does beyond that (options, caps, keys, answers) is on top.

Of the batch the whole process is measured, start and end included. huey's figure is its own SQLite storage,
task by task, as it is used.
"""

from __future__ import annotations

import json
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
BARE = "a bare loop into a plain table"
SAME_TABLE = "a loop that reads the lines, into the queue's own table"
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
    rates: dict[str, list[float]] = {
        BARE: [],
        SAME_TABLE: [],
        **{name: [] for name in LINES},
        "huey on SQLite": [],
    }
    weight = 0.0
    for _ in range(measure.size(ROUNDS, 1)):
        with measure.empty_home() as env:
            rates[BARE].append(_bare(f"{env['HOME']}/bare.db", jobs))
            huey = _huey(env, jobs // 20)
            if huey is not None:
                rates["huey on SQLite"].append(huey)
        with measure.empty_home(CONFIG) as env:
            line = LINES["one command, a payload"]
            rates[SAME_TABLE].append(_same_table(env, [line(n) for n in range(jobs)]))
        for name, line in LINES.items():
            with measure.empty_home(CONFIG) as env:
                rate, weight_now = _batch(env, "".join(line(n) for n in range(jobs)), jobs)
                rates[name].append(rate)
                weight = weight_now if name == "one command, a payload" else weight
    floor = measure.median(rates[BARE])
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


def _same_table(env: dict[str, str], lines: list[str]) -> float:
    _make_queue(env)
    db = apsw.Connection(f"{env['CLAWQ_HOME']}/clawq.db")
    db.execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON")
    insert = (
        "INSERT INTO jobs (kind, tenant, band, priority, needs, state, reason, changed_at, command, payload,"
        " cwd, path, rank, created_at, accepted_at, run_after, ready_at)"
        " VALUES ('default', 'default', 2, 0, '', 'queued', 'enqueued', ?1, ?2, ?3,"
        " ?4, ?5, ?1, ?1, ?1, ?1, ?1)"
    )
    began = time.perf_counter()
    for first in range(0, len(lines), 1_000):
        db.execute("BEGIN IMMEDIATE")
        now = time.time_ns() // 1_000_000
        for line in lines[first : first + 1_000]:
            given = json.loads(line)
            command, payload = json.dumps(given["command"]), json.dumps(given["payload"])
            db.execute(insert, (now, command, payload, "/tmp", env["PATH"]))
        db.execute("COMMIT")
    took = time.perf_counter() - began
    db.close()
    return len(lines) / took


def _make_queue(env: dict[str, str]) -> None:
    subprocess.run([CLAWQ, "config", "check"], env=env, capture_output=True, check=True)
    subprocess.run([CLAWQ, "enqueue", "--", "true"], env=env, check=True)  # the configuration is compiled now


def _batch(env: dict[str, str], lines: str, jobs: int) -> tuple[float, float]:
    """(jobs a second, bytes a job)."""
    file = Path(env["HOME"]) / "lines"
    file.write_text(lines)
    _make_queue(env)
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
