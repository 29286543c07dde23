"""How fast the queue drains: the one measurement behind ``retry_after_s`` and ``would_expire``.

It counts ends, not starts: eight starts in the first second fill eight slots and say nothing about when the
next is free. It looks only at the time in which something waited, as far as there was one: an idle
hour does not make a queue slow. Times are epoch ms.
"""

import os

from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.store.draft import Draft

_SQL = sqlfile.load("drain")

WINDOWS_MS = (600_000, 3_600_000)
"""Ten minutes, and where nothing ended in them an hour."""
SHORTEST_MS = 30_000
"""Less would be luck."""
RETRY_MOST_S = 3_600.0


def pace(db: "apsw.Connection", now: int, tenant: str | None = None, kind: str | None = None) -> float | None:
    """ms from one end to the next, of all jobs or a tenant's or a kind's; None: nothing was measured."""
    whose: dict[str, Any] = {"tenant": tenant, "kind": kind, "now": now}
    backlog = db.execute(_SQL["backlog_since"], whose).get
    shortest, longest = WINDOWS_MS
    spans = [shortest, longest]
    if backlog is not None:
        spans.insert(0, min(shortest, max(SHORTEST_MS, now - int(backlog))))
    for span in spans:
        since = now - span
        values = {**whose, "since": since, "after": min(since, now - shortest)}
        rows: Any = db.execute(_SQL["ended"], values).fetchall()
        count, first_at = rows[0]
        if count:
            return float(max(1, now - max(since, first_at)) / count)
    return None


def expected_wait(db: "apsw.Connection", draft: "Draft", now: int) -> float | None:
    """ms until a job as this would start behind what waits in its own and higher bands; None: unmeasured.

    The slowest of three queues is the one that it stands in: everybody's, its tenant's, its kind's.
    """
    mine: Any = {"tenant": draft.tenant, "kind": draft.kind, "band": draft.band}
    rows: Any = db.execute(_SQL["ahead"], mine).fetchall()
    ahead, of_tenant, of_kind = rows[0]
    waits = [(ahead, pace(db, now))]
    if of_tenant:
        waits.append((of_tenant, pace(db, now, tenant=draft.tenant)))
    if of_kind:
        waits.append((of_kind, pace(db, now, kind=draft.kind)))
    return max(((before + 1) * each for before, each in waits if each is not None), default=None)


def jittered(seconds: float) -> int:
    """About as long, in whole seconds from 1 to 72 minutes: callers refused together come back apart."""
    spread = 0.8 + 0.4 * os.urandom(1)[0] / 255
    return max(1, round(min(seconds, RETRY_MOST_S) * spread))
