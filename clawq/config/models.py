"""What may stand in clawq.toml: every key with its type, default and meaning.

The checks, ``config init``, ``config show`` and docs/configuration.md are all made from these models.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from clawq.config.types import (
    Attempts,
    BandChoice,
    BandName,
    CatchUp,
    Command,
    CronTime,
    Duration,
    Env,
    Errors,
    Expects,
    FilePath,
    Heartbeat,
    KindName,
    MemoryGate,
    Mode,
    Moment,
    Name,
    Names,
    Notify,
    NotNegative,
    OnBusy,
    OnFull,
    OnLost,
    OtherKind,
    Percent,
    Points,
    Positive,
    Pressure,
    ProcsGate,
    Reader,
    SomeTime,
    Spends,
    Timeout,
    Weight,
    YesNo,
)

BUILT_IN_RESOURCES = {"browser": 2, "local_model": 1, "shell": 4}


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
