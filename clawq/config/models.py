"""What may stand in clawq.toml: every key with its type, default and meaning.

The checks, ``config init``, ``config show`` and docs/configuration.md are all made from these models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from clawq import options, placeholders, when
from clawq.errors import UsageError
from clawq.rules import cron
from clawq.rules.classify import TOLD_CLASSES
from clawq.rules.facts import PRESSURES
from clawq.rules.readers import NAMES as READERS
from clawq.states import BANDS

BUILT_IN_RESOURCES = {"browser": 2, "local_model": 1, "shell": 4}
HEARTBEATS = ("process", "output", "agent")
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000
MOST = 1_000_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9]")


class Expects:
    """What a person should have written, for errors and the reference; `ms` marks a compiled duration."""

    def __init__(self, text: str, ms: bool = False) -> None:
        self.text = text
        self.ms = ms


class Said(ValueError):
    """A check that says more than "expected ..."; `index` is the item of a list that it is about."""

    def __init__(self, what: str, fix: str = "", index: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.index = index


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    return value


def _duration(value: object) -> int:
    try:
        return when.duration(_text(value))
    except UsageError:
        raise ValueError from None


def _some_time(value: object) -> int:
    length = _duration(value)
    if length < 1000:
        raise ValueError
    return length


def _timeout(value: object) -> int:
    return 0 if value == "none" else _some_time(value)


def _moment(value: object) -> str:
    text = _text(value)
    if not _CLOCK.fullmatch(text):
        _some_time(text)
    return text


def _gate(least: int) -> PlainValidator:
    def check(value: object) -> int | str:
        if value == "off":
            return "off"
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise ValueError
        return value

    return PlainValidator(check)


def _number(least: float, most: float) -> PlainValidator:
    def check(value: object) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError
        return value

    return PlainValidator(check)


def _one_of(what: str, names: Sequence[str]) -> PlainValidator:
    def check(value: object) -> str:
        text = _text(value)
        if text not in names:
            raise Said(f"no such {what} {text!a}", f"{options.near(text, names)}one of {', '.join(names)}")
        return text

    return PlainValidator(check)


def _name(value: object) -> str:
    text = _text(value)
    if not _NAME.fullmatch(text):
        raise Said("not a name", "letters, digits and . _ : - are possible, a letter or digit first")
    return text


def _kind_name(value: object) -> str:
    if value == "ask":
        raise Said("this kind is clawq's own", "choose another name")
    return _name(value)


def _variable(value: object) -> str:
    text = _text(value)
    if not _VARIABLE.fullmatch(text):
        raise Said("not a variable's name", "letters, digits and _ are possible, no digit first")
    if text.startswith("CLAWQ_"):
        raise Said("clawq sets this variable itself", "choose another name")
    return text


def _names(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ValueError
    return sorted({_name(each) for each in value})


def _command(value: object) -> list[str]:
    return _template(value, placeholders.NAMES)


def _notify(value: object) -> list[str]:
    return _template(value, placeholders.NOTICE_NAMES)


def _template(value: object, names: Sequence[str]) -> list[str]:
    if not isinstance(value, list) or not value or not value[0]:
        raise ValueError
    for index, argument in enumerate(value):
        for name in placeholders.used(_text(argument)):
            if not placeholders.is_known(name, names):
                there_are = ", ".join(f"{{{each}}}" for each in names)
                fix = f"{options.near(name, names)}there are {there_are}"
                raise Said(f"unknown placeholder {{{name}}}", fix, index)
            if index == 0:
                raise Said(
                    f"{{{name}}} as the program", "name the program, placeholders come after it", index
                )
    return value


_ERROR_KEYS = ("contains", "class", "reason", "resource")


def _errors(value: object) -> list[dict[str, str]]:
    if not isinstance(value, list):
        raise ValueError
    for index, each in enumerate(value):
        if not isinstance(each, dict):
            raise ValueError
        for key in each:
            if key not in _ERROR_KEYS:
                there_are = ", ".join(_ERROR_KEYS)
                raise Said(
                    f"unknown key {key!a}", f"{options.near(key, _ERROR_KEYS)}there are {there_are}", index
                )
        if not isinstance(each.get("contains"), str) or not each["contains"].strip():
            raise Said("contains is missing", "expected the text that the output has at its end", index)
        named = each.get("class")
        if named not in TOLD_CLASSES:
            what = "class is missing" if named is None else f"no such class {named!a}"
            raise Said(what, f"expected one of {', '.join(TOLD_CLASSES)}", index)
        for key in ("reason", "resource"):
            if key in each:
                _name(each[key])
    return value


def _cron(value: object) -> str:
    text = _text(value)
    try:
        cron.parse(text)
    except cron.CronError as error:
        raise Said(error.what, error.fix) from None
    return " ".join(text.split())


def _path(value: object) -> str:
    path = os.path.expanduser(_text(value))
    if not path or path.startswith("~"):
        raise ValueError
    return path


def _key(default: Any, meaning: str, *, shown: str = "", example: Any = None, required: bool = False) -> Any:
    """A field. `shown` stands for a default that is worked out; `example` for a key without one.

    `required` is for the reference: a missing one is found by clawq.config.across, beside what else is wrong.
    """
    return Field(
        default,
        validate_default=default is not None,
        description=meaning,
        json_schema_extra={"shown": shown, "example": example, "required": required},
    )


Positive = Annotated[int, Field(ge=1, le=MOST), Expects("a whole number, at least 1")]
NotNegative = Annotated[int, Field(ge=0, le=MOST), Expects("a whole number, at least 0")]
Attempts = Annotated[
    int, Field(ge=1, le=options.ATTEMPTS_MAX), Expects(f"a whole number, 1 to {options.ATTEMPTS_MAX}")
]
Points = Annotated[
    int,
    Field(ge=-options.PRIORITY_MAX, le=options.PRIORITY_MAX),
    Expects(f"a whole number, {-options.PRIORITY_MAX} to {options.PRIORITY_MAX}"),
]
Duration = Annotated[
    int, PlainValidator(_duration), Expects('a duration such as "90s", "10m", "2h" or "1d"', ms=True)
]
SomeTime = Annotated[
    int, PlainValidator(_some_time), Expects('a duration of "1s" or more, such as "10m" or "2h"', ms=True)
]
Timeout = Annotated[
    int, PlainValidator(_timeout), Expects('a duration of "1s" or more, such as "30m", or "none"', ms=True)
]
Moment = Annotated[
    str, PlainValidator(_moment), Expects('a duration such as "10m", or a time of day such as "12:00"')
]
ProcsGate = Annotated[int | str, _gate(1), Expects('a whole number, at least 1, or "off"')]
MemoryGate = Annotated[int | str, _gate(0), Expects('a whole number, at least 0, or "off"')]
Pressure = Annotated[
    str, _one_of("pressure", (*PRESSURES, "off")), Expects('"normal", "warn", "critical" or "off"')
]
Mode = Annotated[str, _one_of("mode", ("enforce", "observe")), Expects('"enforce" or "observe"')]
Percent = Annotated[int | float, _number(1e-6, 100), Expects("a number above 0, at most 100")]
Weight = Annotated[
    int | float,
    _number(LEAST_WEIGHT, MOST_WEIGHT),
    Expects(f"a number, {LEAST_WEIGHT} to {MOST_WEIGHT}"),
]
YesNo = Annotated[bool, Expects("true or false")]
BandChoice = Annotated[str, _one_of("band", BANDS), Expects('a band such as "bulk"')]
Reader = Annotated[str, _one_of("reader", READERS), Expects('"none", "claude" or "codex"')]
Errors = Annotated[
    list[dict[str, str]],
    PlainValidator(_errors),
    Expects('a list such as [{ contains = "quota exceeded", class = "rate_limit" }]'),
]
Heartbeat = Annotated[str, _one_of("heartbeat", HEARTBEATS), Expects('"process", "output" or "agent"')]
OnLost = Annotated[str, _one_of("choice", ("retry", "unknown")), Expects('"retry" or "unknown"')]
OnFull = Annotated[
    str,
    _one_of("choice", ("reject", "drop_oldest", "coalesce")),
    Expects('"reject", "drop_oldest" or "coalesce"'),
]
OnBusy = Annotated[
    str, _one_of("choice", ("queue", "reject", "degrade")), Expects('"queue", "reject" or "degrade"')
]
Names = Annotated[list[str], PlainValidator(_names), Expects('a list of resources such as ["browser"]')]
Command = Annotated[
    list[str],
    PlainValidator(_command),
    Expects('a list such as ["site-qa", "--payload", "{payload_file}"]'),
]
Notify = Annotated[
    list[str],
    PlainValidator(_notify),
    Expects('a list such as ["terminal-notifier", "-message", "{text}"]'),
]
VariableName = Annotated[str, PlainValidator(_variable)]
VariableText = Annotated[str, PlainValidator(_text), Expects("text in quotes")]
Env = Annotated[
    dict[VariableName, VariableText], Expects('a table of texts such as { NODE_ENV = "production" }')
]
FilePath = Annotated[str, PlainValidator(_path), Expects('a path such as "~/.config/agents.env"')]
Name = Annotated[str, PlainValidator(_name)]
BandName = Annotated[str, _one_of("band", BANDS)]
KindName = Annotated[str, PlainValidator(_kind_name)]
CronTime = Annotated[
    str, PlainValidator(_cron), Expects('a time as in a crontab, such as "0 7 * * *" or "@daily"')
]
CatchUp = Annotated[str, _one_of("choice", ("once", "skip")), Expects('"once" or "skip"')]
OtherKind = Annotated[str, PlainValidator(_kind_name), Expects('a kind such as "site.qa.light"')]
Spends = Annotated[dict[Name, Positive], Expects("a table of amounts such as { model_tokens = 8000 }")]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Limits(Table):
    """How much runs and waits at once."""

    max_running: Positive = _key(8, "jobs running at once")
    max_running_per_tenant: Positive | None = _key(
        None, "of them one tenant's", shown="max_running", example=8
    )
    max_running_per_workflow: Positive = _key(4, "of them under one root: a job and its children")
    max_depth: NotNegative = _key(4, "children of children: how far a job may be below its root")
    max_descendants: NotNegative = _key(100, "jobs that one root may have below it, ended ones too")
    max_queued: Positive = _key(
        1000, "jobs accepted and not started; the last tenth only for critical jobs and children"
    )
    max_queued_per_tenant: Positive = _key(500, "of them one tenant's")
    max_held: NotNegative = _key(50, "jobs waiting for a person at once")
    max_waiting: Positive | None = _key(
        None,
        "jobs in `clawq wait` at once; while so many wait, only children start",
        shown="twice max_running",
        example=16,
    )
    reserve_after: Duration = _key(
        "5m", "a job that waits this long, only for slots that others hold, gets its resources reserved"
    )
    age_boost: SomeTime = _key("10m", "a job rises one band for each such time that it waits")
    retention: SomeTime = _key("30d", "how long ended jobs, their events and their logs are kept")
    retention_mb: Positive = _key(
        4096, "how much all logs may take, in MB, and as much the database; beyond, the oldest ended go first"
    )
    log_max_mb: Positive = _key(
        64, "of one attempt's output, in MB; of more the head and the tail are kept and the middle is cut"
    )


class Host(Table):
    """What is asked of the machine before every start."""

    max_user_procs: ProcsGate | None = _key(
        None,
        "no start while the account has so many processes",
        shown="75% of the account's ceiling",
        example=550,
    )
    min_free_mb: MemoryGate = _key(512, "no start while less memory is free, in MB")
    max_pressure: Pressure = _key(
        "warn", "no start while the memory pressure is above this: macOS's own level, or Linux PSI"
    )
    min_free_disk_mb: MemoryGate = _key(512, "no start while less disk is free beside the queue, in MB")
    retry_after: SomeTime = _key(
        "60s", "after the machine could not start a process: how long no other start is tried"
    )


class Alerts(Table):
    """When something needs a person, and who is told."""

    oldest_age: SomeTime = _key(
        "10m", "a job that waits this long while slots are free, and nothing says why: `stuck`"
    )
    quiet: SomeTime = _key("15m", "a running job with neither output nor CPU time for this long: `quiet`")
    notify: Notify | None = _key(
        None,
        "told of each alert, and of jobs that are dead, unknown or expired where their kind has no `notify`",
        example=["terminal-notifier", "-message", "{text}"],
    )


class Resource(Table):
    """A named semaphore: a job holds one slot of each resource it needs while it runs."""

    limit: Positive | None = _key(None, "slots", example=2)
    min_free_mb: NotNegative | None = _key(None, "a memory floor of its own, on top of [host]", example=1024)
    provider: YesNo = _key(False, "a rate limit met by a job that holds it lets it rest for everyone")
    keep: YesNo = _key(False, "not given back while a job is in `clawq wait`")


class Budget(Table):
    """An amount per period: a sliding window that jobs reserve their part of before they start."""

    limit: Positive | None = _key(
        None, "the amount in any window of that length", example=120_000, required=True
    )
    per: SomeTime | None = _key(None, "the window's length", example="1m", required=True)
    per_tenant: Positive | None = _key(None, "of the limit, one tenant's part at most", example=40_000)


class Tenant(Table):
    """One tenant's own limits."""

    weight: Weight = _key(1, "its part of the turns within a band: 2 starts twice as often as 1")
    max_running: Positive | None = _key(
        None, "jobs running at once", shown="limits.max_running_per_tenant", example=3
    )
    max_queued: Positive | None = _key(
        None, "jobs accepted and not started", shown="limits.max_queued_per_tenant", example=100
    )


