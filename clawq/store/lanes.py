"""Who is next, who runs, and what the others were told: what a pass of admission reads and writes.

Functions take an open connection and expect the caller's transaction. Times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import apsw

from clawq.rules.admission import Park, Wait
from clawq.rules.facts import Head, Lane, Running
from clawq.rules.fairness import Clocks, Turn, Turns
from clawq.rules.reasons import is_short_of_slots, resets_ageing
from clawq.states import split
from clawq.store.sqlfile import load

SQL = load("lanes")
_HEAD = len(Head._fields)


class Told(NamedTuple):
    """What a lane's jobs answer with now, when it is counted again, and what its head was promised."""

    reason: str | None
    retry_at: int | None
    promised_at: int | None


def heads(db: apsw.Connection) -> tuple[list[Head], dict[Lane, Told]]:
    """Each lane's next job, and what the lanes that have waited were last told."""
    found, told = [], {}
    for row in db.execute(SQL["heads"]):
        head = Head(*row[:_HEAD])
        found.append(head)
        if row[_HEAD] is not None:
            told[head.lane] = Told(*row[_HEAD:])
    return found, told


def following(db: apsw.Connection, head: Head, most: int = 1) -> list[Head]:
    """The next jobs behind a head in its lane; they share what the lane remembers, but not its wait."""
    rows: Any = db.execute(SQL["following"], {**head._asdict(), "most": most})
    of_the_lane = (head.last_start_at, head.gated_at, None)
    return [Head._make((*row[:-1], *of_the_lane, row[-1])) for row in rows]


def any_queued(db: apsw.Connection) -> bool:
    return bool(db.execute(SQL["any_queued"]).get)


def running(db: apsw.Connection, used: Mapping[int, tuple[int, int]]) -> list[Running]:
    """Who is under way. `used`: (processes, MiB) that an attempt was last seen to use, by token."""
    found = []
    for row in db.execute(SQL["running"]):
        waiting, back_at, token = row[-3:]
        procs, mb = used.get(token, (None, None))
        now = {"procs": procs, "mb": mb, "waiting": bool(waiting), "back_at": back_at, "token": token}
        found.append(Running(*row[:7])._replace(started_at=row[7], ends_by=row[8], **now))
    return found


def pauses(db: apsw.Connection) -> frozenset[tuple[str, str]]:
    """(scope, name) pairs; a band's name is its index as text."""
    return frozenset((scope, name) for scope, name in db.execute(SQL["pauses"]))


def note_wait(db: apsw.Connection, wait: Wait, told: Told | None, every_ms: int, now: int) -> bool:
    """Write a refused head's reason: on its lane, and counted on its row at most once in `every_ms`. Was it
    counted?

    A lane whose reason still stands and whose next count is not due costs nothing.
    """
    head = wait.head
    short = is_short_of_slots(wait.reason)
    if told is not None and told.reason == wait.reason and told.retry_at is not None and now < told.retry_at:
        noted = not short or head.short_since is not None
        if noted and (wait.promised_at is None or told.promised_at is not None):
            return False
    db.execute(
        SQL["note_lane"],
        {
            **wait._asdict(),
            **head._asdict(),
            "now": now,
            "retry_at": now + every_ms,
            "gated": resets_ageing(wait.reason),
            "short": short,
            "clears_at": wait.retry_at,
        },
    )
    return _defer(db, head.job_id, wait.reason, every_ms, now)


def note_start(db: apsw.Connection, head: Head, now: int) -> None:
    """A head was claimed."""
    started = {**head._asdict(), "now": now}
    db.execute(SQL["clear_lane"], started)
    db.execute(SQL["serve"], started)


def park(db: apsw.Connection, parked: Park, every_ms: int, now: int) -> bool:
    """Out of its lane until what it waits for ends. Was it counted?"""
    db.execute(SQL["park"], {"job_id": parked.head.job_id, "reason": parked.reason})
    return _defer(db, parked.head.job_id, parked.reason, every_ms, now)


def pass_on(db: apsw.Connection, parked: Park) -> bool:
    """Bring back the next that waits for what a parked head could have had; is there one?"""
    if not parked.passes_on:
        return False
    behind = SQL["next_of_name" if parked.reason == "workflow_limit" else "next_of_workflow"]
    return bool(db.execute(behind, parked.head._asdict()).fetchall())


def keep_workflow_limit(db: apsw.Connection, most: int) -> None:
    """When workflows may run more than before, whatever the lower limit parked is asked again."""
    before = db.execute(SQL["workflow_limit"]).get
    if before == most:
        return
    db.execute(SQL["keep_workflow_limit"], {"most": most})
    if before is None or int(str(before)) < most:
        db.execute(SQL["unpark_workflows"])


def _defer(db: apsw.Connection, job_id: int, reason: str, every_ms: int, now: int) -> bool:
    db.execute(SQL["defer"], {"job_id": job_id, "reason": reason, "now": now, "every": every_ms})
    return db.changes() > 0


def clocks(db: apsw.Connection) -> Clocks:
    """Whose turn it is."""
    at: dict[Turn, float] = {}
    present: dict[int, float] = {}
    for band, tenant, clock in db.execute(SQL["turns"]):
        if tenant:
            at[band, tenant] = clock
        else:
            present[band] = clock
    return Clocks(at, present)


def keep_turns(db: apsw.Connection, turns: Turns) -> None:
    """Write the clocks that a pass moved, and forget those that say nothing any more."""
    for (band, tenant), clock in turns.moved.items():
        db.execute(SQL["move_turn"], {"band": band, "tenant": tenant, "clock": clock})
    for band, present in turns.presents.items():
        db.execute(SQL["move_turn"], {"band": band, "tenant": "", "clock": present})
        db.execute(SQL["forget_turns"], {"band": band, "present": present})


def is_idle(db: apsw.Connection, paused: Iterable[tuple[str, str]]) -> bool:
    """Does nothing run, and is nothing queued or scheduled that a pause does not hold?"""
    scopes = set(paused)
    for state, band, tenant, kind, needs in db.execute(SQL["unsettled"]):
        if state not in ("scheduled", "queued"):
            return False
        names = [("all", ""), ("tenant", tenant), ("kind", kind), ("band", str(band))]
        names += [("resource", name) for name in split(needs)]
        if not scopes.intersection(names):
            return False
    return True
