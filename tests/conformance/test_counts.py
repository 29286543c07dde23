"""What has happened is counted once, whoever counts it and whenever; and a sample a minute."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawq import states as job
from clawq.rules.admission import Park, Wait
from clawq.rules.facts import Head
from clawq.store import counts, jobs, lanes
from clawq.store.connection import Immediate
from clawq.store.counts import EVER, HOUR_MS, MINUTE_MS, Key, Machine
from tests.desk import Desk
from tests.moves import add_attempt, put_in
from tests.rows import put

NOW = 1_900_000_000_000
Moves = list[tuple[str, int]]


def live(db: apsw.Connection, job_id: int, moves: Moves, outcome: str = "succeeded", **attempt: str) -> None:
    """Take a job through states at moments, with the attempts that belong to them."""
    token = 0
    for state, at in moves:
        under_way = state in job.ACTIVE
        if state == job.STARTING:
            token = at
            number = db.execute("SELECT count(*) + 1 FROM attempts WHERE job_id = ?", (job_id,)).get
            add_attempt(db, job_id, token, at, number=number)
        db.execute(
            "UPDATE jobs SET state = ?1, reason = 'why', changed_at = ?2, token = iif(?3, ?4, NULL),"
            " tries = tries + (?1 = 'starting'), ended_at = iif(?5, ?2, NULL),"
            " ready_at = iif(?1 = 'queued', ?2, NULL) WHERE id = ?6",
            (state, at, under_way, token, state in job.ENDED, job_id),
        )
        if token and not under_way:
            db.execute(
                "UPDATE attempts SET ended_at = ?, outcome = ?, error_class = ?"
                " WHERE token = ? AND ended_at IS NULL",
                (at, outcome, attempt.get("error_class"), token),
            )


def told(db: apsw.Connection) -> dict[tuple[str, str, str], tuple[int, int]]:
    """{(what, kind, word): (n, total)} since ever."""
    return {key[1:]: tuple(count) for key, count in counts.ever(db).counts.items()}


def test_a_life_is_told_by_its_moves(db: apsw.Connection) -> None:
    job_id = put(db, NOW, kind="qa", needs="browser,shell")
    live(db, job_id, [("starting", NOW + 4_000), ("running", NOW + 4_500), ("succeeded", NOW + 9_500)])
    assert told(db) == {
        ("accepted", "qa", "queued"): (1, 0),
        ("started", "qa", ""): (1, 0),
        ("waited", "qa", "5000"): (1, 4_500),
        ("worked", "qa", "5000"): (1, 5_000),
        ("attempt", "qa", "succeeded"): (1, 0),
        ("ended", "qa", "succeeded why"): (1, 0),
        ("workflow", "qa", "succeeded"): (1, 0),
        ("used", "browser", ""): (1, 5_500),
        ("used", "shell", ""): (1, 5_500),
    }


def test_a_failure_is_told_of_its_resource_and_by_its_class(db: apsw.Connection) -> None:
    job_id = put(db, NOW, kind="qa", needs="browser")
    first: Moves = [("starting", NOW), ("running", NOW), ("scheduled", NOW + 10)]
    live(db, job_id, first, "failed", error_class="transient")
    again: Moves = [("queued", NOW + 20), ("starting", NOW + 30), ("running", NOW + 30), ("dead", NOW + 40)]
    live(db, job_id, again, "timed_out", error_class="timeout")
    found = told(db)
    assert found["retried", "qa", "transient"] == (1, 0)
    assert found["attempt", "qa", "failed"] == found["attempt", "qa", "timed_out"] == (1, 0)
    assert found["used", "browser", ""] == (2, 20)
    assert found["failed", "browser", "transient"] == found["failed", "browser", "timeout"] == (1, 0)
    assert found["waited", "qa", "100"] == (2, 10)
    assert found["worked", "qa", "100"] == (2, 20)


def test_the_first_output_is_told_when_its_attempt_has_ended(db: apsw.Connection) -> None:
    for delay, spoke_at in ((0, NOW + 700), (1, None)):
        job_id = put(db, NOW + delay)
        moves = [
            ("starting", 500),
            ("running", 600),
            ("waiting", 650),
            ("running", 900),
            ("succeeded", 5_000),
        ]
        live(db, job_id, [(state, NOW + delay + ms) for state, ms in moves])
        db.execute("UPDATE attempts SET spoke_at = ? WHERE job_id = ?", (spoke_at, job_id))
    assert told(db)["spoke", "default", "1000"] == (1, 700)
    assert told(db)["worked", "default", "5000"] == (2, 8_800)


def test_an_agent_that_waits_for_others_holds_no_slots_meanwhile(db: apsw.Connection) -> None:
    job_id = put(db, NOW, needs="browser")
    moves = [("starting", 0), ("running", 1), ("waiting", 11), ("running", 500), ("succeeded", 501)]
    live(db, job_id, [(state, NOW + ms) for state, ms in moves])
    assert told(db)["used", "browser", ""] == (1, 12)
    assert told(db)["worked", "default", "500"] == (1, 500)


def test_what_never_started_was_removed(db: apsw.Connection) -> None:
    put_in(db, job.EXPIRED, NOW, kind="qa")
    put_in(db, job.CANCELLED, NOW, kind="qa")
    job_id = put(db, NOW, kind="qa")
    live(db, job_id, [("starting", NOW), ("running", NOW), ("scheduled", NOW), ("cancelled", NOW)], "failed")
    found = told(db)
    assert found["removed", "qa", "expired test"] == found["removed", "qa", "cancelled test"] == (1, 0)
    assert ("removed", "qa", "cancelled why") not in found


def test_a_start_past_the_deadline_of_a_retry_would_show(db: apsw.Connection) -> None:
    job_id = put(db, NOW, deadline_at=NOW + 100)
    live(db, job_id, [("starting", NOW), ("running", NOW), ("queued", NOW + 50)], "failed")
    live(db, job_id, [("starting", NOW + 90), ("running", NOW + 90), ("queued", NOW + 95)], "failed")
    assert ("late", "default", "") not in told(db)
    live(db, job_id, [("starting", NOW + 101)])
    assert told(db)["late", "default", ""] == (1, 0)


@pytest.mark.parametrize(("ms", "bucket"), [(0, "100"), (100, "100"), (101, "500"), (86_400_001, "0")])
def test_durations_fall_into_buckets(db: apsw.Connection, ms: int, bucket: str) -> None:
    live(db, put(db, NOW), [("starting", NOW + ms), ("running", NOW + ms)])
    assert told(db)["waited", "default", bucket] == (1, ms)


def test_the_query_has_the_buckets_that_the_module_names() -> None:
    sql = counts.SQL["uncounted"]
    assert [f"<= {most} THEN {most}" in sql for most in counts.BOUNDS_MS] == [True] * len(counts.BOUNDS_MS)
    assert sql.count(" ms <=") == sql.count(" spoke_ms <=") == len(counts.BOUNDS_MS)


def test_a_clock_that_was_set_back_makes_no_negative_time(db: apsw.Connection) -> None:
    live(db, put(db, NOW, needs="shell"), [("starting", NOW), ("running", NOW - 5), ("succeeded", NOW - 9)])
    assert told(db)["waited", "default", "100"] == told(db)["worked", "default", "100"] == (1, 0)
    assert told(db)["used", "shell", ""] == (1, 0)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["job", "fold", "ever"]), max_size=12))
def test_nothing_is_counted_twice_or_left_out(steps: list[str]) -> None:
    db, made = Desk.in_memory().db, 0
    for step in steps:
        if step == "job":
            made += 1
            put_in(db, job.DEAD, NOW, needs="shell")
        elif step == "fold":
            with Immediate(db):
                counts.fold(db)
        found = told(db)
        assert found.get(("accepted", "default", "queued"), (0, 0))[0] == made
        assert found.get(("used", "shell", ""), (0, 0))[0] == made
    db.close()


def test_counting_goes_on_where_a_batch_ended(db: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "BATCH", 2)
    for _ in range(5):
        put(db, NOW)
    with Immediate(db):
        assert counts.fold(db)
        assert counts.fold(db)
        assert not counts.fold(db)
        assert not counts.fold(db)
    assert told(db)["accepted", "default", "queued"] == (5, 0)


def test_a_reader_says_that_more_is_not_counted_than_it_reads(
    db: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "TAIL", 3)
    for _ in range(2):
        put(db, NOW)
    assert not counts.ever(db).behind
    put(db, NOW)
    assert counts.ever(db).behind


def test_pruned_jobs_stay_counted(db: apsw.Connection) -> None:
    job_id = put_in(db, job.DEAD, NOW, kind="qa")
    before = told(db)
    assert before["ended", "qa", "dead test"] == (1, 0)
    assert jobs.prune(db, [job_id], NOW + 1) == 1
    assert told(db) == before


def test_pruning_counts_no_further_than_it_must(db: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "BATCH", 1)
    job_id = put_in(db, job.CANCELLED, NOW)
    for _ in range(5):
        put(db, NOW)
    jobs.prune(db, [job_id], NOW + 1)
    assert db.execute(counts.SQL["counted_to"]).get == 2
    assert told(db)["accepted", "default", "queued"] == (6, 0)


def test_hours_are_kept_apart_and_add_up(db: apsw.Connection) -> None:
    for at in (NOW, NOW + HOUR_MS, NOW + HOUR_MS + 1):
        put_in(db, job.DEAD, at)
    with Immediate(db):
        counts.fold(db)
    put_in(db, job.DEAD, NOW + 2 * HOUR_MS)  # not counted yet
    hour = NOW // HOUR_MS
    found = counts.hourly(db, NOW + HOUR_MS).counts
    dead = {key.hour: count.n for key, count in found.items() if key.what == "ended"}
    assert dead == {hour + 1: 2, hour + 2: 1}
    assert counts.ever(db).counts[Key(EVER, "ended", "default", "dead test")].n == 4


def test_what_is_too_old_goes_and_what_is_counted_for_ever_stays(db: apsw.Connection) -> None:
    put(db, NOW)
    with Immediate(db):
        counts.fold(db)
        counts.sample(db, Machine(8), NOW)
    later = NOW + (counts.HOURS_KEPT + 1) * HOUR_MS
    with Immediate(db):
        counts.sample(db, Machine(8), later)
    assert counts.hourly(db, 0).counts == {}
    assert told(db)["accepted", "default", "queued"] == (1, 0)
    assert [row["at"] for row in counts.samples(db, 0)] == [later]


def test_a_sample_a_minute_tells_of_the_queue_and_the_machine(db: apsw.Connection) -> None:
    put(db, NOW - 5_000)
    put(db, NOW - 90_000, kind="qa")
    for state in (job.SCHEDULED, job.HELD, job.RUNNING, job.STARTING, job.WAITING, job.UNKNOWN, job.DEAD):
        put_in(db, state, NOW - 1)
    machine = Machine(8, 130, 550, 4_000, 512, 0, 9_000)
    with Immediate(db):
        counts.sample(db, Machine(1), NOW)
        counts.sample(db, machine, NOW + 1)
        counts.sample(db, machine, NOW + MINUTE_MS)
    first, second = counts.samples(db, NOW)
    queue = {"queued": 2, "scheduled": 1, "held": 1, "running": 2, "waiting": 1, "unknown": 1}
    assert first == {"at": NOW + 1, **queue, "oldest_age_ms": 90_001, **machine._asdict()}
    assert second["at"] == NOW + MINUTE_MS


def test_a_sample_of_an_empty_queue(db: apsw.Connection) -> None:
    with Immediate(db):
        counts.sample(db, Machine(8), NOW)
    (row,) = counts.samples(db, 0)
    assert (row["queued"], row["unknown"], row["oldest_age_ms"], row["procs"]) == (0, 0, None, None)


def test_a_deferral_is_told_when_it_is_counted(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    (head,), _ = lanes.heads(db)
    wait = Wait(head, "uid_procs", 600, 550)
    assert lanes.note_wait(db, wait, None, 60_000, NOW)
    _, waits = lanes.heads(db)
    assert not lanes.note_wait(db, wait, waits[head.lane], 60_000, NOW + 1_000)
    assert lanes.note_wait(db, wait, waits[head.lane], 60_000, NOW + 60_000)
    assert isinstance(head, Head)
    assert lanes.park(db, Park(head, "exclusive:me"), 60_000, NOW)
    assert job_id == head.job_id


def test_deferrals_do_not_keep_the_names_of_exclusive_work(db: apsw.Connection) -> None:
    counts.note_deferrals(db, {("qa", "exclusive:a"): 1, ("qa", "exclusive:b"): 2}, NOW)
    counts.note_deferrals(db, {("qa", "resource:browser"): 3}, NOW)
    found = told(db)
    assert found["deferred", "qa", "exclusive"] == (3, 0)
    assert found["deferred", "qa", "resource:browser"] == (3, 0)


def test_what_an_attempt_spent_is_told_by_budget(db: apsw.Connection) -> None:
    for budget, amount in (("tokens", 5), ("tokens", 7), ("usd", 1)):
        db.execute(
            "INSERT INTO spends (budget, tenant, token, at, amount) VALUES (?, 't', 9, ?, ?)",
            (budget, NOW, amount),
        )
    job_id = put(db, NOW, kind="qa")
    child = put(db, NOW, kind="other", root_id=job_id, parent_id=job_id)
    counts.note_spends(db, child, 9, NOW)
    counts.note_spends(db, child, 10, NOW)
    found = {key: count for key, count in told(db).items() if key[0] == "spent"}
    assert found == {("spent", "qa", "tokens"): (1, 12), ("spent", "qa", "usd"): (1, 1)}


def test_what_is_spent_below_a_job_that_was_pruned_is_told_under_its_own_kind(db: apsw.Connection) -> None:
    db.execute(
        "INSERT INTO spends (budget, tenant, token, at, amount) VALUES ('tokens', 't', 9, ?, 5)", (NOW,)
    )
    child = put(db, NOW, kind="other", root_id=999, parent_id=999)
    counts.note_spends(db, child, 9, NOW)
    assert told(db)[("spent", "other", "tokens")] == (1, 5)
