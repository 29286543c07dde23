"""What a person changes: each change is one conditional UPDATE, checked by the rows it returns.

Whoever claimed, ended or changed the job first wins, and the change is refused with the state that it
met. Times are epoch milliseconds; every function is a transaction of its own.
"""

from __future__ import annotations

import json

from clawq import states as job
from clawq.errors import ClawqError, Refused, WrongState
from clawq.store import counts, effects, sqlfile, views
from clawq.store.connection import Immediate, dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

    from clawq.store.views import Row

_SQL = sqlfile.load("jobs")

RETRIED = (job.DEAD, job.EXPIRED, job.CANCELLED)
REQUEUED = (job.UNKNOWN,)

NOTE_CHARS = 500
"""Of a person's note: it stands in the job's list of events."""


class KeyTaken(WrongState):
    """The job cannot come back while another one has its dedupe key."""

    def __init__(self, job_id: int, key: str, holder: int) -> None:
        self.job_id = job_id
        ClawqError.__init__(
            self,
            f"job {job_id} cannot be queued again, since job {holder} has its dedupe key {key!r}",
            f"let job {holder} end, or `clawq cancel {holder}`",
        )


def cancel(db: apsw.Connection, job_id: int, now: int, tree: bool = False) -> str:
    """Cancel what has not started; ask the supervisor to end what has. The state it is now in.

    Its children that have not started are cancelled too; with ``tree`` all below it, what runs as well, also
    when it has ended itself. Raises NoSuchJob, WrongState.
    """
    at = {"job_id": job_id, "now": now, "tree": tree}
    with Immediate(db):
        state = views.state_of(db, job_id)
        below = bool(tree and db.execute(_SQL["ask_cancel_below"], at).fetchall())
        if tree or state in job.ACTIVE:
            below = bool(db.execute(_SQL["cancel_below"], at).fetchall()) or below
        changed = _changed(db, "cancel", at) or _changed(db, "ask_cancel", at)
        if not changed and not below:
            _refuse(db, job_id, "cancelled", "scheduled, queued, held, starting, running or waiting")
    return changed or state


def approve(db: apsw.Connection, job_id: int, now: int) -> str:
    """Let a held job go on: ``queued``, or ``scheduled`` when it is not due; a question has ``succeeded``.

    Raises NoSuchJob, WrongState.
    """
    with Immediate(db):
        return _changed(db, "approve", {"job_id": job_id, "now": now}) or _refuse(
            db, job_id, "approved", "held"
        )


def deny(db: apsw.Connection, job_id: int, now: int) -> str:
    """Cancel a held job. Raises NoSuchJob, WrongState."""
    with Immediate(db):
        return _changed(db, "deny", {"job_id": job_id, "now": now}) or _refuse(db, job_id, "denied", "held")


def edit(
    db: apsw.Connection,
    job_id: int,
    now: int,
    *,
    priority: int | None = None,
    band: str | None = None,
    stale_at: int | None = None,
    deadline_at: int | None = None,
    timeout_ms: int | None = None,
    max_attempts: int | None = None,
    run_after: int | None = None,
) -> str:
    """Change what has not started, and say which state it is in now.

    None leaves a value alone; a ``timeout_ms`` of 0 is none.
    A ``run_after`` later than now makes a queued job scheduled; one that has passed makes a scheduled
    job queued. Raises NoSuchJob, WrongState.
    """
    values = {
        "job_id": job_id,
        "now": now,
        "priority": priority,
        "band": None if band is None else job.BANDS.index(band),
        "stale_at": stale_at,
        "deadline_at": deadline_at,
        "timeout_ms": timeout_ms,
        "max_attempts": max_attempts,
        "run_after": run_after,
        "point": job.PRIORITY_POINT_MS,
        "first": job.FIRST_MS,
    }
    with Immediate(db):
        return _changed(db, "edit", values) or _refuse(db, job_id, "edited", "scheduled, queued or held")


def retry(db: apsw.Connection, job_id: int, now: int, max_queued: int) -> str:
    """Queue a dead, expired or cancelled job again, as if it had been accepted now.

    Raises NoSuchJob, WrongState, KeyTaken, and Refused (``queue_full``) when `max_queued` jobs wait already.
    """
    with Immediate(db):
        waiting = dicts(db.execute(_SQL["pending"]))[0]["n"]
        if not _restart(db, job_id, now, "retried", RETRIED):
            if dicts(db.execute(_SQL["is_question"], (job_id,))):
                raise WrongState(job_id, "a question", "retried", "a command")
            _refuse(db, job_id, "retried", "dead, expired or cancelled")
        if waiting >= max_queued:
            raise Refused(
                "queue_full",
                f"job {job_id} is not retried: the queue is full ({waiting} wait of at most {max_queued})",
                "retry it when there are fewer, or raise limits.max_queued in clawq.toml",
            )
    return job.QUEUED


