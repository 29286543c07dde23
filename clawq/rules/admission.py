"""Which of the waiting jobs start now, and why not the others.

Only lane heads are looked at. A lane holds the ready jobs of one band, tenant, kind and set of needs, so
what refuses its head for anything but the head's own exclusive name or workflow refuses all of it: one look
at each lane is enough, however many jobs wait. Everything a job needs is taken together or not at all; names
are asked in alphabetical order, so that two jobs never hold half of what the other lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from clawq.rules import fairness
from clawq.rules.books import Books
from clawq.rules.comeback import Back, come_back
from clawq.rules.facts import Head, Host, Limits, Running
from clawq.rules.fairness import Clocks, Order, Turns
from clawq.rules.reasons import OBSERVED_ANYWAY, is_short_of_slots


class Start(NamedTuple):
    """``would``: what would have refused it, when only observing."""

    head: Head
    would: str | None = None


class Wait(NamedTuple):
    """The head stays; ``reason`` is the lane's. ``measured`` met ``limit``, in the reason's own unit."""

    head: Head
    reason: str
    measured: float | None = None
    limit: float | None = None
    retry_at: int | None = None
    """Epoch ms at which it clears by itself, where that is known."""
    promised_at: int | None = None
    """With a reservation: when the slots it needs are free for it at the latest, where that is known."""


class Park(NamedTuple):
    """The head's own exclusive name or workflow is taken: it leaves its lane until that ends.

    ``passes_on``: the other of the two is to be had, and who waits for that behind it is next.
    """

    head: Head
    reason: str
    passes_on: bool = False


Decision = Start | Wait | Park


class Outcome(NamedTuple):
    """One pass: decisions in the order in which to carry them out, the tenants' clocks that moved, and before
    them whose wait is over."""

    decisions: list[Decision]
    turns: Turns
    back: list[Back]


NO_PROMISES: Mapping[int, int] = {}


def decide(
    now: int,
    host: Host,
    running: Iterable[Running],
    heads: Iterable[Head],
    limits: Limits,
    following: Callable[[Head], Head | None],
    clocks: Clocks = fairness.NO_CLOCKS,
    promised: Mapping[int, int] = NO_PROMISES,
) -> Outcome:
    """One pass. ``following(head)`` is the job behind `head` in its lane; ``promised`` is what earlier passes
    told heads, by job number: when they have the slots that they reserved at the latest (epoch ms).

    The result does not depend on the order of `heads` or `running`.
    """
    running = list(running)
    books = Books(now, running, limits)
    back = come_back(books, running, limits)
    turns = Turns(clocks)
    order = Order(now, heads, turns, limits.age_boost_ms, promised, books.share_is_used_up)
    decisions: list[Decision] = []
    while (head := order.pop()) is not None:
        decision = _ask(now, host, books, head, limits, head.job_id in promised)
        decisions.append(decision)
        if isinstance(decision, Wait):
            continue
        if isinstance(decision, Start):
            books.take(head)
            order.charge(head, limits.weight(head.tenant))
            if head.last_start_at != now:
                head = head._replace(last_start_at=now)
        behind = following(head)
        if behind is not None:
            order.add(behind)
    return Outcome(decisions, turns, back)


def _ask(now: int, host: Host, books: Books, head: Head, limits: Limits, promised: bool) -> Decision:
    if _is_paused(head, limits):
        return Wait(head, "paused")
    if head.exclusive is not None and head.exclusive in books.exclusive:
        return Park(head, f"exclusive:{head.exclusive}", _workflow(books, head, limits) is None)
    refusal: Wait | Park | None = (
        _fits(head, limits)
        or _waiting(books, head, limits)
        or _workflow(books, head, limits)
        or _cooldown(now, books, head, limits)
        or _budgets(books, head, limits)
        or _gates(now, host, books, head, limits)
        or _counts(books, head, limits)
        or _resources(books, head, limits)
    )
    if refusal is None:
        return Start(head)
    if limits.observing and refusal.reason not in OBSERVED_ANYWAY and _has_a_command(head, limits):
        return Start(head, refusal.reason)
    return refusal if isinstance(refusal, Park) else _hold_back(now, books, head, refusal, limits, promised)


def _is_paused(head: Head, limits: Limits) -> bool:
    if not limits.paused:
        return False
    scopes = [("all", ""), ("tenant", head.tenant), ("kind", head.kind), ("band", str(head.band))]
    scopes += [("resource", name) for name in head.resources]
    return any(scope in limits.paused for scope in scopes)


def _has_a_command(head: Head, limits: Limits) -> bool:
    """Its own, or its kind's: one whose kind left the configuration has nothing to run."""
    return not head.bare or limits.has_command(head.kind, head.band)


def _fits(head: Head, limits: Limits) -> Wait | None:
    """What no end of any other job could ever give it."""
    if not _has_a_command(head, limits):
        return Wait(head, "never_fits")
    for name in head.resources:
        resource = limits.resources.get(name)
        if resource is None or resource.limit <= 0:
            return Wait(head, "never_fits", None, 0)
    for name, amount in limits.spends(head.kind, head.band):
        budget = limits.budgets.get(name)
        if budget is None or amount > budget.most_for_one:
            return Wait(head, "never_fits", amount, None if budget is None else budget.most_for_one)
    return None


def _waiting(books: Books, head: Head, limits: Limits) -> Wait | None:
    """Each that waits has an agent that takes up room: only what it may wait for comes on top."""
    if not head.is_child and books.waiting >= limits.max_waiting:
        return Wait(head, "max_waiting", books.waiting, limits.max_waiting)
    return None


