"""Trees of jobs that wait for their children: nobody waits for ever, and no limit is passed."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clawq.rules.admission import Decision, Start, Wait, decide
from clawq.rules.facts import Footprint, Head, Host, Limits, Resource, Running
from tests.simulator import MINUTE, SECOND, Job, Simulator, limits

KEPT = "b"
"""The resource that a waiting job keeps; only roots need it, since no child could wait for one that does."""
PROCS = 3
"""Of each agent."""


class Plan(NamedTuple):
    """A job, and the children that it waits for after its first half."""

    arrives: int
    length: int
    band: int
    tenant: str
    kind: str
    needs: str
    exclusive: str | None
    children: list[Plan]


@st.composite
def plans(draw: st.DrawFn, depth: int) -> Plan:
    children = draw(st.lists(plans(depth - 1), max_size=2)) if depth else []
    return Plan(
        arrives=draw(st.integers(0, 5)) * SECOND,
        length=draw(st.integers(0, 40)) * SECOND,
        band=draw(st.integers(0, 3)),
        tenant=draw(st.sampled_from("ab")),
        kind=draw(st.sampled_from("kq")),
        needs=draw(st.sampled_from(("", "r", "s", "r,s"))),
        exclusive=None,
        children=children,
    )


@st.composite
def roots(draw: st.DrawFn) -> Plan:
    plan = draw(plans(3))
    needs = (
        plan.needs if draw(st.booleans()) else ",".join(sorted({KEPT, *filter(None, plan.needs.split(","))}))
    )
    return plan._replace(needs=needs, exclusive=draw(st.sampled_from((None, None, "x", "y"))))


@st.composite
def tight(draw: st.DrawFn) -> Limits:
    few = st.integers(1, 3)
    chosen = limits(
        draw(few),
        tenants=draw(st.dictionaries(st.sampled_from("ab"), few)),
        kinds=draw(st.dictionaries(st.sampled_from("kq"), few)),
        max_running_per_workflow=draw(few),
        max_waiting=draw(few),
        reserve_after_ms=draw(st.sampled_from((0, 30, 300))) * SECOND,
        age_boost_ms=draw(st.sampled_from((0, 1, 10))) * MINUTE,
    )
    slots = {name: Resource(draw(few), keep=name == KEPT) for name in ("r", "s", KEPT)}
    return chosen._replace(resources=slots)


class Workflows(Simulator):
    """A simulator whose jobs have children. ``room``: how many processes the gate leaves for all of them."""

    room: int | None = None

    def plant(self, *planned: Plan) -> None:
        self.plans: dict[int, Plan] = {}
        self.parents: dict[int, Job] = {}
        self.left: Counter[int] = Counter()
        for plan in planned:
            self.add(self._made(plan))

    def _made(self, plan: Plan) -> Job:
        job = Job(len(self.plans) + 1, *plan[:-1])
        self.plans[job.job_id] = plan
        return job

    def _end(self, job: Job, tries: int) -> None:
        if job.state != "running":
            return
        planned, self.plans[job.job_id] = (
            self.plans[job.job_id].children,
            self.plans[job.job_id]._replace(children=[]),
        )
        if planned:
            job.state = "waiting"
            self.left[job.job_id] = len(planned)
            for plan in planned:
                child = self._made(
                    plan._replace(arrives=self.now, tenant=job.tenant, band=min(plan.band, job.band))
                )
                child.root_id, child.first = job.root, True
                self.parents[child.job_id] = job
                self._queue(child)
            self._unpark(job)
            return
        super()._end(job, tries)
        parent = self.parents.get(job.job_id)
        if parent is not None:
            self.left[parent.job_id] -= 1
            if not self.left[parent.job_id]:
                parent.back_at = self.now

    def _pass(self) -> None:
        if self.room is not None:
            self.host = Host(user_procs=100 + PROCS * len(self.active))
        super()._pass()

    def _running(self) -> list[Running]:
        return [each._replace(procs=PROCS) for each in super()._running()]

    def check(self, _: Simulator, decisions: list[Decision]) -> None:
        """No limit is passed, and nobody but children starts while too many wait."""
        running = [each for each in self.active.values() if each.state == "running"]
        waiting = [each for each in self.active.values() if each.state == "waiting"]
        rules = self.limits
        assert len(running) <= rules.max_running
        for tenant, n in Counter(each.tenant for each in running).items():
            assert n <= rules.tenant(tenant)
        for kind, n in Counter(each.kind for each in running).items():
            assert n <= (rules.kind(kind, 0) or n)
        for n in Counter(each.root for each in running).values():
            assert n <= rules.max_running_per_workflow
        held = Counter(name for each in running for name in each.needs.split(",") if name)
        held.update(KEPT for each in waiting if KEPT in each.needs.split(","))
        for name, n in held.items():
            assert n <= rules.resources[name].limit
        names = [each.exclusive for each in self.active.values() if each.exclusive]
        assert len(names) == len(set(names))
        if len(waiting) >= rules.max_waiting:
            assert all(each.head.is_child for each in decisions if isinstance(each, Start))


@given(rules=tight(), forest=st.lists(roots(), min_size=1, max_size=5))
@hypothesis_settings(max_examples=100)
def test_every_tree_ends_and_no_limit_is_passed(rules: Limits, forest: list[Plan]) -> None:
    sim = Workflows(rules)
    sim.watch = sim.check
    sim.plant(*forest)
    sim.run()
    assert sim.drained, (sim.active, sim.waiting)


@given(rules=tight(), forest=st.lists(roots(), min_size=1, max_size=5), room=st.integers(1, 8))
@hypothesis_settings(max_examples=40)
def test_what_waits_does_not_close_the_process_gate_for_its_children(
    rules: Limits, forest: list[Plan], room: int
) -> None:
    """Without what waiting jobs use the gate would open some time: so everything ends."""
    sim = Workflows(rules._replace(max_user_procs=100 + room, footprint=lambda name: Footprint(PROCS, 0)))
    sim.watch = sim.check
    sim.room = room
    sim.plant(*forest)
    sim.run(until=60 * MINUTE)
    assert sim.drained, (sim.active, sim.waiting)


def gated(head: Head, running: list[Running], host: Host) -> Decision:
    rules = limits(40, max_user_procs=500, min_free_mb=512, max_waiting=16)
    (decision,) = decide(0, host, running, [head], rules, lambda head: None).decisions
    return decision


WAITING = [
    Running(n, 2, "t", "k", "", procs=20, mb=100, waiting=True, started_at=-10 * MINUTE) for n in range(1, 29)
]
"""28 agents that wait for their children, and are all that fills the machine."""
CHILD = Head(100, 2, "t", "k", "", 0, root_id=1)


def test_28_waiting_parents_let_one_child_through_the_gates_at_a_time() -> None:
    full = Host(user_procs=600, free_mb=100)
    assert gated(CHILD, WAITING, full) == Start(CHILD)
    busy = Running(200, 2, "t", "k", "", procs=3, started_at=-10 * MINUTE)
    assert gated(CHILD, [*WAITING, busy], full) == Wait(CHILD, "uid_procs", 600, 500)


def test_a_machine_that_others_fill_stays_closed_for_children_too() -> None:
    assert gated(CHILD, WAITING, Host(user_procs=1_100)) == Wait(CHILD, "uid_procs", 540, 500)
    assert gated(CHILD, WAITING[:1], Host(free_mb=400)) == Wait(CHILD, "low_memory", 500, 512)


def test_while_too_many_wait_only_children_start() -> None:
    root = CHILD._replace(root_id=None)
    assert gated(root, WAITING, Host()) == Wait(root, "max_waiting", 28, 16)
    assert gated(CHILD, WAITING, Host()) == Start(CHILD)


def test_whoever_wants_its_slots_back_has_them_before_anything_starts() -> None:
    """Past a pause, a closed gate and an empty budget; and what it still lacks nobody else takes."""
    rules = limits(2, {"r": 1}, paused=frozenset({("all", "")}), max_user_procs=1)
    back = Running(1, 2, "t", "k", "r", waiting=True, back_at=5)
    outcome = decide(0, Host(user_procs=9, spawn_closed_until=99), [back], [], rules, lambda head: None)
    assert [(each.job.job_id, each.lacks) for each in outcome.back] == [(1, None)]

    holder = Running(2, 2, "t", "k", "r")
    head = Head(3, 2, "t", "k", "", 0)
    outcome = decide(0, Host(), [back, holder], [head], limits(2, {"r": 1}), lambda head: None)
    assert [(each.job.job_id, each.lacks) for each in outcome.back] == [(1, "resource:r")]
    assert outcome.decisions == [Wait(head, "max_running", 2, 2)]


def test_the_first_to_want_them_has_them_first() -> None:
    late, early = (Running(n, 2, "t", "k", "", waiting=True, back_at=at) for n, at in ((1, 9), (2, 5)))
    outcome = decide(10, Host(), [late, early], [], limits(1), lambda head: None)
    assert [(each.job.job_id, each.lacks) for each in outcome.back] == [(2, None), (1, "max_running")]


def test_a_child_does_not_stand_behind_a_root_that_may_not_start() -> None:
    plain = Plan(0, SECOND, 2, "t", "k", "", None, [])
    sim = Workflows(limits(1, max_waiting=1))
    sim.plant(*[plain._replace(children=[plain])] * 3)
    sim.run()
    assert sim.drained
    assert sum(each["max_waiting"] for each in sim.deferred.values()) > 0


def test_nobody_reserves_what_the_holder_of_a_kept_slot_waits_for() -> None:
    """Found by the properties: the first keeps b and waits for a child that needs r, the last needs both."""
    plain = Plan(0, 0, 0, "a", "k", KEPT, None, [])
    rules = limits(2, max_running_per_workflow=1, reserve_after_ms=0, age_boost_ms=0)
    sim = Workflows(rules._replace(resources={"r": Resource(1), KEPT: Resource(1, keep=True)}))
    sim.plant(
        plain,
        plain,
        plain._replace(length=2 * SECOND, needs="r"),
        plain._replace(arrives=SECOND, tenant="b", needs=f"{KEPT},r"),
        plain._replace(children=[plain._replace(needs="r")]),
    )
    sim.run()
    assert sim.drained
