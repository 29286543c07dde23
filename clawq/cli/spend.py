"""``clawq spend BUDGET N``: what this attempt has spent so far, told from inside a job."""

import os

from clawq import verbs
from clawq.cli import as_utf8, write_error, write_json, write_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
OVERDRAWN = 75


def main(argv: "Sequence[str]") -> int:
    """The exit code: 75 when the budget is overdrawn, which is recorded all the same. Raises ClawqError."""
    (budget, number), given = verbs.parse(verbs.SPEND, as_utf8(argv))
    from clawq.inside import spend

    total = int(number) if number.isascii() and number.isdigit() and len(number) < 17 else number
    spent = spend(budget, total)
    if "json" in given:
        names = ("budget", "recorded", "used", "limit", "overdrawn", "retry_after_s")
        write_json({name: getattr(spent, name) for name in names})
    elif os.isatty(1) and not spent.overdrawn:
        write_out(f"{budget}: {spent.used} of {spent.limit} are spent or reserved\n")
    if not spent.overdrawn:
        return 0
    write_error(
        f"budget {budget!r} is overdrawn, {spent.used} of {spent.limit} (recorded): "
        f"slow down; some of it is free again in {spent.retry_after_s} s"
    )
    return OVERDRAWN
