"""Alive, ended, lost or never ran: by the attempt's file."""

from __future__ import annotations

import itertools

import pytest

from clawq.rules.liveness import Evidence, judge, next_check, overdue, renew_every, worked

CASES = [
    # locked, ran, exit code, same boot, known running -> verdict
    ((True, False, None, True, False), "alive"),  # the shell has not spoken yet
    ((True, True, None, True, True), "alive"),
    ((True, True, 0, True, True), "alive"),  # it ended, its shell is about to
    ((False, True, 0, True, True), "ended"),
    ((False, True, 3, True, False), "ended"),
    ((False, True, None, True, True), "lost"),
    ((False, True, None, True, False), "lost"),
    ((False, False, None, True, False), "never_ran"),
    ((False, False, 1, True, False), "never_ran"),  # the shell's own failure
    ((False, False, None, True, True), "lost"),  # its file was deleted
    ((True, True, None, False, True), "lost"),  # another boot: no lock is believed
    ((False, False, None, False, False), "lost"),  # its marks may not have reached the disk
    ((False, True, 7, False, True), "ended"),
]


@pytest.mark.parametrize(("evidence", "verdict"), CASES)
def test_judge(evidence: tuple[bool, bool, int | None, bool, bool], verdict: str) -> None:
    assert judge(Evidence(*evidence)) == verdict


def test_nothing_that_may_have_run_is_called_never_ran() -> None:
    for locked, ran, code, boot, known in itertools.product((0, 1), (0, 1), (None, 0, 1), (0, 1), (0, 1)):
        evidence = Evidence(bool(locked), bool(ran), code, bool(boot), bool(known))
        if judge(evidence) == "never_ran":
            assert not evidence.ran
            assert not evidence.known_running
            assert evidence.same_boot


def test_overdue_names_the_first_reason() -> None:
    calm = {"started": 0, "last_sign": 900, "lease_ms": 500, "timeout_ms": 2_000, "deadline": None}
    assert overdue(1_000, **calm) is None
    assert overdue(1_400, **calm) == "stalled"
    assert overdue(2_000, **(calm | {"last_sign": 1_999})) == "timed_out"
    assert overdue(1_000, **(calm | {"deadline": 1_000})) == "deadline"
    assert overdue(10**9, **(calm | {"timeout_ms": 0, "last_sign": 10**9})) is None


def test_next_check_is_the_first_moment_that_overdue_changes() -> None:
    clocks = {"started": 0, "last_sign": 900, "lease_ms": 500, "timeout_ms": 2_000, "deadline": 1_200}
    at = next_check(**clocks)
    assert overdue(at - 1, **clocks) is None
    assert overdue(at, **clocks) == "deadline"


@pytest.mark.parametrize(
    ("lease", "timeout", "deadline", "at"),
    [
        (50, 0, None, 60),
        (50, 20, None, 20),
        (50, 90, None, 60),
        (50, 20, 15, 15),
        (50, 20, 30, 20),
        (50, 0, 30, 30),
    ],
)
def test_the_first_of_lease_timeout_and_deadline_is_looked_at(
    lease: int, timeout: int, deadline: int | None, at: int
) -> None:
    assert next_check(0, 10, lease, timeout, deadline) == at


def test_an_exit_code_is_believed_where_the_database_knows_that_the_agent_ran() -> None:
    known = Evidence(locked=False, ran=False, exit_code=3, same_boot=True, known_running=True)
    assert judge(known) == "ended"
    assert judge(known._replace(same_boot=False)) == "ended"


def test_a_long_lease_leaves_no_agent_that_computes_looking_quiet() -> None:
    """Its CPU time is written down with its lease."""
    minute = 60_000
    assert renew_every(2 * minute, 15 * minute) == minute // 2
    assert renew_every(24 * 60 * minute, 15 * minute) <= 15 * minute // 2
    assert renew_every(24 * 60 * minute, 1_000) == 5_000
    assert renew_every(1_000, 15 * minute) == 500


@pytest.mark.parametrize(
    ("cpu", "before", "passed", "expected"),
    [(100, 100, 5000, False), (110, 100, 5000, False), (130, 100, 5000, True), (50, 100, 5000, True)],
)
def test_a_timer_that_ticks_is_no_work(cpu: int, before: int, passed: int, expected: bool) -> None:
    assert worked(cpu, before, passed) is expected
