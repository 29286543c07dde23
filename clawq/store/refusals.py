"""What the queue says when it does not take a job, and what it remembers of that. Apart from
clawq.store.intake, since most jobs are taken."""

import apsw

from clawq import when
from clawq.errors import Refused
from clawq.store import drain, sqlfile
from clawq.store.connection import BUSY_MS, Immediate
from clawq.store.drain import jittered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawq.store.draft import Draft

_SQL = sqlfile.load("refusals")
_OBSERVE = sqlfile.load("ledger")["observe"]

PEOPLE_SLOWER = 5
"""How much longer than a machine's place a person's answer is worth waiting for."""
REMEMBERED = 10_000
SMALL_TALK_MS = 5_000
"""How long a counter may wait for the database."""


def no_place(
    db: apsw.Connection, draft: "Draft", now: int, most: int, counts: "tuple[int, int, int, int]"
) -> Refused:
    """The refusal of a job for which one of the caps leaves no place: the widest cap that is full.

    ``most`` is how many jobs may wait in all for this one's band; ``counts`` are those that
    wait: all, the tenant's, the kind's, the held ones.
    """
    frame = draft.frame
    total, tenant, kind, held = counts

    def answer(reason: str, what: str, pace: float | None, excess: int) -> Refused:
        seconds = jittered((frame.retry_after_ms if pace is None else pace * (excess + 1)) / 1000)
        return Refused(reason, what, f"try again in {seconds} s", seconds)

    if total >= most:
        kept = frame.max_queued - most
        reserve = f", and the last {kept} places are for band critical and for children" if kept else ""
        what = f"the queue is full: {total} of at most {frame.max_queued} jobs wait{reserve}"
        return answer("queue_full", what, drain.pace(db, now), total - most)
    if tenant >= frame.tenant_max_queued:
        what = f"tenant {draft.tenant!r} is full: {tenant} of at most {frame.tenant_max_queued} jobs wait"
        pace = drain.pace(db, now, tenant=draft.tenant)
        return answer("tenant_queue_full", what, pace, tenant - frame.tenant_max_queued)
    if frame.queue_cap is not None and kind >= frame.queue_cap:
        what = f"kind {draft.kind!r} is full: {kind} of at most {frame.queue_cap} jobs wait"
        pace = drain.pace(db, now, kind=draft.kind)
        return answer("kind_queue_full", what, pace, kind - frame.queue_cap)
    seconds = jittered(frame.retry_after_ms / 1000 * PEOPLE_SLOWER)
    what = f"{held} of at most {frame.max_held} jobs are held"
    return Refused("held_full", what, f"approve or deny some, or try again in {seconds} s", seconds)


def over_capacity(db: apsw.Connection, draft: "Draft", now: int, ticking: bool) -> Refused:
    """The refusal of work that may not wait (``on_busy = "reject"``) and could not start now."""
    wait = drain.expected_wait(db, draft, now) if ticking else None
    seconds = jittered((draft.frame.retry_after_ms if wait is None else wait) / 1000)
    what = "could not start now" if ticking else "could not start, since no supervisor runs"
    return Refused(
        "over_capacity",
        f'a {draft.kind!r} job in band {draft.frame.band} {what}, and its on_busy is "reject"',
        f"try again in {seconds} s",
        seconds,
    )


def would_expire(db: apsw.Connection, draft: "Draft", expires_at: int, now: int) -> Refused | None:
    """The refusal of work that the queue, as fast as it drains, could not start in time; else None."""
    wait = drain.expected_wait(db, draft, now)
    if wait is None:
        return None
    starts_at = max(draft.run_after, now + wait)
    if starts_at < expires_at:
        return None
    seconds = jittered((starts_at - expires_at) / 1000)
    return Refused(
        "would_expire",
        f"it would start in about {round(wait / 1000)} s, and is worth nothing after {when.iso(expires_at)}",
        f"try again in {seconds} s, or give it longer",
        seconds,
    )


def count_refusals(db: apsw.Connection, counts: "dict[tuple[str, str, str], int]", now: int) -> None:
    """Add {(reason, kind, tenant): n} to the counters and to what `clawq events` tells, which is not of
    duplicates: they are no refusals. Never an error: the answer stands without them."""

    def add() -> None:
        for (reason, kind, tenant), count in counts.items():
            values = {"reason": reason, "kind": kind, "tenant": tenant, "count": count, "now": now}
            db.execute(_SQL["count_refusal"], values)
            if reason != "duplicate":
                db.execute(_SQL["turn_away"], values)
                db.execute(_SQL["forget_turned_away"], {"most": REMEMBERED})

    _without_fsync(db, add)


def observe(db: apsw.Connection, refused: Refused, draft: "Draft", now: int) -> None:
    """Count what enforcing would have refused, in the transaction that accepts it. Never an error."""
    values = {"stage": "enqueue", "reason": refused.reason, "kind": draft.asked_kind, "tenant": draft.tenant}
    try:
        db.execute(_OBSERVE, {**values, "now": now})
    except apsw.SQLError:
        pass


def note_old_key(db: apsw.Connection, draft: "Draft", job_id: int, ended_at: int | None, now: int) -> None:
    """Remember, for an alert, that a key still answers `duplicate`: one write for a kind in ten minutes."""
    values = {
        "tenant": draft.tenant,
        "kind": draft.asked_kind,
        "key": draft.key,
        "job_id": job_id,
        "ended_ms": None if ended_at is None else now - ended_at,
        "now": now,
    }
    try:
        if not db.execute(_SQL["old_key_noted"], values).fetchall():
            db.execute(_SQL["note_old_key"], values)
    except apsw.SQLError:
        pass


def first_to_nag(db: apsw.Connection, today: str) -> bool:
    """Whether nobody has nagged on the day `today` yet; from then on somebody has. Never an error."""
    won = []
    _without_fsync(db, lambda: won.extend(db.execute(_SQL["nag"], (today,)).fetchall()))
    return bool(won)


def _without_fsync(db: apsw.Connection, write: "Any") -> None:
    """A storm of retries must not cost an fsync each, nor what is counted here be an error of any kind."""
    try:
        db.set_busy_timeout(SMALL_TALK_MS)
        db.execute("PRAGMA synchronous=NORMAL")
        with Immediate(db):
            write()
    except apsw.Error:
        pass
    finally:
        try:
            db.execute("PRAGMA synchronous=FULL")
            db.set_busy_timeout(BUSY_MS)
        except apsw.Error:
            pass
