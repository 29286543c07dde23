"""What a kind that is full or busy does with one more job, and what observing makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.errors import Refused
from clawq.rules import fairness
from clawq.states import BANDS
from clawq.store import attempts, drain, forecast, jobs
from clawq.store.connection import Immediate
from tests.desk import MINUTE, NOW, SECOND, Desk
from tests.rows import check_books, states


def kinds(**values: dict[str, Any]) -> dict[str, Any]:
    return {"kinds": values}


# ---------------------------------------------------------------- drop_oldest


def test_the_oldest_waiting_job_gives_its_place(desk: Desk) -> None:
    desk.configure(**kinds(k={"queue_cap": 2, "on_full": "drop_oldest"}))
    first, second = (desk.take(kind="k", dedupe_key=key).job_id for key in ("a", "b"))
    third = desk.take(kind="k")
    assert (third.outcome, states(desk.db)) == ("queued", {first: "cancelled", second: "queued", 3: "queued"})
    row = desk.row(first)
    assert (row["reason"], row["ended_at"]) == ("dropped", NOW)
    assert row["last_error"] == "dropped, since its kind was full and a newer job came"
    # Its key of scope `ever` still answers for it.
    assert desk.take(kind="k", dedupe_key="a").state == "cancelled"


def test_the_first_accepted_is_the_oldest_in_whatever_state_it_waits(desk: Desk) -> None:
    desk.configure(**kinds(k={"queue_cap": 4, "on_full": "drop_oldest"}))
    waiting = [
        desk.take(kind="k", delay="1h").job_id,
        desk.take(kind="k", hold=True).job_id,
        desk.take(now=NOW + 1, kind="k", band="bulk").job_id,
        desk.take(now=NOW + 2, kind="k", band="critical").job_id,
    ]
    for job_id in waiting:
        desk.take(now=NOW + 3, kind="k")
        assert desk.row(job_id)["reason"] == "dropped"


def test_only_never_started_jobs_at_the_top_of_its_own_tenant_are_dropped(desk: Desk) -> None:
    desk.configure(**kinds(k={"queue_cap": 4, "on_full": "drop_oldest"}, other={}))
    begun, child, theirs = (desk.take(kind="k", tenant=name).job_id for name in ("a", "a", "b"))
    other = desk.take(kind="other", tenant="a").job_id
    desk.run(begun)
    desk.move(begun, "queued")
    desk.db.execute("UPDATE jobs SET parent_id = 99 WHERE id = ?", (child,))
    mine = desk.take(kind="k", tenant="a").job_id
    desk.take(kind="k", tenant="a")
    assert desk.row(mine)["state"] == "cancelled"
    assert {desk.row(job_id)["state"] for job_id in (begun, child, theirs, other)} == {"queued"}
    # Nothing of this tenant is left to drop.
    assert desk.refusal(kind="k", tenant="c").reason == "kind_queue_full"


def test_a_swap_needs_no_place_and_passes_no_other_cap(desk: Desk) -> None:
    desk.configure(limits={"max_queued": 2}, **kinds(k={"queue_cap": 1, "on_full": "drop_oldest"}))
    first = desk.take(kind="k").job_id
    desk.take()
    assert desk.take(kind="k").outcome == "queued"
    assert desk.row(first)["state"] == "cancelled"
    # Only the kind's own cap is answered so: without it nothing is dropped for a full queue.
    desk.configure(**kinds(k={"on_full": "drop_oldest"}))
    assert desk.refusal(kind="k").reason == "queue_full"


def test_a_swap_that_another_cap_forbids_drops_nothing(desk: Desk) -> None:
    desk.configure(limits={"max_queued": 10}, **kinds(k={"queue_cap": 1, "on_full": "drop_oldest"}))
    first = desk.take(kind="k").job_id
    for _ in range(9):
        desk.take(band="critical")
    assert desk.refusal(kind="k", band="bulk").reason == "queue_full"  # it is in the last tenth
    assert desk.row(first)["state"] == "queued"
    assert desk.take(kind="k", band="critical").outcome == "queued"


def test_a_lowered_cap_ends_nothing(desk: Desk) -> None:
    for _ in range(5):
        desk.take()
    desk.configure(**kinds(default={"queue_cap": 2, "on_full": "drop_oldest"}))
    desk.take()
    assert list(states(desk.db).values()).count("queued") == 5


@given(
    st.lists(
        st.tuples(st.sampled_from("kl"), st.sampled_from("ab"), st.sampled_from(["now", "later", "held"])),
        max_size=30,
    ),
    st.integers(1, 6),
)
def test_in_one_long_transaction_the_newest_are_kept(lines: list[tuple[str, str, str]], split: int) -> None:
    """Against a model: a list of each tenant's jobs; the kind's cap counts both tenants."""
    desk = Desk.in_memory()
    desk.configure(**kinds(k={"queue_cap": 4, "on_full": "drop_oldest"}, l={}))
    kept: list[tuple[int, str]] = []
    others: list[int] = []
    how: dict[str, dict[str, Any]] = {"now": {}, "later": {"delay": "1h"}, "held": {"hold": True}}
    for start in range(0, len(lines), split):
        part = lines[start : start + split]
        drafts = [desk.draft(kind=kind, tenant=tenant, **how[when]) for kind, tenant, when in part]
        with Immediate(desk.db):
            assert desk.intake.begin()
            for draft in drafts:
                own = [job_id for job_id, tenant in kept if tenant == draft.tenant]
                if draft.kind == "k" and len(kept) == 4 and not own:
                    with pytest.raises(Refused, match="kind 'k' is full"):
                        desk.intake.take(draft, NOW, False)
                    continue
                job_id = desk.intake.take(draft, NOW, False).job_id
                if draft.kind == "l":
                    others.append(job_id)
                    continue
                if len(kept) == 4:
                    kept.remove((own[0], draft.tenant))
                kept.append((job_id, draft.tenant))
    alive = {job_id for job_id, state in states(desk.db).items() if state != "cancelled"}
    assert alive == {job_id for job_id, _ in kept} | set(others)
    check_books(desk.db)
    desk.db.close()


# ---------------------------------------------------------------- coalesce


LIKE: dict[str, Any] = {"kind": "k", "payload": {"a": 1}, "env": {"A": "1"}, "needs": "shell"}


def test_a_full_kind_joins_a_job_to_one_that_does_the_same(desk: Desk) -> None:
    desk.configure(**kinds(k={"queue_cap": 1, "on_full": "coalesce"}))
    first = desk.take(**LIKE, deadline="1h").job_id
    again = desk.take(**LIKE, priority=3, band="bulk")
    assert (again.outcome, again.job_id, again.state) == ("duplicate", first, "queued")
    assert again.deadline_at == NOW + 60 * MINUTE
    assert len(states(desk.db)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"payload": {"a": 2}},
        {"payload": None},
        {"env": {"A": "2"}},
        {"env": None},
        {"needs": ""},
        {"command": ["true", "x"]},
        {"command": None},
        {"tenant": "acme"},
    ],
)
def test_it_joins_nothing_that_differs(desk: Desk, other: dict[str, Any]) -> None:
    desk.configure(**kinds(k={"queue_cap": 1, "on_full": "coalesce", "command": ["true"]}))
    desk.take(**LIKE)
    assert desk.refusal(**LIKE | other).reason == "kind_queue_full"


def test_another_folder_is_another_job(desk: Desk) -> None:
    desk.configure(**kinds(k={"queue_cap": 1, "on_full": "coalesce"}))
    desk.take(**LIKE)
    desk.db.execute("UPDATE jobs SET cwd = '/elsewhere'")  # with the hash of this one, as a collision would
    assert desk.refusal(**LIKE).reason == "kind_queue_full"


def test_it_joins_no_job_that_would_serve_it_worse(desk: Desk) -> None:
    """Neither one that starts later, nor one that waits for a person, nor one that has begun."""
    desk.configure(**kinds(k={"queue_cap": 3, "on_full": "coalesce"}))
    later = desk.take(**LIKE, delay="1h").job_id
    held = desk.take(**LIKE, hold=True).job_id
    desk.take(kind="k")
    begun = desk.take(kind="default", payload={"a": 1}, env={"A": "1"}, needs="shell").job_id
    desk.run(begun)
    assert desk.refusal(**LIKE).reason == "kind_queue_full"
    assert desk.take(**LIKE, hold=True).job_id == held
    assert desk.take(**LIKE, delay="2h").job_id == later


def test_it_joins_only_when_the_kind_is_full(desk: Desk) -> None:
    desk.configure(**kinds(k={"queue_cap": 2, "on_full": "coalesce"}))
    assert [desk.take(**LIKE).outcome for _ in range(4)] == ["queued", "queued", "duplicate", "duplicate"]


@pytest.mark.parametrize("scope", ["ever", "active"])
def test_the_key_of_a_joined_job_leads_to_the_other(desk: Desk, scope: str) -> None:
    desk.configure(**kinds(k={"queue_cap": 1, "on_full": "coalesce"}))
    first = desk.take(**LIKE, dedupe_key="a").job_id
    assert desk.take(**LIKE, dedupe_key="b", dedupe_scope=scope).job_id == first
    desk.run(first)
    again = desk.take(**LIKE, dedupe_key="b", dedupe_scope=scope)
    assert (again.outcome, again.job_id, again.state) == ("duplicate", first, "running")
    desk.move(first, "succeeded")
    after = desk.take(**LIKE, dedupe_key="b", dedupe_scope=scope)
    assert after.outcome == ("duplicate" if scope == "ever" else "queued")


def test_a_million_waiting_jobs_are_not_looked_through(desk: Desk) -> None:
    """By their plans, whose cost does not depend on rows: one range of the index that the hash begins."""
    from clawq.store.sqlfile import load

    for name, index in (("same", "jobs_same (kind=? AND tenant=? AND same=?"), ("oldest", "jobs_not_ready")):
        sql = load("overload")[name]
        values = dict.fromkeys(
            (
                "kind",
                "tenant",
                "same",
                "run_after",
                "hold",
                "command",
                "payload",
                "cwd",
                "env",
                "needs",
                "parent_id",
            ),
            1,
        )
        plan = [str(row[3]) for row in desk.db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()]
        assert any(index in step for step in plan), plan
        if name == "same":
            assert not any("TEMP B-TREE" in step for step in plan), plan


# ---------------------------------------------------------------- on_busy


def test_work_that_may_not_wait_is_refused_when_it_would(desk: Desk) -> None:
    desk.configure(limits={"max_running": 1, "max_running_per_tenant": 1}, **kinds(k={"on_busy": "reject"}))
    refused = desk.refusal(kind="k")
    assert (refused.reason, refused.exit_code, refused.safe_to_retry) == ("over_capacity", 75, True)
    assert 'could not start, since no supervisor runs, and its on_busy is "reject"' in str(refused)
    first = desk.take(ticking=True, kind="k")
    assert (first.outcome, desk.row(first.job_id)["start_by"]) == ("admitted", NOW + 5_000)
    refused = desk.refusal(ticking=True, kind="k")
    assert "a 'k' job in band normal could not start now" in str(refused)
    assert refused.retry_after_s is not None
    assert 48 <= refused.retry_after_s <= 72
    assert desk.take(ticking=True).outcome == "queued"


def test_what_was_admitted_and_does_not_start_is_expired(desk: Desk) -> None:
    desk.configure(**kinds(k={"on_busy": "reject"}))
    late, started = (desk.take(ticking=True, kind="k", band=band).job_id for band in ("normal", "bulk"))
    desk.run(started)
    desk.move(started, "scheduled")  # it failed and is tried again: its first start was in time
    assert attempts.expire(desk.db, NOW + 4_999) == 0
    assert attempts.next_due(desk.db) == NOW  # the retry
    assert attempts.expire(desk.db, NOW + 5_000) == 1
    row = desk.row(late)
    assert (row["state"], row["reason"]) == ("expired", "busy")
    assert row["last_error"] == "not started within 5 s, and its on_busy is reject: it may not wait"
    assert attempts.expire(desk.db, NOW + 60 * MINUTE) == 0
    # A person's word is stronger than the kind's.
    jobs.retry(desk.db, late, NOW + MINUTE, 100)
    assert attempts.expire(desk.db, NOW + 60 * MINUTE) == 0


def test_an_earlier_end_of_its_own_stands(desk: Desk) -> None:
    desk.configure(**kinds(k={"on_busy": "reject"}))
    for given_, reason in (({"stale_after": "2s"}, "stale"), ({"deadline": "3s"}, "deadline")):
        job_id = desk.take(ticking=True, kind="k", **given_).job_id
        attempts.expire(desk.db, NOW + 3_000)
        assert desk.row(job_id)["reason"] == reason


def test_work_for_later_is_judged_when_it_is_due_and_held_work_never(desk: Desk) -> None:
    desk.configure(**kinds(k={"on_busy": "reject"}))
    later = desk.take(kind="k", delay="1h").job_id
    held = desk.take(kind="k", hold=True).job_id
    assert desk.row(later)["start_by"] == NOW + 60 * MINUTE + 5_000
    assert desk.row(held)["start_by"] is None


def test_a_busy_kind_is_taken_as_its_lighter_one(desk: Desk) -> None:
    desk.configure(
        **kinds(
            heavy={"on_busy": "degrade", "degrade_to": "light", "needs": ["browser"], "queue_cap": 1},
            light={"priority": 7, "band": "bulk", "deadline": "1h", "queue_cap": 2},
        )
    )
    as_asked = desk.take(ticking=True, kind="heavy")
    assert (as_asked.outcome, as_asked.degraded) == ("admitted", False)
    taken = desk.take(kind="heavy", dedupe_key="x", payload={"a": 1})
    row = desk.row(taken.job_id)
    assert (taken.outcome, taken.degraded, taken.deadline_at) == ("queued", True, NOW + 60 * MINUTE)
    assert (row["kind"], row["asked_kind"], row["needs"], row["priority"]) == ("light", "heavy", "", 7)
    assert (row["band"], row["payload"], row["reason"]) == (3, '{"a":1}', "degraded from heavy")
    # The key is the asked kind's.
    again = desk.take(kind="heavy", dedupe_key="x")
    assert (again.outcome, again.job_id, again.degraded) == ("duplicate", taken.job_id, False)
    assert desk.take(kind="light", dedupe_key="x").outcome == "queued"
    assert desk.refusal(kind="heavy").reason == "kind_queue_full"  # of the lighter kind
    # What was asked for itself stays.
    desk.move(taken.job_id, "cancelled")
    row = desk.row(desk.take(kind="heavy", band="critical", needs="shell").job_id)
    assert (row["kind"], row["band"], row["needs"]) == ("light", 0, "shell")


def test_an_active_key_of_a_degraded_job_is_free_after_it_and_taken_again(desk: Desk) -> None:
    desk.configure(**kinds(heavy={"on_busy": "degrade", "degrade_to": "light"}, light={}))
    first = desk.take(kind="heavy", dedupe_key="x", dedupe_scope="active").job_id
    desk.move(first, "cancelled")
    jobs.retry(desk.db, first, NOW, 100)
    assert desk.take(kind="heavy", dedupe_key="x").job_id == first
    jobs.cancel(desk.db, first, NOW)
    assert desk.take(kind="heavy", dedupe_key="x", dedupe_scope="active").job_id == first + 1


def test_a_lighter_kind_may_refuse_to_wait_too(desk: Desk) -> None:
    desk.configure(**kinds(heavy={"on_busy": "degrade", "degrade_to": "light"}, light={"on_busy": "reject"}))
    assert desk.refusal(kind="heavy").reason == "over_capacity"


# ---------------------------------------------------------------- refuse_hopeless


HOPEFUL = {"k": {"refuse_hopeless": True}}


def test_what_the_queue_cannot_start_in_time_is_refused(desk: Desk) -> None:
    desk.configure(**kinds(**HOPEFUL))
    desk.ran(10 * SECOND, 30, took_ms=SECOND)
    for _ in range(11):
        desk.take(now=NOW - 5 * MINUTE)
    desk.take(now=NOW - 5 * MINUTE, band="bulk")  # comes after it
    refused = desk.refusal(kind="k", stale_after="90s")
    assert (refused.reason, refused.exit_code, refused.safe_to_retry) == ("would_expire", 75, True)
    assert "it would start in about 1" in str(refused)
    assert "and is worth nothing after 2030-03-17T17:48:10.000Z: try again in" in str(refused)
    assert refused.retry_after_s is not None
    assert 20 <= refused.retry_after_s <= 40  # about 120 s of waiting, 90 of them too many
    assert desk.refusal(kind="k", deadline="90s").reason == "would_expire"
    assert desk.take(kind="k", stale_after="5m").outcome == "queued"
    assert desk.take(kind="k").outcome == "queued"
    assert desk.take(stale_after="90s").outcome == "queued"  # a kind that does not ask for it
    assert desk.take(kind="k", band="critical", stale_after="90s").outcome == "queued"


def test_what_would_start_at_once_is_never_hopeless(desk: Desk) -> None:
    desk.configure(**kinds(**HOPEFUL))
    desk.ran(200 * SECOND, 2)
    assert desk.take(ticking=True, kind="k", stale_after="10s").outcome == "admitted"


def test_without_a_measurement_there_is_hope(desk: Desk) -> None:
    desk.configure(**kinds(**HOPEFUL))
    for _ in range(50):
        desk.take()
    assert desk.take(kind="k", stale_after="1s").outcome == "queued"


def test_a_kind_stands_in_its_own_queue_too(desk: Desk) -> None:
    desk.configure(**kinds(**HOPEFUL))
    desk.ran(SECOND, 50, took_ms=100)
    desk.ran(100 * SECOND, 4, took_ms=SECOND, kind="k")
    desk.take(now=NOW - 10 * MINUTE, kind="k")
    assert desk.refusal(kind="k", stale_after="1m").reason == "would_expire"


def test_an_idle_hour_does_not_make_a_queue_slow(desk: Desk) -> None:
    """Two jobs in nine minutes were all there was; since a minute there is more to do, a job every second."""
    desk.ran(300 * SECOND, 1)
    desk.ran(SECOND, 50)
    for _ in range(5):
        desk.take(now=NOW - MINUTE)
    pace = drain.pace(desk.db, NOW)
    assert pace is not None
    assert 900 <= pace <= 1_300


def test_slots_filled_at_once_are_no_measure_of_how_soon_they_are_free(desk: Desk) -> None:
    desk.ran(10, 8, took_ms=10 * MINUTE)  # eight starts within 80 ms, none has ended
    assert drain.pace(desk.db, NOW) is None
    pace = drain.pace(desk.db, NOW + 11 * MINUTE)
    assert pace is not None
    assert 70 * SECOND <= pace <= 90 * SECOND


# ---------------------------------------------------------------- never_fits


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (
            {"limit": 9, "per_tenant": None},
            "it spends 10 of budget 'tokens', which never has more than 9 for it",
        ),
        ({"limit": 90, "per_tenant": 9}, "raise budgets.tokens.per_tenant in clawq.toml"),
        ({"limit": 10, "per_tenant": None}, ""),
    ],
)
def test_more_than_a_budget_ever_has_is_refused_for_good(
    desk: Desk, budget: dict[str, Any], message: str
) -> None:
    desk.configure(
        budgets={"tokens": {"per_ms": 60_000, **budget}}, bands={"bulk": {"spends": {"tokens": 10}}}
    )
    assert desk.take().outcome == "queued"
    if not message:
        assert desk.take(band="bulk").outcome == "queued"
        return
    refused = desk.refusal(band="bulk")
    assert (refused.reason, refused.exit_code) == ("never_fits", 65)
    assert message in str(refused)


# ---------------------------------------------------------------- observing


def _observed(desk: Desk) -> list[tuple[Any, ...]]:
    return desk.db.execute(
        "SELECT stage, reason, kind, tenant, count FROM observed ORDER BY reason"
    ).fetchall()


def test_observing_accepts_everything_and_counts_what_it_would_have_refused(desk: Desk) -> None:
    desk.configure(
        mode="observe",
        limits={"max_queued": 10},
        resources={"browser": {"limit": 0, "min_free_mb": None}},
        **kinds(
            capped={"queue_cap": 1},
            dropping={"queue_cap": 1, "on_full": "drop_oldest"},
            joining={"queue_cap": 1, "on_full": "coalesce"},
            now={"on_busy": "reject"},
            heavy={"on_busy": "degrade", "degrade_to": "capped"},
        ),
    )
    for kind in ("capped", "capped", "dropping", "dropping", "joining", "joining", "now", "heavy"):
        taken = desk.take(kind=kind, tenant="t")
        assert (taken.outcome, taken.degraded) == ("queued", False)
    desk.take(needs="browser")
    desk.take(tenant="u")
    assert set(states(desk.db).values()) == {"queued"}
    assert desk.db.execute("SELECT start_by FROM jobs WHERE kind = 'now'").get is None
    assert _observed(desk) == [
        *(("enqueue", "kind_queue_full", kind, "t", 1) for kind in ("capped", "dropping", "joining")),
        ("enqueue", "never_fits", "default", "default", 1),
        *(("enqueue", "over_capacity", kind, "t", 1) for kind in ("heavy", "now")),
        ("enqueue", "queue_full", "default", "u", 1),
    ]
    assert desk.refusal(stale_after="0s").reason == "expired"
    assert desk.refusal(deadline="2001-01-01").reason == "deadline_passed"


def test_a_supervisor_that_observes_counts_while_it_lives(desk: Desk) -> None:
    desk.configure(**kinds(default={"queue_cap": 1}))
    desk.db.execute("INSERT INTO meta VALUES ('observe', '1')")
    desk.take()
    assert desk.take(ticking=True).job_id == 2
    assert desk.refusal(ticking=False).reason == "kind_queue_full"
    assert _observed(desk) == [("enqueue", "kind_queue_full", "default", "default", 1)]


def test_the_table_of_what_was_observed_has_a_bound(desk: Desk) -> None:
    desk.configure(mode="observe", limits={"max_queued": 9_999}, **kinds(default={"queue_cap": 0}))
    with Immediate(desk.db):
        desk.intake.stamp()
        assert desk.intake.begin()
        for tenant in (*range(1_010), 3):
            desk.intake.take(desk.draft(tenant=f"t{tenant}"), NOW, False)
    counts = dict(desk.db.execute("SELECT tenant, count FROM observed").fetchall())
    assert (len(counts), counts["*"], counts["t3"]) == (1_001, 10, 2)


def test_what_cannot_be_counted_is_accepted_all_the_same(desk: Desk) -> None:
    desk.configure(mode="observe", **kinds(default={"queue_cap": 0}))
    desk.db.execute("DROP TABLE observed")
    assert desk.take().outcome == "queued"


# ---------------------------------------------------------------- the forecast's other half


def _rest(desk: Desk, **columns: Any) -> None:
    row = {"resource": "shell", "set_at": NOW - MINUTE, "until": NOW - SECOND, "step_ms": SECOND} | columns
    names = ", ".join(row)
    places = ", ".join(f":{name}" for name in row)
    desk.db.execute(f"INSERT INTO cooldowns ({names}) VALUES ({places})", row)


@pytest.mark.parametrize(
    ("rest", "room"),
    [
        ({"until": NOW + 1}, 0),
        ({"until": NOW}, 1),  # the probe
        ({"probe_token": 5}, 0),
        ({"passed_at": NOW}, 1),
        ({"passed_at": NOW, "released": 1}, 0),
        ({"passed_at": NOW - SECOND, "released": 0}, 2),
        ({"passed_at": NOW - 2 * SECOND, "released": 2}, 2),
    ],
)
def test_a_resource_at_rest_admits_as_many_as_come_back_now(
    desk: Desk, rest: dict[str, Any], room: int
) -> None:
    _rest(desk, **rest)
    for _ in range(room):
        assert desk.forecast(needs="shell")
        desk.take(needs="shell")
    assert not desk.forecast(needs="shell")
    assert desk.forecast(needs="browser")
    assert desk.forecast()


def test_work_that_may_not_wait_can_be_the_probe(desk: Desk) -> None:
    """Else a resource that only such work needs would never come back."""
    desk.configure(**kinds(k={"needs": ["shell"], "on_busy": "reject"}))
    _rest(desk)
    assert desk.take(ticking=True, kind="k").outcome == "admitted"


def test_a_budget_admits_what_it_has_room_for(desk: Desk) -> None:
    desk.configure(
        budgets={"tokens": {"limit": 100, "per_ms": MINUTE, "per_tenant": 60}},
        **kinds(k={"spends": {"tokens": 20}}, l={"spends": {"tokens": 30}}),
    )

    def spend(tenant: str, amount: int, at: int) -> None:
        desk.db.execute(
            "INSERT INTO spends (budget, tenant, token, at, amount) VALUES ('tokens', ?, 1, ?, ?)",
            (tenant, at, amount),
        )

    spend("a", 999, NOW - MINUTE)  # has left the window
    assert desk.forecast(kind="k", tenant="a")
    spend("a", 41, NOW - MINUTE + 1)
    assert not desk.forecast(kind="k", tenant="a")
    assert desk.forecast(kind="k", tenant="b")
    assert desk.forecast(tenant="a")
    desk.take(kind="l", tenant="b")  # ready, and goes first
    assert desk.forecast(kind="k", tenant="b")
    desk.take(kind="k", tenant="b")
    assert not desk.forecast(kind="k", tenant="b")
    assert not desk.forecast(kind="k", tenant="c")
    assert desk.forecast(kind="k", tenant="c", band="interactive")  # goes before those


def test_a_shares_slots_are_kept_from_others(desk: Desk) -> None:
    desk.configure(
        limits={"max_running": 4, "max_running_per_tenant": 4},
        bands={"critical": {"share": 20}, "interactive": {"share": 25}},
    )
    desk.run(desk.take(band="bulk").job_id)
    assert desk.forecast(band="bulk")
    desk.run(desk.take(band="bulk").job_id)
    assert not desk.forecast(band="bulk")
    assert desk.forecast(band="interactive")
    assert desk.forecast(band="critical")
    desk.run(desk.take(band="interactive").job_id)
    assert not desk.forecast(band="interactive")  # the last one is critical's
    assert desk.forecast(band="critical")


@given(
    st.integers(1, 12),
    st.lists(st.integers(0, 50), min_size=2, max_size=2),
    st.dictionaries(st.integers(0, 3), st.integers(0, 6)),
    st.integers(0, 3),
)
def test_never_fewer_slots_are_kept_than_a_pass_keeps(
    most: int, shares: list[int], used: dict[int, int], band: int
) -> None:
    desk = Desk.in_memory()
    written = {name: share for name, share in zip(BANDS, shares, strict=False) if share}
    desk.configure(
        limits={"max_running": most}, bands={name: {"share": each} for name, each in written.items()}
    )
    slots = fairness.share_slots({BANDS.index(name): share for name, share in written.items()}, most)
    kept = fairness.kept_for(slots, used, most)
    taken = [(each, "", "", "", n) for each, n in used.items()]
    assert forecast._kept(desk.draft(band=BANDS[band]), taken) >= sum(
        count for owner, count in kept.items() if owner != band
    )
    desk.db.close()


def test_one_slot_is_kept_for_nobody(desk: Desk) -> None:
    desk.configure(
        limits={"max_running": 1, "max_running_per_tenant": 1}, bands={"interactive": {"share": 100}}
    )
    assert desk.forecast(band="bulk")


@pytest.mark.parametrize(
    ("reason", "clears_at", "counts"),
    [
        ("max_running", None, True),
        ("resource:shell", None, True),
        ("uid_procs", None, True),
        ("paused", None, False),
        ("never_fits", None, False),
        ("budget:tokens", NOW + 1, False),
        ("cooldown:shell", NOW + 1, False),
        ("cooldown:shell", NOW, True),
    ],
)
def test_only_jobs_that_wait_for_slots_go_first(
    desk: Desk, reason: str, clears_at: int | None, counts: bool
) -> None:
    desk.configure(limits={"max_running": 1, "max_running_per_tenant": 1})
    desk.take(tenant="a")
    desk.db.execute(
        "INSERT INTO lanes (band, tenant, kind, needs, reason, clears_at)"
        " VALUES (2, 'a', 'default', '', ?, ?)",
        (reason, clears_at),
    )
    assert desk.forecast(tenant="b") != counts


def test_a_supervisor_that_was_asked_to_end_admits_nothing(desk: Desk) -> None:
    desk.db.execute("INSERT INTO meta VALUES ('stop', '{}')")
    assert not desk.forecast()
