"""How a job gets in: the dedupe key, the caps and the row, inside one transaction that the caller holds.

The caller (clawq.client) reads the configuration with ``stamp`` and ``frame``, begins, asks whether
the stamp still holds, takes one ``Draft`` or a thousand, and commits. Nothing here looks at a file,
a process or the clock.
"""

from clawq import job, when
from clawq.errors import Refused
from clawq.options import json_array, json_object
from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

_SQL = sqlfile.load("intake")

NAG_AFTER_MS = 600_000


class Frame:
    """What is configured for one kind in one band, for one tenant. ``known`` is false for no such kind."""

    __slots__ = (
        "band",
        "deadline",
        "env_path",
        "kind_max_running",
        "kind_path",
        "known",
        "max_held",
        "max_queued",
        "max_running",
        "needs",
        "priority",
        "program",
        "queue_cap",
        "retry_after_ms",
        "stale_after",
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
            self.kind_path,
            self.env_path,
            self.tenant_max_queued,
            self.tenant_max_running,
            self.max_running,
            self.max_queued,
            self.max_held,
            self.retry_after_ms,
        ) = row


class Draft:
    """A job as it would be written, apart from what only the transaction knows."""

    __slots__ = (
        "band",
        "deadline_at",
        "exclusive",
        "frame",
        "hold",
        "key",
        "kind",
        "needs",
        "priority",
        "row",
        "run_after",
        "stale_at",
        "tenant",
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
    ) -> None:
        """From ``options.read``; ``path`` is the caller's PATH, times are ms since the epoch."""
        self.kind = kind
        self.tenant = tenant
        self.frame = frame
        self.band = job.BANDS.index(frame.band)
        needs = asked.get("needs")
        self.needs: str = (frame.needs or "") if needs is None else ",".join(needs)
        self.priority: int = asked.get("priority", frame.priority)
        self.key: str | None = asked.get("dedupe_key")
        self.exclusive: str | None = asked.get("exclusive")
        self.hold: bool = asked.get("hold", False)
        self.run_after: int = max(now, asked.get("delay", now), asked.get("at", now))
        self.stale_at: int | None = asked.get("stale_after")
        if self.stale_at is None and frame.stale_after is not None:
            self.stale_at = when.moment_or_duration(frame.stale_after, now)
        self.deadline_at: int | None = asked.get("deadline")
        if self.deadline_at is None and frame.deadline is not None:
            self.deadline_at = when.moment_or_duration(frame.deadline, now)
        command = asked.get("command")
        env = asked.get("env")
        self.row = (
            kind,
            tenant,
            self.band,
            self.priority,
            self.needs,
            None if command is None else json_array(command),
            asked.get("payload"),
            cwd,
            path,
            json_object(env) if env else None,
            self.key,
            None if self.key is None else asked.get("dedupe_scope", "ever"),
            self.exclusive,
            self.stale_at,
            self.deadline_at,
            asked.get("timeout"),
            asked.get("max_attempts"),
            asked.get("on_lost"),
        )


class Taken:
    """What became of a draft: ``outcome`` as in a receipt. ``state`` is None for a duplicate since pruned."""

    __slots__ = ("deadline_at", "job_id", "outcome", "state")

    def __init__(self, outcome: str, job_id: int, state: str | None, deadline_at: int | None) -> None:
        self.outcome = outcome
        self.job_id = job_id
        self.state = state
        self.deadline_at = deadline_at


