"""What people were told by `notify`: kept here, so that no restart tells it again.

Functions take an open connection and expect the caller's transaction. Times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import apsw

from clawq import states as job
from clawq.states import BANDS
from clawq.store.sqlfile import load

SQL = load("notices")
STATES = (job.DEAD, job.UNKNOWN, job.EXPIRED)
"""What a `notify` is told of."""
BATCH = 500
"""Jobs counted in one transaction."""


class Row(NamedTuple):
    """``word``: a state and ``about`` a kind, of which ``pending`` jobs are still to be told; or an alert."""

    word: str
    about: str
    pending: int
    job_id: int | None
    told_at: int


class Subject(NamedTuple):
    """The job that a notice is about."""

    job_id: int
    kind: str
    band: str
    tenant: str
    error: str | None


def count(db: apsw.Connection, wanted: Callable[[str, str], bool], now: int) -> bool:
    """Count the jobs that came to one of STATES since this was asked last; True when there may be more.

    ``wanted(kind, band)``: is anybody told of these? The first time nothing is counted.
    """
    seen = {state: (at, job_id) for state, at, job_id in db.execute(SQL["seen"])}
    more = False
    for state in STATES:
        at, job_id = seen.get(state, (now, 0))
        at = min(at, now)  # somebody set the clock back
        query = SQL["unknown" if state == job.UNKNOWN else "ended"]
        values = {"state": state, "at": at, "id": job_id, "most": BATCH}
        found: list[tuple[Any, ...]] = db.execute(query, values).fetchall()
        for found_id, kind, band, *_ in found:
            if wanted(str(kind), BANDS[int(band)]):
                db.execute(SQL["count"], {"word": state, "about": kind, "job_id": found_id})
        if found:
            at, job_id = found[-1][4], found[-1][0]
        if found or state not in seen:
            db.execute(SQL["see"], {"state": state, "at": at, "id": job_id})
        more = more or len(found) == BATCH
    return more


def rows(db: apsw.Connection) -> list[Row]:
    return [Row(*row) for row in db.execute(SQL["all"])]


def told(db: apsw.Connection, word: str, about: str, now: int) -> None:
    """Somebody is told now; nothing of it is pending."""
    db.execute(SQL["told"], {"word": word, "about": about, "now": now})


def over(db: apsw.Connection, word: str, about: str) -> None:
    """The alert is over, or the kind's jobs are nobody's concern."""
    db.execute(SQL["over"], {"word": word, "about": about})


def forget(db: apsw.Connection) -> None:
    """Nobody is told of anything any more."""
    db.execute(SQL["forget_seen"])
    db.execute(SQL["forget_pending"])


def subject(db: apsw.Connection, job_id: int) -> Subject | None:
    """None once it is pruned."""
    row = db.execute(SQL["job"], (job_id,)).fetchone()
    return None if row is None else Subject(row[0], row[1], BANDS[row[2]], row[3], row[4])
