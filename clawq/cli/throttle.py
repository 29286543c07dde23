"""``clawq throttle RESOURCE --for D``: let a resource rest, for everybody."""

import os
import time

from clawq import verbs, when
from clawq.cli import as_utf8, write_json, write_out
from clawq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    (resource,), given = verbs.parse(verbs.THROTTLE, as_utf8(argv))
    span = given.get("for")
    if span is None:
        raise UsageError("--for is missing", "clawq throttle RESOURCE --for 5m")
    from clawq.inside import throttle

    until = throttle(resource, 0 if span == "0" else when.duration(str(span)))
    if "json" in given:
        write_json(_document(resource, until))
    elif os.isatty(1):
        write_out(f"{resource} {_said(until)}\n")
    return 0


def _document(resource: str, until: int | None) -> "dict[str, object]":
    if until is None:
        return {"resource": resource, "until": None, "cooldown_s": None}
    left = max(0, -((time.time_ns() // 1_000_000 - until) // 1000))
    return {"resource": resource, "until": when.iso(until), "cooldown_s": left}


def _said(until: int | None) -> str:
    if until is None:
        return "does not rest"
    return f"rests until {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(until / 1000))}"
