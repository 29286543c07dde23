"""When: durations, times and the slots of dedupe keys, as people write them.

Pure: ``now`` (ms since the epoch) is an argument, and only the time zone comes from the environment.
``datetime`` is imported for ISO 8601 alone, since it costs ``clawq enqueue`` two milliseconds.
"""

import time

from clawq.errors import UsageError

UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SLOTS = ("date", "hour", "minute")
LONGEST_MS = 100 * 365 * 86_400_000
"""A century: beyond it a number is a slip of the hand, and its sums would leave 64 bits."""


def duration(text: str) -> int:
    """``90s``, ``10m``, ``2h`` or ``1d`` in ms. Raises UsageError."""
    unit = UNITS.get(text[-1:])
    number = text[:-1]
    if unit is None or not (number.isascii() and number.isdigit()):
        raise UsageError(f"{text!r} is not a duration", "write 90s, 10m, 2h or 1d")
    # int() of a very long text is an error of its own.
    length = int(number) * unit if len(number) < 15 else LONGEST_MS + 1
    if length > LONGEST_MS:
        raise UsageError(f"{text!r} is too long", "a hundred years is the most")
    return length


def moment(text: str, now: int) -> int:
    """A point in time in ms since the epoch: ISO 8601 (local unless it has an offset) or the next ``HH:MM``.

    Raises UsageError.
    """
    hour, colon, minute = text.partition(":")
    if colon and hour.isascii() and hour.isdigit() and len(hour) <= 2:
        if len(minute) == 2 and minute.isascii() and minute.isdigit() and int(hour) < 24 and int(minute) < 60:
            return _next_clock(int(hour), int(minute), now)
        raise UsageError(f"{text!r} is not a time of day", "write HH:MM, from 00:00 to 23:59")
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is not a time",
            "write HH:MM or ISO 8601, such as 2030-01-31T07:00 or 2030-01-31T06:00Z",
        ) from None


def moment_or_duration(text: str, now: int) -> int:
    """A ``duration`` from `now`, or a ``moment``, in ms since the epoch. Raises UsageError."""
    if text[-1:] in UNITS and text[:-1].isdigit():
        return now + duration(text)
    try:
        return moment(text, now)
    except UsageError:
        raise UsageError(
            f"{text!r} is neither a duration nor a time",
            "write 10m, HH:MM or ISO 8601 such as 2030-01-31T07:00",
        ) from None


def _next_clock(hour: int, minute: int, now: int) -> int:
    """The next moment at which a clock here shows it.

    Where summer time repeats the hour both count; on the day that skips it, it is not there.
    """
    today = time.localtime(now / 1000)
    for day in range(today.tm_mday, today.tm_mday + 8):
        found = []
        for summer in (-1, 0, 1):
            try:
                at = time.mktime((today.tm_year, today.tm_mon, day, hour, minute, 0, 0, 0, summer))
            except OverflowError:
                continue
            shown = time.localtime(at)
            if at * 1000 > now and shown.tm_hour == hour and shown.tm_min == minute:
                found.append(int(at) * 1000)
        if found:
            return min(found)
    raise UsageError(f"{hour:02}:{minute:02} does not come in the next week", "write ISO 8601")


def expand_slots(key: str, now: int) -> str:
    """`key` with {date}, {hour} and {minute} replaced by the local slot that `now` is in.

    An hour and a minute carry the UTC offset: the two o'clock that summer time repeats is two slots.
    """
    if "{" not in key:
        return key
    here = time.localtime(now / 1000)
    offset = here.tm_gmtoff // 60
    sign = "-" if offset < 0 else "+"
    zone = f"{sign}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
    date = f"{here.tm_year:04}-{here.tm_mon:02}-{here.tm_mday:02}"
    hour = f"{date}T{here.tm_hour:02}"
    return (
        key.replace("{date}", date)
        .replace("{hour}", hour + zone)
        .replace("{minute}", f"{hour}:{here.tm_min:02}{zone}")
    )


def iso(at: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    utc = time.gmtime(at // 1000)
    return (
        f"{utc.tm_year:04}-{utc.tm_mon:02}-{utc.tm_mday:02}"
        f"T{utc.tm_hour:02}:{utc.tm_min:02}:{utc.tm_sec:02}.{at % 1000:03}Z"
    )
