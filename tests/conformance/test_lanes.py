"""What a pass of admission reads and writes: heads, reasons, parked jobs, turns."""

from __future__ import annotations

import apsw

from clawq import states as job
from clawq.rules import classify
from clawq.rules.admission import Park, Wait
from clawq.rules.facts import Head
from clawq.rules.fairness import Clocks, Turns
from clawq.rules.retry import Decision
from clawq.store import attempts, lanes
from tests.claims import NOW, claim, finish
from tests.rows import put

MINUTE = 60_000


def note(db: apsw.Connection, reason: str, now: int, **columns: int) -> Head:
    """A pass in which the only lane's head is refused."""
    (head,), told = lanes.heads(db)
    lanes.note_wait(db, Wait(head, reason, 600, 550, **columns), told.get(head.lane), MINUTE, now)
    return head


def row(db: apsw.Connection, *columns: str) -> tuple[object, ...]:
    return tuple(db.execute(f"SELECT {', '.join(columns)} FROM lanes").fetchall()[0])


def test_heads_are_the_best_of_each_lane(db: apsw.Connection) -> None:
    put(db, NOW)
    urgent = put(db, NOW + 10, priority=1)
    other = put(db, NOW, needs="browser")
    put(db, NOW, state="held")
    put(db, NOW, state="scheduled", kind="later")
    put(db, NOW, kind="parked", exclusive="x", parked="exclusive:x")
    assert sorted(head.job_id for head in lanes.heads(db)[0]) == [urgent, other]


def test_following_walks_a_lane_to_its_end(db: apsw.Connection) -> None:
    ids = [put(db, NOW) for _ in range(3)]
    (head,), _ = lanes.heads(db)
    seen = [head.job_id]
    while behind := lanes.following(db, head):
        (head,) = behind
        seen.append(head.job_id)
    assert seen == ids


def test_following_shares_what_the_lane_remembers(db: apsw.Connection) -> None:
    ids = [put(db, NOW) for _ in range(4)]
    (head,), _ = lanes.heads(db)
    behind = lanes.following(db, head._replace(last_start_at=5, gated_at=6, short_since=7), 2)
    assert [each.job_id for each in behind] == ids[1:3]
    assert {(each.last_start_at, each.gated_at, each.short_since) for each in behind} == {(5, 6, None)}


def test_what_runs_is_read_with_its_latest_end_and_what_it_uses(db: apsw.Connection) -> None:
    claim(db, put(db, NOW, deadline_at=NOW + 900), 77, timeout_ms=1_000)
    claim(db, put(db, NOW), 78, timeout_ms=1_000)
    claim(db, put(db, NOW), 79)
    ends = {each.job_id: (each.ends_by, each.procs, each.mb) for each in lanes.running(db, {78: (3, 40)})}
    assert ends == {1: (NOW + 900, None, None), 2: (NOW + 1_000, 3, 40), 3: (None, None, None)}


def test_a_reason_is_counted_once_an_interval_and_keeps_its_since(db: apsw.Connection) -> None:
    put(db, NOW)
    for minute in range(3):
        for second in range(0, 60, 7):
            note(db, "uid_procs", NOW + minute * MINUTE + second * 1_000)
    assert db.execute("SELECT reason, count, first_at FROM deferrals").fetchall() == [("uid_procs", 3, NOW)]
    assert row(db, "reason", "measured", "limit_value", "since") == ("uid_procs", 600, 550, NOW)


def test_a_closed_gate_costs_its_lanes_no_writes_between_two_counts(db: apsw.Connection) -> None:
    put(db, NOW)
    for reason in ("uid_procs", "resource:browser"):
        note(db, reason, NOW)
        before = db.total_changes()
        note(db, reason, NOW + MINUTE - 1)
        assert db.total_changes() == before


def test_a_gate_resets_the_ageing_and_a_missing_slot_does_not(db: apsw.Connection) -> None:
    put(db, NOW)
    note(db, "resource:browser", NOW + 1)
    assert row(db, "gated_at") == (None,)
    note(db, "uid_procs", NOW + 2)
    note(db, "max_running", NOW + 3)
    assert row(db, "gated_at") == (NOW + 2,)


