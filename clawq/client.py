"""What producers use: the queue's answer to one job, or to a thousand, durable before it is given.

``enqueue`` is the Python function, and the command line calls the same code. Configuration and
programs are looked at before the transaction, which then only reads and writes rows.
"""

import os
import time

from clawq import options, settings
from clawq.errors import Busy, ClawqError, ConfigError, Refused, UsageError
from clawq.job import DEFAULT_KIND, DEFAULT_TENANT
from clawq.paths import TICKS_WITHIN_MS, find_home, own_folder, utf8_path
from clawq.store.connection import Immediate, open_db, storage_errors
from clawq.store.draft import Draft
from clawq.store.intake import Intake
from clawq.when import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta
    from os import PathLike
    from typing import Any

    from clawq.paths import Home
    from clawq.store.draft import Frame


class Receipt:
    """The queue's answer, with the fields of ``clawq enqueue --json``.

    ``outcome`` is admitted, queued, scheduled, held, duplicate or rejected. ``job_id`` and ``state``
    are those of the job, of the existing one for a duplicate (``state`` None once it is pruned), and
    None for a refusal and for a dry run. ``reason`` and ``retry_after_s`` belong to a refusal.
    ``degraded``: taken as its kind's ``degrade_to``, since it could not start at once.
    ``safe_to_retry``: asking again cannot make a second job. ``deadline_at`` is ISO 8601 in UTC.
    """

    __slots__ = (
        "deadline_at",
        "degraded",
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
    ) -> None:
        self.outcome = outcome
        self.job_id = job_id
        self.state = state
        self.degraded = degraded
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.safe_to_retry = safe_to_retry
        self.deadline_at = deadline_at

    def __repr__(self) -> str:
        return f"Receipt({self.as_json()})"

    def as_json(self) -> str:
        """One line; every text in it is one of clawq's own words or a time, so nothing needs escaping."""
        return (
            f'{{"outcome": "{self.outcome}", "job_id": {_json(self.job_id)}, "state": {_json(self.state)}, '
            f'"degraded": {_json(self.degraded)}, "reason": {_json(self.reason)}, '
            f'"retry_after_s": {_json(self.retry_after_s)}, "safe_to_retry": {_json(self.safe_to_retry)}, '
            f'"deadline_at": {_json(self.deadline_at)}}}'
        )


def _json(value: str | int | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def refusal(error: ClawqError) -> Receipt:
    """The receipt of what was not accepted."""
    if isinstance(error, Refused):
        seconds = error.retry_after_s
        return Receipt(
            "rejected",
            reason=error.reason,
            retry_after_s=None if seconds is None else int(seconds),
            safe_to_retry=error.safe_to_retry,
        )
    return Receipt("rejected", reason=error.reason)


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
    cwd: "str | PathLike[str] | None" = None,
    env: "Mapping[str, str] | Sequence[str] | None" = None,
    dry_run: bool = False,
) -> Receipt:
    """Put a job into the queue and return once it is durable.

    The arguments are the options of ``clawq enqueue``. ``payload`` is any value that JSON can hold
    (bytes: JSON text as it is); durations are texts such as "10m", seconds or a timedelta; times are
    texts or a datetime (local unless it is aware). ``dry_run`` does everything but keep the job.

    Raises Refused (the queue's no, with ``reason``, ``retry_after_s`` and ``safe_to_retry``),
    UsageError, ConfigError and StorageError, which are all ClawqError.
    """
    # The parameters have the options' names: a second list of them could only differ.
    given: dict[str, object] = dict(locals())
    del given["dry_run"]
    with Producer() as producer:
        return producer.enqueue(given, dry_run)


