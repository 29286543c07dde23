"""``clawq wait``: until jobs have ended. Agents stand in it for hours, so only what it needs is imported."""

import time

from clawq import verbs, when
from clawq.cli import as_utf8, ascii_json, write_error, write_out
from clawq.errors import NoSuchJob, UsageError
from clawq.paths import find_home, supervisor_ticks
from clawq.states import SETTLED, SUCCEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TIMED_OUT = 75
LARGEST_ID = 2**63 - 1


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    words = as_utf8(argv)
    ids, given = verbs.parse(verbs.WAIT, words)
    timeout = given.get("timeout")
    with_json = "json" in given
    wanted = list(dict.fromkeys(_job_id(text) for text in ids)) or None
    timeout_ms = None if timeout is None else when.duration(str(timeout))
    from clawq.waiting import document, is_settled, until_settled

    told: set[int] = set()

    def tell(states: "dict[int, str]") -> None:
        if not told and not is_settled(states):
            warn_without_supervisor()
        told.add(0)
        for job_id, state in states.items():
            if state in SETTLED and job_id not in told:
                told.add(job_id)
                if not with_json:
                    write_out(f"job {job_id}: {state}\n")

    states = until_settled(wanted, timeout_ms, tell)
    if with_json:
        write_out(ascii_json(document(list(states))) + "\n")
    if not is_settled(states):
        left = ", ".join([str(job_id) for job_id, state in states.items() if state not in SETTLED])
        write_error(f"after {timeout} not ended: {left}")
        return TIMED_OUT
    return 0 if all(state == SUCCEEDED for state in states.values()) else 1


def _job_id(text: str) -> int:
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{text!r:.80} is not a job number", "`clawq list` shows them")
    if len(digits) > 19 or int(digits) > LARGEST_ID:
        raise NoSuchJob(int(digits[:30]))
    return int(digits)


def warn_without_supervisor() -> None:
    """One line on stderr when nothing that waits can start, nor anybody be given slots back."""
    if not supervisor_ticks(find_home(), time.time_ns() // 1_000_000):
        write_error("no supervisor is running, so nothing new starts: `clawq run` is one")
