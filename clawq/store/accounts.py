"""The accounts behind admission as owners look at them: budgets, resources at rest, what observing let pass.

Reads only; clawq.store.ledger is where they are kept. Times are epoch ms.
"""

from __future__ import annotations

from clawq.settings import PRESSURES
from clawq.store import sqlfile, told
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.settings import Budget, Settings

_SQL = sqlfile.load("accounts")

Row = dict[str, "Any"]

RESTING, PROBING, RETURNING = "resting", "probing", "returning"
"""What a cooldown does: nobody may start; one job may, alone; ever more may."""


def pressure(level: float | None) -> str | None:
    """The system's memory pressure in a word."""
    if level is None:
        return None
    return PRESSURES[int(level)] if 0 <= level < len(PRESSURES) else str(level)


def budgets(db: apsw.Connection | None, settings: Settings, now: int) -> Row:
    """{name: {used, limit, per_s, tenant_limit, per_tenant: {tenant: used}, frees_in_s}}.

    ``frees_in_s``: until the oldest entry leaves the window; None while it is empty.
    """
    return {name: _budget(db, each, now) for name, each in sorted(settings.budgets.items())}


def _budget(db: apsw.Connection | None, budget: Budget, now: int) -> Row:
    used_by, oldest = ({}, None) if db is None else told.window(db, budget.name, now - budget.per_ms)
    return {
        "used": sum(used_by.values()),
        "limit": budget.limit,
        "per_s": budget.per_ms / 1000 if budget.per_ms % 1000 else budget.per_ms // 1000,
        "tenant_limit": budget.per_tenant,
        "per_tenant": dict(sorted(used_by.items())),
        "frees_in_s": None if oldest is None else max(0.0, round((oldest + budget.per_ms - now) / 1000, 1)),
    }


def room(
    db: apsw.Connection, settings: Settings, name: str, tenant: str, amount: int, now: int
) -> tuple[int, int, int | None] | None:
    """(used, limit, when the window itself has room) of what keeps `tenant` from taking so much of a budget.

    None when nothing does; the moment is None when the window alone never will.
    """
    budget = settings.budgets[name]
    window = {"budget": name, "after": now - budget.per_ms}
    bounds: list[tuple[str | None, int]] = [(None, budget.limit)]
    if budget.per_tenant is not None:
        bounds.append((tenant, budget.per_tenant))
    figures: tuple[int, int] | None = None
    frees: list[int | None] = []
    for whose, limit in bounds:
        used = dicts(db.execute(_SQL["used"], {**window, "tenant": whose}))[0]["used"]
        if used + amount <= limit:
            continue
        figures = figures or (used, limit)
        gone = {**window, "tenant": whose, "amount": used + amount - limit}
        rows = dicts(db.execute(_SQL["leaves"], gone))
        frees.append(rows[0]["at"] + budget.per_ms if rows else None)
    if figures is None:
        return None
    known = [at for at in frees if at is not None]
    return (*figures, max(known) if len(known) == len(frees) else None)


def cooldown_stage(row: Row, now: int) -> str:
    """RESTING, PROBING or RETURNING, of a row of `cooldowns`."""
    if row["passed_at"] is not None:
        return RETURNING
    return RESTING if now < row["until"] else PROBING


def cooldown(db: apsw.Connection, resource: str, now: int) -> Row | None:
    """How far the rest of one resource has come: a row of `cooldowns` with its ``stage``, and ``job_id`` of
    its probe; None when it does not rest."""
    rows = dicts(db.execute(_SQL["cooldown"], (resource,)))
    return {**rows[0], "stage": cooldown_stage(rows[0], now)} if rows else None


def cooldowns(db: apsw.Connection, now: int) -> dict[str, Row]:
    """{resource: {``stage``, ``cooldown_s``: what is left of its rest}} of those at rest."""
    return {
        row["resource"]: {
            "stage": cooldown_stage(row, now),
            "cooldown_s": 0.0
            if row["passed_at"] is not None
            else max(0.0, round((row["until"] - now) / 1000, 1)),
        }
        for row in dicts(db.execute(_SQL["cooldowns"]))
    }


def observed(db: apsw.Connection | None) -> Row:
    """{``since``, ``enqueue``: rows, ``start``: rows}: what enforcing would have refused, the most first.

    ``since`` is None while refusals are not only recorded; what was recorded last is there all the same.
    """
    if db is None:
        return {"since": None, "enqueue": [], "start": []}
    rows = dicts(db.execute(_SQL["observed"]))
    return {
        "since": db.execute(told.SQL["observing_since"]).get,
        **{
            stage: [
                {key: value for key, value in row.items() if key != "stage"}
                for row in rows
                if row["stage"] == stage
            ]
            for stage in ("enqueue", "start")
        },
    }
