"""The clock of ``[[schedules]]``: which slot is due, and that each becomes one job.

APScheduler's cron trigger is the calendar, and counts what a clock on the wall shows; what that means in a
zone with summer time is decided here:

- A time at a fixed hour happens once on each day. In the hour that is repeated the first time counts; one in
  the hour that is skipped happens when it would have come without the change.
- Where the hour is ``*`` every hour that passes has its own slots: twice in the repeated one, none skipped.

A slot's name, with its UTC offset, is the dedupe key of its job, so that no restart and no second supervisor
makes two of it. How far a schedule has come is written down only when a slot was dealt with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import apsw
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

from clawq import settings
from clawq.client import Producer
from clawq.errors import ClawqError, ConfigError, Refused, UsageError
from clawq.paths import Home
from clawq.rules import cron
from clawq.store import schedules
from clawq.when import expand_slots

LATE_MS = 60_000
"""A slot this old was missed: its minute has gone."""
LOOK_MS = 60_000
"""The time zone may have changed, or the clock: so often the next slot is worked out again."""
TRY_AGAIN_MS = 30_000
FAR_AHEAD_MS = 86_400_000
"""A mark beyond this was made by a clock that was wrong."""

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


class _Entry:
    def __init__(self, schedule: settings.Schedule) -> None:
        self.schedule = schedule
        self.calendar = Calendar(schedule.cron)
        self.name = f"{schedule.cron} {schedule.kind}"
        self.look_at = 0


class Clock:
    """All of the schedules in force. ``say`` is for what a person should be able to read later."""

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self.home = home
        self.say = say
        self._entries: list[_Entry] = []
        self._form: str | None = None

    def turn(
        self, db: apsw.Connection, form: str, configured: tuple[settings.Schedule, ...], now: int
    ) -> int | None:
        """Enqueue what is due at `now` (epoch ms); `form` names the version of what is `configured`.

        In how many ms it has to be asked again; None when there are no schedules.
        Raises StorageError, and ClawqError about the last slot that was refused: it is tried again.
        """
        if form != self._form:
            self._follow(db, configured, now)
            self._form = form
        failure: ClawqError | None = None
        for entry in self._entries:
            if entry.look_at - LOOK_MS <= now < entry.look_at:
                continue
            try:
                self._look(db, entry, now)
            except (Refused, UsageError, ConfigError) as error:
                entry.look_at = now + TRY_AGAIN_MS
                failure = ClawqError(f"schedule {entry.name!r}: {error.what}", error.fix)
        if failure is not None:
            raise failure
        return min((entry.look_at - now for entry in self._entries), default=None)

    def _follow(self, db: apsw.Connection, configured: tuple[settings.Schedule, ...], now: int) -> None:
        self._entries = [_Entry(schedule) for schedule in configured]
        marks = schedules.marks(db)
        names = {entry.name for entry in self._entries}
        if gone := marks.keys() - names:
            schedules.forget(db, gone)
        for name in names - marks.keys():
            schedules.mark(db, name, now)  # nothing was missed before anybody asked for it

    def _look(self, db: apsw.Connection, entry: _Entry, now: int) -> None:
        time.tzset()
        seen = schedules.marks(db).get(entry.name, now)
        if seen > now + FAR_AHEAD_MS:
            seen = now
            schedules.mark(db, entry.name, now)
        slot = entry.calendar.latest(seen, now) if seen < now else None
        if slot is not None:
            late = now - slot.at > LATE_MS
            if not late or entry.schedule.catch_up == "once":
                self._enqueue(entry.schedule, slot)
                if late:
                    self.say(f"schedule {entry.name!r}: {slot.name} was missed and is made up for")
            else:
                self.say(f"schedule {entry.name!r}: {slot.name} was missed and is skipped")
            schedules.mark(db, entry.name, slot.at)
        upcoming = entry.calendar.next(max(seen, now))
        entry.look_at = min(now + LOOK_MS, upcoming.at if upcoming else now + LOOK_MS)

    def _enqueue(self, schedule: settings.Schedule, slot: Slot) -> None:
        with Producer(self.home) as producer:
            producer.enqueue(
                {
                    "kind": schedule.kind,
                    "dedupe_key": f"{schedule.cron} {slot.name}",
                    "cwd": os.path.expanduser("~"),
                }
            )


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
