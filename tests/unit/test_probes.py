"""Probes under the hands of the loop: real processes, and a clock that the test turns."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from clawq import states as job
from clawq.host import processes
from clawq.paths import Home
from clawq.rules import classify, retry
from clawq.rules.classify import End
from clawq.settings import Settings
from clawq.store import jobs, probes, sqlfile
from clawq.supervisor.errands import GRACE_MS, MOST_OUTPUT, WITHIN_MS
from clawq.supervisor.probes import Probes
from clawq.supervisor.start import prepare_run_folder
from tests.moves import put_in
from tests.rows import states
from tests.waiting import until

NOW = 5_000_000


class Loop:
    """What the supervisor does with probes in a turn."""

    def __init__(self, home: Home, db: apsw.Connection, *script: str) -> None:
        prepare_run_folder(home)
        body = json.loads(sqlfile.read("default_config.json"))
        body["kinds"]["mail"] = {"reconcile": ["sh", "-c", *script], "backoff_ms": 1_000}
        self.settings = Settings(body)
        self.home, self.db = home, db
        self.probes = Probes(home)

    def turn(self, mono: int = 0, starting: bool = True) -> None:
        processes.reap()
        self.probes.poll(mono)
        wanted = self.probes.record(self.db, self.settings, starting, NOW, lambda: 1.0)
        self.probes.committed(wanted, self.settings, dict(os.environ), mono)

    def until_answered(self, mono: int = 0) -> None:
        def answered() -> bool:
            self.turn(mono)
            return not self.probes.asked

        until(answered, message=lambda: f"still asked: {self.probes.asked}")

    def error(self) -> Any:
        return self.db.execute("SELECT last_error FROM jobs").get


@pytest.fixture
def job_id(db: apsw.Connection) -> int:
    return put_in(db, job.UNKNOWN, kind="mail")


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pid_in(file: Path) -> int:
    return int(until(lambda: file.exists() and file.read_text()))


def test_one_that_hangs_is_ended_with_its_group(
    home: Home, db: apsw.Connection, job_id: int, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    loop = Loop(
        home, db, f"trap : TERM; sleep 300 & echo $! > {child}.new; mv {child}.new {child}; wait; sleep 300"
    )
    loop.turn()
    pid = pid_in(child)
    loop.turn(WITHIN_MS - 1)
    assert not gone(pid)
    loop.turn(WITHIN_MS)
    assert loop.probes.look_again == WITHIN_MS + GRACE_MS
    until(lambda: gone(pid))  # by TERM; its parent does not mind
    assert loop.probes.asked
    loop.until_answered(WITHIN_MS + GRACE_MS)
    assert (states(db), loop.error()) == ({job_id: job.UNKNOWN}, "its probe did not answer within 30 s")
    assert [name for name in os.listdir(home.run) if name.startswith("probe")] == []


def test_one_that_writes_without_end_is_ended(home: Home, db: apsw.Connection, job_id: int) -> None:
    loop = Loop(home, db, f"yes | head -c {MOST_OUTPUT + 1}; sleep 300")
    loop.turn()
    until(lambda: (loop.turn(1), any(each.failure for each in loop.probes.asked.values()))[1])
    loop.until_answered(1)
    assert loop.error() == "its probe wrote more than anybody reads"


def test_what_it_leaves_in_the_background_is_ended_before_its_answer_counts(
    home: Home, db: apsw.Connection, job_id: int, tmp_path: Path
) -> None:
    left = tmp_path / "left"
    loop = Loop(home, db, f"sleep 300 & echo $! > {left}; exit 0")
    loop.turn()
    loop.until_answered()
    assert states(db) == {job_id: job.SUCCEEDED}
    until(lambda: (processes.reap(), gone(pid_in(left)))[1])


def test_an_answer_is_kept_until_it_is_committed(home: Home, db: apsw.Connection, job_id: int) -> None:
    loop = Loop(home, db, "exit 0")
    loop.turn()
    until(lambda: (processes.reap(), loop.probes.poll(0), loop.probes.answers)[2])
    assert loop.probes.owes(0)
    db.execute("BEGIN")
    loop.probes.record(db, loop.settings, True, NOW, lambda: 1.0)
    db.execute("ROLLBACK")
    assert states(db) == {job_id: job.UNKNOWN}
    loop.turn()
    assert states(db) == {job_id: job.SUCCEEDED}
    assert not loop.probes.owes(0)


def test_a_late_answer_is_not_for_a_later_attempt(home: Home, db: apsw.Connection, job_id: int) -> None:
    loop = Loop(home, db, "exit 0")
    loop.turn()
    until(lambda: (processes.reap(), loop.probes.poll(0), loop.probes.answers)[2])
    jobs.reconcile(db, job_id, NOW, job.QUEUED)
    for move in (
        "'starting', token = 9, tries = tries + 1, ready_at = NULL",
        "'running'",
        "'unknown', token = NULL",
    ):
        db.execute(f"UPDATE jobs SET state = {move}, changed_at = {NOW}")
    loop.turn(starting=False)
    assert states(db) == {job_id: job.UNKNOWN}
    assert probes.any_due(db), "it is asked about its own end"


def test_without_room_it_is_asked_later(
    home: Home, db: apsw.Connection, job_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    loop = Loop(home, db, "exit 0")
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", full)
        loop.turn(0)
    loop.turn(1)
    assert not loop.probes.asked
    assert probes.any_due(db)
    later = loop.probes.look_again
    assert later is not None
    assert loop.probes.owes(later)
    loop.turn(later)
    assert loop.probes.asked
    loop.until_answered(later)
    assert states(db) == {job_id: job.SUCCEEDED}


def test_a_kind_without_a_probe_is_not_waited_for(home: Home, db: apsw.Connection) -> None:
    for _ in range(9):
        put_in(db, job.UNKNOWN)
    assert probes.any_due(db)
    Loop(home, db, "exit 0").turn()
    assert not probes.any_due(db)


def test_none_is_begun_while_the_supervisor_stops(home: Home, db: apsw.Connection, job_id: int) -> None:
    loop = Loop(home, db, "exit 0")
    loop.turn(starting=False)
    assert not loop.probes.asked
    assert probes.any_due(db)


def test_stopping_ends_them_and_leaves_the_question(
    home: Home, db: apsw.Connection, job_id: int, tmp_path: Path
) -> None:
    mine = tmp_path / "pid"
    loop = Loop(home, db, f"trap '' TERM; echo $$ > {mine}.new; mv {mine}.new {mine}; sleep 300")
    loop.turn()
    pid = pid_in(mine)
    loop.probes.stop()
    until(lambda: (processes.reap(), gone(pid))[1])
    assert probes.any_due(db)


def test_those_of_a_dead_supervisor_are_ended(
    home: Home, db: apsw.Connection, job_id: int, tmp_path: Path
) -> None:
    mine = tmp_path / "pid"
    loop = Loop(home, db, f"echo $$ > {mine}.new; mv {mine}.new {mine}; sleep 300")
    loop.turn()
    pid = pid_in(mine)
    Probes(home).end_leftovers()
    until(lambda: (processes.reap(), gone(pid))[1])
    assert [name for name in os.listdir(home.run) if name.startswith("probe")] == []


POLICY = retry.Policy(
    max_attempts=3,
    backoff_ms=1_000,
    max_backoff_ms=60_000,
    max_age_ms=86_400_000,
    on_lost="unknown",
    accepted_at=0,
    deadline_at=None,
)


@pytest.mark.parametrize(
    ("end", "attempts", "cancel", "state", "reason"),
    [
        (classify.LOST, 1, False, job.SCHEDULED, "lost"),
        (classify.LOST, 3, False, job.DEAD, "max_attempts"),
        (classify.by_exit_code(0), 1, False, job.SCHEDULED, "transient"),
        (classify.by_exit_code(64), 1, False, job.DEAD, "permanent"),
        (classify.by_exit_code(128 + signal.SIGKILL), 1, False, job.SCHEDULED, "transient"),
        (classify.by_kill("timed_out", 143), 1, False, job.SCHEDULED, "timeout"),
        (classify.by_kill("stopped", 143), 3, False, job.QUEUED, "lost"),
        (classify.by_kill("cancelled", 143), 1, False, job.CANCELLED, "cancelled"),
        (classify.by_exit_code(1), 1, True, job.CANCELLED, "cancelled"),
    ],
)
def test_what_did_not_happen_goes_on_by_the_rule_for_retries(
    end: End, attempts: int, cancel: bool, state: str, reason: str
) -> None:
    decision = retry.after_probe(end, attempts, POLICY, cancel, NOW, 1.0)
    assert (decision.state, decision.reason) == (state, reason)


@pytest.mark.parametrize("on_lost", ["retry", "unknown"])
@pytest.mark.parametrize("cancel", [True, False])
@pytest.mark.parametrize("end", [classify.by_exit_code(0), classify.by_exit_code(64), classify.LOST])
def test_an_open_effect_counts_more_than_all_else(end: End, cancel: bool, on_lost: str) -> None:
    policy = POLICY._replace(on_lost=on_lost, deadline_at=1)
    decision = retry.after(end, 9, policy, cancel, NOW, 1.0, effects_open=True)
    assert (decision.state, decision.reason) == (job.UNKNOWN, "effect_open")
