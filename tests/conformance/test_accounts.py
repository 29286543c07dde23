"""What owners see of budgets, of resources at rest, and of what observing let pass."""

from __future__ import annotations

import copy
import json

import apsw
import pytest

from clawq import states as job
from clawq.settings import Settings
from clawq.store import accounts, ledger, sqlfile, told, views
from tests.moves import put_in

NOW = 1_060_000

BODY = json.loads(sqlfile.read("default_config.json"))
WITH_BUDGET = copy.deepcopy(BODY) | {
    "budgets": {"tokens": {"limit": 100, "per_ms": 60_000, "per_tenant": 60}}
}
SETTINGS = Settings(WITH_BUDGET)


def spend(db: apsw.Connection, amount: int, at: int, tenant: str) -> None:
    ledger.reserve(db, tenant, at, [("tokens", amount)], at)


EMPTY = {
    "tokens": {
        "used": 0,
        "limit": 100,
        "per_s": 60,
        "tenant_limit": 60,
        "per_tenant": {},
        "frees_in_s": None,
    }
}


class TestBudgets:
    def test_nothing_spent_looks_the_same_with_and_without_a_database(self, db: apsw.Connection) -> None:
        assert accounts.budgets(db, SETTINGS, NOW) == EMPTY
        assert accounts.budgets(None, SETTINGS, NOW) == EMPTY

    def test_what_the_window_holds_by_tenant_and_when_it_frees(self, db: apsw.Connection) -> None:
        spend(db, 99, NOW - 60_000, "gone")
        spend(db, 10, NOW - 45_500, "b")
        spend(db, 20, NOW - 1_000, "a")
        spend(db, 5, NOW - 2_000, "b")
        assert accounts.budgets(db, SETTINGS, NOW)["tokens"] == {
            "used": 35,
            "limit": 100,
            "per_s": 60,
            "tenant_limit": 60,
            "per_tenant": {"a": 20, "b": 15},
            "frees_in_s": 14.5,
        }

    @pytest.mark.parametrize(
        ("amount", "tenant", "room"),
        [
            (30, "new", None),
            (31, "new", (70, 100, NOW + 10_000)),
            (51, "new", (70, 100, NOW + 40_000)),
            (11, "a", (50, 60, NOW + 40_000)),
            (60, "a", (70, 100, NOW + 40_000)),
            (101, "new", (70, 100, None)),
        ],
    )
    def test_room_comes_by_itself_when_enough_has_left_all_windows(
        self, db: apsw.Connection, amount: int, tenant: str, room: object
    ) -> None:
        spend(db, 20, NOW - 50_000, "b")
        spend(db, 50, NOW - 20_000, "a")
        assert accounts.room(db, SETTINGS, "tokens", tenant, amount, NOW) == room


class TestCooldowns:
    def seen(self, db: apsw.Connection, at: int) -> tuple[object, object]:
        row = views.status(db, SETTINGS, at)["resources"]["browser"]
        return row["cooldown"], row["cooldown_s"]

    def test_status_follows_a_rest_from_its_beginning_to_its_end(self, db: apsw.Connection) -> None:
        assert self.seen(db, NOW) == (None, None)
        told.cool(db, "browser", NOW + 5_000, 2_000, NOW)
        assert self.seen(db, NOW) == ("resting", 5.0)
        assert self.seen(db, NOW + 5_000) == ("probing", 0.0)
        probe = put_in(db, job.RUNNING, NOW + 5_000, needs="browser")
        ledger.note_start(db, ["browser"], ["browser"], 1_000 + probe)
        assert self.seen(db, NOW + 6_000) == ("probing", 0.0)
        found = accounts.cooldown(db, "browser", NOW + 6_000)
        assert found is not None
        assert found["job_id"] == probe
        ledger.note_end(db, 1_000 + probe, True, NOW + 7_000)
        assert self.seen(db, NOW + 7_000) == ("returning", 0.0)
        told.warm(db, "browser")
        assert self.seen(db, NOW + 7_000) == (None, None)
        assert accounts.cooldown(db, "browser", NOW) is None

    def test_a_resource_that_left_the_configuration_can_still_rest(self, db: apsw.Connection) -> None:
        told.cool(db, "gone", NOW + 5_000, 2_000, NOW)
        assert views.status(db, SETTINGS, NOW)["resources"]["gone"] == {
            "in_use": 0,
            "limit": 0,
            "cooldown_s": 5.0,
            "cooldown": "resting",
        }


class TestObserved:
    def test_both_stages_the_most_first_and_since_when(self, db: apsw.Connection) -> None:
        assert accounts.observed(db) == accounts.observed(None)
        ledger.keep_observing(db, True, NOW)
        for count, stage, reason in (
            (1, "start", "uid_procs"),
            (3, "start", "max_running"),
            (2, "enqueue", "q"),
        ):
            for n in range(count):
                ledger.observe(db, stage, reason, "k", "t", NOW + n)
        found = accounts.observed(db)
        assert found["since"] == NOW
        assert [(row["reason"], row["count"]) for row in found["start"]] == [
            ("max_running", 3),
            ("uid_procs", 1),
        ]
        assert found["enqueue"] == [
            {"reason": "q", "kind": "k", "tenant": "t", "count": 2, "first_at": NOW, "last_at": NOW + 1}
        ]
        ledger.keep_observing(db, False, NOW)
        assert accounts.observed(db) == found | {"since": None}


@pytest.mark.parametrize(
    ("level", "word"), [(None, None), (0, "normal"), (1.0, "warn"), (2, "critical"), (7, "7")]
)
def test_pressure_in_words(level: float | None, word: str | None) -> None:
    assert accounts.pressure(level) == word
