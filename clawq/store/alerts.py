"""The facts that the alerts are made of: what `status` reads already, and a little besides.

Everything is a seek in an index or a row of a small table, however many jobs there are.
"""

from __future__ import annotations

from clawq import states as job
from clawq.rules.alerts import (
    KEY_ANSWERED_WITHIN_MS,
    Active,
    Facts,
    Gate,
    Pause,
    Repeat,
    Waiting,
)
from clawq.rules.trends import TREND_MS, Sample
from clawq.states import BANDS
from clawq.store import counts as counted
from clawq.store import sqlfile, views
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.settings import Settings
    from clawq.store.views import Row

_SQL = sqlfile.load("alerts")
DAY_MS = 86_400_000
STEP_MS = 180_000
"""Of execution times; samples come each minute."""


def facts(db: apsw.Connection | None, settings: Settings, status: Row, now: int) -> Facts:
    """What the queue knows. `status` is a document of ``views.status`` with ``quiet_s`` filled in.

    The supervisor and the configuration's state are the caller's to add.
    """
    counts, limits = status["counts"], settings.limits
    known: dict[str, Any] = {
        "oldest_age_ms": settings.alerts.oldest_age_ms,
        "quiet_ms": settings.alerts.quiet_ms,
        "max_running": limits.max_running,
        "most_waiting": limits.max_queued - limits.max_queued // 10,
        "waiting": counts[job.QUEUED] + counts[job.SCHEDULED],
        "held": counts[job.HELD],
        "unknown": counts[job.UNKNOWN],
        "active": [_active(row) for row in status["running"]],
        "pauses": [_pause(row, now) for row in status["pauses"]],
        "misfits": next(
            ((row["jobs"], row["job_id"]) for row in status["waiting_on"] if row["reason"] == "never_fits"),
            (0, 0),
        ),
        "full_resources": frozenset(
            name for name, row in status["resources"].items() if row["in_use"] >= row["limit"]
        ),
    }
    if db is None:
        return Facts(**known)
    with views.Snapshot(db):
        oldest = dicts(db.execute(_SQL["oldest"]))
        gates = dicts(db.execute(_SQL["gates"]))
        late = [row["id"] for row in dicts(db.execute(_SQL["late_retries"], {"since": now - DAY_MS}))]
        samples = _samples(db, now)
        keys = dicts(db.execute(_SQL["old_keys"], {"since": now - KEY_ANSWERED_WITHIN_MS}))
    kinds = {
        row["kind"]: most
        for row in oldest
        if (most := settings.kind(row["kind"], BANDS[row["band"]]).max_running) is not None
    }
    return Facts(
        **known,
        oldest=[
            Waiting(row["id"], row["kind"], row["tenant"], now - row["ready_at"], row["reason"])
            for row in oldest
            if row["expires_at"] is None or row["expires_at"] > now
        ],
        gates=[Gate(row["reason"], now - row["since"], row["jobs"]) for row in gates],
        late=late,
        samples=samples,
        repeats=[
            Repeat(row["kind"], row["tenant"], row["key"], row["job_id"], row["ended_ms"], now - row["at"])
            for row in keys
        ],
        tenant_limits={row["tenant"]: settings.tenant_max_running(row["tenant"]) for row in oldest},
        kind_limits=kinds,
    )


def _samples(db: apsw.Connection, now: int) -> list[Sample]:
    since = now - TREND_MS
    rows = dicts(db.execute(_SQL["took"], {"since": since, "step": STEP_MS}))
    took = {row["step"]: row["took"] for row in rows}
    return [
        Sample(row["at"], row["queued"], row["oldest_age_ms"] or 0, took.get(row["at"] // STEP_MS))
        for row in counted.samples(db, since)
        if row["at"] <= now
    ]


def _active(row: Row) -> Active:
    quiet = row["quiet_s"]
    quiet_ms = None if quiet is None else int(quiet * 1000)
    return Active(row["job_id"], row["kind"], row["tenant"], row["state"], quiet_ms)


def _pause(row: Row, now: int) -> Pause:
    what = "everything" if row["scope"] == "all" else f"{row['scope']} {row['name']}"
    return Pause(what, now - row["since"], views.resume_command(row["scope"], row["name"]))