class KindKeys(Table):
    """What a kind may say, and a band for the kinds of its jobs."""

    command: Command | None = _key(
        None,
        "what to run when `enqueue` names no command; {payload_file} and the like are filled in",
        example=["site-qa", "--payload", "{payload_file}"],
    )
    needs: Names = _key([], "resources held while it runs, one slot of each", example=["browser"])
    spends: Spends = _key(
        {},
        "what it reserves of budgets at its start; `clawq spend` tells the real figure",
        example={"model_tokens": 8000},
    )
    priority: Points = _key(0, "a point is worth a minute of waiting")
    stale_after: Moment | None = _key(
        None, "not started by then, a time of day being the next one: `expired`", example="12:00"
    )
    deadline: Moment | None = _key(None, "from acceptance to the end; then no retry is left", example="2h")
    timeout: Timeout = _key("2h", "one attempt's running time")
    lease: SomeTime = _key("2m", "no sign of life for this long: stalled, and ended")
    heartbeat: Heartbeat = _key(
        "process", "the sign of life: a living process, its output, or the agent's heartbeat file"
    )
    grace: Duration = _key("10s", "between TERM and KILL")
    max_attempts: Attempts = _key(3, "attempts before it is `dead`")
    backoff: Duration = _key("30s", "wait before a retry, doubled each time, jittered 0.8 to 1.2")
    max_backoff: Duration = _key("1h", "the longest such wait")
    max_age: SomeTime = _key("1d", "no retry starts later than this after acceptance")
    max_running: Positive | None = _key(None, "jobs of this kind running at once", example=2)
    max_procs: Positive | None = _key(
        None, "processes of its whole tree; with more it is ended, `over_footprint`", example=60
    )
    max_mb: Positive | None = _key(
        None, "memory of its whole tree, in MB; with more it is ended, `over_footprint`", example=4000
    )
    queue_cap: Positive | None = _key(None, "jobs of this kind accepted and not started", example=20)
    on_full: OnFull = _key(
        "reject",
        'when queue_cap is reached: "reject" it, "drop_oldest" of its tenant, or "coalesce" with one like it',
    )
    on_busy: OnBusy = _key(
        "queue",
        'when it cannot start at once: "queue", "reject", or "degrade", which takes it as degrade_to',
    )
    degrade_to: OtherKind | None = _key(
        None, 'the kind that it becomes with on_busy = "degrade"', example="site.qa.light"
    )
    refuse_hopeless: YesNo = _key(
        False, "refuse at once what could not start in time, by the rate at which jobs start now"
    )
    on_lost: OnLost = _key(
        "retry", 'an attempt that did not end by itself: "retry", or "unknown", which asks a person'
    )
    reconcile: Command | None = _key(
        None,
        "asked about an unknown job: exit 0 it happened, 1 it did not, else still unknown; 30 s at most",
        example=["check-sent", "--", "{field:id}"],
    )
    classify: Reader = _key(
        "none", "who reads in its output how it ended: claude for `claude -p`, codex for `codex exec`"
    )
    errors: Errors = _key(
        [],
        "output that ends with such a text in it is a failure of that class; the first that matches counts",
        example=[{"contains": "quota exceeded", "class": "rate_limit"}],
    )
    env: Env = _key({}, "variables, after [env] and before the job's own", example={"NODE_ENV": "production"})
    env_file: FilePath | None = _key(
        None, "lines of K=V, mode 0600; read at each start, never stored", example="~/.config/agents.env"
    )
    notify: Notify | None = _key(
        None,
        "run when a job of it is dead, unknown or expired; 30 s at most, once a minute for each state",
        example=["terminal-notifier", "-message", "{kind} {state}"],
    )


