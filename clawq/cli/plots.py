"""Curves over time as text: the only user of plotext. Scales and ticks are chosen here, since people read
clocks and powers of two, not hundredths."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import plotext

LABEL = 6
"""Columns of the labels at the left, so that plots under each other line up."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
COUNTS = tuple(digit * 10**power for power in range(9) for digit in (2, 4, 6, 8, 10))
SECONDS = (
    *(1, 2, 4, 10, 20, 30, _MINUTE),
    *(_MINUTE * n for n in (2, 4, 10, 20, 30, 60)),
    *(_HOUR * n for n in (2, 4, 8, 12, 24)),
    *(_DAY * n for n in COUNTS),
)
MEGABYTES = tuple(part << power for power in range(6, 30) for part in (2, 3))
"""Tops of a scale whose halves are round too."""
_STEPS = (*(_MINUTE * n for n in (1, 5, 10, 15, 30)), *(_HOUR * n for n in (1, 2, 3, 6, 12)))
_DAY_STEPS = tuple(_DAY * n for n in (1, 2, 7, 14, 28, 56, 112, 365, 3_650))
"""Seconds between ticks of the clock."""
_ONE_DAY = 1.5 * _DAY
"""Beyond that a time of day does not say which day's."""
_COLOURS = {"red": 1, "green": 2, "yellow": 3}
"""The terminal's own, as Rich has them for the rest of the page."""
_ASCII = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")
_HOLE = 3
"""So many times the usual distance between points is a hole and not a line."""


class Curve(NamedTuple):
    """``points`` are (epoch s, value), in order. ``colour`` is one of red, green and yellow."""

    points: Sequence[tuple[float, float]]
    colour: str
    mark: str
    """What draws it where there are no fine characters."""


class Scale(NamedTuple):
    """Where the top may be, and how a value is written."""

    tops: Sequence[float]
    write: Callable[[float], str]


class Frame(NamedTuple):
    """Size in cells and the span of time, epoch s."""

    width: int
    height: int
    begin: float
    end: float
    unicode: bool
    colour: bool


def plot(curves: Sequence[Curve], scale: Scale, frame: Frame) -> str:
    """Lines of text, with colour codes when `frame` says so."""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(frame.width, frame.height)
    figure.theme("colorless")
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    for curve in curves:
        points = _thinned(curve.points, frame)
        marker = plotext.marker("braille" if frame.unicode else curve.mark, _COLOURS[curve.colour])
        for part in _unbroken(points, _usual(curve.points)):
            # One point is no line.
            xs, ys = zip(*(part if len(part) > 1 else part * 2), strict=True)
            figure.draw(figure.signal(list(xs), list(ys), marker=marker).lines())
    highest = max((value for curve in curves for _, value in curve.points), default=0)
    top = next((top for top in scale.tops if top >= highest), highest)
    levels = [0, top / 2, top] if frame.height > 5 else [0, top]
    figure.ruler("y").lim(0, top)
    figure.ruler("y").ticks(levels, [scale.write(level).rjust(LABEL)[-LABEL:] for level in levels])
    figure.ruler("x").lim(frame.begin, frame.end)
    ticks = clock_ticks(frame.begin, frame.end, (frame.width - LABEL) // 10)
    figure.ruler("x").ticks([at for at, _ in ticks], [label for _, label in ticks])
    text = str(figure.build().string(colorless=not frame.colour))
    return text if frame.unicode else text.translate(_ASCII)


def clock_ticks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """Round local times between the two, at most one more than `most`, and how they are written."""
    span = end - begin
    steps = [*(_STEPS if span <= _ONE_DAY else ()), *_DAY_STEPS]
    step = next((step for step in steps if span / step <= max(1, most)), steps[-1])
    moments, form = (
        (_days(begin, end, step // _DAY), "%b %d") if step >= _DAY else (_hours(begin, end, step), "%H:%M")
    )
    return [(at, time.strftime(form, time.localtime(at))) for at in moments if begin <= at <= end]


def _hours(begin: float, end: float, step: int) -> Iterator[float]:
    """Round on the clock of the wall, also where that changes on the way."""
    at = begin
    while at <= end:
        at -= (at + time.localtime(at).tm_gmtoff) % step
        yield at
        at += step


def _days(begin: float, end: float, step: int) -> Iterator[float]:
    """Midnights, however long the days between them are."""
    first = time.localtime(begin)
    at, day = 0.0, first.tm_mday
    while at <= end:
        at = time.mktime((first.tm_year, first.tm_mon, day, 0, 0, 0, 0, 0, -1))
        yield at
        day += step


def _usual(points: Sequence[tuple[float, float]]) -> float:
    """The distance between two points that is not to be exceeded much."""
    gaps = sorted(after[0] - before[0] for before, after in pairwise(points))
    return gaps[len(gaps) // 2] if gaps else 0


def _thinned(points: Sequence[tuple[float, float]], frame: Frame) -> list[tuple[float, float]]:
    """The highest of those that share a column's half."""
    columns = 2 * frame.width
    span = max(1.0, frame.end - frame.begin) / columns
    highest: dict[int, tuple[float, float]] = {}
    for at, value in points:
        column = int((at - frame.begin) / span)
        if column not in highest or value > highest[column][1]:
            highest[column] = (at, value)
    return [highest[column] for column in sorted(highest)]


def _unbroken(points: list[tuple[float, float]], usual: float) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = []
    wide = max(usual, _usual(points)) * _HOLE
    for point in points:
        if not parts or point[0] - parts[-1][-1][0] > wide:
            parts.append([])
        parts[-1].append(point)
    return parts
