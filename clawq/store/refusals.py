"""What a full queue says and remembers. Apart from clawq.store.intake, since most jobs are not refused."""

import os

import apsw

from clawq.errors import Refused
from clawq.store import sqlfile
from clawq.store.connection import BUSY_MS, Immediate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawq.store.intake import Draft

_SQL = sqlfile.load("refusals")

DRAIN_WINDOW_MS = 600_000
RETRY_MOST_S = 3_600.0
PEOPLE_SLOWER = 5
"""How much longer than a machine's place a person's answer is worth waiting for."""
SMALL_TALK_MS = 1_000
"""How long a counter may wait for the database."""


def no_place(
    db: apsw.Connection, draft: "Draft", now: int, most: int, total: int, tenant: int, kind: int, held: int
) -> Refused:
    """The refusal of a job for which one of the caps leaves no place: the widest cap that is full.

    ``most`` is how many jobs may wait in all for this one's band; the counts are of waiting jobs.
    """
    frame = draft.frame
    starts: Any = db.execute(
        _SQL["drain"], {"tenant": draft.tenant, "kind": draft.kind, "since": now - DRAIN_WINDOW_MS}
    ).fetchall()[0]

    def answer(reason: str, what: str, count: int, excess: int) -> Refused:
        unknown = frame.retry_after_ms / 1000
        seconds = jittered((now - starts[3]) / 1000 / count * (excess + 1) if count else unknown)
        return Refused(reason, what, f"try again in {seconds} s", seconds)

    if total >= most:
        kept = frame.max_queued - most
        reserve = f", and the last {kept} places are for band critical" if kept else ""
        what = f"the queue is full: {total} of at most {frame.max_queued} jobs wait{reserve}"
        return answer("queue_full", what, starts[0], total - most)
    if tenant >= frame.tenant_max_queued:
        what = f"tenant {draft.tenant!r} is full: {tenant} of at most {frame.tenant_max_queued} jobs wait"
        return answer("tenant_queue_full", what, starts[1], tenant - frame.tenant_max_queued)
    if frame.queue_cap is not None and kind >= frame.queue_cap:
        what = f"kind {draft.kind!r} is full: {kind} of at most {frame.queue_cap} jobs wait"
        return answer("kind_queue_full", what, starts[2], kind - frame.queue_cap)
    seconds = jittered(frame.retry_after_ms / 1000 * PEOPLE_SLOWER)
    what = f"{held} of at most {frame.max_held} jobs are held"
    return Refused("held_full", what, f"approve or deny some, or try again in {seconds} s", seconds)


def jittered(seconds: float) -> int:
    """About as long, in whole seconds from 1 to 72 minutes: callers refused together come back apart."""
    spread = 0.8 + 0.4 * os.urandom(1)[0] / 255
    return max(1, round(min(seconds, RETRY_MOST_S) * spread))


def count_refusals(db: apsw.Connection, counts: "dict[tuple[str, str, str], int]", now: int) -> None:
    """Add to the counters {(reason, kind, tenant): n}. Never an error: the answer stands without them."""

    def add() -> None:
        for (reason, kind, tenant), count in counts.items():
            db.execute(
                _SQL["count_refusal"],
                {"reason": reason, "kind": kind, "tenant": tenant, "count": count, "now": now},
            )

    _without_fsync(db, add)


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
