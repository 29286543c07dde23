"""What has happened, in the order in which it was committed: every move of a job, and every refusal.

Moves and refusals are numbered each by themselves, and numbers are given out inside of write transactions, of
which SQLite has one at a time. So whoever remembers the last number seen of each misses nothing and sees
nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any, NamedTuple

import apsw

from clawq.store.connection import dicts
from clawq.store.sqlfile import load
from clawq.store.views import Row, Snapshot

SQL = load("trail")

PAGE = 1_000
"""Rows read at a time: nobody holds up the folding back of the log of writes for long."""


class Mark(NamedTuple):
    """How far somebody has read: the last move and the last refusal."""

    move: int = 0
    refusal: int = 0


def here(db: apsw.Connection) -> Mark:
    """Behind all that has happened."""
    return Mark(int(db.execute(SQL["last_move"]).get), int(db.execute(SQL["last_refusal"]).get))


def back(db: apsw.Connection, most: int) -> Mark:
    """Before the latest `most` of each."""
    if not most:
        return here(db)
    values = {"most": most}
    return Mark(
        int(db.execute(SQL["move_back"], values).get), int(db.execute(SQL["refusal_back"], values).get)
    )


def since(db: apsw.Connection, moment: int) -> Mark:
    """Before the first that happened at or after `moment` (epoch ms).

    Found by halving, since numbers grow with time: no index is kept for it. Where a clock was set back, some
    that are older may come along.
    """
    with Snapshot(db):
        return Mark(_before(db, "move", moment), _before(db, "refusal", moment))


def _before(db: apsw.Connection, what: str, moment: int) -> int:
    low, high = int(db.execute(SQL[f"first_{what}"]).get), int(db.execute(SQL[f"last_{what}"]).get) + 1
    while low < high:
        middle = (low + high) // 2
        row: Any = db.execute(SQL[f"{what}_from"], {"id": middle}).fetchone()
        if row is None or row[1] >= moment:
            high = middle
        else:
            low = int(row[0]) + 1
    return low - 1


def read(db: apsw.Connection, mark: Mark, to: Mark) -> Iterator[Row]:
    """What came after the one mark and up to the other, by time.

    Rows are {at, job_id, kind, tenant, from, to, reason}; a refusal has `job_id` None, goes from ``new`` to
    ``rejected``, and has a `count` when several of a batch were refused alike.
    """
    return merge(_moves(db, mark.move, to.move), _refusals(db, mark.refusal, to.refusal), key=_at)


def _at(row: Row) -> int:
    return int(row["at"])


def _moves(db: apsw.Connection, after: int, to: int) -> Iterator[Row]:
    for row in _pages(db, "moves", after, to):
        del row["id"]
        yield row


def _refusals(db: apsw.Connection, after: int, to: int) -> Iterator[Row]:
    for row in _pages(db, "refusals", after, to):
        told = {"at": row["at"], "job_id": None, "kind": row["kind"], "tenant": row["tenant"]}
        told |= {"from": "new", "to": "rejected", "reason": row["reason"]}
        yield told if row["count"] == 1 else {**told, "count": row["count"]}


def _pages(db: apsw.Connection, query: str, after: int, to: int) -> Iterator[Row]:
    while rows := dicts(db.execute(SQL[query], {"after": after, "to": to, "most": PAGE})):
        after = rows[-1]["id"]
        yield from rows


def life(db: apsw.Connection) -> tuple[str, Mark]:
    """Which of its lives the queue lives, and where that began: a restore begins one, and numbers anew."""
    row: Any = db.execute(SQL["life"]).fetchone()
    name, began = row
    now = here(db)
    return str(name), now if began is None else now._replace(move=int(began))
