"""What a restored database must be told before it takes the place of another.

The restored one is open as ``main`` and used by nobody else; the replaced one is attached as ``gone``.
Nothing that was done since the backup may be done again, no accepted job be lost, no number or token used
twice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import apsw

from clawq.store import sqlfile
from clawq.store.connection import Immediate

SQL = sqlfile.parse(sqlfile.read("merge.sql"))

OF_A_JOB = ("attempts", "events", "deferrals", "probes")
"""Tables whose rows belong to a job and go with it."""
OWN_NUMBER = ("events", "effects")
"""Their `id` is nobody's concern and made anew."""
MEASURED = (
    "spends",
    "cooldowns",
    "streaks",
    "footprints",
    "refusals",
    "turned_away",
    "counts",
    "samples",
    "observed",
    "turns",
    "old_keys",
    "notices",
    "notices_seen",
)
"""What was measured, spent and told: the newer figures are the true ones."""
_JOB_NUMBERS = ("job_id", "parent_id", "root_id")
UNREADABLE_GAP = 1_000
"""Numbers left out where nobody can read how far the replaced database had come."""
NOT_KNOWN = "how it ended is not known after a restore"


class Merged(NamedTuple):
    """``kept``: jobs accepted since the backup; ``ended``: of the others, those that had ended meanwhile;
    ``strangers``: jobs that share a number with another one and could not be kept."""

    kept: int = 0
    ended: int = 0
    pruned: int = 0
    strangers: int = 0
    effects: int = 0


class Settled(NamedTuple):
    """``to_judge``: jobs whose attempt file tells the next supervisor how they ended."""

    unknown: list[int]
    to_judge: list[int]


def merge(db: apsw.Connection, gone: str) -> Merged:
    """Take over from the database file `gone` what it knows better. Both have this program's schema.

    Raises what SQLite raises when `gone` cannot be read; nothing is changed then.
    """
    db.execute("PRAGMA foreign_keys=OFF")
    db.execute("ATTACH ? AS gone", (f"file:{_quoted(gone)}?mode=ro",))
    try:
        with Immediate(db):
            merged = _merge(db)
    finally:
        db.execute("DETACH gone")
        db.execute("PRAGMA foreign_keys=ON")
    return merged


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _merge(db: apsw.Connection) -> Merged:
    triggers = db.execute(SQL["triggers"]).fetchall()
    for name, _ in triggers:
        db.execute(f'DROP TRIGGER "{name}"')
    mine, theirs = int(db.execute(SQL["last_job"]).get), int(db.execute(SQL["last_job_gone"]).get)
    same = bool(db.execute(SQL["same_queue"]).get)
    shift = {"shift": 0 if same else max(mine, theirs)}
    db.execute(SQL["find_strangers"], shift)
    strangers = int(db.execute("SELECT count(*) FROM strangers").get)
    pruned = _drop_pruned(db) if same and db.execute(SQL["same_life"]).get else 0
    db.execute(SQL["find_known"], shift)
    kept, ended = db.execute("SELECT coalesce(sum(is_new), 0), coalesce(sum(ended), 0) FROM known").get
    _copy_jobs(db, shift["shift"])
    db.execute(SQL["effects"], shift)
    not_theirs = "WHERE scope = 'tenant' OR job_id NOT IN (SELECT was FROM strangers)"
    effects = _insert(db, "effects", shift["shift"], not_theirs, "OR IGNORE")
    db.execute(SQL["keys_of_ended"])
    db.execute(SQL["keys"], shift)
    db.execute(SQL["pauses"])
    db.execute(SQL["config"])
    for table in MEASURED if same else ():
        db.execute(f"DELETE FROM main.{table}")
        db.execute(f"INSERT INTO main.{table} SELECT * FROM gone.{table}")
    token = max(int(db.execute(SQL["last_token"]).get), int(db.execute(SQL["last_token_gone"]).get))
    go_on_after(db, max(mine, theirs + shift["shift"]), token)
    for name in ("unpark", "clear_tally", "tally", "clear_spent", "spent", "lanes", "counted"):
        db.execute(SQL[name])
    for _, sql in triggers:
        db.execute(str(sql))
    return Merged(int(kept), int(ended), pruned, strangers, effects)


