"""What `clawq metrics` tells, series by series: names, labels, units, and where each figure comes from.

No library here: clawq.cli.openmetrics writes it down. Counters come from ``clawq.store.counts``, gauges from
the document of ``clawq status``. Labels that people choose freely are bounded: the names that are configured
and those that count most keep theirs, the others are added up under ``other``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clawq import __version__
from clawq.settings import PRESSURES, Settings
from clawq.store import counts
from clawq.store.counts import Counts

Row = dict[str, Any]

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
MB = 1 << 20
MOST = 50
"""Values that one label may have, besides ``other``."""
OTHER = "other"
FREE = ("kind", "workflow", "tenant", "resource", "reason", "budget")
"""Labels whose values come from people."""


class Series(NamedTuple):
    """``name`` is without ``_total``; ``unit`` is the end of it, or empty."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def shown(self) -> str:
        """The name that a query has."""
        return f"{self.name}_total" if self.type == COUNTER else self.name


class Buckets(NamedTuple):
    """Durations: how many in each bucket of counts.BOUNDS_MS and above, and their sum in seconds."""

    counts: tuple[int, ...]
    sum: float


Value = float | Buckets
Point = tuple[tuple[str, ...], Value]

ALL = (
    Series("clawq_build_info", GAUGE, "The version of clawq that wrote this; always 1.", ("version",)),
    Series("clawq_up", GAUGE, "1 while a supervisor runs and turns."),
    Series("clawq_supervisor_silent_seconds", GAUGE, "Since the supervisor last turned.", (), "seconds"),
    Series("clawq_supervisor_start_time_seconds", GAUGE, "When it started, since the epoch.", (), "seconds"),
    Series("clawq_alerts", GAUGE, "What needs a person now, as clawq status says it.", ("reason",)),
    Series("clawq_observing", GAUGE, "1 while refusals are only recorded (mode observe)."),
    Series("clawq_paused", GAUGE, "Pauses that stand.", ("scope",)),
    Series("clawq_counters_behind", GAUGE, "1 while events are too many to be counted yet."),
    Series("clawq_jobs", GAUGE, "Jobs by state.", ("state",)),
    Series("clawq_queue_limit", GAUGE, "How many jobs may wait in all (limits.max_queued)."),
    Series("clawq_running_limit", GAUGE, "How many jobs may run at once (limits.max_running)."),
    Series("clawq_queued", GAUGE, "Ready jobs that wait for admission.", ("tenant", "band")),
    Series(
        "clawq_oldest_age_seconds",
        GAUGE,
        "For how long the oldest of them has been ready.",
        ("tenant", "band"),
        "seconds",
    ),
    Series("clawq_waiting_on", GAUGE, "Queued jobs by what they wait for now.", ("reason",)),
    Series("clawq_leases", GAUGE, "Attempts under way.", ("kind",)),
    Series("clawq_lease_age_seconds", GAUGE, "Since the oldest of them started.", ("kind",), "seconds"),
    Series("clawq_lease_beat_age_seconds", GAUGE, "The longest since a sign of life.", ("kind",), "seconds"),
    Series("clawq_lease_left_seconds", GAUGE, "The shortest that a lease has left.", ("kind",), "seconds"),
    Series(
        "clawq_quiet_seconds",
        GAUGE,
        "The longest since one wrote output or was seen to compute.",
        ("kind",),
        "seconds",
    ),
    Series("clawq_resource_slots", GAUGE, "Slots of a resource.", ("resource",)),
    Series("clawq_resource_slots_in_use", GAUGE, "Slots that running jobs hold.", ("resource",)),
    Series("clawq_resource_rest_seconds", GAUGE, "What is left of its rest.", ("resource",), "seconds"),
    Series("clawq_resource_uses", COUNTER, "Attempts that held a slot and have ended.", ("resource",)),
    Series("clawq_resource_failures", COUNTER, "Those of them that failed.", ("resource", "class")),
    Series("clawq_resource_busy_seconds", COUNTER, "For how long slots were held.", ("resource",), "seconds"),
    Series("clawq_budget_limit", GAUGE, "What may be spent in a window.", ("budget",)),
    Series("clawq_budget_used", GAUGE, "What the window holds now.", ("budget",)),
    Series(
        "clawq_spent",
        COUNTER,
        "What attempts that have ended took out of a budget, by the kind that their workflow began with.",
        ("workflow", "budget"),
    ),
    Series(
        "clawq_workflows",
        COUNTER,
        "Jobs without a parent that have ended, by their kind.",
        ("workflow", "state"),
    ),
    Series("clawq_accepted", COUNTER, "Jobs taken in, by the state in which they began.", ("kind", "state")),
    Series("clawq_refused", COUNTER, "Jobs refused at enqueue.", ("kind", "reason")),
    Series("clawq_duplicates", COUNTER, "Jobs that were there already, by key or as a twin.", ("kind",)),
    Series("clawq_deferred", COUNTER, "Starts put off, as clawq why counts them.", ("kind", "reason")),
    Series("clawq_started", COUNTER, "Attempts started.", ("kind",)),
    Series("clawq_attempts", COUNTER, "Attempts ended.", ("kind", "outcome")),
    Series("clawq_retries", COUNTER, "Attempts that are followed by another.", ("kind", "class")),
    Series("clawq_retries_after_deadline", COUNTER, "Retries started past their deadline: must stay 0."),
    Series("clawq_ended", COUNTER, "Jobs ended.", ("kind", "state", "reason")),
    Series("clawq_removed", COUNTER, "Jobs ended that never started.", ("kind", "state", "reason")),
    Series("clawq_became_unknown", COUNTER, "Jobs whose outcome nobody could tell.", ("kind", "reason")),
    Series("clawq_wait_seconds", HISTOGRAM, "From queued to running, of each attempt.", ("kind",), "seconds"),
    Series("clawq_run_seconds", HISTOGRAM, "From running to the outcome.", ("kind",), "seconds"),
    Series(
        "clawq_first_output_seconds",
        HISTOGRAM,
        "From queued to the first output, of attempts that wrote any; seen once a second.",
        ("kind",),
        "seconds",
    ),
    Series("clawq_host_processes", GAUGE, "What the process gate compares: processes, or tasks on Linux."),
    Series("clawq_host_processes_limit", GAUGE, "Where that gate closes."),
    Series("clawq_host_memory_available_bytes", GAUGE, "Available memory.", (), "bytes"),
    Series("clawq_host_memory_floor_bytes", GAUGE, "Below this nothing starts.", (), "bytes"),
    Series("clawq_host_memory_pressure", GAUGE, "0 normal, 1 warn, 2 critical."),
    Series("clawq_host_disk_free_bytes", GAUGE, "Free on the disk of the database.", (), "bytes"),
    Series("clawq_host_disk_floor_bytes", GAUGE, "Below this nothing starts.", (), "bytes"),
)

