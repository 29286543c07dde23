"""A crontab(5) time: which minutes it means, and how fine its slots are.

Numbers count as in a crontab, where 0 and 7 are Sunday, whatever a library counts.
"""

from __future__ import annotations

from typing import NamedTuple

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


class CronError(ValueError):
    """What is wrong with a cron time, and what is possible instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}: {fix}")
        self.what = what
        self.fix = fix


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    first: int = 0


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, MONTHS, 1),
    _Field("day of week", 0, 7, WEEKDAYS),
)


class Cron(NamedTuple):
    """The values of each field, sorted; weekdays from 0, Sunday, to 6.

    ``either_day``: day of month and day of week are both restricted, and then either is enough.
    ``any_hour``: the hour field starts with a star, so that every hour that a clock shows is its own slot,
    also one that summer time repeats.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool
    any_hour: bool

    @property
    def finest(self) -> str:
        """What tells two of its slots apart: ``date``, ``hour`` or ``minute``."""
        if len(self.minutes) > 1:
            return "minute"
        return "hour" if len(self.hours) > 1 else "date"


def parse(text: str) -> Cron:
    """Five fields, or a nickname such as ``@daily``. Raises CronError."""
    words = NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) != 5:
        there = f"{len(words)} field{'' if len(words) == 1 else 's'}"
        if text.strip().startswith("@"):
            there = f"{text.strip()!r:.40}"
        raise CronError(
            f"{there} instead of 5",
            "minute hour day-of-month month day-of-week, or one of @hourly, @daily, "
            "@weekly, @monthly, @yearly",
        )
    minutes, hours, days, months, weekdays = (
        _values(word, field) for word, field in zip(words, _FIELDS, strict=True)
    )
    either_day = words[2][0] != "*" and words[4][0] != "*"
    weekdays = {day % 7 for day in weekdays}
    if not either_day and min(days) > max(_LONGEST[month] for month in months):
        raise CronError(f"day {min(days)} never comes in these months", "choose another day or month")
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        tuple(sorted(days)),
        tuple(sorted(months)),
        tuple(sorted(weekdays)),
        either_day,
        words[1][0] == "*",
    )


def _values(word: str, field: _Field) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        range_, slash, step_text = part.partition("/")
        if slash and not (step_text.isascii() and step_text.isdigit() and 0 < int(step_text[:9]) < 1000):
            raise _wrong(part, field, "a step is a number above 0, as in */5")
        first_text, dash, last_text = range_.partition("-")
        if range_ == "*":
            first, last = field.least, field.most
        elif dash:
            first, last = _value(first_text, part, field), _value(last_text, part, field)
            if first > last and field.names is WEEKDAYS and last == 0:
                last = 7  # fri-sun
            if first > last:
                raise _wrong(part, field, f"a range goes upwards: {first} is above {last}")
        elif slash:
            raise _wrong(part, field, "a step goes with * or a range, as in */5 or 10-50/5")
        else:
            first = last = _value(range_, part, field)
        found.update(range(first, last + 1, int(step_text) if slash else 1))
    return found


def _value(text: str, part: str, field: _Field) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.first
    if text.isascii() and text.isdigit() and len(text) < 4 and field.least <= int(text) <= field.most:
        return int(text)
    named = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    raise _wrong(part, field, f"{field.least} to {field.most}{named}")


def _wrong(part: str, field: _Field, fix: str) -> CronError:
    return CronError(f"{field.name} {part!r:.40}", fix)
