"""`clawq show`: everything about one job."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

from clawq import desk
from clawq import states as job
from clawq.cli import params, words
from clawq.cli.look import note
from clawq.cli.tree import branches
from clawq.store import views

if TYPE_CHECKING:
    from collections.abc import Callable

    from clawq.cli.render import Page, Part

Document = dict[str, Any]

EVENTS_SHOWN = 20
PAYLOAD_CHARS = 2_000
WIDE = 100
"""Columns from which each attempt's peak has room beside its error."""


def show(ids: params.JobIds, as_json: params.AsJson = False) -> int:
    """Show everything about a job.

    Its row, its attempts, why it was deferred, and every state it was in.
    """
    first = True

    def tell(job_id: int) -> None:
        nonlocal first
        document, more, family, now = _read(job_id)
        if as_json:
            words.write_json(document)
            return
        if not first:
            words.write("")
        first = False
        _draw(document, more, family, now).print()

    return words.each(words.job_ids(ids), tell)


def _read(job_id: int) -> tuple[Document, Document, list[Document], int]:
    """The document, what people are shown besides it, its descendants, and the time."""
    with desk.reading() as here:
        db = here.queue(job_id)
        settings, _ = here.settings()
        document = views.show(db, settings, here.home.logs, job_id)
        family = views.below(db, settings, job_id) if document["children"] else []
        return document, views.more(db, job_id), family, here.now


def _draw(document: Document, more: Document, family: list[Document], now: int) -> Page:
    from clawq.cli.render import BAD, QUIET, Page, state

    row = document["job"]
    page = Page()
    page.pair("job", (str(row["id"]), "bold"), "  ", (row["kind"], "bold"))
    page.pair("state", state(row["state"]), (_since(row["state"], more, now), QUIET))
    if row["parent_id"] is not None:
        root = f"  (root {row['root_id']})" if row["root_id"] != row["parent_id"] else ""
        page.pair("child of", f"job {row['parent_id']}", (root, QUIET))
    if more["cancel_at"] and row["state"] in job.ACTIVE:
        page.pair("", (f"cancel asked for {words.ago(now, more['cancel_at'])} ago", BAD))
    if row["last_error"]:
        page.pair(
            "error",
            (row["last_error"], BAD),
            (f"  ({row['error_class']})" if row["error_class"] else "", QUIET),
        )
    if row["exit_code"] is not None:
        page.pair("exit code", str(row["exit_code"]))
    page.pair("tenant", row["tenant"])
    page.pair("band", row["band"], f", priority {row['priority']}" if row["priority"] else "")
    page.pair(
        "attempts", f"{row['attempts']} of {row['max_attempts']} charged", _retries(document["retries"])
    )
    if document["deferrals"]:
        page.pair("deferred", _deferred(document["deferrals"]))
    if any(row["peak_procs"] for row in document["attempts"]):
        page.pair("at its peak", _peak(document["attempts"]))
    if row["needs"]:
        page.pair("needs", ", ".join(row["needs"]))
    if more["exclusive"]:
        page.pair("exclusive", more["exclusive"])
    if row["dedupe_key"]:
        page.pair("dedupe key", row["dedupe_key"])
    for label, at in (
        ("created", row["created_at"]),
        ("not before", row["run_after"] if row["state"] in job.PENDING and row["run_after"] > now else None),
        ("stale at", row["stale_at"]),
        ("deadline", row["deadline_at"]),
        ("started", row["started_at"]),
        ("ended", row["ended_at"]),
    ):
        if at is not None:
            page.pair(label, _moment(at), (f"  {_relative(at, now)}", QUIET))
    if row["kind"] == job.ASK:
        page.pair("asks", row["command"][1])
    elif row["command"]:
        page.pair("command", shlex.join(row["command"]))
    page.pair("folder", row["cwd"])
    if more["payload"]:
        page.pair("payload", _compact(json.loads(more["payload"])))
    if document["result"] is not None:
        page.pair("result", _compact(document["result"]))
    _draw_tables(page, document, family, now)
    return page


