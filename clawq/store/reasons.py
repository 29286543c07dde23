"""The words for every reason why a job does not run yet: what it means, what clears it, which key sets it.

The one home of these texts: `clawq why` speaks from here, and docs/reasons.md is held to it. What clears a
reason completes the sentence "until ...". Times are epoch ms, shown on the local clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

NAMED = 3
"""Jobs named in a sentence; the others are counted."""


class Reason(NamedTuple):
    """``clears`` has fields in braces for what is known of one job; `in_general` fills them for all."""

    means: str
    clears: str
    keys: tuple[str, ...] = ()
    """Of clawq.toml."""


REASONS = {
    "paused": Reason(
        "a person has paused everything, or its tenant, kind, band or a resource that it needs",
        "a person says `{lift}`",
    ),
    "never_fits": Reason(
        "it needs a resource that has no slot, reserves more of a budget than is ever there, or has no"
        " command and a kind without one",
        "clawq.toml {lacks}; or `clawq cancel {job_id}`",
        (
            "resources.NAME.limit",
            "budgets.NAME.limit",
            "budgets.NAME.per_tenant",
            "kinds.KIND.spends",
            "kinds.KIND.command",
        ),
    ),
    "exclusive:NAME": Reason(
        "another job with the same --exclusive name runs",
        "{who}",
    ),
    "max_waiting": Reason(
        "as many jobs as may at once are in `clawq wait`; only their children start",
        "one of the jobs that wait goes on",
        ("limits.max_waiting",),
    ),
    "workflow_limit": Reason(
        "as many jobs of its workflow run as may at once",
        "{who}",
        ("limits.max_running_per_workflow",),
    ),
    "cooldown:NAME": Reason(
        "the resource rests, since a job or a person said `clawq throttle`; afterwards one job probes it, "
        "then the others come back, twice as many each time",
        "{rest}; `clawq throttle {name} --for 0` ends that now",
    ),
    "budget:NAME": Reason(
        "the amount that it reserves of the budget is not left in the window, for all or for its tenant",
        "{room}",
        ("budgets.NAME.limit", "budgets.NAME.per", "budgets.NAME.per_tenant", "kinds.KIND.spends"),
    ),
    "spawn_failed": Reason(
        "the machine refused a new process a moment ago; no start is tried for a while",
        "the next start is tried{at}",
        ("host.retry_after",),
    ),
    "ramp_up": Reason(
        "after a crash of the supervisor or a wake of the machine jobs start by ones, twos and fours, not "
        "all at once",
        "more starts are allowed: twice as many every few seconds",
    ),
    "uid_procs": Reason(
        "the account has as many processes as it may (without a limit of yours, on Linux: threads, as its "
        "kernel counts), with what the jobs just started are still going to use",
        "the account has fewer than {limit} processes",
        ("host.max_user_procs",),
    ),
    "memory_pressure": Reason(
        "the system says that memory is short",
        "the system's memory pressure is {limit} or less",
        ("host.max_pressure",),
    ),
    "low_memory": Reason(
        "less memory is free than the floor, without what the jobs just started are still going to use",
        "{limit} MB of memory are free",
        ("host.min_free_mb", "resources.NAME.min_free_mb"),
    ),
    "low_disk": Reason(
        "less of the disk is free than the floor",
        "{limit} MB of the disk are free",
        ("host.min_free_disk_mb",),
    ),
    "max_running": Reason(
        "as many jobs run as may at once",
        "{who}",
        ("limits.max_running",),
    ),
    "tenant_limit": Reason(
        "as many jobs of its tenant run as may at once",
        "{who}",
        ("limits.max_running_per_tenant", "tenants.TENANT.max_running"),
    ),
    "kind_limit": Reason(
        "as many jobs of its kind run as may at once",
        "{who}",
        ("kinds.KIND.max_running",),
    ),
    "band_share": Reason(
        "the slots that are free are kept for jobs of another band, critical or interactive",
        "a job ends whose slot is not kept for another band",
        ("bands.BAND.share",),
    ),
    "resource:NAME": Reason(
        "every slot of the resource is held",
        "{who}",
        ("resources.NAME.limit",),
    ),
    "reserved": Reason(
        "a job that has waited for long has reserved the free slots of a resource that this one needs too",
        "{who}",
        ("limits.reserve_after",),
    ),
    "no_supervisor": Reason(
        "nobody is there to start it",
        "a supervisor runs: `clawq run` is one",
    ),
    "not_due": Reason(
        "it was given a time, or it failed and is tried again later",
        "it is due{at}",
        ("kinds.KIND.backoff",),
    ),
    "children": Reason(
        "it is in `clawq wait`, for jobs below it",
        "{who}",
    ),
    "held": Reason(
        "it waits for a person",
        "a person says `clawq approve {job_id}` (or `clawq deny {job_id}`)",
    ),
    "unknown": Reason(
        "its agent is gone, and running it again might repeat what it did",
        "a person says `clawq reconcile {job_id} --succeeded`, --failed or --requeue",
        ("kinds.KIND.on_lost",),
    ),
}
"""In the order in which they are asked; those after ``reserved`` are `clawq why`'s own."""

