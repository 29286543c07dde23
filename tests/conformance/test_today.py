"""What `status` says of today, whether or not the supervisor has counted it yet."""

from __future__ import annotations

import pytest

from clawq.store import counts
from clawq.store.connection import Immediate
from clawq.store.today import today
from tests.desk import NOW, Desk
from tests.rows import put

MIDNIGHT = NOW - 6 * counts.HOUR_MS


@pytest.fixture
def desk() -> Desk:
    return Desk.in_memory()


def end(desk: Desk, state: str, kind: str = "mail", now: int = NOW) -> None:
    job_id = put(desk.db, now, kind=kind)
    desk.run(job_id)
    desk.move(job_id, state, now=now)


@pytest.mark.parametrize("folded", [False, True])
def test_ends_since_midnight_by_kind_the_most_first(desk: Desk, folded: bool) -> None:
    for state in ("succeeded", "succeeded", "dead"):
        end(desk, state)
    end(desk, "succeeded", "qa")
    end(desk, "succeeded", "qa", MIDNIGHT - counts.HOUR_MS)
    if folded:
        with Immediate(desk.db):
            counts.fold(desk.db)
        assert desk.db.execute("SELECT count(*) FROM counts WHERE what = 'ended'").get
        end(desk, "dead")
    ended, deferred = today(desk.db, MIDNIGHT)
    found = [(row["kind"], row["state"], row["count"]) for row in ended]
    dead = 2 if folded else 1
    assert sorted(found) == [("mail", "dead", dead), ("mail", "succeeded", 2), ("qa", "succeeded", 1)]
    assert found == sorted(found, key=lambda row: (-row[2], row[:2]))
    assert deferred == []


def test_what_was_put_off_by_reason(desk: Desk) -> None:
    with Immediate(desk.db):
        counts.note_deferrals(desk.db, {("mail", "uid_procs"): 30, ("qa", "uid_procs"): 8}, NOW)
        counts.note_deferrals(desk.db, {("mail", "max_running"): 2}, NOW)
        counts.note_deferrals(desk.db, {("mail", "paused"): 2}, MIDNIGHT - counts.HOUR_MS)
    assert today(desk.db, MIDNIGHT)[1] == [
        {"reason": "uid_procs", "count": 38},
        {"reason": "max_running", "count": 2},
    ]


def test_an_empty_queue() -> None:
    assert today(None, MIDNIGHT) == ([], [])
