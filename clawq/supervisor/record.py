"""The turn's one transaction: what was found, what was asked for, what is due, and one pass of admission.

It changes the database and nothing else. What has to be done once it is committed comes back as a value, so
that a commit that fails leaves neither a signal sent nor a thing remembered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from clawq.rules import classify, retry
from clawq.settings import Settings
from clawq.store import attempts, config_row, counts, lanes, ledger, probes, waits
from clawq.store.attempts import Success
from clawq.store.connection import Immediate, check_schema
from clawq.store.probes import Due
from clawq.supervisor import settle
from clawq.supervisor.admit import admit, budget_rules, is_observing, machine
from clawq.supervisor.agents import Agent
from clawq.supervisor.look import Ended, Findings
from clawq.supervisor.notices import Notice
from clawq.supervisor.start import NotStarted, Ticket
from clawq.supervisor.state import DRAIN, NOW, RUN, State

PUT_OFF_MS = 1_000
"""Counts wait so long for a turn that starts nothing."""


@dataclass(slots=True)
class Written:
    """What a committed turn asks to be done and remembered."""

    tickets: list[Ticket] = field(default_factory=list)
    """Claims to be spawned."""
    gone: list[Agent] = field(default_factory=list)
    started: list[Agent] = field(default_factory=list)
    kill: list[tuple[Agent, str]] = field(default_factory=list)
    disowned: list[Agent] = field(default_factory=list)
    stop: str | None = None
    settings: tuple[str, Settings] | None = None
    renewed: bool = False
    host_refused: bool = False
    spawn_failed: bool = False
    more: bool = False
    """The calendar has more to do than one transaction should."""
    next_due: int = 0
    changes_at: int | None = None
    """When a pass may come out differently by itself, epoch ms."""
    idle: bool = False
    waiting: set[int] = field(default_factory=set)
    """Tokens of those that are in `clawq wait`."""
    resumed: dict[int, int] = field(default_factory=dict)
    """Whose wait is over: how long it has waited in all (ms), by token."""
    ask: list[Due] = field(default_factory=list)
    """Unknown jobs whose probe is to be asked."""
    tell: list[Notice] = field(default_factory=list)
    """What people are to be told."""
    counted: bool = False
    uncounted: bool = False
    """More happened than is counted at once."""
    sampled: bool = False


def record(state: State, findings: Findings, renew: bool, now: int, mono: int) -> Written:
    """Write one turn down. `now` is epoch ms, `mono` ms of the monotonic clock; `renew`: leases are due."""
    written = Written()
    with Immediate(state.db):
        check_schema(state.db, state.home.db)
        settings = _settings_in_force(state, written)
        ledger.keep_observing(state.db, is_observing(state, settings), now)
        if state.set_back:
            ledger.not_after(state.db, settings.budgets, now)
            attempts.not_after(state.db, now)
        _record_findings(state, settings, findings, written, now)
        _record_requests(state, written, now)
        written.ask = state.probes.record(state.db, settings, state.mode == RUN, now, _draw)
        if attempts.next_due(state.db) <= now:
            done = attempts.expire(state.db, now) + attempts.promote(state.db, now)
            written.more = done >= attempts.BATCH
        if renew:
            _renew_leases(state, written, now, mono)
        if state.mode in (RUN, DRAIN) and written.stop is None:
            closed_until = state.spawn_closed_until
            if written.spawn_failed:
                closed_until = now + settings.host.retry_after_ms
            # To finish what runs is to start what it waits for.
            done_by = admit(state, settings, closed_until, now, only_children=state.mode == DRAIN)
            written.tickets, written.host_refused, written.changes_at, resumed = done_by
            written.resumed |= resumed
            ledger.forget_spends(state.db, budget_rules(settings), now)
        written.waiting = waits.waiting(state.db)
        written.next_due = attempts.next_due(state.db)
        written.tell = state.notices.record(state.db, settings, now, mono)
        if state.until_idle and not written.tickets:
            written.idle = lanes.is_idle(state.db, lanes.pauses(state.db)) and not probes.any_due(state.db)
        _keep_count(state, settings, written, now, mono)
    return written


def _settings_in_force(state: State, written: Written) -> Settings:
    """A producer may have compiled a newer file than ours: its job's kind may be in that one only."""
    form = config_row.identity(state.db)
    if form == state.form:
        return state.settings
    settings = Settings.from_text(config_row.load(state.db)[1])
    written.settings = (form, settings)
    return settings


