"""The alerts' facts, out of a real store."""

from __future__ import annotations

import json

import pytest

from clawq import health
from clawq.host.instance import Supervisor
from clawq.rules.alerts import Alert
from clawq.settings import Settings
from clawq.store import sqlfile, views
from clawq.store.connection import Immediate
from tests.desk import MINUTE, NOW, Desk
from tests.rows import put, refuse

HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def desk() -> Desk:
    return Desk.in_memory()


def alarms(desk: Desk, now: int = NOW) -> list[Alert]:
    body = str(desk.db.execute("SELECT body FROM config").get)
    settings = Settings(json.loads(body or sqlfile.read("default_config.json")))
    status = views.status(desk.db, settings, now)
    health.add_silence(status, "/nowhere", now)
    return health.alarms(desk.db, settings, status, now, Supervisor(True, 1, mode="run"), None)


def reasons(desk: Desk, now: int = NOW) -> list[str]:
    return [alert.reason for alert in alarms(desk, now)]


def test_a_job_that_waits_for_nothing(desk: Desk) -> None:
    job_id = put(desk.db, NOW - 11 * MINUTE)
    put(desk.db, NOW)
    (alert,) = alarms(desk)
    assert (alert.reason, alert.text[:15]) == ("stuck", f"job {job_id} has waite")
    assert reasons(desk, NOW - 2 * MINUTE) == []


def test_one_that_is_about_to_expire_is_nobodys_worry(desk: Desk) -> None:
    put(desk.db, NOW - 11 * MINUTE, stale_at=NOW - 1)
    assert reasons(desk) == []


def test_a_gate_is_closed_since_its_first_lane_was_refused(desk: Desk) -> None:
    put(desk.db, NOW - MINUTE)
    refuse(desk.db, "low_memory", since=NOW - 31 * MINUTE)
    assert [alert.text for alert in alarms(desk)] == ["nothing starts for 31m: low_memory, 1 job waiting"]


def test_a_job_that_neither_writes_nor_computes(desk: Desk) -> None:
    job_id = put(desk.db, NOW - HOUR)
    desk.run(job_id)
    desk.db.execute(
        "INSERT INTO attempts (token, job_id, number, claimed_at, boot_id, lease_ms, lease_until, grace_ms,"
        " timeout_ms, heartbeat, log, worked_at) VALUES (?, ?, 1, ?, 'b', 1, 1, 1, 0, 'process', 'l', ?)",
        (job_id, job_id, NOW - HOUR, NOW - 16 * MINUTE),
    )
    assert reasons(desk) == ["quiet"]
    desk.db.execute("UPDATE attempts SET worked_at = ?", (NOW - MINUTE,))
    assert reasons(desk) == []


def test_a_retry_after_the_deadline(desk: Desk) -> None:
    job_id = put(desk.db, NOW - HOUR, deadline_at=NOW - 10 * MINUTE)
    desk.run(job_id)
    desk.move(job_id, "succeeded")
    for number, at in ((1, NOW - 20 * MINUTE), (2, NOW - 9 * MINUTE)):
        desk.db.execute(
            "INSERT INTO attempts (token, job_id, number, claimed_at, ended_at, outcome, boot_id, lease_ms,"
            " lease_until, grace_ms, timeout_ms, heartbeat, log)"
            " VALUES (?1, ?2, ?1, ?3, ?3, 'failed', 'b', 1, 1, 1, 0, 'process', 'l')",
            (number, job_id, at),
        )
    assert reasons(desk) == ["late_retry"]
    desk.db.execute("UPDATE jobs SET deadline_at = ?", (NOW - 5 * MINUTE,))
    assert reasons(desk) == []


def test_a_key_that_answers_duplicate_long_after_its_job(desk: Desk) -> None:
    first = desk.take(dedupe_key="digest")
    desk.run(first.job_id)
    desk.move(first.job_id, "succeeded", now=NOW)

    def noted() -> object:
        return desk.db.execute("SELECT at FROM old_keys").get

    desk.take(now=NOW + DAY, dedupe_key="digest")
    assert noted() is None  # a {date} slot may still be asked for
    desk.take(now=NOW + 2 * DAY, dedupe_key="digest")
    assert noted() == NOW + 2 * DAY
    desk.take(now=NOW + 2 * DAY + 9 * MINUTE, dedupe_key="digest")
    assert noted() == NOW + 2 * DAY  # most duplicates write nothing
    desk.take(now=NOW + 2 * DAY + 11 * MINUTE, dedupe_key="digest")
    assert noted() == NOW + 2 * DAY + 11 * MINUTE
    (alert,) = alarms(desk, NOW + 2 * DAY + 12 * MINUTE)
    assert (alert.reason, "key 'digest' of default" in alert.text) == ("old_key", True)
    assert reasons(desk, NOW + 5 * DAY) == []


def test_a_key_of_a_pruned_job_too(desk: Desk) -> None:
    taken = desk.take(dedupe_key="digest")
    desk.move(taken.job_id, "cancelled")
    with Immediate(desk.db):
        desk.db.execute("DELETE FROM jobs")
    desk.take(now=NOW + 1, dedupe_key="digest")
    assert [alert.reason for alert in alarms(desk, NOW + 1)] == ["old_key"]


def test_a_job_that_still_waits_keeps_its_key_without_a_word(desk: Desk) -> None:
    desk.take(dedupe_key="digest", delay="9d")
    desk.take(now=NOW + 5 * DAY, dedupe_key="digest")
    assert desk.db.execute("SELECT count(*) FROM old_keys").get == 0


def sample(desk: Desk, at: int, queued: int, oldest_age_ms: int) -> None:
    desk.db.execute(
        "INSERT INTO samples (minute, at, queued, scheduled, held, running, waiting, unknown, oldest_age_ms,"
        " max_running) VALUES (?, ?, ?, 0, 0, 8, 0, 0, ?, 8)",
        (at // MINUTE, at, queued, oldest_age_ms),
    )


def test_depth_and_age_that_rise_together(desk: Desk) -> None:
    for minute in range(30):
        sample(desk, NOW - (30 - minute) * MINUTE, 10 + minute, minute * MINUTE)
    assert reasons(desk) == ["growing"]
    assert reasons(desk, NOW + HOUR) == []


def test_execution_that_slows_while_as_many_wait(desk: Desk) -> None:
    for minute in range(30):
        at = NOW - (30 - minute) * MINUTE
        sample(desk, at, 20, MINUTE)
        job_id = put(desk.db, at)
        desk.move(job_id, "cancelled")
        desk.db.execute(
            "INSERT INTO attempts (token, job_id, number, claimed_at, started_at, ended_at, outcome, boot_id,"
            " lease_ms, lease_until, grace_ms, timeout_ms, heartbeat, log)"
            " VALUES (?1, ?1, 1, ?2, ?2, ?3, 'succeeded', 'b', 1, 1, 1, 0, 'process', 'l')",
            (job_id, at, at + 1_000 * (1 + minute // 5)),
        )
    assert reasons(desk) == ["slowing"]
