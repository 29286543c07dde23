"""What owners look at, in the shapes that ``--json`` prints; times are epoch milliseconds here.

Everything is read in one snapshot and is flat in the number of jobs: counts come from `tally`, rows
from the first entries of an index.
"""

from __future__ import annotations

import os

from clawq import states as job
from clawq.errors import NoSuchJob
from clawq.quickjson import loads
from clawq.states import split
from clawq.store import accounts, sqlfile
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.settings import Settings

_SQL = sqlfile.load("views")

Row = dict[str, "Any"]


class Snapshot:
    """``with Snapshot(db):`` every read inside sees the same moment."""

    __slots__ = ("_db",)

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


_ROW_QUERY = {
    job.QUEUED: "longest_queued",
    job.SCHEDULED: "next_due",
    job.HELD: "set_aside",
    job.UNKNOWN: "set_aside",
    job.STARTING: "under_way",
    job.RUNNING: "under_way",
    job.WAITING: "under_way",
    **dict.fromkeys(job.ENDED, "latest_ended"),
}


def status(db: apsw.Connection | None, settings: Settings, now: int) -> Row:
    """What ``status`` says of the queue: ``counts``, ``depth``, ``running``, ``waiting_on``, ``refused``,
    ``resources``, ``budgets``, ``observed``, and ``pauses`` besides.

    A row of ``running`` also carries ``log`` (the file's bare name), ``worked_at``, ``exclusive`` and
    ``cancel_at``.
    None for `db` is a queue that nothing was ever put into.
    """
    if db is None:
        return {
            "counts": dict.fromkeys(job.STATES, 0),
            "depth": [],
            "running": [],
            "waiting_on": [],
            "refused": [],
            "resources": _resources(settings, [], {}),
            "budgets": accounts.budgets(None, settings, now),
            "observed": accounts.observed(None),
            "pauses": [],
        }
    with Snapshot(db):
        running = [_running(row, now) for row in dicts(db.execute(_SQL["active"]))]
        return {
            "counts": counts(db),
            "depth": _depth(db, now),
            "running": running,
            "waiting_on": _waiting_on(db, now),
            "refused": dicts(db.execute(_SQL["refusals"])),
            "resources": _resources(settings, running, accounts.cooldowns(db, now)),
            "budgets": accounts.budgets(db, settings, now),
            "observed": accounts.observed(db),
            "pauses": pauses(db),
        }


def counts(db: apsw.Connection) -> dict[str, int]:
    """{state: jobs}, every state named, zeros too."""
    found: dict[str, int] = dict.fromkeys(job.STATES, 0)
    found.update({row["state"]: row["n"] for row in dicts(db.execute(_SQL["counts"]))})
    return found


def kinds_seen(db: apsw.Connection) -> list[str]:
    """Kinds that have jobs, whether or not they are still configured."""
    return [str(kind) for (kind,) in db.execute(_SQL["kinds_seen"]).fetchall()]


def pauses(db: apsw.Connection) -> list[Row]:
    """[{scope, name, since}]; a band by its name, ``''`` for everything."""
    rows: list[Row] = dicts(db.execute(_SQL["pauses"]))
    for row in rows:
        if row["scope"] == "band":
            row["name"] = job.BANDS[int(row["name"])]
    return rows


def resume_command(scope: str, name: str) -> str:
    """What a person types to lift a pause."""
    if scope == "all":
        return "clawq resume"
    import shlex

    return f"clawq resume --{scope} {shlex.quote(name)}"


def _depth(db: apsw.Connection, now: int) -> list[Row]:
    return [
        {
            "tenant": row["tenant"],
            "band": job.BANDS[row["band"]],
            "kind": row["kind"],
            "queued": row["queued"],
            "oldest_age_s": _seconds(now, row["oldest_at"]),
            "until": row["expires_at"],
        }
        for row in dicts(db.execute(_SQL["depth"]))
    ]


def _running(row: Row, now: int) -> Row:
    started = row["started_at"] or row["claimed_at"]
    return {
        "job_id": row["job_id"],
        "kind": row["kind"],
        "state": row["state"],
        "tenant": row["tenant"],
        "attempt": row["attempt"],
        "pid": row["pid"],
        "age_s": _seconds(now, started),
        "lease_left_s": round((row["lease_until"] - now) / 1000, 1),
        "beat_age_s": _seconds(now, row["lease_until"] - row["lease_ms"]),
        "quiet_s": None,
        "needs": split(row["needs"]),
        "log": row["log"],
        "worked_at": row["worked_at"],
        "exclusive": row["exclusive"],
        "cancel_at": row["cancel_at"],
    }


