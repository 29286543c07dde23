"""Does it matter how many jobs wait? Commands, and the record of an end, with a thousand and with a million
queued.

A pass of admission has a figure of its own (admission.py).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw

from benchmarks import measure
from benchmarks.admission import fill
from benchmarks.measure import CLAWQ, Row
from clawq.paths import find_home
from clawq.store.connection import open_db

FEW, MANY = 1_000, 1_000_000
ROUNDS = 25
TARGET = 1.2

TITLE = "With a million jobs queued in 60 lanes, against a thousand"
CONFIG = "[limits]\nmax_queued = 100000000\nmax_queued_per_tenant = 100000000\n"


def run() -> list[Row]:
    fewer, more = measure.size(FEW, 100), measure.size(MANY, 300)
    few, _ = _times(fewer)
    many, size = _times(more)
    rows = []
    for name, before in few.items():
        ratio = measure.median(many[name]) / measure.median(before)
        rows.append(Row(f"{name}, {fewer:,} queued", *measure.milliseconds(before)))
        rows.append(
            Row(
                f"{name}, {more:,} queued",
                *measure.milliseconds(many[name]),
                f"{ratio:.2f} x",
                f"<= {TARGET} x",
                ratio <= TARGET,
            )
        )
    rows.append(Row(f"the database with {more:,} queued", f"{size / (1 << 20):.0f} MB"))
    return rows


def _times(jobs: int) -> tuple[dict[str, list[float]], int]:
    with measure.empty_home(CONFIG) as env:
        os.environ["CLAWQ_HOME"] = env["CLAWQ_HOME"]
        measure.whole_process([CLAWQ, "config", "show"], env)
        measure.whole_process([CLAWQ, "enqueue", "--", "true"], env)
        db = open_db(find_home())
        fill(db, jobs)
        last = int(str(db.execute("SELECT max(id) FROM jobs").get))
        calls = {
            "clawq enqueue": [CLAWQ, "enqueue", "--", "true"],
            "clawq status --json": [CLAWQ, "status", "--json"],
            "clawq status": [CLAWQ, "status"],
            "clawq why ID": [CLAWQ, "why", str(last)],
            "clawq list --limit 20": [CLAWQ, "list", "--limit", "20"],
        }
        taken: dict[str, list[float]] = {
            name: [] for name in (*calls, "a claim, a start and an end, committed")
        }
        for turn in range(-1, measure.size(ROUNDS, 1)):
            for name, argv in calls.items():
                took = measure.whole_process(argv, env)
                if turn >= 0:
                    taken[name].append(took)
            took = _finish(db, last - 10 - turn)
            if turn >= 0:
                taken["a claim, a start and an end, committed"].append(took)
        size = Path(env["CLAWQ_HOME"], "clawq.db").stat().st_size
        db.close()
    return taken, size


def _finish(db: apsw.Connection, job_id: int) -> float:
    began = time.perf_counter()
    db.execute("BEGIN IMMEDIATE")
    for state in ("starting", "running", "succeeded"):
        db.execute(
            "UPDATE jobs SET state = :state, token = iif(:state = 'succeeded', NULL, :id), reason = 'bench',"
            " ended_at = iif(:state = 'succeeded', 1, NULL) WHERE id = :id",
            {"state": state, "id": job_id},
        )
    db.execute("COMMIT")
    return time.perf_counter() - began


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