def test_a_head_waits_for_slots_since_its_first_such_refusal_without_a_break(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    note(db, "resource:a", NOW + 1)
    note(db, "resource:b", NOW + 2)
    note(db, "resource:b", NOW + 2, promised_at=NOW + 99)
    note(db, "max_running", NOW + 3)
    assert row(db, "short_job", "short_since", "promised_at") == (job_id, NOW + 1, NOW + 99)
    assert lanes.heads(db)[0][0].short_since == NOW + 1
    note(db, "cooldown:a", NOW + 4)
    assert row(db, "short_job", "short_since", "promised_at") == (None, None, None)
    note(db, "resource:a", NOW + 5)
    assert row(db, "short_since") == (NOW + 5,)


def test_the_next_head_starts_its_own_wait_for_slots(db: apsw.Connection) -> None:
    put(db, NOW)
    second = put(db, NOW + 1)
    note(db, "resource:a", NOW + 2)
    claim(db, 1)
    (head,), _ = lanes.heads(db)
    assert (head.job_id, head.short_since) == (second, None)


def test_a_start_clears_the_reason_and_is_remembered_while_the_lane_lives(db: apsw.Connection) -> None:
    put(db, NOW)
    put(db, NOW + 1)
    head = note(db, "uid_procs", NOW + 2)
    claim(db, head.job_id)
    lanes.note_start(db, head, NOW + 3)
    (head,), told = lanes.heads(db)
    assert (head.last_start_at, head.gated_at, told) == (NOW + 3, NOW + 2, {})
    claim(db, head.job_id, 78)
    assert db.execute("SELECT count(*) FROM lanes").get == 0


def test_the_last_of_a_lane_starts_and_the_waits_of_its_like_begin_anew(db: apsw.Connection) -> None:
    last, like, band, needs = (
        put(db, NOW, **columns)
        for columns in ({}, {"kind": "like"}, {"band": 3}, {"kind": "like", "needs": "browser"})
    )
    heads = {head.job_id: head for head in lanes.heads(db)[0]}
    for head in heads.values():
        lanes.note_wait(db, Wait(head, "max_running"), None, MINUTE, NOW)
    claim(db, last)
    lanes.note_start(db, heads[last], NOW + 3)
    assert {head.job_id: head.last_start_at for head in lanes.heads(db)[0]} == {
        like: NOW + 3,
        band: None,
        needs: None,
    }


def test_a_parked_job_leaves_its_lane_and_comes_back(db: apsw.Connection) -> None:
    holder, waiter = put(db, NOW, exclusive="x"), put(db, NOW, exclusive="x")
    claim(db, holder)
    (head,), _ = lanes.heads(db)
    lanes.park(db, Park(head, "exclusive:x"), MINUTE, NOW)
    assert lanes.heads(db)[0] == []
    assert db.execute("SELECT reason, count FROM deferrals").fetchall() == [("exclusive:x", 1)]
    finish(db, holder)
    assert [each.job_id for each in lanes.heads(db)[0]] == [waiter]


def test_jobs_beyond_their_workflows_limit_come_back_one_for_one(db: apsw.Connection) -> None:
    root = put(db, NOW, kind="root")
    claim(db, root)
    children = [put(db, NOW, root_id=root, parent_id=root) for _ in range(3)]
    for _ in children:
        (head,), _ = lanes.heads(db)
        lanes.park(db, Park(head, "workflow_limit"), MINUTE, NOW)
    finish(db, root)
    assert [each.job_id for each in lanes.heads(db)[0]] == children[:1]


def test_a_root_that_its_own_children_keep_from_running_again_comes_back_too(db: apsw.Connection) -> None:
    root = put(db, NOW, kind="root")
    child = put(db, NOW, root_id=root, parent_id=root)
    claim(db, child)
    (head,), _ = lanes.heads(db)
    lanes.park(db, Park(head, "workflow_limit"), MINUTE, NOW)
    finish(db, child)
    assert [each.job_id for each in lanes.heads(db)[0]] == [root]


def test_idle_means_nothing_that_could_still_start(db: apsw.Connection) -> None:
    assert lanes.is_idle(db, [])
    put(db, NOW, state="held")
    assert lanes.is_idle(db, [])
    put(db, NOW, needs="browser")
    assert not lanes.is_idle(db, [])
    assert lanes.is_idle(db, [("resource", "browser")])
    claim(db, put(db, NOW, kind="running"))
    assert not lanes.is_idle(db, [("all", "")])


def test_clocks_survive_and_those_that_say_nothing_are_forgotten(db: apsw.Connection) -> None:
    turns = Turns(lanes.clocks(db))
    for _ in range(3):
        turns.charge((2, "a"), 1)
    turns.charge((2, "b"), 2)
    lanes.keep_turns(db, turns)
    assert lanes.clocks(db) == Clocks({(2, "a"): 3.0, (2, "b"): 2.5}, {2: 2.0})
    later = Turns(lanes.clocks(db))
    later.charge((2, "a"), 1)
    lanes.keep_turns(db, later)
    assert lanes.clocks(db) == Clocks({(2, "a"): 4.0}, {2: 3.0})


def test_a_void_claim_is_no_end_of_the_wait(db: apsw.Connection) -> None:
    job_id = put(db, NOW)
    claim(db, job_id)
    never = Decision(job.QUEUED, "never_started")
    attempts.finish(db, job_id, 77, classify.NEVER_STARTED, never, "", None, NOW)
    assert [each.job_id for each in lanes.heads(db)[0]] == [job_id]
