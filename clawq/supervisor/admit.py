"""One pass of admission inside the turn's transaction: gather the facts, decide, write what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import apsw

from clawq.host import load, logs
from clawq.host.load import HostSample
from clawq.rules import admission, fairness, ramp
from clawq.rules.admission import Park, Start, Wait
from clawq.rules.comeback import Back
from clawq.rules.facts import NO_LIMIT, UNMEASURED, Cooldown, Head, Host, Lane, Limits, Resource
from clawq.rules.reasons import HOST_REASONS
from clawq.settings import PRESSURES, Settings, gate
from clawq.states import BANDS
from clawq.store import attempts, counts, lanes, ledger, waits
from clawq.store.attempts import Opening
from clawq.store.lanes import Told
from clawq.store.ledger import BudgetRule
from clawq.supervisor.start import Ticket
from clawq.supervisor.state import State

RAMP_STEP_MS = 2_000
"""After a crash or a wake the number of starts doubles this often."""
MOST_AT_ONCE = 32
"""Jobs of a lane that are read together."""


class Pass(NamedTuple):
    """What a pass did: what to spawn once it is committed, and when it may come out differently by itself."""

    tickets: list[Ticket]
    host_refused: bool
    changes_at: int | None
    resumed: dict[int, int]
    """Whose wait is over: how long it has waited in all (ms), by token."""


def admit(
    state: State, settings: Settings, spawn_closed_until: int, now: int, only_children: bool = False
) -> Pass:
    """Let go on whose wait is over, ask every lane's head once, claim what may start, and write down why the
    others may not. ``only_children``: of what is under way, and nobody else is asked.
    """
    db = state.db
    most = settings.limits.max_running_per_workflow
    lanes.keep_workflow_limit(db, NO_LIMIT if is_observing(state, settings) else most)
    heads, told = lanes.heads(db)
    if only_children:
        heads = [head for head in heads if head.goes_first]
    running = lanes.running(db, {agent.token: agent.used for agent in state.agents.values() if agent.used})
    if not heads and all(job.back_at is None for job in running):
        return Pass([], False, None, {})
    rests = ledger.rests(db, {name: each.limit for name, each in settings.resources.items()}, now)
    limits = limits_from(state, settings, rests.cooldowns, now)
    outcome = admission.decide(
        now,
        _host(state, settings, spawn_closed_until, now),
        running,
        heads,
        limits,
        Lines(db, settings.limits.max_running - len(running), only_children).following,
        lanes.clocks(db),
        _promises(heads, told),
    )
    resumed = _come_back(db, outcome.back, now)
    every = settings.host.retry_after_ms
    tickets: list[Ticket] = []
    waits: list[Wait] = []
    deferred: Counter[tuple[str, str]] = Counter()
    changes: list[int] = []
    starts = [each.head for each in outcome.decisions if isinstance(each, Start)]
    claimed = _claim(state, settings, starts, now)
    noted: set[Lane] = set()
    for decision in outcome.decisions:
        match decision:
            case Start(head, would):
                ticket = claimed.get(head.job_id)
                if ticket is None:
                    continue
                token = ticket.token
                if head.lane not in noted:
                    lanes.note_start(db, head, now)
                    told.pop(head.lane, None)  # it was forgotten with this start
                    noted.add(head.lane)
                ledger.reserve(db, head.tenant, token, limits.spends(head.kind, head.band), now)
                ledger.note_start(db, head.resources, rests.cooldowns, token)
                if would is not None:
                    ledger.observe(db, "start", would, head.kind, head.tenant, now)
                tickets.append(ticket)
            case Wait():
                noted.clear()  # a start after this one's wait is news to it
                if lanes.note_wait(db, decision, told.get(decision.head.lane), every, now):
                    deferred[decision.head.kind, decision.reason] += 1
                waits.append(decision)
            case Park():
                if lanes.park(db, decision, every, now):
                    deferred[decision.head.kind, decision.reason] += 1
                if lanes.pass_on(db, decision):
                    changes.append(now)
    counts.note_deferrals(db, deferred, now)
    if tickets:
        attempts.keep_token(db, max(ticket.token for ticket in tickets))
        lanes.keep_turns(db, outcome.turns)
    changes += [wait.retry_at for wait in waits if wait.retry_at is not None]
    if rests.changes_at is not None:
        changes.append(rests.changes_at)
    host_refused = any(wait.reason in HOST_REASONS for wait in waits)
    return Pass(tickets, host_refused, min(changes, default=None), resumed)


def _come_back(db: apsw.Connection, back: list[Back], now: int) -> dict[int, int]:
    resumed = {}
    for job, lacks in back:
        if lacks is not None:
            waits.note_lack(db, job.token, lacks)
        elif (waited_ms := waits.go_on(db, job.token, "its wait is over", now)) is not None:
            resumed[job.token] = waited_ms
    return resumed


class Lines:
    """Who stands behind each lane's head, for one pass, which changes no lane before it has decided.

    As many are read at once as there are slots `free`, and twice as many whenever that was not enough.
    """

    def __init__(self, db: apsw.Connection, free: int, only_children: bool) -> None:
        self.db = db
        self.only_children = only_children
        self._most = min(max(1, free), MOST_AT_ONCE)
        self._read: dict[Lane, list[Head]] = {}

    def following(self, head: Head) -> Head | None:
        """The next of its lane, which shares what the lane remembers by now."""
        line = self._read.get(head.lane)
        if not line:
            line = self._read[head.lane] = lanes.following(self.db, head, self._most)
            line.reverse()
            self._most = min(2 * self._most, MOST_AT_ONCE)
        if not line or (self.only_children and not line[-1].goes_first):
            return None
        behind = line.pop()
        if behind.last_start_at == head.last_start_at and behind.gated_at == head.gated_at:
            return behind
        return behind._replace(last_start_at=head.last_start_at, gated_at=head.gated_at)


def _promises(heads: list[Head], told: Mapping[Lane, Told]) -> dict[int, int]:
    """What earlier passes told heads that reserved, by job number (epoch ms)."""
    promised = {head.job_id: told[head.lane].promised_at for head in heads if head.lane in told}
    return {job_id: at for job_id, at in promised.items() if at is not None}


def limits_from(state: State, settings: Settings, cooldowns: dict[str, Cooldown], now: int) -> Limits:
    """The configuration and the accounts as the admission rules read them."""
    db = state.db
    footprints = ledger.footprints(db)
    shares = {BANDS.index(band): share for band, share in settings.band_shares.items()}
    host = settings.host
    return Limits(
        max_running=settings.limits.max_running,
        retry_after_ms=host.retry_after_ms,
        resources={
            name: Resource(each.limit, each.min_free_mb, each.keep)
            for name, each in settings.resources.items()
        },
        tenant=settings.tenant_max_running,
        kind=lambda name, band: settings.kind(name, BANDS[band]).max_running,
        has_command=lambda name, band: settings.kind(name, BANDS[band]).command is not None,
        weight=settings.tenant_weight,
        max_running_per_workflow=settings.limits.max_running_per_workflow,
        max_waiting=settings.limits.max_waiting,
        max_user_procs=_processes(state, settings)[1],
        min_free_mb=gate(host.min_free_mb),
        max_pressure=None if host.max_pressure == "off" else PRESSURES.index(host.max_pressure),
        min_free_disk_mb=gate(host.min_free_disk_mb),
        paused=lanes.pauses(db),
        band_slots=fairness.share_slots(shares, settings.limits.max_running) if shares else None,
        age_boost_ms=settings.limits.age_boost_ms,
        reserve_after_ms=settings.limits.reserve_after_ms,
        spends=cache(lambda name, band: tuple(sorted(settings.kind(name, BANDS[band]).spends.items()))),
        budgets=ledger.budgets(db, budget_rules(settings), now),
        cooldowns=cooldowns,
        footprint=lambda name: footprints.get(name, UNMEASURED),
        observing=is_observing(state, settings),
    )


def is_observing(state: State, settings: Settings) -> bool:
    return state.observe or settings.mode == "observe"


def budget_rules(settings: Settings) -> dict[str, BudgetRule]:
    return {
        name: BudgetRule(each.limit, each.per_ms, each.per_tenant) for name, each in settings.budgets.items()
    }


def _host(state: State, settings: Settings, spawn_closed_until: int, now: int) -> Host:
    sample = state.sample
    return Host(
        user_procs=_processes(state, settings)[0],
        free_mb=None if sample is None else sample.free_mb,
        pressure=None if sample is None else sample.pressure,
        free_disk_mb=None if sample is None else sample.free_disk_mb,
        spawn_closed_until=spawn_closed_until,
        ramp_left=_ramp_left(state, settings.limits.max_running, now),
    )


def _processes(state: State, settings: Settings) -> tuple[int | None, int | None]:
    return load.process_gate(state.sample, settings.host.max_user_procs, state.default_max_procs)


def machine(state: State, settings: Settings) -> counts.Machine:
    """What a sample keeps of the host, and where its gates close."""
    sample = state.sample or HostSample(None, None, None, None)
    return counts.Machine(
        settings.limits.max_running,
        *_processes(state, settings),
        sample.free_mb,
        gate(settings.host.min_free_mb),
        sample.pressure,
        sample.free_disk_mb,
    )


def _ramp_left(state: State, max_running: int, now: int) -> int | None:
    if state.ramp_since is None:
        return None
    allowed = ramp.allowance(now - state.ramp_since, RAMP_STEP_MS)
    return None if allowed >= max_running else max(0, allowed - state.ramp_started)


def _claim(state: State, settings: Settings, heads: list[Head], now: int) -> dict[int, Ticket]:
    """Take these jobs, all at once; what became theirs, by job."""
    if not heads:
        return {}
    first = attempts.next_token(state.db, now)
    tickets, opened = {}, []
    for token, claim in attempts.claim(state.db, [head.job_id for head in heads], first, now).items():
        kind = settings.kind(claim.kind, claim.band_name)
        timeout_ms = kind.timeout_ms if claim.timeout_ms is None else claim.timeout_ms
        log = logs.name_of(claim.job_id, claim.number, token)
        of_kind = (kind.lease_ms, kind.grace_ms, timeout_ms, kind.heartbeat)
        opened.append(Opening(token, claim.job_id, claim.number, now, state.boot_id, *of_kind, log))
        tickets[claim.job_id] = Ticket(claim, token, log, kind, timeout_ms)
    attempts.open_attempts(state.db, opened)
    return tickets
