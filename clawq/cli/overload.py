"""`clawq config show --overload`: what each kind may expect of a full queue, in one table.

Whether it may wait and for how long, what bounds it, and what happens when it is full, busy, stale, late or
lost; then the bounds that all kinds have together.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from clawq import states as job
from clawq.config.explain import duration
from clawq.rules.fairness import share_slots

if TYPE_CHECKING:
    from clawq.cli.render import Page
    from clawq.settings import Kind, Settings

Document = dict[str, Any]

NARROWEST_BOUNDS = 26
"""Columns that the last column of the table needs; without them every kind is a block of its own."""

_OWN_OPTIONS = (
    "A job's own options count before its kind's: --band (and with it that band's defaults), --needs, "
    "--stale-after, --deadline, --max-attempts, --on-lost."
)


def contract(settings: Settings, default_max_procs: int | None) -> Document:
    """The document of ``--json``: ``mode``, ``kinds``, ``queue``. Durations as clawq.toml has them.

    ``default_max_procs``: what the gate on processes is when the file does not say.
    """
    return {
        "mode": settings.mode,
        "kinds": [_kind(settings, settings.kind(name)) for name in settings.kind_names],
        "queue": _queue(settings, default_max_procs),
    }


def _kind(settings: Settings, kind: Kind) -> Document:
    needs = {name: settings.resources[name] for name in kind.needs if name in settings.resources}
    spends = {name: (amount, settings.budgets[name]) for name, amount in kind.spends.items()}
    return {
        "kind": kind.name,
        "band": kind.band,
        "may_wait": kind.on_busy == "queue",
        "waits": {
            "stale_after": kind.stale_after,
            "deadline": kind.deadline,
            "max_age": duration(kind.max_age_ms),
        },
        "bounds": {
            "queue_cap": kind.queue_cap,
            "max_running": kind.max_running,
            "tenant_max_queued": settings.limits.max_queued_per_tenant,
            "tenant_max_running": settings.limits.max_running_per_tenant,
            "needs": {
                name: {"limit": each.limit, "min_free_mb": each.min_free_mb} for name, each in needs.items()
            },
            "spends": {
                name: {
                    "amount": amount,
                    "limit": budget.limit,
                    "per": duration(budget.per_ms),
                    "per_tenant": budget.per_tenant,
                }
                for name, (amount, budget) in spends.items()
            },
            "max_procs": kind.max_procs,
            "max_mb": kind.max_mb,
        },
        "full": "reject" if kind.queue_cap is None else kind.on_full,
        "busy": kind.on_busy,
        "degrade_to": kind.degrade_to if kind.on_busy == "degrade" else None,
        "refuse_hopeless": kind.refuse_hopeless,
        "stale": None if kind.stale_after is None else job.EXPIRED,
        "late": None if kind.deadline is None else job.DEAD,
        "lost": kind.on_lost,
        "max_attempts": kind.max_attempts,
    }


def _queue(settings: Settings, default_max_procs: int | None) -> Document:
    limits, host = settings.limits, settings.host
    shares = {job.BANDS.index(name): percent for name, percent in settings.band_shares.items()}
    slots = share_slots(shares, limits.max_running)
    procs = default_max_procs if host.max_user_procs is None else host.max_user_procs
    return {
        "max_running": limits.max_running,
        "max_running_per_tenant": limits.max_running_per_tenant,
        "max_running_per_workflow": limits.max_running_per_workflow,
        "max_queued": limits.max_queued,
        "kept_for_critical": limits.max_queued // 10,
        "max_queued_per_tenant": limits.max_queued_per_tenant,
        "max_held": limits.max_held,
        "reserve_after": duration(limits.reserve_after_ms),
        "age_boost": duration(limits.age_boost_ms),
        "shares": {
            job.BANDS[band]: {"percent": percent, "slots": slots[band]}
            for band, percent in sorted(shares.items())
        },
        "tenants": {
            name: {
                "weight": settings.tenant_weight(name),
                "max_running": settings.tenant_max_running(name),
                "max_queued": settings.tenant_max_queued(name),
            }
            for name in sorted(settings.tenants)
        },
        "host": {
            "max_user_procs": procs,
            "min_free_mb": host.min_free_mb,
            "max_pressure": host.max_pressure,
            "min_free_disk_mb": host.min_free_disk_mb,
            "retry_after": duration(host.retry_after_ms),
        },
    }


def draw(document: Document) -> Page:
    """The page for people: a table where it fits, else a block for each kind."""
    from clawq.cli.render import QUIET, WAITS, Page

    page = Page()
    if document["mode"] == "observe":
        page.paragraph(0, ('mode = "observe": nothing below is enforced, all of it is recorded', WAITS))
        page.gap()
    if not _draw_table(page, document["kinds"]):
        for row in document["kinds"]:
            _draw_block(page, row)
    page.title("All kinds together")
    for label, text in _together(document["queue"]):
        page.pair(label, text)
    page.gap()
    page.paragraph(0, (_OWN_OPTIONS, QUIET))
    return page


def _draw_table(page: Page, kinds: list[Document]) -> bool:
    """False, and nothing drawn, when the page is too narrow for it."""
    from clawq.cli.render import Column

    titles = ("KIND", "BAND", "MAY WAIT", "FULL", "BUSY", "STALE", "LATE", "LOST")
    rows = [[row["kind"], row["band"], *_cells(row)] for row in kinds]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    room = page.width - 2 - sum(widths) - 2 * len(widths)
    if room < NARROWEST_BOUNDS:
        return False
    lines: list[list[str]] = []
    for row, cells in zip(kinds, rows, strict=True):
        bounds = [line for item in _bounds(row) for line in textwrap.wrap(item, room, subsequent_indent="  ")]
        for number, line in enumerate(_side_by_side(bounds, room)):
            lines.append([*(cells if number == 0 else [""] * len(cells)), line])
    page.title("Each kind")
    page.table([Column(title) for title in (*titles, "BOUNDS")], lines)
    return True


def _side_by_side(items: list[str], room: int) -> list[str]:
    """As many on a line as fit."""
    lines = [""]
    for item in items:
        joined = f"{lines[-1]}; {item}" if lines[-1] else item
        if len(joined) <= room and not item.startswith(" "):
            lines[-1] = joined
        else:
            lines.append(item)
    return lines


def _cells(row: Document) -> list[str]:
    stale, late = row["waits"]["stale_after"], row["waits"]["deadline"]
    busy = {"queue": "waits", "reject": "refused", "degrade": f"as {row['degrade_to']}"}[row["busy"]]
    if row["refuse_hopeless"] and row["may_wait"]:
        busy += " if in time"
    lost = f"{row['max_attempts']} tries in {row['waits']['max_age']}"
    return [
        "yes" if row["may_wait"] else "no",
        {"reject": "refused", "drop_oldest": "drops oldest", "coalesce": "coalesced"}[row["full"]],
        busy,
        f"{stale}: expired" if stale else "never",
        f"{late}: dead" if late else "never",
        "asks a person" if row["lost"] == "unknown" else lost,
    ]


def _draw_block(page: Page, row: Document) -> None:
    from clawq.cli.render import QUIET, TITLE

    page.gap()
    page.line((row["kind"], TITLE), (f"  band {row['band']}", QUIET))
    page.pair("  may wait", _may_wait(row))
    page.pair("  bounds", "; ".join(_bounds(row)))
    page.pair("  full", _full(row))
    page.pair("  busy", _busy(row))
    page.pair("  stale", _stale(row["waits"]["stale_after"]))
    page.pair("  late", _late(row["waits"]["deadline"]))
    page.pair("  lost", _lost(row))


def _may_wait(row: Document) -> str:
    stale, late = row["waits"]["stale_after"], row["waits"]["deadline"]
    if not row["may_wait"]:
        return f"no: it becomes {row['degrade_to']}" if row["busy"] == "degrade" else "no"
    if stale:
        return f"yes, {_until(stale)}"
    return f"yes, while its deadline allows it: {_until(late)}" if late else "yes, as long as it takes"


def _until(moment: str) -> str:
    """A time of day or a duration, as clawq.toml has it."""
    return f"until {moment}" if ":" in moment else f"for {moment}"


def _bounds(row: Document) -> list[str]:
    bounds = row["bounds"]
    found = [
        f"waiting: {_and_a_tenant(bounds['queue_cap'], bounds['tenant_max_queued'])}",
        f"running: {_and_a_tenant(bounds['max_running'], bounds['tenant_max_running'])}",
    ]
    for name, need in bounds["needs"].items():
        floor = "" if need["min_free_mb"] is None else f", {need['min_free_mb']} MB free"
        found.append(f"{name}: {need['limit']} slot{'s' * (need['limit'] != 1)}{floor}")
    for name, spend in bounds["spends"].items():
        most = _and_a_tenant(spend["limit"], spend["per_tenant"])
        found.append(f"{name}: {spend['amount']} in {spend['per']} of {most}")
    tree = [
        f"{bounds[key]} {unit}"
        for key, unit in (("max_procs", "processes"), ("max_mb", "MB"))
        if bounds[key] is not None
    ]
    return [*found, f"tree: {', '.join(tree)}"] if tree else found


def _and_a_tenant(most: int | None, tenants: int | None) -> str:
    if most is None:
        return f"{tenants} a tenant"
    return str(most) if tenants is None else f"{most} ({tenants} a tenant)"


def _full(row: Document) -> str:
    if row["bounds"]["queue_cap"] is None:
        return "refused: queue_full or tenant_queue_full, and when to try again"
    refused = "refused: kind_queue_full, and when to try again"
    if row["full"] == "drop_oldest":
        return f"takes the place of its tenant's oldest that never started; without one {refused}"
    if row["full"] == "coalesce":
        return f"joins one that waits and is alike; without one {refused}"
    return refused


def _busy(row: Document) -> str:
    if row["busy"] == "reject":
        return "refused: over_capacity, and when to try again"
    if row["busy"] == "degrade":
        return f"taken as {row['degrade_to']}, and told so; see there"
    hopeless = "; refused when it could not start in time: would_expire" if row["refuse_hopeless"] else ""
    return f"waits its turn{hopeless}"


def _stale(moment: str | None) -> str:
    if moment is None:
        return "never"
    return f"expired, when not started {'by' if ':' in moment else 'in'} {moment}"


def _late(moment: str | None) -> str:
    if moment is None:
        return "never"
    return f"not ended {'by' if ':' in moment else 'in'} {moment}: dead, or expired if it never started"


def _lost(row: Document) -> str:
    if row["lost"] == "unknown":
        return "unknown: a person says whether it happened"
    tries = row["max_attempts"]
    if tries == 1:
        return "dead: it has one attempt"
    return f"tried again, {tries} attempts in all within {row['waits']['max_age']}"


def _together(queue: Document) -> list[tuple[str, str]]:
    parts = f"{queue['max_running_per_tenant']} a tenant, {queue['max_running_per_workflow']} a workflow"
    found = [
        ("running", f"{queue['max_running']} at once; {parts}"),
        ("waiting", f"{_waiting(queue)}; {queue['max_queued_per_tenant']} a tenant"),
        ("held", f"{queue['max_held']} for a person at once, then refused: held_full"),
    ]
    if queue["shares"]:
        shares = [
            f"{band} {share['percent']:g}% ({share['slots']} slot{'s' * (share['slots'] != 1)})"
            for band, share in queue["shares"].items()
        ]
        found.append(("shares", ", ".join(shares)))
    for number, (name, tenant) in enumerate(queue["tenants"].items()):
        text = (
            f"{name}: {tenant['max_running']} running, {tenant['max_queued']} waiting, "
            f"weight {tenant['weight']:g}"
        )
        found.append(("" if number else "tenants", text))
    found.append(("host", _host(queue["host"])))
    rise = f"a rise of one band for each {queue['age_boost']} of waiting"
    reserved = (
        f"after {queue['reserve_after']} of waiting only for slots that others hold, reserved resources"
    )
    found.append(("patience", f"{rise}; {reserved}"))
    return found


def _waiting(queue: Document) -> str:
    kept = queue["kept_for_critical"]
    last = f", the last {kept} of them only for critical jobs and children" if kept else ""
    return f"{queue['max_queued']} at once{last}"


def _host(host: Document) -> str:
    """When the gates close."""
    found = []
    if isinstance(host["max_user_procs"], int):
        found.append(f"{host['max_user_procs']} processes of the account")
    if host["min_free_mb"] != "off":
        found.append(f"less than {host['min_free_mb']} MB of free memory")
    if host["max_pressure"] != "off":
        found.append(f"memory pressure above {host['max_pressure']}")
    if host["min_free_disk_mb"] != "off":
        found.append(f"less than {host['min_free_disk_mb']} MB of free disk")
    return f"no start at {'; '.join(found)}" if found else "every gate is off"
