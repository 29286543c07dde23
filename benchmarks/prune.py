"""How long does pruning a big database keep anybody else from writing?

A million ended jobs, each with an attempt and four events, are pruned while another process takes the write
lock again and again and times how long it waits for it. Each transaction of the pruning is as long with ten
million: it deletes a bounded number of jobs by their numbers.
"""

from __future__ import annotations

import os
import subprocess
import time

import apsw

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row
from clawq.paths import find_home
from clawq.store.connection import open_db

JOBS = 1_000_000
TARGET_MS = 50

TITLE = "Pruning, and who waits for it"

_FILL = """
INSERT INTO jobs (kind, tenant, band, priority, needs, state, reason, changed_at, command, cwd, rank,
    created_at, accepted_at, run_after, ended_at, exit_code, attempts, tries)
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :jobs)
SELECT 'k' || (i % 5), 't' || (i / 5 % 4), 2, 0, '', 'succeeded', 'succeeded', 1000 + i, '["true"]', '/',
    1000 + i, 1000 + i, 1000 + i, 1000 + i, 2000 + i, 0, 1, 1
FROM n;
INSERT INTO attempts (token, job_id, number, claimed_at, started_at, ended_at, boot_id, lease_ms, lease_until,
    grace_ms, timeout_ms, heartbeat, outcome, exit_code, charged, log)
SELECT id, id, 1, 1000, 1000, 2000, 'boot', 1, 1, 1, 1, 'process', 'succeeded', 0, 1, id || '.log' FROM jobs;
INSERT INTO events (job_id, at, from_state, to_state, reason)
SELECT id, 1000, from_state, to_state, 'x' FROM jobs CROSS JOIN (
    SELECT 'new' AS from_state, 'queued' AS to_state UNION ALL SELECT 'queued', 'starting'
    UNION ALL SELECT 'starting', 'running' UNION ALL SELECT 'running', 'succeeded');
INSERT INTO tally SELECT state, band, tenant, kind, needs, count(*) FROM jobs GROUP BY 1, 2, 3, 4, 5;
"""


def run() -> list[Row]:
    jobs = measure.size(JOBS, 2_000)
    with measure.empty_home() as env:
        os.environ["CLAWQ_HOME"] = env["CLAWQ_HOME"]
        measure.whole_process([CLAWQ, "config", "show"], env)
        db = open_db(find_home())
        _fill(db, jobs)
        path = find_home().db
        size = os.stat(path).st_size
        began = time.perf_counter()
        process = subprocess.Popen(
            [CLAWQ, "prune", "--older-than", "1d"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        waits = []
        while process.poll() is None:
            waits.append(_wait_for_lock(db))
            time.sleep(0.002)
        took = time.perf_counter() - began
        if process.returncode or int(str(db.execute("SELECT count(*) FROM jobs").get)) > jobs // 100:
            raise SystemExit("clawq prune did not prune")
        db.close()
    longest = max(waits) * 1000
    p99 = measure.percentile(waits, 99) * 1000
    return [
        Row(f"clawq prune, {jobs:,} ended jobs", f"{jobs / took:,.0f} /s"),
        Row("another writer's wait for the lock", *measure.milliseconds(waits), f"p99 {p99:.1f} ms"),
        Row("... the longest", f"{longest:.1f} ms", "", "", f"< {TARGET_MS} ms", longest < TARGET_MS),
        Row("bytes of the database an ended job", f"{size / jobs:.0f}"),
    ]


def _fill(db: apsw.Connection, jobs: int) -> None:
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    db.execute("BEGIN IMMEDIATE")
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute(_FILL, {"jobs": jobs})
    for _, sql in triggers:
        db.execute(str(sql))
    db.execute("COMMIT")
    db.pragma("wal_checkpoint(TRUNCATE)")


def _wait_for_lock(db: apsw.Connection) -> float:
    began = time.perf_counter()
    db.execute("BEGIN IMMEDIATE")
    took = time.perf_counter() - began
    db.execute("ROLLBACK")
    return took


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
