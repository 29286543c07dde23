"""A supervisor that comes back late, and a storm of everything: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from clawq.paths import Home
from clawq.store.connection import open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.rows import check_books

KILLS = 3
PRODUCERS, EACH = 3, 5


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def rows(fleet: Fleet) -> list[tuple[object, ...]]:
    db = open_db(fleet.home)
    check_books(db)
    found = db.execute("SELECT * FROM attempts ORDER BY token").fetchall()
    found += db.execute("SELECT * FROM events ORDER BY id").fetchall()
    db.close()
    return found


def test_a_stopped_supervisor_that_wakes_changes_nothing_that_another_took_over(fleet: Fleet) -> None:
    """Its lock file was removed while it was stopped, and what it ran has ended and run again since."""
    fleet.configure('[bands.normal]\nbackoff = "1s"\n')
    old = fleet.start()
    go = f'while [ ! -e "{fleet.scratch}/go" ]; do sleep 0.1; done'
    done = fleet.script(f"echo a >> {fleet.scratch}/runs; {go}")
    retried = fleet.script(
        f'echo b >> {fleet.scratch}/runs; [ -e "{fleet.scratch}/once" ] && exit 0;'
        f' touch "{fleet.scratch}/once"; {go}; exit 1'
    )
    for job_id in (done, retried):
        fleet.until_state(job_id, "running")
    old.send_signal(signal.SIGSTOP)
    try:
        os.unlink(fleet.home.lock)
        (fleet.scratch / "go").touch()
        fleet.run_until_idle()
        assert (fleet.state(done), fleet.state(retried)) == ("succeeded", "succeeded")
        before = rows(fleet)
    finally:
        old.send_signal(signal.SIGCONT)
    assert old.wait(timeout=20) != 0, "it went on without its lock"
    assert rows(fleet) == before
    assert Counter(fleet.lines("runs")) == {"a": 1, "b": 2}


def test_producers_commands_and_kills_at_once(fleet: Fleet) -> None:
    """The short form of the storm in test_soak.py."""
    ran = fleet.scratch / "ran"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    job = ["--max-attempts", "1", "--", "sh", "-c", f"echo $CLAWQ_JOB_ID >> {ran}; sleep 0.1"]
    enqueue = [*CLAWQ, "enqueue", "--print-id", *job]
    script = f'n={EACH}; while [ $n -gt 0 ]; do n=$((n-1)); "$@" || exit; done'
    outputs = [fleet.scratch / f"ids-{number}" for number in range(PRODUCERS)]
    producers = []
    for output in outputs:
        with output.open("w") as ids:
            producers.append(subprocess.Popen(["sh", "-c", script, "sh", *enqueue], stdout=ids, env=env))
    for kill in range(KILLS):
        supervisor = fleet.start()
        commands = [
            subprocess.Popen([*CLAWQ, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
            for words in (
                ["resume" if kill % 2 else "pause", "--band", "normal"],
                ["cancel", str(1 + kill * 3)],
            )
        ]
        for command in commands:
            command.wait(60)
        supervisor.kill()
        supervisor.wait()
    fleet.clawq("resume", "--band", "normal", code=None)
    assert [producer.wait(60) for producer in producers] == [0] * PRODUCERS
    fleet.run_until_idle()

    accepted = sorted(int(word) for output in outputs for word in output.read_text().split())
    assert accepted == list(range(1, PRODUCERS * EACH + 1))
    jobs = {row["id"]: row["state"] for row in fleet.json("list", "--limit", "1000")}
    assert sorted(jobs) == accepted
    assert set(jobs.values()) <= {"succeeded", "cancelled"}
    counted = Counter(int(word) for word in Path(ran).read_text().split())
    assert set(counted.values()) == {1}, "a job ran twice"
    assert {job_id for job_id, state in jobs.items() if state == "succeeded"} <= set(counted)
    rows(fleet)
