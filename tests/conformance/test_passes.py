"""Passes of admission over a real database: who starts, who stands aside, and what the others are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from clawq.host import load
from clawq.paths import Home
from clawq.settings import Settings
from clawq.store import jobs, sqlfile, why
from clawq.supervisor.admit import RAMP_STEP_MS, admit
from tests.claims import NOW, finish, passing
from tests.rows import put


class Queue:
    """A supervisor's passes without its loop: nothing is spawned, and the clock is ours."""

    def __init__(
        self, home: Home, db: apsw.Connection, limits: dict[str, int], kinds: dict[str, Any]
    ) -> None:
        body = json.loads(sqlfile.read("default_config.json"))
        body["limits"] |= limits
        body["kinds"] |= kinds
        self.db = db
        self.settings = Settings(body)
        self.state = passing(home, db, self.settings)
        self.state.sample = load.HostSample(0, None, None, None, None)
        self.tokens: dict[int, int] = {}

    def turn(self, now: int = NOW) -> list[int]:
        """Pass after pass until nothing is left to do at once; who started."""
        started: list[int] = []
        for _ in range(20):
            done = admit(self.state, self.settings, 0, now)
            self.tokens |= {each.claim.job_id: each.token for each in done.tickets}
            started += [each.claim.job_id for each in done.tickets]
            if done.changes_at is None or done.changes_at > now:
                return started
        raise AssertionError("passes go on for ever")

    def end(self, job_id: int, now: int = NOW) -> None:
        finish(self.db, job_id, self.tokens[job_id], now)

    def parked(self) -> dict[int, str]:
        return dict(self.db.execute("SELECT id, parked FROM jobs WHERE parked IS NOT NULL").fetchall())

    def why(self, job_id: int, now: int = NOW) -> list[str]:
        return [each["reason"] for each in why.why(self.db, self.settings, job_id, now, "run")["blocked_by"]]


Open = Callable[..., Queue]


@pytest.fixture
def queue(home: Home, db: apsw.Connection) -> Open:
    return lambda kinds=None, **limits: Queue(home, db, limits, kinds or {})


# ---------------------------------------------------------------- a name and a workflow at once


def test_who_waits_for_its_workflow_does_not_stand_before_others_of_its_name(
    db: apsw.Connection, queue: Open
) -> None:
    root = put(db, kind="root")
    holder = put(db, exclusive="x")
    sibling = put(db, exclusive="x", root_id=root)
    alone = put(db, exclusive="x")
    passes = queue(max_running_per_workflow=1)
    assert passes.turn() == [root, holder]
    assert passes.parked() == {sibling: "exclusive:x", alone: "exclusive:x"}
    passes.end(holder)
    assert passes.turn() == [alone]
    assert passes.parked() == {sibling: "workflow_limit"}
    # Its workflow has room, and now the name is taken again.
    passes.end(root)
    assert passes.turn() == []
    passes.end(alone)
    assert passes.turn() == [sibling]


def test_who_waits_for_its_name_does_not_stand_before_others_of_its_workflow(
    db: apsw.Connection, queue: Open
) -> None:
    root = put(db, kind="root")
    named = put(db, exclusive="x", root_id=root)
    child = put(db, root_id=root)
    passes = queue(max_running_per_workflow=1)
    assert passes.turn() == [root]
    assert passes.parked() == {named: "workflow_limit", child: "workflow_limit"}
    holder = put(db, exclusive="x", kind="other")
    assert passes.turn() == [holder]
    passes.end(root)
    assert passes.turn() == [child]
    assert passes.parked() == {named: "exclusive:x"}


def test_who_waits_for_a_slot_does_not_stand_before_others_of_its_workflow(
    db: apsw.Connection, queue: Open
) -> None:
    root = put(db, kind="root")
    holder = put(db, kind="holder", needs="local_model")
    needy = put(db, root_id=root, needs="local_model")
    other = put(db, root_id=root, needs="browser")
    passes = queue(max_running_per_workflow=1)
    assert passes.turn() == [root, holder]
    assert passes.parked() == {needy: "workflow_limit", other: "workflow_limit"}
    passes.end(root)
    assert passes.turn() == [other]
    assert passes.why(needy) == ["resource:local_model"]