class Producer:
    """One open queue: ``with Producer() as producer:``. Raises what opening the database raises."""

    __slots__ = ("_here", "_path", "_programs", "home", "intake")
    # `intake` is for clawq's own modules; users of the API have `enqueue` and the like.

    def __init__(self, home: "Home | None" = None) -> None:
        self.home = find_home() if home is None else home
        try:
            self.intake = Intake(open_db(self.home))
        except Busy as error:
            raise _database_busy(error) from error
        # Looked at once for each enqueue_many: a batch asks a thousand times.
        self._here: str | None = None
        self._path: str | None = None
        self._programs: dict[tuple[str, str, str], bool] = {}

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *failure: object) -> None:
        self.intake.db.close()

    def enqueue(self, given: "Mapping[str, object]", dry_run: bool = False) -> Receipt:
        """One job from the options as they were given. Raises as the function ``enqueue`` does."""
        (answer,) = self.enqueue_many([given], dry_run)
        if isinstance(answer, ClawqError):
            raise answer
        return answer

    def enqueue_many(
        self, batch: "Sequence[Mapping[str, object] | ClawqError]", dry_run: bool = False
    ) -> "list[Receipt | ClawqError]":
        """The answers in order, from one transaction: a receipt, or the UsageError or Refused of that job.

        An error in the place of a job is its answer. Raises what concerns all of them: ConfigError,
        StorageError and Refused ``database_busy``; nothing is accepted then.
        """
        now = time.time_ns() // 1_000_000
        ticking = self.ticks(now)
        self._here = None
        self._path = utf8_path()
        self._programs.clear()
        try:
            with storage_errors(self.home.db):
                for _ in range(5):
                    self.follow_config(now)
                    drafts = self._drafts(batch, now)
                    answers = self._write(drafts, now, ticking, dry_run)
                    if answers is not None:
                        break
                else:
                    raise Busy("clawq.toml changes all the time", "try again when it is quiet")
        except Busy as error:
            raise _database_busy(error) from error
        self._note(drafts, answers, now, dry_run)
        return answers

    def ticks(self, now: int) -> bool:
        """Whether a supervisor is alive; ``now`` in ms."""
        try:
            return now - os.stat(self.home.lock).st_mtime_ns // 1_000_000 < TICKS_WITHIN_MS
        except OSError:
            return False

    def nag(self) -> str | None:
        """Once a day, when work has waited ten minutes and no supervisor is alive: a line for a person."""
        now = time.time_ns() // 1_000_000
        if self.ticks(now):
            return None
        try:
            with storage_errors(self.home.db):
                waited = self.intake.nag(time.strftime("%Y-%m-%d"), now)
        except ClawqError:
            return None
        if waited is None:
            return None
        return (
            f"work has waited {waited // 60_000} minutes and no supervisor runs: start one with `clawq run`"
        )

    def outcome(self, job_id: int) -> "tuple[str, int | None, str | None] | None":
        """(state, exit_code, last_error) of a job, or None once it is pruned."""
        with storage_errors(self.home.db):
            return self.intake.outcome(job_id)

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

    # ------------------------------------------------------------------ the steps of enqueue_many

    def _drafts(
        self, batch: "Sequence[Mapping[str, object] | ClawqError]", now: int
    ) -> "list[Draft | ClawqError]":
        drafts: list[Draft | ClawqError] = []
        for given in batch:
            if isinstance(given, ClawqError):
                drafts.append(given)
                continue
            try:
                drafts.append(self._draft(options.read(given, now), now))
            except UsageError as error:
                drafts.append(error)
        return drafts

    def _draft(self, asked: "dict[str, Any]", now: int) -> Draft:
        """Everything about a job that can be told without the transaction. Raises UsageError."""
        intake = self.intake
        command = asked.get("command")
        kind = asked.get("kind")
        if kind is None:
            if command is None:
                raise UsageError(
                    "neither a kind nor a command", "clawq enqueue KIND, or clawq enqueue -- COMMAND ARG..."
                )
            kind = DEFAULT_KIND
        tenant = asked.get("tenant", DEFAULT_TENANT)
        frame = intake.frame(kind, asked.get("band"), tenant)
        if not frame.known:
            raise UsageError(
                f"no kind {kind!r:.80} is configured",
                options.near(kind, intake.kinds())
                + f'add [kinds."{kind:.80}"] to clawq.toml{self._meant_as_command(kind, command)}',
            )
        if command is None and frame.program is None:
            raise UsageError(
                f"kind {kind!r:.80} has no command", f"give one: clawq enqueue {kind} -- COMMAND ARG..."
            )
        for name in asked.get("needs", ()):
            if name not in intake.resources():
                raise UsageError(
                    f"no resource {name!r:.80} is configured",
                    options.near(name, intake.resources()) + "`clawq config show` lists them",
                )
        payload = asked.get("payload")
        if isinstance(payload, bytes):
            asked["payload"] = self._json_text(payload)
        cwd = self._folder(asked.get("cwd"))
        self._find_program(frame.program if command is None else command[0], asked, frame, cwd)
        draft = Draft(asked, kind, tenant, frame, cwd, self._path, now)
        if frame.on_busy == "degrade" and frame.degrade_to is not None:
            # Looked at now: a lighter kind that cannot run should not come to light when all is busy.
            lighter = intake.frame(frame.degrade_to, asked.get("band"), tenant)
            if command is None and lighter.program is None:
                raise UsageError(
                    f"kind {frame.degrade_to!r:.80}, which {kind!r:.80} degrades to, has no command",
                    f"give it one in clawq.toml, or here: clawq enqueue {kind} -- COMMAND ARG...",
                )
            self._find_program(lighter.program if command is None else command[0], asked, lighter, cwd)
            draft.lighter = Draft(asked, frame.degrade_to, tenant, lighter, cwd, self._path, now, kind)
        return draft

    def _json_text(self, payload: bytes) -> str:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise UsageError("the payload is not UTF-8", "pass JSON, which always is") from None
        if "\0" in text or not self.intake.is_json(text):
            raise UsageError(
                f"the payload is not JSON: {text!r:.60}", "quote it for the shell, as in '{\"n\": 1}'"
            )
        return text

    def _folder(self, asked: str | None) -> str:
        if asked is not None:
            return _folder(asked)
        if self._here is None:
            self._here = _folder(None)
        return self._here

    def _meant_as_command(self, kind: str, command: object) -> str:
        """What else to do when an unknown kind reads like a command whose -- was forgotten."""
        words = kind.split()
        if command is not None or not words:
            return ""
        path = self._path or os.defpath
        if not _is_there(words[0], path, self._folder(None)):
            return ""
        return f"; or, if it is a command: clawq enqueue -- {kind:.80}"

    def _find_program(self, program: str, asked: "dict[str, Any]", frame: "Frame", cwd: str) -> None:
        """Refuse a missing program here, where somebody is looking, and not at three in the morning."""
        env = asked.get("env") or {}
        path = env.get("PATH") or frame.kind_path or frame.env_path or self._path
        if not path:
            path = self.intake.supervisor_path() or os.defpath
        key = (program, path, cwd)
        if key not in self._programs:
            self._programs[key] = _is_there(program, path, cwd) or _is_ours(program)
        if not self._programs[key]:
            words = program.split()
            if len(words) > 1 and _is_there(words[0], path, cwd):
                raise UsageError(
                    f"no executable {program!r:.200}",
                    f"a command is separate words, unquoted: -- {words[0]:.80} {words[1]:.80} ...; "
                    "a shell's line is: -- sh -c 'LINE'",
                )
            where = f"in {cwd}" if "/" in program else f"on PATH {path}"
            raise UsageError(
                f"no executable {program!r:.200}", f"it is not {where:.500}; name it with its full path"
            )

    def _write(
        self, drafts: "list[Draft | ClawqError]", now: int, ticking: bool, dry_run: bool
    ) -> "list[Receipt | ClawqError] | None":
        """One transaction; None when the configuration changed since it was read."""
        intake = self.intake
        answers: list[Receipt | ClawqError] = []
        try:
            with Immediate(intake.db):
                if not intake.begin():
                    return None
                for draft in drafts:
                    if isinstance(draft, ClawqError):
                        answers.append(draft)
                        continue
                    try:
                        taken = intake.take(draft, now, ticking)
                    except Refused as error:
                        answers.append(error)
                        continue
                    new = taken.outcome != "duplicate"
                    answers.append(
                        Receipt(
                            taken.outcome,
                            None if dry_run and new else taken.job_id,
                            taken.state,
                            safe_to_retry=draft.key is not None,
                            deadline_at=None if taken.deadline_at is None else iso(taken.deadline_at),
                            degraded=taken.degraded,
                        )
                    )
                if dry_run:
                    raise _DryRun
        except _DryRun:
            pass
        return answers

    def _note(
        self,
        drafts: "list[Draft | ClawqError]",
        answers: "list[Receipt | ClawqError]",
        now: int,
        dry_run: bool,
    ) -> None:
        """After the transaction: count the refusals, wake the supervisor."""
        if dry_run:
            return
        counts: dict[tuple[str, str, str], int] = {}
        news = False
        for draft, answer in zip(drafts, answers, strict=True):
            if isinstance(answer, Receipt):
                news = news or answer.outcome not in ("duplicate", "held")
            elif isinstance(answer, Refused) and isinstance(draft, Draft):
                where = (answer.reason, draft.kind, draft.tenant)
                counts[where] = counts.get(where, 0) + 1
        if counts:
            from clawq.store.refusals import count_refusals

            count_refusals(self.intake.db, counts, now)
        if news and os.path.exists(self.home.sock):
            from clawq.poke import poke

            poke(self.home, b"e")


