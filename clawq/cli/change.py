"""`clawq retry`, `cancel`, `approve`, `deny`, `edit` and `reconcile`: a person changes jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq import desk, options
from clawq import states as job
from clawq.cli import params, words
from clawq.errors import ClawqError, NoSuchJob, Refused, UsageError, WrongState
from clawq.poke import poke
from clawq.store import jobs

if TYPE_CHECKING:
    import apsw

Change = Callable[["apsw.Connection", int, int], str]
"""(database, job, now) -> the state the job is in afterwards."""


def retry(ids: params.JobIds, as_json: params.AsJson = False) -> int:
    """Queue dead, expired or cancelled jobs again.

    With all their attempts before them, and as if they had been accepted now.
    """
    with desk.reading() as here:
        settings, _ = here.settings()
    limit = settings.limits.max_queued
    return _each(ids, lambda db, job_id, now: jobs.retry(db, job_id, now, limit), "queued again", as_json)


def cancel(
    ids: params.JobIds,
    tree: Annotated[bool, typer.Option("--tree", help="End all that runs below them too.")] = False,
    as_json: params.AsJson = False,
) -> int:
    """Cancel jobs, and their children that have not started.

    At once what has not started; of what runs, the supervisor ends the agent.
    """
    return _each(ids, lambda db, job_id, now: jobs.cancel(db, job_id, now, tree), "cancelled", as_json, b"c")


def approve(ids: params.JobIds, as_json: params.AsJson = False) -> int:
    """Let held jobs go on."""
    return _each(ids, jobs.approve, "approved, now {state}", as_json)


def deny(ids: params.JobIds, as_json: params.AsJson = False) -> int:
    """Cancel held jobs."""
    return _each(ids, jobs.deny, "denied", as_json)


def edit(
    ids: params.JobIds,
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="N", help=options.BY_FLAG["priority"].help)
    ] = None,
    band: Annotated[
        str | None, typer.Option("--band", metavar="BAND", help=options.BY_FLAG["band"].help)
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help=options.BY_FLAG["delay"].help)
    ] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help=options.BY_FLAG["at"].help)] = None,
    stale_after: Annotated[
        str | None,
        typer.Option("--stale-after", metavar="DURATION|TIME", help=options.BY_FLAG["stale-after"].help),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="DURATION|TIME", help=options.BY_FLAG["deadline"].help)
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION|none", help=options.BY_FLAG["timeout"].help)
    ] = None,
    max_attempts: Annotated[
        str | None, typer.Option("--max-attempts", metavar="N", help=options.BY_FLAG["max-attempts"].help)
    ] = None,
    as_json: params.AsJson = False,
) -> int:
    """Change jobs that have not started. Durations count from now."""
    given = {
        "priority": priority,
        "band": band,
        "delay": delay,
        "at": at,
        "stale_after": stale_after,
        "deadline": deadline,
        "timeout": timeout,
        "max_attempts": max_attempts,
    }
    asked: dict[str, Any] = options.read(given, desk.now_ms())
    if not asked:
        raise UsageError("nothing to change", "`clawq edit --help` lists what can be")
    values = {
        "priority": asked.get("priority"),
        "band": asked.get("band"),
        "stale_at": asked.get("stale_after"),
        "deadline_at": asked.get("deadline"),
        "timeout_ms": asked.get("timeout"),
        "max_attempts": asked.get("max_attempts"),
        "run_after": asked.get("delay", asked.get("at")),
    }
    return _each(
        ids, lambda db, job_id, now: jobs.edit(db, job_id, now, **values), "edited, now {state}", as_json
    )


def reconcile(
    ids: params.JobIds,
    succeeded: Annotated[bool, typer.Option("--succeeded", help="It happened.")] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="It did not, and shall not be tried again.")
    ] = False,
    requeue: Annotated[
        bool, typer.Option("--requeue", help="It did not: run it again from the start.")
    ] = False,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why; kept in the job's events.")] = "",
    as_json: params.AsJson = False,
) -> int:
    """Say what became of unknown jobs, after looking."""
    verdicts = {job.SUCCEEDED: succeeded, job.DEAD: failed, job.QUEUED: requeue}
    chosen = [verdict for verdict, given in verdicts.items() if given]
    if len(chosen) != 1:
        what = "no verdict" if not chosen else "more than one verdict"
        raise UsageError(what, "give one of --succeeded, --failed and --requeue")
    said = words.line(note)
    return _each(
        ids,
        lambda db, job_id, now: jobs.reconcile(db, job_id, now, chosen[0], said),
        "reconciled, now {state}",
        as_json,
    )


def _each(texts: list[str], change: Change, done: str, as_json: bool, byte: bytes = b"p") -> int:
    """Change each job in a transaction of its own, tell each, and wake the supervisor once."""
    rows: list[dict[str, Any]] = []
    ids = words.job_ids(texts)
    with desk.changing() as here:

        def handle(job_id: int) -> None:
            try:
                state = change(here.queue(job_id), job_id, here.now)
            except (NoSuchJob, WrongState, Refused) as error:
                rows.append(_row(job_id, getattr(error, "state", None), error))
                raise
            rows.append(_row(job_id, state, None))

        code = words.each(ids, handle)
    if any(row["ok"] for row in rows):
        poke(here.home, byte)
    if as_json:
        words.write_json(rows)
        return code
    for row in rows:
        if row["ok"]:
            said = done.format(state=row["state"])
            if byte == b"c" and row["state"] != job.CANCELLED:
                said = "asked to end" if row["state"] in job.ACTIVE else "what was below it is cancelled"
            words.write(f"job {row['job_id']}: {said}")
    return code


def _row(job_id: int, state: str | None, error: ClawqError | None) -> dict[str, Any]:
    return {"job_id": job_id, "ok": error is None, "state": state, "reason": error.reason if error else None}
