"""What producers use: the queue's answer to one job, or to a thousand, durable before it is given.

The Python API, the command line and schedules all come through here. Configuration and programs are
looked at before the transaction, which then only reads and writes rows.
"""

import os
import time

from clawq import settings
from clawq.drafting import Drafter
from clawq.errors import Busy, ClawqError, ConfigError, Refused
from clawq.paths import find_home, supervisor_ticks
from clawq.store.connection import Immediate, open_db, storage_errors
from clawq.store.draft import Draft
from clawq.store.intake import Intake
from clawq.when import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clawq.lines import Alike
    from clawq.paths import Home
    from clawq.store.bulk import Run

    Answers = list[tuple["Receipt | ClawqError", int]]
    """In order, and to how many jobs: behind a receipt for several, each has the next number."""


class Receipt:
    """The queue's answer, with the fields of ``clawq enqueue --json``.

    ``outcome`` is admitted, queued, scheduled, held, duplicate or rejected. ``job_id`` and ``state``
    are those of the job, of the existing one for a duplicate (``state`` None once it is pruned), and
    None for a refusal and for a dry run. ``reason`` and ``retry_after_s`` belong to a refusal.
    ``degraded``: taken as its kind's ``degrade_to``, since it could not start at once.
    ``safe_to_retry``: asking again cannot make a second job. ``deadline_at`` is ISO 8601 in UTC.
    ``error`` is the exception behind a refusal, with its message for people; it is not in the JSON.
    """

    __slots__ = (
        "deadline_at",
        "degraded",
        "error",
        "job_id",
        "outcome",
        "reason",
        "retry_after_s",
        "safe_to_retry",
        "state",
    )

    def __init__(
        self,
        outcome: str,
        job_id: int | None = None,
        state: str | None = None,
        reason: str | None = None,
        retry_after_s: int | None = None,
        safe_to_retry: bool = False,
        deadline_at: str | None = None,
        degraded: bool = False,
        error: ClawqError | None = None,
    ) -> None:
        self.outcome = outcome
        self.job_id = job_id
        self.state = state
        self.degraded = degraded
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.safe_to_retry = safe_to_retry
        self.deadline_at = deadline_at
        self.error = error

    def __repr__(self) -> str:
        return f"Receipt({self.as_json()})"

    def as_dict(self) -> "dict[str, object]":
        """What ``as_json`` writes."""
        return {key: getattr(self, key) for key in _KEYS}

    def as_json(self) -> str:
        """One line; every text in it is one of clawq's own words or a time, so nothing needs escaping."""
        return (
            f'{{"outcome": "{self.outcome}", "job_id": {_json(self.job_id)}, "state": {_json(self.state)}, '
            f'"degraded": {_json(self.degraded)}, "reason": {_json(self.reason)}, '
            f'"retry_after_s": {_json(self.retry_after_s)}, "safe_to_retry": {_json(self.safe_to_retry)}, '
            f'"deadline_at": {_json(self.deadline_at)}}}'
        )


def each(receipt: Receipt, count: int) -> "Iterator[Receipt]":
    """The receipts of so many jobs, which one stands for."""
    yield receipt
    for more in range(1, count):
        other = Receipt(**receipt.as_dict())  # type: ignore[arg-type]  # the same names
        if receipt.job_id is not None:
            other.job_id = receipt.job_id + more
        yield other


_KEYS = (
    "outcome",
    "job_id",
    "state",
    "degraded",
    "reason",
    "retry_after_s",
    "safe_to_retry",
    "deadline_at",
)


