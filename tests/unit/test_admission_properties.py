"""What holds for any configuration and any load, held against oracles of its own (tests/oracles.py)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.rules.admission import Decision
from clawq.rules.facts import Host
from tests.oracles import Auditor, World
from tests.simulator import MINUTE, SECOND, Ask, BudgetRule, Job, Simulator
from tests.sizes import examples

CLOSED = Host(user_procs=100)
OPEN = Host(user_procs=0)
NEEDS = ("", "", "r", "s", "r,s")


@st.composite
def worlds(draw: st.DrawFn, shares: bool = True, spend: bool = True) -> World:
    """Configurations in which every job of `jobs` can run some day."""
    per_tenant = draw(st.none() | st.integers(4, 10))
    amounts = st.integers(1, 4)
    return World(
        max_running=draw(st.integers(1, 6)),
        resources={"r": draw(st.integers(1, 2)), "s": draw(st.integers(1, 3))},
        tenants=draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 4))),
        kinds=draw(st.dictionaries(st.sampled_from("kq"), st.integers(1, 4))),
        weights=draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from((0.5, 1.0, 2.0, 3.0)))),
        workflow=draw(st.integers(1, 3)),
        budgets={"tok": BudgetRule(10, draw(st.integers(1, 20)) * MINUTE, per_tenant)} if spend else {},
        spends=draw(st.dictionaries(st.sampled_from("kq"), st.fixed_dictionaries({"tok": amounts})))
        if spend
        else {},
        shares=draw(st.dictionaries(st.integers(0, 3), st.integers(1, 25))) if shares else {},
        reserve_after=draw(st.sampled_from((0, 1, 5, 20))) * MINUTE,
        age_boost=draw(st.sampled_from((0, 2, 10))) * MINUTE,
    )


@st.composite
def jobs(draw: st.DrawFn, most: int = 30, deadlines: bool = True) -> list[Ask]:
    found = []
    for job_id in range(1, draw(st.integers(0, most)) + 1):
        arrives = draw(st.integers(0, 40)) * 30 * SECOND
        deadline = draw(st.none() | st.integers(1, 60)) if deadlines else None
        found.append(
            Ask(
                job_id,
                arrives,
                draw(st.integers(0, 12 * 60)) * SECOND,
                band=draw(st.integers(0, 3)),
                tenant=draw(st.sampled_from("abc")),
                kind=draw(st.sampled_from("kq")),
                needs=draw(st.sampled_from(NEEDS)),
                exclusive=draw(st.sampled_from((None, None, "x", "y"))),
                root_id=draw(st.sampled_from((None, None, 1_001, 1_002))),
                priority=draw(st.integers(-3, 3)),
                deadline_at=None if deadline is None else arrives + deadline * MINUTE,
                timeout=draw(st.sampled_from((None, 5, 30))) and 30 * MINUTE,
            )
        )
    return found


@st.composite
def troubles(draw: st.DrawFn) -> list[tuple[int, int, str]]:
    """(from, for how long, what): gates, pauses and cooldowns that come and go."""
    what = st.sampled_from(("gate", "pause", "pause a", "cool r"))
    minutes = st.integers(0, 30)
    return [
        (start * MINUTE, length * MINUTE, each)
        for start, length, each in draw(st.lists(st.tuples(minutes, minutes, what), max_size=2))
    ]


def happen(sim: Simulator, found: list[tuple[int, int, str]]) -> None:
    for start, length, what in found:
        if what == "gate":
            sim.set_host(start, CLOSED)
            sim.set_host(start + length, OPEN)
        elif what == "cool r":
            sim.at(start, lambda until=start + length: sim.cool("r", until))  # type: ignore[misc]
        else:
            sim.pause(start, ("tenant", "a") if what == "pause a" else ("all", ""))
            sim.pause(start + length)


@given(world=worlds(), load=jobs(), trouble=troubles())
@pytest.mark.sized
@examples(40, 600)
def test_no_limit_is_passed_no_admissible_head_waits_and_everything_ends(
    world: World, load: list[Ask], trouble: list[tuple[int, int, str]]
) -> None:
    sim = world.simulator(watch=Auditor(world), host=OPEN)
    found = [Job(*each) for each in load]
    sim.add(*found)
    happen(sim, trouble)
    sim.run()
    assert sim.drained
    assert all(job.state in ("ended", "expired") for job in found)
    assert len(sim.started) + sum(job.state == "expired" for job in found) == len(load)


@pytest.mark.sized
@examples(25, 400)
@given(world=worlds(), load=jobs(), trouble=troubles(), order=st.randoms(use_true_random=False))
def test_the_order_in_which_rows_are_read_decides_nothing(
    world: World, load: list[Ask], trouble: list[tuple[int, int, str]], order: Random
) -> None:
    def history(shuffle: Random | None) -> list[tuple[int, int]]:
        sim = world.simulator(shuffle=shuffle, host=OPEN)
        sim.add(*(Job(*each) for each in load))
        happen(sim, trouble)
        return [(at, job.job_id) for at, job, _ in sim.run().started]

    assert history(None) == history(order)


@pytest.mark.sized
@examples(30, 300)
@given(world=worlds(shares=False), load=jobs(deadlines=False))
def test_observing_starts_what_enforcing_would_have_refused_and_says_so(
    world: World, load: list[Ask]
) -> None:
    """Everything but what waits for its own exclusive name, which is the job's word and not a limit."""
    checked = 0

    def watch(sim: Simulator, decisions: list[Decision]) -> None:
        nonlocal checked
        for n, (_, job, would) in enumerate(sim.started[checked:], checked):
            refused_for = set(world.lacking(sim, job, started=n))
            assert (would in refused_for) if refused_for else would is None
        checked = len(sim.started)

    sim = world.simulator(watch=watch)
    sim.limits = sim.limits._replace(observing=True)
    found = [Job(*each) for each in load]
    sim.add(*found)
    sim.run()
    assert sim.drained
    assert all(job.started_at == job.arrives for job in found if job.exclusive is None)
    assert checked == len(load)
