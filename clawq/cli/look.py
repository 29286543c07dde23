"""`clawq list`, `dead` and `unknown`: rows of jobs."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq import desk
from clawq import states as job
from clawq.cli import params, words
from clawq.cli.tree import branches
from clawq.store import effects, views

if TYPE_CHECKING:
    from collections.abc import Callable

    from clawq.cli.render import Column, Page, Part
    from clawq.desk import Desk

Row = dict[str, Any]

ROWS = "50"
MOST_ROWS = 100_000
DAYS = 14
"""Over which deaths are counted."""
TAIL_LINES = 5
"""Of a dead job's last output."""


def list_jobs(
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only jobs in this state.")
    ] = None,
    kind: params.OfKind = None,
    tenant: params.OfTenant = None,
    limit: params.Limit = ROWS,
    as_json: params.AsJson = False,
) -> int:
    """List jobs, the latest first.

    With --state queued those that have waited longest come first, with --state scheduled those that
    are due next. Children stand below their parent.
    """
    if state is not None:
        state = words.known(state, job.STATES, "state")
    with desk.reading() as here:
        rows = _rows(here, state, kind, tenant, limit)
    if as_json:
        words.write_json(rows)
    elif not rows:
        words.note("no such jobs" if state or kind or tenant else "no jobs yet")
    else:
        _draw_list(rows, here.now).print()
    return 0


def dead(kind: params.OfKind = None, limit: params.Limit = ROWS, as_json: params.AsJson = False) -> int:
    """Show jobs that failed for good, with their last error.

    And their last lines of output, and how many died by kind and day.
    """
    with desk.reading() as here:
        rows = _rows(here, job.DEAD, kind, None, limit)
        tails: dict[int, str] = {}
        deaths: list[tuple[str, int]] = []
        if rows and here.db and not as_json:
            tails = views.tails(here.db, [row["id"] for row in rows])
            deaths = views.deaths(here.db, here.now - DAYS * 86_400_000, kind)
    if as_json:
        words.write_json(rows)
    elif not rows:
        words.note("no dead jobs")
    else:
        _draw_dead(rows, tails, deaths, here.now).print()
    return 0


def unknown(limit: params.Limit = ROWS, as_json: params.AsJson = False) -> int:
    """Show jobs whose outcome nobody knows.

    A person has to look, and say it with `clawq reconcile`.
    """
    with desk.reading() as here:
        rows = _rows(here, job.UNKNOWN, None, None, limit)
        begun = effects.open_of(here.db, [row["id"] for row in rows]) if here.db else {}
    rows = [row | {"effects": begun.get(row["id"], [])} for row in rows]
    if as_json:
        words.write_json(rows)
    elif not rows:
        words.note("no unknown jobs")
    else:
        _draw_unknown(rows, here.now).print()
    return 0


def _rows(here: Desk, state: str | None, kind: str | None, tenant: str | None, limit: str) -> list[Row]:
    most = words.number(limit, "--limit", 1, MOST_ROWS)
    settings, _ = here.settings()
    if kind is not None:
        words.known(kind, here.kinds(), "kind")
    if here.db is None:
        return []
    return views.job_list(here.db, settings, state=state, kind=kind, tenant=tenant, limit=most)


def _draw_list(rows: list[Row], now: int) -> Page:
    from clawq.cli.render import Column, Page, state

    columns: list[tuple[Column, Callable[[Row], Part]]] = [
        (Column("ID", right=True), lambda row: str(row["id"])),
        (Column("KIND", elastic=True), lambda row: row["branch"] + row["kind"]),
        (Column("STATE"), lambda row: state(row["state"])),
        (Column("TRIES", right=True), lambda row: f"{row['attempts']}/{row['max_attempts']}"),
        (Column("AGE", right=True), lambda row: words.ago(now, row["created_at"])),
        (Column("NOTE", elastic=True), lambda row: note(row, now)),
    ]
    # What is the same everywhere in a simple queue would only take room from the note.
    if any(row["band"] != "normal" for row in rows):
        columns.insert(3, (Column("BAND"), lambda row: row["band"]))
    if any(row["tenant"] != job.DEFAULT_TENANT for row in rows):
        columns.insert(3, (Column("TENANT", elastic=True), lambda row: row["tenant"]))
    rows = [row | {"branch": branch} for branch, row in branches(rows)]
    page = Page()
    page.table(
        [column for column, _ in columns], [[cell(row) for _, cell in columns] for row in rows], indent=0
    )
    return page


