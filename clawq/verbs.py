"""The hot verbs beside ``enqueue``, declared once: for their parser, help and completion.

Agents call them all day, so that they are read without Typer, as ``clawq enqueue`` is.
"""

from clawq import options
from clawq.errors import UsageError
from clawq.options import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb:
    """``operands`` are its words that are no options, all needed; ``exits``: (code, meaning)."""

    __slots__ = ("about", "by_flag", "exits", "name", "operands", "options", "summary")

    def __init__(
        self,
        name: str,
        operands: "tuple[str, ...]",
        summary: str,
        about: str,
        declared: "tuple[Option, ...]",
        exits: "tuple[tuple[str, str], ...]",
    ) -> None:
        self.name = name
        self.operands = operands
        self.summary = summary
        self.about = about
        self.options = declared
        self.by_flag = {option.flag[2:]: option for option in declared}
        self.exits = exits

    @property
    def usage(self) -> str:
        """Such as ``clawq spend BUDGET N``."""
        return " ".join(["clawq", self.name, *self.operands])


JSON = Option("--json", "", "Answer with one JSON object.")
ANYWHERE = (
    ("0", "done"),
    ("2", "the command line is wrong: unknown name or option"),
    ("74", "the disk is full, or the database cannot be read"),
    ("77", "inside a job: it is no longer this agent's; nothing was done"),
    ("78", "clawq.toml is not valid, and never was"),
)

THROTTLE = Verb(
    "throttle",
    ("RESOURCE",),
    "Let a resource rest for everybody.",
    """Let a resource rest: no job that needs it starts until then, and those that run go on. Afterwards one
job probes it, and when that went well the others come back, twice as many each time. A rest that already
lasts longer stays. Usable by anybody: by a job that met a rate limit, and by a person.""",
    (Option("--for", "DURATION", "How long: 90s, 10m, 2h, at most 1d; 0 ends a rest now."), JSON),
    ANYWHERE,
)
SPEND = Verb(
    "spend",
    ("BUDGET", "N"),
    "Tell what this attempt has spent of a budget so far.",
    """Inside a job: tell what this attempt has spent of a budget so far, all in all and not since the last
time. It always counts, and what exceeds the budget is a debt that later starts wait for. Less than what was
reserved is given back when the attempt ends.""",
    (JSON,),
    (*ANYWHERE[:2], ("75", "recorded, and the budget is overdrawn: slow down"), *ANYWHERE[2:]),
)
VERBS = {verb.name: verb for verb in (THROTTLE, SPEND)}


def parse(verb: Verb, argv: "Sequence[str]") -> "tuple[list[str], dict[str, object]]":
    """(operands, {key: text or True}) of a command line. Raises UsageError."""
    given, words, after = options.split(argv, verb.by_flag, verb.name)
    words += after or []
    if len(words) != len(verb.operands):
        missing = verb.operands[len(words) :]
        what = f"{missing[0]} is missing" if missing else f"unexpected {words[len(verb.operands)]!r:.80}"
        raise UsageError(what, f"{verb.usage}; `clawq {verb.name} --help` tells more")
    return words, given
