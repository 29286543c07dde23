"""How long a provider asks to wait, from the sentence that it says so in.

People read these sentences, so they come in many forms: ``try again in 3 days 6 hours``, ``resets 6pm
(America/Toronto)``, ``try again at Apr 28th, 2026 10:03 PM``, ``limit reached|1762952400``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

Zone = Callable[[str], tzinfo | None]
"""A time zone by its name; None (also for '') means this machine's own."""

LONGEST_MS = 31 * 86_400_000
"""Nobody is asked to wait longer: it would be a misreading."""
JUST_PAST_MS = 600_000
"""A time of day that has passed by less than this is not tomorrow's: clocks differ, and things take time."""
SOON_MS = 60_000

_EPOCH = re.compile(r"\|\s*(\d{10})(?:\d{3})?\b")
_BARE_SECONDS = re.compile(r"\bretry[- ]after[\s:]+(\d+)\b(?!\s*[a-z.:])", re.I)
_SPAN = re.compile(r"\b(?:again|after|resets?|wait)[\s:]*(?:in\s+)?((?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*)+)", re.I)
_PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:(ms)|(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)|(d|days?))(?![a-z])",
    re.I,
)
_UNITS = (1, 1_000, 60_000, 3_600_000, 86_400_000)
_MOMENT = re.compile(
    r"\b(?:again|resets?)\s+(?:at\s+|on\s+)?"
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?"
    r"(?:,?\s+(?P<year>20\d\d))?,?\s+(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]\.?m\.?)?(?:\s*\((?P<zone>[A-Za-z0-9_+/-]+)\))?",
    re.I,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def retry_after(text: str, now: int, zone: Zone) -> int | None:
    """Milliseconds from `now` (epoch ms) that `text` asks to wait; None when it does not say."""
    for found in (_epoch(text, now), _span(text), _moment(text, now, zone)):
        if found is not None and 0 < found <= LONGEST_MS:
            return found
    return None


def until(seconds: object, now: int) -> int | None:
    """The same from an epoch time in seconds (or ms, which some builds write)."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e14:
        return None
    left = int(seconds if seconds > 1e11 else seconds * 1000) - now
    return left if 0 < left <= LONGEST_MS else None


def _epoch(text: str, now: int) -> int | None:
    found = _EPOCH.search(text)
    return None if found is None else until(int(found[1]), now)


def _span(text: str) -> int | None:
    bare = _BARE_SECONDS.search(text)
    if bare is not None:
        return int(bare[1]) * 1_000
    found = _SPAN.search(text)
    if found is None:
        return None
    total = 0.0
    for number, *units in _PART.findall(found[1]):
        total += float(number) * next(ms for unit, ms in zip(units, _UNITS, strict=True) if unit)
    return int(min(total, LONGEST_MS + 1)) or None  # four hundred nines are an infinity, which is no int


def _moment(text: str, now: int, zone: Zone) -> int | None:
    found = _MOMENT.search(text)
    if found is None or not (found["half"] or found["minute"]):
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"][0] in "pP" else 0)
    where = zone(found["zone"] or "")
    here = datetime.fromtimestamp(now / 1000, where)
    try:
        at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if found["month"]:
            month = _MONTHS.index(found["month"][:3].lower()) + 1
            at = at.replace(year=int(found["year"] or here.year), month=month, day=int(found["day"]))
            if at < here and not found["year"]:
                at = at.replace(year=here.year + 1)
        elif at <= here:
            if here - at <= timedelta(milliseconds=JUST_PAST_MS):
                return SOON_MS
            at += timedelta(days=1)
    except ValueError:
        return None
    return int(at.timestamp() * 1000) - now
