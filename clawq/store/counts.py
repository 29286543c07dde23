"""What has happened so far, counted: for ever and by the hour. And what the queue looked like, by the minute.

Nothing is counted while a job moves. Every move is in `events` anyway; the supervisor adds the new ones to
`counts` in bulk, in a transaction that it writes anyway, and readers add to that what came since. So
the figures include what other programs did, and what was done while no supervisor ran.

=============  =====================  ==========================================  =====================
``what``       ``kind``               ``word``                                    ``total``
=============  =====================  ==========================================  =====================
accepted       the job's kind         the state it began in
started        the job's kind
late           the job's kind                                                     (a retry past its deadline)
ended          the job's kind         state and reason
removed        the job's kind         state and reason; it had never started
unknown        the job's kind         reason
attempt        the job's kind         outcome
retried        the job's kind         error class
workflow       its first job's kind   state
waited         the job's kind         most ms of its bucket, 0: the longest       ms, queued to running
worked         the job's kind         most ms of its bucket, 0: the longest       ms, running to outcome
spoke          the job's kind         most ms of its bucket, 0: the longest       ms, queued to first output
deferred       the job's kind         reason
used           a resource                                                         ms that its slots were held
failed         a resource             error class of the attempt that held it
refused        the job's kind         reason
duplicate      the job's kind
spent          its first job's kind   budget                                      the amount
=============  =====================  ==========================================  =====================
"""

from __future__ import annotations

from clawq import states as job
from clawq.named import NamedTuple
from clawq.states import split
from clawq.store.connection import Immediate, dicts
from clawq.store.sqlfile import id_list, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import apsw

SQL = load("counts")

BATCH = 5_000
"""Events counted in one transaction: some milliseconds."""
TAIL = 50_000
"""Events that a reader adds up itself. After a very large batch the supervisor needs a while to get there."""
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
HOURS_KEPT, MINUTES_KEPT = 90 * 24, 14 * 24 * 60
EVER = 0

BOUNDS_MS = (100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000)
"""The buckets of durations, which the query `uncounted` sorts into."""

_NO_FAILURE = ("succeeded", "cancelled", "never_started", "superseded")


class Key(NamedTuple):
    """See the table above; ``hour`` is EVER or hours since the epoch."""

    hour: int
    what: str
    kind: str
    word: str


def state_and_reason(word: str) -> tuple[str, str]:
    """What the word of ``ended`` and of ``removed`` is made of."""
    state, _, reason = word.partition(" ")
    return state, reason


class Count(NamedTuple):
    n: int
    total: int


NONE = Count(0, 0)
Counts = dict[Key, Count]


class Told(NamedTuple):
    """``behind``: more events than a reader adds up itself are not counted yet."""

    counts: Counts
    behind: bool


def fold(db: apsw.Connection) -> bool:
    """Count what has come since, in the caller's transaction; whether more may be left for the next time."""
    after = int(db.execute(SQL["counted_to"]).get)
    to = db.execute(SQL["last_of_batch"], {"after": after, "most": BATCH}).get
    if to is None:
        return False
    for key, count in _count(db, after, int(to)).items():
        _add(db, key, count.n, count.total)
    db.execute(SQL["keep_counted_to"], {"to": to})
    return int(to) - after >= BATCH


def fold_of(db: apsw.Connection, job_ids: Iterable[int]) -> None:
    """Count at least what there is of these jobs, a transaction for each batch: before it goes with them."""
    last = db.execute(SQL["last_event_of"], {"ids": id_list(job_ids)}).get
    while last is not None and int(db.execute(SQL["counted_to"]).get) < int(last):
        with Immediate(db):
            fold(db)


def note_deferrals(db: apsw.Connection, deferred: Mapping[tuple[str, str], int], now: int) -> None:
    """What a pass put off, {(kind, reason): n}: no move tells of it. Names of exclusive work are not kept."""
    for (kind, reason), n in deferred.items():
        _note(db, "deferred", kind, plain_reason(reason), n, 0, now)


def plain_reason(reason: str) -> str:
    """A reason without names that are as many as there are jobs."""
    return "exclusive" if reason.startswith("exclusive:") else reason


def note_spends(db: apsw.Connection, job_id: int, token: int, now: int) -> None:
    """What an attempt that has ended took out of the budgets."""
    rows: list[Any] = db.execute(SQL["spent"], {"job_id": job_id, "token": token}).fetchall()
    for kind, budget, amount in rows:
        _note(db, "spent", kind, budget, 1, amount, now)