def _resources(settings: Settings, running: list[Row], cooldowns: dict[str, Row]) -> dict[str, Row]:
    found: dict[str, Row] = {
        name: _resource(resource.limit) for name, resource in sorted(settings.resources.items())
    }
    for row in running:
        for name in row["needs"]:
            if row["state"] == job.WAITING and not (
                name in settings.resources and settings.resources[name].keep
            ):
                continue
            # A resource may have left the configuration while a job still holds it.
            found.setdefault(name, _resource(0))["in_use"] += 1
    for name, rest in cooldowns.items():
        found.setdefault(name, _resource(0)).update(cooldown=rest["stage"], cooldown_s=rest["cooldown_s"])
    return found


def _resource(limit: int) -> Row:
    return {"in_use": 0, "limit": limit, "cooldown_s": None, "cooldown": None}


def _waiting_on(db: apsw.Connection, now: int) -> list[Row]:
    """Every reason with the number of queued jobs it keeps back, the most first, and a job of them."""
    found, parked = _parked(db)
    for row in dicts(db.execute(_SQL["refused_lanes"])):
        # A lane's tally counts those parked beside it too; they have a reason of their own.
        jobs = row["n"] - parked.get(_lane(row), 0)
        if jobs <= 0:
            continue
        entry = found.setdefault(row["reason"], {"jobs": 0, "job_id": row["job_id"], "clears_at": None})
        entry["jobs"] += jobs
        if row["clears_at"] is not None:
            entry["clears_at"] = min(entry["clears_at"] or row["clears_at"], row["clears_at"])
    return [
        {
            "reason": reason,
            "jobs": entry["jobs"],
            "retry_after_s": None
            if entry["clears_at"] is None
            else max(0, round((entry["clears_at"] - now) / 1000)),
            "job_id": entry["job_id"],
        }
        for reason, entry in sorted(found.items(), key=lambda item: (-item[1]["jobs"], item[0]))
    ]


def _parked(db: apsw.Connection) -> tuple[dict[str, Row], dict[tuple[Any, ...], int]]:
    """Those that stand outside their lanes, by reason, and how many of each lane."""
    found: dict[str, Row] = {}
    lanes: dict[tuple[Any, ...], int] = {}

    def add(reason: str, row: Row) -> None:
        entry = found.setdefault(reason, {"jobs": 0, "job_id": row["job_id"], "clears_at": None})
        entry["jobs"] += row["n"]
        entry["job_id"] = min(entry["job_id"], row["job_id"])
        lanes[_lane(row)] = lanes.get(_lane(row), 0) + row["n"]

    for name in [row["name"] for row in dicts(db.execute(_SQL["parked_names"]))]:
        for row in dicts(db.execute(_SQL["parked_behind"], (name,))):
            add(f"exclusive:{name}", row)
    for row in dicts(db.execute(_SQL["parked_workflow"])):
        add("workflow_limit", row)
    return found, lanes


def _lane(row: Row) -> tuple[Any, ...]:
    return (row["band"], row["tenant"], row["kind"], row["needs"])


def job_list(
    db: apsw.Connection,
    settings: Settings,
    *,
    state: str | None = None,
    kind: str | None = None,
    tenant: str | None = None,
    limit: int = 50,
) -> list[Row]:
    """Job rows, at most `limit`: the longest waiting first for queued, the next due first for scheduled,
    in order for held and unknown, the latest first for all else."""
    wanted = {"state": state, "kind": kind, "tenant": tenant, "limit": limit}
    with Snapshot(db):
        total = dicts(db.execute(_SQL["matching"], wanted))[0]["n"]
        wanted["limit"] = min(limit, total)
        if not wanted["limit"]:
            return []
        query = "newest" if state is None else _ROW_QUERY[state]
        return _rows(db, settings, [row["id"] for row in dicts(db.execute(_SQL[query], wanted))])


def _rows(db: apsw.Connection, settings: Settings, ids: list[Any]) -> list[Row]:
    return [_row(row, settings) for row in dicts(db.execute(_SQL["rows"], (sqlfile.id_list(ids),)))]


