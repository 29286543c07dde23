"""The page of `clawq history`: plots, side by side where they fit, and tables of deferrals and deaths."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from clawq.cli import plots, words
from clawq.cli.plots import COUNTS, MEGABYTES, SECONDS, Curve, Frame, Scale
from clawq.cli.render import BAD, GOOD, QUIET, WAITS, Column, Page, Part, picture_colour

Document = dict[str, Any]
Picture = tuple[Sequence[Part], str]

WIDE = 120
"""From here on two plots stand side by side."""
HEIGHT = 8
SHORTEST_S = 600
REASONS = 8
KINDS = 20
DAY = 9
"""Columns of a day in the table of deaths."""

NOTHING = """\
A supervisor keeps a sample each minute: start one with `clawq run`, put work in with `clawq enqueue`, and
look again in a few minutes. `clawq history --since 7d` looks further back.""".replace("\n", " ")

_JOBS = Scale(COUNTS, lambda value: f"{value:g}")
_AGE = Scale(SECONDS, lambda value: words.short(value) if value >= 1 else f"{value:g}s" if value else "0")
_SIZE = Scale(MEGABYTES, lambda value: words.size(int(value)).replace(".0 ", " ") if value else "0")

LEGEND = {"green": GOOD, "yellow": WAITS, "red": BAD}


def draw(document: Document) -> Page:
    """The page for people."""
    page = Page()
    now, samples, hours = document["now_at"], document["samples"], document["hours"]
    if not samples and not hours and not document["dead"]:
        page.line("Nothing yet.")
        page.paragraph(0, (NOTHING, QUIET))
        return page
    columns = 2 if page.width >= WIDE else 1
    begin = _begin(document)
    page.line(f"The last {words.short(now / 1000 - begin)}", (f", until {_clock(now)}", QUIET))
    pictures = _pictures(document, page, begin, columns)
    page.pictures(pictures, columns)
    _deferred(page, document["deferred"])
    _dead(page, document["dead"], now)
    return page


def _begin(document: Document) -> float:
    """Where the plots begin, epoch s: with what there is, when that is less than what was asked for."""
    now: float = document["now_at"] / 1000
    first = [row["at"] / 1000 for row in document["samples"][:1] + document["hours"][:1]]
    asked: float = document["since_at"] / 1000
    return min(max(asked, min(first, default=now)), now - SHORTEST_S)


def _pictures(document: Document, page: Page, begin: float, columns: int) -> list[Picture]:
    width = page.picture_width(columns)
    colour = picture_colour()
    frame = Frame(width, HEIGHT, begin, document["now_at"] / 1000, page.unicode, colour)
    samples, hours = document["samples"], document["hours"]
    found: list[Picture] = []

    def add(title: str, scale: Scale, curves: list[tuple[str, Curve]], said: str) -> None:
        shown = [(label, curve) for label, curve in curves if curve.points]
        if shown:
            text = plots.plot([curve for _, curve in shown], scale, frame)
            found.append((_title(title, shown, said, frame), text))

    queued, running = _of(samples, "queued"), _of(samples, "running")
    aside = [
        (at, float(n + m))
        for (at, n), (_, m) in zip(_of(samples, "held"), _of(samples, "unknown"), strict=True)
    ]
    add(
        "Depth",
        _JOBS,
        [
            ("queued", Curve(queued, "yellow", "*")),
            ("running", Curve(running, "green", "o")),
            ("held or unknown", Curve(aside if any(n for _, n in aside) else [], "red", "x")),
        ],
        _most(queued, "at most {} queued", _JOBS.write),
    )
    ages = [(at, age / 1000) for at, age in _of(samples, "oldest_age_ms", empty=0)]
    add("Oldest age", _AGE, [("", Curve(ages, "yellow", "*"))], _most(ages, "at most {}", _AGE.write))
    waited, run = _means(hours, "waited", frame), _means(hours, "run", frame)
    add(
        "Wait and run",
        _AGE,
        [("queued", Curve(waited, "yellow", "*")), ("running", Curve(run, "green", "o"))],
        "means of each hour",
    )
    procs, limit = _of(samples, "procs"), _of(samples, "max_procs")
    said = _last(limit, "limit {}", _JOBS.write)
    near = _near(limit, procs)
    add(
        "Processes",
        _JOBS,
        [("in use", Curve(procs, "green", "*")), (said, Curve(near, "red", "-"))],
        "" if near else said,
    )
    free, floor = _of(samples, "free_mb"), _of(samples, "min_free_mb")
    add(
        "Free memory",
        _SIZE,
        [
            ("free", Curve(free, "green", "*")),
            (_last(floor, "floor {}", _SIZE.write), Curve(floor, "red", "-")),
        ],
        _least(free, "at least {}", _SIZE.write),
    )
    ended = [(_middle(hour, frame), float(sum(hour["ended"].values()))) for hour in hours]
    add("Ended", _JOBS, [("", Curve(ended, "green", "*"))], "jobs an hour")
    return found


def _title(title: str, shown: list[tuple[str, Curve]], said: str, frame: Frame) -> list[Part]:
    parts: list[Part] = [(title, "bold")]
    for label, curve in shown:
        if label:
            mark = "\u2501" if frame.unicode else curve.mark
            parts += ["  ", (mark, LEGEND[curve.colour]), f" {label}"]
    return [*parts, (f"  {said}", QUIET)] if said else parts


def _of(samples: list[Document], key: str, empty: float | None = None) -> list[tuple[float, float]]:
    """A column of the samples; without a value a row is left out, or counts as `empty`."""
    rows = [(row["at"] / 1000, empty if row[key] is None else row[key]) for row in samples]
    return [(at, float(value)) for at, value in rows if value is not None]


def _means(hours: list[Document], key: str, frame: Frame) -> list[tuple[float, float]]:
    return [(_middle(row, frame), row[key]["mean_s"]) for row in hours if row[key]["n"]]


def _middle(hour: Document, frame: Frame) -> float:
    """Of as much of the hour as is shown."""
    first: float = hour["at"] / 1000
    return (max(first, frame.begin) + min(first + 3_600, frame.end)) / 2


def _near(limit: list[tuple[float, float]], values: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A limit far above everything would press the curve flat: then only the title tells it."""
    highest = max((value for _, value in values), default=0)
    return limit if limit and min(value for _, value in limit) <= 5 * highest else []


