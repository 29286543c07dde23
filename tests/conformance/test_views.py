"""What owners look at: the same figures as the rows, under the keys that --json promises."""

from __future__ import annotations

import random
from collections import Counter

import apsw
import pytest

from clawq import states as job
from clawq.errors import NoSuchJob
from clawq.paths import Home
from clawq.settings import Settings
from clawq.store import sqlfile, views
from clawq.store.connection import open_readonly
from tests.moves import put_in
from tests.rows import put, refuse

THEN = 1_000_000
NOW = 1_060_000

DEFAULTS = Settings.from_text(sqlfile.read("default_config.json"))


class TestStatus:
    def test_every_state_is_counted(self, db: apsw.Connection) -> None:
        for n, state in enumerate(job.STATES, 1):
            for _ in range(n):
                put_in(db, state)
        assert views.counts(db) == {state: n for n, state in enumerate(job.STATES, 1)}

    def test_an_empty_queue_has_the_same_shape_with_and_without_a_database(self, db: apsw.Connection) -> None:
        assert views.status(db, DEFAULTS, NOW) == views.status(None, DEFAULTS, NOW)

    def test_depth_names_the_oldest_of_each_tenant_band_and_kind(self, db: apsw.Connection) -> None:
        put(db, THEN + 5_000, tenant="b")
        put(db, THEN, tenant="b", needs="shell")
        put(db, THEN, tenant="a", band=0)
        put(db, THEN + 60_000, kind="k", exclusive="x", parked="exclusive:x")
        assert views.status(db, DEFAULTS, NOW)["depth"] == [
            {
                "tenant": "a",
                "band": "critical",
                "kind": "default",
                "queued": 1,
                "oldest_age_s": 60.0,
                "until": None,
            },
            {
                "tenant": "b",
                "band": "normal",
                "kind": "default",
                "queued": 2,
                "oldest_age_s": 60.0,
                "until": None,
            },
            {
                "tenant": "default",
                "band": "normal",
                "kind": "k",
                "queued": 1,
                "oldest_age_s": 0.0,
                "until": None,
            },
        ]

    def test_what_runs_and_what_it_holds(self, db: apsw.Connection) -> None:
        running = put_in(db, job.RUNNING, THEN, kind="k", tenant="t", needs="browser,shell")
        put_in(db, job.STARTING, THEN, needs="gone")
        found = views.status(db, DEFAULTS, NOW)
        row = found["running"][0]
        assert {
            key: row[key] for key in ("job_id", "kind", "tenant", "state", "attempt", "pid", "needs")
        } == {
            "job_id": running,
            "kind": "k",
            "tenant": "t",
            "state": "running",
            "attempt": 1,
            "pid": 4711,
            "needs": ["browser", "shell"],
        }
        assert (row["age_s"], row["lease_left_s"], row["beat_age_s"]) == (60.0, 60.0, 60.0)
        assert {name: (each["in_use"], each["limit"]) for name, each in found["resources"].items()} == {
            "browser": (1, 2),
            "local_model": (0, 1),
            "shell": (1, 4),
            "gone": (1, 0),
        }

    def test_waiting_on_adds_up_by_reason(self, db: apsw.Connection) -> None:
        for _ in range(3):
            put(db)
        for _ in range(2):
            put(db, kind="k")
        put(db, kind="free")
        refuse(db, "spawn_failed", clears_at=NOW + 30_000)
        refuse(db, "spawn_failed", kind="k", clears_at=NOW + 10_000)
        db.execute("INSERT INTO lanes (band, tenant, kind, needs) VALUES (2, 'default', 'free', '')")
        assert self.waiting_on(db) == [("spawn_failed", 5, 10)]

    def waiting_on(self, db: apsw.Connection) -> list[tuple[str, int, float | None]]:
        rows = views.status(db, DEFAULTS, NOW)["waiting_on"]
        return [(row["reason"], row["jobs"], row["retry_after_s"]) for row in rows]

    def test_a_reason_that_no_clock_clears_gives_no_time(self, db: apsw.Connection) -> None:
        put(db)
        refuse(db, "max_running", retry_at=NOW + 30_000)
        assert self.waiting_on(db) == [("max_running", 1, None)]

    def test_each_reason_names_a_job_to_ask_about(self, db: apsw.Connection) -> None:
        second, head = put(db, THEN + 1), put(db, THEN)
        parked = put(db, exclusive="x", parked="exclusive:x")
        child = put(db, root_id=5, parked="workflow_limit", kind="k")
        refuse(db, "never_fits")
        found = {row["reason"]: row["job_id"] for row in views.status(db, DEFAULTS, NOW)["waiting_on"]}
        assert found == {"never_fits": head, "exclusive:x": parked, "workflow_limit": child}
        assert second not in found.values()

    def test_a_parked_job_waits_for_its_name_and_not_for_its_lane(self, db: apsw.Connection) -> None:
        put_in(db, job.RUNNING, exclusive="x")
        put(db)
        for _ in range(2):
            put(db, exclusive="x", parked="exclusive:x")
        put(db, exclusive="y", parked="exclusive:y", kind="all-parked")
        refuse(db, "low_memory")
        refuse(db, "low_memory", kind="all-parked")
        assert self.waiting_on(db) == [
            ("exclusive:x", 2, None),
            ("exclusive:y", 1, None),
            ("low_memory", 1, None),
        ]

    def test_a_job_parked_by_its_workflow_does_not_wait_for_a_name(self, db: apsw.Connection) -> None:
        put(db)
        for name in (None, None, "x"):
            put(db, exclusive=name, root_id=7, parked="workflow_limit")
        refuse(db, "low_memory")
        assert self.waiting_on(db) == [("workflow_limit", 3, None), ("low_memory", 1, None)]

    def test_a_clock_set_back_shows_no_age_below_zero(self, db: apsw.Connection) -> None:
        put_in(db, job.RUNNING, NOW + 99_000)
        put(db, NOW + 99_000)
        found = views.status(db, DEFAULTS, NOW)
        assert found["running"][0]["age_s"] == 0
        assert found["depth"][0]["oldest_age_s"] == 0

    def test_pauses_and_refusals(self, db: apsw.Connection) -> None:
        db.execute("INSERT INTO pauses VALUES ('band', '3', 7), ('all', '', 5)")
        db.execute(
            "INSERT INTO refusals VALUES ('queue_full', 'k', 't', 4, 9), ('held_full', 'k', 't', 1, 11)"
        )
        found = views.status(db, DEFAULTS, NOW)
        assert [(row["scope"], row["name"]) for row in found["pauses"]] == [("all", ""), ("band", "bulk")]
        assert [row["reason"] for row in found["refused"]] == ["held_full", "queue_full"]

    def test_a_reader_sees_one_moment_and_leaves_nothing_open(self, home: Home, db: apsw.Connection) -> None:
        put(db)
        reader = open_readonly(home)
        assert reader is not None
        with views.Snapshot(reader):
            before = views.counts(reader)
            put(db)
            assert views.counts(reader) == before
        assert views.counts(reader)["queued"] == 2
        assert not reader.in_transaction
        reader.close()


