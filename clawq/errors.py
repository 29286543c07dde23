"""Every way clawq says no, and the exit code each one carries.

::

    ClawqError                 1   (an expected failure; anything else is a bug)
    |-- UsageError             2   a flag, kind, resource, band or payload that is wrong
    |-- NoSuchJob              1
    |-- WrongState             1   the job's state does not allow it
    |-- Refused           65 | 75  the queue's answer to a producer, with reason and retry_after_s
    |-- LeaseLost             77   inside a job: another attempt owns it now, or it has ended
    |-- Unconfirmed           11   a side effect was begun before, and nobody knows whether it happened
    |-- TimedOut              75   what was waited for has not ended in time
    |-- StorageError          74   disk full, database unreadable or not ours
    |-- Busy                  75   somebody else holds what this needs; try again
    |   `-- EffectHeld        75   ... a side effect that another attempt is doing right now
    `-- ConfigError           78   clawq.toml: file, line, key, what was expected

The message is one line, ``what is wrong: what to do``; the command line puts ``clawq: `` before it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

REFUSED_FOR_GOOD = frozenset(
    {"expired", "never_fits", "too_deep", "too_many_descendants", "deadline_passed", "not_allowed"}
)
REFUSED_FOR_NOW = frozenset(
    {
        "queue_full",
        "kind_queue_full",
        "tenant_queue_full",
        "held_full",
        "over_capacity",
        "would_expire",
        "database_busy",
    }
)


class ClawqError(Exception):
    """An expected failure: ``exit_code`` for scripts, ``reason`` for programs, the message for people.

    ``retry_after_s`` (None: retrying as it is does not help, or nobody knows when) and ``safe_to_retry``
    (nothing was accepted, so that asking again cannot make two jobs) belong to every answer of the queue.
    """

    exit_code = 1
    reason = "error"
    retry_after_s: float | None = None
    safe_to_retry = False

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}: {fix}" if fix else what)


class UsageError(ClawqError):
    exit_code = 2
    reason = "usage"


class NoSuchJob(ClawqError):
    reason = "no_such_job"

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"no job {job_id}", "`clawq list` shows the jobs there are")


class WrongState(ClawqError):
    reason = "wrong_state"

    def __init__(self, job_id: int, state: str, verb: str, allowed: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is {state}", f"only a job that is {allowed} can be {verb}")


class Refused(ClawqError):
    """The queue does not take this job.

    ``reason`` is one of REFUSED_FOR_GOOD (exit 65: do not retry) or REFUSED_FOR_NOW (exit 75: retry
    after ``retry_after_s`` seconds, which is None for the former). ``safe_to_retry`` is true when
    nothing was accepted, so that asking again cannot make two jobs.
    """

    def __init__(
        self,
        reason: str,
        what: str,
        fix: str = "",
        retry_after_s: float | None = None,
        safe_to_retry: bool | None = None,
    ) -> None:
        self.reason = reason
        self.whose: tuple[str, str] | None = None
        """Kind and tenant, where it is refused before there is a draft of it."""
        self.exit_code = 65 if reason in REFUSED_FOR_GOOD else 75
        self.retry_after_s = retry_after_s
        self.safe_to_retry = self.exit_code == 75 if safe_to_retry is None else safe_to_retry
        super().__init__(what, fix)


class LeaseLost(ClawqError):
    """What a job's agent asks for in the name of an attempt that is no longer its own."""

    exit_code = 77
    reason = "lease_lost"

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} is no longer this agent's", "stop: what it does now counts for nothing"
        )


class Unconfirmed(ClawqError):
    """A side effect that an earlier try began and never settled: it may have happened, so do not do it."""

    exit_code = 11
    reason = "unconfirmed"

    def __init__(self, key: str, job_id: int | None) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"effect {key!r:.80} was begun in job {job_id} and never confirmed",
            f"do not do it; that job's end leaves it to `clawq reconcile {job_id}`",
        )


class TimedOut(ClawqError, TimeoutError):
    """The time was over; ``outcomes`` says how each job stands, and the jobs go on."""

    exit_code = 75
    reason = "timed_out"

    def __init__(self, what: str, fix: str, outcomes: Sequence[Any] = ()) -> None:
        self.outcomes = outcomes
        super().__init__(what, fix)


class StorageError(ClawqError):
    exit_code = 74
    reason = "storage"


class Busy(ClawqError):
    exit_code = 75
    reason = "busy"


class EffectHeld(Busy):
    """A side effect that another attempt, which is alive, is doing right now: do not do it."""

    reason = "held"

    def __init__(self, key: str, job_id: int | None) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"effect {key!r:.80} is under way in job {job_id}", "leave it alone, and try again later"
        )


class ConfigError(ClawqError):
    exit_code = 78
    reason = "config"
