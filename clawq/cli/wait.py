"""``clawq wait``: until jobs have ended. Agents stand in it for hours, so only what it needs is imported."""

from clawq import verbs, when
from clawq.cli import as_utf8, ascii_json, words, write_error, write_out
from clawq.states import SETTLED, SUCCEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TIMED_OUT = 75


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    ids, given = verbs.parse(verbs.WAIT, as_utf8(argv))
    timeout = given.get("timeout")
    with_json = "json" in given
    wanted = words.job_ids(ids) or None
    timeout_ms = None if timeout is None else when.duration(str(timeout))
    from clawq.waiting import document, is_settled, known, until_settled

    told: set[int] = set()

    def tell(states: "dict[int, str]") -> None:
        if not told and not is_settled(states):
            words.warn_without_supervisor()
        told.add(0)
        ended = {each: state for each, state in states.items() if state in SETTLED and each not in told}
        told.update(ended)
        if ended and not with_json:
            failed = [job_id for job_id, state in ended.items() if state != SUCCEEDED]
            seen = known(failed) if failed else {}
            for job_id, state in ended.items():
                write_out(words.ended(job_id, state, seen.get(job_id, {}).get("error")) + "\n")

    states = until_settled(wanted, timeout_ms, tell)
    if with_json:
        write_out(ascii_json(document(list(states))) + "\n")
    if not is_settled(states):
        left = ", ".join([str(job_id) for job_id, state in states.items() if state not in SETTLED])
        write_error(f"after {timeout} not ended: {left}")
        return TIMED_OUT
    return 0 if all(state == SUCCEEDED for state in states.values()) else 1
