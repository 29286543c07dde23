"""What is configured, as the rest of clawq reads it: the compiled body of clawq.toml, kept in the database.

Nothing here knows TOML or pydantic. Durations are integer milliseconds (``*_ms``); ``deadline`` and
``stale_after`` stay text, since a time of day means another moment for each job.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

FORM = 6
"""Of the compiled body. Part of identity(), so that a clawq with another form compiles the file again."""

NO_FILE = f"{FORM}:"
"""The identity of no file at all: a clawq with other defaults compiles them again."""

USE = "use"
COMPILE = "compile"
REFUSE = "refuse"

PRESSURES = ("normal", "warn", "critical")
"""Levels of memory pressure, by number."""


def identity(path: str) -> str:
    """Which version of the file at `path` this is; NO_FILE when there is none.

    The time of change counts besides the time of writing: a chmod that makes a file readable is news.
    """
    try:
        seen = os.stat(path)
        path = os.fsencode(path).decode(errors="backslashreplace")  # cron's locale must name the same file
    except (FileNotFoundError, NotADirectoryError):
        # A link whose target is away (a disk not mounted) is a broken file, not a file that was removed.
        return f"{FORM}:{path}:cannot be there" if _is_blocked(path) else NO_FILE
    except OSError as error:
        return f"{FORM}:{path}:errno {error.errno}"
    return f"{FORM}:{path}:{seen.st_ino}:{seen.st_size}:{seen.st_mtime_ns}:{seen.st_ctime_ns}"


def _is_blocked(path: str) -> bool:
    folder = os.path.dirname(path)
    return os.path.islink(path) or (os.path.lexists(folder) and not os.path.isdir(folder))


def from_a_file(row_identity: str) -> bool:
    """Whether the form in force was made from a file, and not of the defaults."""
    return bool(row_identity) and not row_identity.endswith(":")


def verdict(seen: str, row_identity: str, broken_identity: str | None) -> str:
    """What to do with the config row, now that identity() says `seen`.

    USE its body; COMPILE the file (``clawq.config.refresh``); REFUSE with the row's ``error`` (exit
    78), because the only file this home ever had does not compile.
    """
    if seen == broken_identity:
        return USE if from_a_file(row_identity) else REFUSE
    return USE if seen == row_identity and broken_identity is None else COMPILE


class Limits:
    """``[limits]``: counts of jobs, how long they wait for a favour, and how long ended jobs are kept."""

    __slots__ = (
        "age_boost_ms",
        "log_max_mb",
        "max_depth",
        "max_descendants",
        "max_held",
        "max_queued",
        "max_queued_per_tenant",
        "max_running",
        "max_running_per_tenant",
        "max_running_per_workflow",
        "max_waiting",
        "reserve_after_ms",
        "retention_mb",
        "retention_ms",
    )

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.max_running: int = body["max_running"]
        self.max_running_per_tenant: int = body["max_running_per_tenant"]
        self.max_running_per_workflow: int = body["max_running_per_workflow"]
        self.max_queued: int = body["max_queued"]
        self.max_queued_per_tenant: int = body["max_queued_per_tenant"]
        self.max_held: int = body["max_held"]
        self.max_depth: int = body["max_depth"]
        self.max_descendants: int = body["max_descendants"]
        self.max_waiting: int = body["max_waiting"]
        self.reserve_after_ms: int = body["reserve_after_ms"]
        self.age_boost_ms: int = body["age_boost_ms"]
        self.retention_ms: int = body["retention_ms"]
        self.retention_mb: int = body["retention_mb"]
        self.log_max_mb: int = body["log_max_mb"]


class Host:
    """``[host]``: the gates before every start; ``"off"`` is a gate switched off."""

    __slots__ = ("max_pressure", "max_user_procs", "min_free_disk_mb", "min_free_mb", "retry_after_ms")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.max_user_procs: int | Literal["off"] | None = body["max_user_procs"]
        """None: a share of the account's ceiling, which the supervisor works out."""
        self.min_free_mb: int | Literal["off"] = body["min_free_mb"]
        self.max_pressure: Literal["normal", "warn", "critical", "off"] = body["max_pressure"]
        self.min_free_disk_mb: int | Literal["off"] = body["min_free_disk_mb"]
        self.retry_after_ms: int = body["retry_after_ms"]


def gate(value: int | str | None) -> int | None:
    """Where a gate of ``[host]`` closes; None where it is off, or left to the account's ceiling."""
    return value if isinstance(value, int) else None


