"""What becomes of a job when an attempt ends: done, tried again later, given up, or a person's to decide.

Backoff doubles with each charged attempt, `backoff * 2 ** (attempts - 1)`, multiplied by a jitter between 0.8
and 1.2 that the caller draws, so that jobs that failed together do not come back together. Past `max_backoff`
the jitter spreads over 0.8 to 1.0 of it: capped, and still not all at once. What the agent or its provider
asks for (`retry_after`, a cooldown) is waited for beyond that cap.

A provider that met a limit rests for what it asked for, at least 30 s doubled with each rest in a row, at
most six hours.
"""

from __future__ import annotations

from typing import NamedTuple

from clawq import states as job
from clawq.rules.classify import End

JITTER = (0.8, 1.2)

REST_FIRST_MS = 30_000
REST_MOST_MS = 6 * 3_600_000
IN_A_ROW_MS = 600_000
"""A limit met within this long after a rest, or within the length of that rest, is the next one in a row."""


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

    @property
    def retry_by(self) -> int:
        """No retry starts later than this."""
        return self.accepted_at + self.max_age_ms


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
    rests_until: int = 0,
    effects_open: bool = False,
) -> Decision:
    """Decide. `attempts` counts the charged ones, this one included; `cancel`: somebody asked for it.

    `rests_until`: when the provider whose limit it met has rested (epoch ms). `effects_open`: it began a side
    effect and did not say what became of it, which counts more than any word about the rest.
    """
    if effects_open:
        return Decision(job.UNKNOWN, EFFECT_OPEN)
    if end.outcome == "succeeded":
        return Decision(job.SUCCEEDED, "succeeded")
    if cancel or end.outcome == "cancelled":
        return Decision(job.CANCELLED, "cancelled")
    if not end.ran:
        return _once_more(end, policy, now)
    if not end.own_word and policy.on_lost == "unknown":
        return Decision(job.UNKNOWN, end.outcome)
    if end.error_class == "permanent":
        return Decision(job.DEAD, "permanent")
    if policy.deadline_at is not None and now >= policy.deadline_at:
        return Decision(job.DEAD, "deadline")
    if end.charged and attempts >= policy.max_attempts:
        return Decision(job.DEAD, "max_attempts")
    at = max(now + _wait(end, attempts, policy, jitter), rests_until)
    if policy.deadline_at is not None and at >= policy.deadline_at:
        return Decision(job.DEAD, "deadline")
    if at > policy.retry_by:
        return Decision(job.DEAD, "max_age")
    if at <= now and not end.charged:
        return Decision(job.QUEUED, end.retry_reason)
    return Decision(job.SCHEDULED, end.retry_reason, at)


def _once_more(end: End, policy: Policy, now: int) -> Decision:
    if end.retry_after_ms is None:
        return Decision(job.QUEUED, end.outcome)
    at = now + min(end.retry_after_ms, policy.max_backoff_ms)
    return Decision(job.DEAD, "max_age") if at > policy.retry_by else Decision(job.SCHEDULED, end.outcome, at)


def after_probe(end: End, attempts: int, policy: Policy, cancel: bool, now: int, jitter: float) -> Decision:
    """Decide about an unknown job of which its probe says that it did not happen.

    `end` is that of its last attempt, which was charged when it ended. An agent that said it had succeeded
    was wrong.
    """
    if end.outcome == "succeeded":
        end = end._replace(outcome="failed", error_class="transient")
    return after(end._replace(own_word=True), attempts, policy, cancel, now, jitter)


def _wait(end: End, attempts: int, policy: Policy, jitter: float) -> int:
    if not end.charged:
        return 0  # its provider's rest, the closed gate or the next supervisor is what it waits for
    return max(backoff(attempts, policy.backoff_ms, policy.max_backoff_ms, jitter), end.retry_after_ms or 0)


def backoff(attempts: int, base_ms: int, cap_ms: int, jitter: float) -> int:
    """Milliseconds to wait after `attempts` charged attempts."""
    delay = (base_ms << min(max(attempts - 1, 0), 62)) * jitter
    if delay > cap_ms:
        delay = cap_ms * (0.4 + jitter / 2)
    return int(delay)


class Rest(NamedTuple):
    """A provider's rest for a limit: the how many-th in a row, from when until when (epoch ms)."""

    streak: int
    since: int
    until: int


def rest(last: Rest | None, resting: bool, retry_after_ms: int | None, now: int) -> Rest:
    """The rest for a limit met `now`. Limits met while it rests count once; the longer wait stands."""
    asked = min(retry_after_ms or 0, REST_MOST_MS)
    if last is not None and resting:
        return last._replace(until=max(last.until, now + asked))
    in_a_row = last is not None and now - last.until <= max(IN_A_ROW_MS, last.until - last.since)
    streak = last.streak + 1 if last is not None and in_a_row else 1
    doubled = REST_FIRST_MS << min(streak - 1, 30)
    return Rest(streak, now, now + min(max(doubled, asked), REST_MOST_MS))
