"""The supervisor's half of the store: lanes, claims, tokens, ends, reasons."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from clawq import job
from clawq.paths import Home
from clawq.rules import classify
from clawq.rules.admission import Limits, Park, Wait
from clawq.rules.retry import Decision
from clawq.store import attempts
from clawq.store.connection import Immediate, open_db
from tests.rows import check_books, put, states

NOW = 1_000_000
LIMITS = Limits(8, None, None, 60_000, {}, lambda tenant: 8, lambda kind: None, frozenset())
OK = classify.by_exit_code(0)
DONE = Decision(job.SUCCEEDED, "succeeded")


@pytest.fixture
def db(home: Home) -> Iterator[apsw.Connection]:
    db = open_db(home)
    yield db
    check_books(db)
    db.close()


def claim(db: apsw.Connection, job_id: int, token: int = 77, now: int = NOW) -> attempts.Claim:
    claimed = attempts.claim(db, job_id, token, now)
    assert claimed is not None
    attempts.open_attempt(
        db,
        claimed,
        token,
        now,
        boot_id="boot",
        lease_ms=1_000,
        grace_ms=10,
        timeout_ms=0,
        heartbeat="process",
        log="log",
    )
    attempts.keep_token(db, token)
    return claimed


def test_heads_are_the_best_of_each_lane(db: apsw.Connection) -> None:
    put(db, NOW)
    urgent = put(db, NOW + 10, priority=1)
    other = put(db, NOW, needs="browser")
    put(db, NOW, state="held")
    put(db, NOW, state="scheduled", kind="later")
    put(db, NOW, kind="parked", exclusive="x", parked="exclusive:x")
    assert sorted(head.job_id for head in attempts.heads(db)) == [urgent, other]


def test_following_walks_a_lane_to_its_end(db: apsw.Connection) -> None:
    ids = [put(db, NOW) for _ in range(3)]
    (head,) = attempts.heads(db)
    seen = [head.job_id]
    while (behind := attempts.following(db, head)) is not None:
        head = behind
        seen.append(head.job_id)
    assert seen == ids


def test_a_job_is_claimed_once(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    first = claim(db, job_id)
    assert (first.job_id, first.number) == (job_id, 1)
    assert attempts.claim(db, job_id, 78, NOW) is None
    assert attempts.running(db)[0].kind == "default"


def test_a_cancelled_job_cannot_be_claimed(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    db.execute("UPDATE jobs SET state = 'cancelled', changed_at = 1, ended_at = 1")
    assert attempts.claim(db, job_id, 77, NOW) is None


def test_tokens_only_go_up_even_when_the_clock_goes_back(db: apsw.Connection) -> None:
    assert attempts.next_token(db, NOW) == NOW
    attempts.keep_token(db, NOW + 5)
    assert attempts.next_token(db, NOW) == NOW + 6
    assert attempts.next_token(db, NOW + 100) == NOW + 100


def test_an_end_is_accepted_once(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    assert attempts.mark_running(db, job_id, 77, 123, "456", NOW)
    assert attempts.finish(db, job_id, 77, OK, DONE, "", NOW + 5)
    assert not attempts.finish(db, job_id, 77, classify.LOST, Decision(job.DEAD, "lost"), "", NOW + 9)
    assert states(db) == {job_id: "succeeded"}
    assert db.execute("SELECT outcome, ended_at, charged FROM attempts").fetchall() == [
        ("succeeded", NOW + 5, 1)
    ]


def test_an_old_token_changes_nothing(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id, 77)
    attempts.finish(db, job_id, 77, classify.NEVER_STARTED, Decision(job.QUEUED, "never_started"), "", NOW)
    claim(db, job_id, 78)
    assert not attempts.mark_running(db, job_id, 77, 1, "1", NOW)
    assert not attempts.finish(db, job_id, 77, OK, DONE, "", NOW)
    assert attempts.policy(db, job_id, 77) is None
    assert not attempts.intend_kill(db, 77, "timed_out", NOW)
    assert states(db) == {job_id: "starting"}


def test_never_started_costs_no_attempt_and_a_failure_does(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id, 77)
    attempts.finish(db, job_id, 77, classify.NEVER_STARTED, Decision(job.QUEUED, "never_started"), "", NOW)
    claim(db, job_id, 78)
    attempts.mark_running(db, job_id, 78, None, None, NOW)
    failed = classify.by_exit_code(1)
    attempts.finish(db, job_id, 78, failed, Decision(job.SCHEDULED, "transient", NOW + 30), "last words", NOW)
    assert db.execute("SELECT attempts, tries, run_after, exit_code FROM jobs").fetchall() == [
        (1, 2, NOW + 30, 1)
    ]
    assert db.execute("SELECT output_tail FROM attempts WHERE token = 78").get == "last words"


def test_one_statement_renews_every_lease(db: apsw.Connection) -> None:
    for token in (77, 78):
        claim(db, put(db, NOW), token)
    attempts.renew(db, {77: NOW + 10, 78: NOW + 20, 99: NOW})
    assert db.execute("SELECT token, lease_until FROM attempts ORDER BY 1").fetchall() == [
        (77, NOW + 1_010),
        (78, NOW + 1_020),
    ]


def test_the_first_reason_for_a_kill_stands(db: apsw.Connection) -> None:
    claim(db, put(db, NOW))
    assert attempts.intend_kill(db, 77, "timed_out", NOW)
    assert not attempts.intend_kill(db, 77, "cancelled", NOW + 1)
    assert attempts.live(db)[0].kill_reason == "timed_out"


def test_what_is_due_is_queued_in_batches(db: apsw.Connection) -> None:
    for _ in range(attempts.BATCH + 3):
        put(db, NOW, state="scheduled")
    put(db, NOW + 50, state="scheduled")
    assert attempts.next_due(db) == NOW
    assert attempts.promote(db, NOW) == attempts.BATCH
    assert attempts.promote(db, NOW) == 3
    assert attempts.next_due(db) == NOW + 50


@pytest.mark.parametrize(
    ("columns", "state", "reason"),
    [
        ({"stale_at": NOW}, "expired", "stale"),
        ({"stale_at": NOW, "tries": 1, "state": "scheduled"}, "expired", "stale"),
        ({"deadline_at": NOW}, "expired", "deadline"),
        ({"deadline_at": NOW, "tries": 1, "state": "scheduled"}, "dead", "deadline"),
        ({"stale_at": NOW, "state": "held"}, "expired", "stale"),
        ({"stale_at": NOW + 1}, "queued", "enqueued"),
        ({}, "queued", "enqueued"),
    ],
)
def test_what_was_not_started_in_time(
    db: apsw.Connection, columns: dict[str, object], state: str, reason: str
) -> None:
    job_id = put(db, NOW - 10, **columns)
    attempts.expire(db, NOW)
    assert db.execute("SELECT id, state, reason FROM jobs").fetchall() == [(job_id, state, reason)]


def test_a_reason_is_counted_once_an_interval_and_keeps_its_since(db: apsw.Connection) -> None:
    put(db, NOW)
    (head,) = attempts.heads(db)
    wait = Wait(head, "uid_procs", 600, 550)
    for minute in range(3):
        for second in range(0, 60, 7):
            attempts.note_wait(db, wait, LIMITS, NOW + minute * 60_000 + second * 1_000)
    assert db.execute("SELECT reason, count, first_at FROM deferrals").fetchall() == [("uid_procs", 3, NOW)]
    assert db.execute("SELECT reason, measured, limit_value, since FROM lanes").fetchall() == [
        ("uid_procs", 600, 550, NOW)
    ]


def test_a_closed_gate_costs_its_lanes_no_writes_between_two_counts(db: apsw.Connection) -> None:
    put(db, NOW)
    (head,) = attempts.heads(db)
    attempts.note_wait(db, Wait(head, "uid_procs", 600, 550), LIMITS, NOW)
    before = db.total_changes()
    attempts.note_wait(db, Wait(head, "uid_procs", 601, 550), LIMITS, NOW + 59_999)
    assert db.total_changes() == before


def test_a_parked_job_leaves_its_lane_and_comes_back(db: apsw.Connection) -> None:
    holder, waiter = put(db, NOW, exclusive="x"), put(db, NOW, exclusive="x")
    claim(db, holder)
    (head,) = attempts.heads(db)
    attempts.park(db, Park(head, "x"), LIMITS, NOW)
    assert attempts.heads(db) == []
    assert db.execute("SELECT reason, count FROM deferrals").fetchall() == [("exclusive:x", 1)]
    attempts.mark_running(db, holder, 77, None, None, NOW)
    attempts.finish(db, holder, 77, OK, DONE, "", NOW)
    assert [each.job_id for each in attempts.heads(db)] == [waiter]


def test_idle_means_nothing_that_could_still_start(db: apsw.Connection) -> None:
    assert attempts.is_idle(db, [])
    put(db, NOW, state="held")
    assert attempts.is_idle(db, [])
    put(db, NOW, needs="browser")
    assert not attempts.is_idle(db, [])
    assert attempts.is_idle(db, [("resource", "browser")])
    claim(db, put(db, NOW, kind="running"))
    assert not attempts.is_idle(db, [("all", "")])


def test_attempts_whose_job_moved_on_are_closed(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    with Immediate(db):
        db.execute("UPDATE jobs SET token = 99 WHERE id = ?", (job_id,))
        attempts.close_disowned(db, NOW)
        db.execute("UPDATE jobs SET token = 77 WHERE id = ?", (job_id,))
    assert attempts.live(db) == []
