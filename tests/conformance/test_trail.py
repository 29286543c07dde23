"""Moves and refusals in order: nothing is missed or told twice by whoever remembers how far it has read."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawq import states as job
from clawq.store import jobs, refusals, trail
from clawq.store.trail import Mark
from tests.desk import Desk
from tests.moves import put_in
from tests.rows import put

NOW = 1_900_000_000_000
MOMENT = st.integers(0, 40)


def all_of(db: apsw.Connection, mark: Mark = Mark()) -> list[dict[str, Any]]:  # noqa: B008 (it is frozen)
    return list(trail.read(db, mark, trail.here(db)))


def test_moves_and_refusals_come_by_time(db: apsw.Connection) -> None:
    job_id = put_in(db, job.CANCELLED, NOW, kind="qa", tenant="acme")
    refusals.count_refusals(db, {("queue_full", "qa", "acme"): 1}, NOW + 5)
    refusals.count_refusals(db, {("held_full", "qa", "acme"): 3}, NOW + 7)
    put(db, NOW + 6)
    same = {"kind": "qa", "tenant": "acme"}
    assert all_of(db) == [
        {"at": NOW, "job_id": job_id, **same, "from": "new", "to": "queued", "reason": "enqueued"},
        {"at": NOW, "job_id": job_id, **same, "from": "queued", "to": "cancelled", "reason": "test"},
        {"at": NOW + 5, "job_id": None, **same, "from": "new", "to": "rejected", "reason": "queue_full"},
        {
            "at": NOW + 6,
            "job_id": job_id + 1,
            "kind": "default",
            "tenant": "default",
            "from": "new",
            "to": "queued",
            "reason": "enqueued",
        },
        {
            "at": NOW + 7,
            "job_id": None,
            **same,
            "from": "new",
            "to": "rejected",
            "reason": "held_full",
            "count": 3,
        },
    ]


def test_more_than_a_page(db: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "PAGE", 2)
    for at in range(5):
        put(db, NOW + at)
        refusals.count_refusals(db, {("queue_full", "qa", "acme"): 1}, NOW + at)
    assert [row["at"] for row in all_of(db)] == [NOW + at for at in range(5) for _ in range(2)]


def test_numbers_only_grow_when_jobs_are_pruned(db: apsw.Connection) -> None:
    job_id = put_in(db, job.CANCELLED, NOW)
    mark = trail.here(db)
    assert jobs.prune(db, [job_id], NOW + 1) == 1
    assert all_of(db) == []
    new = put(db, NOW + 9)
    assert [row["job_id"] for row in all_of(db, mark)] == [new]


def test_refusals_are_forgotten_from_the_oldest_on(
    db: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "REMEMBERED", 3)
    for at in range(5):
        refusals.count_refusals(db, {("queue_full", "qa", "acme"): 1}, NOW + at)
    assert [row["at"] - NOW for row in all_of(db)] == [2, 3, 4]
    assert trail.here(db).refusal == 5


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 40), max_size=30).map(sorted), st.sets(st.integers(1, 30)), st.integers(-1, 41)
)
def test_a_moment_is_found_by_halving(moments: list[int], pruned: set[int], wanted: int) -> None:
    db = Desk.in_memory().db
    for at in moments:
        put(db, NOW + at)
    for job_id in pruned:
        db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
    left = [at for number, at in enumerate(moments, 1) if number not in pruned]
    found = [row["at"] - NOW for row in all_of(db, trail.since(db, NOW + wanted))]
    assert found == left[bisect_left(left, wanted) :]
    db.close()


@pytest.mark.parametrize("most", [0, 1, 3, 99])
def test_back_is_before_the_latest(db: apsw.Connection, most: int) -> None:
    for at in range(5):
        put(db, NOW + at)
    found = [row["at"] - NOW for row in all_of(db, trail.back(db, most))]
    assert found == list(range(5))[5 - min(most, 5) :]
