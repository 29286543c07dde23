"""``clawq fail --class CLASS``: why this attempt fails, told from inside a job before it ends."""

from clawq import verbs, when
from clawq.cli import as_utf8, write_json
from clawq.errors import UsageError
from clawq.states import TOLD_CLASSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    _, given = verbs.parse(verbs.FAIL, as_utf8(argv))
    if not given.get("class"):
        raise UsageError("--class is missing", f"one of {', '.join(TOLD_CLASSES)}")
    error_class = str(given["class"])
    wait = given.get("retry_after")
    wait_ms = None if wait is None else when.duration(str(wait))
    text, resource, reason = given.get("message"), given.get("resource"), given.get("reason")
    from clawq.inside import fail

    job_id = fail(
        error_class,
        None if reason is None else str(reason),
        None if resource is None else str(resource),
        wait_ms,
        None if text is None else str(text),
    )
    if "json" in given:
        write_json({"job_id": job_id, "class": error_class, "reason": reason or error_class})
    return 0
