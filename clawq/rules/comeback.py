"""Whose `clawq wait` is over: who of them takes the slots back now that were given away meanwhile.

They come before every start, and no gate, budget, cooldown or pause is asked: they have been started. Whoever
still lacks a slot is counted as if it had all of them, so that nothing new takes what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clawq.rules.books import Books
from clawq.rules.facts import Limits, Running


class Back(NamedTuple):
    """``lacks`` is the first thing that others still hold, in the words of a refusal; None: it goes on."""

    job: Running
    lacks: str | None


def come_back(books: Books, running: Iterable[Running], limits: Limits) -> list[Back]:
    """Those that want their slots back, the first that asked first; the books count them all from now on."""
    found = []
    wanting = [(job.back_at, job.job_id, job) for job in running if job.back_at is not None]
    for _, _, job in sorted(wanting):
        lacks = None if limits.observing else _lacks(books, job, limits)
        books.take_back(job, goes_on=lacks is None)
        found.append(Back(job, lacks))
    return found


def _lacks(books: Books, job: Running, limits: Limits) -> str | None:
    """A limit that was lowered to nothing meanwhile ends nothing: one at a time goes on."""
    kind_limit = limits.kind(job.kind, job.band)
    root = job.root_id or job.job_id
    for used, limit, reason in (
        (books.total, limits.max_running, "max_running"),
        (books.tenants[job.tenant], limits.tenant(job.tenant), "tenant_limit"),
        (books.kinds[job.kind], books.total + 1 if kind_limit is None else kind_limit, "kind_limit"),
        (books.workflows[root], limits.max_running_per_workflow, "workflow_limit"),
    ):
        if used >= max(1, limit):
            return reason
    for name in books.given_back(job):
        resource = limits.resources.get(name)
        if books.resources[name] >= max(1, resource.limit if resource else 1):
            return f"resource:{name}"
    return None
