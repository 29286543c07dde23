"""Which of the waiting jobs start now, and why not the others.

Only lane heads are looked at. A lane holds the ready jobs of one band, tenant, kind and set of needs, so what
refuses its head for anything but the head's own exclusive name refuses all of it, and one look per lane is
enough however many jobs wait. Everything a job needs is taken together or not at all; resources are asked in
alphabetical order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

Lane = tuple[int, str, str, str]
"""(band, tenant, kind, needs as in the database)."""


class Head(NamedTuple):
    """A lane's next job. ``rank`` orders within a lane: when it was first due minus its priority, in ms."""

    job_id: int
    band: int
    tenant: str
    kind: str
    needs: str
    rank: int
    exclusive: str | None

    @property
    def lane(self) -> Lane:
        return (self.band, self.tenant, self.kind, self.needs)

    @property
    def resources(self) -> list[str]:
        return self.needs.split(",") if self.needs else []


class Running(NamedTuple):
    """A job that holds its slots now."""

    tenant: str
    kind: str
    needs: str
    exclusive: str | None


class Host(NamedTuple):
    """The machine at the last look; None where it was not measured. ``spawn_closed_until``: epoch ms."""

    user_procs: int | None
    free_mb: int | None
    spawn_closed_until: int


class Resource(NamedTuple):
    limit: int
    min_free_mb: int | None


class Limits(NamedTuple):
    """The configuration as admission needs it. None switches a gate off."""

    max_running: int
    max_user_procs: int | None
    min_free_mb: int | None
    retry_after_ms: int
    resources: dict[str, Resource]
    tenant: Callable[[str], int]
    kind: Callable[[str], int | None]
    paused: frozenset[tuple[str, str]]
    """(scope, name): ('all', ''), ('tenant', T), ('kind', K), ('resource', R) or ('band', number as text)."""


class Start(NamedTuple):
    head: Head


class Wait(NamedTuple):
    """The head stays; ``reason`` is the lane's. ``measured`` met ``limit``, in the reason's own unit."""

    head: Head
    reason: str
    measured: float | None = None
    limit: float | None = None


class Park(NamedTuple):
    """The head's exclusive name is taken: it leaves its lane until that ends, and the next one is asked."""

    head: Head
    holder: str


Decision = Start | Wait | Park

HOST_REASONS = frozenset({"uid_procs", "low_memory", "spawn_failed"})
"""Reasons that can clear without any event of ours: the machine has to be looked at again."""

PROCESSES_PER_START = 2
"""What a start adds to the account at once, before any sample can show it: its shell and its program."""


def decide(
    now: int,
    host: Host,
    running: Iterable[Running],
    heads: Iterable[Head],
    limits: Limits,
    following: Callable[[Head], Head | None],
    started_since_sample: int = 0,
) -> list[Decision]:
    """One pass, in the order in which it should be carried out.

    ``following(head)`` is the job behind `head` in its lane. Bands are served in their order; within a band
    the smallest rank goes first, ties to the smaller id. The result does not depend on the order of `heads`.
    """
    books = _Books(running, started_since_sample)
    waiting = [_order(head) for head in heads]
    heapq.heapify(waiting)
    decisions: list[Decision] = []
    while waiting:
        head = heapq.heappop(waiting)[-1]
        decision = _ask(now, host, books, head, limits)
        decisions.append(decision)
        if isinstance(decision, Wait):
            continue
        if isinstance(decision, Start):
            books.take(head.tenant, head.kind, head.resources, head.exclusive)
            books.started += 1
        behind = following(head)
        if behind is not None:
            heapq.heappush(waiting, _order(behind))
    return decisions


def _order(head: Head) -> tuple[int, int, int, Head]:
    return (head.band, head.rank, head.job_id, head)


class _Books:
    """Who holds what during one pass."""

    def __init__(self, running: Iterable[Running], started: int) -> None:
        self.total = 0
        self.started = started
        self.tenants: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.resources: dict[str, int] = {}
        self.exclusive: set[str] = set()
        for held in running:
            self.take(held.tenant, held.kind, held.needs.split(",") if held.needs else [], held.exclusive)

    def take(self, tenant: str, kind: str, resources: list[str], exclusive: str | None) -> None:
        self.total += 1
        self.tenants[tenant] = self.tenants.get(tenant, 0) + 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        for name in resources:
            self.resources[name] = self.resources.get(name, 0) + 1
        if exclusive is not None:
            self.exclusive.add(exclusive)


def _ask(now: int, host: Host, books: _Books, head: Head, limits: Limits) -> Decision:
    refusal = _paused(head, limits) or _count(books, head, limits)
    if refusal is not None:
        return refusal
    if head.exclusive is not None and head.exclusive in books.exclusive:
        return Park(head, head.exclusive)
    return _slots(books, head, limits) or _gates(now, host, books, head, limits) or Start(head)


def _paused(head: Head, limits: Limits) -> Wait | None:
    if not limits.paused:
        return None
    scopes = [("all", ""), ("tenant", head.tenant), ("kind", head.kind), ("band", str(head.band))]
    scopes += [("resource", name) for name in head.resources]
    return Wait(head, "paused") if any(scope in limits.paused for scope in scopes) else None


def _count(books: _Books, head: Head, limits: Limits) -> Wait | None:
    if books.total >= limits.max_running:
        return Wait(head, "max_running", books.total, limits.max_running)
    of_tenant, tenant_limit = books.tenants.get(head.tenant, 0), limits.tenant(head.tenant)
    if of_tenant >= tenant_limit:
        return Wait(head, "tenant_limit", of_tenant, tenant_limit)
    of_kind, kind_limit = books.kinds.get(head.kind, 0), limits.kind(head.kind)
    if kind_limit is not None and of_kind >= kind_limit:
        return Wait(head, "kind_limit", of_kind, kind_limit)
    return None


def _slots(books: _Books, head: Head, limits: Limits) -> Wait | None:
    for name in head.resources:
        resource = limits.resources.get(name)
        if resource is None or resource.limit <= 0:
            return Wait(head, "never_fits", None, 0)
        in_use = books.resources.get(name, 0)
        if in_use >= resource.limit:
            return Wait(head, f"resource:{name}", in_use, resource.limit)
    return None


def _gates(now: int, host: Host, books: _Books, head: Head, limits: Limits) -> Wait | None:
    if now < host.spawn_closed_until:
        return Wait(head, "spawn_failed")
    if limits.max_user_procs is not None and host.user_procs is not None:
        expected = host.user_procs + books.started * PROCESSES_PER_START
        if expected >= limits.max_user_procs:
            return Wait(head, "uid_procs", expected, limits.max_user_procs)
    if host.free_mb is not None:
        floors = [limits.min_free_mb or 0]
        floors += [limits.resources[name].min_free_mb or 0 for name in head.resources]
        floor = max(floors)
        if host.free_mb < floor:
            return Wait(head, "low_memory", host.free_mb, floor)
    return None