STOPPING = "the supervisor has ended, which starts nothing new, and another one runs"

_OTHER = Reason("", "the next look at it lets it start")

_IN_GENERAL = {
    "exclusive:NAME": {"who": "the job that has the name ends"},
    "workflow_limit": {"who": "a running job of the workflow ends"},
    "max_running": {"who": "a running job ends"},
    "children": {"who": "the jobs that it waits for have ended"},
    "tenant_limit": {"who": "a running job of the tenant ends"},
    "kind_limit": {"who": "a running job of the kind ends"},
    "resource:NAME": {"who": "a job that holds NAME ends"},
    "reserved": {"who": "the job that it is reserved for starts"},
    "budget:NAME": {"room": "enough of what is used has left the window, or was given back"},
    "cooldown:NAME": {"rest": "the rest is over, one job has probed it and its turn to come back has come"},
    "never_fits": {"lacks": "gives it the room that it needs"},
}
_ANYWHERE = {"limit": "the limit", "lift": "clawq resume", "at": "", "job_id": "ID", "name": "NAME"}


def split(reason: str) -> tuple[str, str]:
    """The key in REASONS and the name in it: ``resource:browser`` is (``resource:NAME``, ``browser``)."""
    key, colon, name = reason.partition(":")
    return (f"{key}:NAME" if colon else key), name


def clears_when(reason: str, **known: object) -> str:
    """What clears it, as far as it is `known`; completes "until ..."."""
    key, name = split(reason)
    facts = {**_ANYWHERE, **_IN_GENERAL.get(key, {})}
    if name:
        facts = {field: text.replace("NAME", name) for field, text in facts.items()}
    facts |= {field: str(value) for field, value in known.items() if value is not None}
    return REASONS.get(key, _OTHER).clears.format_map(facts)


def in_general(key: str) -> str:
    """What clears the reason with this key in REASONS, for any job."""
    return clears_when(key)


def moment(at: int, now: int) -> str:
    """A time of day, with the date where it is not today's: ``10:42:05``, ``2025-03-01 10:42:05``."""
    there, here = time.localtime(at / 1000), time.localtime(now / 1000)
    return time.strftime("%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M:%S", there)


def ends(ids: Sequence[int], one: str, many: str) -> str | None:
    """``job 7 ends, which holds browser``, however many there are; None for nobody."""
    if not ids:
        return None
    if len(ids) == 1:
        return f"job {ids[0]} ends" + (f", which {one}" if one else "")
    return f"one of the jobs {_listed(ids)} ends" + (f", which {many}" if many else "")


def ended(ids: Sequence[int]) -> str | None:
    """``job 7 has ended``, for all of them; None for nobody."""
    if not ids:
        return None
    return f"job {ids[0]} has ended" if len(ids) == 1 else f"the jobs {_listed(ids)} have ended"


def starts(waiting: Sequence[tuple[int, list[str], int]], now: int) -> str | None:
    """For ``reserved``: who has reserved what, (job, resources, promised for) each; None for nobody."""
    if not waiting:
        return None
    job_id, names, promised_at = waiting[0]
    more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
    return f"job {job_id}{more} starts, which {reservation(names, promised_at, now)}"


def reservation(names: Sequence[str], promised_at: int, now: int) -> str:
    """``has reserved browser; at the latest at 10:42:05``."""
    return f"has reserved {_and(names)}; at the latest at {moment(promised_at, now)}"


def room(name: str, amount: int, at: int | None, now: int) -> str:
    """For a budget: when the window itself makes room, if nobody else takes it."""
    if at is None:
        return f"{amount} of {name} are free"
    return f"{amount} of {name} are free, at {moment(at, now)} if nothing else takes them"


def resting(name: str, until: int, now: int) -> str:
    return f"{name} has rested, at {moment(until, now)}; then one job probes it first"


def probing(name: str, job_id: int | None) -> str:
    if job_id is None:
        return f"one job has probed {name}, the next that starts"
    return f"job {job_id}, which probes {name}, has ended or has run for a minute"


def returning(name: str, step_ms: int) -> str:
    return f"more may use {name} again: twice as many every {step_ms / 1000:g}s"


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(str(job_id) for job_id in ids[:NAMED])
    return f"{shown} and {len(ids) - NAMED} more" if len(ids) > NAMED else shown


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
