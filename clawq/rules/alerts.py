"""Does anything need a person? Facts that only together say that something is wrong, each with what to do.

A queue that is long, a job that waits or a slot that is free is nothing by itself: what waits for a slot that
others hold is the queue at work. What no rule of admission explains is an alert, and what waits for a person.
"""

from __future__ import annotations

from clawq.named import NamedTuple
from clawq.rules import trends
from clawq.rules.reasons import HOST_REASONS
from clawq.rules.spans import jobs, short
from clawq.rules.trends import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GATE_CLOSED_MS = 1_800_000
"""A gate that is closed for this long does not open by itself."""
RAMPED_MS = 300_000
"""A ramp is over in two minutes: what still waits for it waits for nothing."""
FULL_FOR_MS = 60_000
"""A burst fills the queue for a moment: what waits has to have waited for this long."""
KEY_ANSWERED_WITHIN_MS = 2 * 86_400_000
"""A key that has been answered since then still is: the producer has not been mended."""

PERSONS = frozenset({"paused", "held"})
"""A person's own doing: shown, and nobody has to be called."""


class Alert(NamedTuple):
    """``reason`` is a fixed word; ``text`` says what is wrong, ``fix`` what to do about it.

    ``about`` tells two of the same reason apart, and stays the same while the alert lasts.
    """

    reason: str
    text: str
    fix: str
    about: str = ""

    @property
    def needs_person(self) -> bool:
        return self.reason not in PERSONS

    @property
    def line(self) -> str:
        return f"{self.text}: {self.fix}"


class Waiting(NamedTuple):
    """The oldest unexpired job of a tenant, band and kind, and what its lane answers with."""

    job_id: int
    kind: str
    tenant: str
    age_ms: int
    reason: str | None


class Active(NamedTuple):
    """A job under way. ``quiet_ms``: neither output nor CPU time since; None where nobody can tell."""

    job_id: int
    kind: str
    tenant: str
    state: str
    quiet_ms: int | None = None


class Gate(NamedTuple):
    """Lanes that are refused for this reason, the first of them for so long."""

    reason: str
    closed_ms: int
    jobs: int


class Repeat(NamedTuple):
    """A key that answered `duplicate` though its job had ended long before."""

    kind: str
    tenant: str
    key: str
    job_id: int
    ended_ms: int | None
    """Before the answer; None when the job is pruned."""
    answered_ms: int
    """Ago."""


class Pause(NamedTuple):
    """``lift`` is what to type against it."""

    what: str
    since_ms: int
    lift: str


class Facts(NamedTuple):
    """What is known. Ages are milliseconds; ``now`` has been taken off already."""

    oldest_age_ms: int = 600_000
    quiet_ms: int = 900_000
    max_running: int = 8
    most_waiting: int = 900
    """How many may wait before an ordinary job is refused."""
    broken: str | None = None
    """What is wrong with clawq.toml."""
    pid: int | None = None
    ticking: bool = False
    ending: bool = False
    """The supervisor has been asked to end, and starts nothing."""
    silent_ms: int = 0
    waiting: int = 0
    """Accepted and not started, held ones apart."""
    held: int = 0
    unknown: int = 0
    active: Sequence[Active] = ()
    oldest: Sequence[Waiting] = ()
    gates: Sequence[Gate] = ()
    pauses: Sequence[Pause] = ()
    misfits: tuple[int, int] = (0, 0)
    """Jobs that can never start, and one of them."""
    late: Sequence[int] = ()
    """Jobs of which a retry started after their deadline."""
    repeats: Sequence[Repeat] = ()
    full_resources: frozenset[str] = frozenset()
    tenant_limits: Mapping[str, int] = {}
    kind_limits: Mapping[str, int] = {}
    """Those that there are."""
    samples: Sequence[Sample] = ()
    """The latest last."""

    @property
    def admitting(self) -> bool:
        return self.ticking and not self.ending and not self.paused

    @property
    def busy(self) -> int:
        """Slots that are held: one that is blocked in `clawq wait` holds none."""
        return sum(each.state != "waiting" for each in self.active)

    @property
    def paused(self) -> bool:
        return any(pause.what == "everything" for pause in self.pauses)


