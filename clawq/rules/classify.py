"""From how an attempt ended to what that means: its outcome, its error class, and whether it is charged.

`judge` is the one rule. A kill that clawq recorded comes first; then the first word that gives a class, of
the agent's own `clawq fail`, its result file, the reader of its output and the `errors` of its kind; then
output that ends in a failed fork; last the exit code.
"""

from __future__ import annotations

from typing import NamedTuple

from clawq.states import SUCCEEDED

PERMANENT_EXITS = frozenset({2, 64, 65, 66, 77, 78, 126, 127})
"""sysexits that say "this cannot work", bad usage, and a program that cannot be run."""
SIGNAL_EXITS = range(129, 160)
"""128 + signal: a shell cannot tell its agent's death by a signal from an exit with that number."""

FREE_LIMITS = 10
"""Rate limits of a provider that cost a job no attempt; later ones do."""
FREE_FORKS = 10
"""The same for agents that could not fork; one whose shell could not is tried at once so many times."""
NEVER_AGAIN_MS = 60_000

FORK_FAILED = "fork_failed"
FORK_WORDS = ("cannot fork", "resource temporarily unavailable")
"""How shells and C libraries say EAGAIN of a fork."""
FORK_LINES = 3
"""It has to be among so many last lines: the output ends in it."""

_MEANING = {126: "cannot be run", 127: "no such program"}


class Word(NamedTuple):
    """What somebody said of an end. Without ``error_class`` it only adds to what somebody else says.

    A reader's word without anything in it says that the agent's program has succeeded.
    """

    error_class: str | None = None
    reason: str | None = None
    """A word that retries are counted under; None: the class."""
    resource: str | None = None
    """The provider whose limit it is; None: every one that the job holds."""
    retry_after_ms: int | None = None
    error: str | None = None


class Evidence(NamedTuple):
    """Everything that was found of an end."""

    ran: bool = True
    exit_code: int | None = None
    """None: gone without one."""
    kill: str | None = None
    """A key of _KILLS, when clawq ended it and its own end did not come first."""
    detail: str | None = None
    """More about the kill."""
    told: Word | None = None
    """By `clawq fail`."""
    result: Word | None = None
    """By $CLAWQ_RESULT_FILE."""
    reader: Word | None = None
    """By `classify`."""
    pattern: Word | None = None
    """By `errors`."""
    last_lines: str = ""


class Standing(NamedTuple):
    """What the job brings along: does it hold a provider, and what has it been forgiven so far."""

    holds_provider: bool = False
    limits_met: int = 0
    forks_failed: int = 0


class End(NamedTuple):
    """How one attempt ended. ``own_word``: the agent itself said so, hence the outcome is known."""

    outcome: str
    error_class: str | None
    exit_code: int | None
    signal: int | None
    charged: bool
    own_word: bool
    error: str | None
    reason: str | None = None
    resource: str | None = None
    retry_after_ms: int | None = None
    said: bool = False
    """``error`` is somebody's own text, not what clawq saw."""

    @property
    def ran(self) -> bool:
        return self.outcome != "never_started"

    @property
    def retry_reason(self) -> str:
        """The word that a retry is counted under."""
        return self.reason or self.error_class or self.outcome


def judge(seen: Evidence, job: Standing) -> End:
    """The end that the evidence amounts to."""
    if not seen.ran:
        return _never_started(job.forks_failed - FREE_FORKS)
    if seen.kill is not None:
        end = by_kill(seen.kill, seen.exit_code)
        return end._replace(error=f"{end.error}: {seen.detail}") if seen.detail else end
    bare = LOST if seen.exit_code is None else by_exit_code(seen.exit_code)
    said = _words(seen)
    deciding = next((word for word in said if word.error_class is not None), None)
    if deciding is not None:
        return _by_word(deciding, said, bare, deciding is not seen.pattern, job)
    if _ends_in_a_failed_fork(seen):
        charged = job.forks_failed >= FREE_FORKS
        return bare._replace(error_class="transient", charged=charged, reason=FORK_FAILED)
    return bare if bare.outcome == SUCCEEDED else _with_details(bare, said)


