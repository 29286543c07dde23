"""Plots as text: scales and ticks that people read, holes where nothing was measured, and every width."""

from __future__ import annotations

import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from clawq.cli import plots
from clawq.cli.plots import COUNTS, MEGABYTES, SECONDS, Curve, Frame, Scale

BEGIN = 1_900_000_200.0  # 17:50 UTC
SCALE = Scale(COUNTS, lambda value: f"{value:g}")


def frame(width: int = 80, minutes: int = 60, unicode: bool = True, colour: bool = False) -> Frame:
    return Frame(width, 8, BEGIN, BEGIN + 60 * minutes, unicode, colour)


def straight(value: float, minutes: range, colour: str = "green", mark: str = "*") -> Curve:
    return Curve([(BEGIN + 60 * minute, value) for minute in minutes], colour, mark)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    zone(monkeypatch, "UTC")


def zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


@pytest.mark.parametrize("width", [40, 59, 80, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_a_plot_is_as_wide_and_high_as_was_asked(width: int, unicode: bool) -> None:
    text = plots.plot([straight(3, range(60))], SCALE, frame(width, unicode=unicode))
    assert len(text.splitlines()) == 8
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert text.isascii() == (not unicode)


def test_the_scale_is_round_and_reaches_over_the_highest() -> None:
    lines = plots.plot([straight(3, range(60))], SCALE, frame()).splitlines()
    assert [line[: plots.LABEL].strip() for line in lines if line[: plots.LABEL].strip()] == ["4", "2", "0"]


@pytest.mark.parametrize("tops", [COUNTS, SECONDS, MEGABYTES])
def test_tops_rise_and_have_halves_that_can_be_written(tops: tuple[float, ...]) -> None:
    assert list(tops) == sorted(set(tops))
    assert all(top % 2 == 0 for top in tops if top > 1)


def test_where_nothing_was_measured_no_line_is_drawn() -> None:
    whole = plots.plot([straight(2, range(60))], SCALE, frame(unicode=False))
    broken = straight(2, range(20)).points, straight(2, range(40, 60)).points
    with_hole = plots.plot([Curve([*broken[0], *broken[1]], "green", "*")], SCALE, frame(unicode=False))
    assert whole.count("*") > 70
    (line,) = [line for line in with_hole.splitlines() if "*" in line]
    assert 20 < len(line.split("*" * 20, 1)[1].lstrip("*").split("*")[0]) < 28


def test_one_point_shows() -> None:
    assert plots.plot([straight(2, range(30, 31))], SCALE, frame(unicode=False)).count("*") == 1


def test_a_week_of_minutes_is_drawn_at_once_and_keeps_its_peak() -> None:
    curve = Curve([(BEGIN + 60 * n, 90.0 if n == 5_000 else 1.0) for n in range(10_080)], "green", "*")
    began = time.monotonic()
    lines = plots.plot([curve], SCALE, frame(minutes=10_080, unicode=False)).splitlines()
    assert time.monotonic() - began < 2
    assert any("*" in line for line in lines[:2])


def test_colours_are_the_terminals_own() -> None:
    text = plots.plot([straight(3, range(60), "yellow")], SCALE, frame(colour=True))
    assert "\x1b[38;5;3m" in text


@pytest.mark.parametrize(
    ("minutes", "labels"),
    [
        (10, ["17:50", "17:55", "18:00"]),
        (60, ["17:50", "18:00", "18:10", "18:20", "18:30", "18:40", "18:50"]),
        (1_440, ["18:00", "21:00", "00:00", "03:00", "06:00", "09:00", "12:00", "15:00"]),
        (4 * 1_440, ["Mar 18", "Mar 19", "Mar 20", "Mar 21"]),
    ],
)
def test_ticks_are_round_times(minutes: int, labels: list[str]) -> None:
    found = plots.clock_ticks(BEGIN, BEGIN + 60 * minutes, 8)
    assert [label for _, label in found] == labels


def test_days_begin_at_midnight_of_the_local_clock_across_a_change_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zone(monkeypatch, "Europe/Berlin")
    begin = datetime(2030, 3, 29, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    ticks = plots.clock_ticks(begin, begin + 4 * 86_400, 6)
    assert [label for _, label in ticks] == ["Mar 30", "Mar 31", "Apr 01", "Apr 02"]
    assert {time.strftime("%H:%M:%S", time.localtime(at)) for at, _ in ticks} == {"00:00:00"}


def test_ticks_are_never_more_than_fit() -> None:
    for minutes in (1, 10, 59, 61, 700, 5_000, 50_000, 130_000):
        for most in (1, 3, 7, 13):
            assert len(plots.clock_ticks(BEGIN, BEGIN + 60 * minutes, most)) <= most + 1
