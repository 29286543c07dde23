"""What must hold of any schedule, worked out from the jobs themselves: nothing here asks the rules.

A `World` is a configuration in plain values. An `Auditor` watches a simulator and, after each pass, counts
who runs, adds up what every window holds, and looks for a job that could have started and did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from clawq.rules.admission import Decision, Wait
from clawq.rules.fairness import share_slots
from tests.simulator import MINUTE, BudgetRule, Job, Simulator, limits

KEEPERS = (0, 1)
"""Bands of whose share a slot stays free."""


class World(NamedTuple):
    max_running: int = 4
    resources: Mapping[str, int] = {}
    tenants: Mapping[str, int] = {}
    kinds: Mapping[str, int] = {}
    weights: Mapping[str, float] = {}
    workflow: int = 1 << 30
    budgets: Mapping[str, BudgetRule] = {}
    spends: Mapping[str, Mapping[str, int]] = {}
    shares: Mapping[int, float] = {}
    reserve_after: int = 5 * MINUTE
    age_boost: int = 10 * MINUTE

    def simulator(self, **others: object) -> Simulator:
        configured = limits(
            self.max_running,
            self.resources,
            self.tenants,
            self.kinds,
            self.weights,
            self.spends,
            max_running_per_workflow=self.workflow,
            band_slots=share_slots(self.shares, self.max_running) if self.shares else None,
            reserve_after_ms=self.reserve_after,
            age_boost_ms=self.age_boost,
            max_user_procs=100,
        )
        return Simulator(configured, self.budgets, **others)  # type: ignore[arg-type]

    def needs(self, job: Job) -> list[str]:
        return job.needs.split(",") if job.needs else []

    def lacking(self, sim: Simulator, job: Job, started: int | None = None) -> Iterator[str]:
        """Every limit that this job would pass, or passes, beside the others that run.

        ``started``: as it was when so many had been started, all of those that have not ended since.
        """
        history = sim.started if started is None else sim.started[:started]
        later = {id(each.job) for each in sim.started[len(history) :]}
        running = [each for each in sim.active.values() if each is not job and id(each) not in later]
        if len(running) >= self.max_running:
            yield "max_running"
        if sum(each.tenant == job.tenant for each in running) >= self.tenants.get(job.tenant, 1 << 30):
            yield "tenant_limit"
        if sum(each.kind == job.kind for each in running) >= self.kinds.get(job.kind, 1 << 30):
            yield "kind_limit"
        if sum(each.root == job.root for each in running) >= self.workflow:
            yield "workflow_limit"
        if job.exclusive is not None and any(each.exclusive == job.exclusive for each in running):
            yield f"exclusive:{job.exclusive}"
        for name in self.needs(job):
            if sum(name in self.needs(each) for each in running) >= self.resources[name]:
                yield f"resource:{name}"
        for name, amount in self.spends.get(job.kind, {}).items():
            rule = self.budgets[name]
            window = [
                (each.job, self.spends.get(each.job.kind, {}).get(name, 0))
                for each in history
                if sim.now - rule.per_ms < each.at <= sim.now and each.job is not job
            ]
            own = sum(spent for other, spent in window if other.tenant == job.tenant)
            if sum(spent for _, spent in window) + amount > rule.limit or (
                rule.per_tenant is not None and own + amount > rule.per_tenant
            ):
                yield f"budget:{name}"


class Auditor:
    """Give it to a simulator as its `watch`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._checked = 0

    def __call__(self, sim: Simulator, decisions: list[Decision]) -> None:
        self.no_limit_is_passed(sim)
        self.nothing_admissible_waits(sim, decisions)
        self.somebody_brings_the_parked_back(sim)

    def no_limit_is_passed(self, sim: Simulator) -> None:
        """Each start was within every limit together with all that ran just after it."""
        for _, job, _ in sim.started[self._checked :]:
            assert list(self.world.lacking(sim, job)) == [], f"{job} at {sim.now}"
        self._checked = len(sim.started)

    def nothing_admissible_waits(self, sim: Simulator, decisions: list[Decision]) -> None:
        """A lane's head that waits lacks something, or what it would take is kept or reserved."""
        waits = {each.head.job_id: each for each in decisions if isinstance(each, Wait)}
        for places in sim.lanes.values():
            job = sim.waiting[places[0][1]]
            if job.job_id in sim.brought_back:
                continue  # asked by the next pass, which comes at once
            wait = waits[job.job_id]
            if list(self.world.lacking(sim, job)) or self._is_closed(sim, job):
                continue
            if wait.reason == "band_share":
                assert self._is_kept(sim, job), wait
            elif wait.reason == "reserved":
                assert self._is_reserved(sim, job, waits), wait
            else:
                assert wait.reason.startswith("budget:"), wait
                assert self._is_claimed(sim, job, waits, wait.reason), wait

    def _is_closed(self, sim: Simulator, job: Job) -> bool:
        """By a gate, a cooldown or a pause that the test itself set."""
        names = self.world.needs(job)
        paused = sim.limits.paused
        return (
            (sim.host.user_procs or 0) >= 50
            or any(name in sim.rests for name in names)
            or ("all", "") in paused
            or ("tenant", job.tenant) in paused
        )

    def _is_kept(self, sim: Simulator, job: Job) -> bool:
        """No more slots are free than critical and interactive keep; who keeps the last one itself has it."""
        used = Counter(each.band for each in sim.active.values())
        slots = share_slots(self.world.shares, self.world.max_running)
        keepers = [band for band in KEEPERS if used[band] < slots.get(band, 0)]
        first = keepers[: keepers.index(job.band)] if job.band in keepers else keepers
        return self.world.max_running - len(sim.active) <= len(first)

    def _is_reserved(self, sim: Simulator, job: Job, waits: Mapping[int, Wait]) -> bool:
        """Another that was refused only for slots for `reserve_after` needs one of the same resources."""
        mine = set(self.world.needs(job))
        return any(
            mine.intersection(self.world.needs(sim.waiting[job_id]))
            and sim.now - sim.waiting[job_id].ready_at >= self.world.reserve_after
            and job_id != job.job_id
            for job_id in waits
        )

    def _is_claimed(self, sim: Simulator, job: Job, waits: Mapping[int, Wait], reason: str) -> bool:
        """Another that has waited for `reserve_after` lacks this budget."""
        return any(
            reason in self.world.lacking(sim, sim.waiting[job_id])
            and sim.now - sim.waiting[job_id].ready_at >= self.world.reserve_after
            for job_id in waits
        )

    def somebody_brings_the_parked_back(self, sim: Simulator) -> None:
        """What it was parked for is taken, or another that wants the same stands in its lane before it."""
        for job in sim.waiting.values():
            if job.parked is None or job.parked in self.world.lacking(sim, job):
                continue
            assert any(
                each.parked is None
                and each.lane == job.lane
                and (
                    each.root == job.root
                    if job.parked == "workflow_limit"
                    else each.exclusive == job.exclusive
                )
                for each in sim.waiting.values()
            ), job
