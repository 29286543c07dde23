"""A cron time as crontab(5) has it."""

from __future__ import annotations

import calendar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.rules.cron import CronError, parse

EVERY = tuple(range(60))


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("0 7 * * *", "minutes", (0,)),
        ("*/15 * * * *", "minutes", (0, 15, 30, 45)),
        ("5-20/5,3 * * * *", "minutes", (3, 5, 10, 15, 20)),
        ("* 9-17/4 * * *", "hours", (9, 13, 17)),
        ("0 0 1,15 * *", "days", (1, 15)),
        ("0 0 1 jan,Mar-may *", "months", (1, 3, 4, 5)),
        ("0 0 * * 0", "weekdays", (0,)),
        ("0 0 * * 7", "weekdays", (0,)),
        ("0 0 * * 5-7", "weekdays", (0, 5, 6)),
        ("0 0 * * 0-7", "weekdays", (0, 1, 2, 3, 4, 5, 6)),
        ("0 0 * * 1-5", "weekdays", (1, 2, 3, 4, 5)),
        ("0 0 * * */2", "weekdays", (0, 2, 4, 6)),
        ("0 0 * * mon,WED", "weekdays", (1, 3)),
        ("0 0 * * fri-sun", "weekdays", (0, 5, 6)),
        ("0 0 * * 0-0", "weekdays", (0,)),
        ("*/999 * * * *", "minutes", (0,)),
        ("0 0 1,31 2 *", "days", (1, 31)),
        ("0 0 31 1,2 *", "months", (1, 2)),
        ("@hourly", "minutes", (0,)),
        ("@weekly", "weekdays", (0,)),
        ("@Daily", "hours", (0,)),
    ],
)
def test_the_values_of_a_field(text: str, field: str, values: tuple[int, ...]) -> None:
    assert getattr(parse(text), field) == values


def test_names_are_the_numbers_of_a_crontab() -> None:
    months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
    assert [parse(f"0 0 1 {name} *").months for name in months] == [(n,) for n in range(1, 13)]
    days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
    assert [parse(f"0 0 * * {name}").weekdays for name in days] == [(n,) for n in range(7)]


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_nicknames(nickname: str, fields: str) -> None:
    assert parse(nickname) == parse(fields)


@pytest.mark.parametrize("month", range(1, 13))
def test_the_last_day_of_a_month_comes_and_the_one_after_never(month: int) -> None:
    last = calendar.monthrange(2028, month)[1]
    assert parse(f"0 0 {last} {month} *").days == (last,)
    if last < 31:
        with pytest.raises(CronError, match="never comes"):
            parse(f"0 0 {last + 1} {month} *")
        assert parse(f"0 0 {last + 1} {month} 1").either_day


@pytest.mark.parametrize(
    ("text", "either"),
    [
        ("0 0 13 * 5", True),
        ("0 0 13 * *", False),
        ("0 0 * * 5", False),
        ("0 0 */2 * 5", False),  # a field that starts with a star is not restricted
        ("0 0 1-31 * 5", True),
    ],
)
def test_either_day_is_enough_when_both_are_restricted(text: str, either: bool) -> None:
    assert parse(text).either_day is either


@pytest.mark.parametrize(
    ("text", "any_hour"), [("@hourly", True), ("0 */2 * * *", True), ("* 0-23 * * *", False)]
)
def test_hours_that_start_with_a_star(text: str, any_hour: bool) -> None:
    assert parse(text).any_hour is any_hour


@pytest.mark.parametrize(
    ("text", "finest"),
    [
        ("0 7 * * *", "date"),
        ("@weekly", "date"),
        ("0 7,19 * * *", "hour"),
        ("@hourly", "hour"),
        ("0,30 7 * * *", "minute"),
        ("*/5 * * * *", "minute"),
    ],
)
def test_how_fine_its_slots_are(text: str, finest: str) -> None:
    assert parse(text).finest == finest


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "0 fields instead of 5"),
        ("0 7 * *", "4 fields instead of 5"),
        ("@dayly", "'@dayly' instead of 5"),
        ("60 * * * *", "minute '60': 0 to 59"),
        ("0 24 * * *", "hour '24': 0 to 23"),
        ("0 0 0 * *", "day of month '0': 1 to 31"),
        ("0 0 * 13 *", "month '13': 1 to 12, or jan to dec"),
        ("0 0 * * 8", "day of week '8': 0 to 7, or sun to sat"),
        ("0 0 * * funday", "day of week 'funday'"),
        ("30-10 * * * *", "minute '30-10': a range goes upwards"),
        ("5-0 * * * *", "minute '5-0': a range goes upwards: 5 is above 0"),
        ("0 0 * * fri-tue", "day of week 'fri-tue': a range goes upwards: 5 is above 2"),
        ("*/0 * * * *", "minute '*/0': a step"),
        ("*/x * * * *", "minute '*/x': a step"),
        ("*/٣ * * * *", "a step"),
        ("*/1000 * * * *", "a step"),
        ("5/10 * * * *", "a step goes with"),
        ("1,,2 * * * *", "minute ''"),
        ("0 0 30,31 2 *", "day 30 never comes in these months"),
        ("٣ * * * *", "minute"),
        ("1" * 5_000 + " * * * *", "minute"),
    ],
)
def test_what_is_wrong_is_said(text: str, what: str) -> None:
    with pytest.raises(CronError) as error:
        parse(text)
    assert what in str(error.value)


@given(st.text(max_size=30))
def test_no_text_is_more_than_wrong(text: str) -> None:
    try:
        found = parse(text)
    except CronError:
        return
    assert set(found.minutes) <= set(EVERY)
    assert found.weekdays
