"""Is this attempt alive, and if not, what does its file say became of it?"""

from __future__ import annotations

from typing import Literal, NamedTuple

Verdict = Literal["alive", "ended", "lost", "never_ran"]

PER_SPAN = 4
"""Renewals within a lease."""
LEAST_RENEWAL_MS = 500
TREES_MS = 5_000
"""Who computes is looked at no more often."""


class Evidence(NamedTuple):
    """What was seen: the attempt file's lock and marks, and whether it was written in this boot."""

    locked: bool
    ran: bool
    exit_code: int | None
    same_boot: bool
    known_running: bool
    """The database already recorded that the agent ran (its file may have been deleted since)."""


def judge(evidence: Evidence) -> Verdict:
    """The attempt's life by its file.

    A lock is believed only within the boot that took it. An exit code without the mark that the agent ran
    is the shell's own: it never ran. After a reboot the marks may not have reached the disk, so an attempt
    without an exit code is lost, not "never ran".
    """
    if evidence.locked and evidence.same_boot:
        return "alive"
    if evidence.exit_code is not None and (evidence.ran or evidence.known_running):
        return "ended"
    if evidence.ran or evidence.known_running or not evidence.same_boot:
        return "lost"
    return "never_ran"


def overdue(
    now: int, started: int, last_sign: int, lease_ms: int, timeout_ms: int, deadline: int | None
) -> str | None:
    """Why an agent that is alive must be ended now, or None. All times in ms of one clock; 0 timeout is none.

    The answer is one of `deadline`, `timed_out`, `stalled`.
    """
    if deadline is not None and now >= deadline:
        return "deadline"
    if timeout_ms and now - started >= timeout_ms:
        return "timed_out"
    if now - last_sign >= lease_ms:
        return "stalled"
    return None


def next_check(started: int, last_sign: int, lease_ms: int, timeout_ms: int, deadline: int | None) -> int:
    """When `overdue` can first say something else, on the same clock."""
    at = last_sign + lease_ms
    if timeout_ms:
        at = min(at, started + timeout_ms)
    if deadline is not None:
        at = min(at, deadline)
    return at


def worked(cpu_ms: int, before_ms: int, passed_ms: int) -> bool:
    """Does a process tree do anything, by its CPU time at two looks? A timer that ticks is no work.

    The sum falls when part of the tree ends, which is a sign of life too.
    """
    return abs(cpu_ms - before_ms) * 200 >= passed_ms


def renew_every(lease_ms: int, quiet_ms: int) -> int:
    """How often what is known of an agent is written down, ms: several times within its lease.

    And within what counts as quiet, since with it goes when the agent was last seen to compute.
    """
    return max(LEAST_RENEWAL_MS, min(lease_ms // PER_SPAN, max(TREES_MS, quiet_ms // PER_SPAN)))
