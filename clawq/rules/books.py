"""Who holds what during one pass: counts, slots, reservations, budgets, and what starts will still use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from clawq.rules import fairness
from clawq.rules.facts import GROWTH_MS, Head, Limits, Running, names
from clawq.states import BANDS

CRITICAL = BANDS.index("critical")


class Books:
    """Filled from what runs, then kept by each start of the pass."""

    def __init__(self, now: int, running: Iterable[Running], limits: Limits) -> None:
        self._now = now
        self._limits = limits
        self.total = 0
        self.started = 0
        self.waiting = 0
        self.waiting_procs = 0
        self.waiting_mb = 0
        """What jobs in `clawq wait` use, as does ``waiting_procs``."""
        self.bands: defaultdict[int, int] = defaultdict(int)
        self.tenants: defaultdict[str, int] = defaultdict(int)
        self.kinds: defaultdict[str, int] = defaultdict(int)
        self.workflows: defaultdict[int, int] = defaultdict(int)
        self.resources: defaultdict[str, int] = defaultdict(int)
        self.reserved: defaultdict[str, int] = defaultdict(int)
        self.wanted: set[str] = set()
        """Resources that somebody asked before waits for."""
        self.exclusive: set[str] = set()
        self.probes: defaultdict[str, int] = defaultdict(int)
        self._spent: defaultdict[tuple[str, str | None], int] = defaultdict(int)
        """By budget, and by budget and tenant: what starts of this pass took, and what others keep."""
        self.growing_procs = 0
        self.growing_mb = 0
        self._kept: defaultdict[str, int] = defaultdict(int)
        """Slots that jobs in `clawq wait` have not given back."""
        self._holders: dict[str, list[tuple[int, int | None]]] = {}
        """By resource: job, and what ends it at the latest."""
        self._relied_on: set[int] = set()
        """Jobs whose ends somebody waits for with a reservation."""
        self._promises: dict[str, list[int | None]] = {}
        for job in running:
            self._hold(job)

    def _hold(self, job: Running) -> None:
        held: Sequence[str] = names(job.needs)
        if job.waiting:
            held = [name for name in held if self._is_kept(name)]
            self.waiting += 1
            self.waiting_procs += job.procs or 0
            self.waiting_mb += job.mb or 0
            for name in held:
                self.resources[name] += 1
                self._kept[name] += 1
            if job.exclusive is not None:
                self.exclusive.add(job.exclusive)
        else:
            self._count(job.band, job.tenant, job.kind, job.root_id or job.job_id, held, job.exclusive)
        for name in held:
            self._holders.setdefault(name, []).append((job.job_id, job.ends_by))
        if self._now - job.started_at < GROWTH_MS:
            peak = self._limits.footprint(job.kind)
            self.growing_procs += max(0, peak.procs - (job.procs or 0))
            self.growing_mb += max(0, peak.mb - (job.mb or 0))

    def _is_kept(self, name: str) -> bool:
        resource = self._limits.resources.get(name)
        return resource is not None and resource.keep

    def given_back(self, job: Running) -> list[str]:
        """The resources whose slots a job does not hold while it waits for others."""
        return [name for name in names(job.needs) if not self._is_kept(name)]

    def take_back(self, job: Running, goes_on: bool) -> None:
        """A job's wait is over: it holds everything again, or is counted as if it did."""
        back = self.given_back(job)
        self._count(job.band, job.tenant, job.kind, job.root_id or job.job_id, back, job.exclusive)
        self.waiting -= goes_on
        for name in back:
            self._holders.setdefault(name, []).append((job.job_id, job.ends_by if goes_on else None))

    def take(self, head: Head) -> None:
        """A head was started."""
        self._count(
            head.band, head.tenant, head.kind, head.root_id or head.job_id, head.resources, head.exclusive
        )
        self.started += 1
        peak = self._limits.footprint(head.kind)
        self.growing_procs += peak.procs
        self.growing_mb += peak.mb
        for name in head.resources:
            self._holders.setdefault(name, []).append((head.job_id, head.deadline_at))
            self.probes[name] += 1
        for name, amount in self._limits.spends(head.kind, head.band):
            self._spent[name, None] += amount
            self._spent[name, head.tenant] += amount

    def _count(
        self, band: int, tenant: str, kind: str, root: int, resources: Sequence[str], exclusive: str | None
    ) -> None:
        self.total += 1
        self.bands[band] += 1
        self.tenants[tenant] += 1
        self.kinds[kind] += 1
        self.workflows[root] += 1
        for name in resources:
            self.resources[name] += 1
        if exclusive is not None:
            self.exclusive.add(exclusive)

    def of_workflow(self, head: Head) -> int:
        """How many jobs under this head's root run."""
        return self.workflows[head.root_id or head.job_id]

    def share_is_used_up(self, band: int) -> bool:
        """Would its next job borrow? Critical is held back by a share of its own only."""
        slots = self._limits.band_slots
        if slots is None or (band == CRITICAL and band not in slots):
            return False
        return self.bands[band] >= slots.get(band, 0)

    def kept_from(self, band: int) -> int:
        """Slots that stay free for jobs that came in other bands."""
        slots = self._limits.band_slots
        if slots is None:
            return 0
        most = self._limits.max_running
        kept = fairness.kept_for(slots, self.bands, most, most - self.total)
        return sum(count for owner, count in kept.items() if owner != band)

    def used_of(self, budget: str, tenant: str | None = None) -> int:
        """What is gone of a budget, or of one tenant's part of it."""
        found = self._limits.budgets[budget]
        used = found.used if tenant is None else found.used_by.get(tenant, 0)
        return used + self._spent[budget, tenant]

    def claim(self, head: Head, budget: str) -> None:
        """Keep what this head needs of a budget; of its tenant's part only, when that is what it lacks."""
        amount = dict(self._limits.spends(head.kind, head.band))[budget]
        if self.used_of(budget) + amount > self._limits.budgets[budget].limit:
            self._spent[budget, None] += amount
        self._spent[budget, head.tenant] += amount

    def waits_for_a_wait(self, head: Head) -> bool:
        """Is every slot of something that it needs kept by jobs that wait themselves, nobody knows how long?

        What it reserved meanwhile could be just what those wait for.
        """
        return any(self._kept[name] >= self._limits.resources[name].limit for name in head.resources)

    def reserve(self, head: Head) -> int | None:
        """Reserve one slot of every resource that the head needs; when it has them and a place at the latest.

        It takes the place of whoever holds the last of them. None where somebody before it waits for the same
        holder, whose end makes one place only, or where no timeout or deadline ends some holder.
        """
        promise: int | None = self._now
        holders: set[int] = set()
        for name in head.resources:
            self.reserved[name] += 1
            missing = self.resources[name] + self.reserved[name] - self._limits.resources[name].limit
            if missing > 0:
                held = self._holders.get(name, [])
                holders.update(job_id for job_id, _ in held)
                ends = sorted(ends_by for _, ends_by in held if ends_by is not None)
                free_at = ends[missing - 1] if missing <= len(ends) else None
                promise = None if promise is None or free_at is None else max(promise, free_at)
        if holders & self._relied_on:
            promise = None
        self._relied_on |= holders
        for name in head.resources:
            self._promises.setdefault(name, []).append(promise)
        return promise

    def ends_before_promise(self, head: Head, name: str) -> bool:
        """Does a hard deadline end it before anybody has the slot of `name` that is reserved for them?"""
        deadline = head.deadline_at
        return deadline is not None and all(
            promise is not None and deadline <= promise for promise in self._promises[name]
        )
