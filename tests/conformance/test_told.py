"""What agents and people tell the accounts: whose word counts, and what becomes of it."""

from __future__ import annotations

import time

import pytest

from clawq import inside
from clawq.errors import LeaseLost, UsageError
from clawq.store import ledger, told
from clawq.store.ledger import BudgetRule
from tests.desk import MINUTE, NOW, Desk


@pytest.mark.parametrize("state", ["starting", "running", "waiting"])
def test_an_attempt_under_way_owns_its_job(desk: Desk, state: str) -> None:
    job_id = desk.take(tenant="acme").job_id
    desk.move(job_id, "starting")
    if state != "starting":
        desk.move(job_id, "running")
        desk.move(job_id, state) if state != "running" else None
    assert told.owner(desk.db, job_id, job_id) == "acme"
    assert told.owner(desk.db, job_id, job_id + 1) is None
    assert told.owner(desk.db, job_id + 1, job_id) is None
    desk.move(job_id, "dead")
    assert told.owner(desk.db, job_id, job_id) is None


def test_the_highest_figure_stands_and_what_passes_the_reservation_is_spent(desk: Desk) -> None:
    rules = {"tokens": BudgetRule(100, MINUTE, None)}
    ledger.reserve(desk.db, "a", 1, [("tokens", 40)], NOW)
    for total, stands, used in ((10, 10, 40), (30, 30, 40), (20, 30, 40), (70, 70, 70), (170, 170, 170)):
        assert told.tell_spend(desk.db, "a", 1, "tokens", total, NOW) == stands
        assert told.window(desk.db, "tokens", NOW - MINUTE) == ({"a": used}, NOW)
        assert ledger.budgets(desk.db, rules, NOW)["tokens"].used == used


@pytest.fixture
def agent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> int:
    """The process of the job with this id, which spends and holds nothing yet."""
    desk.configure(
        budgets={
            "tokens": {"limit": 100, "per_ms": 60 * MINUTE, "per_tenant": 60},
            "calls": {"limit": 9, "per_ms": 60 * MINUTE, "per_tenant": None},
        }
    )
    job_id = desk.take().job_id
    desk.run(job_id)
    monkeypatch.setenv("CLAWQ_JOB_ID", str(job_id))
    monkeypatch.setenv("CLAWQ_TOKEN", str(job_id))
    return job_id


def test_spending_is_recorded_and_says_when_it_was_too_much(desk: Desk, agent: int) -> None:
    spent = inside.spend("calls", 9)
    assert (spent.recorded, spent.used, spent.limit, spent.overdrawn) == (9, 9, 9, False)
    assert spent.retry_after_s is None
    spent = inside.spend("calls", 11)
    assert (spent.recorded, spent.used, spent.limit, spent.overdrawn) == (11, 11, 9, True)
    assert spent.retry_after_s is not None
    assert 3_590 <= spent.retry_after_s <= 3_600
    # A tenant's part is a limit of its own.
    spent = inside.spend("tokens", 61)
    assert (spent.used, spent.limit, spent.overdrawn) == (61, 60, True)


def test_an_old_token_spends_and_throttles_nothing(desk: Desk, agent: int) -> None:
    desk.move(agent, "queued")
    for ask in (lambda: inside.spend("calls", 1), lambda: inside.throttle("shell", MINUTE)):
        with pytest.raises(LeaseLost, match=f"job {agent} is no longer this agent's: stop") as lost:
            ask()
        assert (lost.value.exit_code, lost.value.reason) == (77, "lease_lost")
    assert desk.db.execute("SELECT (SELECT count(*) FROM spends) + (SELECT count(*) FROM cooldowns)").get == 0


@pytest.mark.parametrize(
    "env",
    [{}, {"CLAWQ_JOB_ID": "1"}, {"CLAWQ_JOB_ID": "1", "CLAWQ_TOKEN": "x"}, {"CLAWQ_TOKEN": "9" * 30}],
)
def test_outside_a_job_nobody_spends(
    desk: Desk, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="this is not inside a job"):
        inside.spend("tokens", 1)


def test_the_names_are_those_that_are_configured(desk: Desk, agent: int) -> None:
    with pytest.raises(UsageError, match="no budget 'token' is configured: did you mean tokens"):
        inside.spend("token", 1)
    with pytest.raises(UsageError, match="no resource 'browsr' is configured: did you mean browser"):
        inside.throttle("browsr", MINUTE)


def test_a_rest_is_set_prolonged_and_ended(desk: Desk) -> None:
    before = time.time_ns() // 1_000_000
    first = inside.throttle("shell", 10 * MINUTE)
    assert first is not None
    assert before + 10 * MINUTE <= first <= before + 11 * MINUTE
    assert inside.throttle("shell", MINUTE) == first  # the longer one stands
    longer = inside.throttle("shell", 20 * MINUTE)
    assert longer is not None
    assert longer > first
    step_ms = desk.db.execute("SELECT step_ms FROM cooldowns").get
    assert 1_000 <= int(str(step_ms)) <= 2_000
    assert not desk.forecast(now=before, needs="shell")
    assert inside.throttle("shell", 0) is None
    assert inside.throttle("shell", 0) is None
    assert desk.forecast(now=before, needs="shell")


def test_a_day_is_the_longest_rest(desk: Desk) -> None:
    assert inside.throttle("shell", inside.REST_MOST_MS) is not None
    with pytest.raises(UsageError, match="a rest is at most 1d"):
        inside.throttle("shell", inside.REST_MOST_MS + 1)
