"""``clawq enqueue --wait``: stay until the job has ended, then exit as it did."""

import time

from clawq import states as job
from clawq.cli import words, write_error
from clawq.client import Producer, Receipt
from clawq.errors import NoSuchJob
from clawq.paths import supervisor_ticks
from clawq.store.connection import storage_errors
from clawq.store.outcomes import outcomes
from clawq.waiting import until_settled

EXPIRED = 65
"""As for a job that is refused because it is stale."""
UNTOLD = 1
"""Cancelled, unknown, pruned, or dead without an exit code of its own."""


def wait_for(producer: Producer, receipt: Receipt) -> int:
    """The exit code of the receipt's job once it has ended. Ctrl-C leaves the job alone (130)."""
    job_id = receipt.job_id
    assert job_id is not None
    try:
        return _ended(producer, job_id)
    except KeyboardInterrupt:
        write_error(f"job {job_id} goes on without you: `clawq wait {job_id}` waits again")
        return 130


def _ended(producer: Producer, job_id: int) -> int:
    if not supervisor_ticks(producer.home, time.time_ns() // 1_000_000):
        write_error(f"no supervisor runs: job {job_id} waits until `clawq run` is started")
    try:
        until_settled([job_id])
        with storage_errors(producer.home.db):
            seen = outcomes(producer.intake.db, [job_id])[job_id]
    except (NoSuchJob, KeyError):
        write_error(f"job {job_id} has been pruned: its end is no longer known")
        return UNTOLD
    return _exit_code(job_id, seen["state"], seen["exit_code"], seen["error"])


def _exit_code(job_id: int, state: str, exit_code: int | None, error: str | None) -> int:
    if state == job.SUCCEEDED:
        return exit_code or 0
    write_error(words.ended(job_id, state, error))
    if state == job.EXPIRED:
        return EXPIRED
    if state == job.DEAD and exit_code and 0 < exit_code < 256:
        return exit_code
    return UNTOLD