def reconcile(db: apsw.Connection, job_id: int, now: int, verdict: str, note: str = "") -> str:
    """Settle an unknown job: `verdict` is ``succeeded``, ``dead`` or ``queued`` (again, from the start).

    Its open effects are settled with it: done when it succeeded, else not happened. The note stands in the
    job's events, and in its last error when it is dead. Raises NoSuchJob, WrongState, KeyTaken.
    """
    note = " ".join(note.split())[:NOTE_CHARS]
    reason = f"reconciled: {note}" if note else "reconciled"
    with Immediate(db):
        if verdict == job.QUEUED:
            changed = _restart(db, job_id, now, reason, REQUEUED)
        else:
            error = f"settled as failed{': ' + note if note else ''}" if verdict == job.DEAD else None
            values = {"job_id": job_id, "now": now, "state": verdict, "reason": reason, "error": error}
            changed = bool(_changed(db, "settle", values))
        if not changed:
            _refuse(db, job_id, "reconciled", "unknown")
        happened = verdict == job.SUCCEEDED
        effects.settle_open(db, job_id, effects.DONE if happened else effects.FAILED, now)
    return verdict


def pause(db: apsw.Connection, scope: str, name: str, now: int) -> bool:
    """Pause ``all`` (name ``''``), or a tenant, kind, resource or band; False when it was paused already."""
    values = {"scope": scope, "name": _pause_name(scope, name), "now": now}
    with Immediate(db):
        return bool(db.execute(_SQL["pause"], values).fetchall())


def resume(db: apsw.Connection, scope: str, name: str) -> bool:
    """Lift exactly this pause; False when there was none."""
    values = {"scope": scope, "name": _pause_name(scope, name)}
    with Immediate(db):
        return bool(db.execute(_SQL["resume"], values).fetchall())


def _pause_name(scope: str, name: str) -> str:
    return str(job.BANDS.index(name)) if scope == "band" else name


def prunable(db: apsw.Connection, before: int, most: int) -> tuple[list[int], list[str]]:
    """Up to `most` jobs that ended before that moment, and the bare names of their logs.

    None whose parent has not ended.
    """
    for state in job.ENDED:
        values = {"state": state, "before": before, "most": most}
        ids = [row["id"] for row in dicts(db.execute(_SQL["prunable"], values))]
        if ids:
            logs = dicts(db.execute(_SQL["logs"], {"ids": json.dumps(ids)}))
            return ids, [row["log"] for row in logs]
    return [], []


def count_prunable(db: apsw.Connection, before: int) -> int:
    """How many jobs that ended before that moment ``prunable`` would find."""
    return sum(
        dicts(db.execute(_SQL["prunable_count"], {"state": state, "before": before}))[0]["n"]
        for state in job.ENDED
    )


def prune(db: apsw.Connection, ids: list[int], before: int) -> int:
    """Delete those of `ids` that still ended before that moment, in one transaction; how many there were.

    Dedupe keys of scope ``ever`` stay, and so do effects of scope ``tenant``.
    """
    counts.fold_of(db, ids)  # their events go with them
    with Immediate(db):
        return len(db.execute(_SQL["prune"], {"ids": json.dumps(ids), "before": before}).fetchall())


def _changed(db: apsw.Connection, query: str, values: Row) -> str:
    """The state after the change; empty when no row allowed it."""
    rows = dicts(db.execute(_SQL[query], values))
    return str(rows[0]["state"]) if rows else ""


def _restart(db: apsw.Connection, job_id: int, now: int, reason: str, states: tuple[str, ...]) -> bool:
    values = {"job_id": job_id, "now": now, "reason": reason, "point": job.PRIORITY_POINT_MS}
    values["first"] = job.FIRST_MS
    rows = dicts(db.execute(_SQL["restart"], {**values, "states": json.dumps(states)}))
    if not rows:
        return False
    row = rows[0]
    if row["dedupe_scope"] == "active":
        key = {"tenant": row["tenant"], "kind": row["kind"], "key": row["dedupe_key"]}
        db.execute(_SQL["take_key"], {**key, "job_id": job_id})
        holder = dicts(db.execute(_SQL["key_holder"], key))[0]["job_id"]
        if holder != job_id:
            raise KeyTaken(job_id, row["dedupe_key"], holder)
    return True


def _refuse(db: apsw.Connection, job_id: int, verb: str, allowed: str) -> str:
    """Say why nothing changed, inside the same transaction."""
    state = views.state_of(db, job_id)
    raise WrongState(job_id, state, verb, allowed)
