"""`clawq logs`: what a job's agent wrote, made safe to show."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from clawq import desk
from clawq import states as job
from clawq.cli import params, words
from clawq.errors import ClawqError, StorageError
from clawq.host.output import plain
from clawq.store import views

LOOK_S = 0.1
CHUNK = 1 << 16
"""Bytes read at once, and the longest line: an agent may never write the end of one."""
AFTER_A_CUT = 100
"""Lines shown again of a log that was cut while it was followed."""


class NoOutput(ClawqError):
    """The job has nothing to show, and why."""

    reason = "wrong_state"


class Attempt(NamedTuple):
    """``path`` of the log; ``tail`` is what the database kept of it; nothing more comes when it ``ended``."""

    number: int
    path: str
    tail: str
    ended: bool


class Look(NamedTuple):
    """A job's ``state`` and its attempts in order."""

    state: str
    attempts: list[Attempt]

    def after(self, number: int) -> Attempt | None:
        return next((attempt for attempt in self.attempts if attempt.number > number), None)


def logs(
    id: params.JobId,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what comes, over all attempts, until the job ends."),
    ] = False,
    attempt: Annotated[
        str | None, typer.Option("--attempt", metavar="N", help="This attempt only; default: the last.")
    ] = None,
    lines: Annotated[
        str | None, typer.Option("-n", metavar="LINES", help="Only so many of the last lines.")
    ] = None,
    as_json: params.AsJson = False,
) -> int:
    """Show what a job's agent wrote, without control characters. With --json, an object a line."""
    job_id = words.job_id(id)
    number = None if attempt is None else words.number(attempt, "--attempt", 1)
    last = None if lines is None else words.number(lines, "-n", 0)
    look = _look(job_id)
    chosen = _choose(job_id, look, number)
    if chosen is None and not follow:
        raise NoOutput(
            f"job {job_id} is {look.state} and has not run", f"`clawq why {job_id}` says what it waits for"
        )
    if not follow and chosen is not None:
        with Output(chosen, last) as output:
            _tell(output.new(), chosen, as_json)
            _tell(output.rest(), chosen, as_json)
        return 0
    _follow(job_id, chosen, last, only=number is not None, as_json=as_json)
    return 0


def _look(job_id: int) -> Look:
    with desk.reading() as here:
        db = here.queue(job_id)
        state = views.state_of(db, job_id)
        rows = views.attempts(db, job_id)
    return Look(
        state,
        [
            Attempt(
                row["number"],
                os.path.join(here.home.logs, row["log"]),
                row["output_tail"] or "",
                row["ended_at"] is not None,
            )
            for row in rows
        ],
    )


def _choose(job_id: int, look: Look, number: int | None) -> Attempt | None:
    """The attempt asked for, else the last one; None while there is none."""
    if number is None:
        return look.attempts[-1] if look.attempts else None
    for attempt in look.attempts:
        if attempt.number == number:
            return attempt
    there_are = f"there are {len(look.attempts)}" if look.attempts else "it has not run"
    raise NoOutput(f"job {job_id} has no attempt {number}", there_are)


def _follow(job_id: int, first: Attempt | None, last: int | None, *, only: bool, as_json: bool) -> None:
    """Show attempt after attempt, each to its end, until the job (`only`: this attempt) has ended."""
    shown = 0 if first is None else first.number - 1
    if first is None:
        words.warn_without_supervisor()
    while True:
        attempt = _await_attempt(job_id, shown)
        if attempt is None:
            return
        if shown and not as_json:
            words.note(f"attempt {attempt.number}")
        _follow_one(job_id, attempt, last, as_json)
        if only:
            return
        shown, last = attempt.number, None


def _await_attempt(job_id: int, shown: int) -> Attempt | None:
    """The attempt after `shown`; None when the job ended without one."""
    while True:
        look = _look(job_id)
        attempt = look.after(shown)
        if attempt is not None or look.state in job.SETTLED:
            return attempt
        time.sleep(LOOK_S)


def _follow_one(job_id: int, attempt: Attempt, last: int | None, as_json: bool) -> None:
    while True:
        with Output(attempt, last) as output:
            while True:
                # Asked before reading: what is there after the end was there before it.
                now = _look(job_id).after(attempt.number - 1)
                ended = now is None or now.ended
                _tell(output.new(), attempt, as_json)
                if ended:
                    _tell(output.rest(), attempt, as_json)
                    return
                sys.stdout.flush()
                time.sleep(LOOK_S)


def _tell(lines: Iterator[str], attempt: Attempt, as_json: bool) -> None:
    for line in lines:
        if as_json:
            words.write_json({"attempt": attempt.number, "line": line})
        else:
            words.write(line)


class Output:
    """The lines of one log, as far as it is written; of the database's last lines where the log is gone."""

    def __init__(self, attempt: Attempt, last: int | None) -> None:
        self._attempt = attempt
        self._last = last
        self._file: int | None = None
        self._left = b""

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def new(self) -> Iterator[str]:
        """What came since the last call, in whole lines."""
        if self._file is None and not self._open():
            return
        assert self._file is not None
        yield from self._read(self._file)
        while os.lseek(self._file, 0, os.SEEK_CUR) > os.fstat(self._file).st_size:
            # The supervisor has cut its middle, and what was not read may be in it: rather some lines twice
            # than the last ones never. It may do so while we read, so the end is where nothing was cut.
            os.lseek(self._file, _start_of_last(self._file, AFTER_A_CUT), os.SEEK_SET)
            self._left = b""
            yield "... cut here by clawq (limits.log_max_mb) ..."
            yield from self._read(self._file)

    def _read(self, file: int) -> Iterator[str]:
        while chunk := os.read(file, CHUNK):
            *whole, self._left = (self._left + chunk).split(b"\n")
            if len(self._left) > CHUNK:
                whole.append(self._left)
                self._left = b""
            for line in whole:
                yield from _clean(line)

    def rest(self) -> Iterator[str]:
        """A last line without an end; of a log that is gone, what the database kept."""
        if self._file is None and self._attempt.tail:
            words.note(f"the log of attempt {self._attempt.number} is gone; these are its last lines")
            lines = self._attempt.tail.splitlines()
            yield from lines if self._last is None else lines[len(lines) - min(self._last, len(lines)) :]
        elif self._left:
            yield from _clean(self._left)
            self._left = b""

    def _open(self) -> bool:
        try:
            # Without waiting, should an agent have put a pipe there.
            self._file = os.open(self._attempt.path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(
                f"{self._attempt.path}: {error.strerror}", "check its owner and mode"
            ) from None
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise StorageError(f"{self._attempt.path} is not a plain file", "no agent wrote it: remove it")
        if self._last is not None:
            os.lseek(self._file, _start_of_last(self._file, self._last), os.SEEK_SET)
        return True


def _clean(line: bytes) -> Iterator[str]:
    """One line as text; progress bars, which return to its start, become lines of their own."""
    for piece in line.decode("utf-8", "replace").rstrip("\r").split("\r"):
        yield plain(piece)


def _start_of_last(file: int, lines: int) -> int:
    """Where the last so many lines begin; a line without an end counts."""
    at = end = os.fstat(file).st_size
    if not lines:
        return end
    wanted = lines
    while at > 0:
        size = min(CHUNK, at)
        at -= size
        block = os.pread(file, size, at)
        if at + size == end and block.endswith(b"\n"):
            wanted += 1
        found = size
        while wanted and (found := block.rfind(b"\n", 0, found)) >= 0:
            wanted -= 1
            if not wanted:
                return at + found + 1
    return 0
