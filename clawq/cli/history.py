"""`clawq history`: how the queue and the machine have been, as plots."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Annotated, Any

import typer

from clawq import desk, when
from clawq import states as job
from clawq.cli import params, words
from clawq.store import counts
from clawq.store.counts import HOUR_MS

Document = dict[str, Any]

DEFAULT_MS = 86_400_000
DEAD_AT_LEAST_MS = 7 * 86_400_000
"""Deaths are told of a week: nobody asks for them by the hour."""


def history(
    since: Annotated[
        str | None, typer.Option("--since", metavar="DURATION", help="How far back; default 1d.")
    ] = None,
    as_json: params.AsJson = False,
) -> int:
    """Plot depth, age, waits, deferrals, the machine and what died."""
    span = DEFAULT_MS if since is None else when.duration(since)
    document = look(span)
    if as_json:
        words.write_json(document)
        return 0
    from clawq.cli.history_page import draw

    draw(document).print()
    return 0


def look(span: int) -> Document:
    """{``now_at``, ``since_at``, ``samples``, ``hours``, ``deferred``, ``dead``}, times in epoch ms.

    ``samples``: one a minute while a supervisor ran. ``hours``: {at, waited and run: {n, mean_s}, started,
    deferred, ended: {state: n}}. ``deferred``: {reason: n}. ``dead``: [{day, kind, n}], of a week at least.
    """
    with desk.reading() as here:
        begin = here.now - span
        samples: list[Document] = []
        hourly: counts.Counts = {}
        if here.db is not None:
            samples = counts.samples(here.db, begin)
            hourly = counts.hourly(here.db, min(begin, here.now - DEAD_AT_LEAST_MS)).counts
    shown = {key: count for key, count in hourly.items() if key.hour >= begin // HOUR_MS}
    by_hour: dict[int, counts.Counts] = defaultdict(dict)
    for key, count in shown.items():
        by_hour[key.hour][key] = count
    return {
        "now_at": here.now,
        "since_at": begin,
        "samples": samples,
        "hours": [_hour(hour, by_hour[hour]) for hour in sorted(by_hour)],
        "deferred": dict(_by_word(shown, "deferred").most_common()),
        "dead": _dead(hourly),
    }


def _hour(hour: int, here: counts.Counts) -> Document:
    ended: Counter[str] = Counter()
    for word, n in _by_word(here, "ended").items():
        ended[counts.state_and_reason(word)[0]] += n
    return {
        "at": hour * HOUR_MS,
        "waited": _mean(here, "waited"),
        "run": _mean(here, "worked"),
        "started": sum(_by_word(here, "started").values()),
        "deferred": sum(_by_word(here, "deferred").values()),
        "ended": dict(sorted(ended.items())),
    }


def _by_word(found: counts.Counts, what: str) -> Counter[str]:
    n: Counter[str] = Counter()
    for key, count in found.items():
        if key.what == what:
            n[key.word] += count.n
    return n


def _mean(found: counts.Counts, what: str) -> Document:
    these = [count for key, count in found.items() if key.what == what]
    n, total = sum(each.n for each in these), sum(each.total for each in these)
    return {"n": n, "mean_s": round(total / n / 1000, 3) if n else None}


def _dead(found: counts.Counts) -> list[Document]:
    n: Counter[tuple[str, str]] = Counter()
    for key, count in found.items():
        if key.what == "ended" and counts.state_and_reason(key.word)[0] == job.DEAD:
            day = time.strftime("%Y-%m-%d", time.localtime(key.hour * HOUR_MS / 1000))
            n[day, key.kind] += count.n
    return [{"day": day, "kind": kind, "n": dead} for (day, kind), dead in sorted(n.items())]
