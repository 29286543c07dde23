"""The store refuses what the table of transitions does not have, and keeps its books on every move."""

from __future__ import annotations

import itertools

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clawq import states as job
from clawq.store.connection import build_schema
from tests.rows import check_books, put


def memory() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute("PRAGMA foreign_keys=ON")
    build_schema(db)
    return db


def move(db: apsw.Connection, job_id: int, state: str, now: int = 2_000_000) -> None:
    """The one UPDATE that satisfies every CHECK of the target state."""
    db.execute(
        "UPDATE jobs SET state = :state, reason = 'test', changed_at = :now, parked = NULL,"
        " token = iif(:state IN ('starting', 'running', 'waiting'), 7, NULL),"
        " ended_at = iif(:state IN ('succeeded', 'dead', 'expired', 'cancelled'), :now, NULL) WHERE id = :id",
        {"state": state, "now": now, "id": job_id},
    )


PATHS = {
    job.SCHEDULED: [],
    job.QUEUED: [],
    job.HELD: [],
    job.STARTING: [job.STARTING],
    job.RUNNING: [job.STARTING, job.RUNNING],
    job.WAITING: [job.STARTING, job.RUNNING, job.WAITING],
    job.UNKNOWN: [job.STARTING, job.RUNNING, job.UNKNOWN],
    job.SUCCEEDED: [job.STARTING, job.RUNNING, job.SUCCEEDED],
    job.DEAD: [job.STARTING, job.RUNNING, job.DEAD],
    job.EXPIRED: [job.EXPIRED],
    job.CANCELLED: [job.CANCELLED],
}


@pytest.mark.parametrize(("start", "end"), list(itertools.product(job.STATES, job.STATES)))
def test_every_pair_of_states(start: str, end: str) -> None:
    db = memory()
    first = start if start in job.PENDING else job.QUEUED
    job_id = put(db, state=first)
    for step in PATHS[start]:
        move(db, job_id, step)
    if end in job.TRANSITIONS[start] or end == start:
        move(db, job_id, end)
        assert db.execute("SELECT state FROM jobs").get == end
    else:
        with pytest.raises(apsw.ConstraintError, match="illegal transition"):
            move(db, job_id, end)
        assert db.execute("SELECT state FROM jobs").get == start
    check_books(db)


@pytest.mark.parametrize("state", [each for each in job.STATES if each not in job.PENDING])
def test_no_job_begins_anywhere_else(state: str) -> None:
    token = 7 if state in job.ACTIVE else None
    ended_at = 1 if state in job.ENDED else None
    with pytest.raises(apsw.ConstraintError, match="illegal transition"):
        put(memory(), state=state, token=token, ended_at=ended_at)


@pytest.mark.parametrize(
    "columns",
    [
        {"token": 7},
        {"ended_at": 5},
        {"parked": "exclusive:x", "state": "held"},
        {"band": 4},
        {"state": "lost"},
        {"payload": "{"},
        {"dedupe_scope": "active"},
    ],
)
def test_rows_that_contradict_themselves_are_refused(columns: dict[str, object]) -> None:
    with pytest.raises(apsw.ConstraintError):
        put(memory(), **columns)


def test_every_move_is_an_event_with_its_reason() -> None:
    db = memory()
    job_id = put(db, now=1_000)
    move(db, job_id, job.STARTING, now=2_000)
    events = db.execute("SELECT at, from_state, to_state, reason FROM events").fetchall()
    assert events == [(1_000, "new", "queued", "enqueued"), (2_000, "queued", "starting", "test")]


def test_an_active_key_is_free_when_its_job_ends_and_an_ever_key_is_not() -> None:
    db = memory()
    for scope in ("active", "ever"):
        job_id = put(db, dedupe_key=scope, dedupe_scope=scope)
        db.execute(
            "INSERT INTO dedupe VALUES ('default', 'default', ?, ?, ? = 'active')", (scope, job_id, scope)
        )
        move(db, job_id, job.STARTING)
        move(db, job_id, job.RUNNING)
        move(db, job_id, job.UNKNOWN)
        assert db.execute("SELECT count(*) FROM dedupe WHERE key = ?", (scope,)).get == 1
        move(db, job_id, job.DEAD)
    assert db.execute("SELECT key FROM dedupe").get == "ever"


class Exclusive(RuleBasedStateMachine):
    """One exclusive name in two lanes: whenever it is free, the best of each lane can be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.db = memory()
        self.now = 1_000_000

    def pick(self, condition: str, draw: int) -> int | None:
        ids = [job_id for (job_id,) in self.db.execute(f"SELECT id FROM jobs WHERE {condition} ORDER BY id")]
        return ids[draw % len(ids)] if ids else None

    @rule(kind=st.sampled_from("ab"), priority=st.integers(0, 3))
    def enqueue(self, kind: str, priority: int) -> None:
        self.now += 1
        taken = self.db.execute(
            "SELECT 1 FROM jobs WHERE exclusive = 'x' AND state IN ('starting', 'running', 'waiting')"
        ).get
        put(
            self.db,
            self.now,
            kind=kind,
            priority=priority,
            exclusive="x",
            parked="exclusive:x" if taken else None,
        )

    @rule()
    def start(self) -> None:
        head = self.pick("state = 'queued' AND parked IS NULL", 0)
        if head is not None and not self.holders():
            move(self.db, head, job.STARTING)
            move(self.db, head, job.RUNNING)
            # The pass parks what it meets at the heads of the lanes.
            self.db.execute(
                "UPDATE jobs SET parked = 'exclusive:x' WHERE state = 'queued' AND parked IS NULL"
            )

    @rule(state=st.sampled_from([job.SUCCEEDED, job.DEAD, job.UNKNOWN, job.SCHEDULED, job.QUEUED]))
    def end(self, state: str) -> None:
        running = self.pick("state = 'running'", 0)
        if running is not None:
            move(self.db, running, state)

    @rule(draw=st.integers(0, 100))
    def cancel(self, draw: int) -> None:
        queued = self.pick("state = 'queued'", draw)
        if queued is not None:
            move(self.db, queued, job.CANCELLED)

    def holders(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM jobs WHERE state IN ('starting', 'running')").get)

    @invariant()
    def a_free_name_has_a_candidate_in_every_lane(self) -> None:
        assert self.holders() <= 1
        if self.holders():
            return
        stuck = self.db.execute(
            "SELECT kind FROM jobs WHERE state = 'queued' GROUP BY kind HAVING sum(parked IS NULL) = 0"
        ).fetchall()
        assert stuck == []

    @invariant()
    def books(self) -> None:
        check_books(self.db)


TestExclusive = Exclusive.TestCase
TestExclusive.settings = settings(max_examples=40, stateful_step_count=30)