def _row(row: Row, settings: Settings) -> Row:
    """A job row; what the job leaves to its kind is shown as the kind has it now."""
    band = job.BANDS[row["band"]]
    kind = settings.kind(row["kind"], band)
    row["band"] = band
    row["needs"] = split(row["needs"])
    row["command"] = kind.command if row["command"] is None else loads(row["command"])
    if row["max_attempts"] is None:
        row["max_attempts"] = kind.max_attempts
    return row


def state_of(db: apsw.Connection, job_id: int) -> str:
    """Raises NoSuchJob."""
    found = db.execute(_SQL["state"], (job_id,)).fetchall()
    if not found:
        raise NoSuchJob(job_id)
    return str(found[0][0])


def show(db: apsw.Connection, settings: Settings, logs: str, job_id: int) -> Row:
    """The document of ``show --json``; `logs` is the folder that log names are relative to.

    Raises NoSuchJob.
    """
    from clawq.store import effects

    with Snapshot(db):
        rows = _rows(db, settings, [job_id])
        if not rows:
            raise NoSuchJob(job_id)
        return {
            "job": rows[0],
            "attempts": [
                {
                    "number": row["number"],
                    "started_at": row["started_at"],
                    "ended_at": row["ended_at"],
                    "outcome": row["outcome"],
                    "exit_code": row["exit_code"],
                    "signal": row["signal"],
                    "error_class": row["error_class"],
                    "error": row["error"],
                    "resource": row["resource"],
                    "peak_mb": row["peak_mb"],
                    "peak_procs": row["peak_procs"],
                    "log": os.path.join(logs, row["log"]),
                }
                for row in attempts(db, job_id)
            ],
            "deferrals": deferrals(db, job_id),
            "retries": {row["reason"]: row["n"] for row in dicts(db.execute(_SQL["retries"], (job_id,)))},
            "events": dicts(db.execute(_SQL["events"], (job_id,))),
            "effects": effects.of_job(db, job_id),
            "children": [row for row in below(db, settings, job_id) if row["parent_id"] == job_id],
            "result": _result(db, job_id),
        }


def below(db: apsw.Connection, settings: Settings, job_id: int) -> list[Row]:
    """Rows of a job's descendants, each right below its parent; five hundred at most."""
    ids = [row["id"] for row in dicts(db.execute(_SQL["below"], {"job_id": job_id}))]
    return _rows(db, settings, ids) if ids else []


def _result(db: apsw.Connection, job_id: int) -> Any:
    """What the last attempt left in its result file, parsed; None for nothing."""
    text = db.execute(_SQL["result"], (job_id,)).get
    return None if text is None else loads(text)


def more(db: apsw.Connection, job_id: int) -> Row:
    """What a person is shown besides the row: exclusive, payload (text), reason, changed_at and others."""
    rows = dicts(db.execute(_SQL["more"], (job_id,)))
    if not rows:
        raise NoSuchJob(job_id)
    return rows[0]


def attempts(db: apsw.Connection, job_id: int) -> list[Row]:
    """Every attempt of the job in order, columns as in the database."""
    return dicts(db.execute(_SQL["attempts"], (job_id,)))


def deferrals(db: apsw.Connection, job_id: int) -> list[Row]:
    """[{reason, count, first_at, last_at}], the latest first."""
    return dicts(db.execute(_SQL["deferrals"], (job_id,)))


def tails(db: apsw.Connection, job_ids: list[int]) -> dict[int, str]:
    """{id: the last lines its last attempt wrote}; jobs that wrote nothing are left out."""
    rows = dicts(db.execute(_SQL["tails"], (sqlfile.id_list(job_ids),)))
    return {row["job_id"]: row["output_tail"] for row in rows if row["output_tail"]}


def deaths(db: apsw.Connection, since: int, kind: str | None = None) -> list[tuple[str, int]]:
    """(kind, ended_at) of jobs that died since then, the latest first, ten thousand at most."""
    rows = dicts(db.execute(_SQL["deaths"], {"since": since, "kind": kind}))
    return [(row["kind"], row["ended_at"]) for row in rows]


def _seconds(later: int | None, earlier: int | None) -> float | None:
    # A clock set back must not show an age below zero.
    return None if later is None or earlier is None else max(0.0, round((later - earlier) / 1000, 1))