class _DryRun(Exception):
    """Rolls the transaction back."""


def _database_busy(error: Busy) -> Refused:
    seconds = 2 + os.urandom(1)[0] % 9
    return Refused("database_busy", str(error), "", seconds)


def _folder(asked: str | None) -> str:
    # As bytes: the locale that cron has must not decide what a path is.
    try:
        here = os.getcwdb()
    except OSError:
        if asked is None or not asked.startswith("/"):
            raise UsageError("the current folder no longer exists", "cd to another, or give --cwd") from None
        here = b"/"
    path = here if asked is None else os.path.abspath(os.path.join(here, asked.encode()))
    try:
        cwd = path.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the folder {path!r:.200} is not UTF-8", "give another with --cwd") from None
    if asked is not None and not os.path.isdir(path):
        raise UsageError(f"--cwd {cwd!r:.200} is not a folder", "give one that exists")
    return cwd


def _is_there(program: str, path: str, cwd: str) -> bool:
    """As execvp would find it: an empty or relative folder of PATH is counted from `cwd`."""
    name, here = program.encode(), cwd.encode()
    if "/" in program:
        return _executable(os.path.join(here, name))
    return any(_executable(os.path.join(here, folder, name)) for folder in path.encode().split(b":"))


def _is_ours(program: str) -> bool:
    """Whether it is beside this clawq, whose folder the supervisor puts at the end of PATH."""
    return "/" not in program and _executable(os.path.join(own_folder(), program).encode())


def _executable(file: bytes) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)