def _drop_pruned(db: apsw.Connection) -> int:
    db.execute(SQL["find_pruned"])
    for table in OF_A_JOB:
        db.execute(f"DELETE FROM main.{table} WHERE job_id IN (SELECT id FROM pruned)")
    db.execute(
        "DELETE FROM main.effects"
        " WHERE job_id IN (SELECT id FROM pruned) AND (scope = 'job' OR state = 'failed')"
    )
    db.execute("DELETE FROM main.jobs WHERE id IN (SELECT id FROM pruned)")
    return int(db.execute("SELECT count(*) FROM pruned").get)


def _copy_jobs(db: apsw.Connection, shift: int) -> None:
    db.execute("DELETE FROM main.jobs WHERE id IN (SELECT id FROM known)")
    _insert(db, "jobs", shift, "WHERE id IN (SELECT was FROM known)")
    for table in OF_A_JOB:
        db.execute(f"DELETE FROM main.{table} WHERE job_id IN (SELECT id FROM known)")
        order = "ORDER BY id" if table in OWN_NUMBER else ""
        # Another queue's tokens may meet ours: that attempt's row is then given up, and not its job.
        _insert(db, table, shift, f"WHERE job_id IN (SELECT was FROM known) {order}", "OR IGNORE")


def _insert(db: apsw.Connection, table: str, shift: int, where: str, conflict: str = "") -> int:
    """Copy rows of `gone` with their job numbers shifted; how many."""
    columns = [str(row[0]) for row in db.execute(SQL["is_column"], {"name": table})]
    if table in OWN_NUMBER:
        columns.remove("id")
    numbers = (*_JOB_NUMBERS, "id") if table == "jobs" else _JOB_NUMBERS
    values = [f"{name} + {shift}" if name in numbers else name for name in columns]
    db.execute(
        f"INSERT {conflict} INTO main.{table} ({', '.join(columns)})"
        f" SELECT {', '.join(values)} FROM gone.{table} {where}"
    )
    return db.changes()


def go_on_after(db: apsw.Connection, last_job: int, last_token: int) -> None:
    """Jobs and tokens get numbers above these from now on, and above all that the database has."""
    db.execute(SQL["forget_last_job"])
    db.execute(SQL["keep_last_job"], {"last": last_job})
    db.execute(SQL["keep_meta"], {"token": last_token})


def go_on_above(db: apsw.Connection, last_job: int, last_token: int) -> None:
    """The same where the replaced database cannot be read: at least above what its files tell."""
    with Immediate(db):
        job = max(int(db.execute(SQL["last_job"]).get), last_job)
        go_on_after(db, job + UNREADABLE_GAP, max(int(db.execute(SQL["last_token"]).get), last_token))


def settle(db: apsw.Connection, with_file: Collection[int], now: int) -> Settled:
    """Pause everything, and settle what the database calls under way.

    Jobs whose token has an attempt file are left to the next supervisor, which reads it; the others become
    `unknown`.
    """
    unknown: list[int] = []
    to_judge: list[int] = []
    with Immediate(db):
        db.execute(SQL["forget_stop"])
        db.execute(SQL["pause"], {"now": now})
        rows = [(int(job_id), int(token)) for job_id, token in db.execute(SQL["under_way"])]
        for job_id, token in rows:
            if token in with_file:
                to_judge.append(job_id)
                continue
            values = {"job_id": job_id, "token": token, "now": now, "error": NOT_KNOWN}
            for name in ("close_attempt", "note_ran", "settle_unknown"):
                db.execute(SQL[name], values)
            unknown.append(job_id)
    return Settled(unknown, to_judge)


def next_job(db: apsw.Connection) -> int:
    """The number that the next job gets."""
    return int(db.execute(SQL["last_job"]).get) + 1
