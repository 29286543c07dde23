"""The owner's half of the store: each change is allowed in some states and refused in all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from clawq import states as job
from clawq.errors import NoSuchJob, Refused, WrongState
from clawq.paths import Home
from clawq.store import jobs
from clawq.store.connection import open_db
from tests.moves import add_attempt, put_in
from tests.rows import put

THEN = 1_000_000
NOW = 5_000_000
MANY = 1_000

Change = Callable[[apsw.Connection, int], str]

CHANGES: dict[str, tuple[Change, set[str]]] = {
    "cancel": (lambda db, id: jobs.cancel(db, id, NOW), {*job.PENDING, *job.ACTIVE}),
    "approve": (lambda db, id: jobs.approve(db, id, NOW), {job.HELD}),
    "deny": (lambda db, id: jobs.deny(db, id, NOW), {job.HELD}),
    "edit": (lambda db, id: jobs.edit(db, id, NOW, priority=3), {*job.PENDING}),
    "retry": (lambda db, id: jobs.retry(db, id, NOW, MANY), {job.DEAD, job.EXPIRED, job.CANCELLED}),
    "reconcile": (lambda db, id: jobs.reconcile(db, id, NOW, job.DEAD), {job.UNKNOWN}),
}


def row(db: apsw.Connection, job_id: int) -> dict[str, Any]:
    cursor = db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,))
    names = [column[0] for column in cursor.get_description()]
    return dict(zip(names, cursor.fetchall()[0], strict=True))


@pytest.mark.parametrize("state", job.STATES)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_allowed_in_its_states_only(db: apsw.Connection, name: str, state: str) -> None:
    change, allowed = CHANGES[name]
    job_id = put_in(db, state)
    before = row(db, job_id)
    if state in allowed:
        assert change(db, job_id) == row(db, job_id)["state"]
        assert row(db, job_id) != before
    else:
        with pytest.raises(WrongState, match=f"^job {job_id} is {state}: only a job that is ") as refused:
            change(db, job_id)
        assert refused.value.exit_code == 1
        assert row(db, job_id) == before


@pytest.mark.parametrize("name", CHANGES)
def test_a_job_that_does_not_exist(db: apsw.Connection, name: str) -> None:
    with pytest.raises(NoSuchJob, match="no job 99"):
        CHANGES[name][0](db, 99)


def test_every_change_that_moves_a_job_says_why_in_its_events(db: apsw.Connection) -> None:
    held = put_in(db, job.HELD)
    jobs.approve(db, held, NOW)
    jobs.cancel(db, held, NOW + 1)
    jobs.retry(db, held, NOW + 2, MANY)
    events = db.execute("SELECT at, from_state, to_state, reason FROM events ORDER BY id").fetchall()
    assert events == [
        (THEN, "new", "held", "enqueued"),
        (NOW, "held", "queued", "approved"),
        (NOW + 1, "queued", "cancelled", "cancelled"),
        (NOW + 2, "cancelled", "queued", "retried"),
    ]


@pytest.mark.parametrize("state", job.ACTIVE)
def test_cancelling_what_runs_is_a_request_and_the_first_one_stands(db: apsw.Connection, state: str) -> None:
    job_id = put_in(db, state)
    assert jobs.cancel(db, job_id, NOW) == state
    assert jobs.cancel(db, job_id, NOW + 50) == state
    assert row(db, job_id)["cancel_at"] == NOW


def test_approving_a_job_that_is_not_due_schedules_it(db: apsw.Connection) -> None:
    later, due = put_in(db, job.HELD, run_after=NOW + 1), put_in(db, job.HELD, run_after=NOW)
    assert jobs.approve(db, later, NOW) == job.SCHEDULED
    assert jobs.approve(db, due, NOW) == job.QUEUED
    assert (row(db, later)["ready_at"], row(db, due)["ready_at"]) == (None, NOW)


def test_a_parked_job_can_be_cancelled_and_the_next_one_takes_its_place(db: apsw.Connection) -> None:
    holder = put_in(db, job.RUNNING, exclusive="x")
    parked = [put(db, THEN + n, exclusive="x", parked="exclusive:x") for n in range(2)]
    jobs.cancel(db, parked[0], NOW)
    assert row(db, parked[1])["parked"] == "exclusive:x", "the name is still taken"
    db.execute("UPDATE jobs SET state = 'succeeded', token = NULL, ended_at = 2 WHERE id = ?", (holder,))
    assert row(db, parked[1])["parked"] is None


class TestEdit:
    def test_what_is_not_given_stays(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.QUEUED, stale_at=7, deadline_at=8, timeout_ms=9, max_attempts=2, priority=1)
        before = row(db, job_id)
        jobs.edit(db, job_id, NOW, max_attempts=5)
        assert row(db, job_id) == before | {"max_attempts": 5}

    def test_every_value(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.QUEUED)
        jobs.edit(
            db,
            job_id,
            NOW,
            priority=2,
            band="bulk",
            stale_at=NOW + 1,
            deadline_at=NOW + 2,
            timeout_ms=0,
            max_attempts=9,
        )
        after = row(db, job_id)
        assert (after["priority"], after["band"], after["stale_at"], after["deadline_at"]) == (
            2,
            3,
            NOW + 1,
            NOW + 2,
        )
        assert (after["timeout_ms"], after["max_attempts"], after["state"]) == (0, 9, "queued")

    def test_the_rank_follows_the_priority_and_nothing_else(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.QUEUED, priority=1, rank=THEN - 60_000)
        jobs.edit(db, job_id, NOW, band="bulk")
        assert row(db, job_id)["rank"] == THEN - 60_000
        jobs.edit(db, job_id, NOW, priority=-2)
        assert row(db, job_id)["rank"] == THEN + 120_000
        jobs.edit(db, job_id, NOW, priority=0)
        assert row(db, job_id)["rank"] == THEN

    def test_a_later_time_schedules_and_a_passed_one_queues(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.QUEUED, priority=1)
        assert jobs.edit(db, job_id, NOW, run_after=NOW + 10) == job.SCHEDULED
        after = row(db, job_id)
        assert (after["run_after"], after["ready_at"], after["reason"]) == (NOW + 10, None, "edited")
        assert after["rank"] == NOW + 10 - 60_000
        assert jobs.edit(db, job_id, NOW + 1, run_after=NOW + 1) == job.QUEUED
        assert row(db, job_id)["ready_at"] == NOW + 1

    def test_a_time_that_moves_nothing_is_no_event(self, db: apsw.Connection) -> None:
        queued, scheduled = put_in(db, job.QUEUED), put_in(db, job.SCHEDULED, run_after=NOW + 5)
        held = put_in(db, job.HELD)
        assert jobs.edit(db, queued, NOW, run_after=NOW) == job.QUEUED
        assert jobs.edit(db, scheduled, NOW, run_after=NOW + 9) == job.SCHEDULED
        assert jobs.edit(db, held, NOW, run_after=NOW + 9) == job.HELD
        assert [row(db, id)["reason"] for id in (queued, scheduled, held)] == ["enqueued"] * 3
        assert [row(db, id)["changed_at"] for id in (queued, scheduled, held)] == [THEN] * 3
        assert row(db, queued)["ready_at"] == THEN

    def test_a_parked_job_that_is_put_off_leaves_its_place(self, db: apsw.Connection) -> None:
        put_in(db, job.RUNNING, exclusive="x")
        job_id = put(db, THEN, exclusive="x", parked="exclusive:x")
        jobs.edit(db, job_id, NOW, priority=4)
        assert row(db, job_id)["parked"] == "exclusive:x"
        jobs.edit(db, job_id, NOW, run_after=NOW + 1)
        assert row(db, job_id)["parked"] is None

    def test_a_band_and_a_time_at_once_keep_the_books(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.QUEUED)
        put_in(db, job.QUEUED)
        jobs.edit(db, job_id, NOW, band="critical", run_after=NOW + 1)
        tally = db.execute("SELECT state, band, n FROM tally ORDER BY 1, 2").fetchall()
        assert tally == [("queued", 2, 1), ("scheduled", 0, 1)]


class TestRetry:
    def test_it_begins_again(self, db: apsw.Connection) -> None:
        job_id = put_in(
            db, job.DEAD, priority=2, stale_at=THEN + 100, deadline_at=THEN + 500, tries=3, attempts=3
        )
        db.execute(
            "UPDATE jobs SET exit_code = 3, last_error = 'e', error_class = 'transient', started_at = 2,"
            " cancel_at = 4"
        )
        assert jobs.retry(db, job_id, NOW, MANY) == job.QUEUED
        after = row(db, job_id)
        assert (after["attempts"], after["tries"]) == (0, 3), "tries number the attempts, which stay"
        for name in (
            "ended_at",
            "exit_code",
            "last_error",
            "error_class",
            "started_at",
            "cancel_at",
            "token",
        ):
            assert after[name] is None, name
        assert (after["accepted_at"], after["run_after"], after["ready_at"]) == (NOW, NOW, NOW)
        assert after["rank"] == NOW - 120_000
        assert (after["stale_at"], after["deadline_at"]) == (NOW + 100, NOW + 500)
        assert after["created_at"] == THEN

    def test_a_full_queue_takes_none(self, db: apsw.Connection) -> None:
        put_in(db, job.HELD)
        job_id = put_in(db, job.DEAD)
        with pytest.raises(Refused, match=r"the queue is full \(1 wait of at most 1\)") as refused:
            jobs.retry(db, job_id, NOW, 1)
        assert (refused.value.reason, refused.value.exit_code) == ("queue_full", 75)
        assert row(db, job_id)["state"] == job.DEAD
        jobs.retry(db, job_id, NOW, 2)

    def key(self, db: apsw.Connection, job_id: int) -> list[tuple[Any, ...]]:
        return db.execute("SELECT key, job_id FROM dedupe").fetchall()

    def with_key(self, db: apsw.Connection, scope: str) -> int:
        job_id = put_in(db, job.QUEUED, dedupe_key="k", dedupe_scope=scope)
        db.execute("INSERT INTO dedupe VALUES ('default', 'default', 'k', ?, ?)", (job_id, scope == "active"))
        jobs.cancel(db, job_id, NOW)
        return job_id

    def test_an_active_key_is_taken_again(self, db: apsw.Connection) -> None:
        job_id = self.with_key(db, "active")
        assert self.key(db, job_id) == []
        jobs.retry(db, job_id, NOW, MANY)
        assert self.key(db, job_id) == [("k", job_id)]

    def test_a_key_that_another_job_has_by_now_keeps_it_ended(self, db: apsw.Connection) -> None:
        job_id = self.with_key(db, "active")
        other = put_in(db, job.QUEUED, dedupe_key="k", dedupe_scope="active")
        db.execute("INSERT INTO dedupe VALUES ('default', 'default', 'k', ?, 1)", (other,))
        with pytest.raises(WrongState, match=f"job {other} has its dedupe key 'k': let job {other} end"):
            jobs.retry(db, job_id, NOW, MANY)
        assert row(db, job_id)["state"] == job.CANCELLED
        assert self.key(db, job_id) == [("k", other)]

    def test_a_key_that_holds_for_ever_is_its_own(self, db: apsw.Connection) -> None:
        job_id = self.with_key(db, "ever")
        jobs.retry(db, job_id, NOW, MANY)
        assert self.key(db, job_id) == [("k", job_id)]


class TestReconcile:
    def test_it_happened(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.UNKNOWN)
        db.execute("UPDATE jobs SET last_error = 'lost'")
        assert jobs.reconcile(db, job_id, NOW, job.SUCCEEDED, "seen in\nthe outbox") == job.SUCCEEDED
        after = row(db, job_id)
        assert (after["ended_at"], after["last_error"]) == (NOW, None)
        assert after["reason"] == "reconciled: seen in the outbox"

    def test_it_did_not(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.UNKNOWN)
        db.execute("UPDATE jobs SET last_error = 'lost'")
        assert jobs.reconcile(db, job_id, NOW, job.DEAD, "no trace") == job.DEAD
        assert row(db, job_id)["last_error"] == "lost; settled as failed: no trace"

    def test_it_is_run_again_from_the_start(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.UNKNOWN, attempts=2, stale_at=THEN + 7)
        assert jobs.reconcile(db, job_id, NOW, job.QUEUED) == job.QUEUED
        after = row(db, job_id)
        assert (after["attempts"], after["stale_at"], after["reason"]) == (0, NOW + 7, "reconciled")

    def test_a_long_note_is_cut(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.UNKNOWN)
        jobs.reconcile(db, job_id, NOW, job.SUCCEEDED, "x" * 5_000)
        assert len(row(db, job_id)["reason"]) == len("reconciled: ") + jobs.NOTE_CHARS


@pytest.mark.parametrize(
    ("scope", "name", "stored"),
    [
        ("all", "", ""),
        ("tenant", "t", "t"),
        ("kind", "k", "k"),
        ("resource", "r", "r"),
        ("band", "bulk", "3"),
    ],
)
def test_pauses_are_set_once_and_lifted_once(db: apsw.Connection, scope: str, name: str, stored: str) -> None:
    assert jobs.pause(db, scope, name, THEN) is True
    assert jobs.pause(db, scope, name, NOW) is False
    assert db.execute("SELECT scope, name, since FROM pauses").fetchall() == [(scope, stored, THEN)]
    assert jobs.resume(db, scope, name) is True
    assert jobs.resume(db, scope, name) is False


def test_a_parents_end_reaches_what_runs_below_a_child_that_has_not_started(db: apsw.Connection) -> None:
    """Such a child is between two attempts; what its first one put in is to end with it."""
    parent = put_in(db, job.RUNNING)
    child = put_in(db, job.SCHEDULED, parent_id=parent, root_id=parent, on_parent_end="cancel")
    goes, stays = (
        put_in(db, job.RUNNING, parent_id=child, root_id=parent, on_parent_end=said)
        for said in ("cancel", "keep")
    )
    db.execute(
        "UPDATE jobs SET state = 'succeeded', token = NULL, changed_at = ?1, ended_at = ?1 WHERE id = ?2",
        (NOW, parent),
    )
    assert row(db, child)["state"] == job.CANCELLED
    assert (row(db, goes)["cancel_at"], row(db, stays)["cancel_at"]) == (NOW, None)


class TestPrune:
    @pytest.mark.parametrize("parent_state", [job.SCHEDULED, job.WAITING, job.UNKNOWN, job.DEAD])
    def test_children_stay_until_their_parent_has_ended(self, db: apsw.Connection, parent_state: str) -> None:
        parent = put_in(db, parent_state, THEN)
        child = put_in(db, job.SUCCEEDED, THEN, parent_id=parent, root_id=parent)
        gone = {parent, child} if parent_state == job.DEAD else set()
        assert jobs.count_prunable(db, NOW) == len(gone)
        found: set[int] = set()
        while ids := jobs.prunable(db, NOW, MANY)[0]:
            assert jobs.prune(db, ids, NOW) == len(ids)
            found |= set(ids)
        assert found == gone

    def test_only_what_ended_before(self, db: apsw.Connection) -> None:
        old = {put_in(db, state, THEN) for state in job.ENDED}
        for state in job.STATES:
            put_in(db, state, NOW)
        kept = {put_in(db, state, THEN) for state in (*job.PENDING, *job.ACTIVE, job.UNKNOWN)}
        assert jobs.count_prunable(db, NOW) == len(old)
        gone: set[int] = set()
        while ids := jobs.prunable(db, NOW, 2)[0]:
            assert len(ids) <= 2
            gone |= set(ids)
            assert jobs.prune(db, ids, NOW) == len(ids)
        assert gone == old
        left = {id for (id,) in db.execute("SELECT id FROM jobs")}
        assert kept <= left
        assert len(left) == len(kept) + len(job.STATES)

    def test_its_logs_are_named_and_its_history_goes(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.DEAD, THEN)
        db.execute("INSERT INTO deferrals VALUES (?, 'low_memory', 1, 2, 3)", (job_id,))
        ids, logs = jobs.prunable(db, NOW, 9)
        assert (ids, logs) == ([job_id], [f"{job_id}.1.{1_000 + job_id}.log"])
        jobs.prune(db, ids, NOW)
        for table in ("attempts", "events", "deferrals"):
            assert db.execute(f"SELECT count(*) FROM {table}").get == 0

    def test_a_job_retried_meanwhile_stays(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.DEAD, THEN)
        ids, _ = jobs.prunable(db, NOW, 9)
        jobs.retry(db, job_id, NOW, MANY)
        assert jobs.prune(db, ids, NOW) == 0
        assert row(db, job_id)["state"] == job.QUEUED

    def test_keys_that_hold_for_ever_outlive_it(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.DEAD, THEN, dedupe_key="k", dedupe_scope="ever")
        db.execute("INSERT INTO dedupe VALUES ('default', 'default', 'k', ?, 0)", (job_id,))
        jobs.prune(db, [job_id], NOW)
        assert db.execute("SELECT key, job_id FROM dedupe").fetchall() == [("k", job_id)]


def test_a_claim_that_came_first_turns_a_cancel_into_a_request(home: Home, db: apsw.Connection) -> None:
    job_id = put_in(db, job.QUEUED)
    other = open_db(home)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE jobs SET state = 'starting', token = 5, changed_at = 1 WHERE id = ?", (job_id,))
    add_attempt(other, job_id, 5, THEN)
    other.execute("COMMIT")
    other.close()
    assert jobs.cancel(db, job_id, NOW) == job.STARTING