def alerts(facts: Facts) -> list[Alert]:
    """All that is wrong, the worst first; last what a person has brought about."""
    return [
        *_config(facts),
        *_supervisor(facts),
        *_unknown(facts),
        *_misfits(facts),
        *_late(facts),
        *_stuck(facts),
        *_full_and_idle(facts),
        *_gates(facts),
        *_quiet(facts),
        *_growing(facts),
        *_slowing(facts),
        *_repeats(facts),
        *_pauses(facts),
        *_held(facts),
    ]


def _config(facts: Facts) -> Iterator[Alert]:
    if facts.broken:
        yield Alert("config", facts.broken, "`clawq config check` shows all of it")


def _supervisor(facts: Facts) -> Iterator[Alert]:
    if facts.pid is not None and not facts.ticking:
        yield Alert(
            "supervisor_silent",
            f"the supervisor has been silent for {_span(facts.silent_ms)}",
            f"end it with `kill -9 {facts.pid}` and start another, its agents live on",
        )
    elif facts.pid is None and (facts.waiting or facts.active):
        what = f"{jobs(facts.waiting)} waiting" if facts.waiting else "agents running"
        yield Alert("no_supervisor", f"{what}, and no supervisor", "start one with `clawq run`")


def _unknown(facts: Facts) -> Iterator[Alert]:
    if facts.unknown:
        yield Alert(
            "unknown",
            f"{jobs(facts.unknown)} with an outcome nobody knows",
            "see `clawq unknown`, settle with `clawq reconcile`",
        )


def _misfits(facts: Facts) -> Iterator[Alert]:
    misfits, job_id = facts.misfits
    if misfits:
        yield Alert(
            "never_fits",
            f"{jobs(misfits)} can never start with this clawq.toml",
            f"`clawq why {job_id}` says what is missing",
        )


def _late(facts: Facts) -> Iterator[Alert]:
    if facts.late:
        yield Alert(
            "late_retry",
            f"{jobs(len(facts.late))} tried again after the deadline: {_ids(facts.late)}",
            "look whether the clock was set: `clawq doctor`",
        )


def _stuck(facts: Facts) -> Iterator[Alert]:
    if not facts.admitting or facts.busy >= facts.max_running:
        return  # what is behind these has an alert of its own, or is the queue at work
    old = [
        each for each in facts.oldest if each.age_ms >= facts.oldest_age_ms and not _explained(each, facts)
    ]
    if old:
        first = max(old, key=lambda each: each.age_ms)
        free = facts.max_running - facts.busy
        why = f" ({first.reason})" if first.reason else ""
        slots = f"{free} of {facts.max_running} slots are free"
        yield Alert(
            "stuck",
            f"job {first.job_id} has waited {_span(first.age_ms)}{why} while {slots}",
            f"`clawq why {first.job_id}`, then start the supervisor again: `clawq stop`, `clawq run`",
        )


def _explained(waiting: Waiting, facts: Facts) -> bool:
    """Does what the job waits for still hold? Reasons that cannot be told from here are believed."""
    word, _, name = (waiting.reason or "").partition(":")
    if word in ("", "max_running"):
        return False
    if word == "ramp_up":
        return not any(gate.reason == word and gate.closed_ms >= RAMPED_MS for gate in facts.gates)
    if word == "resource":
        return name in facts.full_resources
    if word == "tenant_limit":
        most = facts.tenant_limits.get(waiting.tenant)
        return most is None or _running(facts, "tenant", waiting.tenant) >= most
    if word == "kind_limit":
        most = facts.kind_limits.get(waiting.kind)
        return most is None or _running(facts, "kind", waiting.kind) >= most
    return True


def _running(facts: Facts, what: str, name: str) -> int:
    return sum(getattr(each, what) == name and each.state != "waiting" for each in facts.active)


