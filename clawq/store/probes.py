"""Unknown jobs, and what their kind's probe says of them.

A trigger notes each job that becomes unknown; the note goes when a probe has answered, or when a person was
faster. Functions take an open connection and expect the caller's transaction. Times are epoch ms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from clawq.rules.classify import LOST, End
from clawq.rules.retry import Decision
from clawq.store import effects
from clawq.store.attempts import Claim, PolicyRow
from clawq.store.sqlfile import load

SQL = load("probes")


class Due(NamedTuple):
    """A job that no probe was asked about since its attempt `number` left it unknown."""

    number: int
    job: Claim
    """As it was claimed for that attempt: what its probe's command and environment are made of."""


def due(db: apsw.Connection, most: int) -> list[Due]:
    """The longest unknown first; those that are being asked about are among them."""
    return [Due(number, Claim._make(row)) for number, *row in db.execute(SQL["due"], {"most": most})]


def any_due(db: apsw.Connection) -> bool:
    """Is anybody to be asked about, or being asked about?"""
    return bool(db.execute(SQL["any_due"]).get)


def is_due(db: apsw.Connection, job_id: int, number: int) -> bool:
    """Whether an answer about this attempt would still count."""
    return bool(db.execute(SQL["is_due"], {"job_id": job_id, "number": number}).get)


def forget(db: apsw.Connection, job_id: int, number: int) -> bool:
    """No probe is asked about this attempt any more; False when none was to be."""
    return db.execute(SQL["forget"], {"job_id": job_id, "number": number}).get is not None


def policy(db: apsw.Connection, job_id: int) -> PolicyRow | None:
    """What the job says of its retries; None when it is not unknown."""
    row = db.execute(SQL["policy"], {"job_id": job_id}).fetchone()
    return None if row is None else PolicyRow(*row)


def last_end(db: apsw.Connection, job_id: int, number: int) -> End:
    """How the attempt ended that left the job unknown."""
    row: Any = db.execute(SQL["last_end"], {"job_id": job_id, "number": number}).fetchone()
    if row is None:
        return LOST
    outcome, error_class, exit_code, signal, charged, error, reason, resource = row
    return End(outcome, error_class, exit_code, signal, bool(charged), False, error, reason, resource)


def it_happened(db: apsw.Connection, job_id: int, reason: str, now: int) -> None:
    """The job has succeeded, and what it had begun is done."""
    if db.execute(SQL["it_happened"], {"job_id": job_id, "reason": reason, "now": now}).get is not None:
        effects.settle_open(db, job_id, effects.DONE, now)


def it_did_not(db: apsw.Connection, job_id: int, decision: Decision, reason: str, now: int) -> None:
    """The job goes on by `decision`, and what it had begun may be begun again."""
    values = decision._asdict() | {"job_id": job_id, "reason": reason, "now": now}
    if db.execute(SQL["it_did_not"], values).get is not None:
        effects.settle_open(db, job_id, effects.FAILED, now)


def nobody_knows(db: apsw.Connection, job_id: int, said: str, now: int) -> None:
    """The job stays unknown, and says what its probe said."""
    if db.execute(SQL["nobody_knows"], {"job_id": job_id, "said": said}).get is not None:
        db.execute(SQL["note"], {"job_id": job_id, "reason": said, "now": now})
