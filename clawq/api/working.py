"""What a job's agent says from Python: its sign of life, its side effects, what it spends, why it fails.

Who asks is told by CLAWQ_JOB_ID and CLAWQ_TOKEN in the environment, so that all threads of an agent speak
for the same attempt, and so does a child process that inherits them.
"""

from clawq import lease
from clawq.errors import Busy, ClawqError, EffectHeld, TimedOut, Unconfirmed
from clawq.values import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType
    from typing import Literal

    from clawq.inside import Spent

TRIES = 3
"""Of a confirmation, while the database is locked by somebody: what happened should be written down."""


def beat() -> None:
    """Give a sign of life, for kinds with ``heartbeat = "agent"``.

    Raises LeaseLost (stop: the job is no longer this agent's), UsageError outside a job, StorageError, Busy.
    """
    lease.beat()


class SideEffect:
    """``with effect("mail") as fresh:`` true when it is this attempt's to do, false when it was done."""

    __slots__ = ("_fresh", "job_id", "key", "scope")

    def __init__(self, key: str, scope: str | None) -> None:
        self.key = key
        self.scope = scope
        self.job_id: int | None = None
        """Whose it is: the job that has done it, where this one has not."""
        self._fresh = False

    def __bool__(self) -> bool:
        return self._fresh

    def __enter__(self) -> "SideEffect":
        begun = lease.effect("begin", self.key, self.scope)
        self.job_id = begun.job_id
        if begun.answer == "unconfirmed":
            raise Unconfirmed(self.key, begun.job_id)
        if begun.answer == "held":
            raise EffectHeld(self.key, begun.job_id)
        self._fresh = begun.answer == "begun"
        return self

    def did_not_happen(self) -> None:
        """Say that it surely did not happen: its key is free again, and a retry may do it.

        Raises as entering does.
        """
        if self._fresh:
            self._settle("fail")
            self._fresh = False

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        trace: "TracebackType | None",
    ) -> None:
        # After an exception nobody knows whether it happened: it stays open, and the job becomes unknown.
        if self._fresh and kind is None:
            self._settle("done")
            self._fresh = False

    def _settle(self, action: str) -> None:
        wanted = "done" if action == "done" else "failed"
        for attempt in range(TRIES):
            try:
                answer = lease.effect(action, self.key, self.scope).answer
                break
            except Busy:
                if attempt == TRIES - 1:
                    raise
        if answer != wanted:
            raise ClawqError(
                f"effect {self.key!r:.80} is {answer.replace('_', ' ')}",
                f"somebody else settled it; it could not be recorded as {wanted}",
            )


def effect(key: str, scope: "Literal['job', 'tenant'] | None" = None) -> SideEffect:
    """A side effect that must not happen twice: ``with effect("mail:7") as fresh: if fresh: send()``.

    Entering records that it is about to be done, on disk; it is false in a retry of a job that has done it.
    Leaving without an exception confirms it. After an exception inside, however it came about, it stays
    begun, since nobody knows whether it happened: the attempt's end makes the job ``unknown``. Where it
    surely did not, say ``fresh.did_not_happen()`` before you raise: then a retry does it. `scope` "tenant"
    shares the key with all jobs of the tenant.

    Entering raises Unconfirmed (an earlier try was never confirmed), EffectHeld (another attempt does
    it right now), LeaseLost, UsageError outside a job, StorageError and Busy. Leaving raises LeaseLost,
    StorageError or Busy when the confirmation could not be written; it is open then.
    """
    return SideEffect(key, scope)


def ask(question: str, timeout: "str | float | timedelta | None" = None) -> bool:
    """Put a question to a person and wait for the answer, with this job's slots given back meanwhile.

    True: approved; false: denied, or too late to be asked. It is withdrawn when the attempt ends, and a retry
    asks again. Raises TimedOut (nobody has answered), Refused (``held_full``), LeaseLost, UsageError outside
    a job, StorageError and Busy.
    """
    from clawq.waiting import ask

    answer = ask(question, None if timeout is None else span("timeout", timeout))
    if answer.timed_out:
        raise TimedOut(f"nobody has answered question {answer.job_id} in time", "it is withdrawn at the end")
    return answer.approved


def throttle(resource: str, duration: "str | float | timedelta") -> None:
    """Let a resource rest for everybody, for so long ("5m", seconds or a timedelta; 0 ends a rest).

    Usable outside a job too. Raises UsageError, LeaseLost and what opening the queue raises.
    """
    from clawq.inside import throttle

    throttle(resource, 0 if duration == "0" else span("duration", duration))


def spend(budget: str, total: int) -> "Spent":
    """Record what this attempt has spent of a budget so far, all in all. It counts, beyond the limit too.

    The answer has ``overdrawn``, ``used``, ``limit`` and ``retry_after_s``. Raises UsageError (outside a job
    too), LeaseLost and what opening the queue raises.
    """
    from clawq.inside import spend

    return spend(budget, total)


def fail(
    error_class: "Literal['transient', 'permanent', 'rate_limit']",
    message: str | None = None,
    *,
    reason: str | None = None,
    resource: str | None = None,
    retry_after: "str | float | timedelta | None" = None,
) -> None:
    """Say why this attempt is about to fail, and end then. It counts more than the exit code; the last call
    counts. ``clawq fail --help`` tells what the words mean.

    Raises UsageError (outside a job too), LeaseLost and what opening the queue raises.
    """
    from clawq.inside import fail

    after = None if retry_after is None else span("retry_after", retry_after)
    fail(error_class, reason, resource, after, message)
