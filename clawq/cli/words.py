"""Reading what an owner types and writing lines that a terminal can be trusted with. No Rich here."""

from __future__ import annotations

import os
import sys
import time

from clawq import states as job
from clawq.cli import write_error
from clawq.errors import NoSuchJob, Refused, UsageError, WrongState
from clawq.paths import find_home, supervisor_ticks
from clawq.quickjson import dumps
from clawq.rules.spans import jobs as jobs
from clawq.rules.spans import short as short
from clawq.rules.spans import size as size
from clawq.values import JOB_ID_MAX, near

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SEVERITY = (0, 1, 75, 65)
"""Exit codes that concern one job, the mildest first."""


def write(text: str) -> None:
    """One line of data on stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """One line on stderr that is not an error."""
    write_error(line(text))


def warn_without_supervisor() -> None:
    """One line on stderr when nothing that waits can start, nor anybody be given slots back."""
    if not supervisor_ticks(find_home(), time.time_ns() // 1_000_000):
        note("no supervisor is running, so nothing new starts: `clawq run` is one")


def each(ids: Iterable[int], handle: Callable[[int], object]) -> int:
    """Handle every id, with one line for each that was refused. The most severe exit code.

    What is wrong with more than one job, such as a full disk, is raised.
    """
    codes = [0]
    for job_id in ids:
        try:
            handle(job_id)
        except (NoSuchJob, WrongState, Refused) as error:
            note(str(error))
            codes.append(error.exit_code)
    return max(codes, key=_SEVERITY.index)


def write_json(document: object) -> None:
    """One JSON document on a line, with every time (epoch ms inside) as ISO 8601 in UTC."""
    from clawq.desk import with_iso

    write(dumps(with_iso(document)))


def line(text: object) -> str:
    """`text` as one line that cannot steer a terminal: no escape sequences, controls or line breaks."""
    from clawq.host.output import plain

    return plain(str(text)).replace("\n", " ").replace("\t", " ")


def ended(job_id: int, state: str, error: str | None) -> str:
    """How a job that somebody waited for has ended, on a line: ``job 7: dead, exit 2: no such page``."""
    return f"job {job_id}: {state}" + (f", {line(error)}" if error and state != job.SUCCEEDED else "")


def ago(now: int, then: int | None) -> str:
    """How long before `now` (both ms) that was, for people."""
    return short(None if then is None else max(0, now - then) / 1000)


def moment(at: int | None, now: int) -> str:
    """A time on this machine's clock: ``10:42`` today, ``Mon 10:42`` within six days, else the date."""
    if at is None:
        return "-"
    there, here = time.localtime(at / 1000), time.localtime(now / 1000)
    if there[:3] == here[:3]:
        return time.strftime("%H:%M", there)
    return time.strftime("%a %H:%M" if 0 < at - now < 6 * 86_400_000 else "%Y-%m-%d", there)


def times(count: int) -> str:
    """``once``, ``38 times``."""
    return "once" if count == 1 else f"{count} times"


def job_ids(texts: Sequence[str]) -> list[int]:
    """Ids as typed, each once, in order. Raises UsageError."""
    return list(dict.fromkeys(job_id(text) for text in texts))


def job_id(text: str) -> int:
    """Raises UsageError, and NoSuchJob for a number that no job can have."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{text!r:.80} is not a job number", "`clawq list` shows them")
    if len(digits) > 19 or int(digits) > JOB_ID_MAX:
        raise NoSuchJob(int(digits[:30]))
    return int(digits)


def number(text: str, option: str, least: int, most: int = 2**31 - 1) -> int:
    """A whole number from `least` to `most`. Raises UsageError."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 12 and least <= int(text) <= most:
        return int(text)
    raise UsageError(f"{option} {text!r} is not a number", f"write a whole number from {least} to {most}")


def known(word: str, choices: Iterable[str], what: str) -> str:
    """`word` when it is one of `choices`. Raises UsageError that names a near match, or all of them."""
    choices = list(choices)
    if word in choices:
        return word
    hint = near(word, choices) or f"there are {', '.join(sorted(choices))}"
    raise UsageError(f"there is no {what} {word!r}", hint.strip())


def state(word: str) -> str:
    """A job's state. Raises UsageError."""
    return known(word, job.STATES, "state")


_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python itself writes into LC_CTYPE when it finds the C locale."""


def unicode_terminal() -> bool:
    """May bars and ellipses be drawn? Only where the locale says UTF-8, as far as it is the user's own:
    that Python writes UTF-8 under the C locale too says nothing about who reads it."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    overall, ctype, lang = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if not overall and ctype in _COERCED and (lang in ("C", "POSIX") or not (lang or sys.stdout.isatty())):
        return False
    return encoding == "utf8" and "utf8" in (overall or ctype or lang).lower().replace("-", "")
