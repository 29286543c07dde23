"""What a shell's completion offers: names and jobs of this queue, each with a word about it.

Every answer comes from the first entries of an index, so that a Tab is as fast with a million jobs.
"""

from clawq import states as job
from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

_SQL = sqlfile.load("offers")

MOST = 100
UNDER_WAY = (*job.PENDING, *job.ACTIVE, job.UNKNOWN)
TAKES = {
    "show": job.STATES,
    "why": UNDER_WAY,
    "wait": UNDER_WAY,
    "cancel": (*job.PENDING, *job.ACTIVE),
    "parent": UNDER_WAY,
    "edit": job.PENDING,
    "approve": (job.HELD,),
    "deny": (job.HELD,),
    "reconcile": (job.UNKNOWN,),
    "retry": (job.DEAD, job.EXPIRED, job.CANCELLED),
}
"""Verb (or option) -> the states of the jobs that it takes; `logs` takes what has run."""


def jobs(db: "apsw.Connection", verb: str) -> "list[tuple[str, str]]":
    """The jobs that `verb` can do something with, the latest first, MOST of them."""
    if verb == "logs":
        rows = _rows(db, "ran", {})
    elif verb == "show":
        rows = _rows(db, "newest", {})
    else:
        rows = []
        for state in TAKES.get(verb, ()):
            if state == job.QUEUED:
                ((lanes,),) = _rows(db, "lanes", {})
                rows += _rows(db, "queued", {"each": max(5, 2 * MOST // max(1, lanes))})
            elif state == job.STARTING:
                rows += _rows(db, "active", {})  # all three states at once
            elif state not in job.ACTIVE:
                rows += _rows(db, "ended" if state in job.ENDED else "aside", {"state": state})
        rows.sort(reverse=True)
    return [(str(row[0]), _about(*row[1:])) for row in rows[:MOST]]


def _about(kind: str, state: str, question: "str | None") -> str:
    return f"{kind}, {state}" + (f": {question}" if kind == job.ASK and question else "")


def attempts(db: "apsw.Connection", job_id: int) -> "list[tuple[str, str]]":
    """The numbers of a job's attempts, the last first."""
    rows = _rows(db, "attempts", {"id": job_id})
    return [(str(number), outcome or "under way") for number, outcome in rows]


def kinds(db: "apsw.Connection", body: str, seen: bool) -> "list[tuple[str, str]]":
    """The configured kinds; with `seen` also those that only jobs have."""
    found = []
    for name, command, configured in _rows(db, "kinds", {"body": body}):
        if configured:
            found.append((name, command or ""))
        elif seen:
            found.append((name, "not configured"))
    return found


def limited(db: "apsw.Connection", body: str, table: str) -> "list[tuple[str, str]]":
    """``resources`` or ``budgets``, with their limits."""
    rows = _rows(db, "limits", {"body": body, "table": table})
    return [(name, f"limit {limit}") for name, limit in rows]


def tenants(db: "apsw.Connection", body: str) -> "list[tuple[str, str]]":
    """Those configured and those that have jobs."""
    return [(name, "") for (name,) in _rows(db, "tenants", {"body": body})]


def paused(db: "apsw.Connection", scope: str) -> "list[tuple[str, str]]":
    """What of this scope is paused."""
    return [(name, "paused") for (name,) in _rows(db, "paused", {"scope": scope})]


def reasons(db: "apsw.Connection", body: str) -> "list[tuple[str, str]]":
    """Words that failures are counted under."""
    return [(name, "") for (name,) in _rows(db, "reasons", {"body": body})]


def _rows(db: "apsw.Connection", query: str, values: "dict[str, Any]") -> "list[Any]":
    return db.execute(_SQL[query], values | {"limit": MOST}).fetchall()
