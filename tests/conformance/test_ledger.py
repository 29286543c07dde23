"""Budgets in sliding windows, resources at rest, footprints, and what observing would have refused."""

from __future__ import annotations

import apsw
import pytest

from clawq.rules.facts import Cooldown, Footprint
from clawq.store import attempts, ledger, told
from clawq.store.ledger import BudgetRule
from tests.claims import NOW, claim, finish
from tests.rows import put

TOKENS = {"tokens": BudgetRule(1_000, 60_000, None)}


def used(db: apsw.Connection, now: int) -> int:
    return ledger.budgets(db, TOKENS, now)["tokens"].used


def test_a_reservation_counts_for_one_window_and_no_longer(db: apsw.Connection) -> None:
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW)
    ledger.reserve(db, "other", 2, [("tokens", 200)], NOW + 10_000)
    budget = ledger.budgets(db, TOKENS, NOW + 10_000)["tokens"]
    assert (budget.used, budget.used_by, budget.frees_at) == (500, {"acme": 300, "other": 200}, NOW + 60_000)
    assert used(db, NOW + 59_999) == 500
    assert used(db, NOW + 60_000) == 200
    assert used(db, NOW + 70_000) == 0


def test_what_was_not_needed_is_given_back_once_and_only_at_the_end(db: apsw.Connection) -> None:
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW)
    told.tell_spend(db, "acme", 1, "tokens", 120, NOW + 1)
    assert used(db, NOW + 2) == 300
    for _ in range(2):
        ledger.settle_spends(db, 1, ran=True)
        assert used(db, NOW + 3) == 120


def test_more_than_was_reserved_is_debt_from_the_moment_it_is_told(db: apsw.Connection) -> None:
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW)
    told.tell_spend(db, "acme", 1, "tokens", 900, NOW + 1_000)
    told.tell_spend(db, "acme", 1, "tokens", 1_500, NOW + 2_000)
    told.tell_spend(db, "acme", 1, "tokens", 1_400, NOW + 3_000)  # cumulative: it does not shrink
    assert used(db, NOW + 3_000) == 1_500
    ledger.settle_spends(db, 1, ran=True)
    assert used(db, NOW + 3_000) == 1_500
    assert used(db, NOW + 60_500) == 1_200  # the reservation has left the window, the debt not yet


def test_an_agent_that_tells_nothing_pays_what_it_reserved(db: apsw.Connection) -> None:
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW)
    ledger.settle_spends(db, 1, ran=True)
    assert used(db, NOW + 1) == 300


def test_a_start_that_never_ran_pays_nothing(db: apsw.Connection) -> None:
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW)
    ledger.settle_spends(db, 1, ran=False)
    assert used(db, NOW + 1) == 0


def test_old_entries_go_but_not_those_of_a_living_attempt(db: apsw.Connection) -> None:
    claim(db, put(db, NOW), 77)
    ledger.reserve(db, "acme", 77, [("tokens", 300)], NOW)
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW)
    ledger.forget_spends(db, TOKENS, NOW + 60_000)
    assert db.execute("SELECT token FROM spends").get == 77
    finish(db, 1)
    ledger.forget_spends(db, TOKENS, NOW + 60_000)
    assert db.execute("SELECT count(*) FROM spends").get == 0


def test_a_resource_rests_then_one_probes_then_the_rest_come_back_in_doubling_numbers(
    db: apsw.Connection,
) -> None:
    limits = {"api": 6}
    told.cool(db, "api", NOW + 1_000, 100, NOW)
    resting = ledger.rests(db, limits, NOW)
    assert resting.changes_at == NOW + 1_000
    assert resting.cooldowns["api"].until == NOW + 1_000

    now = NOW + 1_000
    assert ledger.rests(db, limits, now).cooldowns["api"] == Cooldown(now, False, 1)
    claim(db, put(db, NOW), 77)
    ledger.note_start(db, ["api"], ["api"], 77)
    assert ledger.rests(db, limits, now).cooldowns["api"] == Cooldown(now, True, 0)

    finish(db, 1)
    ledger.note_end(db, 77, True, now)
    back = ledger.rests(db, limits, now)
    assert (back.cooldowns["api"].allowed, back.changes_at) == (1, now + 100)
    ledger.note_start(db, ["api"], ["api"], 78)
    assert ledger.rests(db, limits, now).cooldowns["api"].allowed == 0
    assert ledger.rests(db, limits, now + 100).cooldowns["api"].allowed == 1
    assert ledger.rests(db, limits, now + 200).cooldowns["api"].allowed == 3
    assert ledger.rests(db, limits, now + 300).cooldowns == {}
    assert db.execute("SELECT count(*) FROM cooldowns").get == 0