def _most(points: list[tuple[float, float]], text: str, write: Callable[[float], str]) -> str:
    return text.format(write(max(value for _, value in points))) if points else ""


def _least(points: list[tuple[float, float]], text: str, write: Callable[[float], str]) -> str:
    return text.format(write(min(value for _, value in points))) if points else ""


def _last(points: list[tuple[float, float]], text: str, write: Callable[[float], str]) -> str:
    return text.format(write(points[-1][1])) if points else ""


def _clock(at: int) -> str:
    return time.strftime("%b %d %H:%M", time.localtime(at / 1000))


def _deferred(page: Page, deferred: dict[str, int]) -> None:
    page.title("Deferrals by reason")
    if not deferred:
        page.line(("  none", QUIET))
        return
    most = max(deferred.values())
    rows: list[list[Part]] = []
    for reason, n in list(deferred.items())[:REASONS]:
        rows.append([reason, str(n), page.bar(n / most, WAITS)])
    page.table([Column("REASON", elastic=True), Column("TIMES", right=True), Column("")], rows)
    left = sum(list(deferred.values())[REASONS:])
    if left:
        page.line((f"  and {left} more for {len(deferred) - REASONS} other reasons", QUIET))


def _dead(page: Page, dead: list[Document], now: int) -> None:
    page.title("Dead by kind and day")
    if not dead:
        page.line(("  none", QUIET))
        return
    days = sorted({row["day"] for row in dead} | {time.strftime("%Y-%m-%d", time.localtime(now / 1000))})
    kinds: dict[str, dict[str, int]] = defaultdict(dict)
    for row in dead:
        kinds[row["kind"]][row["day"]] = row["n"]
    days = days[-max(1, (page.width - 30) // DAY) :]
    order = sorted(kinds, key=lambda kind: (-sum(kinds[kind].values()), kind))
    rows: list[list[Part]] = []
    for kind in order[:KINDS]:
        cells: list[Part] = [
            (str(kinds[kind][day]), BAD) if day in kinds[kind] else ("\u00b7" if page.unicode else ".", QUIET)
            for day in days
        ]
        rows.append([kind, str(sum(kinds[kind].values())), *cells])
    heads = [time.strftime("%a %d", time.strptime(day, "%Y-%m-%d")) for day in days]
    page.table(
        [
            Column("KIND", elastic=True),
            Column("ALL", right=True),
            *(Column(head, right=True) for head in heads),
        ],
        rows,
    )
    if len(order) > KINDS:
        page.line((f"  and {len(order) - KINDS} other kinds", QUIET))
