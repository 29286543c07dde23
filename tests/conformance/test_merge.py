"""What a restored database takes over from the one it replaces, told by rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawq import states as job
from clawq.store import copies, counts, merge, refusals, trail
from clawq.store.connection import Immediate, build_schema
from tests.moves import PATHS, add_attempt, put_in
from tests.rows import check_books, states

NOW = 5_000_000
Change = Callable[[apsw.Connection], object]


def made(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    with Immediate(db):
        build_schema(db)
    return db


def fork(db: apsw.Connection, path: Path) -> apsw.Connection:
    """The same queue in another file: as a backup has it."""
    copies.copy(db, str(path))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    return apsw.Connection(str(path), flags=flags)


class Pair:
    """A queue as it was at the backup, and as it is now."""

    def __init__(self, folder: Path, before: Change) -> None:
        self.folder = folder
        self.now = made(folder / "now")
        before(self.now)
        self.backup = fork(self.now, folder / "backup")

    def merge(self) -> merge.Merged:
        kept = self.folder / "kept"
        copies.copy(self.now, str(kept))
        merged = merge.merge(self.backup, str(kept))
        check_books(self.backup)
        assert self.backup.execute("PRAGMA foreign_key_check").fetchall() == []
        return merged

    def get(self, query: str, *values: Any) -> Any:
        return self.backup.execute(query, values).get


def move(db: apsw.Connection, job_id: int, state: str, now: int = NOW, **more: Any) -> None:
    """One step, as the supervisor or a person would write it."""
    ended, active = state in job.ENDED, state in job.ACTIVE
    db.execute(
        "UPDATE jobs SET state = :state, reason = 'test', changed_at = :now, ready_at = NULL, parked = NULL,"
        " ended_at = iif(:ended, :now, NULL), token = iif(:active, coalesce(token, :token), NULL),"
        " tries = tries + (:state = 'starting') WHERE id = :id",
        {"state": state, "now": now, "ended": ended, "active": active, "id": job_id, "token": 9_000 + job_id},
    )


def begin(db: apsw.Connection, job_id: int, key: str, state: str, at: int, scope: str = "job") -> None:
    db.execute(
        "INSERT OR REPLACE INTO effects (scope, tenant, job_id, key, state, token, begun_at, settled_at)"
        " VALUES (?, 'default', ?, ?, ?, 1, ?, iif(?4 = 'begun', NULL, ?5))",
        (scope, job_id, key, state, at),
    )


def queued(db: apsw.Connection) -> None:
    put_in(db, job.QUEUED)


@pytest.mark.parametrize("end", [job.SUCCEEDED, job.DEAD, job.CANCELLED, job.EXPIRED, job.UNKNOWN])
def test_an_end_that_was_seen_stands(tmp_path: Path, end: str) -> None:
    pair = Pair(tmp_path, queued)
    for step in PATHS[end]:
        move(pair.now, 1, step)
    assert pair.merge().ended == (end != job.UNKNOWN)
    assert states(pair.backup) == {1: end}
    history = pair.backup.execute("SELECT to_state FROM events WHERE job_id = 1 ORDER BY id").fetchall()
    assert [str(row[0]) for row in history] == ["queued", *PATHS[end]]


def test_an_end_stands_even_if_the_clock_went_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    move(pair.now, 1, job.CANCELLED, now=5)
    pair.merge()
    assert states(pair.backup) == {1: job.CANCELLED}


def test_a_retry_under_way_keeps_its_attempts(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    for step in (job.STARTING, job.RUNNING, job.SCHEDULED):
        move(pair.now, 1, step)
    add_attempt(pair.now, 1, 9_001, NOW, ended_at=NOW, outcome="failed")
    pair.merge()
    assert states(pair.backup) == {1: job.SCHEDULED}
    assert pair.get("SELECT tries FROM jobs") == 1
    assert pair.get("SELECT outcome FROM attempts WHERE job_id = 1") == "failed"


def test_what_was_under_way_at_the_backup_is_as_it_was_seen_later(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lambda db: put_in(db, job.RUNNING))
    move(pair.now, 1, job.QUEUED)
    pair.merge()
    assert states(pair.backup) == {1: job.QUEUED}


def test_jobs_accepted_since_are_not_lost(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    for state in job.STATES:
        put_in(pair.now, state, NOW)
    assert pair.merge().kept == len(job.STATES)
    assert states(pair.backup) == states(pair.now)
    assert merge.next_job(pair.backup) == len(job.STATES) + 2


def test_pruned_jobs_stay_pruned_and_their_keys_known(tmp_path: Path) -> None:
    def before(db: apsw.Connection) -> None:
        put_in(db, job.QUEUED, dedupe_key="k", dedupe_scope="ever")
        db.execute("INSERT INTO dedupe VALUES ('default', 'default', 'k', 1, 0)")
        begin(db, 1, "mail", "begun", 1)

    pair = Pair(tmp_path, before)
    pair.now.execute("PRAGMA foreign_keys=ON; DELETE FROM jobs WHERE id = 1")
    assert pair.merge().pruned == 1
    assert states(pair.backup) == {}
    assert pair.get("SELECT job_id FROM dedupe") == 1
    assert pair.get("SELECT count(*) FROM effects") == 0


def test_after_another_restore_what_is_missing_was_not_pruned(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    put_in(pair.backup, job.QUEUED)  # the backup is newer than the one that was restored meanwhile
    pair.now.execute("UPDATE meta SET value = 'another' WHERE key = 'life'")
    assert pair.merge().pruned == 0
    assert states(pair.backup) == {1: job.QUEUED, 2: job.QUEUED}


def test_the_newer_word_on_an_effect_stands(tmp_path: Path) -> None:
    def before(db: apsw.Connection) -> None:
        put_in(db, job.RUNNING)
        begin(db, 1, "confirmed since", "begun", 10)
        begin(db, 1, "confirmed before", "done", 10)
        begin(db, 1, "failed, begun again", "failed", 10)

    pair = Pair(tmp_path, before)
    begin(pair.now, 1, "confirmed since", "done", 20)
    begin(pair.now, 1, "failed, begun again", "begun", 20)
    begin(pair.now, 1, "new", "done", 20)
    begin(pair.now, 1, "for all", "done", 20, scope="tenant")
    pair.merge()
    assert dict(pair.backup.execute("SELECT key, state FROM effects").fetchall()) == {
        "confirmed since": "done",
        "confirmed before": "done",
        "failed, begun again": "begun",
        "new": "done",
        "for all": "done",
    }


def test_keys(tmp_path: Path) -> None:
    def before(db: apsw.Connection) -> None:
        for key in ("ended since", "still queued"):
            job_id = put_in(db, job.QUEUED, dedupe_key=key, dedupe_scope="active")
            db.execute("INSERT INTO dedupe VALUES ('default', 'default', ?, ?, 1)", (key, job_id))

    pair = Pair(tmp_path, before)
    move(pair.now, 1, job.CANCELLED)
    put_in(pair.now, job.SUCCEEDED, NOW, dedupe_key="digest", dedupe_scope="ever")
    pair.now.execute("INSERT INTO dedupe VALUES ('default', 'default', 'digest', 3, 0)")
    pair.merge()
    found = dict(pair.backup.execute("SELECT key, job_id FROM dedupe").fetchall())
    assert found == {"still queued": 2, "digest": 3}


def test_numbers_and_tokens_go_on_above_both(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    pair.backup.execute("INSERT INTO meta VALUES ('last_token', 70)")
    pair.now.execute("INSERT INTO meta VALUES ('last_token', 90), ('stop', 'drain')")
    pair.now.execute("UPDATE sqlite_sequence SET seq = 40 WHERE name = 'jobs'")
    pair.merge()
    merge.settle(pair.backup, [], NOW)
    assert put_in(pair.backup, job.QUEUED) == 41
    assert pair.get("SELECT value FROM meta WHERE key = 'last_token'") == 90
    assert pair.get("SELECT count(*) FROM meta WHERE key = 'stop'") == 0


def test_another_queues_jobs_get_new_numbers(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    fresh = made(tmp_path / "fresh")
    put_in(fresh, job.SUCCEEDED, NOW)
    put_in(fresh, job.QUEUED, NOW, parent_id=1, root_id=1)
    begin(fresh, 1, "mail", "done", NOW)
    pair.now = fresh
    assert pair.merge().kept == 2
    assert states(pair.backup) == {1: job.QUEUED, 3: job.SUCCEEDED, 4: job.QUEUED}
    assert pair.get("SELECT parent_id FROM jobs WHERE id = 4") == 3
    assert pair.get("SELECT job_id FROM attempts WHERE outcome IS NOT NULL") == 3
    assert pair.get("SELECT job_id FROM effects") == 3


def test_two_jobs_of_one_number_are_counted_and_the_restored_one_stays(tmp_path: Path) -> None:
    """A copy of this queue went on elsewhere, and both gave out the same number."""
    pair = Pair(tmp_path, queued)
    put_in(pair.backup, job.QUEUED, now=3)
    put_in(pair.now, job.SUCCEEDED, now=NOW)
    assert pair.merge().strangers == 1
    assert states(pair.backup) == {1: job.QUEUED, 2: job.QUEUED}


def test_pauses_of_both_and_everything(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lambda db: db.execute("INSERT INTO pauses VALUES ('kind', 'a', 1)"))
    pair.now.execute("INSERT INTO pauses VALUES ('kind', 'b', 1)")
    pair.now.execute("DELETE FROM pauses WHERE name = 'a'")
    pair.merge()
    merge.settle(pair.backup, [], NOW)
    rows = pair.backup.execute("SELECT scope, name FROM pauses ORDER BY 1, 2").fetchall()
    assert rows == [("all", ""), ("kind", "a"), ("kind", "b")]


@pytest.mark.parametrize("state", job.ACTIVE)
def test_what_no_file_tells_of_is_unknown(tmp_path: Path, state: str) -> None:
    pair = Pair(tmp_path, lambda db: [put_in(db, state), put_in(db, state)])
    settled = merge.settle(pair.backup, [1_002], NOW)
    assert settled == merge.Settled([1], [2])
    assert states(pair.backup) == {1: job.UNKNOWN, 2: state}
    assert pair.get("SELECT outcome FROM attempts WHERE job_id = 1") == "lost"
    assert pair.get("SELECT ended_at FROM attempts WHERE job_id = 2") is None
    check_books(pair.backup)


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, queued)
    (tmp_path / "broken").write_bytes(b"x" * 8_192)
    with pytest.raises(apsw.NotADBError):
        merge.merge(pair.backup, str(tmp_path / "broken"))
    assert states(pair.backup) == {1: job.QUEUED}
    check_books(pair.backup)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happened_since_nothing_ended_runs_again(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    starts = data.draw(
        st.lists(st.sampled_from([job.QUEUED, job.RUNNING, job.HELD, job.SCHEDULED]), max_size=5)
    )
    pair = Pair(tmp_path_factory.mktemp("q"), lambda db: [put_in(db, state) for state in starts])
    for job_id, start in enumerate(starts, 1):
        at = start
        for _ in range(data.draw(st.integers(0, 4))):
            if not job.TRANSITIONS[at]:
                break
            at = data.draw(st.sampled_from(job.TRANSITIONS[at]))
            move(pair.now, job_id, at, now=NOW + job_id)
    for _ in range(data.draw(st.integers(0, 3))):
        put_in(pair.now, data.draw(st.sampled_from(job.STATES)), NOW)
    pair.merge()
    seen, restored = states(pair.now), states(pair.backup)
    assert set(seen) == set(restored), "a job was lost"
    for job_id, state in seen.items():
        if state in (*job.ENDED, job.UNKNOWN):
            assert restored[job_id] == state
    assert merge.next_job(pair.backup) > max(seen, default=0)


# ---------------------------------------------------------------- every table and column there is

MADE_ANEW = ("meta", "states", "transitions", "tally", "lanes", "bulk", "spent")
"""Written by the program, or counted from the jobs; `meta` is queue, life and numbers, each by a rule.
`bulk` is empty outside of a transaction."""
BY_A_RULE = ("jobs", "effects", "dedupe", "pauses", "config")
NO_JOBS = ("boot_id", "id")
"""Columns with a name like a job's number that hold none. The jobs' own `id` is shifted by name."""


def tables(db: apsw.Connection) -> set[str]:
    found = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return {str(row[0]) for row in found}


def columns(db: apsw.Connection, table: str) -> dict[str, str]:
    """{name: type} of the stored ones."""
    found = db.execute("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    return {str(name): str(kind) for name, kind in found}


@pytest.fixture
def empty(tmp_path: Path) -> apsw.Connection:
    return made(tmp_path / "empty")


def test_every_table_has_its_way_through_a_restore(empty: apsw.Connection) -> None:
    ways = [*merge.OF_A_JOB, *merge.MEASURED, *MADE_ANEW, *BY_A_RULE]
    assert sorted(ways) == sorted(tables(empty)), "a table that a restore would forget, or that is gone"


def test_every_number_of_a_job_moves_with_its_job(empty: apsw.Connection) -> None:
    """A column that a shift to another queue's numbers would forget."""
    named = {
        name
        for table in ("jobs", "effects", *merge.OF_A_JOB)
        for name in columns(empty, table)
        if any(part in name for part in ("job", "parent", "root", "child")) or name.endswith("id")
    }
    assert named - set(NO_JOBS) - {"pid", "on_parent_end"} == set(merge._JOB_NUMBERS)


