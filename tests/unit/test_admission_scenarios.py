"""Days in the life of a queue, simulated: what its users would notice if the order were wrong."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from clawq.rules.admission import Decision
from clawq.rules.facts import Host
from clawq.rules.fairness import share_slots
from tests.simulator import HOUR, MINUTE, OPEN, SECOND, BudgetRule, Job, Simulator, limits

CRITICAL, INTERACTIVE, NORMAL, BULK = range(4)
CLOSED = Host(user_procs=1_000)


def many(n: int, first: int = 1, arrives: int = 0, length: int = MINUTE, **columns: object) -> list[Job]:
    return [Job(first + i, arrives, length, **columns) for i in range(n)]  # type: ignore[arg-type]


def uneven(jobs: list[Job]) -> list[Job]:
    """The first few end at different times, so that slots come free one by one."""
    for n, job in enumerate(jobs[:8]):
        job.length = job.length * (n + 1) // 8
    return jobs


def before(sim: Simulator, job: Job) -> list[Job]:
    """Who was started between this job's arrival and its own start."""
    assert job.started_at is not None
    return [each for _, each, _ in sim.started[: _place(sim, job)] if (each.started_at or 0) >= job.arrives]


def _place(sim: Simulator, job: Job) -> int:
    return next(n for n, each in enumerate(sim.started) if each.job is job)


class Stream:
    """One job of these columns always waits: the next arrives when the one before it starts."""

    def __init__(self, numbers: Iterator[int], length: int, **columns: object) -> None:
        self.numbers, self.length, self.columns = numbers, length, columns

    def next(self, now: int) -> Job:
        return Job(next(self.numbers), now, self.length, **self.columns)  # type: ignore[arg-type]


def keep_flowing(sim: Simulator, *streams: Stream) -> None:
    """From now on; call before `run`."""
    owner: dict[int, Stream] = {}

    def add(stream: Stream) -> None:
        job = stream.next(sim.now)
        owner[job.job_id] = stream
        sim.add(job)

    def watch(sim: Simulator, decisions: list[Decision]) -> None:
        for at, job, _ in reversed(sim.started):
            if at < sim.now:
                break
            if job.job_id in owner:
                add(owner.pop(job.job_id))

    for stream in streams:
        add(stream)
    sim.watch = watch


# ---------------------------------------------------------------- bulk and chat


def test_ten_thousand_bulk_jobs_of_one_tenant_do_not_delay_the_chat_of_another() -> None:
    sim = Simulator(limits(max_running=4))
    sim.add(*uneven(many(10_000, tenant="mass", band=BULK, length=5 * MINUTE)))
    chat = Job(90_000, 30 * MINUTE + 1, SECOND, band=INTERACTIVE, tenant="person")
    sim.add(chat)
    sim.run(HOUR)
    assert before(sim, chat) == []


@pytest.mark.parametrize("kinds", [1, 20])
@pytest.mark.parametrize("minutes", [1, 5, 20])
def test_five_thousand_bulk_jobs_of_the_evening_do_not_delay_ones_own_chat_at_night(
    kinds: int, minutes: int
) -> None:
    """One tenant alone, one kind after the other: all but one lane have waited since the evening."""
    sim = Simulator(limits(max_running=8))
    bulk = many(5_000, band=BULK, length=minutes * MINUTE)
    for n, job in enumerate(bulk):
        job.kind = f"k{n * kinds // 5_000}"
    chats = [Job(90_000 + n, hour * HOUR + 1, SECOND, band=INTERACTIVE) for n, hour in enumerate((1, 4, 8))]
    sim.add(*uneven(bulk), *chats)
    sim.run(9 * HOUR)
    assert [before(sim, chat) for chat in chats] == [[], [], []]


def test_after_a_long_closed_gate_a_night_of_bulk_does_not_pass_the_mornings_chat() -> None:
    sim = Simulator(limits(max_running=2, max_user_procs=500), look_every=10 * SECOND)
    for n, job in enumerate(many(300, band=BULK, length=MINUTE)):
        job.kind, job.arrives = f"k{n % 10}", n * MINUTE
        sim.add(job)
    sim.set_host(0, CLOSED)
    sim.set_host(8 * HOUR, OPEN)
    chats = many(5, first=1_000, arrives=8 * HOUR - SECOND, band=INTERACTIVE, length=MINUTE)
    chats += many(5, first=2_000, arrives=8 * HOUR + 3 * MINUTE + 1, band=INTERACTIVE, length=MINUTE)
    sim.add(*chats)
    sim.run(9 * HOUR)
    assert all(each.band == INTERACTIVE for chat in chats for each in before(sim, chat))