def _draw_tables(page: Page, document: Document, family: list[Document], now: int) -> None:
    from clawq.cli.render import Column, state

    if document["attempts"]:
        page.title("Attempts")
        columns: list[tuple[Column, Callable[[Document], Part]]] = [
            (Column("NO", right=True), lambda row: str(row["number"])),
            (Column("STARTED"), lambda row: _moment(row["started_at"])),
            (Column("TOOK", right=True), lambda row: _took(row, now)),
            (Column("OUTCOME"), lambda row: _outcome(row["outcome"])),
            (Column("EXIT", right=True), _exit),
            (Column("ERROR", elastic=True), lambda row: row["error"] or ""),
        ]
        # On a narrow page the error needs the room more; the peak of all attempts stands above.
        if page.width >= WIDE and any(row["peak_procs"] for row in document["attempts"]):
            columns.insert(5, (Column("PROCS", right=True), lambda row: str(row["peak_procs"] or "-")))
            columns.insert(6, (Column("MEMORY", right=True), lambda row: words.size(row["peak_mb"])))
        page.table(
            [column for column, _ in columns],
            [[cell(row) for _, cell in columns] for row in document["attempts"]],
        )
    if family:
        page.title("Children")
        page.table(
            [Column("ID"), Column("KIND", elastic=True), Column("STATE"), Column("NOTE", elastic=True)],
            [
                [f"{branch}{row['id']}", row["kind"], state(row["state"]), note(row, now)]
                for branch, row in branches([document["job"], *family])[1:]
            ],
        )
    if document["effects"]:
        page.title("Effects")
        page.table(
            [
                Column("KEY", elastic=True),
                Column("SCOPE"),
                Column("STATE"),
                Column("ATTEMPT", right=True),
                Column("BEGUN"),
                Column("SETTLED"),
            ],
            [_effect(row) for row in document["effects"]],
        )
    if document["deferrals"]:
        page.title("Deferred")
        page.table(
            [Column("REASON", elastic=True), Column("COUNT", right=True), Column("FIRST"), Column("LAST")],
            [
                [row["reason"], str(row["count"]), _moment(row["first_at"]), _moment(row["last_at"])]
                for row in document["deferrals"]
            ],
        )
    events = document["events"][-EVENTS_SHOWN:]
    page.title("Events")
    page.table(
        [Column("AT"), Column("FROM"), Column("TO"), Column("REASON", elastic=True)],
        [[_moment(row["at"]), row["from"], state(row["to"]), row["reason"] or ""] for row in events],
    )
    if len(document["events"]) > len(events):
        page.line((f"  {len(document['events']) - len(events)} earlier ones: --json has them", "dim"))


def _effect(row: Document) -> list[Part]:
    color = {"begun": "red", "done": "green"}.get(row["state"], "dim")
    attempt = "-" if row["attempt"] is None else str(row["attempt"])
    settled = _moment(row["settled_at"])
    return [row["key"], row["scope"], (row["state"], color), attempt, _moment(row["begun_at"]), settled]


def _since(state: str, more: Document, now: int) -> str:
    age = words.ago(now, more["changed_at"])
    reason = f", {more['reason']}" if more["reason"] not in (None, state) else ""
    return f"  {age} ago{reason}" if state in job.ENDED else f"  for {age}{reason}"


def _retries(retries: Document) -> Part:
    if not retries:
        return ""
    return ("; tried again for " + ", ".join(f"{n} {reason}" for reason, n in retries.items()), "dim")


def _deferred(deferrals: list[Document]) -> str:
    """``38 times uid_procs, once resource:browser``, the most first."""
    most = sorted(deferrals, key=lambda row: -row["count"])
    return ", ".join(f"{words.times(row['count'])} {row['reason']}" for row in most)


def _peak(attempts: list[Document]) -> str:
    """What its process tree grew to, over all attempts."""
    procs = max(row["peak_procs"] or 0 for row in attempts)
    mb = max(row["peak_mb"] or 0 for row in attempts)
    return f"{procs} {'process' if procs == 1 else 'processes'}, {words.size(mb)}"


def _moment(at: int | None) -> str:
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))


def _relative(at: int, now: int) -> str:
    return f"in {words.short((at - now) / 1000)}" if at > now else f"{words.ago(now, at)} ago"


def _took(row: Document, now: int) -> str:
    if row["started_at"] is None:
        return "-"
    return words.ago(row["ended_at"] or now, row["started_at"])


def _outcome(outcome: str | None) -> Part:
    if outcome is None:
        return ("under way", "green")
    return (outcome, "green" if outcome == "succeeded" else "dim" if outcome == "cancelled" else "red")


def _exit(row: Document) -> str:
    if row["signal"] is not None:
        return f"sig {row['signal']}"
    return "-" if row["exit_code"] is None else str(row["exit_code"])


def _compact(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PAYLOAD_CHARS else f"{text[:PAYLOAD_CHARS]} ... ({len(text)} characters)"
