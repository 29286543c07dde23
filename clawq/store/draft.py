"""A job on its way in: what is configured for it, and the row that it would be."""

from clawq import states as job
from clawq import when
from clawq.values import PRIORITY_MAX, json_array, json_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clawq.store.family import Parent


class Frame:
    """What is configured for one kind in one band, for one tenant. ``known`` is false for no such kind.

    ``shares`` are those of critical and interactive, in percent of ``max_running`` or None. ``template`` is
    its command as JSON where that needs something of the payload, else None.
    """

    __slots__ = (
        "band",
        "deadline",
        "degrade_to",
        "env_path",
        "kind_max_running",
        "kind_path",
        "known",
        "max_held",
        "max_queued",
        "max_running",
        "needs",
        "on_busy",
        "on_full",
        "priority",
        "program",
        "queue_cap",
        "refuse_hopeless",
        "retry_after_ms",
        "shares",
        "spends",
        "stale_after",
        "template",
        "tenant_max_queued",
        "tenant_max_running",
    )

    def __init__(self, row: "Any") -> None:
        (
            self.known,
            self.band,
            self.program,
            self.needs,
            self.priority,
            self.stale_after,
            self.deadline,
            self.queue_cap,
            self.kind_max_running,
            spends,
            self.on_full,
            self.on_busy,
            self.degrade_to,
            self.refuse_hopeless,
            self.kind_path,
            self.env_path,
            self.tenant_max_queued,
            self.tenant_max_running,
            self.max_running,
            self.max_queued,
            self.max_held,
            self.retry_after_ms,
            self.template,
            *self.shares,
        ) = row
        self.spends: dict[str, int] = {}
        if spends is not None:
            for each in spends.split(","):
                name, _, amount = each.partition(" ")
                self.spends[name] = int(amount)


