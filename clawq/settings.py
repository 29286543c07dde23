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

FORM = 1
"""Of the compiled body. Part of identity(), so that a clawq with another form compiles the file again."""

USE = "use"
COMPILE = "compile"
REFUSE = "refuse"


def identity(path: str) -> str:
    """Which version of the file at `path` this is; ``''`` when there is none.

    The time of change counts besides the time of writing: a chmod that makes a file readable is news.
    """
    try:
        seen = os.stat(path)
        path = os.fsencode(path).decode(errors="backslashreplace")  # cron's locale must name the same file
    except (FileNotFoundError, NotADirectoryError):
        # A link whose target is away (a disk not mounted) is a broken file, not a file that was removed.
        return f"{FORM}:{path}:a link to nothing" if os.path.islink(path) else ""
    except OSError as error:
        return f"{FORM}:{path}:errno {error.errno}"
    return f"{FORM}:{path}:{seen.st_ino}:{seen.st_size}:{seen.st_mtime_ns}:{seen.st_ctime_ns}"


def verdict(seen: str, row_identity: str, broken_identity: str | None) -> str:
    """What to do with the config row, now that identity() says `seen`.

    USE its body; COMPILE the file (``clawq.config.refresh``); REFUSE with the row's ``error`` (exit
    78), because the only file this home ever had does not compile.
    """
    if seen == broken_identity:
        return USE if row_identity else REFUSE
    return USE if seen == row_identity and broken_identity is None else COMPILE


class Limits:
    """``[limits]``: counts of jobs, and how long ended jobs are kept."""

    __slots__ = (
        "max_held",
        "max_queued",
        "max_queued_per_tenant",
        "max_running",
        "max_running_per_tenant",
        "retention_ms",
    )

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.max_running: int = body["max_running"]
        self.max_running_per_tenant: int = body["max_running_per_tenant"]
        self.max_queued: int = body["max_queued"]
        self.max_queued_per_tenant: int = body["max_queued_per_tenant"]
        self.max_held: int = body["max_held"]
        self.retention_ms: int = body["retention_ms"]


class Host:
    """``[host]``: the gates before every start; ``"off"`` is a gate switched off."""

    __slots__ = ("max_user_procs", "min_free_mb", "retry_after_ms")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.max_user_procs: int | Literal["off"] | None = body["max_user_procs"]
        """None: a share of the account's ceiling, which the supervisor works out."""
        self.min_free_mb: int | Literal["off"] = body["min_free_mb"]
        self.retry_after_ms: int = body["retry_after_ms"]


class Resource:
    """``[resources.NAME]``: a semaphore; ``min_free_mb`` (None: no floor) is asked on top of the host's."""

    __slots__ = ("limit", "min_free_mb", "name")

    def __init__(self, name: str, body: Mapping[str, Any]) -> None:
        self.name = name
        self.limit: int = body["limit"]
        self.min_free_mb: int | None = body["min_free_mb"]


class Kind:
    """A kind's values for a job in ``band``: each of the kind, else the band, else the default, else None."""

    __slots__ = (
        "backoff_ms",
        "band",
        "command",
        "deadline",
        "env",
        "env_file",
        "grace_ms",
        "heartbeat",
        "lease_ms",
        "max_age_ms",
        "max_attempts",
        "max_backoff_ms",
        "max_running",
        "name",
        "needs",
        "on_lost",
        "priority",
        "queue_cap",
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
        self.queue_cap: int | None = _first(layers, "queue_cap")
        self.stale_after: str | None = _first(layers, "stale_after")
        self.on_lost: str = _first(layers, "on_lost")
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


class Settings:
    """The effective configuration. Immutable by habit: a changed file makes a new one."""

    __slots__ = ("_bands", "_defaults", "_kinds", "_seen", "_tenants", "env", "host", "limits", "resources")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.limits = Limits(body["limits"])
        self.host = Host(body["host"])
        self.resources = {name: Resource(name, each) for name, each in body["resources"].items()}
        self.env: dict[str, str] = body["env"]
        """For every job; a kind's `env` and the job's own come after it."""
        self._bands: dict[str, dict[str, Any]] = body["bands"]
        self._tenants: dict[str, dict[str, int]] = body["tenants"]
        self._kinds: dict[str, dict[str, Any]] = body["kinds"]
        self._defaults: dict[str, Any] = body["kind_defaults"]
        self._seen: dict[tuple[str, str], Kind] = {}

    @classmethod
    def from_text(cls, body_text: str) -> Settings:
        """From the ``body`` column of the config row."""
        import json

        return cls(json.loads(body_text))

    @property
    def tenants(self) -> dict[str, dict[str, int]]:
        """What is written for each tenant: {name: {"max_running"?: n, "max_queued"?: n}}."""
        return self._tenants

    @property
    def kind_names(self) -> list[str]:
        """Every configured kind, sorted; ``default`` is always one."""
        return sorted(self._kinds)

    def kind(self, name: str, band: str | None = None) -> Kind:
        """The values for a job of kind `name` in `band` (None: the band that the kind itself says).

        A kind that is no longer configured has the defaults: its jobs are still in the queue.
        """
        own = self._kinds.get(name, {})
        if band is None:
            band = own.get("band") or self._defaults["band"]
        found = self._seen.get((name, band))
        if found is None:
            layers = (own, self._bands.get(band, {}), self._defaults)
            found = self._seen[name, band] = Kind(name, band, layers)
        return found

    def tenant_max_running(self, tenant: str) -> int:
        """How many jobs of `tenant` may run at once."""
        return self._tenants.get(tenant, {}).get("max_running", self.limits.max_running_per_tenant)

    def tenant_max_queued(self, tenant: str) -> int:
        """How many jobs of `tenant` may wait at once."""
        return self._tenants.get(tenant, {}).get("max_queued", self.limits.max_queued_per_tenant)