_COUNTERS = {
    "accepted": ("clawq_accepted", True),
    "refused": ("clawq_refused", True),
    "duplicate": ("clawq_duplicates", False),
    "deferred": ("clawq_deferred", True),
    "started": ("clawq_started", False),
    "attempt": ("clawq_attempts", True),
    "retried": ("clawq_retries", True),
    "ended": ("clawq_ended", True),
    "removed": ("clawq_removed", True),
    "unknown": ("clawq_became_unknown", True),
    "workflow": ("clawq_workflows", True),
    "failed": ("clawq_resource_failures", True),
}
"""What is counted -> the series, and whether the word is of its labels."""
_DURATIONS = {
    "waited": "clawq_wait_seconds",
    "worked": "clawq_run_seconds",
    "spoke": "clawq_first_output_seconds",
}


class Samples:
    """Values by series and labels; values for the same labels are added up."""

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """None: not known, so not told."""
        if value is not None:
            of = self._found[name]
            of[labels] = of.get(labels, 0) + value

    def most(self, name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            of = self._found[name]
            of[labels] = max(of.get(labels, value), value)

    def least(self, name: str, value: float | None, *labels: str) -> None:
        self.most(name, None if value is None else -value, *labels)

    def negate(self, name: str) -> None:
        self._found[name] = {labels: -value for labels, value in self._found[name].items()}

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        return self._found[name]


def tell(status: Row, settings: Settings, told: counts.Told) -> Iterator[tuple[Series, list[Point]]]:
    """Every series with its values, those without any too. `status` is the document of ``clawq status``."""
    found = Samples()
    _of_supervisor(found, status, told)
    _of_queue(found, status, settings)
    _of_leases(found, status["running"])
    _of_accounts(found, status)
    _of_host(found, status["host"])
    _of_counts(found, told.counts)
    durations = _of_durations(told.counts)
    known = _names(settings)
    for series in ALL:
        if series.type == HISTOGRAM:
            points = _bounded_buckets(durations[series.name], known["kind"])
        else:
            points = _bounded(series, found.of(series.name), known)
        yield series, sorted(points, key=lambda point: point[0])


def _of_supervisor(found: Samples, status: Row, told: counts.Told) -> None:
    supervisor = status["supervisor"]
    found.add("clawq_build_info", 1, __version__)
    found.add("clawq_up", int(supervisor["running"]))
    found.add("clawq_supervisor_silent_seconds", supervisor["last_tick_age_s"])
    since = supervisor["since"]
    found.add("clawq_supervisor_start_time_seconds", None if since is None else since / 1000)
    found.add("clawq_observing", int(status["observed"]["since"] is not None))
    found.add("clawq_counters_behind", int(told.behind))
    for alert in status["alerts"]:
        found.most("clawq_alerts", 1, alert["reason"])
    for scope in ("all", "tenant", "kind", "resource", "band"):
        found.add("clawq_paused", sum(pause["scope"] == scope for pause in status["pauses"]), scope)


def _of_queue(found: Samples, status: Row, settings: Settings) -> None:
    for state, n in status["counts"].items():
        found.add("clawq_jobs", n, state)
    found.add("clawq_queue_limit", settings.limits.max_queued)
    found.add("clawq_running_limit", settings.limits.max_running)
    for row in status["depth"]:
        found.add("clawq_queued", row["queued"], row["tenant"], row["band"])
        found.most("clawq_oldest_age_seconds", row["oldest_age_s"], row["tenant"], row["band"])
    for row in status["waiting_on"]:
        found.add("clawq_waiting_on", row["jobs"], counts.plain_reason(row["reason"]))


def _of_leases(found: Samples, running: list[Row]) -> None:
    for row in running:
        kind = row["kind"]
        found.add("clawq_leases", 1, kind)
        found.most("clawq_lease_age_seconds", row["age_s"], kind)
        found.most("clawq_lease_beat_age_seconds", row["beat_age_s"], kind)
        found.most("clawq_quiet_seconds", row["quiet_s"], kind)
        found.least("clawq_lease_left_seconds", row["lease_left_s"], kind)
    found.negate("clawq_lease_left_seconds")


def _of_accounts(found: Samples, status: Row) -> None:
    for name, row in status["resources"].items():
        found.add("clawq_resource_slots", row["limit"], name)
        found.add("clawq_resource_slots_in_use", row["in_use"], name)
        found.add("clawq_resource_rest_seconds", row["cooldown_s"] or 0, name)
    for name, row in status["budgets"].items():
        found.add("clawq_budget_limit", row["limit"], name)
        found.add("clawq_budget_used", row["used"], name)


def _of_host(found: Samples, host: Row) -> None:
    tasks = host["tasks"]
    in_use, limit = host["user_procs"], host["max_user_procs"]
    if tasks is not None:
        in_use, limit = tasks.values()
    found.add("clawq_host_processes", in_use)
    found.add("clawq_host_processes_limit", limit)
    for name, key in (
        ("clawq_host_memory_available_bytes", "free_mb"),
        ("clawq_host_memory_floor_bytes", "min_free_mb"),
        ("clawq_host_disk_free_bytes", "free_disk_mb"),
        ("clawq_host_disk_floor_bytes", "min_free_disk_mb"),
    ):
        found.add(name, None if host[key] is None else host[key] * MB)
    if host["pressure"] in PRESSURES:
        found.add("clawq_host_memory_pressure", PRESSURES.index(host["pressure"]))


def _of_counts(found: Samples, counted: Counts) -> None:
    found.add("clawq_retries_after_deadline", 0)
    for key, (n, total) in counted.items():
        if key.what == "late":
            found.add("clawq_retries_after_deadline", n)
        elif key.what == "used":
            found.add("clawq_resource_uses", n, key.kind)
            found.add("clawq_resource_busy_seconds", total / 1000, key.kind)
        elif key.what == "spent":
            found.add("clawq_spent", total, key.kind, key.word)
        elif key.what in ("ended", "removed"):
            found.add(_COUNTERS[key.what][0], n, key.kind, *counts.state_and_reason(key.word))
        elif key.what in _COUNTERS:
            name, with_word = _COUNTERS[key.what]
            found.add(name, n, key.kind, *((key.word,) if with_word else ()))


def _of_durations(counted: Counts) -> dict[str, dict[str, Buckets]]:
    """{series: {kind: buckets}}."""
    bounds = [str(most) for most in counts.BOUNDS_MS] + ["0"]
    found: dict[str, dict[str, Buckets]] = {name: {} for name in _DURATIONS.values()}
    for key, (n, total) in counted.items():
        if key.what in _DURATIONS:
            of = found[_DURATIONS[key.what]]
            had = of.get(key.kind, Buckets((0,) * len(bounds), 0))
            at = bounds.index(key.word)
            of[key.kind] = Buckets(
                (*had.counts[:at], had.counts[at] + n, *had.counts[at + 1 :]), had.sum + total / 1000
            )
    return found


# ------------------------------------------------------------------ labels that people choose


def _names(settings: Settings) -> dict[str, list[str]]:
    """Those that are configured."""
    kinds = settings.kind_names
    return {
        "kind": kinds,
        "workflow": kinds,
        "tenant": sorted(settings.tenants),
        "resource": sorted(settings.resources),
        "budget": sorted(settings.budgets),
    }


def _bounded(
    series: Series, found: dict[tuple[str, ...], float], known: dict[str, list[str]]
) -> Iterable[Point]:
    for place, label in enumerate(series.labels):
        if label in FREE:
            weights: dict[str, float] = defaultdict(float)
            for values, value in found.items():
                weights[values[place]] += value
            keep = _keep(weights, known.get(label, []))
            together: dict[tuple[str, ...], float] = {}
            for values, value in found.items():
                name = values[place] if values[place] in keep else OTHER
                labels = (*values[:place], name, *values[place + 1 :])
                together[labels] = _joined(series, together.get(labels), value)
            found = together
    return found.items()


def _joined(series: Series, had: float | None, value: float) -> float:
    """Ages do not add up, amounts do."""
    if had is None:
        return value
    if series.name == "clawq_lease_left_seconds":
        return min(had, value)
    return max(had, value) if series.unit == "seconds" and series.type == GAUGE else had + value


def _bounded_buckets(found: dict[str, Buckets], known: list[str]) -> Iterable[Point]:
    keep = _keep({kind: sum(buckets.counts) for kind, buckets in found.items()}, known)
    together: dict[str, Buckets] = {}
    for kind, buckets in found.items():
        name = kind if kind in keep else OTHER
        had = together.get(name, Buckets((0,) * len(buckets.counts), 0))
        summed = tuple(a + b for a, b in zip(had.counts, buckets.counts, strict=True))
        together[name] = Buckets(summed, had.sum + buckets.sum)
    return [((kind,), buckets) for kind, buckets in together.items()]


def _keep(weights: Mapping[str, float], known: list[str]) -> set[str]:
    """The configured names that occur, then those that weigh most; the same ones as long as that is so."""
    order = sorted(weights, key=lambda name: (name not in known, -weights[name], name))
    return set(order[:MOST])
