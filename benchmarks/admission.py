"""What does one pass of admission cost, and does it matter how many jobs wait?

A pass is what the supervisor does in its turn's transaction: read the lanes' heads, the clocks and the
accounts, decide, claim, and write down why the others wait; the commit is not in it. It is measured with 60
lanes that hold a thousand jobs and with 60 that hold a million: behind full slots, and with a slot that came
free. Each pass is rolled back, so that the next one finds the same. The rules alone are measured on the same
60 heads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from benchmarks import measure
from benchmarks.measure import Row
from clawq.paths import find_home
from clawq.rules import admission
from clawq.rules.facts import Host, Running
from clawq.settings import Settings
from clawq.store import config_row, lanes
from clawq.store.connection import open_db
from clawq.supervisor.admit import admit, limits_from
from clawq.supervisor.notices import Notices
from clawq.supervisor.probes import Probes
from clawq.supervisor.state import State, wall_ms

LANES, SLOTS = 60, 8
FEW, MANY = 1_000, 1_000_000
ROUNDS = 400
TARGET_MS, TARGET_RATIO = 2.0, 1.2

TITLE = f"one pass of admission over {LANES} lanes, {SLOTS} slots, median of {ROUNDS}"

_FILL = """
INSERT INTO jobs (kind, tenant, band, priority, needs, state, reason, changed_at, command, cwd, rank,
    created_at, accepted_at, run_after, ready_at)
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :jobs)
SELECT 'k' || (i % 5), 't' || (i / 5 % 4), 1 + i / 20 % 3, 0, '', 'queued', 'enqueued', :now, '["true"]', '/',
    :now + i, :now, :now, :now, :now
FROM n
"""
_TALLY = """
DELETE FROM tally;
INSERT INTO tally
SELECT state, band, tenant, kind, needs, count(*) FROM jobs GROUP BY state, band, tenant, kind, needs
"""


def run() -> list[Row]:
    fewer, more = measure.size(FEW, 100), measure.size(MANY, 300)
    few, many = _passes(fewer), _passes(more)
    rows = []
    for what, taken in _rules().items():
        rows.append(Row(f"the rules alone, {what}", *_ms(taken)))
    for what, before in few.items():
        after = many[what]
        ratio = measure.median(after) / measure.median(before)
        rows.append(Row(f"{what}, {fewer:,} queued", *_ms(before)))
        good = measure.median(after) * 1000 < TARGET_MS and ratio <= TARGET_RATIO
        target = f"< {TARGET_MS:g} ms, <= {TARGET_RATIO} x"
        rows.append(Row(f"{what}, {more:,} queued", *_ms(after), f"{ratio:.2f} x", target, good))
    return rows


def _ms(taken: list[float]) -> tuple[str, str]:
    low, high = (measure.percentile(taken, share) * 1000 for share in (25, 75))
    return f"{measure.median(taken) * 1000:.2f} ms", f"{low:.2f} to {high:.2f}"


# ---------------------------------------------------------------- whole passes


def _passes(jobs: int) -> dict[str, list[float]]:
    with _queue(jobs) as state:
        _one_pass(state, SLOTS, keep=True)  # every lane is told why it waits
        blocked = _timed(lambda: _one_pass(state, 0))
        _end_one(state.db)
        started = _timed(lambda: _one_pass(state, 1))
    return {"nothing can start": blocked, "one starts": started}


@contextmanager
def _queue(jobs: int) -> Iterator[State]:
    """A supervisor's state over a queue of so many jobs in LANES lanes."""
    with measure.empty_home() as env:
        os.environ["CLAWQ_HOME"] = env["CLAWQ_HOME"]
        home = find_home()
        db = open_db(home)
        fill(db, jobs)
        settings = Settings.from_text(config_row.load(db)[1])
        try:
            yield State(home, db, settings, "", "boot", False, Probes(home), Notices(home), None)
        finally:
            db.close()


def fill(db: apsw.Connection, jobs: int) -> None:
    """What the triggers would write for each job is written for all of them at once."""
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    db.execute("BEGIN IMMEDIATE")
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute(_FILL, {"jobs": jobs, "now": wall_ms()})
    db.execute(_TALLY)
    for _, sql in triggers:
        db.execute(str(sql))
    db.execute("COMMIT")
    lanes_there = db.execute("SELECT count(*) FROM tally").get
    if lanes_there not in (min(LANES, jobs), min(LANES, jobs) + 1):  # what was there before
        raise SystemExit(f"{lanes_there} lanes instead of {LANES}")
    db.pragma("wal_checkpoint(TRUNCATE)")


def _one_pass(state: State, starts: int, keep: bool = False) -> float:
    """Seconds from the first read to the last write, of a pass that starts so many."""
    state.db.execute("BEGIN IMMEDIATE")
    began = time.perf_counter()
    made = admit(state, state.settings, 0, wall_ms())
    took = time.perf_counter() - began
    state.db.execute("COMMIT" if keep else "ROLLBACK")
    if len(made.tickets) != starts:
        raise SystemExit(f"a pass started {len(made.tickets)} jobs instead of {starts}")
    return took


def _end_one(db: apsw.Connection) -> None:
    job_id, token = db.execute("SELECT id, token FROM jobs WHERE state = 'starting' LIMIT 1").fetchall()[0]
    db.execute("BEGIN IMMEDIATE")
    for state in ("running", "succeeded"):
        db.execute(
            "UPDATE jobs SET state = :state, token = iif(:state = 'running', token, NULL), reason = 'bench',"
            " ended_at = iif(:state = 'running', NULL, :now) WHERE id = :id",
            {"state": state, "now": wall_ms(), "id": job_id},
        )
    db.execute("UPDATE attempts SET ended_at = ?, outcome = 'succeeded' WHERE token = ?", (wall_ms(), token))
    db.execute("COMMIT")


def _timed(one: Callable[[], float]) -> list[float]:
    for _ in range(measure.size(ROUNDS, 10) // 10):
        one()
    return [one() for _ in range(measure.size(ROUNDS, 10))]


# ---------------------------------------------------------------- the rules alone


def _rules() -> dict[str, list[float]]:
    with _queue(LANES * 20) as state:
        now = wall_ms()
        heads = lanes.heads(state.db)[0]
        limits = limits_from(state, state.settings, {}, now)
        behind = {head.job_id: each for head in heads for each in lanes.following(state.db, head)}
    running = [
        Running(-n, 2, "t0", "k0", "", started_at=now - 120_000, ends_by=now) for n in range(1, SLOTS + 1)
    ]

    def decide(busy: int) -> float:
        began = time.perf_counter()
        admission.decide(now, Host(), running[:busy], heads, limits, lambda head: behind.get(head.job_id))
        return time.perf_counter() - began

    return {
        "nothing can start": _timed(lambda: decide(SLOTS)),
        f"{SLOTS} start": _timed(lambda: decide(0)),
    }


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
