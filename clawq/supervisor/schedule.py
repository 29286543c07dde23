"""The clock of ``[[schedules]]``: which slot is due, and that each becomes one job.

A slot's name, with its UTC offset, is the dedupe key of its job, so that no restart and no second supervisor
makes two of it. How far a schedule has come is written down only when a slot was dealt with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import apsw

from clawq import settings
from clawq.calendar import Calendar, Slot
from clawq.client import Producer
from clawq.errors import ClawqError, ConfigError, Refused, UsageError
from clawq.paths import Home
from clawq.store import schedules

LATE_MS = 60_000
"""A slot this old was missed: its minute has gone."""
LOOK_MS = 60_000
"""The time zone may have changed, or the clock: so often the next slot is worked out again."""
TRY_AGAIN_MS = 30_000
FAR_AHEAD_MS = 86_400_000
"""A mark beyond this was made by a clock that was wrong."""


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