def _full_and_idle(facts: Facts) -> Iterator[Alert]:
    oldest = max((each.age_ms for each in facts.oldest), default=FULL_FOR_MS)
    idle = 2 * facts.busy < facts.max_running
    if facts.admitting and idle and oldest >= FULL_FOR_MS:
        filled = facts.waiting + facts.held
        if filled >= facts.most_waiting:
            free = facts.max_running - facts.busy
            yield Alert(
                "full_and_idle",
                f"the queue is full ({filled} of {facts.most_waiting}) while {free} of "
                f"{facts.max_running} slots are free",
                "`clawq status` says what the jobs wait for, `clawq list --state scheduled` what is not due",
            )


_OPENS = {
    "uid_procs": "end what else this account runs, or raise host.max_user_procs",
    "low_memory": "free memory, or lower host.min_free_mb",
    "memory_pressure": "free memory, or change host.max_pressure",
    "low_disk": "free disk space: `clawq prune` removes ended jobs with their logs",
    "spawn_failed": "the machine starts no processes: end some, then look at `ulimit -u`",
}


def _gates(facts: Facts) -> Iterator[Alert]:
    for gate in facts.gates:
        if facts.admitting and gate.reason in HOST_REASONS and gate.closed_ms >= GATE_CLOSED_MS:
            yield Alert(
                "gate_closed",
                f"nothing starts for {_span(gate.closed_ms)}: {gate.reason}, {jobs(gate.jobs)} waiting",
                _OPENS.get(gate.reason, "`clawq status` shows the host"),
                gate.reason,
            )


def _quiet(facts: Facts) -> Iterator[Alert]:
    for each in facts.active:
        if each.state == "running" and each.quiet_ms is not None and each.quiet_ms >= facts.quiet_ms:
            who = f"job {each.job_id} ({each.kind})"
            yield Alert(
                "quiet",
                f"{who} has neither written nor computed for {_span(each.quiet_ms)}",
                f"`clawq logs {each.job_id}`; if it hangs, `clawq cancel {each.job_id}`",
                str(each.job_id),
            )


def _growing(facts: Facts) -> Iterator[Alert]:
    found = trends.growth(facts.samples)
    if found is not None:
        depth, age = found
        yield Alert(
            "growing",
            f"more comes than is done: {depth[0]:.0f} to {depth[2]:.0f} jobs waiting, the oldest "
            f"{_span(age[0])} to {_span(age[2])}, in {_span(trends.length(facts.samples))}",
            "send less, or give it more: `clawq status` says what they wait for",
        )


def _slowing(facts: Facts) -> Iterator[Alert]:
    took = trends.slowdown(facts.samples)
    if took is not None:
        yield Alert(
            "slowing",
            f"jobs take {_span(took[2])} that took {_span(took[0])} {_span(trends.length(facts.samples))} "
            "ago, and as many wait",
            "what they call has become slow: `clawq throttle` it, or lower its limit",
        )


def _repeats(facts: Facts) -> Iterator[Alert]:
    for each in facts.repeats:
        if each.answered_ms <= KEY_ANSWERED_WITHIN_MS:
            ended = "was pruned" if each.ended_ms is None else f"ended {_span(each.ended_ms)} before"
            yield Alert(
                "old_key",
                f"key {each.key!r:.60} of {each.kind} answered duplicate {_span(each.answered_ms)} ago, and "
                f"its job {each.job_id} {ended}",
                "if it is to run again, put {date} or {hour} into the key",
                f"{each.tenant}/{each.kind}",
            )


def _pauses(facts: Facts) -> Iterator[Alert]:
    for pause in facts.pauses:
        text = f"{pause.what} is paused, for {_span(pause.since_ms)}"
        yield Alert("paused", text, f"`{pause.lift}`", pause.what)


def _held(facts: Facts) -> Iterator[Alert]:
    if facts.held:
        yield Alert("held", f"{jobs(facts.held)} held for a person", "see `clawq list --state held`")


def _span(ms: float) -> str:
    return short(max(0.0, ms) / 1000)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:5])) + (" ..." if len(ids) > 5 else "")
