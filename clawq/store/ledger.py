"""The accounts behind admission: budgets, resting resources, footprints, and what observing let pass.

Functions take an open connection and expect the caller's transaction. Times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import apsw

from clawq.rules import ramp, retry
from clawq.rules.facts import Budget, Cooldown, Footprint
from clawq.rules.retry import Rest
from clawq.store import told
from clawq.store.told import SQL

PROBE_MS = 60_000
"""A probe that has run this long has passed."""


class BudgetRule(NamedTuple):
    """A budget as it is configured: `limit` in any window of `per_ms`, `per_tenant` of it for each."""

    limit: int
    per_ms: int
    per_tenant: int | None


class Rests(NamedTuple):
    """Resources at rest, and when the next of them changes by itself."""

    cooldowns: dict[str, Cooldown]
    changes_at: int | None


def budgets(db: apsw.Connection, rules: dict[str, BudgetRule], now: int) -> dict[str, Budget]:
    """What each window holds now."""
    found = {}
    for name, rule in rules.items():
        used_by, oldest = told.window(db, name, now - rule.per_ms)
        frees_at = None if oldest is None else oldest + rule.per_ms
        found[name] = Budget(rule.limit, rule.per_tenant, sum(used_by.values()), used_by, frees_at)
    return found


def reserve(
    db: apsw.Connection, tenant: str, token: int, spends: Iterable[tuple[str, int]], now: int
) -> None:
    """What a start is going to spend counts from now on; the attempt's end settles it."""
    for name, amount in spends:
        values = {"budget": name, "tenant": tenant, "token": token, "now": now, "amount": amount}
        db.execute(SQL["reserve"], values)


def settle_spends(db: apsw.Connection, token: int, ran: bool) -> None:
    """An attempt ended: what it reserved and did not need is free again; all of it when it never ran."""
    if not ran:
        db.execute(SQL["unreserve"], {"token": token})
        return
    for name, amount in db.execute(SQL["overpaid"], {"token": token}).fetchall():
        db.execute(SQL["give_back"], {"token": token, "budget": name, "amount": amount})


def forget_spends(db: apsw.Connection, rules: dict[str, BudgetRule], now: int) -> None:
    """Of what has left its window."""
    for name, rule in rules.items():
        db.execute(SQL["forget_spends"], {"budget": name, "before": now - rule.per_ms})


def not_after(db: apsw.Connection, budgets: Iterable[str], now: int) -> None:
    """The clock was set back: what was written down by the one that was ahead began now."""
    for name in budgets:
        db.execute(SQL["spends_not_after"], {"budget": name, "now": now})
    db.execute(SQL["cooldowns_not_after"], {"now": now})
    db.execute(SQL["streaks_not_after"], {"now": now})


def rests(db: apsw.Connection, limits: dict[str, int], now: int) -> Rests:
    """Every resource at rest; those that everybody may use again are cleared. `limits`: slots by resource."""
    found: dict[str, Cooldown] = {}
    changes: list[int] = []
    rows: list[Any] = db.execute(SQL["cooldowns"]).fetchall()
    for resource, until, step_ms, probe, passed_at, released, probe_lives, probe_started in rows:
        if probe is not None and not probe_lives:
            db.execute(SQL["probe_void"], {"token": probe})  # it is gone without a word: the next one probes
            probe = None
        if passed_at is None and probe_started is not None and now - probe_started >= PROBE_MS:
            db.execute(SQL["probe_passed"], {"resource": resource, "now": now})
            probe, passed_at = None, now
        if passed_at is None:
            found[resource] = Cooldown(until, probe is not None, 0 if probe is not None else 1)
            if now < until:
                changes.append(until)
            elif probe_started is not None:
                changes.append(probe_started + PROBE_MS)
            continue
        allowed = ramp.allowance(now - passed_at, step_ms)
        if allowed >= limits.get(resource, 1):
            db.execute(SQL["warm"], {"resource": resource})
            continue
        found[resource] = Cooldown(0, False, allowed - released)
        changes.append(passed_at + ramp.next_step(now - passed_at, step_ms))
    return Rests(found, min(changes, default=None))


def note_start(db: apsw.Connection, resources: Iterable[str], resting: Iterable[str], token: int) -> None:
    """A job was started that holds these resources: it may be the probe of one, or one of the first back."""
    for resource in set(resources).intersection(resting):
        db.execute(SQL["release"], {"resource": resource})
        db.execute(SQL["probe"], {"resource": resource, "token": token})


def note_end(db: apsw.Connection, token: int, ran: bool, now: int, succeeded: bool = False) -> None:
    """An attempt ended: as a probe it passed, unless it never ran. `rate_limited` comes before, where it met
    the limit again."""
    if not ran:
        db.execute(SQL["probe_void"], {"token": token})
        return
    for (resource,) in db.execute(SQL["probes_of"], {"token": token}).fetchall():
        db.execute(SQL["probe_passed"], {"resource": resource, "now": now})
        if succeeded:
            db.execute(SQL["forget_streak"], {"resource": resource})


def rate_limited(
    db: apsw.Connection, resources: Iterable[str], retry_after_ms: int | None, step_ms: int, now: int
) -> int:
    """A job met the limit of these providers: they rest. Until when the last of them does (epoch ms; 0 for
    none)."""
    latest = 0
    for resource in resources:
        row = db.execute(SQL["streak"], {"resource": resource}).fetchone()
        until = told.rests_until(db, resource) or 0
        last = None if row is None else Rest(*row)
        if until > now and (last is None or last.until < until):
            last = Rest(0, now, until)  # asked for by hand: none in the row of limits
        rest = retry.rest(last, until > now, retry_after_ms, now)
        db.execute(SQL["keep_streak"], rest._asdict() | {"resource": resource})
        told.cool(db, resource, rest.until, step_ms, now)
        latest = max(latest, rest.until)
    return latest


def footprints(db: apsw.Connection) -> dict[str, Footprint]:
    """What each kind that has run grows to."""
    rows: Any = db.execute(SQL["footprints"])
    return {kind: Footprint(round(procs), round(mb)) for kind, procs, mb in rows}


def note_footprint(db: apsw.Connection, kind: str, procs: int, mb: int, now: int) -> None:
    """What an attempt's tree has grown to goes into what its kind is known to take."""
    db.execute(SQL["note_footprint"], {"kind": kind, "procs": procs, "mb": mb, "now": now})


def observe(db: apsw.Connection, stage: str, reason: str, kind: str, tenant: str, now: int) -> None:
    """Count what enforcing would have refused; ``stage`` is ``enqueue`` or ``start``."""
    values = {"stage": stage, "reason": reason, "kind": kind, "tenant": tenant, "now": now}
    db.execute(SQL["observe"], values)


def keep_observing(db: apsw.Connection, observing: bool, now: int) -> None:
    """Say whether refusals are only recorded from now on; when that begins, what was recorded before goes."""
    began = db.execute(SQL["observing_since"]).get is not None
    if observing and not began:
        db.execute(SQL["forget_observed"])
        db.execute(SQL["begin_observing"], {"now": now})
    elif began and not observing:
        db.execute(SQL["end_observing"])
