"""Why a job has not started yet, or will not go on: every reason with its figures and what clears it.

``no_supervisor`` comes first, since a lane's reason is only as good as whoever wrote it. The reason is what
the job's lane was told at the last pass; who holds what, and when a budget or a cooldown frees it, is read
now.
"""

from __future__ import annotations

import json

from clawq import states as job
from clawq.errors import NoSuchJob
from clawq.rules import ramp
from clawq.states import split
from clawq.store import accounts, reasons, sqlfile, views
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from clawq.settings import Settings
    from clawq.store.views import Row

_SQL = sqlfile.load("why")

PUBLIC = ("job_id", "state", "blocked_by", "deferrals")
"""What ``why --json`` prints."""


def why(db: apsw.Connection, settings: Settings, job_id: int, now: int, supervisor: str | None) -> Row:
    """The document of ``why --json``, times in ms; besides ``until`` when the job is tried, and whether it is
    ``behind`` another of its lane.

    `supervisor` is what the one that ticks does (``run``, or how it ends), None where none does. Raises
    NoSuchJob.
    """
    with views.Snapshot(db):
        rows = dicts(db.execute(_SQL["job"], (job_id,)))
        if not rows:
            raise NoSuchJob(job_id)
        case = _Case(db, settings, rows[0], now)
        return {
            "job_id": job_id,
            "state": case.row["state"],
            "blocked_by": list(_blocked_by(case, supervisor)),
            "deferrals": views.deferrals(db, job_id),
            "until": case.row["expires_at"] if case.row["state"] in (job.SCHEDULED, job.QUEUED) else None,
            "behind": case.row["state"] == job.QUEUED and not case.row["parked"] and case.is_behind(),
        }


def _blocked_by(case: _Case, supervisor: str | None) -> list[Row]:
    row, state = case.row, case.row["state"]
    found: list[Row] = []
    if state in (job.SCHEDULED, job.QUEUED) and supervisor not in (None, "run"):
        found.append(_reason("no_supervisor", reasons.STOPPING))
    elif state in (job.SCHEDULED, job.QUEUED, job.WAITING) and supervisor is None:
        # Who waits goes on only when somebody gives it its slots back.
        found.append(_reason("no_supervisor", reasons.clears_when("no_supervisor")))
    if state == job.QUEUED:
        found += _paused(case)
        if row["parked"]:
            found.append(_parked(case))
        elif not found:
            found += _refused(case)
    elif state == job.SCHEDULED:
        due = reasons.moment(row["run_after"], case.now)
        found.append(_standing(row, "not_due", at=f", at {due}"))
    elif state == job.WAITING:
        found.append(_waits(case))
    elif state in (job.HELD, job.UNKNOWN):
        found.append(_standing(row, "held" if state == job.HELD else "unknown", job_id=row["job_id"]))
    return found


def _reason(
    reason: str,
    clears: str,
    measured: float | str | None = None,
    limit: float | str | None = None,
    since: int | None = None,
) -> Row:
    return {
        "reason": reason,
        "measured": _whole(measured),
        "limit": _whole(limit),
        "since": since,
        "clears_when": clears,
    }


def _whole(value: float | str | None) -> float | str | None:
    return int(value) if isinstance(value, float) and value == int(value) else value


def _standing(row: Row, reason: str, **known: object) -> Row:
    return _reason(reason, reasons.clears_when(reason, **known), since=row["changed_at"])


class _Case:
    """One job, and what is known about what it waits for."""

    def __init__(self, db: apsw.Connection, settings: Settings, row: Row, now: int) -> None:
        self.db = db
        self.settings = settings
        self.row = row
        self.now = now
        self.needs = split(row["needs"])
        self.kind = settings.kind(row["kind"], job.BANDS[row["band"]])
        self._active: list[Row] | None = None

    def is_behind(self) -> bool:
        lane = {name: self.row[name] for name in ("band", "tenant", "kind", "needs", "rank", "job_id")}
        return bool(dicts(self.db.execute(_SQL["behind"], lane))[0]["behind"])

    def active(
        self,
        which: Callable[[Row], bool] = lambda row: True,
        waiting: Callable[[Row], bool] = lambda row: False,
    ) -> list[int]:
        """Ids of the jobs under way, those that are `which`; of those in `clawq wait` only the `waiting`."""
        if self._active is None:
            self._active = dicts(self.db.execute(_SQL["holders"]))
        rows = [row for row in self._active if row["state"] != job.WAITING or waiting(row)]
        return [row["id"] for row in rows if which(row)]

    def started_at(self, job_id: int) -> int | None:
        found = [row["started_at"] for row in self._active or () if row["id"] == job_id]
        return found[0] if found else None


