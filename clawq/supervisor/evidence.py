"""What can be found of an end without the database: files, output, and what a reader makes of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from clawq.host import output, result_file
from clawq.paths import Home
from clawq.rules import hints, readers
from clawq.rules.classify import Evidence, Word
from clawq.settings import ErrorPattern
from clawq.states import TOLD_CLASSES
from clawq.supervisor.agents import Agent, job_file

FILE_TIME_SLACK_MS = 20
"""File times come from a coarser clock than the one that `kill_at` was read from."""


class Found(NamedTuple):
    """The evidence of an end, and what is kept beside it."""

    evidence: Evidence
    output_tail: str = ""
    result: str | None = None
    """JSON, from the agent's result file."""
    note: str | None = None
    """What was wrong with that file."""
    spoke_at: int | None = None
    """Its first output, epoch ms."""
    spawned: bool = True
    """Its shell did, at least."""


def gather(agent: Agent, home: Home, wall: int) -> Found:
    """Everything that an ended attempt left to be found. `wall` is epoch ms."""
    if agent.verdict == "never_ran":
        return Found(Evidence(ran=False), output.last_lines(agent.log))
    reading = agent.reading
    evidence = Evidence(
        exit_code=reading.exit_code,
        kill=None if _own_end_first(agent) else agent.kill_reason,
        detail=agent.over if agent.kill_reason in ("over_footprint", "filled_disk") else None,
    )
    text = note = None
    try:
        result = result_file.read(job_file(home, agent.token, "result"))
        text, agent.left_result = result.text, result is not result_file.NOTHING
        word, complaint = word_of(result.value)
        note = result.note or complaint
        if evidence.kill is None:
            evidence = evidence._replace(
                result=word,
                reader=read_output(agent.classify, agent.log, wall),
                pattern=match(agent.errors, agent.log) if agent.errors else None,
            )
    except Exception as bug:  # whatever one agent wrote must not keep all the others from being looked after
        note = f"what it said was not understood, a bug in clawq ({type(bug).__name__})"
    # Of what succeeded nobody asks for the last lines, and nearly all do.
    silent = reading.exit_code == 0 and agent.kill_reason is None
    tail = "" if silent else output.last_lines(agent.log)
    agent.log_bytes = agent.log_size()  # it may have ended before anybody looked
    if tail:
        evidence = evidence._replace(last_lines=tail)
    return Found(evidence, tail, text, note, agent.spoke_at)


def has_left_traces(agent: Agent, home: Home) -> bool:
    """Is there anything that only an agent can have made, never the shell that was to start it?

    What that says is a complaint, which begins with its name or, since we give it that for a name, with the
    working folder.
    """
    if any(os.path.lexists(job_file(home, agent.token, name)) for name in ("heartbeat", "result", "wait")):
        return True
    said = output.last_lines(agent.log).splitlines()
    return any(not line.startswith(("sh: ", "/")) for line in said)


def _own_end_first(agent: Agent) -> bool:
    # Our own kills look for an exit code before the first signal (supervisor/end.py); of a kill that an
    # earlier supervisor recorded only the times are left.
    return (
        agent.verdict == "ended"
        and agent.kill_at is not None
        and not agent.term_sent
        and agent.reading.written_at < agent.kill_at - FILE_TIME_SLACK_MS
    )


def read_output(reader: str, log: str, wall: int) -> Word | None:
    """What the reader that a kind names makes of the end of a log."""
    read = readers.READERS.get(reader)
    if read is None:
        return None
    return read(output.end_of(log, output.READER_BYTES).split("\n"), readers.Now(wall, zone))


def zone(name: str) -> tzinfo | None:
    """A time zone by its name; None for one that this machine does not know, and for ''."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None


def match(patterns: Sequence[ErrorPattern], log: str) -> Word | None:
    """The first of a kind's `errors` that the end of its output contains, whatever the case."""
    text = output.plain(output.end_of(log, output.TAIL_BYTES)).casefold()
    for each in patterns:
        if each.contains.casefold() in text:
            return Word(each.error_class, each.reason, each.resource)
    return None


def word_of(value: Any) -> tuple[Word | None, str | None]:
    """What a result file says of the end, and what it says wrongly."""
    if not isinstance(value, dict):
        return None, None
    error_class, wait, error = (value.get(key) for key in ("error_class", "retry_after_s", "error"))
    complaints = []
    if error_class is not None and error_class not in TOLD_CLASSES:
        complaints.append(f"error_class is none of {', '.join(TOLD_CLASSES)}")
        error_class = None
    if wait is not None and not _is_wait(wait):
        complaints.append("retry_after_s is not a number of seconds")
        wait = None
    if error is not None and not isinstance(error, str):
        complaints.append("error is not a text")
        error = None
    note = f"in the result file {'; '.join(complaints)}" if complaints else None
    if error_class is None and wait is None and not error:
        return None, note
    wait_ms = None if wait is None else int(min(wait, hints.LONGEST_MS / 1000) * 1000)
    return Word(error_class, retry_after_ms=wait_ms, error=error or None), note


def _is_wait(value: object) -> bool:
    # Not isfinite(): it makes a float of an integer first, and JSON has integers that fit in none.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
