"""A job that waits for others: on one side `clawq wait`, on the other the supervisor.

Its slots are free from the moment at which it is `waiting`, and only the supervisor ends that, so that they
are never given to two. Functions expect the caller's transaction. Times are epoch ms.
"""

from __future__ import annotations

from clawq import states as job
from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

SQL = sqlfile.load("waits")


class Standing:
    """How the waiting job itself stands. ``wants_back``: it has asked for its slots and has not got them."""

    __slots__ = ("state", "tenant", "wants_back")

    def __init__(self, state: str, tenant: str, back_at: int | None) -> None:
        self.state = state
        self.tenant = tenant
        self.wants_back = back_at is not None


def standing(db: apsw.Connection, job_id: int, token: int) -> Standing | None:
    """None: the job is no longer this attempt's."""
    rows: Any = db.execute(SQL["standing"], {"job_id": job_id, "token": token}).fetchall()
    return Standing(*rows[0]) if rows else None


def children(db: apsw.Connection, job_id: int, token: int) -> list[int]:
    """What this attempt asked for or got back, questions excepted."""
    rows: Any = db.execute(SQL["mine"], {"job_id": job_id, "token": token}).fetchall()
    return [row[0] for row in rows]


def missing(db: apsw.Connection, ids: list[int]) -> int | None:
    """One of them that does not exist."""
    rows: Any = db.execute(SQL["missing"], {"ids": sqlfile.id_list(ids)}).fetchall()
    return rows[0][0] if rows else None


def stranger(db: apsw.Connection, job_id: int, ids: list[int]) -> int | None:
    """One of them that does not descend from this job."""
    rows: Any = db.execute(SQL["strangers"], {"job_id": job_id, "ids": sqlfile.id_list(ids)}).fetchall()
    return rows[0][0] if rows else None


def never_starts(db: apsw.Connection, job_id: int, ids: list[int]) -> tuple[int, str] | None:
    """One of them that could not start while this job waits, and what it needs of what is kept."""
    rows: Any = db.execute(SQL["never_starts"], {"job_id": job_id, "ids": sqlfile.id_list(ids)}).fetchall()
    return rows[0] if rows else None


def states(db: apsw.Connection, ids: list[int]) -> dict[int, str]:
    """{id: state}; those that do not exist are left out."""
    rows: Any = db.execute(SQL["states"], {"ids": sqlfile.id_list(ids)}).fetchall()
    return dict(rows)


def enter(db: apsw.Connection, job_id: int, token: int, ids: list[int], now: int) -> bool:
    """Give the slots away, and let those waited for go first; False when the job is not running."""
    reason = f"waits for job {ids[0]}" if len(ids) == 1 else f"waits for {len(ids)} jobs"
    values = {"job_id": job_id, "token": token, "now": now, "reason": reason}
    entered = bool(db.execute(SQL["enter"], values).fetchall())
    if entered:
        db.execute(SQL["note_enter"], {"token": token, "now": now})
    db.execute(SQL["note_awaited"], {"token": token, "ids": sqlfile.id_list(ids)})
    db.execute(SQL["first"], {"ids": sqlfile.id_list(ids), "first": job.FIRST_MS})
    return entered


def ask_back(db: apsw.Connection, job_id: int, token: int, now: int) -> None:
    """The wait is over: the job wants its slots."""
    db.execute(SQL["ask_back"], {"job_id": job_id, "token": token, "now": now})


def waiting(db: apsw.Connection) -> set[int]:
    """Tokens of the jobs that wait."""
    rows: Any = db.execute(SQL["waiting"]).fetchall()
    return {row[0] for row in rows}


def go_on(db: apsw.Connection, token: int, reason: str, now: int) -> int | None:
    """It holds its slots again: how long it has waited in all (ms), None when it does not wait."""
    if not db.execute(SQL["go_on"], {"token": token, "reason": reason, "now": now}).fetchall():
        return None
    rows: Any = db.execute(SQL["note_go_on"], {"token": token, "now": now}).fetchall()
    waited: int = rows[0][0]
    return waited


def note_lack(db: apsw.Connection, token: int, reason: str) -> None:
    """It wants its slots back, and this is what others still hold."""
    db.execute(SQL["note_lack"], {"token": token, "reason": reason})