def _waits(case: _Case) -> Row:
    """In `clawq wait`: for jobs below it, or by now for the slots that it has given away."""
    row = dicts(case.db.execute(_SQL["waits"], (case.row["job_id"],)))[0]
    if row["back_at"] is not None:
        reason = row["back_reason"] or "max_running"
        return _reason(reason, reasons.clears_when(reason), since=row["back_at"])
    ids = [each["id"] for each in dicts(case.db.execute(_SQL["open"], (row["awaits"],)))]
    clears = reasons.clears_when("children", who=reasons.ended(ids))
    return _reason("children", clears, len(ids), None, row["waiting_since"])


def _paused(case: _Case) -> list[Row]:
    scopes = {name: case.row[name] for name in ("tenant", "kind", "band")}
    scopes["resources"] = json.dumps(case.needs)
    found = []
    for row in dicts(case.db.execute(_SQL["pauses"], scopes)):
        name = job.BANDS[int(row["name"])] if row["scope"] == "band" else row["name"]
        lift = views.resume_command(row["scope"], name)
        found.append(_reason("paused", reasons.clears_when("paused", lift=lift), since=row["since"]))
    return found


def _parked(case: _Case) -> Row:
    """It stands outside its lane until the name is free, or its workflow has room."""
    row = case.row
    if row["parked"] == "workflow_limit":
        root = row["root_id"] or row["job_id"]
        ids = case.active(lambda other: (other["root_id"] or other["id"]) == root)
        measured, limit = len(ids), case.settings.limits.max_running_per_workflow
        who = reasons.ends(ids, "is of its workflow", "are of its workflow")
    else:
        ids = case.active(lambda other: bool(other["exclusive"] == row["exclusive"]), lambda other: True)
        measured, limit = len(ids), 1
        who = (
            reasons.ends(ids, "has this name", "have this name") or "the job before it with this name has run"
        )
    # It was kept back since both it was ready and the last of them had started.
    began = [at for job_id in ids if (at := case.started_at(job_id)) is not None]
    since = max([row["ready_at"], *began]) if began and row["ready_at"] is not None else row["ready_at"]
    return _reason(row["parked"], reasons.clears_when(row["parked"], who=who), measured, limit, since)


def _refused(case: _Case) -> list[Row]:
    """What the head of its lane was told, which holds for all behind it; nothing: it is next in turn."""
    lane = {name: case.row[name] for name in ("band", "tenant", "kind", "needs")}
    rows = dicts(case.db.execute(_SQL["lane"], lane))
    # A pause that has been lifted is no reason any more.
    if not rows or rows[0]["reason"] in (None, "paused"):
        return []
    told = rows[0]
    key, name = reasons.split(told["reason"])
    answer = _SPECIFIC.get(key, _plain)(case, told, name)
    if _has_reservation(case, told):
        own = reasons.reservation(case.needs, told["promised_at"], case.now)
        answer["clears_when"] += f"; it {own}"
    return [answer]


def _answer(told: Row, clears: str) -> Row:
    return _reason(told["reason"], clears, told["measured"], told["limit_value"], told["since"])


def _plain(case: _Case, told: Row, name: str) -> Row:
    at = told["clears_at"]
    return _answer(
        told,
        reasons.clears_when(
            told["reason"],
            limit=_whole(told["limit_value"]),
            at=None if at is None else f", at {reasons.moment(at, case.now)}",
            job_id=case.row["job_id"],
        ),
    )


def _has_reservation(case: _Case, told: Row) -> bool:
    """Only a reservation with a promise is on record: one behind a job without any timeout says nothing."""
    return bool(case.needs and told["short_job"] == case.row["job_id"] and told["promised_at"] is not None)


def _counted(which: Callable[[Row, Row], bool], one: str, many: str) -> Callable[[_Case, Row, str], Row]:
    """A limit on the jobs under way that are `which`, seen from this one."""

    def answer(case: _Case, told: Row, name: str) -> Row:
        ids = case.active(lambda other: which(case.row, other))
        tenant, kind = case.row["tenant"], case.row["kind"]
        who = reasons.ends(ids, one.format(tenant=tenant, kind=kind), many.format(tenant=tenant, kind=kind))
        return _answer(told, reasons.clears_when(told["reason"], who=who))

    return answer


