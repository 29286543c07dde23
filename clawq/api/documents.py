"""The shapes of what ``clawq.job()`` gives: those of ``clawq show --json``. Times are ISO 8601 in UTC.

For type checkers; nothing imports it at run time.
"""

from typing import Any, TypedDict

# `from` is a word of Python, so that this one cannot be written as a class.
Event = TypedDict("Event", {"at": str, "from": str, "to": str, "reason": str | None})
"""One change of state; ``from`` is ``new`` for the first."""


class JobRow(TypedDict):
    """A job as ``list`` and ``show`` have it."""

    id: int
    kind: str
    state: str
    tenant: str
    band: str
    priority: int
    attempts: int
    max_attempts: int
    dedupe_key: str | None
    parent_id: int | None
    root_id: int | None
    run_after: str
    stale_at: str | None
    deadline_at: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    last_error: str | None
    error_class: str | None
    command: list[str] | None
    cwd: str
    needs: list[str]


class AttemptRow(TypedDict):
    """One run of a job; ``log`` is the path of its output, ``peak_mb`` and ``peak_procs`` of its tree."""

    number: int
    started_at: str | None
    ended_at: str | None
    outcome: str | None
    exit_code: int | None
    signal: int | None
    error_class: str | None
    error: str | None
    resource: str | None
    peak_mb: int | None
    peak_procs: int | None
    log: str


class Deferral(TypedDict):
    """How often a job was passed over for one reason."""

    reason: str
    count: int
    first_at: str
    last_at: str


class EffectRow(TypedDict):
    """A side effect; ``state`` is begun, done or failed, ``attempt`` the number of whoever began it."""

    key: str
    scope: str
    state: str
    attempt: int | None
    begun_at: str
    settled_at: str | None


class JobDocument(TypedDict):
    """Everything about one job."""

    job: JobRow
    attempts: list[AttemptRow]
    deferrals: list[Deferral]
    retries: dict[str, int]
    events: list[Event]
    effects: list[EffectRow]
    children: list[JobRow]
    result: Any
