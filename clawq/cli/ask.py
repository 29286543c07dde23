"""``clawq ask TEXT``: a question to a person, from inside a job."""

from clawq import verbs, when
from clawq.cli import as_utf8, write_error, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TIMED_OUT = 75


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    (text,), given = verbs.parse(verbs.ASK, as_utf8(argv))
    timeout = given.get("timeout")
    timeout_ms = None if timeout is None else when.duration(str(timeout))
    from clawq.waiting import ask

    answer = ask(text, timeout_ms)
    if "json" in given:
        write_json({"job_id": answer.job_id, "state": answer.state, "approved": answer.approved})
    if answer.timed_out:
        write_error(f"after {timeout} nobody has answered question {answer.job_id}")
        return TIMED_OUT
    if not answer.approved:
        write_error(f"question {answer.job_id} is {answer.state}, not approved: do without")
        return 1
    return 0
