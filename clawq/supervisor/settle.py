"""Writing down what was found, inside the turn's transaction: starts, ends, what becomes of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import apsw

from clawq.host import output
from clawq.rules import classify, retry
from clawq.rules.classify import End, Standing
from clawq.settings import Kind, Settings
from clawq.states import SUCCEEDED
from clawq.store import attempts, counts, effects, ledger
from clawq.store.attempts import PolicyRow, Success
from clawq.supervisor.agents import Agent
from clawq.supervisor.evidence import Found
from clawq.supervisor.look import Ended

Draw = Callable[[], float]
"""A jitter between retry.JITTER's bounds."""
Leader = tuple[int | None, str | None]
"""The pid of an attempt's shell, and its start time."""

SUCCESS = classify.by_exit_code(0)
RAMP_STEP_MS = 1_500
"""After a limit's probe has passed the number of starts doubles about this often."""


def settle(
    db: apsw.Connection,
    settings: Settings,
    job_id: int,
    token: int,
    judge: Callable[[PolicyRow, Standing], End],
    found: Found,
    now: int,
    draw: Draw,
    peak: tuple[int, int] | None = None,
    leader: Leader | None = None,
    together: dict[int, Success] | None = None,
) -> End | None:
    """Record an attempt's end and what becomes of its job: the end that was accepted, or None when it was not
    ours.

    What it had reserved is settled with it, once. ``peak`` is (processes, MiB) of its tree at the most;
    ``leader`` is given for one that had ended when it was first seen to have run. An end that has nothing to
    tell but success goes to those that the caller writes ``together``, and at once.
    """
    row = attempts.policy(db, job_id, token)
    if row is None:
        return None
    kind = settings.kind(row.kind, row.band_name)
    policy = policy_of(row, kind)
    held = providers(settings, row.resources)
    end = judge(row, Standing(bool(held), row.limits_met, row.forks_failed))
    open_keys = effects.open_keys(db, job_id) if row.begun else []
    if not end.ran and (open_keys or row.told):
        # Its attempt file knows of no start, but only an agent can have begun or told anything.
        attempts.mark_running(db, job_id, token, None, None, now)
        end = classify.LOST
    rests_until = 0
    if end.outcome == "rate_limited":
        cooled = held
        if end.resource is not None and end.resource in settings.resources:
            cooled = [end.resource]
        step_ms = int(RAMP_STEP_MS * draw())
        rests_until = ledger.rate_limited(db, cooled, end.retry_after_ms, step_ms, now)
        end = end._replace(resource=",".join(cooled) or None)
    if end.error is not None or open_keys:
        end = end._replace(error=_with_effects(_error(end, found.output_tail), open_keys))
    charged = row.attempts + int(end.charged)
    decision = retry.after(end, charged, policy, bool(row.cancel), now, draw(), rests_until, bool(open_keys))
    if together is not None and end == SUCCESS and _has_no_story(row, found, decision, settings):
        pid, pid_started = leader or (None, None)
        procs, mb = peak or (None, None)
        together[token] = Success(job_id, pid, pid_started, procs, mb, found.spoke_at)
        if peak is not None:
            ledger.note_footprint(db, row.kind, *peak, now)
        return end
    accepted = attempts.finish(
        db,
        job_id,
        token,
        end,
        decision,
        found.output_tail,
        peak,
        now,
        retry_by=policy.retry_by if end.ran else None,
        result=found.result,
        note=found.note,
        spoke_at=found.spoke_at,
        leader=leader,
        fork_failed=end.reason == classify.FORK_FAILED or (not end.ran and found.spawned),
    )
    if not accepted:
        return None
    if row.spent:
        ledger.settle_spends(db, token, end.ran)
    if settings.budgets:
        counts.note_spends(db, job_id, token, now)
    if row.probing:
        ledger.note_end(db, token, end.ran, now, succeeded=end.outcome == "succeeded")
    if peak is not None:
        ledger.note_footprint(db, row.kind, *peak, now)
    return end


def _has_no_story(row: PolicyRow, found: Found, decision: retry.Decision, settings: Settings) -> bool:
    told = found.result or found.note or found.output_tail
    return decision.state == SUCCEEDED and not (told or row.spent or row.probing or settings.budgets)


def policy_of(row: PolicyRow, kind: Kind) -> retry.Policy:
    """The job's own rules for trying again, and its kind's where it has none."""
    return retry.Policy(
        max_attempts=kind.max_attempts if row.max_attempts is None else row.max_attempts,
        backoff_ms=kind.backoff_ms,
        max_backoff_ms=kind.max_backoff_ms,
        max_age_ms=kind.max_age_ms,
        on_lost=row.on_lost or kind.on_lost,
        accepted_at=row.accepted_at,
        deadline_at=row.deadline_at,
    )


def providers(settings: Settings, resources: list[str]) -> list[str]:
    """Those of these resources whose limits are everybody's."""
    return [name for name in resources if name in settings.resources and settings.resources[name].provider]


def _error(end: End, tail: str) -> str | None:
    """The error in one line: what somebody said, else what clawq saw and the agent's own last words."""
    if end.error is None:
        return None
    if tail and not end.said:
        return output.one_line(f"{end.error}: {tail.splitlines()[-1].strip()}")
    return output.one_line(end.error)


def _with_effects(error: str | None, open_keys: list[str]) -> str | None:
    if not open_keys:
        return error
    said = f"effect begun and never confirmed: {output.one_line(', '.join(open_keys))}"
    return f"{error}; {said}" if error else said


def record_start(db: apsw.Connection, agent: Agent, now: int) -> bool:
    """The agent was seen to run; False when its token is no longer the job's."""
    return attempts.mark_running(db, agent.job_id, agent.token, *_leader(agent), now)


def _leader(agent: Agent) -> Leader:
    return (agent.leader.pid, agent.leader.started) if agent.leader else (agent.pid, None)


def record_unseen(db: apsw.Connection, ended: Iterable[Ended], now: int) -> None:
    """Agents that ended before they were ever seen to run ran all the same. `record_end` follows for each."""
    unseen = {each.agent.token: each.agent.job_id for each in ended if _was_unseen(each.agent, each.found)}
    if unseen:
        attempts.mark_unseen(db, unseen, now)


def _was_unseen(agent: Agent, found: Found) -> bool:
    return found.evidence.ran and not agent.running and not agent.disowned


def record_end(
    db: apsw.Connection,
    settings: Settings,
    agent: Agent,
    found: Found,
    now: int,
    draw: Draw,
    together: dict[int, Success],
) -> End | None:
    """As `settle`, after `record_unseen`."""
    leader = _leader(agent) if _was_unseen(agent, found) else None
    peak = (agent.peak_procs, agent.peak_mb) if agent.peak_procs else None

    def judge(row: PolicyRow, standing: Standing) -> End:
        seen = found.evidence if row.told is None else found.evidence._replace(told=row.word)
        return classify.judge(seen, standing)

    return settle(db, settings, agent.job_id, agent.token, judge, found, now, draw, peak, leader, together)


def record_not_started(
    db: apsw.Connection, settings: Settings, job_id: int, token: int, end: End, now: int, draw: Draw
) -> End | None:
    """A claim that did not become a process."""
    found = Found(classify.Evidence(ran=False), spawned=False)
    return settle(db, settings, job_id, token, lambda *_: end, found, now, draw)
