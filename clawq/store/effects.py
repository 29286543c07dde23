"""The ledger of side effects: begun before they are done, settled after, and open while nobody knows.

A key belongs to its job, across its attempts, or with scope ``tenant`` to all jobs of the tenant, and then
it outlives the job. Functions take an open connection and expect the caller's transaction. Times are epoch
ms.
"""

from __future__ import annotations

from clawq.store import sqlfile
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import apsw

SQL = sqlfile.load("effects")

BEGUN, DONE, FAILED = "begun", "done", "failed"
"""The states of an effect; failed: it did not happen, and its key is free again."""

UNCONFIRMED, HELD, NEVER_BEGUN = "unconfirmed", "held", "never_begun"
"""Answers besides the states: begun by an attempt that is gone, or by one that is under way; never begun, or
free again."""


class Effect:
    """An answer about one key. ``answer`` is a state or one of the words above.

    ``job_id``, ``begun_at`` and ``settled_at`` are those of whoever began it last; None where nobody did.
    """

    __slots__ = ("answer", "begun_at", "job_id", "key", "scope", "settled_at")

    def __init__(
        self,
        key: str,
        scope: str,
        answer: str,
        job_id: int | None = None,
        begun_at: int | None = None,
        settled_at: int | None = None,
    ) -> None:
        self.key = key
        self.scope = scope
        self.answer = answer
        self.job_id = job_id
        self.begun_at = begun_at
        self.settled_at = settled_at


class _Row:
    """What the ledger says of a key."""

    __slots__ = ("begun_at", "held", "id", "job_id", "settled_at", "state", "token")

    def __init__(
        self,
        id: int,
        job_id: int,
        state: str,
        token: int,
        begun_at: int,
        settled_at: int | None,
        held: int,
    ) -> None:
        self.id = id
        self.job_id = job_id
        self.state = state
        self.token = token
        self.begun_at = begun_at
        self.settled_at = settled_at
        self.held = held


def begin(
    db: apsw.Connection, tenant: str, job_id: int, token: int, key: str, scope: str, now: int
) -> Effect:
    """Record that this attempt is about to do it, if it may: ``begun`` says so, and nothing else does.

    ``done``: skip it. ``unconfirmed``: an attempt began it and never said more, perhaps this very one.
    ``held``: another attempt that is under way has it.
    """
    row = _find(db, tenant, job_id, key, scope)
    if row is not None and row.state != FAILED:
        answer = DONE if row.state == DONE else HELD if row.held and row.token != token else UNCONFIRMED
        return Effect(key, scope, answer, row.job_id, row.begun_at, row.settled_at)
    values = {"scope": scope, "tenant": tenant, "job_id": job_id, "key": key, "token": token, "now": now}
    if row is None:
        db.execute(SQL["begin"], values)
    else:
        db.execute(SQL["begin_again"], values | {"id": row.id})
    return Effect(key, scope, BEGUN, job_id, now)


def settle(
    db: apsw.Connection,
    tenant: str,
    job_id: int,
    token: int,
    key: str,
    state: str,
    scopes: Iterable[str],
    now: int,
) -> Effect:
    """Record that what this attempt began is ``done`` or has ``failed``; to say it twice changes nothing.

    Only who began it can say so. Any other answer than `state` is a refusal that changed nothing: ``done``,
    ``unconfirmed``, ``held`` or ``never_begun``. A key that was begun in both scopes is settled in both.
    """
    found = [(scope, row) for scope in scopes if (row := _find(db, tenant, job_id, key, scope)) is not None]
    mine = [(scope, row) for scope, row in found if row.token == token]
    if not mine:
        if not found:
            return Effect(key, next(iter(scopes)), NEVER_BEGUN)
        scope, row = found[0]
        answer = {DONE: DONE, FAILED: NEVER_BEGUN}.get(row.state, HELD if row.held else UNCONFIRMED)
        return Effect(key, scope, answer, row.job_id, row.begun_at, row.settled_at)
    still = [(scope, row) for scope, row in mine if row.state == BEGUN]
    for _, row in still:
        db.execute(SQL["settle"], {"id": row.id, "token": token, "state": state, "now": now})
    scope, row = (still or mine)[0]
    if still or row.state == state:
        settled_at = now if still else row.settled_at
        return Effect(key, scope, state, row.job_id, row.begun_at, settled_at)
    answer = DONE if row.state == DONE else NEVER_BEGUN
    return Effect(key, scope, answer, row.job_id, row.begun_at, row.settled_at)


def _find(db: apsw.Connection, tenant: str, job_id: int, key: str, scope: str) -> _Row | None:
    values = {"job_id": job_id, "key": key} if scope == "job" else {"tenant": tenant, "key": key}
    rows: Any = db.execute(SQL[f"find_{scope}"], values).fetchall()
    return _Row(*rows[0]) if rows else None


def open_keys(db: apsw.Connection, job_id: int) -> list[str]:
    """The effects that the job has begun and nobody has settled, in the order in which they were begun."""
    rows: Any = db.execute(SQL["open"], {"job_id": job_id}).fetchall()
    return [key for (key,) in rows]


def settle_open(db: apsw.Connection, job_id: int, state: str, now: int) -> None:
    """A person or a probe says of all that the job left open that it is ``done`` or has ``failed``."""
    db.execute(SQL["settle_open"], {"job_id": job_id, "state": state, "now": now})


def of_job(db: apsw.Connection, job_id: int) -> list[dict[str, Any]]:
    """[{key, scope, state, attempt, begun_at, settled_at}]; ``attempt`` is its number."""
    return dicts(db.execute(SQL["of_job"], {"job_id": job_id}))


def open_of(db: apsw.Connection, job_ids: list[int]) -> dict[int, list[dict[str, Any]]]:
    """{job: [{key, scope, begun_at}]} of what is open; jobs without are left out."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in dicts(db.execute(SQL["open_of"], {"ids": sqlfile.id_list(job_ids)})):
        found.setdefault(row.pop("job_id"), []).append(row)
    return found
