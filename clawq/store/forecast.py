"""Whether a job would start at once: what ``admitted`` says, and what ``on_busy`` asks.

Nothing that it needs is paused or at rest, and the free slots exceed the ready jobs of its own and higher
bands that wait only for slots. It is a forecast: who else enqueues meanwhile, and the host's gates, are not
in it.
"""

from clawq.states import split
from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawq.store.draft import Draft
    from clawq.store.intake import Intake

_SQL = sqlfile.load("forecast")
_BANDS_THAT_KEEP = (0, 1)


def starts_at_once(intake: "Intake", draft: "Draft", now: int) -> bool:
    """`now` in ms. Asks nothing about a supervisor, nor about the job's own exclusive name."""
    needs = split(draft.needs)
    if _is_paused(intake, draft, needs):
        return False
    if draft.parent is None:
        waiting: Any = intake.db.execute(_SQL["waiting"]).fetchall()[0]
        if waiting[0] >= waiting[1]:
            return False
    enough = draft.frame.max_running + 1
    running: Any = intake.db.execute(_SQL["in_use"]).fetchall()
    values = {"band": draft.band, "enough": enough, "now": now}
    ready: Any = intake.db.execute(_SQL["ready"], values).fetchall()
    return (
        _has_slots(intake, draft, needs, [*running, *ready])
        and (not needs or _is_awake(intake, needs, ready, now))
        and (not draft.frame.spends or _can_pay(intake, draft, ready, now))
    )


def _is_paused(intake: "Intake", draft: "Draft", needs: "list[str]") -> bool:
    mine = {
        ("stop", ""),
        ("all", ""),
        ("tenant", draft.tenant),
        ("kind", draft.kind),
        ("band", str(draft.band)),
        *(("resource", name) for name in needs),
    }
    return any(pause in mine for pause in intake.db.execute(_SQL["pauses"]).fetchall())


def _has_slots(intake: "Intake", draft: "Draft", needs: "list[str]", taken: "list[Any]") -> bool:
    """`taken`: (band, tenant, kind, needs, jobs) of what runs and of what goes first."""
    frame = draft.frame
    if sum(row[4] for row in taken) >= frame.max_running - _kept(draft, taken):
        return False
    if sum(row[4] for row in taken if row[1] == draft.tenant) >= frame.tenant_max_running:
        return False
    cap = frame.kind_max_running
    if cap is not None and sum(row[4] for row in taken if row[2] == draft.kind) >= cap:
        return False
    if not needs:
        return True
    rows: Any = intake.db.execute(_SQL["kept"]).fetchall()
    limits, kept = intake.resources(), dict(rows)
    return all(
        sum(row[4] for row in taken if name in row[3].split(",")) + kept.get(name, 0) < limits[name]
        for name in needs
    )


def _kept(draft: "Draft", taken: "list[Any]") -> int:
    """Slots that critical's and interactive's shares keep from it: clawq.rules.fairness.kept_for.

    Only a pass knows whole slots; a share that is no whole number of them counts so that more is kept.
    """
    frame = draft.frame
    used: list[int] = [sum(row[4] for row in taken if row[0] == band) for band in _BANDS_THAT_KEEP]
    exact: list[float] = [frame.max_running * (share or 0) / 100 for share in frame.shares]
    room: int = frame.max_running - 1 - sum(min(n, int(slots)) for n, slots in zip(used, exact, strict=True))
    keep = sum(1 for band in _BANDS_THAT_KEEP if band != draft.band and used[band] < exact[band])
    return max(0, min(keep, room))


def _is_awake(intake: "Intake", needs: "list[str]", ready: "list[Any]", now: int) -> bool:
    """A resource at rest lets nobody start; after it one probes, then ever more come back."""
    rests: Any = intake.db.execute(_SQL["rests"]).fetchall()
    for name, until, step_ms, probe, passed_at, released in rests:
        if name not in needs:
            continue
        if passed_at is not None:
            from clawq.rules.ramp import allowance

            room = allowance(now - passed_at, step_ms) - released
        else:
            room = 1 if probe is None and now >= until else 0
        if sum(row[4] for row in ready if name in row[3].split(",")) >= room:
            return False
    return True


def _can_pay(intake: "Intake", draft: "Draft", ready: "list[Any]", now: int) -> bool:
    """Whether each budget that it spends has room for it, after those that go first."""
    from clawq.states import BANDS

    first = [(row, intake.frame(row[2], BANDS[row[0]], row[1]).spends) for row in ready]
    for name, amount in draft.frame.spends.items():
        limit, per_ms, per_tenant = intake.budgets().get(name, (0, 0, None))
        values = {"budget": name, "tenant": draft.tenant, "after": now - per_ms}
        sums: Any = intake.db.execute(_SQL["spent"], values).fetchall()
        used, own = sums[0]
        used += sum(row[4] * spends.get(name, 0) for row, spends in first)
        own += sum(row[4] * spends.get(name, 0) for row, spends in first if row[1] == draft.tenant)
        if used + amount > limit or (per_tenant is not None and own + amount > per_tenant):
            return False
    return True