class Alerts:
    """``[alerts]``: when something needs a person, and the command that tells one."""

    __slots__ = ("notify", "oldest_age_ms", "quiet_ms")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.oldest_age_ms: int = body["oldest_age_ms"]
        self.quiet_ms: int = body["quiet_ms"]
        self.notify: list[str] | None = body["notify"]
        """With its placeholders."""


class Resource:
    """``[resources.NAME]``: a semaphore; ``min_free_mb`` (None: no floor) is asked on top of the host's.

    ``provider``: a limit that one job meets there is everybody's. ``keep``: not given back in `clawq wait`.
    """

    __slots__ = ("keep", "limit", "min_free_mb", "name", "provider")

    def __init__(self, name: str, body: Mapping[str, Any]) -> None:
        self.name = name
        self.limit: int = body["limit"]
        self.min_free_mb: int | None = body["min_free_mb"]
        self.provider: bool = body["provider"]
        self.keep: bool = body["keep"]


class Budget:
    """``[budgets.NAME]``: ``limit`` in any window of ``per_ms``; ``per_tenant`` (or None) of it for each."""

    __slots__ = ("limit", "name", "per_ms", "per_tenant")

    def __init__(self, name: str, body: Mapping[str, Any]) -> None:
        self.name = name
        self.limit: int = body["limit"]
        self.per_ms: int = body["per_ms"]
        self.per_tenant: int | None = body["per_tenant"]


class ErrorPattern:
    """One of a kind's ``errors``: output that ends with ``contains`` in it is a failure of this class."""

    __slots__ = ("contains", "error_class", "reason", "resource")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.contains: str = body["contains"]
        self.error_class: str = body["class"]
        self.reason: str | None = body.get("reason")
        self.resource: str | None = body.get("resource")


class Kind:
    """A kind's values for a job in ``band``: each of the kind, else the band, else the default, else None."""

    __slots__ = (
        "backoff_ms",
        "band",
        "classify",
        "command",
        "deadline",
        "degrade_to",
        "env",
        "env_file",
        "errors",
        "grace_ms",
        "heartbeat",
        "lease_ms",
        "max_age_ms",
        "max_attempts",
        "max_backoff_ms",
        "max_mb",
        "max_procs",
        "max_running",
        "mcp",
        "name",
        "needs",
        "notify",
        "on_busy",
        "on_full",
        "on_lost",
        "priority",
        "queue_cap",
        "reconcile",
        "refuse_hopeless",
        "spends",
        "stale_after",
        "timeout_ms",
    )

    def __init__(self, name: str, band: str, layers: tuple[Mapping[str, Any], ...]) -> None:
        self.name = name
        self.band = band
        self.command: list[str] | None = _first(layers, "command")
        """With its placeholders; see clawq.placeholders.fill."""
        self.needs: list[str] = _first(layers, "needs")
        """Sorted, without repeats."""
        self.spends: dict[str, int] = _first(layers, "spends") or {}
        """{budget: amount}, taken whole from the first layer that says it."""
        self.priority: int = _first(layers, "priority")
        self.lease_ms: int = _first(layers, "lease_ms")
        self.heartbeat: str = _first(layers, "heartbeat")
        self.timeout_ms: int = _first(layers, "timeout_ms")
        """0: none."""
        self.deadline: str | None = _first(layers, "deadline")
        self.grace_ms: int = _first(layers, "grace_ms")
        self.max_attempts: int = _first(layers, "max_attempts")
        self.backoff_ms: int = _first(layers, "backoff_ms")
        self.max_backoff_ms: int = _first(layers, "max_backoff_ms")
        self.max_age_ms: int = _first(layers, "max_age_ms")
        self.max_running: int | None = _first(layers, "max_running")
        self.max_procs: int | None = _first(layers, "max_procs")
        """Of its whole tree, as is ``max_mb``."""
        self.max_mb: int | None = _first(layers, "max_mb")
        self.queue_cap: int | None = _first(layers, "queue_cap")
        self.on_full: str = _first(layers, "on_full")
        self.on_busy: str = _first(layers, "on_busy")
        self.degrade_to: str | None = _first(layers, "degrade_to")
        """A configured kind that does not degrade itself, wherever ``on_busy`` is ``degrade``."""
        self.refuse_hopeless: bool = _first(layers, "refuse_hopeless")
        self.stale_after: str | None = _first(layers, "stale_after")
        self.on_lost: str = _first(layers, "on_lost")
        self.reconcile: list[str] | None = _first(layers, "reconcile")
        """The probe to ask about an unknown job, with its placeholders."""
        self.mcp: bool = _first(layers, "mcp")
        """Whether `clawq mcp` offers it."""
        self.notify: list[str] | None = _first(layers, "notify")
        """Told of its jobs that are dead, unknown or expired; None: ``[alerts]`` is."""
        self.classify: str = _first(layers, "classify")
        """Which reader looks at its output: none, claude or codex."""
        self.errors = tuple(ErrorPattern(each) for each in _first(layers, "errors") or ())
        self.env: dict[str, str] = {}
        """The band's, then the kind's own."""
        for layer in layers[::-1]:
            self.env |= layer.get("env", {})
        self.env_file: str | None = _first(layers, "env_file")
        """Absolute. Read at each start, never stored."""


