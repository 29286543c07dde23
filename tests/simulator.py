"""The real admission rules under a fake clock: no processes, no database, thousands of jobs a second.

What the store remembers between two passes is kept here in dictionaries, with the same meaning: lanes and
what they were told (store/lanes.py), tenants' clocks, budgets as sliding windows and resources at rest
(store/ledger.py), jobs parked for an exclusive name or their workflow (the triggers of store/schema.sql).
tests/conformance/test_simulator.py holds the two against each other. Times are ms from 0.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import NamedTuple

from clawq.rules import ramp
from clawq.rules.admission import Decision, Park, Start, Wait, decide
from clawq.rules.facts import Budget, Cooldown, Head, Host, Lane, Limits, Resource, Running
from clawq.rules.fairness import Clocks, Turns
from clawq.rules.reasons import HOST_REASONS, is_short_of_slots, resets_ageing
from clawq.states import FIRST_MS, PRIORITY_POINT_MS, split

WORKFLOW_LIMIT = "workflow_limit"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
PROBE_MS = MINUTE
"""A probe that has run this long has passed."""
OPEN = Host()


def limits(
    max_running: int = 8,
    resources: Mapping[str, int] | None = None,
    tenants: Mapping[str, int] | None = None,
    kinds: Mapping[str, int] | None = None,
    weights: Mapping[str, float] | None = None,
    spends: Mapping[str, Mapping[str, int]] | None = None,
    **others: object,
) -> Limits:
    """A configuration in short: resources by their slots, tenants and kinds by how many may run."""
    tenants, kinds, weights, spends = tenants or {}, kinds or {}, weights or {}, spends or {}
    base = Limits(
        max_running=max_running,
        retry_after_ms=MINUTE,
        resources={name: Resource(slots) for name, slots in (resources or {}).items()},
        tenant=lambda name: tenants.get(name, max_running),
        kind=lambda name, band: kinds.get(name),
        weight=lambda name: weights.get(name, 1.0),
        spends=lambda name, band: tuple(sorted(spends.get(name, {}).items())),
    )
    return base._replace(**others)  # type: ignore[arg-type]


class Ask(NamedTuple):
    """What becomes a Job, as `Job(*ask)`: jobs change while they are simulated, these do not."""

    job_id: int
    arrives: int
    length: int
    band: int = 2
    tenant: str = "t"
    kind: str = "k"
    needs: str = ""
    exclusive: str | None = None
    root_id: int | None = None
    priority: int = 0
    deadline_at: int | None = None
    timeout: int | None = None


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """``length`` is how long an attempt runs when nothing ends it; ``deadline_at`` and ``timeout`` do."""

    job_id: int
    arrives: int
    length: int
    band: int = 2
    tenant: str = "t"
    kind: str = "k"
    needs: str = ""
    exclusive: str | None = None
    root_id: int | None = None
    priority: int = 0
    deadline_at: int | None = None
    timeout: int | None = None
    start_within: int | None = None
    """Expires when it has not started for so long: what `on_busy = "reject"` asks for."""
    state: str = field(default="new", repr=False)
    parked: str | None = field(default=None, repr=False)
    ready_at: int = field(default=0, repr=False)
    tries: int = field(default=0, repr=False)
    charged: int = field(default=0, repr=False)
    started_at: int | None = field(default=None, repr=False)
    ended_at: int | None = field(default=None, repr=False)
    first: bool = field(default=False, repr=False)
    """A child of work under way: before all others in its lane."""
    back_at: int | None = field(default=None, repr=False)
    """Its wait is over since then, and it has not got its slots back yet."""

    def __repr__(self) -> str:
        told = {each.name: getattr(self, each.name) for each in fields(self)[3:]}
        default = {each.name: each.default for each in fields(self)[3:]}
        others = [f", {name}={value!r}" for name, value in told.items() if value != default[name]]
        return f"Job({self.job_id}, {self.arrives}, {self.length}{''.join(others)})"

    @property
    def lane(self) -> Lane:
        return (self.band, self.tenant, self.kind, self.needs)

    @property
    def place(self) -> tuple[int, int]:
        rank = self.arrives - self.priority * PRIORITY_POINT_MS - (FIRST_MS if self.first else 0)
        return (rank, self.job_id)

    @property
    def root(self) -> int:
        return self.root_id or self.job_id

    @property
    def ends_by(self) -> int | None:
        assert self.started_at is not None
        ends = [] if self.timeout is None else [self.started_at + self.timeout]
        ends += [] if self.deadline_at is None else [self.deadline_at]
        return min(ends, default=None)


@dataclass(slots=True)
class Memory:
    """A row of the table lanes."""

    reason: str | None = None
    measured: float | None = None
    limit: float | None = None
    since: int | None = None
    retry_at: int | None = None
    clears_at: int | None = None
    last_start_at: int | None = None
    gated_at: int | None = None
    short_job: int | None = None
    short_since: int | None = None
    promised_at: int | None = None


@dataclass(slots=True)
class Rest:
    """A row of the table cooldowns."""

    until: int
    step_ms: int
    probe: Job | None = None
    passed_at: int | None = None
    released: int = 0


class BudgetRule(NamedTuple):
    limit: int
    per_ms: int
    per_tenant: int | None = None


class Started(NamedTuple):
    at: int
    job: Job
    would: str | None


Verdict = Callable[["Simulator", Job], "int | None"]
"""Called when an attempt ends: when the job is to be queued again (epoch ms), None when it is done with."""


@dataclass(slots=True)
class Simulator:
    """Give it `limits`, `add` jobs, `run` it, and read `started`, `deferred` and the jobs themselves.

    `watch` is called after every pass with its decisions; `shuffle` reads rows in another order each time.
    """

    limits: Limits
    budgets: Mapping[str, BudgetRule] = field(default_factory=dict)
    host: Host = OPEN
    lasts: Callable[[Simulator, Job], int] = lambda sim, job: job.length
    verdict: Verdict = lambda sim, job: None
    watch: Callable[[Simulator, list[Decision]], None] = lambda sim, decisions: None
    shuffle: Random | None = None
    look_every: int = SECOND
    """The supervisor looks at the machine again so often while a gate refuses."""

    now: int = 0
    passes: int = 0
    queued: int = 0
    started: list[Started] = field(default_factory=list)
    deferred: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    promises: dict[int, int] = field(default_factory=dict)
    """The first promise that each reserved job was given."""
    active: dict[int, Job] = field(default_factory=dict)
    waiting: dict[int, Job] = field(default_factory=dict)
    """Queued, parked or not."""
    lanes: dict[Lane, list[tuple[int, int]]] = field(default_factory=dict)
    """Places of the jobs that are queued and not parked, sorted."""
    memory: dict[Lane, Memory] = field(default_factory=dict)
    rests: dict[str, Rest] = field(default_factory=dict)
    entries: dict[str, list[tuple[int, str, int]]] = field(default_factory=lambda: defaultdict(list))
    """(at, tenant, amount) that each budget's window may still hold."""
    clocks: Clocks = field(default_factory=lambda: Clocks({}, {}))
    _events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _sizes: Counter[Lane] = field(default_factory=Counter)
    """Queued jobs by lane, parked ones too: a lane is forgotten when it has none."""
    _parked: dict[str | int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By exclusive name or by root: what they were parked for."""
    brought_back: set[int] = field(default_factory=set)
    """By jobs that this pass parked: the next pass comes at once, for them."""
    _workflow_limit: int = 0
    """Of the pass before."""
    _counted: dict[tuple[int, str], int] = field(default_factory=dict)
    """When a job's refusal for a reason was last counted."""
    _sequence: int = 0
    _wake_at: int | None = None

    # ------------------------------------------------------------------ what happens

    def add(self, *jobs: Job) -> None:
        for job in jobs:
            self.at(job.arrives, lambda job=job: self._queue(job))  # type: ignore[misc]

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Let something happen; a pass follows."""
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, action))

    def set_host(self, when: int, host: Host) -> None:
        self.at(when, lambda: setattr(self, "host", host))

    def pause(self, when: int, *scopes: tuple[str, str]) -> None:
        """From then on just these are paused."""
        self.at(when, lambda: setattr(self, "limits", self.limits._replace(paused=frozenset(scopes))))

    def limit_workflows(self, when: int, most: int) -> None:
        self.at(
            when,
            lambda: setattr(self, "limits", self.limits._replace(max_running_per_workflow=most)),
        )

    def cool(self, resource: str, until: int, step_ms: int = 2_000) -> None:
        """Now. A new rest replaces the one before it; the longer end stands."""
        before = self.rests.get(resource)
        self.rests[resource] = Rest(until if before is None else max(until, before.until), step_ms)
        self.at(until, lambda: None)

    def run(self, until: int | None = None) -> Simulator:
        """Until nothing is left to happen, or up to and with that time."""
        while self._events and (until is None or self._events[0][0] <= until):
            self.step()
        if until is not None:
            self.now = until
        return self

    def step(self) -> bool:
        """Let happen what happens next, and make one pass; False when nothing is left to happen."""
        if not self._events:
            return False
        self.now = self._events[0][0]
        while self._events and self._events[0][0] == self.now:
            heapq.heappop(self._events)[2]()
        self._pass()
        return True

    @property
    def drained(self) -> bool:
        return not self.waiting and not self.active

    def starts_of(self, **columns: object) -> list[Started]:
        """Those of jobs with these values."""
        return [
            each
            for each in self.started
            if all(getattr(each.job, name) == value for name, value in columns.items())
        ]

    # ------------------------------------------------------------------ jobs come, run and end

    def _queue(self, job: Job) -> None:
        if job.state == "ended":
            return
        job.state, job.ready_at, job.parked = "queued", self.now, None
        self.waiting[job.job_id] = job
        self._sizes[job.lane] += 1
        self.queued += 1
        if job.exclusive is not None and self._is_taken(job.exclusive):
            self._put_aside(job, f"exclusive:{job.exclusive}")
        else:
            insort(self.lanes.setdefault(job.lane, []), job.place)
        for limit in (job.deadline_at, None if job.start_within is None else self.now + job.start_within):
            if limit is not None:
                self.at(limit, lambda: self._expire(job))

    def _expire(self, job: Job) -> None:
        late = job.deadline_at is not None and self.now >= job.deadline_at
        if job.start_within is not None and not job.tries:
            late = late or self.now >= job.ready_at + job.start_within
        if job.state == "queued" and late:
            was_parked = job.parked is not None
            self._leave_queue(job)
            job.state, job.ended_at = "expired", self.now
            if not was_parked:
                self._unpark(job)

    def _leave_queue(self, job: Job) -> None:
        del self.waiting[job.job_id]
        if job.parked is None:
            self._leave_lane(job)
        else:
            self._take_back(job)
        self._sizes[job.lane] -= 1
        if not self._sizes[job.lane]:
            self.memory.pop(job.lane, None)

    def _leave_lane(self, job: Job) -> None:
        places = self.lanes[job.lane]
        places.pop(bisect_right(places, job.place) - 1)
        if not places:
            del self.lanes[job.lane]

    def _start(self, job: Job, would: str | None) -> None:
        self._leave_queue(job)
        job.state, job.started_at = "running", self.now
        job.tries += 1
        self.active[job.job_id] = job
        if self._sizes[job.lane]:
            self.memory[job.lane] = Memory(
                last_start_at=self.now, gated_at=self.memory.get(job.lane, Memory()).gated_at
            )
        for lane, memory in self.memory.items():
            if lane[0] == job.band and lane[3] == job.needs:
                memory.last_start_at = self.now
        self.started.append(Started(self.now, job, would))
        for name, amount in self.limits.spends(job.kind, job.band):
            self.entries[name].append((self.now, job.tenant, amount))
        for name in split(job.needs):
            rest = self.rests.get(name)
            if rest is not None and rest.passed_at is not None:
                rest.released += 1
            elif rest is not None and rest.probe is None:
                rest.probe = job
                self.at(self.now + PROBE_MS, lambda: None)
        ends = self.now + max(0, self.lasts(self, job))
        if job.ends_by is not None:
            ends = max(self.now, min(ends, job.ends_by))
        tries = job.tries
        self.at(ends, lambda: self._end(job, tries))

    def _end(self, job: Job, tries: int) -> None:
        if job.tries != tries or job.state != "running":
            return
        del self.active[job.job_id]
        job.state, job.ended_at = "ended", self.now
        for rest in self.rests.values():
            if rest.probe is job:
                rest.probe, rest.passed_at = None, self.now
        again_at = self.verdict(self, job)
        self._unpark(job)
        if again_at is not None:
            job.state, job.ended_at = "scheduled", None
            self.at(again_at, lambda: self._queue(job))

    def _go_on(self, job: Job) -> None:
        """It has its slots again, and works for as long as before its wait."""
        job.state, job.back_at = "running", None
        tries = job.tries
        self.at(self.now + max(0, self.lasts(self, job)), lambda: self._end(job, tries))

    # ------------------------------------------------------------------ parked: the triggers of schema.sql

    def _is_taken(self, name: str) -> bool:
        return any(each.exclusive == name for each in self.active.values())

    def _park(self, parked: Park) -> None:
        job = self.waiting[parked.head.job_id]
        self._leave_lane(job)
        self._put_aside(job, parked.reason)
        self._defer(job.job_id, parked.reason)
        if parked.passes_on:
            other = job.exclusive if parked.reason == WORKFLOW_LIMIT else job.root
            assert other is not None
            self.brought_back |= self._bring_back(other, job.lane)

    def _defer(self, job_id: int, reason: str) -> None:
        last = self._counted.get((job_id, reason))
        if last is None or last <= self.now - self.limits.retry_after_ms:
            self._counted[job_id, reason] = self.now
            self.deferred[job_id][reason] += 1

    def _put_aside(self, job: Job, reason: str) -> None:
        job.parked = reason
        self._parked[self._parked_for(job)].add(job.job_id)

    def _parked_for(self, job: Job) -> str | int:
        if job.parked == WORKFLOW_LIMIT:
            return job.root
        assert job.exclusive is not None
        return job.exclusive

    def _take_back(self, job: Job) -> None:
        self._parked[self._parked_for(job)].discard(job.job_id)
        job.parked = None

    def _unpark(self, left: Job) -> None:
        """A job left its lane for good, or ended."""
        self._bring_back(left.root)
        if left.exclusive is not None and not self._is_taken(left.exclusive):
            self._bring_back(left.exclusive)

    def _bring_back(self, key: str | int, only: Lane | None = None) -> set[int]:
        """The best of each lane, or of one, that was parked for this name or workflow."""
        best: dict[Lane, Job] = {}
        for each in (self.waiting[job_id] for job_id in self._parked[key]):
            if only in (None, each.lane) and (each.lane not in best or each.place < best[each.lane].place):
                best[each.lane] = each
        for each in best.values():
            self._back_in_lane(each)
        return {each.job_id for each in best.values()}

    def _ask_workflows_again(self) -> None:
        """All that a lower limit on them has parked."""
        if self._workflow_limit < self.limits.max_running_per_workflow:
            for job in list(self.waiting.values()):
                if job.parked == WORKFLOW_LIMIT:
                    self._back_in_lane(job)
        self._workflow_limit = self.limits.max_running_per_workflow

    def _back_in_lane(self, job: Job) -> None:
        self._take_back(job)
        insort(self.lanes.setdefault(job.lane, []), job.place)

    # ------------------------------------------------------------------ one pass, as in supervisor/admit.py

    def _pass(self) -> None:
        self._ask_workflows_again()
        if not self.lanes and all(each.back_at is None for each in self.active.values()):
            return
        self.passes += 1
        self.brought_back = set()
        cooldowns, changes = self._cooldowns()
        told = {lane: (each.reason, each.retry_at or 0) for lane, each in self.memory.items()}
        outcome = decide(
            self.now,
            self.host,
            self._mixed(self._running()),
            self._mixed(self.heads()),
            self.limits._replace(budgets=self._budgets(), cooldowns=cooldowns),
            self._following,
            self.clocks,
            self._promised(),
        )
        for job, lacks in outcome.back:
            if lacks is None:
                self._go_on(self.active[job.job_id])
        for decision in outcome.decisions:
            match decision:
                case Start(head, would):
                    self._start(self.waiting[head.job_id], would)
                    told.pop(head.lane, None)
                case Wait():
                    self._note_wait(decision, *told.get(decision.head.lane, (None, 0)))
                    changes.append(decision.retry_at)
                    if decision.reason in HOST_REASONS:
                        changes.append(self.now + self.look_every)
                case Park():
                    self._park(decision)
        if self.brought_back:
            self.at(self.now, lambda: None)
        self._keep_turns(outcome.turns)
        self.watch(self, outcome.decisions)
        self._look_again(changes)

    def _look_again(self, changes: Iterable[int | None]) -> None:
        """When a pass may come out differently though nothing happens."""
        when = min((each for each in changes if each is not None and each > self.now), default=None)
        if when is not None and (self._wake_at is None or self._wake_at <= self.now or when < self._wake_at):
            self._wake_at = when
            self.at(when, lambda: None)

    def _mixed(self, rows: Iterable[Running] | Iterable[Head]) -> list:  # type: ignore[type-arg]
        found = list(rows)
        if self.shuffle is not None:
            self.shuffle.shuffle(found)
        return found

    def _running(self) -> Iterable[Running]:
        for each in self.active.values():
            yield Running(
                each.job_id,
                each.band,
                each.tenant,
                each.kind,
                each.needs,
                each.exclusive,
                each.root_id,
                each.started_at or 0,
                each.ends_by,
                waiting=each.state == "waiting",
                back_at=each.back_at,
            )

    def heads(self) -> list[Head]:
        """Each lane's next job, and what its lane remembers."""
        return [self._head(lane, places[0]) for lane, places in self.lanes.items()]

    def _head(self, lane: Lane, place: tuple[int, int]) -> Head:
        job, memory = self.waiting[place[1]], self.memory.get(lane)
        head = Head(job.job_id, *lane, place[0], job.exclusive, job.root_id, job.ready_at, job.deadline_at)
        if memory is None:
            return head
        short = memory.short_since if memory.short_job == job.job_id else None
        return head._replace(last_start_at=memory.last_start_at, gated_at=memory.gated_at, short_since=short)

    def _following(self, head: Head) -> Head | None:
        places = self.lanes[head.lane]
        at = bisect_right(places, (head.rank, head.job_id))
        if at == len(places):
            return None
        job = self.waiting[places[at][1]]
        return head._replace(
            job_id=job.job_id,
            rank=places[at][0],
            exclusive=job.exclusive,
            root_id=job.root_id,
            ready_at=job.ready_at,
            deadline_at=job.deadline_at,
            short_since=None,
        )

    def _note_wait(self, wait: Wait, told: str | None, again_at: int) -> None:
        head, short = wait.head, is_short_of_slots(wait.reason)
        if wait.promised_at is not None:
            self.promises.setdefault(head.job_id, wait.promised_at)
        memory = self.memory.setdefault(head.lane, Memory())
        known = not short or (
            head.short_since is not None and (wait.promised_at is None or memory.promised_at is not None)
        )
        if told == wait.reason and self.now < again_at and known:
            return
        if memory.reason != wait.reason:
            memory.since = self.now
        memory.reason, memory.retry_at = wait.reason, self.now + self.limits.retry_after_ms
        memory.measured, memory.limit, memory.clears_at = wait.measured, wait.limit, wait.retry_at
        if resets_ageing(wait.reason):
            memory.gated_at = self.now
        job_id = head.job_id if short else None
        if memory.short_job != job_id:
            memory.short_job, memory.short_since = job_id, self.now if short else None
            memory.promised_at = wait.promised_at
        elif memory.promised_at is None:
            memory.promised_at = wait.promised_at
        self._defer(head.job_id, wait.reason)

    def _promised(self) -> dict[int, int]:
        found = {}
        for lane, places in self.lanes.items():
            memory = self.memory.get(lane)
            if memory is not None and memory.short_job == places[0][1] and memory.promised_at is not None:
                found[memory.short_job] = memory.promised_at
        return found

    def _keep_turns(self, turns: Turns) -> None:
        present = {**self.clocks.present, **turns.presents}
        at = {**self.clocks.at, **turns.moved}
        self.clocks = Clocks(
            {turn: clock for turn, clock in at.items() if clock > present.get(turn[0], 0.0)}, present
        )

    # ------------------------------------------------------------------ the accounts, as in store/ledger.py

    def _budgets(self) -> dict[str, Budget]:
        found = {}
        for name, rule in self.budgets.items():
            held = [each for each in self.entries[name] if each[0] > self.now - rule.per_ms]
            self.entries[name] = held
            used_by: Counter[str] = Counter()
            for _, tenant, amount in held:
                used_by[tenant] += amount
            frees_at = held[0][0] + rule.per_ms if held else None
            found[name] = Budget(rule.limit, rule.per_tenant, used_by.total(), used_by, frees_at)
        return found

    def _cooldowns(self) -> tuple[dict[str, Cooldown], list[int | None]]:
        found: dict[str, Cooldown] = {}
        changes: list[int | None] = []
        for name, rest in list(self.rests.items()):
            probe = rest.probe
            if probe is not None and self.now - (probe.started_at or 0) >= PROBE_MS:
                rest.probe, rest.passed_at = None, self.now
            if rest.passed_at is None:
                found[name] = Cooldown(rest.until, rest.probe is not None, 0 if rest.probe else 1)
                changes.append(rest.until)
                continue
            allowed = ramp.allowance(self.now - rest.passed_at, rest.step_ms)
            if allowed >= self.limits.resources[name].limit:
                del self.rests[name]
                continue
            found[name] = Cooldown(0, False, allowed - rest.released)
            changes.append(rest.passed_at + ramp.next_step(self.now - rest.passed_at, rest.step_ms))
        return found, changes
