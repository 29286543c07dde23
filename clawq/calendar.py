"""At which moments a cron time comes: what the supervisor goes by, and what people are told.

APScheduler's cron trigger is the calendar, and counts what a clock on the wall shows; what that means in a
zone with summer time is decided here:

- A time at a fixed hour happens once on each day. In the hour that is repeated the first time counts; one in
  the hour that is skipped happens when it would have come without the change.
- Where the hour is ``*`` every hour that passes has its own slots: twice in the repeated one, none skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

from clawq.rules import cron
from clawq.when import expand_slots

_CHANGE = timedelta(hours=3)
"""No clock is ever set by more than this for summer time."""
_HOUR_MS = 3_600_000
_SPANS_MS = tuple(hours * _HOUR_MS for hours in (1, 25, 32 * 24, 400 * 24, 9 * 366 * 24))
"""How far is looked for a slot, the nearest first; a 29th of February may be eight years away."""


class Slot(NamedTuple):
    """``at`` epoch ms; ``name`` what the clock shows then, with the UTC offset."""

    at: int
    name: str


class Calendar:
    """The slots of one cron time, in the time zone of the environment."""

    def __init__(self, text: str) -> None:
        self._cron = cron.parse(text)
        self._trigger = _trigger(self._cron)

    def latest(self, after: int, until: int) -> Slot | None:
        """The last slot later than `after`, at most at `until`."""
        for span in _SPANS_MS:
            begin = max(after, until - span)
            found = max(self._between(begin, until), default=None)
            if found is not None:
                return _slot(found)
            if begin == after:
                break
        return None

    def next(self, after: int) -> Slot | None:
        """The first slot later than `after`."""
        for span in _SPANS_MS:
            found = min(self._between(after, after + span), default=None)
            if found is not None:
                return _slot(found)
        return None

    def _between(self, after: int, until: int) -> set[int]:
        """Epoch ms of the slots later than `after`, at most at `until`."""
        first, last = _wall(after) - _CHANGE, _wall(until) + _CHANGE
        return {
            at
            for wall in self._walls(first, last)
            for at in _moments(wall, self._cron.any_hour)
            if after < at <= until
        }

    def _walls(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """What clocks on the wall show at the slots; UTC stands for no zone at all."""
        wall: datetime | None = self._trigger.get_next_fire_time(None, first)
        while wall is not None and wall <= last:
            yield wall
            wall = self._trigger.get_next_fire_time(wall, wall + timedelta(seconds=1))


def _trigger(parsed: cron.Cron) -> Any:
    """Weekdays by name: APScheduler counts from Monday. It wants both days to fit, a crontab either."""
    minute, hour, day, month = (
        ",".join(map(str, values)) for values in (parsed.minutes, parsed.hours, parsed.days, parsed.months)
    )
    weekday = ",".join(cron.WEEKDAYS[number] for number in parsed.weekdays)
    usual = {"minute": minute, "hour": hour, "month": month, "timezone": UTC}
    if not parsed.either_day:
        return CronTrigger(day=day, day_of_week=weekday, **usual)
    return OrTrigger([CronTrigger(day=day, **usual), CronTrigger(day_of_week=weekday, **usual)])


def _wall(at: int) -> datetime:
    """What a clock here shows at `at`, as if it were UTC."""
    here = time.localtime(at // 1000)
    return datetime(*here[:6], tzinfo=UTC)


def _moments(wall: datetime, every_hour: bool) -> list[int]:
    """When a clock here shows `wall`, epoch ms; the top says what counts when it does so twice or never."""
    shown = wall.timetuple()[:6]
    found = set()
    for summer in (0, 1, -1):
        try:
            at = int(time.mktime((*shown, 0, 0, summer)))
        except (OverflowError, ValueError):
            continue
        if time.localtime(at)[:6] == shown:
            found.add(at * 1000)
    if found:
        return sorted(found) if every_hour else [min(found)]
    if every_hour:
        return []
    # By the offset before the change: which one mktime takes is up to the zone.
    near = time.mktime((*shown, 0, 0, -1))
    before = time.localtime(near - _CHANGE.total_seconds()).tm_gmtoff
    return [(int(wall.timestamp()) - before) * 1000]


def _slot(at: int) -> Slot:
    return Slot(at, expand_slots("{minute}", at))