def test_every_column_comes_back_as_the_replaced_database_has_it(tmp_path: Path) -> None:
    """Each holds a value of its own there: one that is left out comes back empty."""
    pair = Pair(tmp_path, lambda db: None)
    for db in (pair.now, pair.backup):
        db.execute("PRAGMA ignore_check_constraints=ON")
    for (name,) in pair.now.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        pair.now.execute(f'DROP TRIGGER "{name}"')
    fixed = {"job_id": 7, "scope": "tenant", "until_end": 0, "parked": None, "token": 70, "ended_at": None}
    wanted = {}
    for table in ("jobs", "effects", "dedupe", "pauses", *merge.OF_A_JOB, *merge.MEASURED):
        row: dict[str, Any] = {
            name: number if kind in ("INTEGER", "REAL") else f"{table} {number}"
            for number, (name, kind) in enumerate(columns(pair.now, table).items(), 100)
        }
        row |= {name: value for name, value in fixed.items() if name in row}
        row |= {"jobs": {"id": 7, "state": job.QUEUED}, "effects": {"state": "done"}}.get(table, {})
        places = ", ".join(f":{name}" for name in row)
        pair.now.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)
        wanted[table] = row
    merge.merge(pair.backup, str(tmp_path / "now"))
    for table, row in wanted.items():
        if table in merge.OWN_NUMBER:
            del row["id"]
        found = pair.backup.execute(f"SELECT {', '.join(row)} FROM {table}").fetchall()
        assert found == [tuple(row.values())], table


def test_what_was_counted_is_the_replaced_databases_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lambda db: put_in(db, job.SUCCEEDED, NOW))
    put_in(pair.now, job.DEAD, NOW)
    for db in (pair.now, pair.backup):
        with Immediate(db):
            counts.fold(db)
    refusals.count_refusals(pair.now, {("queue_full", "qa", "acme"): 1}, NOW)
    before = counts.ever(pair.now)
    with Immediate(pair.now):
        counts.sample(pair.now, counts.Machine(8), NOW)
    pair.merge()
    assert counts.ever(pair.backup) == before
    assert counts.samples(pair.backup, 0) == counts.samples(pair.now, 0) != []
    assert trail.here(pair.backup).refusal == 1
