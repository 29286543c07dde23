"""Why a job has not started yet, or will not go on: every reason with its figures and what clears it.

``no_supervisor`` comes first, since a lane's reason is only as good as whoever wrote it.
"""

from __future__ import annotations

import json
import time

from clawq import job
from clawq.errors import NoSuchJob
from clawq.store import sqlfile, views
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

    from clawq.store.views import Row

_SQL = sqlfile.load("why")

_CLEARS = {
    "uid_procs": "the account has fewer than {limit} processes",
    "low_memory": "{limit} MB of memory are free",
    "spawn_failed": "the next try to start an agent succeeds",
    "kind_limit": "a running {kind} job ends",
    "tenant_limit": "a running job of tenant {tenant} ends",
    "max_running": "a running job ends",
    "never_fits": "its limits are raised in clawq.toml; or `clawq cancel {job_id}`",
}


def why(db: apsw.Connection, job_id: int, supervisor_ticks: bool) -> Row:
    """The document of ``why --json``, times in ms, and ``ahead`` besides: how many of its lane
    come before it (None: it is in no lane).

    Raises NoSuchJob.
    """
    with views.Snapshot(db):
        rows = dicts(db.execute(_SQL["job"], (job_id,)))
        if not rows:
            raise NoSuchJob(job_id)
        found = rows[0]
        found["job_id"] = job_id
        blocked_by: list[Row] = []
        ahead = None
        if found["state"] in (job.SCHEDULED, job.QUEUED) and not supervisor_ticks:
            blocked_by.append(_reason("no_supervisor", clears="a supervisor runs: `clawq run` is one"))
        if found["state"] == job.QUEUED:
            blocked_by += _paused(db, found)
            if found["parked"]:
                blocked_by.append(_exclusive(db, found))
            else:
                ahead = dicts(db.execute(_SQL["ahead"], _lane(found)))[0]["n"]
                if not blocked_by:
                    blocked_by += _refused(db, found)
        elif found["state"] in _STANDING:
            blocked_by.append(_STANDING[found["state"]](found))
        return {
            "job_id": job_id,
            "state": found["state"],
            "blocked_by": blocked_by,
            "deferrals": views.deferrals(db, job_id),
            "ahead": ahead,
        }


def _reason(
    reason: str,
    *,
    clears: str,
    measured: float | None = None,
    limit: float | None = None,
    since: int | None = None,
) -> Row:
    return {
        "reason": reason,
        "measured": _whole(measured),
        "limit": _whole(limit),
        "since": since,
        "clears_when": clears,
    }


def _whole(value: float | None) -> float | None:
    return int(value) if value is not None and value == int(value) else value


_STANDING = {
    job.SCHEDULED: lambda row: _reason(
        "not_due",
        since=row["changed_at"],
        clears=f"it is due, at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(row['run_after'] / 1000))}",
    ),
    job.HELD: lambda row: _reason(
        "held",
        since=row["changed_at"],
        clears=f"a person says `clawq approve {row['job_id']}` (or `clawq deny {row['job_id']}`)",
    ),
    job.UNKNOWN: lambda row: _reason(
        "unknown",
        since=row["changed_at"],
        clears=f"a person says `clawq reconcile {row['job_id']} --succeeded`, --failed or --requeue",
    ),
}


def _lane(found: Row) -> Row:
    return {name: found[name] for name in ("band", "tenant", "kind", "needs", "rank", "job_id")}


def _paused(db: apsw.Connection, found: Row) -> list[Row]:
    scopes = {name: found[name] for name in ("tenant", "kind", "band")}
    scopes["resources"] = json.dumps(views.names(found["needs"]))
    reasons = []
    for row in dicts(db.execute(_SQL["pauses"], scopes)):
        name = job.BANDS[int(row["name"])] if row["scope"] == "band" else row["name"]
        lift = views.resume_command(row["scope"], name)
        reasons.append(_reason("paused", since=row["since"], clears=f"a person says `{lift}`"))
    return reasons


def _exclusive(db: apsw.Connection, found: Row) -> Row:
    name = found["exclusive"]
    held = [row for row in dicts(db.execute(_SQL["holders"])) if row["exclusive"] == name]
    if not held:
        return _reason(
            f"exclusive:{name}", measured=0, limit=1, clears="the job before it with this name has run"
        )
    return _reason(
        f"exclusive:{name}",
        measured=1,
        limit=1,
        since=held[0]["started_at"],
        clears=f"job {held[0]['id']} ends, which has this name",
    )


def _refused(db: apsw.Connection, found: Row) -> list[Row]:
    """What the head of its lane was told, which holds for all behind it; nothing: it is next in turn."""
    lane = {name: found[name] for name in ("band", "tenant", "kind", "needs")}
    rows = dicts(db.execute(_SQL["lane"], lane))
    if not rows or rows[0]["reason"] is None:
        return []
    row = rows[0]
    return [
        _reason(
            row["reason"],
            measured=row["measured"],
            limit=row["limit_value"],
            since=row["since"],
            clears=_clears(db, found, row["reason"], row["limit_value"]),
        )
    ]


def _clears(db: apsw.Connection, found: Row, reason: str, limit: float | None) -> str:
    scope, _, name = reason.partition(":")
    if scope == "resource":
        holders = [
            str(row["id"]) for row in dicts(db.execute(_SQL["holders"])) if name in views.names(row["needs"])
        ]
        if not holders:
            return f"a slot of {name} is free"
        who = f"job {holders[0]} ends" if len(holders) == 1 else f"one of the jobs {', '.join(holders)} ends"
        return f"{who}, which hold{'s' if len(holders) == 1 else ''} {name}"
    return _CLEARS.get(reason, "the next pass admits it").format(
        limit=_whole(limit), kind=found["kind"], tenant=found["tenant"], job_id=found["job_id"]
    )
