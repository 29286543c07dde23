"""The hot verbs beside ``enqueue``, declared once: for their parser, help and completion.

Agents call them all day, so that they are read without Typer, as ``clawq enqueue`` is.
"""

from clawq import options
from clawq.errors import UsageError
from clawq.options import Option
from clawq.states import EFFECT_SCOPES, TOLD_CLASSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb:
    """``operands`` are its words that are no options, all needed; ``exits``: (code, meaning).

    ``actions``: (word, summary) of all that the first operand can be, where that is known beforehand.
    """

    __slots__ = ("about", "actions", "by_flag", "exits", "name", "operands", "options", "summary")

    def __init__(
        self,
        name: str,
        operands: "tuple[str, ...]",
        summary: str,
        about: str,
        declared: "tuple[Option, ...]",
        exits: "tuple[tuple[str, str], ...]",
        actions: "tuple[tuple[str, str], ...]" = (),
    ) -> None:
        self.name = name
        self.operands = operands
        self.summary = summary
        self.about = about
        self.options = declared
        self.by_flag = {option.flag[2:]: option for option in declared}
        self.by_flag |= {option.short: option for option in declared if option.short}
        self.exits = exits
        self.actions = actions

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
FAIL = Verb(
    "fail",
    (),
    "Tell why this attempt fails, before it ends.",
    """Inside a job: tell why this attempt fails, and end then. What is told counts more than the exit code,
also when that is 0. Transient is tried again after the backoff, permanent is not; rate_limit lets the
provider rest for everybody and is tried again afterwards, up to ten times without costing an attempt. The
last call counts.""",
    (
        Option("--class", "CLASS", "transient, permanent or rate_limit.", values=TOLD_CLASSES),
        Option("--reason", "WORD", "The word that a retry is counted under; default: the class."),
        Option("--resource", "NAME", "Whose limit it is; default: every provider that the job holds."),
        Option("--retry-after", "DURATION", "No retry sooner: 90s, 10m, 2h, 1d."),
        Option("--message", "TEXT", "What went wrong, in a line.", short="-m"),
        JSON,
    ),
    ANYWHERE,
)
BEAT = Verb(
    "beat",
    (),
    'Give a sign of life, for heartbeat = "agent".',
    """Inside a job: give a sign of life. A kind with heartbeat = "agent" expects one within each lease, or
its agent is stalled and ended. To touch the file $CLAWQ_HEARTBEAT_FILE does the same, but does not tell
whether the job is still this agent's.""",
    (JSON,),
    (("0", "done"), *ANYWHERE[1:4]),
)
EFFECT = Verb(
    "effect",
    ("begin|done|fail", "KEY"),
    "Record a side effect before and after it is done.",
    """Inside a job: record a side effect, so that no attempt does it twice. `begin` asks whether to do it,
and only exit 0 says yes; `done` confirms that it happened; `fail` says that it did not, and the key is free
again. An attempt that ends with an effect begun and neither done nor failed leaves its job unknown: it is not
run again before a person or the kind's probe has said what happened.""",
    (
        Option(
            "--scope",
            "SCOPE",
            "Whose key: job (default) or tenant, shared by its jobs.",
            values=EFFECT_SCOPES,
        ),
        JSON,
    ),
    (
        ("0", "begin: do it. done, fail: recorded"),
        ("1", "done, fail: this attempt has not begun it"),
        ANYWHERE[1],
        ("10", "begin: it was done already, skip it"),
        ("11", "it was begun before and never confirmed: do not do it"),
        ANYWHERE[2],
        ("75", "another attempt is doing it, or the database is locked: do not do it now"),
        ANYWHERE[3],
    ),
    (
        ("begin", "Ask whether to do it."),
        ("done", "It happened."),
        ("fail", "It did not happen; the key is free again."),
    ),
)
WAIT = Verb(
    "wait",
    ("[ID...]",),
    "Wait until jobs have ended.",
    """Wait until jobs have ended or are unknown. Inside a job without an ID: for the children that it has
enqueued, questions excepted, and only for jobs below it. Meanwhile the job is `waiting`: it gives its slots
back, except of resources with keep = true, its timeout stands still, and it goes on once it has its slots
again. Wait once for all of them, not once in each of several threads.""",
    (
        Option("--timeout", "DURATION", "Give up after this long: 90s, 10m, 2h, 1d."),
        Option("--json", "", "Answer with one JSON array: how each job ended, and its result."),
    ),
    (
        ("0", "all succeeded"),
        ("1", "not all did, or there is no such job"),
        ANYWHERE[1],
        ("65", "inside a job: it is not below this one, or needs what this one keeps meanwhile"),
        ANYWHERE[2],
        ("75", "the time was over"),
        ANYWHERE[3],
    ),
)
ASK = Verb(
    "ask",
    ("TEXT",),
    "Ask a person, and wait for the answer.",
    """Inside a job: put a question to a person, who answers with `clawq approve` or `clawq deny`, and wait
for that as `clawq wait` does, with the slots given back. It stands in `clawq list --state held`, and is
withdrawn when the job's attempt ends; a retry asks again.""",
    (Option("--timeout", "DURATION", "Give up after this long: 90s, 10m, 2h, 1d."), JSON),
    (
        ("0", "approved"),
        ("1", "denied, or too late to be asked"),
        ANYWHERE[1],
        ANYWHERE[2],
        ("75", "nobody has answered in time, or as many jobs are held as may be"),
        ANYWHERE[3],
        ANYWHERE[4],
    ),
)
VERBS = {verb.name: verb for verb in (THROTTLE, SPEND, FAIL, BEAT, EFFECT, WAIT, ASK)}


def parse(verb: Verb, argv: "Sequence[str]") -> "tuple[list[str], dict[str, object]]":
    """(operands, {key: text or True}) of a command line. Raises UsageError."""
    given, words, after = options.split(argv, verb.by_flag, verb.name)
    words += after or []
    if len(words) != len(verb.operands) and "[ID...]" not in verb.operands:
        missing = verb.operands[len(words) :]
        what = f"{missing[0]} is missing" if missing else f"unexpected {words[len(verb.operands)]!r:.80}"
        raise UsageError(what, f"{verb.usage}; `clawq {verb.name} --help` tells more")
    return words, given