def test_a_probe_that_runs_for_a_minute_has_passed(db: apsw.Connection) -> None:
    told.cool(db, "api", NOW, 100, NOW)
    claim(db, put(db, NOW), 77)
    attempts.mark_running(db, 1, 77, None, None, NOW)
    ledger.note_start(db, ["api"], ["api"], 77)
    assert ledger.rests(db, {"api": 6}, NOW + 59_999).changes_at == NOW + 60_000
    assert not ledger.rests(db, {"api": 6}, NOW + 60_000).cooldowns["api"].probing


def test_a_probe_that_never_ran_told_nothing(db: apsw.Connection) -> None:
    told.cool(db, "api", NOW, 100, NOW)
    ledger.note_start(db, ["api"], ["api"], 77)
    ledger.note_end(db, 77, False, NOW)
    assert ledger.rests(db, {"api": 6}, NOW).cooldowns["api"].allowed == 1


def test_a_probe_that_is_gone_without_a_word_keeps_nobody_out(db: apsw.Connection) -> None:
    told.cool(db, "api", NOW, 100, NOW)
    ledger.note_start(db, ["api"], ["api"], 77)
    assert ledger.rests(db, {"api": 6}, NOW).cooldowns["api"] == Cooldown(NOW, False, 1)


def test_the_longer_rest_stands_and_zero_clears(db: apsw.Connection) -> None:
    told.cool(db, "api", NOW + 900, 100, NOW)
    told.cool(db, "api", NOW + 100, 100, NOW)
    assert ledger.rests(db, {"api": 6}, NOW).cooldowns["api"].until == NOW + 900
    told.warm(db, "api")
    assert ledger.rests(db, {"api": 6}, NOW).cooldowns == {}


MINUTE, HOUR = 60_000, 3_600_000


def limited(db: apsw.Connection, now: int, retry_after_ms: int | None = None) -> int:
    """How long the provider rests from `now` on."""
    return ledger.rate_limited(db, ["api"], retry_after_ms, 100, now) - now


def test_rests_in_a_row_double_up_to_six_hours(db: apsw.Connection) -> None:
    now, seen = NOW, []
    for _ in range(12):
        seen.append(limited(db, now))
        now += seen[-1] + 1
    assert seen[:5] == [30_000, 60_000, 120_000, 240_000, 480_000]
    assert seen[-2:] == [6 * HOUR, 6 * HOUR]


def test_limits_met_while_it_rests_count_once_and_the_longest_wait_stands(db: apsw.Connection) -> None:
    assert limited(db, NOW) == 30_000
    assert [limited(db, NOW + at) + at for at in (1, 2, 3)] == [30_000] * 3
    assert limited(db, NOW + 4, 10 * MINUTE) == 10 * MINUTE
    assert limited(db, NOW + 5, 1_000) == 10 * MINUTE - 1
    assert limited(db, NOW + 11 * MINUTE) == 60_000, "the second in a row, not the sixth"


@pytest.mark.parametrize(("asked", "rest"), [(1_000, 30_000), (90_000, 90_000), (7 * 24 * HOUR, 6 * HOUR)])
def test_it_rests_for_what_was_asked_for_within_bounds(db: apsw.Connection, asked: int, rest: int) -> None:
    assert limited(db, NOW, asked) == rest