class TestList:
    def ids(self, db: apsw.Connection, **filters: object) -> list[int]:
        return [row["id"] for row in views.job_list(db, DEFAULTS, **filters)]  # type: ignore[arg-type]

    def test_filters_agree_with_the_rows(self, db: apsw.Connection) -> None:
        dice = random.Random(7)
        rows = []
        for _ in range(200):
            state, kind, tenant = dice.choice(job.STATES), dice.choice("abc"), dice.choice("tu")
            rows.append((put_in(db, state, kind=kind, tenant=tenant), state, kind, tenant))
        for state in (None, *job.STATES):
            for kind in (None, "a", "nothing"):
                for tenant in (None, "u"):
                    wanted = {
                        id
                        for id, of, k, t in rows
                        if state in (None, of) and kind in (None, k) and tenant in (None, t)
                    }
                    found = self.ids(db, state=state, kind=kind, tenant=tenant, limit=1_000)
                    assert len(found) == len(wanted)
                    assert set(found) == wanted
                    assert self.ids(db, state=state, kind=kind, tenant=tenant, limit=2) == found[:2]

    def test_the_order_says_what_comes_next(self, db: apsw.Connection) -> None:
        for at in (3, 1, 2):
            put(db, THEN + at, tenant=f"t{at}")
            put_in(db, job.SCHEDULED, THEN, run_after=NOW + at)
            put_in(db, job.DEAD, THEN + at)
        rows = {
            state: views.job_list(db, DEFAULTS, state=state)
            for state in (job.QUEUED, job.SCHEDULED, job.DEAD)
        }
        assert [row["tenant"] for row in rows[job.QUEUED]] == ["t1", "t2", "t3"]
        assert [row["run_after"] - NOW for row in rows[job.SCHEDULED]] == [1, 2, 3]
        assert [row["ended_at"] - THEN for row in rows[job.DEAD]] == [3, 2, 1]
        everything = self.ids(db)
        assert everything == sorted(everything, reverse=True)

    def test_a_row_shows_what_its_kind_says_now(self, db: apsw.Connection) -> None:
        body = {
            "mode": "enforce",
            "limits": dict.fromkeys(DEFAULTS.limits.__slots__, 1),
            "host": dict.fromkeys(DEFAULTS.host.__slots__, 1),
            "alerts": dict.fromkeys(DEFAULTS.alerts.__slots__, 1),
            "resources": {},
            "budgets": {},
            "env": {},
            "bands": {},
            "tenants": {},
            "schedules": [],
            "kinds": {"k": {"command": ["prog", "{payload}"], "max_attempts": 7}},
            "kind_defaults": {"band": "normal", "max_attempts": 3},
        }
        settings = Settings(body)
        put(db, kind="k", command=None)
        put(db, kind="k", command=["own"], max_attempts=1)
        own, of_kind = views.job_list(db, settings)
        assert (of_kind["command"], of_kind["max_attempts"]) == (["prog", "{payload}"], 7)
        assert (own["command"], own["max_attempts"]) == (["own"], 1)


