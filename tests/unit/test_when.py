"""Durations, times and slots, in time zones that are hard on them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq import when
from clawq.errors import UsageError

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Lets a test choose the local time zone, and puts the old one back."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def be_in(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


# ---------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0s", 0), ("007m", 420_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert when.duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "10",
        "10 m",
        " 10m",
        "-1s",
        "+1s",
        "1.5h",
        "10M",
        "1w",
        "1h30m",
        "\N{ARABIC-INDIC DIGIT ONE}m",
        "²s",
        "m10",
        "10m\n",
        "_1s",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration: write 90s, 10m, 2h or 1d"):
        when.duration(text)


@pytest.mark.parametrize("text", ["36501d", "99999999999999s", "9" * 5000 + "s"])
def test_a_duration_beyond_a_century_is_refused_and_not_summed(text: str) -> None:
    with pytest.raises(UsageError, match="too long"):
        when.duration(text)


@given(st.integers(0, 10**6), st.sampled_from("smhd"))
def test_durations_are_their_number_of_units(number: int, unit: str) -> None:
    if number * when.UNITS[unit] <= when.LONGEST_MS:
        assert when.duration(f"{number}{unit}") == number * when.UNITS[unit]


# ---------------------------------------------------------------- times


def test_iso_with_an_offset_does_not_care_where_we_are(zone: pytest.MonkeyPatch) -> None:
    be_in(zone, "Asia/Kolkata")
    expected = ms(datetime(2030, 1, 31, 6, 0, tzinfo=UTC))
    assert when.moment("2030-01-31T06:00Z", 0) == expected
    assert when.moment("2030-01-31T07:00+01:00", 0) == expected
    assert when.moment("2030-01-31 11:30", 0) == expected  # local


def test_a_date_is_its_first_moment_here(zone: pytest.MonkeyPatch) -> None:
    be_in(zone, "Europe/Berlin")
    assert when.moment("2030-07-01", 0) == ms(datetime(2030, 7, 1, tzinfo=BERLIN))


@pytest.mark.parametrize(
    "text", ["", "noon", "24:00", "7:5", "07:60", "07:00pm", "2030-13-01", "1:2:3", ":30", "7:"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        when.moment(text, 0)


@pytest.mark.parametrize(
    ("here", "clock", "expected"),
    [
        ("2030-05-05T06:59:59", "07:00", "2030-05-05T07:00:00"),
        ("2030-05-05T07:00:00", "07:00", "2030-05-06T07:00:00"),  # now is not next
        ("2030-05-05T07:00:30", "7:00", "2030-05-06T07:00:00"),
        ("2030-12-31T23:59:59", "00:00", "2031-01-01T00:00:00"),
        ("2028-02-28T12:00:00", "11:00", "2028-02-29T11:00:00"),
    ],
)
def test_the_next_time_of_day(zone: pytest.MonkeyPatch, here: str, clock: str, expected: str) -> None:
    be_in(zone, "Europe/Berlin")
    now = ms(datetime.fromisoformat(here).replace(tzinfo=BERLIN))
    assert when.moment(clock, now) == ms(datetime.fromisoformat(expected).replace(tzinfo=BERLIN))


def test_an_hour_that_summer_time_skips_comes_the_day_after(zone: pytest.MonkeyPatch) -> None:
    be_in(zone, "Europe/Berlin")
    eve = ms(datetime(2030, 3, 30, 22, 0, tzinfo=BERLIN))  # 02:30 is not there on the 31st
    assert when.moment("02:30", eve) == ms(datetime(2030, 4, 1, 2, 30, tzinfo=BERLIN))


def test_an_hour_that_comes_twice_is_next_twice(zone: pytest.MonkeyPatch) -> None:
    be_in(zone, "Europe/Berlin")
    first = datetime(2030, 10, 27, 2, 30, tzinfo=BERLIN)
    second = first.replace(fold=1)
    assert when.moment("02:30", ms(first) - 1) == ms(first)
    assert when.moment("02:30", ms(first)) == ms(second)
    assert when.moment("02:30", ms(second)) == ms(datetime(2030, 10, 28, 2, 30, tzinfo=BERLIN))


@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_the_next_time_of_day_is_shown_then_and_at_no_minute_before(
    name: str, start: datetime, hour: int, minute: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        be_in(patch, name)
        now = ms(start.replace(tzinfo=UTC))
        found = when.moment(f"{hour:02}:{minute:02}", now)
    time.tzset()
    there = ZoneInfo(name)

    def shown(at: int) -> tuple[int, int]:
        clock = datetime.fromtimestamp(at / 1000, there)
        return clock.hour, clock.minute

    assert found > now
    assert shown(found) == (hour, minute)
    minute_of_now = -(-(now + 1) // 60_000) * 60_000
    assert all(shown(at) != (hour, minute) for at in range(minute_of_now, found, 60_000))


def test_a_limit_is_a_duration_or_a_time(zone: pytest.MonkeyPatch) -> None:
    be_in(zone, "UTC")
    now = ms(datetime(2030, 5, 5, 6, 0, tzinfo=UTC))
    assert when.moment_or_duration("10m", now) == now + 600_000
    assert when.moment_or_duration("12:00", now) == now + 6 * 3_600_000
    assert when.moment_or_duration("2030-05-06", now) == now + 18 * 3_600_000
    for nonsense in ("tomorrow", "10", "soonish", ""):
        with pytest.raises(UsageError, match="neither a duration nor a time"):
            when.moment_or_duration(nonsense, now)


# ---------------------------------------------------------------- slots


def test_slots_are_local_and_carry_the_offset(zone: pytest.MonkeyPatch) -> None:
    now = ms(datetime(2030, 12, 31, 23, 7, tzinfo=UTC))
    for name, date, hour, minute in (
        ("UTC", "2030-12-31", "2030-12-31T23+00:00", "2030-12-31T23:07+00:00"),
        ("Europe/Berlin", "2031-01-01", "2031-01-01T00+01:00", "2031-01-01T00:07+01:00"),
        ("Asia/Kolkata", "2031-01-01", "2031-01-01T04+05:30", "2031-01-01T04:37+05:30"),
        ("America/St_Johns", "2030-12-31", "2030-12-31T19-03:30", "2030-12-31T19:37-03:30"),
    ):
        be_in(zone, name)
        assert when.expand_slots("a {date} b", now) == f"a {date} b"
        assert when.expand_slots("{hour}{hour}", now) == hour * 2
        assert when.expand_slots("{minute}", now) == minute


def test_the_hour_that_comes_twice_is_two_slots_and_one_date(zone: pytest.MonkeyPatch) -> None:
    be_in(zone, "Europe/Berlin")
    first = datetime(2030, 10, 27, 2, 30, tzinfo=BERLIN)
    both = [ms(first), ms(first.replace(fold=1))]
    for slot, different in (("{date}", 1), ("{hour}", 2), ("{minute}", 2)):
        assert len({when.expand_slots(slot, now) for now in both}) == different


def test_other_braces_are_left_alone() -> None:
    assert when.expand_slots('{"id": {x}} {Date} {}', 0) == '{"id": {x}} {Date} {}'


@given(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)), st.integers(1, 7_200))
def test_two_moments_share_a_minute_only_within_a_minute(start: datetime, seconds: int) -> None:
    now = ms(start.replace(tzinfo=UTC))
    later = now + seconds * 1000
    same = when.expand_slots("{minute}", now) == when.expand_slots("{minute}", later)
    assert same == (now // 60_000 == later // 60_000)


# ---------------------------------------------------------------- ISO 8601 out


@given(st.integers(0, 4_102_444_800_000))
def test_iso_is_read_back_as_the_same_moment(at: int) -> None:
    text = when.iso(at)
    assert datetime.fromisoformat(text) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    assert text.endswith("Z")
