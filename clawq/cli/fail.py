"""``clawq fail --class CLASS``: why this attempt fails, told from inside a job before it ends."""

from clawq import verbs, when
from clawq.cli import as_utf8, write_out
from clawq.errors import UsageError
from clawq.options import json_array, near

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

REASON_MOST = 100
TEXT_MOST = 2_000
"""Characters; a longer text is cut, since an agent that fails must not fail at saying so."""
WAIT_MOST_MS = 31 * 86_400_000


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    words = as_utf8(argv)
    if "--help" in words or "-h" in words:
        from clawq.cli.enqueue_help import verb_text

        write_out(verb_text(verbs.FAIL))
        return 0
    _, given = verbs.parse(verbs.FAIL, words)
    error_class = str(given.get("class", ""))
    if error_class not in verbs.CLASSES:
        what = f"--class {error_class!r:.80}" if error_class else "--class is missing"
        raise UsageError(what, f"{near(error_class, verbs.CLASSES)}one of {', '.join(verbs.CLASSES)}")
    reason = _reason(given.get("reason"))
    wait = given.get("retry_after")
    wait_ms = None if wait is None else min(when.duration(str(wait)), WAIT_MOST_MS)
    text, resource = given.get("message"), given.get("resource")
    from clawq.inside import fail

    job_id = fail(
        error_class,
        reason,
        None if resource is None else str(resource),
        wait_ms,
        None if text is None else str(text)[:TEXT_MOST],
    )
    if "json" in given:
        counted = json_array([reason or error_class])[1:-1]
        write_out(f'{{"job_id": {job_id}, "class": "{error_class}", "reason": {counted}}}\n')
    return 0


def _reason(given: object) -> "str | None":
    if given is None:
        return None
    word = str(given)
    if not 0 < len(word) <= REASON_MOST or not word.isprintable() or " " in word:
        raise UsageError(f"--reason {word!r:.80}", f"one word is needed, at most {REASON_MOST} characters")
    return word
