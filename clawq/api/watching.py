"""Looking at jobs from Python: waiting for their end, and everything about one of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from clawq import desk, values
from clawq.client import Receipt
from clawq.errors import NoSuchJob, TimedOut, UsageError
from clawq.states import SETTLED, SUCCEEDED
from clawq.store import views
from clawq.waiting import is_settled, known, until_settled

if TYPE_CHECKING:
    from clawq.api.documents import JobDocument


class Outcome:
    """How a job stands: ``state``, the last attempt's ``exit_code`` (None: it has none), ``error`` and
    ``error_class``, and ``result``, what the agent left in $CLAWQ_RESULT_FILE (parsed; None: nothing).
    """

    __slots__ = ("error", "error_class", "exit_code", "job_id", "result", "state")

    def __init__(
        self,
        job_id: int,
        state: str,
        exit_code: int | None = None,
        error: str | None = None,
        error_class: str | None = None,
        result: Any = None,
    ) -> None:
        self.job_id = job_id
        self.state = state
        self.exit_code = exit_code
        self.error = error
        self.error_class = error_class
        self.result = result

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.state == SUCCEEDED

    @property
    def settled(self) -> bool:
        """Whether nothing more happens by itself: it has ended, or is unknown and waits for a person."""
        return self.state in SETTLED

    def as_dict(self) -> dict[str, Any]:
        """With what is derived: ``succeeded``."""
        return {
            "job_id": self.job_id,
            "state": self.state,
            "succeeded": self.succeeded,
            "exit_code": self.exit_code,
            "error": self.error,
            "error_class": self.error_class,
            "result": self.result,
        }

    def __repr__(self) -> str:
        return f"Outcome(job_id={self.job_id}, state={self.state!r}, result={self.result!r})"


def wait(
    jobs: int | Receipt | Iterable[int | Receipt] | None = None,
    timeout: str | float | timedelta | None = None,
) -> list[Outcome]:
    """Block until jobs have ended; how each did, in the order asked for.

    `jobs` are ids or receipts; inside a job only those below it, and None is what it has enqueued itself.
    An ``unknown`` job counts as ended. `timeout` is a text such as "10m", seconds or a timedelta. A job that
    waits gives its slots back meanwhile, and goes on once it has them again.

    Raises TimedOut (with ``outcomes``; the jobs go on), NoSuchJob (pruned ones too), UsageError for the
    receipt of a job that was refused, StorageError and Busy; inside a job LeaseLost and Refused
    (``not_allowed``, ``never_fits``).
    """
    wanted = None if jobs is None else ids_of(jobs)
    states = until_settled(wanted, None if timeout is None else values.span("timeout", timeout))
    seen = look(list(states))
    if is_settled(states):
        return seen
    open_ones = ", ".join(str(job_id) for job_id, state in states.items() if state not in SETTLED)
    raise TimedOut(f"not ended in time: {open_ones:.200}", "they go on; wait again", seen)


def ids_of(jobs: int | Receipt | Iterable[int | Receipt]) -> list[int]:
    """Each once, in order. Raises UsageError."""
    found: dict[int, None] = {}
    for each in [jobs] if isinstance(jobs, (int, Receipt)) else jobs:
        job_id = each.job_id if isinstance(each, Receipt) else each
        if job_id is None:
            raise UsageError("this receipt has no job", "it was refused, or a dry run: look at its outcome")
        if type(job_id) is not int:
            raise UsageError(f"{job_id!r:.80} is no job", "give ids or receipts")
        found[job_id] = None
    return list(found)


def look(wanted: list[int]) -> list[Outcome]:
    """How these jobs stand now. Raises NoSuchJob."""
    import json

    rows = known([each for each in wanted if 0 < each <= values.JOB_ID_MAX])
    seen = []
    for job_id in wanted:
        row = rows.get(job_id)
        if row is None:
            raise NoSuchJob(job_id)
        text = row.pop("result")
        seen.append(Outcome(**row, result=None if text is None else json.loads(text)))
    return seen


def job(job_id: int) -> JobDocument:
    """Everything about one job: what ``clawq show --json`` prints, times as ISO 8601 in UTC.

    Raises NoSuchJob, UsageError, StorageError and Busy.
    """
    if type(job_id) is not int:
        raise UsageError(f"{job_id!r:.80} is no job", "give its id")
    if not 0 < job_id <= values.JOB_ID_MAX:
        raise NoSuchJob(job_id)
    with desk.reading() as here:
        settings, _ = here.settings()
        document = views.show(here.queue(job_id), settings, here.home.logs, job_id)
    return cast("JobDocument", desk.with_iso(document))