class Band(KindKeys):
    """Of the jobs in one band: their share, and any key of a kind but `band` as a default."""

    share: Percent | None = _key(
        None,
        "percent of limits.max_running, in whole slots; a band beyond its share comes after the others",
        example=60,
    )


class Kind(KindKeys):
    """A configured type of job."""

    band: BandChoice = _key(
        "normal", "the band of a job that does not say: critical, interactive, normal or bulk"
    )
    mcp: YesNo = _key(False, "may be enqueued through `clawq mcp`, by any agent that has it as a tool")


class Schedule(Table):
    """clawq as the clock: a job of a kind at each such time, for machines that sleep. One table for each."""

    cron: CronTime | None = _key(
        None,
        "when, in local time: minute, hour, day of month, month and day of week, or @hourly, @daily ...",
        example="0 7 * * *",
        required=True,
    )
    kind: OtherKind | None = _key(
        None, "the kind, which has a command, of the job", example="digest.daily", required=True
    )
    catch_up: CatchUp = _key(
        "once", 'what was missed while the machine slept or no supervisor ran: "once" for all, or "skip"'
    )


class Top(Table):
    """Before the first table."""

    mode: Mode = _key(
        "enforce",
        '"observe" starts whatever is due, accepts whatever comes and records what would have been refused',
    )


class ClawqToml(Top):
    """The whole file."""

    limits: Limits = Limits()
    host: Host = Host()
    alerts: Alerts = Alerts()
    resources: dict[Name, Resource] = {}
    budgets: dict[Name, Budget] = {}
    env: Env = {}
    bands: dict[BandName, Band] = {}
    tenants: dict[Name, Tenant] = {}
    kinds: dict[KindName, Kind] = {}
    schedules: Annotated[list[Schedule], Expects("tables, each headed [[schedules]]")] = []