def test_bulk_that_chat_holds_back_gets_one_start_for_each_rise_however_many_kinds_it_has() -> None:
    sim = Simulator(limits(max_running=1))
    sim.add(*many(400, first=10_000, band=BULK, length=SECOND))  # its clock is far ahead of chat's
    sim.run(10 * MINUTE)
    for n, job in enumerate(many(50, first=1_000, arrives=sim.now, band=BULK, length=SECOND)):
        job.kind = f"k{n}"
        sim.add(job)
    keep_flowing(sim, Stream(itertools.count(1), MINUTE, band=INTERACTIVE))
    sim.run(6 * HOUR)
    starts = [at // MINUTE for at, _, _ in sim.starts_of(band=BULK) if at >= 10 * MINUTE]
    # Twenty minutes bring it level with chat, where it goes first.
    assert all(20 <= later - earlier <= 21 for earlier, later in itertools.pairwise([10, *starts]))
    assert len(starts) >= 16


def test_where_every_job_is_longer_than_a_boost_the_longest_wait_goes_first() -> None:
    """All have risen as far as they can, and the clocks of two bands say nothing of each other."""
    sim = Simulator(limits(max_running=1))
    sim.add(*many(400, first=10_000, band=BULK, length=SECOND))
    sim.run(10 * MINUTE)
    numbers = itertools.count(1)
    streams = [Stream(numbers, 15 * MINUTE, band=band) for band in (CRITICAL, INTERACTIVE, NORMAL)]
    keep_flowing(sim, *streams)
    bulk = Job(90_000, 11 * MINUTE, MINUTE, band=BULK)
    sim.add(bulk)
    sim.run(6 * HOUR)
    assert bulk.started_at is not None
    assert bulk.started_at - bulk.arrives <= 30 * MINUTE + 4 * 15 * MINUTE


# ---------------------------------------------------------------- shares of bands

HALF_CHAT = share_slots({CRITICAL: 25, INTERACTIVE: 50}, 8)


def test_idle_slots_are_borrowed_and_one_of_critical_and_of_interactive_stays_free() -> None:
    sim = Simulator(limits(max_running=8, band_slots=HALF_CHAT))
    sim.add(*many(200, band=BULK, length=10 * MINUTE))
    chat = Job(1_000, 5 * MINUTE, 30 * MINUTE, band=INTERACTIVE)
    alarm = Job(1_001, 6 * MINUTE, 30 * MINUTE, band=CRITICAL)
    sim.add(chat, alarm)
    sim.run(5 * MINUTE - 1)
    assert len(sim.active) == 6
    sim.run(7 * MINUTE)
    assert (chat.started_at, alarm.started_at) == (5 * MINUTE, 6 * MINUTE)
    sim.run(15 * MINUTE)
    # Their next one finds a slot too: what bulk gave back was not lent again.
    assert Counter(job.band for job in sim.active.values()) == {INTERACTIVE: 1, CRITICAL: 1, BULK: 4}


def test_critical_work_goes_first_also_where_only_interactive_has_a_share() -> None:
    sim = Simulator(limits(max_running=1, band_slots=share_slots({INTERACTIVE: 60}, 1)))
    sim.add(Job(1, 0, MINUTE, band=INTERACTIVE), Job(2, 0, MINUTE, band=CRITICAL))
    sim.run()
    assert [job.job_id for _, job, _ in sim.started] == [2, 1]


# ---------------------------------------------------------------- tenants

LENGTHS = (SECOND, MINUTE, 6 * MINUTE, 15 * MINUTE, 2 * HOUR)


@pytest.mark.parametrize("length", LENGTHS)
def test_weights_two_and_one_and_one_slot(length: int) -> None:
    sim = Simulator(limits(max_running=1, weights={"a": 2, "b": 1}))
    sim.add(*many(50, tenant="b", length=length), *many(50, first=100, tenant="a", length=length))
    sim.run(29 * length)
    assert len(sim.started) == 30
    had = Counter(job.tenant for _, job, _ in sim.started)
    assert abs(had["a"] - 20) <= 1


@pytest.mark.parametrize("length", LENGTHS)
def test_a_tenant_that_spreads_over_fifty_kinds_gains_nothing(length: int) -> None:
    sim = Simulator(limits(max_running=2))
    spread = many(500, tenant="spread", length=length)
    for n, job in enumerate(spread):
        job.kind = f"k{n % 50}"
    sim.add(*spread, *many(500, first=1_000, tenant="plain", length=length))
    sim.run(150 * length)
    had = Counter(job.tenant for _, job, _ in sim.started)
    assert abs(had["spread"] - had["plain"]) <= 1


def test_a_tenant_that_comes_back_has_saved_nothing_up() -> None:
    sim = Simulator(limits(max_running=1))
    sim.add(*many(500, tenant="busy"), *many(50, first=1_000, arrives=100 * MINUTE, tenant="back"))
    sim.run(120 * MINUTE - 1)
    had = Counter(job.tenant for at, job, _ in sim.started if at >= 100 * MINUTE)
    assert had == {"busy": 10, "back": 10}


# ---------------------------------------------------------------- jobs that need two things at once


@pytest.mark.parametrize("length", [MINUTE, 4 * MINUTE, 10 * MINUTE])
@pytest.mark.parametrize("tenants", ["xxx", "xab", "xyy", "zab"])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_job_that_needs_both_starts_under_endless_jobs_that_need_one(
    length: int, tenants: str, slots: int
) -> None:
    rules = limits(max_running=20, resources={"a": slots, "b": slots})
    sim = Simulator(rules)
    numbers = itertools.count(1)
    streams = [
        Stream(numbers, length, tenant=tenants[1], needs="a", kind="only_a"),
        Stream(numbers, length, tenant=tenants[2], needs="b", kind="only_b"),
    ]
    # Out of step: when a slot of one is free, those of the other are taken.
    sim.add(*(Job(900_000 + n, n * length // slots, length, needs="a") for n in range(slots)))
    sim.add(*(Job(910_000 + n, (2 * n + 1) * length // slots // 2, length, needs="b") for n in range(slots)))
    keep_flowing(sim, *streams)
    both = Job(999_999, 3 * length + 1, length, tenant=tenants[0], needs="a,b", kind="both")
    sim.add(both)
    sim.run(2 * HOUR)
    assert both.started_at is not None
    assert both.started_at - both.arrives <= rules.reserve_after_ms + 2 * length


def test_whoever_was_promised_its_slots_keeps_them_when_its_tenants_turn_is_over() -> None:
    """Its own tenant's next start put a reserved job behind another tenant's, promise or not."""
    sim = Simulator(limits(max_running=9, resources={"a": 1, "b": 1}))
    sim.add(Job(1, 0, 30 * MINUTE, needs="a", tenant="v", timeout=30 * MINUTE))
    sim.add(Job(2, 0, 20 * MINUTE, needs="b", tenant="v", timeout=20 * MINUTE))
    both = Job(3, MINUTE, MINUTE, needs="a,b", tenant="t")
    sim.add(both, Job(4, 15 * MINUTE, MINUTE, tenant="t"))
    for n in range(20):
        sim.add(Job(10 + n, 16 * MINUTE + n * MINUTE, 40 * MINUTE, needs="b", tenant="u", timeout=HOUR))
    sim.run()
    assert sim.promises[3] == 30 * MINUTE
    assert both.started_at == 30 * MINUTE


def test_only_the_first_that_waits_for_a_resource_reserves() -> None:
    """Six lanes that need a browser and a shell: those that cannot run yet keep no shell from the others."""
    sim = Simulator(limits(max_running=20, resources={"browser": 2, "shell": 4}))
    numbers = itertools.count(1)
    both = [
        Stream(numbers, 3 * MINUTE, needs="browser,shell", kind=f"qa{n}", tenant=f"t{n}") for n in range(6)
    ]
    keep_flowing(sim, *both, Stream(numbers, MINUTE, needs="shell", kind="shell", tenant="other"))
    sim.run(3 * HOUR)
    minutes = sum(job.length for _, job, _ in sim.starts_of(kind="shell")) / MINUTE
    assert minutes >= 160  # of 180: one shell is always theirs


def test_a_job_that_waits_for_a_cooldown_reserves_nothing() -> None:
    sim = Simulator(limits(max_running=9, resources={"a": 1, "b": 1}))
    sim.at(0, lambda: sim.cool("b", 2 * HOUR))
    both = Job(999, 1, MINUTE, needs="a,b", kind="both")
    sim.add(both)
    keep_flowing(sim, Stream(itertools.count(1), MINUTE, needs="a"))
    sim.run(2 * HOUR - 1)
    assert len(sim.started) == 120  # one a minute
    assert sim.deferred[999].keys() == {"cooldown:b"}
    sim.run(3 * HOUR)
    assert both.started_at is not None
    assert both.started_at <= 2 * HOUR + sim.limits.reserve_after_ms + MINUTE


def test_jobs_that_end_before_the_promise_use_the_reserved_slot_meanwhile() -> None:
    sim = Simulator(limits(max_running=9, resources={"a": 1, "b": 1}, reserve_after_ms=MINUTE))
    sim.add(Job(1, 0, HOUR, needs="a", timeout=HOUR))
    both = Job(2, 1, MINUTE, needs="a,b", kind="both")
    short = Job(3, 10 * MINUTE, 5 * MINUTE, needs="b", kind="short", deadline_at=50 * MINUTE)
    late = Job(4, 40 * MINUTE, 5 * MINUTE, needs="b", kind="late", deadline_at=61 * MINUTE)
    open_end = Job(5, 20 * MINUTE, 5 * MINUTE, needs="b", kind="open", timeout=5 * MINUTE)
    sim.add(both, short, late, open_end)
    sim.at(2 * MINUTE, lambda: None)
    sim.run()
    assert sim.promises == {2: HOUR}
    assert both.started_at == HOUR
    assert short.started_at == 10 * MINUTE
    # A timeout does not count: it starts with the job, so it says nothing until then.
    assert late.state == "expired" or (late.started_at or 0) >= HOUR
    assert (open_end.started_at or 0) >= HOUR


# ---------------------------------------------------------------- budgets


def test_a_job_that_needs_most_of_a_budget_starts_among_endless_jobs_that_need_little() -> None:
    spends = {"big": {"tokens": 90}, "small": {"tokens": 10}}
    sim = Simulator(limits(max_running=50, spends=spends), {"tokens": BudgetRule(100, MINUTE)})
    numbers = itertools.count(1)
    streams = [Stream(numbers, SECOND, kind="small", tenant=name) for name in "abc"]
    keep_flowing(sim, *streams)
    big = Job(999_999, 3 * MINUTE, MINUTE, kind="big", tenant="d")
    sim.add(big)
    sim.run(30 * MINUTE)
    assert big.started_at is not None
    assert big.started_at - big.arrives <= sim.limits.reserve_after_ms + 2 * MINUTE


def test_retries_pay_like_first_attempts() -> None:
    sim = Simulator(limits(spends={"k": {"tokens": 10}}), {"tokens": BudgetRule(30, MINUTE)})
    sim.verdict = lambda sim, job: sim.now + SECOND if job.tries < 9 else None
    sim.add(Job(1, 0, SECOND))
    sim.run()
    assert [at // SECOND for at, _, _ in sim.started] == [0, 2, 4, 60, 62, 64, 120, 122, 124]


# ---------------------------------------------------------------- what only observes


def test_observing_starts_what_enforcing_would_have_refused_and_says_so() -> None:
    rules = limits(max_running=2, tenants={"a": 1}, resources={"r": 1}, kinds={"q": 1}, observing=True)
    sim = Simulator(rules)
    sim.add(Job(1, 0, HOUR, tenant="a"), Job(2, 1, HOUR, tenant="a"), Job(3, 2, HOUR))
    sim.pause(3, ("tenant", "p"))
    sim.add(Job(4, 4, HOUR, tenant="p"))
    sim.run(HOUR - 1)
    assert [(at, job.job_id, would) for at, job, would in sim.started] == [
        (0, 1, None),
        (1, 2, "tenant_limit"),
        (2, 3, "max_running"),
    ]
    sim.run(HOUR + 10)
    sim.add(Job(5, sim.now, 1, needs="r"), Job(6, sim.now, 1, needs="r"), Job(7, sim.now, 1, needs="gone"))
    sim.run()
    assert [(job.job_id, would) for _, job, would in sim.started[3:]] == [
        (5, None),
        (6, "resource:r"),
        (7, "never_fits"),
    ]
