"""Which ended jobs are the oldest, and how much room the database takes. Times are epoch ms."""

from __future__ import annotations

import json

import apsw

from clawq import states
from clawq.store.connection import Immediate
from clawq.store.sqlfile import load

SQL = load("retention")
_LOGS = load("jobs")["logs"]

BEGINNING = (0, 0)

Mark = tuple[int, int]
"""When a job ended, and its number: the order in which ended jobs go."""


def oldest(db: apsw.Connection, after: Mark, most: int) -> list[Mark]:
    """Up to `most` ended jobs behind `after`, the oldest end first."""
    found: list[Mark] = []
    for state in states.ENDED:
        values = {"state": state, "ended_at": after[0], "id": after[1], "most": most}
        found += [(int(ended_at), int(job_id)) for ended_at, job_id in db.execute(SQL["oldest"], values)]
    return sorted(found)[:most]


def ended_before(db: apsw.Connection, ids: list[int], before: int) -> set[int]:
    """Those of `ids` that ended earlier than `before`."""
    return {int(i) for (i,) in db.execute(SQL["ended_before"], {"ids": json.dumps(ids), "before": before})}


def logs(db: apsw.Connection, ids: list[int]) -> list[str]:
    """The bare names of the logs of these jobs' attempts."""
    return [str(name) for (name,) in db.execute(_LOGS, {"ids": json.dumps(ids)})]


def mark(db: apsw.Connection) -> Mark:
    """Up to which end logs were deleted to make room."""
    row = db.execute(SQL["mark"]).fetchone()
    if row is None:
        return BEGINNING
    ended_at, _, job_id = str(row[0]).partition(" ")
    return int(ended_at), int(job_id)


def set_mark(db: apsw.Connection, mark: Mark) -> None:
    """In a transaction of its own."""
    with Immediate(db):
        db.execute(SQL["set_mark"], {"mark": f"{mark[0]} {mark[1]}"})


def room(db: apsw.Connection) -> int:
    """Bytes of the database that hold something: what was deleted leaves room that is used again."""
    pages, free, size = (int(str(db.pragma(name))) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size
