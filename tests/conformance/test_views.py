"""What owners look at: the same figures as the rows, under the keys that --json promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import apsw
import pytest

from clawq import job
from clawq.errors import NoSuchJob
from clawq.paths import Home
from clawq.settings import Settings
from clawq.store import sqlfile, views
from clawq.store.connection import open_db, open_readonly
from clawq.store.why import why
from tests.moves import put_in
from tests.rows import put

THEN = 1_000_000
NOW = 1_060_000

DEFAULTS = Settings.from_text(sqlfile.read("default_config.json"))


@pytest.fixture
def db(home: Home) -> Iterator[apsw.Connection]:
    db = open_db(home)
    yield db
    db.close()


def refuse(db: apsw.Connection, reason: str, **lane: object) -> None:
    """What the supervisor writes when it refuses a lane's head."""
    row = {
        "band": 2,
        "tenant": "default",
        "kind": "default",
        "needs": "",
        "measured": None,
        "limit_value": None,
    }
    row |= {"reason": reason, "since": THEN, "retry_at": NOW + 30_000} | lane
    names = ", ".join(row)
    db.execute(f"INSERT INTO lanes ({names}) VALUES ({', '.join(':' + name for name in row)})", row)


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
            {"tenant": "a", "band": "critical", "kind": "default", "queued": 1, "oldest_age_s": 60.0},
            {"tenant": "b", "band": "normal", "kind": "default", "queued": 2, "oldest_age_s": 60.0},
            {"tenant": "default", "band": "normal", "kind": "k", "queued": 1, "oldest_age_s": 0.0},
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
        refuse(db, "max_running")
        refuse(db, "max_running", kind="k", retry_at=NOW + 10_000)
        db.execute("INSERT INTO lanes (band, tenant, kind, needs) VALUES (2, 'default', 'free', '')")
        assert views.status(db, DEFAULTS, NOW)["waiting_on"] == [
            {"reason": "max_running", "jobs": 5, "retry_after_s": 10.0}
        ]

    def test_a_parked_job_waits_for_its_name_and_not_for_its_lane(self, db: apsw.Connection) -> None:
        put_in(db, job.RUNNING, exclusive="x")
        put(db)
        for _ in range(2):
            put(db, exclusive="x", parked="exclusive:x")
        put(db, exclusive="y", parked="exclusive:y", kind="all-parked")
        refuse(db, "low_memory")
        refuse(db, "low_memory", kind="all-parked")
        assert views.status(db, DEFAULTS, NOW)["waiting_on"] == [
            {"reason": "exclusive:x", "jobs": 2, "retry_after_s": None},
            {"reason": "exclusive:y", "jobs": 1, "retry_after_s": None},
            {"reason": "low_memory", "jobs": 1, "retry_after_s": 30.0},
        ]

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
            "resources": {},
            "budgets": {},
            "env": {},
            "bands": {},
            "tenants": {},
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
            lambda: why(db, 1, True),
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


class TestWhy:
    def reasons(self, db: apsw.Connection, job_id: int, ticks: bool = True) -> list[str]:
        found = why(db, job_id, ticks)
        assert all(row["clears_when"] for row in found["blocked_by"])
        return [row["reason"] for row in found["blocked_by"]]

    @pytest.mark.parametrize("state", [*job.ACTIVE, *job.ENDED])
    def test_nothing_keeps_what_runs_or_has_ended(self, db: apsw.Connection, state: str) -> None:
        assert self.reasons(db, put_in(db, state), ticks=False) == []

    @pytest.mark.parametrize(
        ("state", "reason"), [(job.SCHEDULED, "not_due"), (job.HELD, "held"), (job.UNKNOWN, "unknown")]
    )
    def test_what_stands_aside(self, db: apsw.Connection, state: str, reason: str) -> None:
        assert self.reasons(db, put_in(db, state)) == [reason]

    def test_no_supervisor_comes_first_and_a_lanes_old_reason_after_it_not_at_all(
        self, db: apsw.Connection
    ) -> None:
        job_id = put(db)
        refuse(db, "low_memory", measured=100.0, limit_value=512.0)
        assert self.reasons(db, job_id) == ["low_memory"]
        assert self.reasons(db, job_id, ticks=False) == ["no_supervisor"]
        assert self.reasons(db, put_in(db, job.SCHEDULED), ticks=False) == ["no_supervisor", "not_due"]
        assert self.reasons(db, put_in(db, job.HELD), ticks=False) == ["held"]

    @pytest.mark.parametrize(
        ("scope", "name"),
        [("all", ""), ("tenant", "t"), ("kind", "k"), ("band", "2"), ("resource", "browser")],
    )
    def test_each_pause_that_keeps_it(self, db: apsw.Connection, scope: str, name: str) -> None:
        job_id = put(db, tenant="t", kind="k", needs="browser,shell")
        other = put(db, tenant="o", kind="o", band=1)
        db.execute("INSERT INTO pauses VALUES (?, ?, 5)", (scope, name))
        (row,) = why(db, job_id, True)["blocked_by"]
        assert (row["reason"], row["since"]) == ("paused", 5)
        option = {"all": "", "band": " --band normal"}.get(scope, f" --{scope} {name}")
        assert row["clears_when"] == f"a person says `clawq resume{option}`"
        assert self.reasons(db, other) == (["paused"] if scope == "all" else [])

    def test_a_parked_job_names_its_holder(self, db: apsw.Connection) -> None:
        holder = put_in(db, job.RUNNING, exclusive="deploy")
        job_id = put(db, exclusive="deploy", parked="exclusive:deploy")
        (row,) = why(db, job_id, True)["blocked_by"]
        assert (row["reason"], row["measured"], row["limit"]) == ("exclusive:deploy", 1, 1)
        assert row["clears_when"] == f"job {holder} ends, which has this name"

    def test_a_resource_names_its_holders(self, db: apsw.Connection) -> None:
        holders = [put_in(db, job.RUNNING, needs="browser,shell") for _ in range(2)]
        put_in(db, job.RUNNING, needs="shell")
        job_id = put(db, needs="browser")
        refuse(db, "resource:browser", needs="browser", measured=2.0, limit_value=2.0)
        (row,) = why(db, job_id, True)["blocked_by"]
        assert (row["measured"], row["limit"]) == (2, 2)
        assert row["clears_when"] == f"one of the jobs {holders[0]}, {holders[1]} ends, which hold browser"

    def test_figures_stay_as_measured(self, db: apsw.Connection) -> None:
        job_id = put(db)
        refuse(db, "uid_procs", measured=612.0, limit_value=550.0)
        (row,) = why(db, job_id, True)["blocked_by"]
        assert row == {
            "reason": "uid_procs",
            "measured": 612,
            "limit": 550,
            "since": THEN,
            "clears_when": "the account has fewer than 550 processes",
        }
        assert isinstance(row["measured"], int)

    def test_next_in_turn_after_those_before_it(self, db: apsw.Connection) -> None:
        ids = [put(db, THEN + n) for n in range(3)]
        urgent = put(db, THEN + 9, priority=5)
        put(db, THEN - 9, kind="another lane")
        assert [why(db, id, True)["ahead"] for id in (urgent, *ids)] == [0, 1, 2, 3]
        assert self.reasons(db, ids[2]) == []

    def test_a_reason_nobody_has_words_for_yet(self, db: apsw.Connection) -> None:
        job_id = put(db)
        refuse(db, "a_new_reason")
        assert self.reasons(db, job_id) == ["a_new_reason"]