def note(row: Row, now: int) -> Part:
    """The one thing worth knowing about a job in this state."""
    if row["kind"] == job.ASK and not row["last_error"]:
        return str(row["command"][1])
    if row["state"] == job.SCHEDULED:
        due = f"in {words.short((row['run_after'] - now) / 1000)}" if row["run_after"] > now else "due"
        return f"{due}; {row['last_error']}" if row["last_error"] else due
    if row["state"] == job.SUCCEEDED:
        return ""
    return row["last_error"] or ""


def _draw_dead(rows: list[Row], tails: dict[int, str], deaths: list[tuple[str, int]], now: int) -> Page:
    from clawq.cli.render import BAD, QUIET, Page

    page = Page()
    for row in rows:
        page.gap()
        attempts = f"{row['attempts']} of {row['max_attempts']} attempts"
        ended = f"{words.ago(now, row['ended_at'])} ago"
        page.line(
            f"{row['id']}  ", (row["kind"], "bold"), (f"  {ended}, {attempts}, tenant {row['tenant']}", QUIET)
        )
        # Whole: its end often says what to do.
        page.paragraph(4, (row["last_error"] or "no error was recorded", BAD))
        tail = tails.get(row["id"], "").splitlines()[-TAIL_LINES:]
        page.foreign("\n".join(tail), by=6)
    _draw_deaths(page, deaths)
    page.gap()
    page.line(("`clawq logs ID` shows all output, `clawq retry ID` runs it again.", QUIET))
    return page


def _draw_deaths(page: Page, deaths: list[tuple[str, int]]) -> None:
    """How many a day: one column for each of the latest days on which something died."""
    from clawq.cli.render import Column

    if not deaths:
        return
    found = Counter((kind, time.strftime("%m-%d", time.localtime(at / 1000))) for kind, at in deaths)
    days = list(dict.fromkeys(time.strftime("%m-%d", time.localtime(at / 1000)) for _, at in deaths))[:7]
    kinds = sorted({kind for kind, _ in deaths})
    page.title("Dead by kind and day")
    page.table(
        [Column("KIND", elastic=True), *(Column(day, right=True) for day in days)],
        [[kind, *(str(found[kind, day] or "-") for day in days)] for kind in kinds],
    )


def _draw_unknown(rows: list[Row], now: int) -> Page:
    from clawq.cli.render import BAD, QUIET, Page

    page = Page()
    for row in rows:
        page.gap()
        about = f"  started {words.ago(now, row['started_at'])} ago, "
        about += f"{row['attempts']} of {row['max_attempts']} attempts, tenant {row['tenant']}"
        page.line(f"{row['id']}  ", (row["kind"], "bold"), (about, QUIET))
        page.paragraph(4, (row["last_error"] or "its end was not seen", BAD))
        for each in row["effects"]:
            scope = "for its tenant, " if each["scope"] == "tenant" else ""
            begun = f"  {scope}begun {words.ago(now, each['begun_at'])} ago"
            page.line("    open: ", each["key"], (begun, QUIET))
    page.gap()
    page.paragraph(0, ("Look whether it happened, then say so:", QUIET))
    for verdict, meaning in (
        ("--succeeded", "it happened: what is open is done"),
        ("--failed", "it did not, and shall not be tried again"),
        ("--requeue", "it did not: run it again from the start"),
    ):
        page.line(f"  clawq reconcile ID {verdict:<13}", (meaning, QUIET))
    return page
