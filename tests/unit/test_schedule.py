"""[[schedules]] by a fake clock: every slot once, whatever summer time, sleep and restarts do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawq import config
from clawq.calendar import Calendar
from clawq.client import Producer
from clawq.errors import ClawqError
from clawq.paths import Home
from clawq.rules import cron
from clawq.store import config_row, schedules
from clawq.store.connection import open_db
from clawq.supervisor.schedule import Clock

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """02:00 becomes 03:00 on 2026-03-29, and 03:00 becomes 02:00 on 2026-10-25."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def slots(text: str, after: str, until: str) -> list[str]:
    """By asking for the next one again and again."""
    calendar, found, at = Calendar(text), [], ms(after)
    while (slot := calendar.next(at)) is not None and slot.at <= ms(until):
        found.append(slot.name)
        assert slot.at > at
        at = slot.at
    return found


def test_every_day_at_seven() -> None:
    assert slots("0 7 * * *", "2026-11-29T07:00+01:00", "2026-12-01T07:00+01:00") == [
        "2026-11-30T07:00+01:00",
        "2026-12-01T07:00+01:00",
    ]


@pytest.mark.parametrize(
    ("weekday", "days"),
    [
        ("0", ["Sun"]),
        ("7", ["Sun"]),
        ("1", ["Mon"]),
        ("5-7", ["Fri", "Sat", "Sun"]),
        ("1-5", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("*/2", ["Tue", "Thu", "Sat", "Sun"]),  # 0, 2, 4, 6
        ("sun,wed", ["Wed", "Sun"]),
    ],
)
def test_weekdays_count_as_in_a_crontab(weekday: str, days: list[str]) -> None:
    """The library's 0 is Monday."""
    names = slots(f"0 12 * * {weekday}", "2026-06-01T00:00+02:00", "2026-06-07T23:00+02:00")  # a Monday
    assert [datetime.fromisoformat(name).strftime("%a") for name in names] == days


def test_either_day_is_enough() -> None:
    """crontab(5): with both restricted, the 13th and every Friday; the library would want Friday the 13th."""
    names = slots("0 0 13 * 5", "2026-06-01T12:00+02:00", "2026-06-20T00:00+02:00")
    assert [name[:10] for name in names] == ["2026-06-05", "2026-06-12", "2026-06-13", "2026-06-19"]
    starred = slots("0 0 */6 * 5", "2026-06-01T12:00+02:00", "2026-07-20T00:00+02:00")
    assert [name[:10] for name in starred] == ["2026-06-19"]


def test_the_hour_that_is_repeated_counts_once_for_a_fixed_time_and_twice_for_every_hour() -> None:
    night = "2026-10-25T00:30+02:00", "2026-10-25T04:30+01:00"
    assert slots("30 2 * * *", *night) == ["2026-10-25T02:30+02:00"]
    assert slots("15 * * * *", *night) == [
        "2026-10-25T01:15+02:00",
        "2026-10-25T02:15+02:00",
        "2026-10-25T02:15+01:00",
        "2026-10-25T03:15+01:00",
        "2026-10-25T04:15+01:00",
    ]


def test_the_hour_that_is_skipped_costs_no_fixed_time_and_is_no_hour() -> None:
    night = "2026-03-29T00:30+01:00", "2026-03-29T04:30+02:00"
    assert slots("30 2 * * *", *night) == ["2026-03-29T03:30+02:00"]
    assert slots("15 * * * *", *night) == [
        "2026-03-29T01:15+01:00",
        "2026-03-29T03:15+02:00",
        "2026-03-29T04:15+02:00",
    ]


def test_the_hour_that_is_skipped_where_winter_is_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Ireland it is winter time that deviates, and mktime takes the offset after the change."""
    monkeypatch.setenv("TZ", "Europe/Dublin")
    time.tzset()
    night = "2026-03-28T23:30+00:00", "2026-03-29T04:30+01:00"
    assert slots("58 0,1 * * *", *night) == ["2026-03-29T00:58+00:00", "2026-03-29T02:58+01:00"]


def test_leap_days_and_years_away() -> None:
    assert slots("0 0 29 2 *", "2026-01-01T00:00+01:00", "2029-01-01T00:00+01:00") == [
        "2028-02-29T00:00+01:00"
    ]
    assert Calendar("0 0 29 2 *").latest(ms("2025-01-01T00:00+01:00"), ms("2027-01-01T00:00+01:00")) is None


def test_the_latest_of_a_month_of_minutes_is_found_at_once() -> None:
    now = ms("2026-06-15T12:00:30+02:00")
    slot = Calendar("* * * * *").latest(now - 30 * DAY, now)
    assert slot is not None
    assert slot.name == "2026-06-15T12:00+02:00"


PARTS = st.tuples(
    st.sampled_from(["0", "*/20", "5,35", "59"]),
    st.sampled_from(["*", "2", "0-3", "*/5", "1,2,23"]),
    st.sampled_from(["*", "1,29", "*/2"]),
    st.sampled_from(["*", "3", "10"]),
    st.sampled_from(["*", "0", "5-7", "mon"]),
)


@settings(max_examples=60)
@given(PARTS, st.integers(0, 364), st.integers(1, 30))
def test_its_slots_are_those_of_a_walk_over_every_minute(
    parts: tuple[str, ...], day: int, hours: int
) -> None:
    text = " ".join(parts)
    parsed = cron.parse(text)
    start = ms("2026-01-01T00:00+01:00") + day * DAY
    until = start + hours * HOUR
    walked = []
    for at in range(start + MINUTE, until + 1, MINUTE):
        here = datetime.fromtimestamp(at / 1000).astimezone()
        weekday = (here.weekday() + 1) % 7
        on_day, on_weekday = here.day in parsed.days, weekday in parsed.weekdays
        fits = on_day or on_weekday if parsed.either_day else on_day and on_weekday
        if not fits or here.month not in parsed.months or here.minute not in parsed.minutes:
            continue
        if here.hour in parsed.hours:
            walked.append((at, here))
    found, at = [], start
    while (slot := Calendar(text).next(at)) is not None and slot.at <= until:
        found.append(slot.at)
        at = slot.at
    repeated = {"2026-10-25T02"}
    skipped = {"2026-03-29T03"}
    assert [each for each in found if _hour(each) not in repeated | skipped] == [
        at for at, here in walked if _hour(at) not in repeated | skipped
    ]
    if parsed.any_hour:
        assert found == [at for at, _ in walked]


def _hour(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%dT%H")


# ---------------------------------------------------------------- with a queue


class Machine:
    """A supervisor's clock over a real queue; it is always 30 s past what a test says, unless it says."""

    def __init__(self, home: Home, text: str) -> None:
        self.home = home
        Path(home.data).mkdir(mode=0o700)
        self.said: list[str] = []
        self.configure(text)
        self.start()

    def configure(self, text: str) -> None:
        Path(self.home.config).write_text('[kinds.a]\ncommand = ["true"]\n' + text)

    def start(self) -> None:
        self.db = open_db(self.home)
        self.clock = Clock(self.home, self.said.append)

    def restart(self) -> None:
        self.db.close()
        self.start()

    def turn(self, at: str | int) -> None:
        now = ms(at) if isinstance(at, str) else at
        in_force = config.refresh(self.db, self.home, now)
        self.clock.turn(self.db, config_row.identity(self.db), in_force.schedules, now)

    def keys(self) -> list[str]:
        """The slots for which there is a job."""
        found = self.db.execute("SELECT dedupe_key FROM jobs ORDER BY id").fetchall()
        return [str(key).rpartition(" ")[2] for (key,) in found]


@pytest.fixture
def machine(home: Home) -> Iterator[Machine]:
    machine = Machine(home, '[[schedules]]\ncron = "0 7 * * *"\nkind = "a"\n')
    yield machine
    machine.db.close()


def test_a_slot_becomes_one_job(machine: Machine, home: Home) -> None:
    machine.turn("2026-06-01T06:59:58+02:00")
    assert machine.keys() == []
    for second in range(10):
        machine.turn(f"2026-06-01T07:00:0{second}+02:00")
    assert machine.keys() == ["2026-06-01T07:00+02:00"]
    (row,) = machine.db.execute("SELECT kind, cwd FROM jobs").fetchall()
    assert row == ("a", str(Path("~").expanduser()))
    assert machine.said == []


def test_nothing_was_missed_before_it_was_configured(machine: Machine) -> None:
    machine.turn("2026-06-01T12:00+02:00")
    machine.turn("2026-06-01T12:05+02:00")
    assert machine.keys() == []


def test_a_supervisor_killed_between_the_job_and_its_mark_makes_no_second_one(machine: Machine) -> None:
    machine.turn("2026-06-01T06:59+02:00")
    before = schedules.marks(machine.db)
    machine.turn("2026-06-01T07:00:01+02:00")
    ((name, at),) = before.items()
    schedules.mark(machine.db, name, at)
    machine.restart()
    machine.turn("2026-06-01T07:00:03+02:00")
    machine.restart()
    machine.turn("2026-06-01T07:00:05+02:00")
    assert machine.keys() == ["2026-06-01T07:00+02:00"]


def test_after_sleep_all_that_was_missed_is_made_up_for_once(machine: Machine) -> None:
    machine.turn("2026-06-01T06:00+02:00")
    machine.turn("2026-06-04T09:30+02:00")
    assert machine.keys() == ["2026-06-04T07:00+02:00"]
    assert machine.said == ["schedule '0 7 * * * a': 2026-06-04T07:00+02:00 was missed and is made up for"]
    machine.turn("2026-06-05T07:00+02:00")
    assert machine.keys()[1:] == ["2026-06-05T07:00+02:00"]


def test_a_supervisor_that_did_not_run_is_like_sleep(machine: Machine) -> None:
    machine.turn("2026-06-01T06:00+02:00")
    machine.restart()
    machine.turn("2026-06-01T09:00+02:00")
    assert machine.keys() == ["2026-06-01T07:00+02:00"]


def test_catch_up_skip_skips(machine: Machine) -> None:
    machine.configure('[[schedules]]\ncron = "0 7 * * *"\nkind = "a"\ncatch_up = "skip"\n')
    machine.turn("2026-06-01T06:00+02:00")
    machine.turn("2026-06-01T09:30+02:00")
    assert machine.keys() == []
    assert "2026-06-01T07:00+02:00 was missed and is skipped" in machine.said[0]
    machine.turn("2026-06-02T07:00:30+02:00")  # a turn may take its time
    assert machine.keys() == ["2026-06-02T07:00+02:00"]


def test_a_night_with_a_repeated_hour(machine: Machine) -> None:
    machine.configure(
        '[[schedules]]\ncron = "30 2 * * *"\nkind = "a"\n[[schedules]]\ncron = "45 * * * *"\nkind = "a"\n'
    )
    start = ms("2026-10-25T01:50+02:00")
    for second in range(0, 3 * 3600, 20):
        machine.turn(start + second * 1000)
    assert machine.keys() == [
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:45+02:00",
        "2026-10-25T02:45+01:00",
        "2026-10-25T03:45+01:00",
    ]


def test_a_clock_that_is_set_back_makes_no_second_job(machine: Machine) -> None:
    machine.turn("2026-06-01T06:59+02:00")
    machine.turn("2026-06-01T07:00+02:00")
    machine.turn("2026-06-01T06:30+02:00")
    machine.turn("2026-06-01T07:00+02:00")
    assert machine.keys() == ["2026-06-01T07:00+02:00"]
    machine.turn("2026-06-02T07:00+02:00")
    assert len(machine.keys()) == 2


def test_a_clock_that_was_years_ahead_does_not_stop_it(machine: Machine) -> None:
    machine.turn("2036-06-01T06:59+02:00")
    machine.turn("2036-06-01T07:00+02:00")
    machine.turn("2026-06-01T06:59+02:00")
    machine.turn("2026-06-01T07:00:01+02:00")
    assert machine.keys() == ["2036-06-01T07:00+02:00", "2026-06-01T07:00+02:00"]


def test_a_full_queue_is_asked_again(machine: Machine) -> None:
    full = '[limits]\nmax_queued = 1\n[[schedules]]\ncron = "0 7 * * *"\nkind = "a"\n'
    machine.configure(full)
    machine.turn("2026-06-01T06:59+02:00")
    with Producer(machine.home) as producer:
        producer.enqueue({"kind": "a"})
    with pytest.raises(ClawqError, match=r"schedule '0 7 \* \* \* a': the queue is full"):
        machine.turn("2026-06-01T07:00:01+02:00")
    machine.turn("2026-06-01T07:00:05+02:00")  # not at every turn
    machine.configure(full.replace("= 1", "= 9"))
    machine.turn("2026-06-01T07:02+02:00")
    assert machine.keys()[1:] == ["2026-06-01T07:00+02:00"]


def test_a_schedule_that_leaves_and_comes_back_begins_anew(machine: Machine) -> None:
    machine.turn("2026-06-01T06:00+02:00")
    machine.configure("# nothing\n")
    machine.turn("2026-06-01T06:30+02:00")
    assert schedules.marks(machine.db) == {}
    machine.configure('[[schedules]]\ncron = "0 7 * * *"\nkind = "a"\n')
    machine.turn("2026-06-01T08:00+02:00")
    assert machine.keys() == []


def test_an_idle_turn_writes_nothing(machine: Machine) -> None:
    machine.turn("2026-06-01T06:00+02:00")
    with apsw.Connection(machine.home.db) as other:
        version = other.pragma("data_version")
        for minute in range(50):
            machine.turn(f"2026-06-01T06:{minute:02}+02:00")
        assert other.pragma("data_version") == version
    other.close()


def test_another_time_zone_is_noticed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.turn("2026-06-01T04:00+00:00")
    monkeypatch.setenv("TZ", "Europe/London")  # an hour later
    machine.turn("2026-06-01T04:30+00:00")
    machine.turn("2026-06-01T05:00:10+00:00")
    assert machine.keys() == []
    machine.turn("2026-06-01T06:00:10+00:00")
    assert machine.keys() == ["2026-06-01T07:00+01:00"]


def test_utc_is_a_zone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    slot = Calendar("@daily").next(int(now.timestamp() * 1000))
    assert slot is not None
    assert slot.at == int((now + timedelta(hours=12)).timestamp() * 1000)
    assert slot.name == "2026-06-02T00:00+00:00"


def test_without_schedules_the_library_is_not_loaded() -> None:
    script = "import sys, clawq.supervisor.loop; sys.exit('apscheduler' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