def test_a_row_is_over_when_a_probe_succeeds_or_time_has_passed_or_by_hand(db: apsw.Connection) -> None:
    def after(rested: int, ended: str) -> int:
        now = NOW + limited(db, NOW)
        now += limited(db, now + 1) + 1
        ledger.note_start(db, ["api"], ledger.rests(db, {"api": 2}, now).cooldowns, 77)
        ledger.note_end(db, 77, True, now, succeeded=ended == "succeeded")
        if ended == "cleared":
            told.warm(db, "api")
        found = limited(db, now + rested)
        told.warm(db, "api")
        return found

    assert after(1, "failed") == 120_000
    assert after(1, "succeeded") == 30_000
    assert after(1, "cleared") == 30_000
    assert after(10 * MINUTE + 1, "failed") == 30_000


def test_a_probe_that_meets_the_limit_again_has_not_passed(db: apsw.Connection) -> None:
    limited(db, NOW)
    claim(db, put(db, NOW), 77)
    now = NOW + 30_000
    ledger.note_start(db, ["api"], ledger.rests(db, {"api": 2}, now).cooldowns, 77)
    limited(db, now)
    ledger.note_end(db, 77, True, now)
    assert ledger.rests(db, {"api": 2}, now).cooldowns["api"] == Cooldown(now + 60_000, False, 1)
    finish(db, 1)


def test_a_rest_asked_for_by_hand_is_none_in_the_row(db: apsw.Connection) -> None:
    told.cool(db, "api", NOW + HOUR, 100, NOW)
    assert limited(db, NOW) == HOUR
    assert limited(db, NOW + HOUR + 1) == 30_000


def test_without_a_provider_nothing_rests(db: apsw.Connection) -> None:
    assert ledger.rate_limited(db, [], 90_000, 100, NOW) == 0
    assert ledger.rests(db, {}, NOW).cooldowns == {}


def test_a_footprint_rises_at_once_and_sinks_slowly(db: apsw.Connection) -> None:
    for procs, mb in ((10, 100), (20, 50)):
        ledger.note_footprint(db, "k", procs, mb, NOW)
    assert ledger.footprints(db) == {"k": Footprint(20, 90)}
    for _ in range(30):
        ledger.note_footprint(db, "k", 2, 10, NOW)
    assert ledger.footprints(db)["k"].procs < 4


def test_what_observing_would_have_refused_is_counted(db: apsw.Connection) -> None:
    for _ in range(3):
        ledger.observe(db, "start", "uid_procs", "k", "t", NOW)
    assert db.execute("SELECT stage, reason, count FROM observed").fetchall() == [("start", "uid_procs", 3)]


def test_observing_begins_with_a_clean_sheet_and_leaves_it_to_be_read(db: apsw.Connection) -> None:
    ledger.observe(db, "start", "old", "k", "t", NOW)
    for later in range(2):
        ledger.keep_observing(db, True, NOW + later)
    assert db.execute("SELECT value FROM meta WHERE key = 'observe'").get == NOW
    assert db.execute("SELECT count(*) FROM observed").get == 0
    ledger.observe(db, "start", "new", "k", "t", NOW)
    ledger.keep_observing(db, False, NOW)
    assert db.execute("SELECT value FROM meta WHERE key = 'observe'").get is None
    assert db.execute("SELECT reason FROM observed").get == "new"


def test_what_a_clock_that_was_ahead_wrote_down_counts_from_now_on(db: apsw.Connection) -> None:
    day = 86_400_000
    ledger.reserve(db, "acme", 1, [("tokens", 300)], NOW + day)
    ledger.reserve(db, "acme", 2, [("tokens", 10)], NOW - 30_000)
    told.cool(db, "browser", NOW + day + 60_000, 1_000, NOW + day)
    told.cool(db, "shell", NOW + 60_000, 1_000, NOW - 5)
    ledger.not_after(db, TOKENS, NOW)
    assert used(db, NOW) == 310
    assert used(db, NOW + 30_000) == 300
    assert used(db, NOW + 60_000) == 0
    resting = ledger.rests(db, {}, NOW).cooldowns
    assert {name: each.until for name, each in resting.items()} == {
        "browser": NOW + 60_000,
        "shell": NOW + 60_000,
    }