class Draft:
    """A job as it would be written, apart from what only the transaction knows.

    ``lighter`` is what it becomes with ``on_busy = "degrade"``. The lighter one's ``asked_kind`` is still
    this one's: the dedupe key is looked up and kept under that. ``plain`` is for clawq.store.bulk.
    """

    __slots__ = (
        "asked_kind",
        "band",
        "command",
        "cwd",
        "deadline_at",
        "env",
        "exclusive",
        "frame",
        "hold",
        "key",
        "kind",
        "lighter",
        "needs",
        "parent",
        "payload",
        "plain",
        "priority",
        "row",
        "run_after",
        "same",
        "scope",
        "stale_at",
        "tenant",
        "twin",
    )

    def __init__(
        self,
        asked: "dict[str, Any]",
        kind: str,
        tenant: str,
        frame: Frame,
        cwd: str,
        path: str | None,
        now: int,
        asked_kind: str | None = None,
        parent: "Parent | None" = None,
    ) -> None:
        """From ``options.read``; ``path`` is the caller's PATH, times are ms since the epoch.

        A child is served no later than its parent, has a point of priority more and ends no later.
        """
        self.kind = kind
        self.asked_kind = asked_kind or kind
        self.lighter: Draft | None = None
        self.plain: Any = None
        self.tenant = tenant
        self.frame = frame
        self.band = job.BANDS.index(frame.band)
        needs = asked.get("needs")
        self.needs: str = (frame.needs or "") if needs is None else ",".join(needs)
        self.parent = parent
        usual = frame.priority if parent is None else min(parent.priority + 1, PRIORITY_MAX)
        self.priority: int = asked.get("priority", usual)
        self.key: str | None = asked.get("dedupe_key")
        self.scope: str | None = None if self.key is None else asked.get("dedupe_scope", "ever")
        self.exclusive: str | None = asked.get("exclusive")
        self.hold: bool = asked.get("hold", False)
        self.run_after: int = max(now, asked.get("delay", now), asked.get("at", now))
        self.stale_at: int | None = asked.get("stale_after")
        if self.stale_at is None and frame.stale_after is not None:
            self.stale_at = when.moment_or_duration(frame.stale_after, now)
        self.deadline_at: int | None = asked.get("deadline")
        if self.deadline_at is None and frame.deadline is not None:
            self.deadline_at = when.moment_or_duration(frame.deadline, now)
        if parent is not None and parent.deadline_at is not None:
            self.deadline_at = min(self.deadline_at or parent.deadline_at, parent.deadline_at)
        command = asked.get("command")
        env = asked.get("env")
        self.command = None if command is None else json_array(command)
        self.payload: str | None = asked.get("payload")
        self.cwd = cwd
        self.env = json_object(env) if env else None
        self.same: int | None = None
        if frame.on_full == "coalesce":
            self.same = _hash(f"{self.command}\0{self.payload}\0{cwd}\0{self.env}\0{self.needs}")
        self.twin: int | None = None
        family: tuple[Any, ...] = (None, None, 0, None, None, None)
        if parent is not None:
            self.twin = _hash(f"{self.asked_kind}\0{self.command}\0{self.payload}")
            ends = asked.get("on_parent_end", "keep")
            family = (parent.id, parent.root_id, parent.depth + 1, ends, self.twin, parent.asked_by)
        self.row = (
            kind,
            tenant,
            self.band,
            self.priority,
            self.needs,
            self.command,
            self.payload,
            cwd,
            path,
            self.env,
            self.same,
            asked_kind,
            self.key,
            self.scope,
            self.exclusive,
            self.stale_at,
            self.deadline_at,
            asked.get("timeout"),
            asked.get("max_attempts"),
            asked.get("on_lost"),
            *family,
            "enqueued" if asked_kind is None else f"degraded from {asked_kind}",
        )

    def placed(self, state: str, now: int, parked: str | None = None, start_by: int | None = None) -> "Any":
        """The bindings of ``insert_job``."""
        rank = self.run_after - self.priority * job.PRIORITY_POINT_MS
        if self.parent is not None and self.parent.token is not None:
            rank -= job.FIRST_MS
        ready_at = now if state == job.QUEUED else None
        return (*self.row, state, now, parked, rank, now, now, self.run_after, ready_at, start_by)

    def first_state(self, now: int) -> str:
        """Where it would begin."""
        return job.HELD if self.hold else job.SCHEDULED if self.run_after > now else job.QUEUED

    def most_queued(self) -> int:
        """How many may wait in all for this one still to be taken."""
        most: int = self.frame.max_queued
        if self.band != 0 and self.parent is None:
            # The last tenth is for critical jobs, and for children, whose parents wait for them.
            most -= most // 10
        return most

    def room(self, most: int, total: int, tenant: int, kind: int, held: int) -> int:
        """How many like it the caps still leave a place when so many wait; `most` may wait in all."""
        frame = self.frame
        room: int = min(most - total, frame.tenant_max_queued - tenant)
        if frame.queue_cap is not None:
            room = min(room, frame.queue_cap - kind)
        return min(room, frame.max_held - held) if self.hold else room

    def like(self, own: "Mapping[str, str]") -> "Draft":
        """The same with another payload, dedupe key and JSON command, where `own` has them by their columns'
        names; not with ``lighter``, ``same`` or ``parent``."""
        other = Draft.__new__(Draft)
        for name in Draft.__slots__:
            setattr(other, name, getattr(self, name))
        other.command = own.get("command", self.command)
        other.payload = own.get("payload", self.payload)
        other.key = own.get("dedupe_key", self.key)
        row = list(self.row)
        row[_COMMAND], row[_PAYLOAD], row[_KEY] = other.command, other.payload, other.key
        other.row = tuple(row)
        return other


_COMMAND, _PAYLOAD, _KEY = 5, 6, 12
"""Their places in a draft's ``row``."""


class Taken:
    """What became of a draft: ``outcome`` as in a receipt. ``state`` is None for a duplicate since pruned."""

    __slots__ = ("deadline_at", "degraded", "job_id", "outcome", "state")

    def __init__(self, outcome: str, job_id: int, state: str | None, deadline_at: int | None) -> None:
        self.outcome = outcome
        self.job_id = job_id
        self.state = state
        self.deadline_at = deadline_at
        self.degraded = False


def _hash(text: str) -> int:
    """The same in every process, without a module: the text as a number, modulo a prime of 61 bits."""
    return int.from_bytes(text.encode(), "little") % 2_305_843_009_213_693_951
