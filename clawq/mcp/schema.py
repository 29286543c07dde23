"""What an agent reads before it calls a tool: names, descriptions and argument schemas. No SDK here."""

from __future__ import annotations

from typing import Any, NamedTuple

from clawq import placeholders
from clawq.options import BY_FLAG
from clawq.settings import Settings
from clawq.states import EFFECT_SCOPES

WAIT_DEFAULT_S = 50
"""Under the minute that several clients give a call."""
WAIT_MOST_S = 3_600

ABOUT = """clawq is the job queue of this machine: what you enqueue runs later, when there is room for it, and
you get its number at once. A rejected job is an answer and no fault: when it has retry_after_s, ask again
after so many seconds and no sooner; when it has none, do not ask again. Give a dedupe_key wherever the same
work must not be queued twice. `wait` gives the results; when it says timed_out, call it again. Inside a job
of the queue, what you enqueue are that job's children; begin every act that must not happen twice with
effect_begin."""

Document = dict[str, Any]


class Tool(NamedTuple):
    """``reads``: it changes nothing. ``once``: to call it again changes nothing more."""

    name: str
    description: str
    arguments: Document
    required: tuple[str, ...] = ()
    reads: bool = False
    once: bool = True

    def schema(self) -> Document:
        """The JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": self.arguments,
            "required": list(self.required),
            "additionalProperties": False,
        }


def offered(settings: Settings) -> dict[str, str]:
    """{kind: what is to be known of it}: those with ``mcp = true`` and a command, in order."""
    found = {}
    for name in settings.kind_names:
        kind = settings.kind(name)
        if kind.mcp and kind.command is not None:
            found[name] = _hint(kind.command)
    return found


def _hint(command: list[str]) -> str:
    used = [name for argument in command for name in placeholders.used(argument)]
    fields = list(dict.fromkeys(name[6:] for name in used if name.startswith("field:")))
    if fields:
        return f"payload is an object with {', '.join(fields)}"
    if "payload" in used or "payload_file" in used:
        return "payload is passed on as it is"
    return "its command does not name the payload"


def tools(settings: Settings) -> list[Tool]:
    """All tools, as things are configured now."""
    return [_enqueue(settings), *_OTHERS]


def _enqueue(settings: Settings) -> Tool:
    kinds = offered(settings)
    if kinds:
        known = "; ".join(f"{name}: {hint}" for name, hint in kinds.items())
        kind: Document = {"type": "string", "enum": list(kinds), "description": f"What to run. {known}."}
    else:
        kind = {
            "type": "string",
            "description": "What to run. No kind is offered yet: clawq.toml has none with mcp = true.",
        }
    return Tool(
        "enqueue",
        "Put a job into the queue. Answers at once with outcome (admitted, queued, scheduled, held, "
        "duplicate, rejected), job_id, and where it was rejected reason, message, retry_after_s and "
        "safe_to_retry.",
        {
            "kind": kind,
            "payload": {"description": "What the job works on: any JSON, at most 64 KiB."},
            **{key: {"type": "string", "description": _help(key)} for key in TEXTS},
            "dedupe_scope": {
                "type": "string",
                "enum": list(BY_FLAG["dedupe-scope"].values),
                "description": _help("dedupe_scope"),
            },
            "priority": {"type": "integer", "description": _help("priority")},
            "hold": {"type": "boolean", "description": "Wait until a person approves it."},
            "dry_run": {"type": "boolean", "description": _help("dry_run")},
        },
        ("kind",),
        once=False,
    )


TEXTS = ("dedupe_key", "delay", "at", "stale_after", "deadline", "exclusive")
"""Options of `clawq enqueue` that agents may give. Not among them: a command, a folder, variables, a tenant,
and what would let a job past the limits of its kind."""


def _help(key: str) -> str:
    return BY_FLAG[key.replace("_", "-")].help


_JOB_ID: Document = {"type": "integer", "minimum": 1, "description": "The job's number."}
_KEY: Document = {
    "type": "string",
    "description": "Names the act and not the try, such as mail:7; the same in every attempt.",
}
_SCOPE: Document = {
    "type": "string",
    "enum": list(EFFECT_SCOPES),
    "description": "Whose key it is: this job's (default), or shared by all jobs of the tenant.",
}

_OTHERS = (
    Tool(
        "job_status",
        "Everything about one job: its state, attempts, why it was deferred, its children, its result.",
        {"job_id": _JOB_ID},
        ("job_id",),
        reads=True,
    ),
    Tool(
        "wait",
        "Wait until jobs have ended: state, exit code, error and result of each. Without job_ids: inside a "
        "job its children, else what was enqueued in this session. timed_out says that some go on; call it "
        "again.",
        {
            "job_ids": {"type": "array", "items": _JOB_ID, "description": "The jobs' numbers."},
            "timeout_s": {
                "type": "number",
                "minimum": 0,
                "maximum": WAIT_MOST_S,
                "description": f"How long to wait at most; default {WAIT_DEFAULT_S}.",
            },
        },
        reads=True,
    ),
    Tool(
        "why",
        "Why a job does not run yet: each reason with what was measured, the limit, and what clears it.",
        {"job_id": _JOB_ID},
        ("job_id",),
        reads=True,
    ),
    Tool(
        "cancel",
        "Cancel a job that was enqueued in this session, and its children that have not started.",
        {
            "job_id": _JOB_ID,
            "tree": {"type": "boolean", "description": "End all that runs below it too."},
        },
        ("job_id",),
    ),
    Tool("beat", "Inside a job: a sign of life. lease_lost means: stop, the job is no longer yours.", {}),
    Tool(
        "effect_begin",
        "Inside a job, before an act that must not happen twice: may it be done? Only do_it = true says yes. "
        "done: it happened already, skip it. unconfirmed: it may have happened, do not do it. held: somebody "
        "is doing it.",
        {"key": _KEY, "scope": _SCOPE},
        ("key",),
        once=False,
    ),
    Tool(
        "effect_done",
        "Inside a job, right after the act: it happened.",
        {"key": _KEY, "scope": _SCOPE},
        ("key",),
    ),
    Tool(
        "effect_fail",
        "Inside a job: the act surely did not happen, and a later attempt may do it. If in doubt, do not "
        "call this.",
        {"key": _KEY, "scope": _SCOPE},
        ("key",),
    ),
)
