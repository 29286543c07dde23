"""kill -9 of the supervisor: one run of the agent, one recorded outcome, at whatever point it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawq.paths import Home
from clawq.store.connection import open_db
from tests.crashing import POINTS
from tests.fleet import ROOT, Fleet
from tests.rows import check_books
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def die_at(point: str) -> None:
    argv = [sys.executable, "-m", "tests.crashing", point]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


def check_one_run(fleet: Fleet, job_id: int, exit_code: int, state: str) -> None:
    assert fleet.lines("runs") == ["run"]
    shown = fleet.json("show", job_id)
    assert (shown["job"]["state"], shown["job"]["exit_code"], shown["job"]["attempts"]) == (
        state,
        exit_code,
        1,
    )
    recorded = [each["outcome"] for each in shown["attempts"] if each["outcome"] != "never_started"]
    assert recorded == ["succeeded" if exit_code == 0 else "failed"]
    db = open_db(fleet.home)
    check_books(db)
    db.close()
    left = {path.name for path in Path(fleet.home.run).iterdir()} - {"null.payload"}
    assert left == set()


# Each point once, in turn with an agent that has ended by then and one that has not; the others in the soak.
@pytest.mark.parametrize(
    ("point", "seconds"),
    [
        pytest.param(point, seconds, marks=() if (n + m) % 2 else pytest.mark.soak)
        for n, point in enumerate(POINTS)
        for m, seconds in enumerate((0, 0.4))
    ],
)
def test_dying_at_any_point_runs_the_agent_once(fleet: Fleet, point: str, seconds: float) -> None:
    # A claim that never ran closes the gate for a moment, as a failed fork would.
    fleet.configure('[host]\nretry_after = "1s"\n')
    job_id = fleet.script(f"echo run >> {fleet.scratch}/runs; sleep {seconds}")
    die_at(point)
    fleet.run_until_idle()
    check_one_run(fleet, job_id, 0, "succeeded")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("who", "points"),
    [
        ("supervisor", 7),
        pytest.param("families", 7, marks=pytest.mark.sized),
        ("commands", 20),
    ],
)
def test_dying_at_any_commit_leaves_the_old_state_or_the_new_one(
    home: Home, who: str, when: str, points: int
) -> None:
    """The daemon's death forgot what ran, or ran it a second time."""
    argv = [sys.executable, "-m", "tests.commits", who, when]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= points


@pytest.mark.parametrize("restart", ["while it runs", "after it ended"])
def test_an_agent_outlives_its_supervisor(fleet: Fleet, restart: str) -> None:
    fleet.configure("[kinds.default]\nmax_attempts = 1\n")
    first = fleet.start()
    job_id = fleet.script(f"echo $$ > {fleet.scratch}/pid; echo run >> {fleet.scratch}/runs; sleep 2; exit 7")
    fleet.until_state(job_id, "running")
    first.kill()
    first.wait()
    if restart == "after it ended":
        pid = int((fleet.scratch / "pid").read_text())
        until(lambda: not os.path.exists(f"/proc/{pid}") if sys.platform == "linux" else not alive(pid))
    fleet.run_until_idle()
    check_one_run(fleet, job_id, 7, "dead")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_adopted_agent_still_has_its_timeout(fleet: Fleet) -> None:
    first = fleet.start()
    job_id = fleet.script("--timeout", "2s", "--max-attempts", "1", "sleep 60")
    fleet.until_state(job_id, "running")
    first.kill()
    first.wait()
    fleet.run_until_idle()
    assert fleet.json("show", job_id)["attempts"][0]["outcome"] == "timed_out"


def test_an_agent_whose_shell_was_killed_is_lost_and_its_session_swept(fleet: Fleet) -> None:
    with fleet.supervised():
        job_id = fleet.script(
            "--max-attempts",
            "1",
            f"echo $$ > {fleet.scratch}/pid; echo $PPID > {fleet.scratch}/shell; sleep 60",
        )
        fleet.until_state(job_id, "running")
        until((fleet.scratch / "shell").exists)
        os.kill(int((fleet.scratch / "shell").read_text()), signal.SIGKILL)
        fleet.until_state(job_id, "dead")
    assert fleet.json("show", job_id)["attempts"][0]["outcome"] == "lost"
    pid = int((fleet.scratch / "pid").read_text())
    until(lambda: not alive(pid))


def test_a_job_that_is_lost_on_another_boot_is_not_believed_alive(fleet: Fleet) -> None:
    first = fleet.start()
    job_id = fleet.script("--max-attempts", "1", "sleep 60")
    fleet.until_state(job_id, "running")
    first.kill()
    first.wait()
    db = open_db(fleet.home)
    pid = int(db.execute("SELECT pid FROM attempts").get)
    db.execute("UPDATE attempts SET boot_id = 'another boot'")
    db.close()
    fleet.run_until_idle()
    assert fleet.json("show", job_id)["attempts"][0]["outcome"] == "lost"
    assert alive(pid), "a pid of another boot was signalled"
    os.killpg(pid, signal.SIGKILL)