def _first(layers: tuple[Mapping[str, Any], ...], key: str) -> Any:
    for layer in layers:
        if key in layer:
            return layer[key]
    return None


class Schedule:
    """One of ``[[schedules]]``: a job of ``kind`` at each time of ``cron``; ``catch_up``: once, or skip."""

    __slots__ = ("catch_up", "cron", "kind")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.cron: str = body["cron"]
        self.kind: str = body["kind"]
        self.catch_up: str = body["catch_up"]


class Settings:
    """The effective configuration. Immutable by habit: a changed file makes a new one."""

    __slots__ = (
        "_bands",
        "_defaults",
        "_kinds",
        "_seen",
        "_tenants",
        "alerts",
        "budgets",
        "env",
        "host",
        "limits",
        "mode",
        "notifies",
        "resources",
        "schedules",
    )

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.mode: Literal["enforce", "observe"] = body["mode"]
        self.limits = Limits(body["limits"])
        self.host = Host(body["host"])
        self.alerts = Alerts(body["alerts"])
        self.resources = {name: Resource(name, each) for name, each in body["resources"].items()}
        self.budgets = {name: Budget(name, each) for name, each in body["budgets"].items()}
        self.env: dict[str, str] = body["env"]
        """For every job; a kind's `env` and the job's own come after it."""
        self._bands: dict[str, dict[str, Any]] = body["bands"]
        self._tenants: dict[str, dict[str, Any]] = body["tenants"]
        self._kinds: dict[str, dict[str, Any]] = body["kinds"]
        self._defaults: dict[str, Any] = body["kind_defaults"]
        self.schedules = tuple(Schedule(each) for each in body["schedules"])
        self._seen: dict[tuple[str, str | None], Kind] = {}
        tables = (*self._kinds.values(), *self._bands.values())
        self.notifies = self.alerts.notify is not None or any(table.get("notify") for table in tables)
        """Whether anybody is told of anything."""

    @classmethod
    def from_text(cls, body_text: str) -> Settings:
        """From the ``body`` column of the config row."""
        from clawq.quickjson import loads

        return cls(loads(body_text))

    @property
    def tenants(self) -> dict[str, dict[str, Any]]:
        """What is written for each tenant: {name: {"weight"?: x, "max_running"?: n, "max_queued"?: n}}."""
        return self._tenants

    @property
    def band_shares(self) -> dict[str, float]:
        """{band: percent of max_running}, of the bands that have a share; at most 100 together."""
        return {name: band["share"] for name, band in self._bands.items() if "share" in band}

    @property
    def kind_names(self) -> list[str]:
        """Every configured kind, sorted; ``default`` is always one."""
        return sorted(self._kinds)

    def kind(self, name: str, band: str | None = None) -> Kind:
        """The values for a job of kind `name` in `band` (None: the band that the kind itself says).

        A kind that is no longer configured has the defaults: its jobs are still in the queue.
        """
        found = self._seen.get((name, band))
        if found is None:
            own = self._kinds.get(name, {})
            in_band = band or own.get("band") or self._defaults["band"]
            layers = (own, self._bands.get(in_band, {}), self._defaults)
            found = self._seen[name, band] = Kind(name, in_band, layers)
        return found

    def tenant_max_running(self, tenant: str) -> int:
        """How many jobs of `tenant` may run at once."""
        return int(self._tenants.get(tenant, {}).get("max_running", self.limits.max_running_per_tenant))

    def tenant_max_queued(self, tenant: str) -> int:
        """How many jobs of `tenant` may wait at once."""
        return int(self._tenants.get(tenant, {}).get("max_queued", self.limits.max_queued_per_tenant))

    def tenant_weight(self, tenant: str) -> float:
        """How many turns `tenant` has within a band for each one of a tenant of weight 1. Above 0."""
        return float(self._tenants.get(tenant, {}).get("weight", 1))
