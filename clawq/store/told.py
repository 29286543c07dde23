"""What is told to the accounts from outside the supervisor: what an attempt spent, and resources to rest.

Apart from clawq.store.ledger, since agents' commands must not load what that needs. Functions take an open
connection and expect the caller's transaction. Times are epoch ms.
"""

from __future__ import annotations

from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

SQL = sqlfile.load("ledger")


def owner(db: apsw.Connection, job_id: int, token: int) -> str | None:
    """The tenant that this attempt works for; None when it is not, or no longer, the job's."""
    found: Any = db.execute(SQL["owner"], {"job_id": job_id, "token": token}).fetchall()
    return found[0][0] if found else None


def cool(db: apsw.Connection, resource: str, until: int, step_ms: int, now: int) -> None:
    """Let a resource rest until then; afterwards one job probes, then the rest come back, ever more."""
    db.execute(SQL["cool"], {"resource": resource, "until": until, "step_ms": step_ms, "now": now})


def warm(db: apsw.Connection, resource: str) -> None:
    """End its rest, and let all of them back at once. The next rest is a first one again."""
    db.execute(SQL["warm"], {"resource": resource})
    db.execute(SQL["forget_streak"], {"resource": resource})


def tell_failure(
    db: apsw.Connection,
    token: int,
    error_class: str,
    reason: str | None,
    resource: str | None,
    retry_after_ms: int | None,
    error: str | None,
) -> None:
    """Record what an attempt says of its own end, before it ends. The last word stands."""
    values = {
        "token": token,
        "class": error_class,
        "reason": reason,
        "resource": resource,
        "retry_after_ms": retry_after_ms,
        "error": error,
    }
    db.execute(SQL["tell_failure"], values)


def rests_until(db: apsw.Connection, resource: str) -> int | None:
    """None: it does not rest."""
    found: Any = db.execute(SQL["rests_until"], {"resource": resource}).fetchall()
    return found[0][0] if found else None


def tell_spend(db: apsw.Connection, tenant: str, token: int, budget: str, total: int, now: int) -> int:
    """Record an attempt's real figure, cumulative. It always counts, also beyond the limit: debt.

    The figure that stands: one that is told later and lower takes nothing back.
    """
    recorded: Any = db.execute(SQL["recorded"], {"token": token, "budget": budget}).fetchall()[0]
    amount, told = recorded
    total = max(total, told or 0)
    more = max(0, total - amount)
    db.execute(
        SQL["tell_spend"],
        {"budget": budget, "tenant": tenant, "token": token, "now": now, "amount": more, "told": total},
    )
    return total


def window(db: apsw.Connection, budget: str, after: int) -> tuple[dict[str, int], int | None]:
    """({tenant: amount}, the time of the oldest entry) of what a budget's window holds."""
    rows: Any = db.execute(SQL["window"], {"budget": budget, "after": after}).fetchall()
    return {tenant: amount for tenant, amount, _ in rows}, min((at for _, _, at in rows), default=None)
