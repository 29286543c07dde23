"""Bring a job row into any state by legal moves alone, for tests of what looks at it or changes it."""

from __future__ import annotations

from typing import Any

import apsw

from clawq import states as job
from tests.rows import put

PATHS = {
    job.SCHEDULED: (),
    job.QUEUED: (),
    job.HELD: (),
    job.STARTING: (job.STARTING,),
    job.RUNNING: (job.STARTING, job.RUNNING),
    job.WAITING: (job.STARTING, job.RUNNING, job.WAITING),
    job.UNKNOWN: (job.STARTING, job.RUNNING, job.UNKNOWN),
    job.SUCCEEDED: (job.STARTING, job.RUNNING, job.SUCCEEDED),
    job.DEAD: (job.STARTING, job.RUNNING, job.DEAD),
    job.EXPIRED: (job.EXPIRED,),
    job.CANCELLED: (job.CANCELLED,),
}


def put_in(db: apsw.Connection, state: str, now: int = 1_000_000, **columns: Any) -> int:
    """A job in `state`; what a start brings about has an attempt with a token of its own."""
    job_id = put(db, now, state=state if state in job.PENDING else job.QUEUED, **columns)
    token = 1_000 + job_id
    for step in PATHS[state]:
        db.execute(
            "UPDATE jobs SET state = :state, reason = 'test', changed_at = :now, ready_at = NULL,"
            " parked = NULL, token = iif(:active, :token, NULL), ended_at = iif(:ended, :now, NULL)"
            " WHERE id = :id",
            {
                "state": step,
                "now": now,
                "active": step in job.ACTIVE,
                "ended": step in job.ENDED,
                "token": token,
                "id": job_id,
            },
        )
        if step == job.STARTING:
            add_attempt(db, job_id, token, now)
    if state not in job.ACTIVE:
        db.execute(
            "UPDATE attempts SET ended_at = ?, outcome = 'failed', exit_code = 3 WHERE token = ?",
            (now, token),
        )
    return job_id


def add_attempt(db: apsw.Connection, job_id: int, token: int, now: int, **columns: Any) -> None:
    """An attempt under way, as a claim makes it."""
    row = {
        "token": token,
        "job_id": job_id,
        "number": 1,
        "claimed_at": now,
        "started_at": now,
        "boot_id": "boot",
        "pid": 4711,
        "lease_ms": 120_000,
        "lease_until": now + 120_000,
        "grace_ms": 10_000,
        "timeout_ms": 0,
        "heartbeat": "process",
        "log": f"{job_id}.1.{token}.log",
    } | columns
    db.execute(
        f"INSERT INTO attempts ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", row
    )
