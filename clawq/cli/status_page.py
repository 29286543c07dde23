"""The page of `clawq status`: what needs a person or keeps jobs waiting comes first and in colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawq.cli import words
from clawq.cli.render import BAD, GOOD, QUIET, STATE_STYLE, WAITS, Column, Page, Part, state
from clawq.rules.alerts import PERSONS
from clawq.settings import PRESSURES

Document = dict[str, Any]

REFUSALS_SHOWN_S = 86_400
DEPTH_ROWS = 15
"""Of the table of what waits, and of the one of what was observed; --json has them all."""
NEARLY = 0.8
"""Of a budget: from here on it is shown first, and when it frees."""
TODAY_KINDS = 12
LONGEST_ALERT = 220


def draw(document: Document) -> Page:
    """The page for people."""
    page = Page()
    _draw_alerts(page, document["alerts"])
    page.pair("supervisor", *_supervisor(document))
    _draw_observing(page, document)
    _draw_host(page, document["host"])
    if any(row["reason"] == "ramp_up" for row in document["waiting_on"]):
        page.pair("ramp-up", ("after a crash or a wake jobs start by ones, twos and fours", WAITS))
    page.items("jobs", _counts(document))
    _draw_today(page, document)
    if document["resources"]:
        page.items("resources", _resources(document))
    if document["budgets"]:
        page.items("budgets", _budgets(document["budgets"]))
    _draw_running(page, document["running"])
    _draw_depth(page, document["depth"], document["now"])
    _draw_waiting(page, document)
    _draw_observed(page, document)
    _draw_refused(page, document)
    return page


def _draw_alerts(page: Page, alerts: list[Document]) -> None:
    for alert in alerts:
        person = alert["reason"] in PERSONS
        label = alert["reason"] if person else "alert"
        page.pair(label, (_shortened(alert["text"]), WAITS if person else BAD), (f": {alert['fix']}", QUIET))
    page.gap()


def _shortened(text: str) -> str:
    """An error that lists all that would have been right is long; its ends say what is wrong and what now."""
    if len(text) <= LONGEST_ALERT:
        return text
    return f"{text[: LONGEST_ALERT - 50].rstrip()} ... {text[-45:].lstrip()}"


def _draw_today(page: Page, document: Document) -> None:
    """What ended since midnight, a kind after the other, and what was put off."""
    kinds: dict[str, list[Document]] = {}
    for row in document["ended"]:
        kinds.setdefault(row["kind"], []).append(row)
    items: list[Part] = []
    for kind, rows in kinds.items():
        ends = ", ".join(f"{row['count']} {row['state']}" for row in rows)
        bad = any(row["state"] == "dead" for row in rows)
        items.append((f"{kind} {ends}", WAITS if bad else ""))
    if len(items) > TODAY_KINDS:
        items[TODAY_KINDS:] = [(f"and {len(items) - TODAY_KINDS} more kinds", QUIET)]
    if items:
        page.items("today", items)
    if document["deferred"]:
        rows = document["deferred"][:TODAY_KINDS]
        page.items("deferred", [f"{words.times(row['count'])}, {row['reason']}" for row in rows])


_ENDING = {
    "drain": "finishing what runs",
    "now": "ending its agents",
    "handover": "handing over",
}
"""What a supervisor does that has been asked to end, by the mode that its lock file names."""


def _supervisor(document: Document) -> list[Part]:
    found = document["supervisor"]
    if found["pid"] is None:
        return [("not running", BAD if document["alerts"] else QUIET)]
    said: Part = ("running", GOOD) if found["running"] else ("not ticking", BAD)
    since = words.short(max(0, document["now"] - found["since"]) / 1000)  # a clock may be set back
    # The lock file is written anew when a supervisor begins to end: `since` is then counted from that.
    doing = _ENDING.get(found["mode"])
    return [said, f", pid {found['pid']}, ", (f"{doing} for {since}", WAITS) if doing else f"up {since}"]


def _draw_host(page: Page, host: Document) -> None:
    procs, limit, tasks = host["user_procs"], host["max_user_procs"], host["tasks"]
    if tasks is not None:
        said = f"  {tasks['in_use']} of {tasks['limit']} threads"
        page.pair("processes", *page.gauge(tasks["in_use"] / tasks["limit"]), said, f", {procs} processes")
    elif procs is not None:
        if limit:
            page.pair("processes", *page.gauge(procs / limit), f"  {procs} of {limit}")
        else:
            page.pair("processes", f"{procs}, no limit")
    free, floor = host["free_mb"], host["min_free_mb"]
    if free is not None:
        page.pair("memory", *_room(page, free, floor), *_pressure(host))
    free, floor = host["free_disk_mb"], host["min_free_disk_mb"]
    if free is not None and floor:
        page.pair("disk", *_room(page, free, floor))


def _room(page: Page, free: int, floor: int | None) -> list[Part]:
    """What is left; the bar is full where the gate closes."""
    if not floor:
        return [f"{words.size(free)} free, no floor"]
    said = f"  {words.size(free)} free, floor {words.size(floor)}"
    return [*page.gauge(floor / free if free else 1.0), said]


def _pressure(host: Document) -> list[Part]:
    if host["pressure"] is None:
        return []
    level, most = PRESSURES.index(host["pressure"]), host["max_pressure"]
    closed = most in PRESSURES and level > PRESSURES.index(most)
    return [", ", (f"pressure {host['pressure']}", BAD if closed else WAITS if level else "")]


def _draw_observing(page: Page, document: Document) -> None:
    observed = document["observed"]
    if observed["since"] is None:
        return
    refused, put_off = (sum(row["count"] for row in observed[stage]) for stage in ("enqueue", "start"))
    since = words.ago(document["now"], observed["since"])
    would = f"enforcing would have refused {words.jobs(refused)} and put off {_starts(put_off)}"
    page.pair("observing", (f"for {since}, nothing is refused: {would}", WAITS))


def _starts(count: int) -> str:
    return "1 start" if count == 1 else f"{count} starts"


def _counts(document: Document) -> list[Part]:
    found: list[Part] = [(f"{n} {state}", STATE_STYLE[state]) for state, n in document["counts"].items() if n]
    if found:
        return found
    return [("none" if document["ever"] else "none: nothing was ever enqueued here", QUIET)]


def _resources(document: Document) -> list[Part]:
    """Those at rest or paused first."""
    paused = {row["name"] for row in document["pauses"] if row["scope"] == "resource"}
    first: list[Part] = []
    others: list[Part] = []
    for name, row in document["resources"].items():
        notes = [note] if (note := _rest(row)) else []
        if name in paused:
            notes.append("paused")
        text = f"{name} {row['in_use']}/{row['limit']}"
        if notes:
            first.append((f"{text} {', '.join(notes)}", WAITS))
        else:
            others.append((text, WAITS if row["in_use"] >= row["limit"] else ""))
    return first + others


def _rest(row: Document) -> str:
    if row["cooldown"] == "resting":
        return f"rests for {words.short(row['cooldown_s'])}"
    return {"probing": "one job probes", "returning": "coming back"}.get(row["cooldown"], "")


def _budgets(budgets: Document) -> list[Part]:
    """Those nearly used up first, with when they free and the tenants that have used up their part."""
    near: list[Part] = []
    others: list[Part] = []
    for name, row in budgets.items():
        text = f"{name} {row['used']}/{row['limit']} per {words.short(row['per_s'])}"
        frees = "" if row["frees_in_s"] is None else f", frees in {words.short(row['frees_in_s'])}"
        if row["used"] >= NEARLY * row["limit"]:
            near.append((f"{text}{frees}", WAITS))
        else:
            others.append(text)
        most = row["tenant_limit"]
        for tenant, used in row["per_tenant"].items() if most else ():
            if used >= NEARLY * most:
                near.append((f"{name} of {tenant} {used}/{most}", WAITS))
    return near + others


def _draw_running(page: Page, running: list[Document]) -> None:
    if not running:
        return
    page.title("Running")
    columns = [
        Column("ID", right=True),
        Column("KIND", elastic=True),
        Column("STATE"),
        Column("TENANT", elastic=True),
        Column("TRY", right=True),
        Column("PID", right=True, roomy=True),
        Column("FOR", right=True),
        Column("BEAT", right=True),
        Column("LEASE", right=True),
        Column("QUIET", right=True),
        Column("NEEDS", elastic=True),
    ]
    rows: list[list[Part]] = [
        [
            str(row["job_id"]),
            row["kind"],
            ("cancelling", "yellow") if row["cancel_at"] else state(row["state"]),
            row["tenant"],
            str(row["attempt"]),
            str(row["pid"] or "-"),
            words.short(row["age_s"]),
            words.short(row["beat_age_s"]),
            _lease(row),
            words.short(row["quiet_s"]),
            ", ".join(row["needs"]) or "-",
        ]
        for row in running
    ]
    page.table(columns, rows)


def _lease(row: Document) -> Part:
    """What is left of it; one that has run out is renewed at the next look, or its agent is ended."""
    left = row["lease_left_s"]
    return words.short(max(0, left)) if left > 0 else ("over", BAD)


def _draw_depth(page: Page, depth: list[Document], now: int) -> None:
    """What waits. Nobody knows when it will start; until when it is tried is known."""
    if not depth:
        return
    page.title("Queued")
    limited = any(row["until"] is not None for row in depth[:DEPTH_ROWS])
    columns = [
        Column("TENANT", elastic=True),
        Column("BAND"),
        Column("KIND", elastic=True),
        Column("JOBS", right=True),
        Column("OLDEST", right=True),
    ]
    rows: list[list[Part]] = [
        [row["tenant"], row["band"], row["kind"], str(row["queued"]), words.short(row["oldest_age_s"])]
        for row in depth[:DEPTH_ROWS]
    ]
    if limited:
        columns.append(Column("RETRYING UNTIL"))
        for cells, row in zip(rows, depth, strict=False):
            cells.append(words.moment(row["until"], now))
    page.table(columns, rows)
    if len(depth) > DEPTH_ROWS:
        rest = depth[DEPTH_ROWS:]
        more = f"{words.jobs(sum(row['queued'] for row in rest))} in {len(rest)} more rows"
        page.line((f"  and {more}: --json has them", QUIET))


def _draw_waiting(page: Page, document: Document) -> None:
    if not document["waiting_on"]:
        return
    page.title("Waiting on")
    page.table(
        [Column("REASON", elastic=True), Column("JOBS", right=True), Column("CLEARS IN", right=True)],
        [
            [row["reason"], str(row["jobs"]), words.short(row["retry_after_s"])]
            for row in document["waiting_on"]
        ],
    )


def _draw_refused(page: Page, document: Document) -> None:
    now = document["now"]
    lately = [row for row in document["refused"] if now - row["last_at"] < REFUSALS_SHOWN_S * 1000]
    _draw_counted(page, "Refused in the last day", [(None, row) for row in lately], now)


def _draw_observed(page: Page, document: Document) -> None:
    observed = document["observed"]
    if observed["since"] is None:
        return
    stages = (("enqueue", "refused"), ("start", "put off"))
    rows = [(what, row) for stage, what in stages for row in observed[stage]]
    rows.sort(key=lambda row: -row[1]["count"])
    _draw_counted(page, "Enforcing would have", rows, document["now"])


def _draw_counted(page: Page, title: str, rows: Sequence[tuple[str | None, Document]], now: int) -> None:
    """What was turned away, or would have been: how often, and when last. ``(what was done, row)``."""
    if not rows:
        return
    page.title(title)
    done = any(what is not None for what, _ in rows)
    columns = [Column("DONE")] if done else []
    columns += [
        Column("REASON", elastic=True),
        Column("KIND", elastic=True),
        Column("TENANT", elastic=True),
        Column("COUNT", right=True),
        Column("LAST", right=True),
    ]
    page.table(
        columns,
        [
            [
                *([what or ""] if done else []),
                row["reason"],
                row["kind"],
                row["tenant"],
                str(row["count"]),
                words.ago(now, row["last_at"]) + " ago",
            ]
            for what, row in rows[:DEPTH_ROWS]
        ],
    )
    if len(rows) > DEPTH_ROWS:
        page.line((f"  and {len(rows) - DEPTH_ROWS} more rows: --json has them", QUIET))