def _resource(case: _Case, told: Row, name: str) -> Row:
    resource = case.settings.resources.get(name)
    keeps = resource is not None and resource.keep
    ids = case.active(lambda other: name in split(other["needs"]), lambda other: keeps)
    return _answer(
        told, reasons.clears_when(told["reason"], who=reasons.ends(ids, f"holds {name}", f"hold {name}"))
    )


def _reserved(case: _Case, told: Row, name: str) -> Row:
    found = []
    for row in dicts(case.db.execute(_SQL["reservations"])):
        shared = [each for each in split(row["needs"]) if each in case.needs]
        if shared and row["short_job"] != case.row["job_id"]:
            found.append((row["short_job"], shared, row["promised_at"]))
    return _answer(told, reasons.clears_when("reserved", who=reasons.starts(found, case.now)))


def _pressure(case: _Case, told: Row, name: str) -> Row:
    measured, limit = (accounts.pressure(told[key]) for key in ("measured", "limit_value"))
    return _reason(
        told["reason"], reasons.clears_when(told["reason"], limit=limit), measured, limit, told["since"]
    )


def _budget(case: _Case, told: Row, name: str) -> Row:
    """As the window is now, and when it has room for this job by itself."""
    amount = case.kind.spends.get(name)
    found = None
    if amount is not None and name in case.settings.budgets:
        found = accounts.room(case.db, case.settings, name, case.row["tenant"], amount, case.now)
    if amount is None or found is None:
        return _answer(told, reasons.clears_when(told["reason"]))
    used, limit, at = found
    clears = reasons.clears_when(told["reason"], room=reasons.room(name, amount, at, case.now))
    return _reason(told["reason"], clears, used, limit, told["since"])


def _cooldown(case: _Case, told: Row, name: str) -> Row:
    row = accounts.cooldown(case.db, name, case.now)
    measured = limit = None
    if row is None:
        rest = None
    elif row["stage"] == accounts.RESTING:
        rest = reasons.resting(name, row["until"], case.now)
    elif row["stage"] == accounts.PROBING:
        rest = reasons.probing(name, row["job_id"])
    else:
        rest = reasons.returning(name, row["step_ms"])
        measured, limit = row["released"], ramp.allowance(case.now - row["passed_at"], row["step_ms"])
    clears = reasons.clears_when(told["reason"], rest=rest)
    return _reason(told["reason"], clears, measured, limit, told["since"])


def _never_fits(case: _Case, told: Row, name: str) -> Row:
    """The first thing that it asks for and that is never there."""
    lacks = None
    if case.row["bare"] and case.kind.command is None:
        lacks = f"gives kind {case.row['kind']} a command"
        return _answer(told, reasons.clears_when("never_fits", lacks=lacks, job_id=case.row["job_id"]))
    for each in case.needs:
        resource = case.settings.resources.get(each)
        if resource is None or resource.limit <= 0:
            lacks = f"gives resource {each} a slot"
            break
    else:
        for each, amount in sorted(case.kind.spends.items()):
            budget = case.settings.budgets.get(each)
            if budget is None or amount > min(budget.limit, budget.per_tenant or budget.limit):
                lacks = f"gives budget {each} {amount} or more"
                break
    clears = reasons.clears_when("never_fits", lacks=lacks, job_id=case.row["job_id"])
    return _answer(told, clears)


_SPECIFIC: dict[str, Callable[[_Case, Row, str], Row]] = {
    "max_running": _counted(lambda own, other: True, "", ""),
    "tenant_limit": _counted(
        lambda own, other: bool(own["tenant"] == other["tenant"]),
        "is of tenant {tenant}",
        "are of tenant {tenant}",
    ),
    "kind_limit": _counted(
        lambda own, other: bool(own["kind"] == other["kind"]), "is of kind {kind}", "are of kind {kind}"
    ),
    "resource:NAME": _resource,
    "reserved": _reserved,
    "memory_pressure": _pressure,
    "budget:NAME": _budget,
    "cooldown:NAME": _cooldown,
    "never_fits": _never_fits,
}
