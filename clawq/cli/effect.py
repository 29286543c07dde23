"""``clawq effect begin|done|fail KEY``: a side effect, recorded before and after an agent does it."""

import os

from clawq import verbs, when
from clawq.cli import as_utf8, write_error, write_json, write_out
from clawq.errors import EffectHeld, Unconfirmed, UsageError
from clawq.values import near

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawq.store.effects import Effect

SKIP, UNCONFIRMED, HELD, NEVER_BEGUN = 10, 11, 75, 1
"""Exit codes beside 0: it was done already; begun and never confirmed; another attempt has it; not begun."""


def main(argv: "Sequence[str]") -> int:
    """The exit code; of ``begin`` only 0 means to do it. Raises ClawqError."""
    (action, key), given = verbs.parse(verbs.EFFECT, as_utf8(argv))
    actions = [name for name, _ in verbs.EFFECT.actions]
    if action not in actions:
        fix = f"{near(action, actions)}one of {', '.join(actions)}, and then the key"
        raise UsageError(f"there is no {action!r:.80}", fix)
    scope = given.get("scope")
    from clawq.lease import effect

    answer = effect(action, key, None if scope is None else str(scope))
    code, said = _meaning(action, answer)
    if "json" in given:
        write_json(_document(answer))
    if code:
        write_error(said)
    elif "json" not in given and os.isatty(1):
        write_out(f"{said}\n")
    return code


def _meaning(action: str, effect: "Effect") -> "tuple[int, str]":
    """(exit code, a line for a person)."""
    name = f"effect {effect.key!r:.80}"
    wanted = {"begin": "begun", "done": "done", "fail": "failed"}[action]
    if effect.answer == wanted:
        meaning = {"begun": "is yours to do", "done": "is done", "failed": "did not happen; its key is free"}
        return 0, f"{name} {meaning[wanted]}"
    if effect.answer == "done" and action == "begin":
        return SKIP, f"{name} was done already, by job {effect.job_id}: skip it"
    if effect.answer == "held":
        return HELD, str(EffectHeld(effect.key, effect.job_id))
    if effect.answer == "unconfirmed":
        return UNCONFIRMED, str(Unconfirmed(effect.key, effect.job_id))
    if effect.answer == "done":
        return NEVER_BEGUN, f"{name} is done: what happened cannot be taken back"
    return NEVER_BEGUN, f"{name} is not begun: `clawq effect begin` comes first"


def _document(effect: "Effect") -> "dict[str, object]":
    begun, settled = effect.begun_at, effect.settled_at
    return {
        "key": effect.key,
        "scope": effect.scope,
        "outcome": effect.answer,
        "job_id": effect.job_id,
        "begun_at": None if begun is None else when.iso(begun),
        "settled_at": None if settled is None else when.iso(settled),
    }
