"""What the store promises to producers: keys, caps, parking and the row itself, in one transaction."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.errors import Refused
from clawq.store import jobs
from clawq.store.connection import Immediate
from clawq.store.drain import jittered
from clawq.store.refusals import count_refusals, first_to_nag
from tests.desk import MINUTE, NOW, Desk
from tests.rows import check_books, states

# ---------------------------------------------------------------- the row


def test_a_job_keeps_what_was_asked(desk: Desk) -> None:
    taken = desk.take(
        command=["echo", 'é"'],
        payload={"a": 1},
        dedupe_key="k-{date}",
        dedupe_scope="active",
        exclusive="mail",
        priority=3,
        band="interactive",
        tenant="acme",
        needs="shell,browser",
        delay="10m",
        stale_after="1h",
        deadline="2h",
        timeout="none",
        max_attempts=2,
        on_lost="unknown",
        env={"A": "1"},
    )
    row = desk.row(taken.job_id)
    assert (taken.outcome, taken.state, taken.deadline_at) == ("scheduled", "scheduled", NOW + 120 * MINUTE)
    assert {key: row[key] for key in ("kind", "tenant", "band", "priority", "needs", "state", "reason")} == {
        "kind": "default",
        "tenant": "acme",
        "band": 1,
        "priority": 3,
        "needs": "browser,shell",
        "state": "scheduled",
        "reason": "enqueued",
    }
    assert json.loads(row["command"]) == ["echo", 'é"']
    assert (row["payload"], row["env"], row["cwd"], row["path"]) == ('{"a":1}', '{"A":"1"}', "/work", "/bin")
    assert (row["dedupe_key"], row["dedupe_scope"], row["exclusive"]) == ("k-2030-03-17", "active", "mail")
    assert (row["timeout_ms"], row["max_attempts"], row["on_lost"]) == (0, 2, "unknown")
    due = NOW + 10 * MINUTE
    assert (row["run_after"], row["rank"], row["ready_at"]) == (due, due - 3 * MINUTE, None)
    assert (row["created_at"], row["accepted_at"], row["changed_at"]) == (NOW, NOW, NOW)
    assert (row["stale_at"], row["deadline_at"]) == (NOW + 60 * MINUTE, NOW + 120 * MINUTE)


def test_what_was_not_asked_is_left_to_the_kind(desk: Desk) -> None:
    row = desk.row(desk.take().job_id)
    unset = ("timeout_ms", "max_attempts", "on_lost", "stale_at", "deadline_at", "dedupe_key", "dedupe_scope")
    assert {row[key] for key in (*unset, "env", "payload", "exclusive", "parked")} == {None}
    assert (row["state"], row["ready_at"], row["rank"]) == ("queued", NOW, NOW)


def test_the_lane_and_the_limits_of_a_kind_are_frozen_at_the_door(desk: Desk) -> None:
    desk.configure(
        kinds={
            "site.qa": {"command": ["qa"], "needs": ["shell", "browser"], "band": "bulk", "stale_after": "1h"}
        },
        bands={"bulk": {"priority": -4, "deadline": "1d"}, "critical": {"needs": ["local_model"]}},
    )
    row = desk.row(desk.take(kind="site.qa", command=None).job_id)
    assert (row["band"], row["needs"], row["priority"]) == (3, "browser,shell", -4)
    assert (row["stale_at"], row["deadline_at"]) == (NOW + 60 * MINUTE, NOW + 1440 * MINUTE)
    assert row["command"] is None
    # The job's own options come first, and the band asked for brings its own defaults.
    row = desk.row(desk.take(kind="site.qa", band="critical", needs="", stale_after="2h").job_id)
    assert (row["band"], row["needs"], row["priority"], row["deadline_at"]) == (0, "", 0, None)
    assert row["stale_at"] == NOW + 120 * MINUTE
    row = desk.row(desk.take(band="critical").job_id)
    assert row["needs"] == "local_model"


def test_names_with_quotes_and_dots_find_their_own_settings(desk: Desk) -> None:
    names = ['a"b', "a.b", "$", "[0]", "a'b", "é", "$.default"]
    desk.configure(kinds={name: {"priority": number} for number, name in enumerate(names, 1)})
    for number, name in enumerate(names, 1):
        assert desk.row(desk.take(kind=name).job_id)["priority"] == number
    desk.intake.stamp()
    assert not desk.intake.frame("$.kinds", None, "default").known
    assert sorted(desk.intake.kinds()) == sorted(["default", *names])


def test_a_time_in_the_past_is_now_and_no_head_start(desk: Desk) -> None:
    row = desk.row(desk.take(at="2001-01-01").job_id)
    assert (row["state"], row["run_after"], row["rank"]) == ("queued", NOW, NOW)


def test_a_held_job_waits_for_a_person_whenever_it_is_due(desk: Desk) -> None:
    taken = desk.take(hold=True, delay="1h")
    assert (taken.outcome, taken.state) == ("held", "held")
    assert desk.row(taken.job_id)["run_after"] == NOW + 60 * MINUTE


def test_every_entry_is_an_event_and_a_count(desk: Desk) -> None:
    desk.take()
    desk.take()
    desk.take(hold=True)
    assert desk.db.execute("SELECT job_id, at, from_state, to_state, reason FROM events").fetchall() == [
        (1, NOW, "new", "queued", "enqueued"),
        (2, NOW, "new", "queued", "enqueued"),
        (3, NOW, "new", "held", "enqueued"),
    ]


# ---------------------------------------------------------------- dedupe keys


def test_a_key_is_unique_per_tenant_and_kind(desk: Desk) -> None:
    desk.configure(kinds={"other": {}})
    first = desk.take(dedupe_key="k")
    again = desk.take(dedupe_key="k", command=["false"])
    assert (again.outcome, again.job_id, again.state) == ("duplicate", first.job_id, "queued")
    assert desk.take(dedupe_key="k", tenant="acme").outcome == "queued"
    assert desk.take(dedupe_key="k", kind="other").outcome == "queued"
    assert desk.take(dedupe_key="K").outcome == "queued"
    assert len(states(desk.db)) == 4


def test_a_key_outlives_the_end_and_the_pruning_of_its_job(desk: Desk) -> None:
    first = desk.take(dedupe_key="k", deadline="1h")
    desk.run(first.job_id)
    desk.move(first.job_id, "succeeded")
    again = desk.take(dedupe_key="k")
    assert (again.outcome, again.job_id, again.state) == ("duplicate", first.job_id, "succeeded")
    assert again.deadline_at == NOW + 60 * MINUTE
    desk.db.execute("DELETE FROM jobs")
    again = desk.take(dedupe_key="k")
    assert (again.outcome, again.job_id, again.state) == ("duplicate", first.job_id, None)


@pytest.mark.parametrize("end", ["succeeded", "dead", "cancelled"])
def test_a_key_of_scope_active_is_free_after_the_end(desk: Desk, end: str) -> None:
    first = desk.take(dedupe_key="k", dedupe_scope="active")
    desk.run(first.job_id)
    assert desk.take(dedupe_key="k", dedupe_scope="active").outcome == "duplicate"
    desk.move(first.job_id, end)
    second = desk.take(dedupe_key="k", dedupe_scope="active")
    assert (second.outcome, second.job_id) == ("queued", first.job_id + 1)


def test_an_unknown_job_keeps_its_active_key(desk: Desk) -> None:
    first = desk.take(dedupe_key="k", dedupe_scope="active")
    desk.run(first.job_id)
    desk.move(first.job_id, "unknown")
    again = desk.take(dedupe_key="k", dedupe_scope="active")
    assert (again.outcome, again.job_id, again.state) == ("duplicate", first.job_id, "unknown")


def test_a_duplicate_is_found_before_any_refusal(desk: Desk) -> None:
    first = desk.take(dedupe_key="k")
    desk.configure(limits={"max_queued": 1})
    assert desk.refusal(dedupe_key="other").reason == "queue_full"
    assert desk.take(dedupe_key="k", deadline="2001-01-01", stale_after="0s").job_id == first.job_id


def test_a_refusal_uses_no_key(desk: Desk) -> None:
    desk.configure(limits={"max_queued": 0})
    assert desk.refusal(dedupe_key="k").reason == "queue_full"
    desk.configure(limits={"max_queued": 10})
    assert desk.take(dedupe_key="k").outcome == "queued"


# ---------------------------------------------------------------- caps


def test_the_last_tenth_is_for_critical_work(desk: Desk) -> None:
    desk.configure(limits={"max_queued": 20})
    for _ in range(18):
        desk.take()
    for band in ("interactive", "normal", "bulk"):
        refused = desk.refusal(band=band)
        assert refused.reason == "queue_full"
        assert "18 of at most 20 jobs wait, and the last 2 places are for band critical" in str(refused)
    for _ in range(2):
        desk.take(band="critical")
    refused = desk.refusal(band="critical")
    assert (refused.reason, refused.exit_code, refused.safe_to_retry) == ("queue_full", 75, True)
    assert "20 of at most 20 jobs wait: try again in" in str(refused)


def test_a_small_queue_keeps_nothing_back(desk: Desk) -> None:
    desk.configure(limits={"max_queued": 2})
    desk.take()
    desk.take()
    assert desk.refusal().reason == "queue_full"


def test_scheduled_and_held_jobs_count_and_running_ones_do_not(desk: Desk) -> None:
    desk.configure(limits={"max_queued": 3})
    desk.run(desk.take().job_id)
    desk.take(delay="1h")
    desk.take(hold=True)
    desk.take()
    assert desk.refusal().reason == "queue_full"


def test_a_tenant_has_a_cap_of_its_own(desk: Desk) -> None:
    desk.configure(
        limits={"max_queued_per_tenant": 2}, tenants={"acme": {"max_queued": 1}, "none": {"max_queued": 0}}
    )
    desk.take(tenant="acme")
    refused = desk.refusal(tenant="acme")
    assert refused.reason == "tenant_queue_full"
    assert "tenant 'acme' is full: 1 of at most 1 jobs wait" in str(refused)
    assert desk.refusal(tenant="none").reason == "tenant_queue_full"
    desk.take(tenant="b")
    desk.take(tenant="b")
    assert desk.refusal(tenant="b", band="critical").reason == "tenant_queue_full"


def test_a_kind_has_a_cap_over_all_tenants(desk: Desk) -> None:
    desk.configure(kinds={"k": {"queue_cap": 2}}, bands={"bulk": {"queue_cap": 1}})
    desk.take(kind="k", tenant="a")
    desk.take(kind="k", tenant="b", band="bulk")
    refused = desk.refusal(kind="k", tenant="c")
    assert (refused.reason, refused.exit_code) == ("kind_queue_full", 75)
    assert "kind 'k' is full: 2 of at most 2 jobs wait" in str(refused)
    desk.take(band="bulk")
    assert desk.refusal(band="bulk").reason == "kind_queue_full"


def test_people_are_scarce_too(desk: Desk) -> None:
    desk.configure(limits={"max_held": 1})
    desk.take(hold=True)
    refused = desk.refusal(hold=True)
    assert refused.reason == "held_full"
    assert refused.retry_after_s is not None
    assert 240 <= refused.retry_after_s <= 360
    assert desk.take().outcome == "queued"


def test_caps_hold_inside_one_long_transaction(desk: Desk) -> None:
    desk.configure(
        limits={"max_queued": 100, "max_held": 2, "max_queued_per_tenant": 5}, kinds={"k": {"queue_cap": 3}}
    )
    desk.take()
    lines: list[dict[str, Any]] = [{"kind": "k"}] * 4 + [{}] * 6 + [{"hold": True, "tenant": "b"}] * 3
    drafts = [desk.draft(**line) for line in lines]
    reasons: list[str] = []
    with Immediate(desk.db):
        assert desk.intake.begin()
        for draft in drafts:
            try:
                reasons.append(desk.intake.take(draft, NOW, False).outcome)
            except Refused as refused:
                reasons.append(refused.reason)
    assert reasons == [
        *["queued"] * 3, "kind_queue_full",
        "queued", *["tenant_queue_full"] * 5,
        "held", "held", "held_full",
    ]  # fmt: skip


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "band": st.sampled_from(["critical", "normal", "bulk"]),
                "tenant": st.sampled_from(["a", "b"]),
                "kind": st.sampled_from(["k", "default"]),
                "hold": st.just(True),
                "delay": st.just("1h"),
                "dedupe_key": st.sampled_from(["x", "y"]),
            },
        ),
        max_size=40,
    ),
    st.integers(1, 12),
)
def test_no_cap_is_ever_passed_and_none_refuses_early(lines: list[dict[str, Any]], split: int) -> None:
    """Against a model that counts with a loop, however the lines are spread over transactions."""
    limits = {"max_queued": 10, "max_queued_per_tenant": 7, "max_held": 2}
    accepted: list[dict[str, Any]] = []

    def expected(line: dict[str, Any]) -> str:
        def count(**like: Any) -> int:
            defaults = {"tenant": "default", "kind": "default", "hold": False}
            return sum(all((defaults | job)[key] == value for key, value in like.items()) for job in accepted)

        kind, tenant = line.get("kind", "default"), line.get("tenant", "default")
        if line.get("dedupe_key") and any(
            (job.get("dedupe_key"), job.get("kind", "default"), job.get("tenant", "default"))
            == (line["dedupe_key"], kind, tenant)
            for job in accepted
        ):
            return "duplicate"
        if count() >= (10 if line.get("band") == "critical" else 9):
            return "queue_full"
        if count(tenant=tenant) >= 7:
            return "tenant_queue_full"
        if kind == "k" and count(kind="k") >= 4:
            return "kind_queue_full"
        if line.get("hold") and count(hold=True) >= 2:
            return "held_full"
        accepted.append(line)
        return "held" if line.get("hold") else "scheduled" if line.get("delay") else "queued"

    desk = Desk.in_memory()
    desk.configure(limits=limits, kinds={"k": {"queue_cap": 4}})
    for start in range(0, len(lines), split):
        drafts = [desk.draft(**line) for line in lines[start : start + split]]
        with Immediate(desk.db):
            assert desk.intake.begin()
            for line, draft in zip(lines[start : start + split], drafts, strict=True):
                try:
                    answer = desk.intake.take(draft, NOW, False).outcome
                except Refused as refused:
                    answer = refused.reason
                assert answer == expected(line)
    check_books(desk.db)
    desk.db.close()


# ---------------------------------------------------------------- refused for good


@pytest.mark.parametrize(
    ("given_", "reason", "message"),
    [
        ({"stale_after": "0s"}, "expired", "has passed"),
        ({"stale_after": "2001-01-01T00:00Z"}, "expired", "stale-after 2001-01-01T00:00:00.000Z has passed"),
        ({"stale_after": "5m", "delay": "10m"}, "expired", "is before it is due, 2030-03-17"),
        ({"deadline": "2001-01-01"}, "deadline_passed", "has passed"),
        ({"deadline": "5m", "delay": "5m"}, "deadline_passed", "is before it is due"),
        ({"needs": "browser"}, "never_fits", "resource 'browser' has limit 0, so this job could never start"),
    ],
)
def test_what_could_never_run_is_refused_for_good(
    desk: Desk, given_: dict[str, Any], reason: str, message: str
) -> None:
    desk.configure(resources={"browser": {"limit": 0, "min_free_mb": None}})
    refused = desk.refusal(**given_)
    assert (refused.reason, refused.exit_code, refused.retry_after_s) == (reason, 65, None)
    assert not refused.safe_to_retry
    assert message in str(refused)


# ---------------------------------------------------------------- exclusive names


def test_a_job_whose_name_is_taken_is_parked_at_the_door(desk: Desk) -> None:
    first = desk.take(exclusive="mail")
    assert desk.row(first.job_id)["parked"] is None
    assert desk.row(desk.take(exclusive="mail").job_id)["parked"] is None  # nobody runs yet
    desk.run(first.job_id)
    assert desk.row(desk.take(exclusive="mail").job_id)["parked"] == "exclusive:mail"
    assert desk.row(desk.take(exclusive="mail", delay="1h").job_id)["parked"] is None
    assert desk.row(desk.take(exclusive="mail", hold=True).job_id)["parked"] is None
    assert desk.row(desk.take(exclusive="post").job_id)["parked"] is None
    desk.move(first.job_id, "unknown")
    assert desk.row(desk.take(exclusive="mail").job_id)["parked"] is None


# ---------------------------------------------------------------- the forecast


def test_nothing_is_admitted_without_a_supervisor(desk: Desk) -> None:
    assert desk.take(ticking=False).outcome == "queued"
    assert desk.take(ticking=True).outcome == "admitted"


def test_ready_jobs_of_its_own_and_higher_bands_go_first(desk: Desk) -> None:
    desk.configure(limits={"max_running": 3, "max_running_per_tenant": 3})
    desk.take(band="bulk")
    desk.take(band="bulk")
    desk.take(band="bulk")
    assert desk.take(ticking=True, band="normal").outcome == "admitted"
    assert desk.take(ticking=True, band="critical").outcome == "admitted"
    assert desk.take(ticking=True, band="normal").outcome == "admitted"
    assert desk.take(ticking=True, band="normal").outcome == "queued"
    assert desk.take(ticking=True, band="bulk").outcome == "queued"
    assert desk.take(ticking=True, band="critical").outcome == "admitted"


@pytest.mark.parametrize(
    ("fill", "mine", "room"),
    [
        ({"tenant": "a"}, {"tenant": "a"}, 2),
        ({"kind": "k"}, {"kind": "k"}, 1),
        ({"needs": "local_model"}, {"needs": "shell,local_model"}, 1),
        ({"needs": "browser,shell"}, {"needs": "browser"}, 2),
        ({}, {}, 4),
    ],
)
def test_each_kind_of_slot_has_its_room(
    desk: Desk, fill: dict[str, Any], mine: dict[str, Any], room: int
) -> None:
    desk.configure(
        limits={"max_running": 4, "max_running_per_tenant": 4},
        tenants={"a": {"max_running": 2}},
        kinds={"k": {"max_running": 1}},
    )
    for taken in range(room):
        job_id = desk.take(**fill).job_id
        if taken % 2:
            desk.run(job_id)  # it holds the slot, or waits before us for it
        with Immediate(desk.db):  # looked at and not kept
            desk.intake.begin()
            outcome = desk.intake.take(desk.draft(**mine), NOW, True).outcome
            desk.db.execute("DELETE FROM jobs WHERE id = last_insert_rowid()")
        assert outcome == ("admitted" if taken + 1 < room else "queued")
    if fill:
        assert desk.take(ticking=True, tenant="free").outcome == ("admitted" if room < 4 else "queued")


def test_slots_are_counted_over_all_tenants(desk: Desk) -> None:
    desk.configure(limits={"max_running": 2, "max_running_per_tenant": 2})
    desk.run(desk.take(tenant="a").job_id)
    assert desk.take(ticking=True, tenant="b").outcome == "admitted"
    assert desk.take(ticking=True, tenant="c").outcome == "queued"


def test_a_batch_is_admitted_up_to_its_slots(desk: Desk) -> None:
    desk.configure(limits={"max_running": 4, "max_running_per_tenant": 4})
    lines = [*[{"needs": "browser"}] * 4, {"needs": "shell"}, {}, {"band": "critical"}]
    drafts = [desk.draft(**line) for line in lines]
    with Immediate(desk.db):
        desk.intake.begin()
        outcomes = [desk.intake.take(draft, NOW, True).outcome for draft in drafts]
    # Two browsers; then two jobs are in the way of everything, and only a higher band passes them.
    assert outcomes == ["admitted", "admitted", "queued", "queued", "queued", "queued", "admitted"]


def test_parked_jobs_do_not_stand_in_the_way(desk: Desk) -> None:
    desk.configure(limits={"max_running": 2, "max_running_per_tenant": 2})
    desk.run(desk.take(exclusive="x").job_id)
    for _ in range(5):
        desk.take(exclusive="x")
    assert desk.take(ticking=True, exclusive="x").outcome == "queued"
    assert desk.take(ticking=True).outcome == "admitted"


@pytest.mark.parametrize(
    ("scope", "name", "stopped"),
    [
        ("all", "", True),
        ("tenant", "acme", True),
        ("tenant", "default", False),
        ("kind", "k", True),
        ("kind", "default", False),
        ("band", "normal", True),
        ("band", "bulk", False),
        ("resource", "shell", True),
        ("resource", "browser", False),
    ],
)
def test_nothing_paused_is_admitted(desk: Desk, scope: str, name: str, stopped: bool) -> None:
    desk.configure(kinds={"k": {}})
    jobs.pause(desk.db, scope, name, 1)
    taken = desk.take(ticking=True, kind="k", tenant="acme", needs="shell")
    assert taken.outcome == ("queued" if stopped else "admitted")


def test_slots_of_a_waiting_job_are_free(desk: Desk) -> None:
    desk.configure(limits={"max_running": 1, "max_running_per_tenant": 1})
    first = desk.take().job_id
    desk.run(first)
    assert desk.take(ticking=True, band="critical").outcome == "queued"
    desk.move(first, "waiting")
    desk.db.execute("DELETE FROM jobs WHERE state = 'queued'")
    assert desk.take(ticking=True).outcome == "admitted"


# ---------------------------------------------------------------- how soon there is a place


@pytest.mark.parametrize(
    ("every_s", "count", "least", "most"), [(10, 30, 8, 12), (1, 300, 1, 2), (300, 1, 240, 360)]
)
def test_retry_after_is_the_measured_time_between_starts(
    desk: Desk, every_s: int, count: int, least: int, most: int
) -> None:
    desk.ran(every_s * 1000, count)
    desk.configure(limits={"max_queued": 0})
    for _ in range(20):
        seconds = desk.refusal(band="critical").retry_after_s
        assert seconds is not None
        assert least <= seconds <= most


def test_retry_after_grows_with_what_has_to_go_first(desk: Desk) -> None:
    desk.ran(10_000, 10)
    for _ in range(5):
        desk.take()
    desk.configure(limits={"max_queued": 2})
    seconds = desk.refusal(band="critical").retry_after_s
    assert seconds is not None
    assert 32 <= seconds <= 48  # four places at ten seconds each


def test_retry_after_of_a_kind_and_a_tenant_is_their_own(desk: Desk) -> None:
    desk.ran(10_000, 10)
    desk.ran(100_000, 2, kind="k", tenant="acme")
    desk.configure(
        kinds={"k": {"queue_cap": 0}}, tenants={"acme": {"max_queued": 0}, "new": {"max_queued": 0}}
    )
    for given_, least, most in (
        ({"kind": "k"}, 80, 120),
        ({"tenant": "acme"}, 80, 120),
        ({"tenant": "new"}, 48, 72),  # never measured: host.retry_after
    ):
        seconds = desk.refusal(**given_).retry_after_s
        assert seconds is not None
        assert least <= seconds <= most


@given(st.floats(0, 1e9))
def test_retry_after_has_a_floor_and_a_ceiling(seconds: float) -> None:
    assert 1 <= jittered(seconds) <= 4320


def test_callers_refused_together_come_back_apart() -> None:
    assert len({jittered(1000) for _ in range(200)}) > 20


# ---------------------------------------------------------------- what is remembered of a refusal


def test_refusals_are_counted_by_reason_kind_and_tenant(desk: Desk) -> None:
    count_refusals(desk.db, {("queue_full", "k", "a"): 2, ("held_full", "k", "a"): 1}, NOW)
    count_refusals(desk.db, {("queue_full", "k", "a"): 3}, NOW + 5)
    assert desk.db.execute("SELECT * FROM refusals ORDER BY reason").fetchall() == [
        ("held_full", "k", "a", 1, NOW),
        ("queue_full", "k", "a", 5, NOW + 5),
    ]
    assert desk.db.execute("PRAGMA synchronous").get == 2


def test_the_table_of_refusals_has_a_bound(desk: Desk) -> None:
    for tenant in range(1_010):
        count_refusals(desk.db, {("queue_full", "k", f"t{tenant}"): 1}, NOW)
    count_refusals(desk.db, {("queue_full", "k", "t3"): 1}, NOW)
    rows = dict(desk.db.execute("SELECT tenant, count FROM refusals").fetchall())
    assert len(rows) == 1_001
    assert (rows["*"], rows["t3"]) == (10, 2)


@pytest.mark.parametrize("spoil", ["DROP TABLE refusals", "PRAGMA query_only=ON"])
def test_a_refusal_that_cannot_be_counted_is_no_error(desk: Desk, spoil: str) -> None:
    desk.db.execute(spoil)
    count_refusals(desk.db, {("queue_full", "k", "a"): 1}, NOW)
    assert not desk.db.in_transaction
    assert desk.db.execute("PRAGMA synchronous").get == 2


# ---------------------------------------------------------------- the word about a missing supervisor


def test_the_nag_comes_once_a_day_and_only_after_ten_minutes(desk: Desk) -> None:
    assert desk.intake.nag("2030-03-17", NOW) is None
    desk.take(now=NOW)
    assert desk.intake.nag("2030-03-17", NOW + 9 * MINUTE) is None
    assert desk.intake.nag("2030-03-17", NOW + 11 * MINUTE) == 11 * MINUTE
    assert desk.intake.nag("2030-03-17", NOW + 12 * MINUTE) is None
    assert desk.intake.nag("2030-03-18", NOW + 1440 * MINUTE) == 1440 * MINUTE


@pytest.mark.parametrize(
    ("given_", "waits"), [({"delay": "5m"}, True), ({"delay": "1h"}, False), ({"hold": True}, False)]
)
def test_the_nag_is_about_what_could_have_started(desk: Desk, given_: dict[str, Any], waits: bool) -> None:
    desk.take(**given_)
    assert (desk.intake.nag("2030-03-17", NOW + 20 * MINUTE) is not None) == waits


def test_of_two_callers_one_nags(desk: Desk) -> None:
    assert [first_to_nag(desk.db, day) for day in ("a", "a", "b", "b")] == [True, False, True, False]


# ---------------------------------------------------------------- the configuration under our feet


def test_a_configuration_that_changes_meanwhile_is_noticed_in_the_transaction(desk: Desk) -> None:
    desk.draft()
    desk.configure(limits={"max_queued": 5})
    with Immediate(desk.db):
        assert not desk.intake.begin()
    desk.intake.stamp()
    with Immediate(desk.db):
        assert desk.intake.begin()
