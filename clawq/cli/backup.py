"""`clawq backup` and `clawq restore`: a copy of the queue for bad days, and the way back from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq import states as job
from clawq.cli import params, words
from clawq.paths import find_home

if TYPE_CHECKING:
    from clawq.backups import Restored
    from clawq.store.copies import Content

SHOWN = 10
"""Job numbers in one line of text; --json has all."""

File = Annotated[str, typer.Argument(metavar="FILE", help="The copy.", show_default=False)]


def backup(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
    as_json: params.AsJson = False,
) -> int:
    """Copy the queue to FILE, while everything goes on.

    The copy shows one moment, is checked before it appears, and is one file that only you can read. It holds
    jobs, attempts, effects and keys; clawq.toml and the logs of the attempts are files of their own.
    """
    from clawq import backups

    made = backups.back_up(find_home(), file, force)
    if as_json:
        words.write_json(
            {"file": made.path, "bytes": made.size, "at": made.at, "verified": True, **_content(made.content)}
        )
        return 0
    words.write(f"{words.line(made.path)}: {_summary(made.content)}; {_bytes(made.size)}, checked")
    return 0


def restore(file: File, as_json: params.AsJson = False) -> int:
    """Put the queue in FILE in this one's place, and leave it paused.

    Refused while a supervisor runs or an agent is alive. What was done since the copy was made stays done:
    jobs that ended meanwhile, effects and keys are taken over, jobs accepted meanwhile stay, and numbers go
    on above both. The former database is kept beside the new one.
    """
    from clawq import backups

    done = backups.restore(find_home(), file)
    if as_json:
        words.write_json(
            {
                "file": done.source,
                "replaced": done.replaced,
                "replaced_readable": done.readable,
                "paused": True,
                "backup": _content(done.backup),
                **_content(done.content),
                "kept": done.merged.kept,
                "ended": done.merged.ended,
                "pruned": done.merged.pruned,
                "not_kept": done.merged.strangers,
                "unknown": done.settled.unknown,
                "to_judge": done.settled.to_judge,
                "next_job": done.next_job,
            }
        )
        return 0
    for line in _told(done):
        words.write(words.line(line))
    return 0


def _told(done: Restored) -> list[str]:
    merged, settled = done.merged, done.settled
    lines = [f"restored {done.source}: {_summary(done.backup)}"]
    if done.replaced is not None:
        lines.append(f"the former database is kept: {done.replaced}")
    if not done.readable:
        lines.append("it could not be read: what was accepted or ended after the copy was made is not known")
    if merged.ended or merged.pruned:
        lines.append(
            f"ended since the copy was made, and stay so: {words.jobs(merged.ended + merged.pruned)}"
        )
    if merged.kept:
        lines.append(f"accepted since the copy was made, and kept: {words.jobs(merged.kept)}")
    if merged.strangers:
        lines.append(
            f"only in the former database, since another job has the number: {words.jobs(merged.strangers)}"
        )
    if settled.to_judge:
        lines.append(
            f"their attempt files tell how they ended, `clawq run` reads them: {_ids(settled.to_judge)}"
        )
    if settled.unknown:
        lines.append(f"nobody knows how they ended (`clawq unknown`): {_ids(settled.unknown)}")
    lines.append(f"the queue holds {_summary(done.content)}; the next job is {done.next_job}")
    lines.append("everything is paused: look with `clawq list`, settle unknown jobs with `clawq reconcile`,")
    lines.append("then `clawq resume`, and `clawq run` where no service starts it")
    return lines


def _ids(ids: list[int]) -> str:
    shown = " ".join(map(str, ids[:SHOWN]))
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"job{'s' if len(ids) > 1 else ''} {shown}{more}"


def _content(content: Content) -> dict[str, Any]:
    return {
        "schema": content.schema,
        "jobs": content.jobs,
        "counts": {state: content.counts.get(state, 0) for state in job.STATES},
        "newest_at": content.newest_at,
    }


def _summary(content: Content) -> str:
    counts = [f"{content.counts[state]} {state}" for state in job.STATES if content.counts.get(state)]
    return words.jobs(content.jobs) + (f" ({', '.join(counts)})" if counts else "")


def _bytes(size: int) -> str:
    return f"{-(-size // 1024)} KB" if size < 1024 * 1024 else words.size(size // (1024 * 1024))
