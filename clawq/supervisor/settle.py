"""Writing down what was found, inside the turn's transaction: starts, ends, what becomes of the jobs."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from clawq.rules import classify, retry
from clawq.rules.classify import End
from clawq.settings import Settings
from clawq.store import attempts, ledger
from clawq.supervisor.agents import Agent

Draw = Callable[[], float]
"""A jitter between retry.JITTER's bounds."""


def settle(
    db: apsw.Connection,
    settings: Settings,
    job_id: int,
    token: int,
    end: End,
    tail: str,
    now: int,
    draw: Draw,
    peak: tuple[int, int] | None = None,
) -> str | None:
    """Record an attempt's end and what becomes of its job: the new state, or None when it was not ours.

    What it had reserved is settled with it, once. ``peak`` is (processes, MiB) of its tree at the most.
    """
    row = attempts.policy(db, job_id, token)
    if row is None:
        return None
    kind = settings.kind(row.kind, row.band_name)
    policy = retry.Policy(
        max_attempts=kind.max_attempts if row.max_attempts is None else row.max_attempts,
        backoff_ms=kind.backoff_ms,
        max_backoff_ms=kind.max_backoff_ms,
        max_age_ms=kind.max_age_ms,
        on_lost=row.on_lost or kind.on_lost,
        accepted_at=row.accepted_at,
        deadline_at=row.deadline_at,
    )
    decision = retry.after(end, row.attempts + int(end.charged), policy, bool(row.cancel), now, draw())
    if not attempts.finish(db, job_id, token, _with_last_line(end, tail), decision, tail, peak, now):
        return None
    ran = end.outcome != classify.NEVER_STARTED.outcome
    ledger.settle_spends(db, token, ran)
    ledger.note_end(db, token, ran, now)
    if peak is not None:
        ledger.note_footprint(db, row.kind, *peak, now)
    return decision.state


def _with_last_line(end: End, tail: str) -> End:
    """The error in one line, with the agent's own last words."""
    if end.error is None or not tail:
        return end
    return end._replace(error=f"{end.error}: {tail.splitlines()[-1].strip()}")


def record_start(db: apsw.Connection, agent: Agent, now: int) -> bool:
    """The agent was seen to run; False when its token is no longer the job's."""
    leader = agent.leader
    pid, started = (leader.pid, leader.started) if leader else (agent.pid, None)
    return attempts.mark_running(db, agent.job_id, agent.token, pid, started, now)


def record_end(
    db: apsw.Connection, settings: Settings, agent: Agent, end: End, tail: str, now: int, draw: Draw
) -> str | None:
    """As `settle`; an agent that ended before it was ever seen to run ran all the same."""
    if not agent.running and end.outcome != classify.NEVER_STARTED.outcome:
        record_start(db, agent, now)
    peak = (agent.peak_procs, agent.peak_mb) if agent.peak_procs else None
    return settle(db, settings, agent.job_id, agent.token, end, tail, now, draw, peak)