class TestShow:
    def test_attempts_events_deferrals_and_retries(self, db: apsw.Connection) -> None:
        job_id = put_in(db, job.RUNNING, THEN)
        moves = [
            ("scheduled", "transient"),
            ("queued", "due"),
            ("starting", "claimed"),
            ("queued", "transient"),
        ]
        for state, reason in moves:
            db.execute(
                "UPDATE jobs SET state = ?1, reason = ?2, token = iif(?1 = 'starting', 9, NULL)"
                " WHERE id = ?3",
                (state, reason, job_id),
            )
        db.execute("INSERT INTO deferrals VALUES (?, 'uid_procs', 38, 1, 2)", (job_id,))
        found = views.show(db, DEFAULTS, "/logs", job_id)
        assert found["retries"] == {"transient": 2}
        assert found["deferrals"] == [{"reason": "uid_procs", "count": 38, "first_at": 1, "last_at": 2}]
        assert [event["to"] for event in found["events"]][:3] == ["queued", "starting", "running"]
        assert found["attempts"][0]["log"] == f"/logs/{job_id}.1.{1_000 + job_id}.log"

    def test_no_such_job(self, db: apsw.Connection) -> None:
        for ask in (
            lambda: views.show(db, DEFAULTS, "/logs", 1),
            lambda: views.state_of(db, 1),
            lambda: views.more(db, 1),
        ):
            with pytest.raises(NoSuchJob):
                ask()

    def test_the_last_output_of_each(self, db: apsw.Connection) -> None:
        told, silent = put_in(db, job.DEAD), put_in(db, job.DEAD)
        db.execute("UPDATE attempts SET output_tail = 'oops' WHERE job_id = ?", (told,))
        assert views.tails(db, [told, silent]) == {told: "oops"}

    def test_deaths_are_those_since_then(self, db: apsw.Connection) -> None:
        put_in(db, job.DEAD, THEN, kind="old")
        put_in(db, job.DEAD, NOW, kind="a")
        put_in(db, job.DEAD, NOW, kind="b")
        put_in(db, job.SUCCEEDED, NOW, kind="c")
        assert Counter(kind for kind, _ in views.deaths(db, NOW)) == {"a": 1, "b": 1}
        assert views.deaths(db, NOW, "b") == [("b", NOW)]
