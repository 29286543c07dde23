"""How a job gets in: the dedupe key, the caps and the row, inside one transaction that the caller holds.

The caller (clawq.client) reads the configuration with ``stamp`` and ``frame``, begins, asks whether
the stamp still holds, takes one ``Draft`` or a thousand, and commits. Nothing here looks at a file,
a process or the clock. What is only asked when something is full or busy is in modules that are loaded then.
"""

from clawq import states as job
from clawq import when
from clawq.errors import Refused
from clawq.store import sqlfile
from clawq.store.draft import Frame, Taken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.store.bulk import Bulk, Run
    from clawq.store.draft import Draft
    from clawq.store.family import Parent

_SQL = sqlfile.load("intake")

NAG_AFTER_MS = 600_000
OLD_KEY_MS = 90_000_000
"""A key that is asked for so long after its job ended (25 h) is no longer that of a day's slot."""
START_WITHIN_MS = 5_000
"""Work that may not wait (``on_busy = "reject"``) and has not started after this long is expired."""


class Intake:
    """Takes jobs on one connection. Remembers the configuration until ``stamp`` finds another, and its own
    counts until ``begin``."""

    __slots__ = (
        "_budgets",
        "_busy_lanes",
        "_descendants",
        "_frames",
        "_held",
        "_kinds",
        "_observing",
        "_queue",
        "_resources",
        "_stamp",
        "_tenants",
        "_total",
        "db",
        "parents",
    )

    def __init__(self, db: "apsw.Connection") -> None:
        self.db = db
        self._frames: dict[tuple[str, str | None, str], Frame] = {}
        self._resources: dict[str, int] | None = None
        self._budgets: dict[str, tuple[int, int, int | None]] | None = None
        self._stamp: Any = None
        self.parents: dict[int, Parent] = {}
        self._queue: Bulk | None = None

    # ------------------------------------------------------------------ before the transaction

    def stamp(self) -> "tuple[str, str | None, str | None]":
        """(identity, broken_identity, error) of the configuration in force, read anew."""
        stamp = self._rows("stamp")[0]
        if stamp != self._stamp:
            self._stamp = stamp
            self._frames = {}
            self._resources = self._budgets = None
        self.parents.clear()
        identity, broken, error, _changed_at = self._stamp
        return identity, broken, error

    def is_broken(self) -> bool:
        """Whether clawq.toml does not compile, and an earlier form of it is in force."""
        return bool(self._rows("stamp")[0][1])

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

    def budgets(self) -> "dict[str, tuple[int, int, int | None]]":
        """{name: (amount in any window, the window in ms, one tenant's part of it or None)}."""
        if self._budgets is None:
            self._budgets = {name: (limit, per, own) for name, limit, per, own in self._rows("budgets")}
        return self._budgets

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

    def begin(self, many: bool = False) -> bool:
        """To be called once in each transaction; false when the configuration is no longer ``stamp``'s, or a
        parent no longer as it was seen.

        With ``many`` jobs may be written together: ``finish`` before the commit.
        """
        self._total = self._held = -1
        self._tenants: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._busy_lanes: set[object] = set()
        self._descendants: dict[int, int] = {}
        self._observing: bool | None = None
        if many and self._queue is None:
            from clawq.store.bulk import Bulk

            self._queue = Bulk(self.db)
        if self._queue is not None:
            self._queue.begin()
        if self._rows("stamp")[0] != self._stamp:
            return False
        return not self.parents or all(parent.still_is(self.db) for parent in self.parents.values())

    def take(self, draft: "Draft", now: int, ticking: bool) -> Taken:
        """Write the job, or find the one that has its dedupe key.

        ``ticking`` says that a supervisor is alive. Raises Refused; the transaction stays usable.
        """
        if self._queue is not None:
            self._queue.flush()
        if draft.key is not None:
            for job_id, state, deadline_at, ended_at in self._rows(
                "key_holder", (draft.tenant, draft.asked_kind, draft.key)
            ):
                if state is None or (ended_at is not None and now - ended_at > OLD_KEY_MS):
                    from clawq.store.refusals import note_old_key

                    note_old_key(self.db, draft, job_id, ended_at, now)
                if draft.parent is not None:
                    draft.parent.get_back(self.db, job_id)
                return Taken("duplicate", job_id, state, deadline_at)
        twin = None if draft.parent is None else draft.parent.twin_of(self.db, draft)
        if twin is not None:
            return Taken("duplicate", *twin)
        return self._accept(draft, now, ticking)

    def take_plain(self, run: "Run", at: int, now: int, ticking: bool) -> int:
        """Write as many jobs of the run from place `at` on as are plain, with the next numbers; how many.

        0: the first has to be looked at by itself, ``take(run.one(at), ...)``.
        """
        queue, draft = self._queue, run.draft
        if queue is None or draft.tenant not in self._tenants or draft.kind not in self._kinds:
            return 0
        plain = draft.plain
        if plain is None:
            from clawq.store.bulk import plain_form

            fits = not (draft.needs or draft.frame.spends) or self._misfit(draft) is None
            plain = draft.plain = (plain_form(run, now) if fits else None) or False
        if not plain or (ticking and plain.lane not in self._busy_lanes and plain.state == job.QUEUED):
            return 0
        room = draft.room(
            plain.most, self._total, self._tenants[draft.tenant], self._kinds[draft.kind], self._held
        )
        count = queue.take(run, at, room, plain) if room > 0 else 0
        self._add(draft, count)
        return count

    def last_id(self) -> int:
        """The number of the job that was written last."""
        return self.db.last_insert_rowid()

    def finish(self) -> None:
        """To be called before the commit: events and counts of what ``take_plain`` took."""
        if self._queue is not None:
            self._queue.flush()

    def _accept(self, draft: "Draft", now: int, ticking: bool) -> Taken:
        frame, parent = draft.frame, draft.parent
        self._refuse_late(draft, now)
        if parent is not None:
            refused = parent.refusal(self.db, self._descendants)
            if refused is not None:
                self._refuse(refused, draft, now, ticking)
        if draft.needs or frame.spends:
            self._refuse_misfit(draft, now, ticking)
        state = draft.first_state(now)
        parked = None
        if (
            draft.exclusive is not None
            and state == job.QUEUED
            and self._rows("exclusive_active", (draft.exclusive,))[0][0]
        ):
            parked = f"exclusive:{draft.exclusive}"
        admitted = state == job.QUEUED and ticking and parked is None and self._has_room(draft, now)
        if not admitted:
            if state == job.QUEUED and frame.on_busy != "queue":
                lighter = self._when_busy(draft, now, ticking)
                if lighter is not None:
                    taken = self._accept(lighter, now, ticking)
                    taken.degraded = taken.outcome != "duplicate"
                    return taken
            if frame.refuse_hopeless:
                self._refuse_hopeless(draft, now, ticking)
        joined = self._make_place(draft, now, ticking)
        if joined is not None:
            return joined
        start_by = None
        if frame.on_busy == "reject" and state != job.HELD and not self._observes(ticking):
            start_by = draft.run_after + START_WITHIN_MS
        self.db.execute(_SQL["insert_job"], draft.placed(state, now, parked, start_by))
        job_id = self.db.last_insert_rowid()
        if self._queue is not None:
            self._queue.took(job_id)
        self._take_key(draft, job_id)
        self._add(draft, 1)
        if parent is not None:
            self._descendants[parent.root_id] += 1
        return Taken("admitted" if admitted else state, job_id, state, draft.deadline_at)

    def insert(self, draft: "Draft", state: str, now: int) -> int:
        """Write the row, whatever the caps say; its number."""
        self.db.execute(_SQL["insert_job"], draft.placed(state, now))
        return self.db.last_insert_rowid()

    def _take_key(self, draft: "Draft", job_id: int) -> None:
        if draft.key is not None:
            self.db.execute(
                _SQL["take_key"],
                (draft.tenant, draft.asked_kind, draft.key, job_id, draft.scope == "active"),
            )

    def _observes(self, ticking: bool) -> bool:
        """Whether refusals are only recorded. A dead supervisor's word does not count."""
        if self._observing is None:
            mode, supervisor = self._rows("observing")[0]
            self._observing = mode == "observe" or (ticking and supervisor is not None)
        return self._observing

    def _refuse(self, refused: Refused, draft: "Draft", now: int, ticking: bool) -> None:
        """Raise it; where only observing, count it and go on."""
        if not self._observes(ticking):
            raise refused
        from clawq.store.refusals import observe

        observe(self.db, refused, draft, now)

    def _refuse_late(self, draft: "Draft", now: int) -> None:
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

    def _refuse_misfit(self, draft: "Draft", now: int, ticking: bool) -> None:
        refused = self._misfit(draft)
        if refused is not None:
            self._refuse(refused, draft, now, ticking)

    def _misfit(self, draft: "Draft") -> Refused | None:
        """What no end of any other job could ever let start."""
        what = fix = ""
        for name in job.split(draft.needs):
            if not self.resources().get(name):
                what = f"resource {name!r} has limit 0, so this job could never start"
                fix = f"raise resources.{name}.limit in clawq.toml"
        for name, amount in draft.frame.spends.items():
            limit, _, own = self.budgets().get(name, (0, 0, None))
            if amount > limit or (own is not None and amount > own):
                key = "limit" if amount > limit else "per_tenant"
                most = min(limit, own or limit)
                what = f"it spends {amount} of budget {name!r}, which never has more than {most} for it"
                fix = f"raise budgets.{name}.{key} in clawq.toml, or lower what the kind spends"
        return Refused("never_fits", what, fix) if what else None

    def _when_busy(self, draft: "Draft", now: int, ticking: bool) -> "Draft | None":
        """The lighter job to take instead of one that cannot start now; None: this one may wait."""
        from clawq.store.refusals import over_capacity

        degrades = draft.frame.on_busy == "degrade"
        if degrades and (draft.lighter is None or not self._observes(ticking)):
            return draft.lighter
        self._refuse(over_capacity(self.db, draft, now, ticking), draft, now, ticking)
        return None

    def _refuse_hopeless(self, draft: "Draft", now: int, ticking: bool) -> None:
        """What the queue could not start in time, as fast as it drains now."""
        ends = [at for at in (draft.stale_at, draft.deadline_at) if at is not None]
        if not ends:
            return
        from clawq.store.refusals import would_expire

        refused = would_expire(self.db, draft, min(ends), now)
        if refused is not None:
            self._refuse(refused, draft, now, ticking)

    def _make_place(self, draft: "Draft", now: int, ticking: bool) -> Taken | None:
        """Refuse what no cap leaves a place for. The job that it was joined to, where it was."""
        frame = draft.frame
        most = draft.most_queued()
        if self._total < 0 or draft.tenant not in self._tenants or draft.kind not in self._kinds:
            self._count(draft)
        tenant, kind = self._tenants[draft.tenant], self._kinds[draft.kind]
        if draft.room(most, self._total, tenant, kind, self._held) > 0:
            return None
        if (
            frame.on_full != "reject"
            and frame.queue_cap is not None
            and kind >= frame.queue_cap
            and not self._observes(ticking)
        ):
            from clawq.store import overload

            if frame.on_full == "coalesce":
                like_it = overload.like_it(self.db, draft)
                if like_it is not None:
                    self._take_key(draft, like_it[0])
                    return Taken("duplicate", *like_it)
            else:
                oldest = overload.oldest(self.db, draft)
                # One takes the other's place, so that no count grows; a cap that was lowered ends nothing.
                if oldest is not None:
                    held = self._held - (oldest[1] == job.HELD)
                    if draft.room(most, self._total - 1, tenant - 1, frame.queue_cap - 1, held) > 0:
                        overload.drop(self.db, oldest[0], now)
                        self._count(draft)
                        self._busy_lanes.clear()
                        return None
        from clawq.store.refusals import no_place

        counts = (self._total, tenant, kind, self._held)
        self._refuse(no_place(self.db, draft, now, most, counts), draft, now, ticking)
        return None

    def _add(self, draft: "Draft", count: int) -> None:
        self._total += count
        self._held += count if draft.hold else 0
        self._tenants[draft.tenant] += count
        self._kinds[draft.kind] += count

    def _count(self, draft: "Draft") -> None:
        self._total, tenant, kind, self._held = self._rows("waiting", (draft.tenant, draft.kind))[0]
        self._tenants[draft.tenant] = tenant
        self._kinds[draft.kind] = kind

    def _has_room(self, draft: "Draft", now: int) -> bool:
        """Whether it would start at once."""
        lane = (draft.band, draft.tenant, draft.kind, draft.needs)
        if lane in self._busy_lanes:
            return False  # in one transaction the queue only grows
        from clawq.store.forecast import starts_at_once

        room = starts_at_once(self, draft, now)
        if not room:
            self._busy_lanes.add(lane)
        return room

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

    def _rows(self, name: str, bindings: "Any" = None) -> "Any":
        return self.db.execute(_SQL[name], bindings).fetchall()