def _record_findings(
    state: State, settings: Settings, findings: Findings, written: Written, now: int
) -> None:
    for agent in findings.started:
        owned = settle.record_start(state.db, agent, now)
        (written.started if owned else written.disowned).append(agent)
    settle.record_unseen(state.db, findings.ended, now)
    together: dict[int, Success] = {}
    for ended in findings.ended:
        _record_end(state, settings, ended, together, written, now)
    if together:
        attempts.succeed(state.db, together, now)
    for agent in findings.deserted:
        # Nobody is there to ask for the slots, and the agent goes on: they are its at once, over any limit.
        waited_ms = waits.go_on(state.db, agent.token, "its wait died", now)
        if waited_ms is not None:
            written.resumed[agent.token] = waited_ms
    for failed in state.not_started:
        _record_not_started(state, settings, failed, written, now)
    for agent, reason in findings.overdue:
        _intend_kill(state, agent, reason, written, now)


def _record_end(
    state: State,
    settings: Settings,
    ended: Ended,
    together: dict[int, Success],
    written: Written,
    now: int,
) -> None:
    agent = ended.agent
    written.gone.append(agent)
    if agent.disowned:
        return
    end = settle.record_end(state.db, settings, agent, ended.found, now, _draw, together)
    if end is None:
        return
    if not end.ran:
        # Our shell could not fork. A claim that a dead supervisor never spawned says nothing of room.
        written.spawn_failed |= agent.owned or agent.reading.exit_code is not None
    written.spawn_failed |= end.reason == classify.FORK_FAILED


def _record_not_started(
    state: State, settings: Settings, failed: NotStarted, written: Written, now: int
) -> None:
    if failed.no_room:
        end = classify.NEVER_STARTED._replace(error=failed.error)
        written.spawn_failed = True
    else:
        end = classify.cannot_start(failed.error)
    ticket = failed.ticket
    settle.record_not_started(state.db, settings, ticket.claim.job_id, ticket.token, end, now, _draw)


def _record_requests(state: State, written: Written, now: int) -> None:
    for _, token in attempts.cancel_requests(state.db):
        if token in state.agents:
            _intend_kill(state, state.agents[token], "cancelled", written, now)
    written.stop = attempts.stop_request(state.db)
    if written.stop is not None:
        attempts.forget_stop(state.db)
    if state.mode == NOW:
        for agent in state.agents.values():
            _intend_kill(state, agent, "stopped", written, now)


def _intend_kill(state: State, agent: Agent, reason: str, written: Written, now: int) -> None:
    """The reason is committed before the first signal is sent; the first reason stands."""
    free = agent.kill_reason is None and agent.verdict is None and not agent.disowned
    if free and attempts.intend_kill(state.db, agent.token, reason, now):
        written.kill.append((agent, reason))


def _renew_leases(state: State, written: Written, now: int, mono: int) -> None:
    beats = {agent.token: now - (mono - agent.last_sign) for agent in state.agents.values()}
    worked = {agent.token: at for agent in state.agents.values() if (at := agent.worked_at) is not None}
    attempts.renew(state.db, beats, worked)
    still = {row.token for row in attempts.live(state.db)} | {agent.token for agent in written.gone}
    written.disowned += [agent for token, agent in state.agents.items() if token not in still]
    written.renewed = True


def _keep_count(state: State, settings: Settings, written: Written, now: int, mono: int) -> None:
    """For `metrics` and `history`: what moved, once a second at most, and once a minute how things are."""
    # Not before a spawn, which it would keep waiting: the next transaction comes soon after.
    put_off = PUT_OFF_MS if written.tickets else 0
    written.sampled = mono >= state.sample_at + put_off
    if written.sampled:
        counts.sample(state.db, machine(state, settings), now)
    written.counted = written.sampled or mono >= state.count_at + put_off
    if written.counted:
        written.uncounted = counts.fold(state.db)


def _draw() -> float:
    return random.uniform(*retry.JITTER)
