"""A job's life with a real supervisor, real shells and real signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from clawq.paths import Home
from clawq.store import attempts
from clawq.store.connection import open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def agent_alive(pid_file: Path) -> bool:
    try:
        return psutil.Process(int(pid_file.read_text())).status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, psutil.Error):
        return False


def test_an_agent_gets_its_world(fleet: Fleet) -> None:
    out = fleet.scratch / "world"
    fleet.configure(
        '[env]\nFROM_FILE = "f"\nSHARED = "file"\n'
        '[kinds.k]\nenv = { SHARED = "kind" }\n'
        f'command = ["sh", "-c", "(env; pwd; cat $CLAWQ_PAYLOAD_FILE) > {out}", "--", "{{payload}}"]\n'
    )
    job_id = fleet.enqueue("k", "--payload", '{"n": 1}', "--env", "MINE=yes", "--cwd", "/usr")
    fleet.run_until_idle()
    world = out.read_text()
    for line in (
        "FROM_FILE=f",
        "SHARED=kind",
        "MINE=yes",
        f"CLAWQ_JOB_ID={job_id}",
        "CLAWQ_ATTEMPT=1",
        "CLAWQ_KIND=k",
    ):
        assert line in world.splitlines()
    assert "\n/usr\n" in world
    assert world.endswith('{"n": 1}')
    path = next(line for line in world.splitlines() if line.startswith("PATH="))
    assert path.split(":")[-1] == os.path.dirname(os.path.abspath(sys.executable))


def test_an_agent_has_no_stdin_and_pythons_ignored_signals_are_reset(fleet: Fleet) -> None:
    job_id = fleet.script("read line; echo got:$?; yes | head -1")
    fleet.run_until_idle()
    assert fleet.clawq("logs", job_id, "--attempt", 1).stdout.startswith("got:1\ny\n")
    ignored = fleet.script("cat /proc/self/status | sed -n 's/^SigIgn:.//p'")
    fleet.run_until_idle()
    if os.path.exists("/proc/self/status"):
        mask = int(fleet.clawq("logs", ignored).stdout, 16)
        assert not [n for n in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT) if mask >> (n - 1) & 1]


def test_a_failed_job_is_tried_to_its_cap_with_every_log_kept(fleet: Fleet) -> None:
    fleet.configure('[kinds.flaky]\nbackoff = "1s"\n')
    job_id = fleet.enqueue(
        "flaky", "--max-attempts", 2, "--", "sh", "-c", "echo attempt $CLAWQ_ATTEMPT; exit 1"
    )
    fleet.run_until_idle()
    shown = fleet.json("show", job_id)
    assert shown["job"]["state"] == "dead"
    assert shown["job"]["attempts"] == 2
    assert [each["outcome"] for each in shown["attempts"]] == ["failed", "failed"]
    assert shown["job"]["last_error"] == "exit 1: attempt 2"
    for number in (1, 2):
        assert fleet.clawq("logs", job_id, "--attempt", number).stdout == f"attempt {number}\n"
    assert [each["id"] for each in fleet.json("dead")] == [job_id]


@pytest.mark.parametrize("code", [2, 64, 77, 126, 127])
def test_what_cannot_work_is_dead_at_once(fleet: Fleet, code: int) -> None:
    job_id = fleet.script(f"exit {code}")
    fleet.run_until_idle()
    job = fleet.job(job_id)
    assert (job["state"], job["attempts"], job["exit_code"]) == ("dead", 1, code)


def test_a_working_folder_that_is_gone_is_the_jobs_own_failure(fleet: Fleet) -> None:
    folder = fleet.scratch / "gone"
    folder.mkdir()
    job_id = fleet.enqueue("--cwd", folder, "--", "true")
    folder.rmdir()
    fleet.run_until_idle()
    assert fleet.job(job_id)["state"] == "dead"


def test_two_browser_slots_never_hold_three(fleet: Fleet) -> None:
    fleet.configure('[kinds.a]\nneeds = ["browser"]\n[kinds.b]\nneeds = ["browser"]\n')
    times = fleet.scratch / "times"
    script = f'echo "+ $(date +%s%N)" >> {times}; sleep 0.3; echo "- $(date +%s%N)" >> {times}'
    for n in range(8):
        fleet.enqueue("ab"[n % 2], "--", "sh", "-c", script)
    fleet.run_until_idle()
    marks = sorted((int(at), sign) for sign, at in (line.split() for line in fleet.lines("times")))
    alive = most = 0
    for _, sign in marks:
        alive += 1 if sign == "+" else -1
        most = max(most, alive)
    assert (len(marks), most) == (16, 2)


def test_an_exclusive_name_runs_one_at_a_time(fleet: Fleet) -> None:
    script = f"echo + >> {fleet.scratch}/marks; sleep 0.1; echo - >> {fleet.scratch}/marks"
    for _ in range(5):
        fleet.script("--exclusive", "worktree", script)
    fleet.run_until_idle()
    assert fleet.lines("marks") == ["+", "-"] * 5


def test_a_closed_gate_says_why_and_opens_without_a_restart(fleet: Fleet) -> None:
    fleet.configure("[host]\nmax_user_procs = 1\n")
    with fleet.supervised():
        job_id = fleet.script("true")
        why = until(lambda: (w := fleet.json("why", job_id))["blocked_by"][0]["reason"] == "uid_procs" and w)
        blocked = why["blocked_by"][0]
        assert blocked["measured"] >= 1
        assert blocked["limit"] == 1
        assert blocked["since"]
        assert fleet.json("show", job_id)["deferrals"][0]["reason"] == "uid_procs"
        assert fleet.json("show", job_id)["deferrals"][0]["count"] == 1
        assert fleet.json("status")["waiting_on"][0]["reason"] == "uid_procs"
        assert fleet.state(job_id) == "queued"
        fleet.configure("[host]\nmax_user_procs = 100000\n")
        fleet.until_state(job_id, "succeeded", seconds=5)


def test_a_timeout_ends_the_whole_session(fleet: Fleet) -> None:
    # The child is in a group of its own, as a shell with job control makes it.
    script = f"set -m; sleep 300 & echo $! > {fleet.scratch}/child; trap '' TERM; sleep 300"
    fleet.configure('[kinds.hang]\ngrace = "1s"\n')
    job_id = fleet.enqueue("hang", "--timeout", "1s", "--max-attempts", 1, "--", "bash", "-c", script)
    fleet.run_until_idle()
    shown = fleet.json("show", job_id)
    assert shown["job"]["state"] == "dead"
    assert shown["attempts"][0]["outcome"] == "timed_out"
    assert shown["job"]["error_class"] == "timeout"
    assert not agent_alive(fleet.scratch / "child")
    began, ended = (datetime.fromisoformat(shown["attempts"][0][name]) for name in ("started_at", "ended_at"))
    assert 1.5 <= (ended - began).total_seconds() < 10, "the timeout and the grace, not the next lease"


def test_what_an_agent_leaves_behind_is_ended_before_its_slot_is_free(fleet: Fleet) -> None:
    left, stray = fleet.scratch / "left", fleet.scratch / "stray"
    away = f"setsid sh -c 'echo $$ > {stray}; exec sleep 300'"  # in a session of its own
    there = f"until [ -s {stray} ]; do sleep 0.01; done"
    job_id = fleet.script(f"{away} & sleep 300 & echo $! > {left}; {there}; exit 0")
    fleet.run_until_idle()
    assert fleet.state(job_id) == "succeeded"
    assert not agent_alive(left)
    assert not agent_alive(stray)


def test_an_agent_without_a_sign_of_life_is_stalled(fleet: Fleet) -> None:
    fleet.configure('[kinds.quiet]\nheartbeat = "output"\nlease = "1s"\nmax_attempts = 1\n')
    quiet = fleet.enqueue("quiet", "--", "sleep", "60")
    chatty = fleet.enqueue("quiet", "--", "sh", "-c", "for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.3; done")
    fleet.run_until_idle()
    assert fleet.json("show", quiet)["attempts"][0]["outcome"] == "stalled"
    assert fleet.state(chatty) == "succeeded"


def test_a_stopped_agent_is_stalled(fleet: Fleet) -> None:
    fleet.configure('[kinds.k]\nlease = "1s"\nmax_attempts = 1\ngrace = "1s"\n')
    job_id = fleet.enqueue("k", "--", "sh", "-c", "kill -STOP $$")
    fleet.run_until_idle()
    assert fleet.json("show", job_id)["attempts"][0]["outcome"] == "stalled"


def test_on_lost_unknown_waits_for_a_person(fleet: Fleet) -> None:
    job_id = fleet.script("--timeout", "1s", "--on-lost", "unknown", "sleep 60")
    fleet.run_until_idle()
    assert fleet.state(job_id) == "unknown"


def test_what_was_not_started_in_time_expires(fleet: Fleet) -> None:
    fleet.configure("[host]\nmax_user_procs = 1\n")
    stale = fleet.script("--stale-after", "1s", "true")
    late = fleet.script("--deadline", "1s", "true")
    with fleet.supervised():
        for job_id in (stale, late):
            fleet.until_state(job_id, "expired")


def test_a_deadline_ends_what_runs_and_leaves_no_retry(fleet: Fleet) -> None:
    job_id = fleet.script("--deadline", "2s", "sleep 60")
    fleet.run_until_idle()
    shown = fleet.json("show", job_id)
    assert (shown["job"]["state"], shown["attempts"][0]["outcome"]) == ("dead", "timed_out")


def test_a_job_is_cancelled_while_it_runs(fleet: Fleet) -> None:
    with fleet.supervised():
        job_id = fleet.script(f"echo $$ > {fleet.scratch}/pid; exec sleep 60")
        fleet.until_state(job_id, "running")
        fleet.clawq("cancel", job_id)
        fleet.until_state(job_id, "cancelled")
    assert not agent_alive(fleet.scratch / "pid")


def test_a_second_supervisor_is_refused_and_a_standby_takes_over(fleet: Fleet) -> None:
    with fleet.supervised() as first:
        refusal = fleet.clawq("run", code=75)
        assert str(first.pid) in refusal.stderr
        assert refusal.stderr.count("\n") == 1
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        standby = subprocess.Popen(
            [*CLAWQ, "run", "--standby"], env=env, stderr=subprocess.DEVNULL, text=True
        )
        try:
            fleet.end(first)
            until(lambda: fleet.holder() == standby.pid, 10, "the standby did not take over")
            fleet.until_state(fleet.script("true"), "succeeded")
        finally:
            fleet.end(standby)


@pytest.mark.parametrize(("how", "word"), [(signal.SIGTERM, None), (None, "stop")])
def test_a_hand_over_lets_agents_live_on(fleet: Fleet, how: int | None, word: str | None) -> None:
    first = fleet.start()
    job_id = fleet.script(f"echo run >> {fleet.scratch}/runs; sleep 2; exit 7")
    fleet.until_state(job_id, "running")
    if how is not None:
        first.send_signal(how)
    else:
        assert fleet.clawq("stop").stdout == f"supervisor {first.pid} has ended\n"
    first.wait(timeout=5)
    assert "1 agents live on" in fleet.said()
    assert first.returncode == 0
    fleet.configure("[kinds.default]\nmax_attempts = 1\n")
    fleet.run_until_idle()
    job = fleet.job(job_id)
    assert (fleet.lines("runs"), job["exit_code"], job["state"], job["attempts"]) == (["run"], 7, "dead", 1)


def test_draining_finishes_what_runs_and_starts_nothing(fleet: Fleet) -> None:
    first = fleet.start()
    go = fleet.scratch / "go"
    running = fleet.script(f"until [ -e {go} ]; do sleep 0.1; done")
    fleet.until_state(running, "running")
    assert fleet.clawq("why", running).stdout == (
        f"job {running} is running: `clawq logs -f {running}` follows it\n"
    )
    first.send_signal(signal.SIGINT)
    until(lambda: "drain" in Path(fleet.home.lock).read_text())
    waiting = fleet.script("true")
    assert ", finishing what runs for " in fleet.clawq("status").stdout
    go.touch()
    asked = fleet.clawq("stop", "--drain")
    assert asked.stdout in (f"supervisor {first.pid} has ended\n", "no supervisor is running\n")
    first.wait(timeout=20)
    assert (fleet.state(running), fleet.state(waiting)) == ("succeeded", "queued")


@pytest.mark.parametrize("twice", [True, False])
def test_stopping_now_ends_agents_and_costs_no_attempt(fleet: Fleet, twice: bool) -> None:
    first = fleet.start()
    job_id = fleet.script(f"echo $$ > {fleet.scratch}/pid; exec sleep 60")
    fleet.until_state(job_id, "running")
    if twice:
        first.send_signal(signal.SIGINT)
        until(lambda: "drain" in Path(fleet.home.lock).read_text())
        first.send_signal(signal.SIGINT)
    else:
        fleet.clawq("stop", "--now", timeout=10)
    first.wait(timeout=10)
    assert not agent_alive(fleet.scratch / "pid")
    job = fleet.job(job_id)
    assert (job["state"], job["attempts"]) == ("queued", 0)


def test_a_producer_without_a_path_is_told_the_supervisors(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = fleet.scratch / "tools"
    tools.mkdir()
    (tools / "only-here").write_text("#!/bin/sh\nexit 0\n")
    (tools / "only-here").chmod(0o755)
    bare = [
        "env",
        "-i",
        f"CLAWQ_HOME={fleet.home.data}",
        f"PYTHONPATH={ROOT}",
        *CLAWQ,
        "enqueue",
        "--",
        "only-here",
    ]
    assert subprocess.run(bare, capture_output=True).returncode == 2
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tools}")
    fleet.run_until_idle()
    assert subprocess.run(bare, capture_output=True).returncode == 0
    fleet.run_until_idle()
    assert fleet.state(1) == "succeeded"


def test_a_datagram_wakes_the_supervisor_at_once(fleet: Fleet) -> None:
    with fleet.supervised():
        delays = []
        for n in range(5):
            stamp = fleet.scratch / f"stamp{n}"
            before = time.time_ns()
            job_id = fleet.script(f"date +%s%N > {stamp}")
            fleet.until_state(job_id, "succeeded")
            delays.append((int(stamp.read_text()) - before) / 1e9)
        # The idle look is a second apart: all five within it were not luck.
        assert sorted(delays)[2] < 0.8


def test_a_home_whose_path_is_too_long_for_a_socket_is_polled(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = Path(fleet.home.data).parent / ("långt namn " * 9).strip()
    monkeypatch.setenv("CLAWQ_HOME", str(deep))
    from clawq.paths import find_home

    polled = Fleet(find_home())
    assert not polled.home.socket_fits
    with polled.supervised():
        polled.until_state(polled.script("true"), "succeeded")
    assert not Path(polled.home.sock).exists()


def test_a_foreign_file_in_the_sockets_place_is_left_alone(fleet: Fleet) -> None:
    os.makedirs(fleet.home.data)
    Path(fleet.home.sock).write_text("mine")
    with fleet.supervised():
        fleet.until_state(fleet.script("true"), "succeeded")
    assert Path(fleet.home.sock).read_text() == "mine"


def test_paused_work_does_not_keep_until_idle_alive(fleet: Fleet) -> None:
    job_id = fleet.script("true")
    held = fleet.script("--hold", "true")
    fleet.clawq("pause", "--kind", "default")
    fleet.run_until_idle()
    assert (fleet.state(job_id), fleet.state(held)) == ("queued", "held")
    fleet.clawq("resume", "--kind", "default")
    fleet.run_until_idle()
    assert fleet.state(job_id) == "succeeded"


def test_a_broken_configuration_keeps_the_last_good_one(fleet: Fleet) -> None:
    fleet.configure("[limits]\nmax_running = 1\n")
    with fleet.supervised():
        fleet.until_state(fleet.script("true"), "succeeded")
        fleet.configure("[limits]\nmax_runing = 1\n")
        job_id = fleet.script("true")
        fleet.until_state(job_id, "succeeded")
        until(lambda: any("max_runing" in alert for alert in map(str, fleet.json("status")["alerts"])))
        until(lambda: "max_runing" in fleet.said(), 5)
    assert fleet.clawq("config", "check", code=78).stderr.count("max_runing") == 1


def test_a_run_folder_that_is_gone_is_made_again_and_costs_no_attempt(fleet: Fleet) -> None:
    fleet.configure('[host]\nretry_after = "1s"\n')
    with fleet.supervised():
        until(lambda: "running" in fleet.said())
        shutil.rmtree(fleet.home.run)
        job_id = fleet.enqueue("--payload", '{"n": 1}', "--", "sh", "-c", 'cat "$CLAWQ_PAYLOAD_FILE"')
        fleet.until_state(job_id, "succeeded", "dead")
    seen = fleet.json("show", job_id)
    assert (seen["job"]["state"], seen["job"]["attempts"]) == ("succeeded", 1)
    assert [each["outcome"] for each in seen["attempts"]][-1] == "succeeded"


def test_logs_that_cannot_be_written_kill_no_job(fleet: Fleet) -> None:
    fleet.configure('[host]\nretry_after = "1s"\n')
    with fleet.supervised():
        until(lambda: "running" in fleet.said())
        shutil.rmtree(fleet.home.logs)
        Path(fleet.home.logs).write_text("in the way")
        job_id = fleet.enqueue("--", "true")
        until(lambda: "was not started" in fleet.said())
        os.unlink(fleet.home.logs)
        fleet.until_state(job_id, "succeeded", "dead")
    assert (fleet.state(job_id), fleet.job(job_id)["attempts"]) == ("succeeded", 1)


def test_a_word_that_it_does_not_know_hands_over(fleet: Fleet) -> None:
    """A request of another version: it ended in a mode that starts nothing and never ends."""
    process = fleet.start()
    job_id = fleet.script("sleep 60")
    fleet.until_state(job_id, "running")
    db = open_db(fleet.home)
    attempts.ask_stop(db, "at leisure")
    db.close()
    assert process.wait(10) == 0
    assert fleet.state(job_id) == "running"
    assert "1 agents live on" in fleet.said()
