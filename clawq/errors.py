"""Every way clawq says no, and the exit code each one carries.

::

    ClawqError                 1   (an expected failure; anything else is a bug)
    |-- UsageError             2   a flag, kind, resource, band or payload that is wrong
    |-- NoSuchJob              1
    |-- WrongState             1   the job's state does not allow it
    |-- Refused           65 | 75  the queue's answer to a producer, with reason and retry_after_s
    |-- LeaseLost             77   inside a job: another attempt owns it now, or it has ended
    |-- StorageError          74   disk full, database unreadable or not ours
    |-- Busy                  75   somebody else holds what this needs; try again
    `-- ConfigError           78   clawq.toml: file, line, key, what was expected

The message is one line, ``what is wrong: what to do``; the command line puts ``clawq: `` before it.
"""

from __future__ import annotations

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
    """An expected failure: ``exit_code`` for scripts, ``reason`` for programs, the message for people."""

    exit_code = 1
    reason = "error"

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


class StorageError(ClawqError):
    exit_code = 74
    reason = "storage"


class Busy(ClawqError):
    exit_code = 75
    reason = "busy"


class ConfigError(ClawqError):
    exit_code = 78
    reason = "config"