def _note(db: apsw.Connection, what: str, kind: str, word: str, n: int, total: int, now: int) -> None:
    for hour in (EVER, now // HOUR_MS):
        _add(db, Key(hour, what, kind, word), n, total)


def _add(db: apsw.Connection, key: Key, n: int, total: int) -> None:
    db.execute(SQL["add"], {**key._asdict(), "n": n, "total": total})


def ever(db: apsw.Connection) -> Told:
    """Since ever."""
    tail, behind = _tail(db)
    found = {Key(EVER, *row[:3]): Count(*row[3:]) for row in db.execute(SQL["ever"])}
    _join(found, {key: count for key, count in tail.items() if key.hour == EVER})
    _join(found, {Key(EVER, *row[:3]): Count(row[3], 0) for row in db.execute(SQL["refused"])})
    return Told(found, behind)


def hourly(db: apsw.Connection, since: int) -> Told:
    """By the hour, from the hour of `since` (epoch ms) on."""
    first = since // HOUR_MS
    tail, behind = _tail(db)
    found = {Key(*row[:4]): Count(*row[4:]) for row in db.execute(SQL["hourly"], {"since": first})}
    _join(found, {key: count for key, count in tail.items() if key.hour >= max(1, first)})
    return Told(found, behind)


def _join(found: Counts, more: Counts) -> None:
    for key, count in more.items():
        had = found.get(key, NONE)
        found[key] = Count(had.n + count.n, had.total + count.total)


def _tail(db: apsw.Connection) -> tuple[Counts, bool]:
    after = int(db.execute(SQL["counted_to"]).get)
    to = db.execute(SQL["last_of_batch"], {"after": after, "most": TAIL}).get
    return ({}, False) if to is None else (_count(db, after, int(to)), int(to) - after >= TAIL)


def _count(db: apsw.Connection, after: int, to: int) -> Counts:
    """What the events after the one and up to the other come to, by the hour and for ever."""
    found: Counts = {}

    def add(hour: int, what: str, kind: str, word: str, count: int, amount: int = 0) -> None:
        for key in (Key(EVER, what, kind, word), Key(hour, what, kind, word)):
            had = found.get(key, NONE)
            found[key] = Count(had.n + count, had.total + amount)

    for row in db.execute(SQL["uncounted"], {"after": after, "to": to}):
        kind, needs, was, state, reason, hour, tries, child, late, ended, most, spoke_most, *sums = row
        count, ms, held_ms, spoke_ms = sums
        how = f"{state} {reason or ''}".strip()
        if was == "new":
            add(hour, "accepted", kind, state, count)
        elif state == job.STARTING:
            add(hour, "started", kind, "", count)
            if late:
                add(hour, "late", kind, "", count)
        elif was == job.STARTING and state == job.RUNNING:
            add(hour, "waited", kind, str(most or 0), count, ms)
        if state in job.ENDED:
            add(hour, "ended", kind, how, count)
            if not tries:
                add(hour, "removed", kind, how, count)
            if not child:
                add(hour, "workflow", kind, state, count)
        elif state == job.UNKNOWN:
            add(hour, "unknown", kind, reason or "", count)
        if was in (job.STARTING, job.RUNNING) and held_ms:
            for name in split(needs):
                add(hour, "used", name, "", 0, held_ms)
        if was in job.ACTIVE and state not in job.ACTIVE:
            outcome, _, error_class = (ended or "lost lost").partition(" ")
            add(hour, "attempt", kind, outcome, count)
            if most is not None:
                add(hour, "worked", kind, str(most), count, ms)
            if spoke_most is not None:
                add(hour, "spoke", kind, str(spoke_most), count, spoke_ms)
            if state in (job.QUEUED, job.SCHEDULED):
                add(hour, "retried", kind, error_class or outcome, count)
            for name in split(needs):
                add(hour, "used", name, "", count)
                if outcome not in _NO_FAILURE:
                    add(hour, "failed", name, error_class or outcome, count)
    return found


# ------------------------------------------------------------------ by the minute


class Machine(NamedTuple):
    """What a sample says of the host and of its limits; None: not measured, no limit."""

    max_running: int
    procs: int | None = None
    max_procs: int | None = None
    free_mb: int | None = None
    min_free_mb: int | None = None
    pressure: int | None = None
    free_disk_mb: int | None = None


def sample(db: apsw.Connection, machine: Machine, now: int) -> None:
    """Keep how things are, in the caller's transaction, and forget what is too old."""
    minute = now // MINUTE_MS
    db.execute(SQL["sample"], {**machine._asdict(), "minute": minute, "now": now})
    db.execute(SQL["forget_samples"], {"before": minute - MINUTES_KEPT})
    db.execute(SQL["forget_hours"], {"before": now // HOUR_MS - HOURS_KEPT})


def samples(db: apsw.Connection, since: int) -> list[dict[str, Any]]:
    """One a minute from `since` on; minutes in which no supervisor ran are missing."""
    return dicts(db.execute(SQL["samples"], {"since": since // MINUTE_MS}))