def _words(seen: Evidence) -> list[Word]:
    """In the order in which they count. A program's own success is not doubted for the sake of a text."""
    succeeded = seen.exit_code == 0 and seen.reader is not None and seen.reader.error_class is None
    words = (seen.told, seen.result, seen.reader, None if succeeded else seen.pattern)
    return [word for word in words if word is not None]


def _by_word(deciding: Word, said: list[Word], bare: End, own: bool, job: Standing) -> End:
    limited = deciding.error_class == "rate_limit"
    free = limited and job.holds_provider and job.limits_met < FREE_LIMITS
    end = bare._replace(
        outcome="rate_limited" if limited else "failed",
        error_class=deciding.error_class,
        charged=not free,
        own_word=own or bare.own_word,
        error=bare.error or "exit 0",
        reason=deciding.reason,
        resource=deciding.resource,
    )
    return _with_details(end, said)


def _with_details(end: End, said: list[Word]) -> End:
    """The first text, and the first time to wait, of those who do not contradict the class."""
    agreeing = [word for word in said if word.error_class in (None, end.error_class)]
    text = next((word.error for word in agreeing if word.error), None)
    waits = (word.retry_after_ms for word in agreeing if word.retry_after_ms is not None)
    return end._replace(error=text or end.error, said=text is not None, retry_after_ms=next(waits, None))


def _ends_in_a_failed_fork(seen: Evidence) -> bool:
    if seen.exit_code in (None, 0) or seen.exit_code in SIGNAL_EXITS:
        return False
    text = "\n".join(seen.last_lines.splitlines()[-FORK_LINES:]).casefold()
    return any(words in text for words in FORK_WORDS)


def by_exit_code(exit_code: int) -> End:
    """The end of an attempt that recorded `exit_code`, and of which nothing else is known."""
    if exit_code == 0:
        return End("succeeded", None, 0, None, charged=True, own_word=True, error=None)
    if exit_code in SIGNAL_EXITS:
        number = exit_code - 128
        error = f"ended by signal {number}"
        return End("failed", "transient", exit_code, number, charged=True, own_word=False, error=error)
    error_class = "permanent" if exit_code in PERMANENT_EXITS else "transient"
    meaning = _MEANING.get(exit_code)
    error = f"exit {exit_code}" + (f" ({meaning})" if meaning else "")
    return End("failed", error_class, exit_code, None, charged=True, own_word=True, error=error)


def by_kill(reason: str, exit_code: int | None) -> End:
    """The end of an attempt that clawq ended for `reason`, which was recorded before the first signal."""
    outcome, error_class, charged, error = _KILLS[reason]
    word = outcome if outcome == "over_footprint" else None
    return End(outcome, error_class, exit_code, None, charged, own_word=False, error=error, reason=word)


_KILLS: dict[str, tuple[str, str | None, bool, str]] = {
    "timed_out": ("timed_out", "timeout", True, "timed out"),
    "deadline": ("timed_out", "timeout", True, "its deadline passed"),
    "stalled": ("stalled", "stalled", True, "no sign of life for a whole lease"),
    "over_footprint": ("over_footprint", "transient", True, "outgrew max_procs or max_mb"),
    "filled_disk": ("over_footprint", "transient", True, "ended because the disk was nearly full"),
    "cancelled": ("cancelled", None, True, "cancelled"),
    "stopped": ("lost", "lost", False, "ended by `clawq stop --now`"),
}
KILL_REASONS = tuple(_KILLS)

LOST = End("lost", "lost", None, None, charged=True, own_word=False, error="gone without an exit code")
NEVER_STARTED = End(
    "never_started",
    "transient",
    None,
    None,
    False,
    own_word=True,
    error="it never ran",
    reason="never_started",
)


def _never_started(too_often: int) -> End:
    """What is still so after FREE_FORKS times is tried again at ever longer intervals: a machine's fault
    passes, that of an agent who makes its file say so does not."""
    if too_often < 0:
        return NEVER_STARTED
    return NEVER_STARTED._replace(retry_after_ms=NEVER_AGAIN_MS << min(too_often, 30))


def cannot_start(error: str) -> End:
    """The end of an attempt that was claimed and cannot be started as it is."""
    return End("failed", "permanent", None, None, charged=True, own_word=True, error=error)