def _workflow(books: Books, head: Head, limits: Limits) -> Park | None:
    if books.of_workflow(head) >= limits.max_running_per_workflow:
        return Park(head, "workflow_limit", head.exclusive is not None)
    return None


def _cooldown(now: int, books: Books, head: Head, limits: Limits) -> Wait | None:
    for name in head.resources:
        cooldown = limits.cooldowns.get(name)
        if cooldown is None:
            continue
        if now < cooldown.until:
            return Wait(head, f"cooldown:{name}", retry_at=cooldown.until)
        if cooldown.probing or books.probes[name] >= cooldown.allowed:
            return Wait(head, f"cooldown:{name}", books.resources[name], cooldown.allowed)
    return None


def _budgets(books: Books, head: Head, limits: Limits) -> Wait | None:
    for name, amount in limits.spends(head.kind, head.band):
        budget = limits.budgets[name]
        used = books.used_of(name)
        if used + amount > budget.limit:
            return Wait(head, f"budget:{name}", used, budget.limit, budget.frees_at)
        if budget.per_tenant is not None:
            own = books.used_of(name, head.tenant)
            if own + amount > budget.per_tenant:
                return Wait(head, f"budget:{name}", own, budget.per_tenant, budget.frees_at)
    return None


def _gates(now: int, host: Host, books: Books, head: Head, limits: Limits) -> Wait | None:
    if now < host.spawn_closed_until:
        return Wait(head, "spawn_failed", retry_at=host.spawn_closed_until)
    if host.ramp_left is not None and books.started >= host.ramp_left:
        return Wait(head, "ramp_up", books.started, host.ramp_left)
    # What jobs in `clawq wait` use is only freed when their children run: alone it closes no gate for these.
    alone = head.is_child and books.total == 0
    if limits.max_user_procs is not None and host.user_procs is not None:
        expected = host.user_procs + books.growing_procs - (books.waiting_procs if alone else 0)
        if expected >= limits.max_user_procs:
            return Wait(head, "uid_procs", expected, limits.max_user_procs)
    if limits.max_pressure is not None and host.pressure is not None and host.pressure > limits.max_pressure:
        return Wait(head, "memory_pressure", host.pressure, limits.max_pressure)
    if host.free_mb is not None:
        memory_floor = limits.min_free_mb
        for name in head.resources:
            own_floor = limits.resources[name].min_free_mb
            if own_floor is not None:
                memory_floor = own_floor if memory_floor is None else max(memory_floor, own_floor)
        left = host.free_mb - books.growing_mb + (books.waiting_mb if alone else 0)
        if memory_floor is not None and left < memory_floor:
            return Wait(head, "low_memory", left, memory_floor)
    floor, disk = limits.min_free_disk_mb, host.free_disk_mb
    if floor is not None and disk is not None and disk < floor:
        return Wait(head, "low_disk", disk, floor)
    return None


def _counts(books: Books, head: Head, limits: Limits) -> Wait | None:
    if books.total >= limits.max_running:
        return Wait(head, "max_running", books.total, limits.max_running)
    of_tenant, tenant_limit = books.tenants[head.tenant], limits.tenant(head.tenant)
    if of_tenant >= tenant_limit:
        return Wait(head, "tenant_limit", of_tenant, tenant_limit)
    of_kind, kind_limit = books.kinds[head.kind], limits.kind(head.kind, head.band)
    if kind_limit is not None and of_kind >= kind_limit:
        return Wait(head, "kind_limit", of_kind, kind_limit)
    open_to_it = limits.max_running - books.kept_from(head.band)
    if books.total >= open_to_it:
        return Wait(head, "band_share", books.total, open_to_it)
    return None


def _resources(books: Books, head: Head, limits: Limits) -> Wait | None:
    """Slots that others hold, then slots that others were promised."""
    for name in head.resources:
        limit, in_use = limits.resources[name].limit, books.resources[name]
        if in_use >= limit:
            return Wait(head, f"resource:{name}", in_use, limit)
    for name in head.resources:
        limit, in_use = limits.resources[name].limit, books.resources[name]
        if in_use + books.reserved[name] >= limit and not books.ends_before_promise(head, name):
            return Wait(head, "reserved", in_use + books.reserved[name], limit)
    return None


def _hold_back(now: int, books: Books, head: Head, refusal: Wait, limits: Limits, promised: bool) -> Wait:
    """What a refused head keeps from those after it in the order.

    One that has waited for `reserve_after` for nothing but slots reserves one of every resource that it
    needs, also of those that are free now: reserving only what it lacks would starve it. Only the first in
    the order that waits for a resource does so: all of them together would let slots stand idle that none of
    them can use yet, and the moment told to a later one would not be true. What was promised is kept while
    counts refuse it. One that has waited as long and lacks nothing but a budget keeps its amount of that.
    """
    reason, name = refusal.reason, refusal.reason.partition(":")[2]
    if reason.startswith("budget:"):
        waited = now - max(head.ready_at, head.gated_at or 0)
        others = _counts(books, head, limits) or _resources(books, head, limits)
        if waited >= limits.reserve_after_ms and others is None:
            books.claim(head, name)
    elif is_short_of_slots(reason):
        lacks_a_resource = bool(name) or reason == "reserved"
        due = head.short_since is not None and now - head.short_since >= limits.reserve_after_ms
        may = promised or (lacks_a_resource and due and not books.wanted.intersection(head.resources))
        if may and not books.waits_for_a_wait(head):
            refusal = refusal._replace(promised_at=books.reserve(head))
        if lacks_a_resource or promised:
            books.wanted.update(head.resources)
    return refusal
