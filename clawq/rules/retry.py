"""What becomes of a job when an attempt ends: done, tried again later, given up, or a person's to decide.

Backoff doubles with each charged attempt, `backoff * 2 ** (attempts - 1)`, multiplied by a jitter between 0.8
and 1.2 that the caller draws, so that jobs that failed together do not come back together. Past `max_backoff`
the jitter spreads over 0.8 to 1.0 of it: capped, and still not all at once.
"""

from __future__ import annotations

from typing import NamedTuple

from clawq import job
from clawq.rules.classify import End

JITTER = (0.8, 1.2)


EFFECT_OPEN = "effect_open"
"""Why a job is unknown: as a word, of its last attempt's end."""


class Policy(NamedTuple):
    """The job's own and its kind's rules for trying again; durations in ms, times in epoch ms."""

    max_attempts: int
    backoff_ms: int
    max_backoff_ms: int
    max_age_ms: int
    on_lost: str
    accepted_at: int
    deadline_at: int | None


class Decision(NamedTuple):
    """The job's next state, why, and when a retry may start (epoch ms)."""

    state: str
    reason: str
    run_after: int | None = None


def after(
    end: End,
    attempts: int,
    policy: Policy,
    cancel: bool,
    now: int,
    jitter: float,
    effects_open: bool = False,
) -> Decision:
    """Decide. `attempts` counts the charged ones, this one included; `cancel`: somebody asked for it.

    `effects_open`: it began a side effect and did not say what became of it, which counts more than any word
    about the rest.
    """
    if effects_open:
        return Decision(job.UNKNOWN, EFFECT_OPEN)
    if end.outcome == "succeeded":
        return Decision(job.SUCCEEDED, "succeeded")
    if cancel or end.outcome == "cancelled":
        return Decision(job.CANCELLED, "cancelled")
    if end.outcome == "never_started":
        return Decision(job.QUEUED, "never_started")
    if not end.own_word and policy.on_lost == "unknown":
        return Decision(job.UNKNOWN, end.outcome)
    if end.error_class == "permanent":
        return Decision(job.DEAD, "permanent")
    if policy.deadline_at is not None and now >= policy.deadline_at:
        return Decision(job.DEAD, "deadline")
    if not end.charged:
        return Decision(job.QUEUED, end.outcome)
    if attempts >= policy.max_attempts:
        return Decision(job.DEAD, "max_attempts")
    at = now + backoff(attempts, policy.backoff_ms, policy.max_backoff_ms, jitter)
    if policy.deadline_at is not None and at >= policy.deadline_at:
        return Decision(job.DEAD, "deadline")
    if at > policy.accepted_at + policy.max_age_ms:
        return Decision(job.DEAD, "max_age")
    return Decision(job.SCHEDULED, end.error_class or end.outcome, at)


def after_probe(end: End, attempts: int, policy: Policy, cancel: bool, now: int, jitter: float) -> Decision:
    """Decide about an unknown job of which its probe says that it did not happen.

    `end` is that of its last attempt, which was charged when it ended. An agent that said it had succeeded
    was wrong.
    """
    if end.outcome == "succeeded":
        end = end._replace(outcome="failed", error_class="transient")
    return after(end._replace(own_word=True), attempts, policy, cancel, now, jitter)


def backoff(attempts: int, base_ms: int, cap_ms: int, jitter: float) -> int:
    """Milliseconds to wait after `attempts` charged attempts."""
    delay = (base_ms << min(max(attempts - 1, 0), 62)) * jitter
    if delay > cap_ms:
        delay = cap_ms * (0.4 + jitter / 2)
    return int(delay)
