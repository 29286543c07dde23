"""Putting work in from Python: one job, or as many as an iterable has."""

from clawq.client import Producer, Receipt, refusal
from clawq.errors import ClawqError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta
    from os import PathLike


def enqueue(
    kind: str | None = None,
    command: "Sequence[str] | None" = None,
    *,
    payload: object = None,
    dedupe_key: str | None = None,
    dedupe_scope: str | None = None,
    exclusive: str | None = None,
    priority: int | None = None,
    band: str | None = None,
    tenant: str | None = None,
    needs: "Sequence[str] | str | None" = None,
    delay: "str | float | timedelta | None" = None,
    at: "str | datetime | None" = None,
    stale_after: "str | float | timedelta | datetime | None" = None,
    deadline: "str | float | timedelta | datetime | None" = None,
    timeout: "str | float | timedelta | None" = None,
    max_attempts: int | None = None,
    on_lost: str | None = None,
    hold: bool = False,
    parent: int | None = None,
    on_parent_end: str | None = None,
    cwd: "str | PathLike[str] | None" = None,
    env: "Mapping[str, str] | Sequence[str] | None" = None,
    dry_run: bool = False,
) -> Receipt:
    """Put a job into the queue and return once it is durable.

    The arguments are the options of ``clawq enqueue``. ``payload`` is any value that JSON can hold
    (bytes: JSON text as it is); durations are texts such as "10m", seconds or a timedelta; times are
    texts or a datetime (local unless it is aware). ``dry_run`` does everything but keep the job.
    Inside a job the new one is that job's child.

    Raises Refused (the queue's no, with ``reason``, ``retry_after_s`` and ``safe_to_retry``),
    UsageError, LeaseLost (inside a job that is no longer this agent's), NoSuchJob and WrongState (of
    ``parent``), ConfigError and StorageError, which are all ClawqError.
    """
    # The parameters have the options' names: a second list of them could only differ.
    given: dict[str, object] = dict(locals())
    del given["dry_run"]
    with Producer() as producer:
        return producer.enqueue(given, dry_run)


AT_ONCE = 1_000
"""Jobs in one transaction."""


def enqueue_many(jobs: "Iterable[Mapping[str, object]]", *, dry_run: bool = False) -> "Iterator[Receipt]":
    """Put many jobs into the queue, a thousand in each transaction; their receipts, in order.

    Each job is a mapping of the arguments of ``enqueue``: ``{"kind": "site.qa", "payload": {...}}``.
    Nothing happens before the first receipt is asked for, and no more than a thousand jobs are taken
    from `jobs` before their receipts are given out, so that both sides may be without end. A receipt is
    given once its job is durable. One that was not accepted has the outcome ``rejected``, a ``reason`` and
    the exception as ``error``; the others are not concerned.

    Raises what concerns all of them (ConfigError, StorageError, Refused ``database_busy``): nothing of the
    thousand at hand was accepted then, and all receipts given out before stand. Between two receipts
    nothing is open.
    """
    taken = 0
    for chunk in _chunks(jobs):
        with Producer() as producer:
            answers = producer.enqueue_many(chunk, dry_run)
            taken += len(chunk)
            if taken >= AT_ONCE and len(chunk) < AT_ONCE and not dry_run:
                producer.checkpoint()
        for answer in answers:
            yield refusal(answer) if isinstance(answer, ClawqError) else answer


def _chunks(jobs: "Iterable[Mapping[str, object]]") -> "Iterator[list[Mapping[str, object] | ClawqError]]":
    chunk: list[Mapping[str, object] | ClawqError] = []
    for job in jobs:
        if hasattr(job, "items"):
            chunk.append(job)
        else:  # what is no job is so for itself; the others are not concerned
            chunk.append(UsageError(f"{job!r:.80} is no job", 'give a mapping: {"kind": "site.qa"}'))
        if len(chunk) == AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
