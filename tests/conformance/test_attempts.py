"""The supervisor's half of the store: claims, tokens, leases, ends."""

from __future__ import annotations

import apsw
import pytest

from clawq import states as job
from clawq.rules import classify
from clawq.rules.classify import Evidence, Standing, Word
from clawq.rules.retry import Decision
from clawq.store import attempts, effects, jobs, ledger, told
from clawq.store.connection import Immediate, dicts
from tests.claims import NOW, claim
from tests.rows import put, states

OK = classify.by_exit_code(0)
DONE = Decision(job.SUCCEEDED, "succeeded")


def test_a_job_is_claimed_once(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    first = claim(db, job_id)
    assert (first.job_id, first.number) == (job_id, 1)
    assert attempts.claim(db, [job_id], 78, NOW) == {}


def test_a_cancelled_job_cannot_be_claimed(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    db.execute("UPDATE jobs SET state = 'cancelled', changed_at = 1, ended_at = 1")
    assert attempts.claim(db, [job_id], 77, NOW) == {}


def test_tokens_only_go_up_even_when_the_clock_goes_back(db: apsw.Connection) -> None:
    assert attempts.next_token(db, NOW) == NOW
    attempts.keep_token(db, NOW + 5)
    assert attempts.next_token(db, NOW) == NOW + 6
    assert attempts.next_token(db, NOW + 100) == NOW + 100


def test_an_end_is_accepted_once(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    assert attempts.mark_running(db, job_id, 77, 123, "456", NOW)
    assert attempts.finish(db, job_id, 77, OK, DONE, "", None, NOW + 5)
    assert not attempts.finish(db, job_id, 77, classify.LOST, Decision(job.DEAD, "lost"), "", None, NOW + 9)
    assert states(db) == {job_id: "succeeded"}
    assert db.execute("SELECT outcome, ended_at, charged FROM attempts").fetchall() == [
        ("succeeded", NOW + 5, 1)
    ]


def test_the_end_of_one_that_was_never_seen_to_run_records_both(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    attempts.mark_unseen(db, {77: job_id}, NOW + 4)
    assert attempts.finish(db, job_id, 77, OK, DONE, "", None, NOW + 5, leader=(123, "456"))
    assert db.execute("SELECT started_at, pid, pid_started, ended_at FROM attempts").fetchall() == [
        (NOW + 5, 123, "456", NOW + 5)
    ]
    moves = db.execute("SELECT to_state FROM events ORDER BY id").fetchall()
    assert [state for (state,) in moves[-3:]] == ["starting", "running", "succeeded"]


def test_several_are_claimed_together_and_each_gets_its_own_token(db: apsw.Connection) -> None:
    taken, first, second = (put(db, NOW) for _ in range(3))
    claim(db, taken, 70)
    claimed = attempts.claim(db, [second, taken, first], 77, NOW)
    assert {token: each.job_id for token, each in claimed.items()} == {77: second, 79: first}
    assert db.execute("SELECT id, token FROM jobs ORDER BY id").fetchall() == [
        (taken, 70),
        (first, 79),
        (second, 77),
    ]


def test_what_is_opened_with_a_claim_stands_under_its_own_name(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    attempts.claim(db, [job_id], 77, NOW)
    opening = attempts.Opening(77, job_id, 1, NOW, "boot", 2_000, 30, 400, "output", "a.log")
    attempts.open_attempts(db, [opening])
    row = dicts(db.execute("SELECT * FROM attempts"))[0]
    assert (row["claimed_at"], row["lease_until"]) == (NOW, NOW + 2_000)
    assert {name: row[name] for name in opening._fields if name != "now"} == {
        name: value for name, value in opening._asdict().items() if name != "now"
    }


def test_what_only_succeeded_is_written_together_as_if_each_had_been_alone(db: apsw.Connection) -> None:
    alone, together, moved_on = (put(db, NOW) for _ in range(3))
    for job_id, token in ((alone, 70), (together, 71), (moved_on, 73)):
        claim(db, job_id, token)
    attempts.mark_unseen(db, {70: alone, 71: together, 72: moved_on}, NOW + 4)
    story = {"spoke_at": NOW + 1, "leader": (123, "456")}
    assert attempts.finish(db, alone, 70, OK, DONE, "", (3, 40), NOW + 5, **story)
    end = attempts.Success(together, 123, "456", 3, 40, NOW + 1)
    attempts.succeed(db, {71: end, 72: end._replace(job_id=moved_on)}, NOW + 5)
    assert states(db) == {alone: "succeeded", together: "succeeded", moved_on: "starting"}
    own = {"id": None, "job_id": None, "token": None}
    for sql in (
        "SELECT * FROM jobs WHERE id = ?",
        "SELECT * FROM attempts WHERE job_id = ?",
        "SELECT at, from_state, to_state, reason FROM events WHERE job_id = ? ORDER BY events.id",
    ):
        one, other = ([row | own for row in dicts(db.execute(sql, (each,)))] for each in (alone, together))
        assert one == other, sql


def test_an_old_token_changes_nothing(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id, 77)
    attempts.finish(
        db, job_id, 77, classify.NEVER_STARTED, Decision(job.QUEUED, "never_started"), "", None, NOW
    )
    claim(db, job_id, 78)
    assert not attempts.mark_running(db, job_id, 77, 1, "1", NOW)
    assert not attempts.finish(db, job_id, 77, OK, DONE, "", None, NOW)
    assert attempts.policy(db, job_id, 77) is None
    assert not attempts.intend_kill(db, 77, "timed_out", NOW)
    assert states(db) == {job_id: "starting"}


def test_never_started_costs_no_attempt_and_a_failure_does(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id, 77)
    attempts.finish(
        db, job_id, 77, classify.NEVER_STARTED, Decision(job.QUEUED, "never_started"), "", None, NOW
    )
    claim(db, job_id, 78)
    attempts.mark_running(db, job_id, 78, None, None, NOW)
    failed = classify.by_exit_code(1)
    attempts.finish(
        db, job_id, 78, failed, Decision(job.SCHEDULED, "transient", NOW + 30), "last words", (3, 40), NOW
    )
    assert db.execute("SELECT attempts, tries, run_after, exit_code FROM jobs").fetchall() == [
        (1, 2, NOW + 30, 1)
    ]
    assert db.execute("SELECT output_tail FROM attempts WHERE token = 78").get == "last words"


def test_what_was_free_is_counted_and_forgotten_by_a_persons_retry(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    limit = classify.judge(
        Evidence(exit_code=1, told=Word("rate_limit", "quota", "api")), Standing(holds_provider=True)
    )
    fork = classify.judge(Evidence(exit_code=1, last_lines="Cannot fork"), Standing())
    for token, end in ((77, limit), (78, fork), (79, limit._replace(charged=True))):
        claim(db, job_id, token)
        attempts.mark_running(db, job_id, token, None, None, NOW)
        again = Decision(job.QUEUED, end.retry_reason)
        attempts.finish(
            db, job_id, token, end, again, "", None, NOW, retry_by=NOW + 100, fork_failed=end == fork
        )
    row = attempts.policy(db, job_id, 79)
    assert row is None
    assert db.execute("SELECT limits_met, forks_failed, attempts, retry_by FROM jobs").fetchall() == [
        (1, 1, 1, NOW + 100)
    ]
    assert db.execute("SELECT reason, resource FROM attempts ORDER BY token").fetchall() == [
        ("quota", "api"),
        ("fork_failed", None),
        ("quota", "api"),
    ]
    attempts.expire(db, NOW + 100)
    assert db.execute("SELECT state, reason FROM jobs").fetchall() == [("dead", "max_age")]
    jobs.retry(db, job_id, NOW + 200, 10)
    assert db.execute("SELECT limits_met, forks_failed, attempts, retry_by FROM jobs").fetchall() == [
        (0, 0, 0, None)
    ]


def test_the_result_is_the_last_attempts_and_a_note_is_the_attempts_alone(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    for token, end, result in ((77, classify.by_exit_code(1), "[1]"), (78, classify.NEVER_STARTED, None)):
        claim(db, job_id, token)
        attempts.mark_running(db, job_id, token, None, None, NOW)
        again = Decision(job.QUEUED, "x")
        attempts.finish(db, job_id, token, end, again, "", None, NOW, result=result, note="odd")
    assert db.execute("SELECT result, last_error FROM jobs").fetchall() == [("[1]", "it never ran")]
    assert db.execute("SELECT error FROM attempts ORDER BY token").fetchall() == [
        ("exit 1; odd",),
        ("it never ran; odd",),
    ]


def test_what_an_agent_told_is_read_back_and_the_last_word_counts(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    for word in (Word("transient"), Word("rate_limit", "quota", "api", 5_000, 'it said "no"')):
        told.tell_failure(db, 77, str(word.error_class), *word[1:])
    row = attempts.policy(db, job_id, 77)
    assert row is not None
    assert row.word == word
    assert attempts.live(db)[0].token == 77


@pytest.mark.parametrize(
    ("columns", "state", "reason"),
    [
        ({"retry_by": NOW, "tries": 1, "state": "scheduled", "run_after": NOW + 9}, "dead", "max_age"),
        ({"retry_by": NOW, "tries": 1}, "dead", "max_age"),
        ({"retry_by": NOW, "tries": 1, "stale_at": NOW}, "expired", "stale"),
        ({"retry_by": NOW + 1, "tries": 1}, "queued", "enqueued"),
        ({"start_by": NOW}, "expired", "busy"),
        ({"start_by": NOW, "tries": 1}, "queued", "enqueued"),
    ],
)
def test_what_is_too_old_to_be_tried_again(
    db: apsw.Connection, columns: dict[str, object], state: str, reason: str
) -> None:
    job_id = put(db, NOW - 10, **columns)
    attempts.expire(db, NOW)
    assert db.execute("SELECT id, state, reason FROM jobs").fetchall() == [(job_id, state, reason)]


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


@pytest.mark.parametrize("state", ["scheduled", "queued", "held"])
def test_a_deadline_that_parent_and_child_share_ends_both(db: apsw.Connection, state: str) -> None:
    """The parent's end had just cancelled the child, which could not expire any more: every turn failed."""
    parent = put(db, NOW - 10, state="scheduled", tries=1, deadline_at=NOW)
    family = {"parent_id": parent, "root_id": parent, "on_parent_end": "cancel"}
    child = put(db, NOW - 10, state=state, deadline_at=NOW, **family)
    assert attempts.expire(db, NOW) == 1
    assert states(db) == {parent: "dead", child: "cancelled"}


def test_attempts_whose_job_moved_on_are_closed(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    with Immediate(db):
        db.execute("UPDATE jobs SET token = 99 WHERE id = ?", (job_id,))
        attempts.close_disowned(db, NOW)
        db.execute("UPDATE jobs SET token = 77 WHERE id = ?", (job_id,))
    assert attempts.live(db) == []


def test_a_retry_waits_no_longer_because_the_clock_was_set_back(db: apsw.Connection) -> None:
    """A backoff of 30 s became one of a day."""
    day = 86_400_000
    failed = put(db, NOW, state="scheduled", tries=1, changed_at=NOW + day, run_after=NOW + day + 30_000)
    before = put(db, NOW, state="scheduled", tries=1, changed_at=NOW - 5, run_after=NOW + 30_000)
    at_a_time = put(db, NOW, state="scheduled", changed_at=NOW + day, run_after=NOW + 2 * day)
    attempts.not_after(db, NOW)
    due = dict(db.execute("SELECT id, run_after FROM jobs").fetchall())
    assert due == {failed: NOW + 30_000, before: NOW + 30_000, at_a_time: NOW + 2 * day}
    attempts.not_after(db, NOW)
    assert db.execute("SELECT run_after FROM jobs WHERE id = ?", (failed,)).get == NOW + 30_000


def test_what_there_is_to_settle_is_told_with_the_rules_of_a_job(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)

    def flags() -> tuple[int, int, int]:
        row = attempts.policy(db, job_id, 77)
        assert row is not None
        return row.begun, row.spent, row.probing

    assert flags() == (0, 0, 0)
    effects.begin(db, "t", job_id, 77, "mail", "job", NOW)
    assert flags() == (1, 0, 0)
    ledger.reserve(db, "t", 77, [("tokens", 5)], NOW)
    assert flags() == (1, 1, 0)
    told.cool(db, "api", NOW, 1_000, NOW)
    ledger.note_start(db, ["api"], ["api"], 77)
    assert flags() == (1, 1, 1)
