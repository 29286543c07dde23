"""`clawq status`: is it running, what runs, what waits and for what, and does anything need a person."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq import job
from clawq.cli import desk, params, words
from clawq.errors import UsageError
from clawq.store import views

if TYPE_CHECKING:
    from clawq.cli.desk import Desk
    from clawq.cli.render import Page, Part
    from clawq.settings import Settings

Document = dict[str, Any]

WATCH_S = 1.0
REFUSALS_SHOWN_S = 86_400
DEPTH_ROWS = 15
"""Of the table of what waits; --json has them all."""


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh in place until Ctrl-C.")] = False,
    as_json: params.AsJson = False,
) -> int:
    """Show the supervisor, the host, what runs, what waits and why."""
    if watch:
        return _watch(as_json)
    document = look()
    if as_json:
        words.write_json(_public(document))
    else:
        draw(document).print()
    return 0


def _watch(as_json: bool) -> int:
    import sys
    import time

    if as_json:
        while True:
            words.write_json(_public(look()))
            sys.stdout.flush()
            time.sleep(WATCH_S)
    if not sys.stdout.isatty():
        raise UsageError("--watch needs a terminal", "leave it out, or add --json for a document each second")
    from clawq.cli.render import watch

    watch(lambda: draw(look()), WATCH_S)
    return 0


def look() -> Document:
    """The document of ``status --json``, times in ms, with ``pauses`` and ``now`` besides."""
    with desk.reading() as here:
        settings, broken = here.settings()
        document = views.status(here.db, settings, here.now)
        document["supervisor"] = desk.look_for_supervisor(here.home, here.now)._asdict()
        queued = document["counts"][job.QUEUED]
        if queued and not document["supervisor"]["running"]:
            # What the lanes were told is only as good as whoever would tell them something new.
            document["waiting_on"] = [{"reason": "no_supervisor", "jobs": queued, "retry_after_s": None}]
        document["budgets"] = {}
        document["host"] = _host(settings)
        document["now"] = here.now
        document["ever"] = here.db is not None
        document["alerts"] = _alerts(document, broken)
        _add_silence(document, here)
    return document


PUBLIC = (
    "supervisor",
    "counts",
    "depth",
    "running",
    "waiting_on",
    "refused",
    "resources",
    "budgets",
    "host",
    "alerts",
)
_PRIVATE = ("log", "exclusive", "cancel_at")


def _public(document: Document) -> Document:
    public = {key: document[key] for key in PUBLIC}
    public["running"] = [
        {key: value for key, value in row.items() if key not in _PRIVATE} for row in document["running"]
    ]
    public["host"] = {key: value for key, value in document["host"].items() if key != "min_free_mb"}
    return public


def _host(settings: Settings) -> Document:
    """What the gates look at."""
    from clawq.host import load

    limit = settings.host.max_user_procs
    found: Document = {
        "user_procs": None,
        "max_user_procs": limit if isinstance(limit, int) else None,
        "free_mb": None,
        "pressure": None,
        "min_free_mb": settings.host.min_free_mb if isinstance(settings.host.min_free_mb, int) else None,
    }
    try:
        if limit is None:
            found["max_user_procs"] = load.default_max_user_procs()
        sample = load.sample()
        found.update(user_procs=sample.user_procs, free_mb=sample.free_mb)
    except Exception:  # a machine in trouble is when people ask: whatever cannot be measured is left out
        pass
    return found


def _add_silence(document: Document, here: Desk) -> None:
    """``quiet_s``: since the agent last wrote anything. One stat for each job that runs."""
    for row in document["running"]:
        try:
            written = os.stat(os.path.join(here.home.logs, row["log"])).st_mtime
        except OSError:
            continue
        row["quiet_s"] = max(0.0, round(here.now / 1000 - written, 1))


def _alerts(document: Document, broken: str | None) -> list[Document]:
    """[{reason, text}]: what somebody should know, the worst first."""
    counts, supervisor = document["counts"], document["supervisor"]
    found: list[tuple[str, str]] = []
    if broken:
        found.append(("config", broken))
    waiting = counts[job.QUEUED] + counts[job.SCHEDULED]
    pid = supervisor["pid"]
    if pid is not None and not supervisor["running"]:
        silent = words.short(supervisor["last_tick_age_s"])
        text = f"the supervisor has been silent for {silent}: end it with `kill -9 {pid}`, its agents live on"
        found.append(("supervisor_silent", text))
    elif pid is None and (waiting or document["running"]):
        what = f"{words.jobs(waiting)} waiting" if waiting else "agents running"
        found.append(("no_supervisor", f"{what}, and no supervisor: start one with `clawq run`"))
    if counts[job.UNKNOWN]:
        text = f"{words.jobs(counts[job.UNKNOWN])} with an outcome nobody knows: see `clawq unknown`"
        found.append(("unknown", text))
    for row in document["waiting_on"]:
        if row["reason"] == "never_fits":
            text = f"{words.jobs(row['jobs'])} can never start within the limits of clawq.toml"
            found.append(("never_fits", text))
    for pause in document["pauses"]:
        what = "everything" if pause["scope"] == "all" else f"{pause['scope']} {pause['name']}"
        since = words.short((document["now"] - pause["since"]) / 1000)
        lift = views.resume_command(pause["scope"], pause["name"])
        found.append(("paused", f"{what} is paused, for {since}: `{lift}`"))
    if counts[job.HELD]:
        text = f"{words.jobs(counts[job.HELD])} held for a person: see `clawq list --state held`"
        found.append(("held", text))
    return [{"reason": reason, "text": text} for reason, text in found]


_WAITS = ("paused", "held")
"""Alerts that a person has brought about; the others need one."""


def draw(document: Document) -> Page:
    """The page for people."""
    from clawq.cli.render import BAD, WAITS, Page

    page = Page()
    page.pair("supervisor", *_supervisor(document))
    _draw_host(page, document["host"])
    page.items("jobs", _counts(document))
    if document["resources"]:
        page.items("resources", map(_resource, document["resources"].items()))
    for number, alert in enumerate(document["alerts"]):
        label = "" if number else "alerts"
        page.pair(label, (alert["text"], WAITS if alert["reason"] in _WAITS else BAD))
    _draw_tables(page, document)
    return page


_ENDING = {
    "drain": "finishing what runs",
    "now": "ending its agents",
    "handover": "handing over",
}
"""What a supervisor does that has been asked to end, by the mode that its lock file names."""


def _supervisor(document: Document) -> list[Part]:
    from clawq.cli.render import BAD, GOOD, QUIET, WAITS

    found = document["supervisor"]
    if found["pid"] is None:
        return [("not running", BAD if document["alerts"] else QUIET)]
    said: Part = ("running", GOOD) if found["running"] else ("not ticking", BAD)
    since = words.short((document["now"] - found["since"]) / 1000)
    # The lock file is written anew when a supervisor begins to end: `since` is then counted from that.
    doing = _ENDING.get(found["mode"])
    return [said, f", pid {found['pid']}, ", (f"{doing} for {since}", WAITS) if doing else f"up {since}"]


def _draw_host(page: Page, host: Document) -> None:
    procs, limit = host["user_procs"], host["max_user_procs"]
    if procs is not None:
        if limit:
            page.pair("processes", *page.gauge(procs / limit), f"  {procs} of {limit}")
        else:
            page.pair("processes", f"{procs}, no limit")
    free, floor = host["free_mb"], host["min_free_mb"]
    if free is not None:
        if floor:
            said = f"  {words.size(free)} free, floor {words.size(floor)}"
            page.pair("memory", *page.gauge(floor / free if free else 1.0), said)
        else:
            page.pair("memory", f"{words.size(free)} free, no floor")


def _counts(document: Document) -> list[Part]:
    from clawq.cli.render import QUIET, STATE_STYLE

    found: list[Part] = [(f"{n} {state}", STATE_STYLE[state]) for state, n in document["counts"].items() if n]
    if found:
        return found
    return [("none" if document["ever"] else "none: nothing was ever enqueued here", QUIET)]


def _resource(item: tuple[str, Document]) -> Part:
    from clawq.cli.render import WAITS

    name, row = item
    return (f"{name} {row['in_use']}/{row['limit']}", WAITS if row["in_use"] >= row["limit"] else "")


def _draw_tables(page: Page, document: Document) -> None:
    from clawq.cli.render import Column, state

    if document["running"]:
        page.title("Running")
        page.table(
            [
                Column("ID", right=True),
                Column("KIND", elastic=True),
                Column("STATE"),
                Column("TENANT", elastic=True),
                Column("TRY", right=True),
                Column("PID", right=True),
                Column("FOR", right=True),
                Column("QUIET", right=True),
                Column("NEEDS", elastic=True),
            ],
            [
                [
                    str(row["job_id"]),
                    row["kind"],
                    ("cancelling", "yellow") if row["cancel_at"] else state(row["state"]),
                    row["tenant"],
                    str(row["attempt"]),
                    str(row["pid"] or "-"),
                    words.short(row["age_s"]),
                    words.short(row["quiet_s"]),
                    ", ".join(row["needs"]) or "-",
                ]
                for row in document["running"]
            ],
        )
    if document["depth"]:
        _draw_depth(page, document["depth"])
    if document["waiting_on"]:
        page.title("Waiting on")
        page.table(
            [Column("REASON", elastic=True), Column("JOBS", right=True), Column("AGAIN IN", right=True)],
            [
                [row["reason"], str(row["jobs"]), words.short(row["retry_after_s"])]
                for row in document["waiting_on"]
            ],
        )
    now = document["now"]
    lately = [row for row in document["refused"] if now - row["last_at"] < REFUSALS_SHOWN_S * 1000]
    if lately:
        page.title("Refused in the last day")
        page.table(
            [
                Column("REASON"),
                Column("KIND", elastic=True),
                Column("TENANT", elastic=True),
                Column("COUNT", right=True),
                Column("LAST", right=True),
            ],
            [
                [
                    row["reason"],
                    row["kind"],
                    row["tenant"],
                    str(row["count"]),
                    words.short((now - row["last_at"]) / 1000) + " ago",
                ]
                for row in lately
            ],
        )


def _draw_depth(page: Page, depth: list[Document]) -> None:
    from clawq.cli.render import Column

    page.title("Queued")
    page.table(
        [
            Column("TENANT", elastic=True),
            Column("BAND"),
            Column("KIND", elastic=True),
            Column("JOBS", right=True),
            Column("OLDEST", right=True),
        ],
        [
            [row["tenant"], row["band"], row["kind"], str(row["queued"]), words.short(row["oldest_age_s"])]
            for row in depth[:DEPTH_ROWS]
        ],
    )
    if len(depth) > DEPTH_ROWS:
        rest = depth[DEPTH_ROWS:]
        more = f"{words.jobs(sum(row['queued'] for row in rest))} in {len(rest)} more rows"
        page.line((f"  and {more}: --json has them", "dim"))