class Intake:
    """Takes jobs on one connection. Remembers the configuration until ``stamp`` is asked again, and its
    own counts until ``begin``."""

    __slots__ = ("_frames", "_full", "_held", "_kinds", "_resources", "_stamp", "_tenants", "_total", "db")

    def __init__(self, db: "apsw.Connection") -> None:
        self.db = db
        self._frames: dict[tuple[str, str | None, str], Frame] = {}
        self._resources: dict[str, int] | None = None
        self._stamp: Any = None

    # ------------------------------------------------------------------ before the transaction

    def stamp(self) -> "tuple[str, str | None, str | None]":
        """(identity, broken_identity, error) of the configuration in force, read anew."""
        self._stamp = self._rows("stamp")[0]
        self._frames = {}
        self._resources = None
        identity, broken, error, _changed_at = self._stamp
        return identity, broken, error

    def frame(self, kind: str, band: str | None, tenant: str) -> Frame:
        """What is configured for such a job; ``band`` None is the kind's own."""
        found = self._frames.get((kind, band, tenant))
        if found is None:
            row = self._rows("frame", {"kind": kind, "band": band, "tenant": tenant})[0]
            if len(self._frames) > 1_000:  # tenants are free text
                self._frames.clear()
            found = self._frames[kind, band, tenant] = Frame(row)
        return found

    def resources(self) -> "dict[str, int]":
        """{name: limit} of every configured resource."""
        if self._resources is None:
            self._resources = dict(self._rows("resources"))
        return self._resources

    def kinds(self) -> "list[str]":
        """The names of every configured kind."""
        return [name for (name,) in self._rows("kinds")]

    def supervisor_path(self) -> str | None:
        """The PATH of the supervisor that last ran here."""
        rows = self._rows("supervisor_path")
        return rows[0][0] if rows else None

    def is_json(self, text: str) -> bool:
        """Whether SQLite takes it for JSON (RFC 8259)."""
        return bool(self._rows("json_valid", (text,))[0][0])

    # ------------------------------------------------------------------ inside it

    def begin(self) -> bool:
        """To be called once in each transaction; false when the configuration is no longer ``stamp``'s."""
        self._total = self._held = -1
        self._tenants: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._full: set[object] = set()
        return bool(self._rows("stamp")[0] == self._stamp)

    def take(self, draft: Draft, now: int, ticking: bool) -> Taken:
        """Write the job, or find the one that has its dedupe key.

        ``ticking`` says that a supervisor is alive. Raises Refused; the transaction stays usable.
        """
        if draft.key is not None:
            for job_id, state, deadline_at in self._rows("key_holder", (draft.tenant, draft.kind, draft.key)):
                return Taken("duplicate", job_id, state, deadline_at)
        self._refuse_hopeless(draft, now)
        self._refuse_full(draft, now)
        state = job.HELD if draft.hold else job.SCHEDULED if draft.run_after > now else job.QUEUED
        parked = None
        if (
            draft.exclusive is not None
            and state == job.QUEUED
            and self._rows("exclusive_active", (draft.exclusive,))[0][0]
        ):
            parked = f"exclusive:{draft.exclusive}"
        outcome = state
        if state == job.QUEUED and ticking and parked is None and self._has_room(draft):
            outcome = "admitted"
        rank = draft.run_after - draft.priority * job.PRIORITY_POINT_MS
        ready_at = now if state == job.QUEUED else None
        self.db.execute(
            _SQL["insert_job"],
            (*draft.row, state, now, parked, rank, now, now, draft.run_after, ready_at),
        )
        job_id = self.db.last_insert_rowid()
        if draft.key is not None:
            self.db.execute(_SQL["take_key"], (draft.tenant, draft.kind, draft.key, job_id))
        self._total += 1
        self._held += draft.hold
        self._tenants[draft.tenant] += 1
        self._kinds[draft.kind] += 1
        return Taken(outcome, job_id, state, draft.deadline_at)

    def _refuse_hopeless(self, draft: Draft, now: int) -> None:
        first = draft.run_after
        if draft.stale_at is not None and draft.stale_at <= first:
            late = "has passed" if draft.stale_at <= now else f"is before it is due, {when.iso(first)}"
            raise Refused(
                "expired", f"stale-after {when.iso(draft.stale_at)} {late}", "enqueue it with a later one"
            )
        if draft.deadline_at is not None and draft.deadline_at <= first:
            late = "has passed" if draft.deadline_at <= now else f"is before it is due, {when.iso(first)}"
            raise Refused(
                "deadline_passed",
                f"deadline {when.iso(draft.deadline_at)} {late}",
                "enqueue it with a later one",
            )
        if draft.needs:
            limits = self.resources()
            for name in draft.needs.split(","):
                if limits.get(name) == 0:
                    raise Refused(
                        "never_fits",
                        f"resource {name!r} has limit 0, so this job could never start",
                        f"raise resources.{name}.limit in clawq.toml",
                    )

    def _refuse_full(self, draft: Draft, now: int) -> None:
        frame = draft.frame
        if self._total < 0 or draft.tenant not in self._tenants or draft.kind not in self._kinds:
            total, tenant, kind, held = self._rows("waiting", (draft.tenant, draft.kind))[0]
            self._total, self._held = total, held
            self._tenants[draft.tenant] = tenant
            self._kinds[draft.kind] = kind
        tenant, kind = self._tenants[draft.tenant], self._kinds[draft.kind]
        most = frame.max_queued
        if draft.band != 0:
            most -= most // 10  # the last tenth is for critical work
        cap = frame.queue_cap
        if (
            self._total >= most
            or tenant >= frame.tenant_max_queued
            or (cap is not None and kind >= cap)
            or (draft.hold and self._held >= frame.max_held)
        ):
            from clawq.store.refusals import no_place

            raise no_place(self.db, draft, now, most, self._total, tenant, kind, self._held)

    def _has_room(self, draft: Draft) -> bool:
        """Whether every slot that it needs is free, after the ready jobs that go before it."""
        lane = (draft.band, draft.tenant, draft.kind, draft.needs)
        if lane in self._full:
            return False  # in one transaction the queue only grows
        room = not self._is_paused(draft) and self._slots_exceed_ready(draft)
        if not room:
            self._full.add(lane)
        return room

    def _is_paused(self, draft: Draft) -> bool:
        mine = {
            ("all", ""),
            ("tenant", draft.tenant),
            ("kind", draft.kind),
            ("band", str(draft.band)),
            *(("resource", name) for name in draft.needs.split(",")),
        }
        return any(pause in mine for pause in self._rows("pauses"))

    def _slots_exceed_ready(self, draft: Draft) -> bool:
        frame = draft.frame
        enough = frame.max_running + 1
        running = self._rows("in_use")
        ready = self._rows("ready", {"band": draft.band, "enough": enough})
        if sum(row[3] for row in running) + sum(row[3] for row in ready) >= frame.max_running:
            return False
        taken = [*running, *ready]
        if sum(n for tenant, _, _, n in taken if tenant == draft.tenant) >= frame.tenant_max_running:
            return False
        cap = frame.kind_max_running
        if cap is not None and sum(n for _, kind, _, n in taken if kind == draft.kind) >= cap:
            return False
        limits = self.resources()
        for name in draft.needs.split(",") if draft.needs else ():
            if sum(n for _, _, needs, n in taken if name in needs.split(",")) >= limits[name]:
                return False
        return True

    # ------------------------------------------------------------------ after it

    def nag(self, today: str, now: int) -> int | None:
        """ms that work has waited for a supervisor, the first time this is asked on the day `today` and it
        is over ten minutes; else None. Never an error."""
        if self._rows("nagged") == [(today,)]:
            return None
        since = self._rows("waiting_since")[0][0]
        if since is None or now - since < NAG_AFTER_MS:
            return None
        from clawq.store.refusals import first_to_nag

        return now - since if first_to_nag(self.db, today) else None

    def outcome(self, job_id: int) -> "tuple[str, int | None, str | None] | None":
        """(state, exit_code, last_error), or None once it is pruned."""
        rows = self._rows("outcome", (job_id,))
        return rows[0] if rows else None

    def _rows(self, name: str, bindings: "Any" = None) -> "Any":
        return self.db.execute(_SQL[name], bindings).fetchall()