def _json(value: str | int | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def refusal(error: ClawqError) -> Receipt:
    """The receipt of what was not accepted."""
    seconds = error.retry_after_s
    return Receipt(
        "rejected",
        reason=error.reason,
        retry_after_s=None if seconds is None else int(seconds),
        safe_to_retry=error.safe_to_retry,
        error=error,
    )


class Producer:
    """One open queue: ``with Producer() as producer:``. Raises what opening the database raises."""

    __slots__ = ("home", "intake")
    # `intake` is for clawq's own modules; users of the API have `enqueue` and the like.

    def __init__(self, home: "Home | None" = None) -> None:
        self.home = find_home() if home is None else home
        try:
            self.intake = Intake(open_db(self.home))
        except Busy as error:
            raise _database_busy(error) from error

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *failure: object) -> None:
        self.intake.db.close()

    def enqueue(self, given: "Mapping[str, object]", dry_run: bool = False) -> Receipt:
        """One job from the options as they were given. Raises as ``clawq.enqueue`` does."""
        (answer,) = self.enqueue_many([given], dry_run)
        if isinstance(answer, ClawqError):
            raise answer
        return answer

    def enqueue_many(
        self, batch: "Sequence[Mapping[str, object] | Alike | ClawqError]", dry_run: bool = False
    ) -> "list[Receipt | ClawqError]":
        """The answers in order, from one transaction: a receipt, or the UsageError or Refused of that job.

        An error in the place of a job is its answer; ``Alike`` is what clawq.lines made of several.
        Raises what concerns all of them: ConfigError, LeaseLost, StorageError and Refused
        ``database_busy``; nothing is accepted then.
        """
        answers: list[Receipt | ClawqError] = []
        for answer, count in self.enqueue_lines(batch, dry_run):
            answers.extend((answer,) if isinstance(answer, ClawqError) else each(answer, count))
        return answers

    def enqueue_lines(
        self,
        batch: "Sequence[Mapping[str, object] | Alike | ClawqError]",
        dry_run: bool = False,
        meanwhile: "Callable[[], None] | None" = None,
    ) -> "Answers":
        """The same, with one answer for jobs that follow each other and are answered alike.

        `meanwhile` is called when only the commit is left to be done, which waits for the disk.
        """
        now = time.time_ns() // 1_000_000
        ticking = supervisor_ticks(self.home, now)
        drafter = Drafter(self.intake, now)
        try:
            with storage_errors(self.home.db):
                for _ in range(5):
                    self.follow_config(now)
                    drafts = drafter.read(batch)
                    counted: dict[tuple[str, str, str], int] = {}
                    answers = self._write(drafts, now, ticking, dry_run, counted, meanwhile)
                    if answers is not None:
                        break
                else:
                    raise Busy("clawq.toml changes all the time", "try again when it is quiet")
        except Busy as error:
            raise _database_busy(error) from error
        if not dry_run:
            self._note(answers, counted, now)
        return answers

    def nag(self) -> str | None:
        """Once a day, when work has waited ten minutes and no supervisor is alive: a line for a person."""
        now = time.time_ns() // 1_000_000
        if supervisor_ticks(self.home, now):
            return None
        try:
            with storage_errors(self.home.db):
                waited = self.intake.nag(time.strftime("%Y-%m-%d"), now)
        except ClawqError:
            return None
        if waited is None:
            return None
        what = f"work has waited {waited // 60_000} minutes and no supervisor runs"
        return f"{what}: `clawq run` is one, `clawq service install` keeps one"

    def checkpoint(self) -> None:
        """Fold the log of writes back into the database: a big one makes every later opening slow."""
        import apsw

        try:
            self.intake.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error:
            pass  # somebody reads or writes; the supervisor does it later

    def follow_config(self, now: int) -> None:
        """Have the file's newest good form in force. Raises ConfigError when there never was one."""
        seen = settings.identity(self.home.config)
        identity, broken, error = self.intake.stamp()
        verdict = settings.verdict(seen, identity, broken)
        if verdict == settings.REFUSE:
            raise ConfigError(error or f"{self.home.config} is not valid")
        if verdict == settings.COMPILE:
            from clawq.config import refresh_row  # pydantic and all: only whoever meets a changed file pays

            refresh_row(self.intake.db, self.home, now)
            self.intake.stamp()

    # ------------------------------------------------------------------ the steps of enqueue_lines

    def _write(
        self,
        drafts: "list[Draft | Run | ClawqError]",
        now: int,
        ticking: bool,
        dry_run: bool,
        counted: "dict[tuple[str, str, str], int]",
        meanwhile: "Callable[[], None] | None",
    ) -> "Answers | None":
        """One transaction; None when the configuration changed since it was read.

        What is refused or a duplicate is `counted`, by reason, kind and tenant.
        """
        intake = self.intake
        answers: Answers = []

        def note(reason: str, kind: str, tenant: str) -> None:
            where = (reason, kind, tenant)
            counted[where] = counted.get(where, 0) + 1

        def take(draft: Draft) -> None:
            try:
                taken = intake.take(draft, now, ticking)
            except Refused as error:
                note(error.reason, draft.kind, draft.tenant)
                answers.append((error, 1))
                return
            if taken.outcome == "duplicate":
                note("duplicate", draft.asked_kind, draft.tenant)
            known = taken.outcome == "duplicate" or not dry_run
            receipt = Receipt(
                taken.outcome,
                taken.job_id if known else None,
                taken.state,
                safe_to_retry=draft.key is not None,
                deadline_at=None if taken.deadline_at is None else iso(taken.deadline_at),
                degraded=taken.degraded,
            )
            answers.append((receipt, 1))

        try:
            with Immediate(intake.db):
                if not intake.begin(len(drafts) > 1):
                    return None
                for draft in drafts:
                    if isinstance(draft, ClawqError):
                        if isinstance(draft, Refused) and draft.whose is not None:
                            note(draft.reason, *draft.whose)
                        answers.append((draft, 1))
                    elif isinstance(draft, Draft):
                        take(draft)
                    else:
                        at = 0
                        while at < len(draft.values):
                            count = intake.take_plain(draft, at, now, ticking)
                            if count == 0:
                                take(draft.one(at))
                                at += 1
                                continue
                            at += count
                            first = None if dry_run else intake.last_id() - count + 1
                            answers.append((_plain_receipt(draft.draft, first), count))
                intake.finish()
                if meanwhile is not None:
                    meanwhile()
                if dry_run:
                    raise _DryRun
        except _DryRun:
            pass
        return answers

    def _note(self, answers: "Answers", counted: "dict[tuple[str, str, str], int]", now: int) -> None:
        """After the transaction: count what was not taken, wake the supervisor."""
        if counted:
            from clawq.store.refusals import count_refusals

            count_refusals(self.intake.db, counted, now)
        news = any(
            isinstance(answer, Receipt) and answer.outcome not in ("duplicate", "held")
            for answer, _ in answers
        )
        if news and os.path.exists(self.home.sock):
            from clawq.poke import poke

            poke(self.home, b"e")


def _plain_receipt(draft: Draft, job_id: int | None) -> Receipt:
    deadline = draft.deadline_at
    state = draft.plain.state
    return Receipt(
        state, job_id, state, None, None, draft.key is not None, None if deadline is None else iso(deadline)
    )


class _DryRun(Exception):
    """Rolls the transaction back."""


def _database_busy(error: Busy) -> Refused:
    seconds = 2 + os.urandom(1)[0] % 9
    return Refused("database_busy", str(error), "", seconds)
