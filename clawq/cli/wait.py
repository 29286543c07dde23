"""`clawq wait`: block until jobs have ended."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from clawq import states as job
from clawq import when
from clawq.cli import desk, params, words
from clawq.errors import NoSuchJob
from clawq.store import views

LOOK_S = 0.1
TIMED_OUT = 75
SETTLED = (*job.ENDED, job.UNKNOWN)
"""Nothing more happens by itself."""


def wait(
    ids: params.JobIds,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Give up after this long, with exit code 75."),
    ] = None,
    as_json: params.AsJson = False,
) -> int:
    """Wait until jobs have ended.

    Exit code 0 when all succeeded, 1 when not, 75 when the time was over.
    """
    wanted = words.job_ids(ids)
    give_up = None if timeout is None else time.monotonic() + when.duration(timeout) / 1000
    states = _look(wanted)
    if not _settled(states):
        desk.warn_without_supervisor()
    told: set[int] = set()
    while True:
        if not as_json:
            _tell(states, told)
        if _settled(states) or (give_up is not None and time.monotonic() >= give_up):
            break
        time.sleep(LOOK_S)
        states = _look(wanted)
    if as_json:
        words.write_json([{"job_id": job_id, "state": state} for job_id, state in states.items()])
    if not _settled(states):
        words.note(
            f"after {timeout} not ended: {', '.join(str(id) for id in states if states[id] not in SETTLED)}"
        )
        return TIMED_OUT
    return 0 if all(state == job.SUCCEEDED for state in states.values()) else 1


def _look(wanted: list[int]) -> dict[int, str]:
    """{id: state} in the order asked for. Raises NoSuchJob."""
    with desk.reading() as here:
        found = views.states_of(here.queue(wanted[0]), wanted)
    for job_id in wanted:
        if job_id not in found:
            raise NoSuchJob(job_id)
    return {job_id: found[job_id] for job_id in wanted}


def _settled(states: dict[int, str]) -> bool:
    return all(state in SETTLED for state in states.values())


def _tell(states: dict[int, str], told: set[int]) -> None:
    for job_id, state in states.items():
        if state in SETTLED and job_id not in told:
            told.add(job_id)
            words.write(f"job {job_id}: {state}")
            sys.stdout.flush()
