"""What goes of what has ended: too old, or too much together; and what never goes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import apsw

from clawq import states as job
from clawq.paths import Home
from clawq.retention import Sweep
from clawq.settings import Limits, Settings
from clawq.store import retention, sqlfile
from clawq.supervisor import chores
from clawq.supervisor.chores import Chores
from tests.moves import put_in

NOW = 1_900_000_000_000
DAY = 86_400_000
MB = 1 << 20


def limits(days: int = 30, mb: int = 4096) -> Limits:
    body = Settings.from_text(sqlfile.read("default_config.json")).limits
    body.retention_ms, body.retention_mb = days * DAY, mb
    return body


def log_of(home: Home, job_id: int) -> Path:
    return Path(home.logs) / f"{job_id}.1.{1_000 + job_id}.log"


def write_log(home: Home, job_id: int, size: int = 10, at: int = NOW) -> Path:
    os.makedirs(home.logs, exist_ok=True)
    path = log_of(home, job_id)
    with open(path, "wb") as file:
        file.truncate(size)
    os.utime(path, (at / 1000, at / 1000))
    return path


def sweep(db: apsw.Connection, home: Home, bound: Limits, **options: Any) -> Sweep:
    done = Sweep(db, home, bound, NOW, batch=2, **options)
    for _ in done.steps():
        assert not db.in_transaction
    return done


def ids(db: apsw.Connection) -> set[int]:
    return {job_id for (job_id,) in db.execute("SELECT id FROM jobs")}


def test_what_ended_long_ago_goes_with_its_log_and_all_that_lives_stays(
    db: apsw.Connection, home: Home
) -> None:
    old = {put_in(db, state, NOW - 31 * DAY) for state in job.ENDED for _ in range(3)}
    young = {put_in(db, state, NOW - 29 * DAY) for state in job.ENDED}
    alive = {put_in(db, state, NOW - 99 * DAY) for state in job.STATES if state not in job.ENDED}
    for job_id in old | young | alive:
        write_log(home, job_id, at=NOW - 31 * DAY if job_id not in young else NOW)
    dry = sweep(db, home, limits(), dry=True)
    assert dry.jobs == len(old)
    assert ids(db) == old | young | alive
    done = sweep(db, home, limits())
    assert done.jobs == len(old)
    assert ids(db) == young | alive
    with_attempt = {row[0] for row in db.execute("SELECT job_id FROM attempts")}
    left = {int(path.name.split(".")[0]) for path in Path(home.logs).iterdir()}
    # Jobs that never ran have no attempt: a log of theirs is a stranger's, and goes by its age.
    assert left >= with_attempt
    assert not left & old
    for table in ("events", "attempts"):
        assert {row[0] for row in db.execute(f"SELECT job_id FROM {table}")} <= young | alive


def test_a_log_of_no_attempt_goes_by_its_age_and_nothing_else_in_the_folder_does(
    db: apsw.Connection, home: Home
) -> None:
    old = write_log(home, 7, at=NOW - 31 * DAY)
    young = write_log(home, 8, at=NOW - DAY)
    others = [Path(home.logs) / name for name in ("supervisor.log", "notes.txt", "9.1.log", "9.1.x.log")]
    for path in others:
        path.write_text("x")
        os.utime(path, (1, 1))
    assert sweep(db, home, limits(), dry=True).orphans == 1
    assert old.exists()
    assert sweep(db, home, limits()).orphans == 1
    assert not old.exists()
    assert young.exists()
    assert all(path.exists() for path in others)


def test_too_many_bytes_of_logs_cost_the_oldest_ends_their_logs_and_not_their_rows(
    db: apsw.Connection, home: Home
) -> None:
    ended = [put_in(db, job.DEAD if number % 2 else job.SUCCEEDED, NOW - DAY + number) for number in range(6)]
    running = put_in(db, job.RUNNING, NOW - 2 * DAY)
    paths = [write_log(home, job_id, MB) for job_id in (*ended, running)]
    dry = sweep(db, home, limits(mb=4), dry=True)
    assert dry.crowded_logs == 3
    assert all(path.exists() for path in paths)
    done = sweep(db, home, limits(mb=4))
    assert done.crowded_logs == 3
    assert [path.exists() for path in paths] == [False, False, False, True, True, True, True]
    assert ids(db) == {*ended, running}
    assert retention.mark(db)[1] == ended[2]
    assert sweep(db, home, limits(mb=4)).crowded_logs == 0
    # The log of what runs stays, even when it alone is too much.
    assert sweep(db, home, limits(mb=1)).crowded_logs == 3
    assert paths[-1].exists()


def test_a_dry_run_counts_a_log_that_goes_with_its_job_once(db: apsw.Connection, home: Home) -> None:
    for age in (40, 35, 20, 10):
        write_log(home, put_in(db, job.SUCCEEDED, NOW - age * DAY), MB)
    write_log(home, put_in(db, job.RUNNING, NOW - DAY), 3 * MB)
    dry = sweep(db, home, limits(mb=4), dry=True)
    done = sweep(db, home, limits(mb=4))
    for each in (dry, done):
        assert (each.jobs, each.crowded_logs, each.log_bytes) == (2, 1, 4 * MB)


def test_a_mark_of_a_clock_that_was_ahead_keeps_no_log(db: apsw.Connection, home: Home) -> None:
    old = write_log(home, put_in(db, job.SUCCEEDED, NOW - DAY), 2 * MB)
    retention.set_mark(db, (NOW + DAY, 7))
    assert sweep(db, home, limits(mb=1)).crowded_logs == 1
    assert not old.exists()


def test_a_database_that_is_too_large_loses_its_oldest_ends(db: apsw.Connection, home: Home) -> None:
    payload = '"' + "x" * 60_000 + '"'
    ended = [put_in(db, job.SUCCEEDED, NOW - DAY + number, payload=payload) for number in range(40)]
    queued = [put_in(db, job.QUEUED, NOW - 9 * DAY, payload=payload) for _ in range(3)]
    assert retention.room(db) > 2 * MB
    dry = sweep(db, home, limits(mb=2), dry=True)
    assert dry.too_large_by > 0
    assert ids(db) == {*ended, *queued}
    done = sweep(db, home, limits(mb=2))
    assert 0 < done.crowded_jobs < 40
    assert retention.room(db) <= 2 * MB
    assert ids(db) == {*ended[done.crowded_jobs :], *queued}
    everything = sweep(db, home, limits(mb=1), before=NOW)
    assert everything.jobs == 40 - done.crowded_jobs
    assert ids(db) == set(queued)


def test_many_ends_of_one_millisecond_are_all_passed(db: apsw.Connection, home: Home) -> None:
    ended = [put_in(db, job.DEAD, NOW) for _ in range(7)]
    seen: list[int] = []
    mark = retention.BEGINNING
    while found := retention.oldest(db, mark, 2):
        seen += [job_id for _, job_id in found]
        mark = found[-1]
    assert seen == ended


def test_a_log_that_cannot_be_deleted_is_said_and_stops_nothing(db: apsw.Connection, home: Home) -> None:
    first, second = (put_in(db, job.DEAD, NOW - 31 * DAY) for _ in range(2))
    stuck, other = write_log(home, first), write_log(home, second)
    stuck.unlink()
    stuck.mkdir()  # as a file that may not be deleted: for root there is no other
    done = sweep(db, home, limits())
    assert done.jobs == 2
    assert done.failure is not None
    assert not other.exists()
    assert sweep(db, home, limits()).orphans == 0


def test_the_supervisor_takes_one_step_at_a_time(db: apsw.Connection, home: Home) -> None:
    long_ago = int(time.time() * 1000) - 99 * DAY
    for _ in range(250):
        put_in(db, job.CANCELLED, long_ago)

    class State:
        mode = "run"
        settings = Settings.from_text(sqlfile.read("default_config.json"))

    state: Any = State()
    state.db = db
    said: list[str] = []
    mine = Chores(home, said.append)
    started = 5_000
    assert mine.turn(state, started) is None
    assert mine.turn(state, started + chores.FIRST_SWEEP_MS - 1) is None
    left = []
    mono = started + chores.FIRST_SWEEP_MS
    while (due_in := mine.turn(state, mono)) is not None:
        left.append(len(ids(db)))
        assert mine.turn(state, mono) is None  # another turn, sooner than the next step
        mono += due_in
    assert left == [150, 50, 0]
    assert mine.turn(state, mono + chores.SWEEP_MS - 1) is None
    put_in(db, job.CANCELLED, long_ago)
    assert mine.turn(state, mono + chores.SWEEP_MS) is not None
    assert ids(db) == set()
    assert said == []