@pytest.mark.parametrize("last", ["jobs_unpark", "jobs_unpark_root"])
def test_whichever_trigger_fires_first_the_same_jobs_come_back(
    db: apsw.Connection, queue: Open, last: str
) -> None:
    """SQLite promises no order."""
    text = str(db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (last,)).get)
    db.execute(f"DROP TRIGGER {last}; {text}")
    root = put(db, kind="root")
    holder = put(db, exclusive="x", root_id=root)
    passes = queue(max_running_per_workflow=2)
    assert passes.turn() == [root, holder]
    put(db, root_id=root, exclusive="x", parked="workflow_limit")
    second_of_workflow = put(db, root_id=root, parked="workflow_limit")
    put(db, exclusive="x", parked="exclusive:x")
    second_of_name = put(db, exclusive="x", parked="exclusive:x")
    passes.end(holder)
    assert passes.parked() == {second_of_workflow: "workflow_limit", second_of_name: "exclusive:x"}


def test_a_parked_job_that_goes_to_another_band_is_asked_there(db: apsw.Connection, queue: Open) -> None:
    holder = put(db, exclusive="x")
    first, second = (put(db, exclusive="x", needs="browser") for _ in range(2))
    passes = queue()
    assert passes.turn() == [holder]
    passes.end(holder)
    db.execute("INSERT INTO pauses VALUES ('band', '2', 0)")
    assert passes.turn() == []
    assert passes.why(first) == ["paused"]
    jobs.edit(db, second, NOW, band="critical")
    assert passes.turn() == [second]


def test_a_higher_limit_on_workflows_brings_back_all_that_the_lower_one_parked(
    db: apsw.Connection, queue: Open
) -> None:
    root = put(db, kind="root")
    children = [put(db, root_id=root) for _ in range(3)]
    passes = queue(max_running_per_workflow=1)
    assert passes.turn() == [root]
    assert list(passes.parked()) == children
    passes = queue(max_running_per_workflow=3)
    assert passes.turn() == children[:2]
    assert list(passes.parked()) == children[2:]


def test_an_end_costs_the_same_however_many_are_parked(db: apsw.Connection, queue: Open) -> None:
    def steps(parked: int) -> int:
        """Of SQLite's machine, triggers too."""
        db.execute("BEGIN")
        root = put(db, kind="root")
        holder = put(db, exclusive="x", root_id=root)
        passes = queue(max_running_per_workflow=2)
        assert passes.turn() == [root, holder]
        for n in range(parked):
            put(db, exclusive="x", root_id=root if n % 2 else None, parked="exclusive:x")
            put(db, exclusive="x", root_id=root, parked="workflow_limit")
        count = 0

        def step() -> bool:
            nonlocal count
            count += 1
            return False

        db.set_progress_handler(step, 1)
        passes.end(holder)
        db.set_progress_handler(None)
        assert len(passes.parked()) == 2 * parked - 2
        db.execute("ROLLBACK")
        return count

    assert steps(300) <= steps(3) * 1.2


# ---------------------------------------------------------------- what a lane's jobs are told


def test_a_reason_that_a_start_has_cleared_is_written_again(db: apsw.Connection, queue: Open) -> None:
    first, second, third = (put(db) for _ in range(3))
    passes = queue()
    passes.state.ramp_since = NOW
    assert passes.turn() == [first]
    passes.state.ramp_started = 1
    assert passes.why(second) == passes.why(third) == ["ramp_up"]
    assert passes.turn(NOW + RAMP_STEP_MS) == [second]
    assert passes.why(third) == ["ramp_up"]
    told = db.execute("SELECT job_id, reason, last_at FROM deferrals ORDER BY job_id").fetchall()
    assert told == [(second, "ramp_up", NOW), (third, "ramp_up", NOW + RAMP_STEP_MS)]
