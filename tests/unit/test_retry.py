"""What becomes of a job when an attempt ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq import states as job
from clawq.rules import classify
from clawq.rules.retry import (
    IN_A_ROW_MS,
    REST_FIRST_MS,
    REST_MOST_MS,
    Policy,
    Rest,
    after,
    after_probe,
    backoff,
    rest,
)

POLICY = Policy(
    max_attempts=3,
    backoff_ms=30_000,
    max_backoff_ms=3_600_000,
    max_age_ms=86_400_000,
    on_lost="retry",
    accepted_at=0,
    deadline_at=None,
)
FAILED = classify.by_exit_code(1)


def test_success_ends_the_job() -> None:
    assert after(classify.by_exit_code(0), 1, POLICY, False, 0, 1.0).state == job.SUCCEEDED


def test_a_failure_is_tried_again_later() -> None:
    decision = after(FAILED, 1, POLICY, False, now=1_000, jitter=1.0)
    assert decision == (job.SCHEDULED, "transient", 31_000)


@pytest.mark.parametrize(
    ("attempts", "state"), [(1, job.SCHEDULED), (2, job.SCHEDULED), (3, job.DEAD), (4, job.DEAD)]
)
def test_the_cap_on_attempts(attempts: int, state: str) -> None:
    assert after(FAILED, attempts, POLICY, False, 0, 1.0).state == state


@pytest.mark.parametrize("code", sorted(classify.PERMANENT_EXITS))
def test_what_cannot_work_goes_straight_to_dead(code: int) -> None:
    assert after(classify.by_exit_code(code), 1, POLICY, False, 0, 1.0).state == job.DEAD


def test_an_attempt_that_never_ran_is_queued_again_for_free() -> None:
    end = classify.NEVER_STARTED
    assert not end.charged
    assert after(end, 99, POLICY, False, 0, 1.0).state == job.QUEUED


@pytest.mark.parametrize("reason", ["timed_out", "stalled", "over_footprint", "stopped"])
def test_an_end_that_is_not_the_agents_own_goes_by_on_lost(reason: str) -> None:
    end = classify.by_kill(reason, 143)
    assert after(end, 1, POLICY._replace(on_lost="unknown"), False, 0, 1.0).state == job.UNKNOWN
    assert after(end, 1, POLICY, False, 0, 1.0).state in (job.SCHEDULED, job.QUEUED)


def test_a_job_that_outgrew_its_bounds_is_charged_and_tried_again() -> None:
    end = classify.by_kill("over_footprint", 143)
    assert (end.outcome, end.error_class) == ("over_footprint", "transient")
    assert end.error == "outgrew max_procs or max_mb"
    assert end.charged
    assert not end.own_word
    assert after(end, 1, POLICY, False, 0, 1.0).state == job.SCHEDULED
    assert after(end, 3, POLICY, False, 0, 1.0) == (job.DEAD, "max_attempts", None)


@pytest.mark.parametrize("code", [129, 137, 139, 143, 159])
def test_an_end_by_a_signal_is_not_the_agents_own(code: int) -> None:
    end = classify.by_exit_code(code)
    assert (end.signal, end.own_word) == (code - 128, False)
    assert after(end, 1, POLICY._replace(on_lost="unknown"), False, 0, 1.0).state == job.UNKNOWN


@pytest.mark.parametrize("code", [128, 160, 255])
def test_other_high_exit_codes_are_the_agents_own(code: int) -> None:
    assert classify.by_exit_code(code).own_word


def test_the_agents_own_failure_does_not_ask_a_person() -> None:
    assert after(FAILED, 1, POLICY._replace(on_lost="unknown"), False, 0, 1.0).state == job.SCHEDULED


def test_ended_by_stop_now_costs_no_attempt() -> None:
    end = classify.by_kill("stopped", 143)
    assert not end.charged
    assert after(end, 3, POLICY, False, 0, 1.0).state == job.QUEUED


@pytest.mark.parametrize(
    "end", [FAILED, classify.LOST, classify.NEVER_STARTED, classify.by_kill("timed_out", None)]
)
def test_a_cancel_that_was_asked_for_wins_over_a_retry(end: classify.End) -> None:
    assert after(end, 1, POLICY, True, 0, 1.0).state == job.CANCELLED


def test_success_stands_before_a_cancel() -> None:
    assert after(classify.by_exit_code(0), 1, POLICY, True, 0, 1.0).state == job.SUCCEEDED


def test_no_retry_after_the_deadline_or_too_old() -> None:
    soon = POLICY._replace(deadline_at=20_000)
    assert after(FAILED, 1, soon, False, 0, 1.0) == (job.DEAD, "deadline", None)
    old = POLICY._replace(max_age_ms=10_000)
    assert after(FAILED, 1, old, False, 0, 1.0) == (job.DEAD, "max_age", None)


@given(
    attempts=st.integers(1, 10_000),
    base=st.integers(1, 10**9),
    cap=st.integers(1, 10**9),
    jitter=st.floats(0.8, 1.2),
)
def test_backoff_is_never_past_its_cap_and_never_zero_for_long(
    attempts: int, base: int, cap: int, jitter: float
) -> None:
    delay = backoff(attempts, base, cap, jitter)
    assert 0 <= delay <= cap
    assert delay >= int(0.8 * min(base, cap)) - 1


@given(attempts=st.integers(1, 8), jitter=st.floats(0.8, 1.2))
def test_backoff_doubles(attempts: int, jitter: float) -> None:
    uncapped = 10**12
    ratio = backoff(attempts + 1, 30_000, uncapped, jitter) / backoff(attempts, 30_000, uncapped, jitter)
    assert ratio == pytest.approx(2, rel=1e-3)


LIMITED = classify.judge(
    classify.Evidence(exit_code=1, told=classify.Word("rate_limit", retry_after_ms=50_000)),
    classify.Standing(holds_provider=True),
)


def test_a_free_rate_limit_comes_back_when_its_provider_has_rested() -> None:
    assert after(LIMITED, 0, POLICY, False, 1_000, 1.0, 61_000) == (job.SCHEDULED, "rate_limit", 61_000)
    assert after(LIMITED, 99, POLICY, False, 1_000, 1.0, 61_000).state == job.SCHEDULED


@pytest.mark.parametrize(("rests_until", "at"), [(0, 51_000), (61_000, 61_000)])
def test_a_charged_one_waits_for_whatever_is_longest(rests_until: int, at: int) -> None:
    charged = LIMITED._replace(charged=True)
    assert after(charged, 1, POLICY, False, 1_000, 1.0, rests_until).run_after == at
    assert after(charged, 3, POLICY, False, 1_000, 1.0, rests_until).reason == "max_attempts"


def test_a_limit_of_a_week_is_not_retried_for_a_week() -> None:
    week = LIMITED._replace(charged=True, retry_after_ms=7 * 86_400_000)
    assert after(week, 1, POLICY, False, 0, 1.0) == (job.DEAD, "max_age", None)
    assert after(LIMITED, 0, POLICY, False, 86_300_000, 1.0, 86_400_001) == (job.DEAD, "max_age", None)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (FAILED, "transient"),
        (LIMITED, "rate_limit"),
        (LIMITED._replace(reason="quota"), "quota"),
        (classify.by_kill("timed_out", None), "timeout"),
        (classify.by_kill("stalled", None), "stalled"),
        (classify.by_kill("over_footprint", None), "over_footprint"),
        (classify.by_kill("stopped", None), "lost"),
        (classify.LOST, "lost"),
        (classify.NEVER_STARTED, "never_started"),
    ],
)
def test_the_reason_of_every_retry(end: classify.End, reason: str) -> None:
    assert after(end, 1, POLICY, False, 0, 1.0).reason == reason


@given(
    streak=st.integers(1, 60),
    asked=st.none() | st.integers(0, 10**12),
    rested=st.integers(0, 10**8),
    resting=st.booleans(),
)
def test_a_rest_is_at_least_thirty_seconds_and_at_most_six_hours(
    streak: int, asked: int | None, rested: int, resting: bool
) -> None:
    last = Rest(streak, 0, 30_000)
    now = 10_000 if resting else 30_000 + rested
    found = rest(last, resting, asked, now)
    assert found.until >= last.until
    assert found.until - now <= REST_MOST_MS
    if not resting:
        assert found.until - now >= max(REST_FIRST_MS, min(asked or 0, REST_MOST_MS))


# ---------------------------------------------------------------- each rule by itself, at its edge


def test_an_open_effect_counts_more_than_any_end() -> None:
    for code in (0, 1, 2):
        end = classify.by_exit_code(code)
        assert after(end, 1, POLICY, True, 0, 1.0, effects_open=True) == (job.UNKNOWN, "effect_open", None)


def test_an_attempt_that_was_ended_for_a_cancel_is_cancelled_though_the_request_is_gone() -> None:
    assert after(classify.by_kill("cancelled", 143), 1, POLICY, False, 0, 1.0).state == job.CANCELLED


def test_one_that_never_ran_costs_nothing_even_when_the_job_is_too_old() -> None:
    policy = POLICY._replace(deadline_at=10, max_age_ms=0, on_lost="unknown")
    assert after(classify.NEVER_STARTED, 99, policy, False, 10, 1.0) == (job.QUEUED, "never_started", None)


def test_one_that_never_ran_for_the_eleventh_time_is_tried_at_ever_longer_intervals_until_its_age() -> None:
    ends = [
        classify.judge(classify.Evidence(ran=False), classify.Standing(forks_failed=n)) for n in (9, 10, 12)
    ]
    policy = POLICY._replace(max_backoff_ms=200_000, max_age_ms=210_000)
    assert [after(end, 1, policy, False, 10_000, 1.0) for end in ends] == [
        (job.QUEUED, "never_started", None),
        (job.SCHEDULED, "never_started", 70_000),
        (job.SCHEDULED, "never_started", 210_000),
    ]
    assert after(ends[2], 1, policy, False, 10_001, 1.0) == (job.DEAD, "max_age", None)
    assert not any(end.charged for end in ends)


@pytest.mark.parametrize(
    ("deadline", "attempts", "reason"),
    [
        (1_000, 3, "deadline"),  # it has passed: whether attempts are left is no matter
        (1_001, 3, "max_attempts"),
        (1_001, 1, "deadline"),  # it passes before the retry
        (31_000, 1, "deadline"),
        (31_001, 1, "transient"),
    ],
)
def test_no_retry_starts_at_the_deadline_or_later(deadline: int, attempts: int, reason: str) -> None:
    decision = after(FAILED, attempts, POLICY._replace(deadline_at=deadline), False, 1_000, 1.0)
    assert decision.reason == reason


@pytest.mark.parametrize(("oldest", "reason"), [(31_000, "transient"), (30_999, "max_age")])
def test_a_retry_may_start_at_the_last_moment_of_its_age(oldest: int, reason: str) -> None:
    policy = POLICY._replace(max_age_ms=oldest)
    assert after(FAILED, 1, policy, False, 1_000, 1.0).reason == reason


def test_a_charged_failure_is_scheduled_though_it_waits_for_nothing() -> None:
    decision = after(FAILED, 1, POLICY._replace(backoff_ms=0), False, 1_000, 1.0)
    assert decision == (job.SCHEDULED, "transient", 1_000)


def test_the_cap_of_a_backoff_is_reached_before_it_is_spread() -> None:
    assert backoff(1, 1_000, 1_000, 1.0) == 1_000
    assert backoff(1, 1_001, 1_000, 1.0) == 900
    assert backoff(0, 1_000, 9_000, 1.0) == 1_000


def test_what_a_probe_denies_is_tried_again_though_the_agent_said_it_had_succeeded() -> None:
    policy = POLICY._replace(on_lost="unknown")
    for end in (classify.by_exit_code(0), classify.LOST):
        assert after_probe(end, 1, policy, False, 1_000, 1.0).state == job.SCHEDULED
        assert after_probe(end, 3, policy, False, 1_000, 1.0) == (job.DEAD, "max_attempts", None)


LAST = Rest(2, 0, 60_000)
LONG = Rest(9, 0, REST_MOST_MS)
LATEST = 2 * REST_MOST_MS  # as long after it as it was itself


@pytest.mark.parametrize(
    ("last", "resting", "asked", "now", "then"),
    [
        (None, False, None, 5, Rest(1, 5, 5 + REST_FIRST_MS)),
        (None, False, 90_000, 5, Rest(1, 5, 90_005)),
        (None, False, REST_MOST_MS + 1, 5, Rest(1, 5, 5 + REST_MOST_MS)),
        (None, True, None, 5, Rest(1, 5, 5 + REST_FIRST_MS)),
        # Met while it rests: counted once, the longer wait stands.
        (LAST, True, None, 50_000, LAST),
        (LAST, True, 5_000, 50_000, LAST),
        (LAST, True, 20_000, 50_000, LAST._replace(until=70_000)),
        (LAST, True, REST_MOST_MS + 9, 50_000, LAST._replace(until=50_000 + REST_MOST_MS)),
        # The next in a row is twice as long, and at most six hours.
        (LAST, False, None, 60_000 + IN_A_ROW_MS, Rest(3, 660_000, 660_000 + 4 * REST_FIRST_MS)),
        (LAST, False, None, 60_001 + IN_A_ROW_MS, Rest(1, 660_001, 660_001 + REST_FIRST_MS)),
        (
            LONG,
            False,
            None,
            2 * REST_MOST_MS,
            Rest(10, 2 * REST_MOST_MS, 2 * REST_MOST_MS + 512 * REST_FIRST_MS),
        ),
        (LONG, False, None, 2 * REST_MOST_MS + 1, Rest(1, 2 * REST_MOST_MS + 1, 2 * REST_MOST_MS + 30_001)),
        (Rest(99, 0, 0), False, None, 0, Rest(100, 0, REST_MOST_MS)),
    ],
)
def test_how_long_a_provider_rests(
    last: Rest | None, resting: bool, asked: int | None, now: int, then: Rest
) -> None:
    assert rest(last, resting, asked, now) == then
