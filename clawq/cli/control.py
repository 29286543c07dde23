"""`clawq pause`, `resume` and `prune`: a person steers the queue as a whole."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq import desk, options, when
from clawq import states as job
from clawq.cli import params, words
from clawq.errors import StorageError, UsageError
from clawq.poke import poke
from clawq.retention import Sweep
from clawq.store import accounts, jobs, reasons, views

if TYPE_CHECKING:
    from clawq.desk import Desk
FEWEST, MOST = 20, 500
"""Jobs or logs that one step prunes: as many as take about STEP_S."""
STEP_S = 0.005
PAUSE = 5
"""Times as long as the step before it."""
LONGEST_PAUSE_S = 0.05

Tenant = Annotated[str | None, typer.Option("--tenant", metavar="TENANT", help="Only this tenant's jobs.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")]
Resource = Annotated[
    str | None, typer.Option("--resource", metavar="RESOURCE", help="Only jobs that need this resource.")
]
Band = Annotated[str | None, typer.Option("--band", metavar="BAND", help="Only jobs of this band.")]


def pause(
    tenant: Tenant = None,
    kind: Kind = None,
    resource: Resource = None,
    band: Band = None,
    as_json: params.AsJson = False,
) -> int:
    """Pause everything, or a tenant, kind, resource or band.

    Nothing more of it is started until a person says `clawq resume`; what runs goes on. A rest that ends
    by itself is `clawq throttle`.
    """
    scope, name = _scope(tenant, kind, resource, band)
    with desk.changing(create=True) as here:
        _check(scope, name, here)
        changed = here.db is not None and jobs.pause(here.db, scope, name, here.now)
        rest = _rest(here, scope, name)
    poke(here.home)
    if rest:
        words.note(f"{rest} besides, which is no pause and ends by itself")
    return _tell(scope, name, changed, "paused", "paused already", as_json)


def resume(
    tenant: Tenant = None,
    kind: Kind = None,
    resource: Resource = None,
    band: Band = None,
    as_json: params.AsJson = False,
) -> int:
    """Undo a pause, of everything or of one part.

    Other pauses stand, and so does the rest that `clawq throttle` gave a resource.
    """
    scope, name = _scope(tenant, kind, resource, band)
    with desk.changing() as here:
        # First the pause, then the name: what is paused may have left the configuration.
        known = (scope, name) in _pauses(here)
        if not known:
            _check(scope, name, here)
        changed = known and here.db is not None and jobs.resume(here.db, scope, name)
        left = _pauses(here)
        rest = _rest(here, scope, name)
    poke(here.home)
    if rest:
        words.note(f"{rest}, which is no pause: `clawq throttle {shlex.quote(name)} --for 0` ends that")
    if left:
        words.note(f"still paused: {_in_short(left)}")
    return _tell(scope, name, changed, "resumed", "not paused", as_json)


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="DURATION", help="Ended this long ago; default: limits.retention."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and delete nothing.")] = False,
    as_json: params.AsJson = False,
) -> int:
    """Delete jobs that ended long ago, with their logs. Dedupe keys that hold for ever stay.

    The supervisor does the same by itself, by limits.retention and limits.retention_mb.
    """
    age = None if older_than is None else when.duration(older_than)
    opened = desk.reading() if dry_run else desk.changing()
    with opened as here:
        settings, _ = here.settings()
        before = here.now - (settings.limits.retention_ms if age is None else age)
        sweep = None
        if here.db is not None:
            sweep = Sweep(here.db, here.home, settings.limits, here.now, before, FEWEST, dry_run)
            _take_steps(sweep)
    told = {
        "jobs": sweep.jobs + sweep.crowded_jobs if sweep else 0,
        "orphans": sweep.orphans if sweep else 0,
        "crowded_logs": sweep.crowded_logs if sweep else 0,
        "too_large_mb": -(-sweep.too_large_by // (1 << 20)) if sweep else 0,
    }
    if as_json:
        words.write_json({**told, "before_at": before, "dry_run": dry_run})
    else:
        _tell_pruned(told, dry_run)
    if sweep is not None and sweep.failure is not None:
        error = sweep.failure
        raise StorageError(f"{error.filename} could not be deleted ({error.strerror})", "look at its folder")
    return 0


def _take_steps(sweep: Sweep) -> None:
    """Each is short, and so is the pause after it: whoever else wants to write waits by sleeping longer and
    longer, and would find the lock taken each time."""
    began = time.perf_counter()
    for _ in sweep.steps():
        took = time.perf_counter() - began
        sweep.batch = max(FEWEST, min(MOST, int(sweep.batch * STEP_S / took)))
        time.sleep(min(took * PAUSE, LONGEST_PAUSE_S))
        began = time.perf_counter()


def _tell_pruned(told: dict[str, int], dry_run: bool) -> None:
    done = "would be pruned" if dry_run else "pruned"
    words.write(f"{words.jobs(told['jobs'])} {done}")
    if told["orphans"]:
        words.write(f"{_logs(told['orphans'])} of no attempt {done}")
    if told["crowded_logs"]:
        words.write(f"{_logs(told['crowded_logs'])} {done}: together they outgrew limits.retention_mb")
    if told["too_large_mb"]:
        oldest = "the oldest ended jobs would go too" if dry_run else "the oldest ended jobs went too"
        words.write(
            f"the database outgrew limits.retention_mb by {words.size(told['too_large_mb'])}: {oldest}"
        )


def _logs(count: int) -> str:
    return "1 log" if count == 1 else f"{count} logs"


def _scope(tenant: str | None, kind: str | None, resource: str | None, band: str | None) -> tuple[str, str]:
    given = {"tenant": tenant, "kind": kind, "resource": resource, "band": band}
    chosen = [(scope, name) for scope, name in given.items() if name is not None]
    if len(chosen) > 1:
        raise UsageError(
            f"--{chosen[0][0]} and --{chosen[1][0]} exclude each other", "give one, and then the other"
        )
    return chosen[0] if chosen else ("all", "")


def _pauses(here: Desk) -> list[tuple[str, str]]:
    return [(row["scope"], row["name"]) for row in views.pauses(here.db)] if here.db else []


def _rest(here: Desk, scope: str, name: str) -> str | None:
    """How far the rest of this resource has come; None when it has none."""
    row = accounts.cooldown(here.db, name, here.now) if here.db and scope == "resource" else None
    if row is None:
        return None
    if row["stage"] == accounts.RESTING:
        return f"resource {name} rests until {reasons.moment(row['until'], here.now)}"
    if row["stage"] == accounts.PROBING:
        return f"resource {name} has rested, and one job probes it first"
    return f"resource {name} comes back from its rest step by step"


def _check(scope: str, name: str, here: Desk) -> None:
    """A tenant may have any name that producers can give it; the others are known. Raises UsageError."""
    if scope == "kind":
        words.known(name, here.kinds(), "kind")
    elif scope == "resource":
        words.known(name, here.settings()[0].resources, "resource")
    elif scope == "band":
        words.known(name, job.BANDS, "band")
    elif scope == "tenant":
        options.read({"tenant": name}, here.now)


def _named(scope: str, name: str) -> str:
    return "everything" if scope == "all" else f"{scope} {name}"


def _in_short(pauses: list[tuple[str, str]]) -> str:
    """``tenant acme and 3 others``; that everything is comes first, since nothing else matters then."""
    first = ("all", "") if ("all", "") in pauses else pauses[0]
    others = len(pauses) - 1
    more = (
        f" and {others} {'other' if others == 1 else 'others'}; `clawq status` shows them" if others else ""
    )
    return _named(*first) + more


def _tell(scope: str, name: str, changed: bool, done: str, was: str, as_json: bool) -> int:
    if as_json:
        row: dict[str, Any] = {"scope": scope, "name": name or None, "changed": changed}
        words.write_json(row)
    else:
        words.write(f"{words.line(_named(scope, name))}: {done if changed else was}")
    return 0
