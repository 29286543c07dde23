"""`clawq why`: what a job waits for, in figures, and what clears it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawq import desk
from clawq import states as job
from clawq.cli import params, words
from clawq.store.why import PUBLIC
from clawq.store.why import why as ask

if TYPE_CHECKING:
    from clawq.cli.render import Page

Document = dict[str, Any]


def why(ids: params.JobIds, as_json: params.AsJson = False) -> int:
    """Say why a job does not run yet, and what has to happen first."""

    def tell(job_id: int) -> None:
        with desk.reading() as here:
            settings, _ = here.settings()
            document = ask(here.queue(job_id), settings, job_id, here.now, here.supervisor().doing)
        if as_json:
            words.write_json({key: document[key] for key in PUBLIC})
        else:
            draw(document, here.now).print()

    return words.each(words.job_ids(ids), tell)


def draw(document: Document, now: int) -> Page:
    """The page for people; `now` in ms."""
    from clawq.cli.render import BAD, QUIET, WAITS, Page, state

    page = Page()
    page.line(
        f"job {document['job_id']} is ", state(document["state"]), _in_short(document), _until(document, now)
    )
    for row in document["blocked_by"]:
        since = f"  for {words.ago(now, row['since'])}" if row["since"] is not None else ""
        style = BAD if row["reason"] in ("no_supervisor", "never_fits", "unknown") else WAITS
        page.line("  ", (row["reason"], style), _figures(row), (since, QUIET))
        page.paragraph(4, f"until {row['clears_when']}")
    for row in document["deferrals"]:
        page.line(
            ("  deferred ", QUIET),
            words.times(row["count"]),
            (f", {row['reason']}, last {words.ago(now, row['last_at'])} ago", QUIET),
        )
    return page


def _in_short(document: Document) -> str:
    if document["blocked_by"]:
        return ""
    if document["state"] == job.QUEUED:
        return ": next in turn after others of its lane" if document["behind"] else ": next in turn"
    if document["state"] in job.ENDED:
        return f": nothing keeps it; `clawq show {document['job_id']}` tells how it went"
    if document["state"] in job.ACTIVE:
        return f": `clawq logs -f {document['job_id']}` follows it"
    return ": nothing keeps it"


def _until(document: Document, now: int) -> str:
    """What is promised to a job that is given up at some time; nobody can promise when it starts."""
    if document["until"] is None:
        return ""
    blocked = document["state"] == job.QUEUED and document["blocked_by"]
    waiting = ": waiting for capacity, retrying until" if blocked else ", given up at"
    return f"{waiting} {words.moment(document['until'], now)}"


def _figures(row: Document) -> str:
    measured, limit = row["measured"], row["limit"]
    if measured is None:
        return ""
    if limit is None:
        return f"  {measured}"
    if row["reason"] in ("low_memory", "low_disk"):
        return f"  {measured} MB free, floor {limit} MB"  # as what clears it says it
    if row["reason"] == "uid_procs":
        return f"  {measured} processes, limit {limit}"
    if row["reason"] == "memory_pressure":
        return f"  {measured}, limit {limit}"
    if row["reason"].startswith("cooldown:"):
        return f"  {measured} of {limit} are back"
    return f"  {measured} of {limit}"
