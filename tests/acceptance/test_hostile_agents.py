"""Agents that do what agents have done to their machines: each test names the fault that it stands for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clawq.paths import Home
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.waiting import until

MB = 1 << 20
MARKS: list[int] = []
"""By which the daemons of a test are known."""


@pytest.fixture
def fleet(home: Home) -> Iterator[Fleet]:
    fleet = Fleet(home)
    yield fleet
    (fleet.scratch / "go").touch()
    for mark in MARKS:
        for pid in runs(mark):  # of a test that failed
            os.kill(pid, signal.SIGKILL)
    MARKS.clear()


def log_of(fleet: Fleet, job_id: int) -> Path:
    (attempt,) = fleet.json("show", job_id)["attempts"]
    return Path(attempt["log"])


def test_output_without_end_is_kept_small_while_it_comes(fleet: Fleet) -> None:
    """107 GB of output in three minutes."""
    fleet.configure("[limits]\nlog_max_mb = 1\n")
    block = f"{sys.executable} -c \"print(('x' * 99 + chr(10)) * 5000, end='')\" > {fleet.scratch}/block"
    loop = f"until [ -e {fleet.scratch}/go ]; do cat {fleet.scratch}/block; sleep 0.02; done"
    with fleet.supervised():
        # A cut may lose what is written while it is made; the last line comes after it.
        job_id = fleet.script(f"echo the first line; {block}; {loop}; sleep 1; echo the last line")
        fleet.until_state(job_id, "running")
        log = log_of(fleet, job_id)
        with open(fleet.scratch / "followed", "wb") as followed:
            follower = subprocess.Popen([*CLAWQ, "logs", "--follow", str(job_id)], stdout=followed, cwd=ROOT)
        until(lambda: log.exists() and b"cut here by clawq" in log.read_bytes(), 20)
        assert fleet.state(job_id) == "running"
        (fleet.scratch / "go").touch()
        fleet.until_state(job_id, "succeeded")
        assert follower.wait(timeout=30) == 0
        assert (fleet.scratch / "followed").read_bytes().endswith(b"the last line\n")
    until(lambda: log.stat().st_size <= MB)
    shown = fleet.clawq("logs", job_id).stdout.splitlines()
    assert (shown[0], shown[-1]) == ("the first line", "the last line")
    assert sum("MB cut here by clawq" in line for line in shown) == 1


def test_what_came_at_once_is_cut_at_the_end(fleet: Fleet) -> None:
    """The same from an agent that is gone before anybody looks."""
    fleet.configure("[limits]\nlog_max_mb = 1\n")
    job_id = fleet.script("echo the first line; yes | head -c 5000000; echo the last line")
    fleet.run_until_idle()
    log = log_of(fleet, job_id)
    assert log.stat().st_size < MB
    assert log.read_bytes().startswith(b"the first line\n")
    assert log.read_bytes().endswith(b"the last line\n")


def test_a_storm_of_forks_out_of_its_session_is_ended_by_its_bound(fleet: Fleet) -> None:
    """Agents that spawn agents: 242 of them."""
    mark = 600_000 + os.getpid()
    script = f"for n in $(seq 40); do setsid sleep {mark} & done; wait"
    fleet.configure(
        f'[kinds.storm]\nmax_procs = 10\nmax_attempts = 1\ngrace = "1s"\ncommand = ["sh", "-c", "{script}"]\n'
    )
    with fleet.supervised():
        job_id = fleet.enqueue("storm")
        beside = fleet.script("true")
        fleet.until_state(job_id, "dead", seconds=40)
        fleet.until_state(beside, "succeeded")
    (attempt,) = fleet.json("show", job_id)["attempts"]
    assert attempt["outcome"] == "over_footprint"
    assert [
        each for each in psutil.process_iter(["cmdline"]) if str(mark) in (each.info["cmdline"] or [])
    ] == []


def runs(mark: int) -> list[int]:
    """The pids of every `sleep MARK`."""
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if each.info["cmdline"] == ["sleep", str(mark)]]


REAPER = """
import subprocess, sys
from clawq.host import platform
platform.become_subreaper()
subprocess.Popen(["sh", "-c", sys.argv[1]])
subprocess.call(["sh", "-c", sys.argv[2]])
"""


class Daemon:
    """An agent's grandchild that leaves session and environment, and whose parent ends before the agent does:
    nothing that the kernel still tells says whose it is."""

    def __init__(self, fleet: Fleet, number: int, reaper: bool = False) -> None:
        self.fleet = fleet
        self.mark = 700_000 + 10 * os.getpid() + number
        MARKS.append(self.mark)
        between = f"setsid env -i sleep {self.mark} & until [ -e {fleet.scratch}/seen ]; do sleep 0.02; done"
        stays = f"until [ -e {fleet.scratch}/go ]; do sleep 0.02; done"
        if reaper:
            self.job_id = fleet.enqueue("--", sys.executable, "-c", REAPER, between, stays)
        else:
            self.job_id = fleet.script(f"({between}) & {stays}")
        fleet.until_state(self.job_id, "running")
        until(lambda: runs(self.mark))
        self.pid = runs(self.mark)[0]

    def let_a_look_see_it(self) -> None:
        run = Path(self.fleet.home.run)
        until(lambda: [file for file in run.glob("*.outside") if f"{self.pid} " in file.read_text()])
        parent = psutil.Process(self.pid).ppid()
        (self.fleet.scratch / "seen").touch()
        until(lambda: psutil.Process(self.pid).ppid() != parent)

    def end(self) -> None:
        (self.fleet.scratch / "go").touch()


def test_a_daemon_that_was_seen_is_ended_with_its_attempt(fleet: Fleet) -> None:
    """142 browsers and servers with PPID 1 held 56 GB."""
    fleet.configure("[limits]\nmax_running = 1\n")
    with fleet.supervised():
        daemon = Daemon(fleet, 1)
        beside = fleet.script(f"! kill -0 {daemon.pid} && echo free >> {fleet.scratch}/slot")
        daemon.let_a_look_see_it()
        daemon.end()
        fleet.until_state(daemon.job_id, "succeeded")
        assert runs(daemon.mark) == []
        fleet.until_state(beside, "succeeded")
    assert fleet.lines("slot") == ["free"]
    assert [path.name for path in Path(fleet.home.run).iterdir()] == ["null.payload"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows subreapers")
def test_an_agent_that_adopts_its_own_orphans_hands_them_on_to_us(fleet: Fleet) -> None:
    """A runner of its own, whose orphans come to it first and to the supervisor once it has ended."""
    with fleet.supervised():
        daemon = Daemon(fleet, 4, reaper=True)
        daemon.let_a_look_see_it()
        daemon.end()
        fleet.until_state(daemon.job_id, "succeeded")
        assert runs(daemon.mark) == []


def test_a_daemon_that_an_earlier_supervisor_has_seen_is_ended_too(fleet: Fleet) -> None:
    """The same after the supervisor was killed: its orphans went to init."""
    first = fleet.start()
    daemon = Daemon(fleet, 2)
    daemon.let_a_look_see_it()
    first.kill()
    first.wait()
    # Somebody has that pid now: what the kernel says of it differs from what was written down.
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (outside,) = Path(fleet.home.run).glob("*.outside")
    outside.write_text(f"{bystander.pid} 1\n" + outside.read_text())
    try:
        with fleet.supervised():
            daemon.end()
            fleet.until_state(daemon.job_id, "succeeded")
            assert runs(daemon.mark) == []
            assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_daemon_is_seen_at_the_latest_before_its_agent_is_ended(fleet: Fleet) -> None:
    """Killing the pid alone let the agent's own live on for an hour."""
    with fleet.supervised():
        daemon = Daemon(fleet, 3)
        fleet.clawq("cancel", daemon.job_id)
        fleet.until_state(daemon.job_id, "cancelled")
        assert runs(daemon.mark) == []


def test_escape_sequences_reach_no_terminal(fleet: Fleet) -> None:
    """Output that clears the screen of whoever reads it, or names its window."""
    job_id = fleet.script(
        "--max-attempts", "1", r"printf '\033[2J\033]0;owned\007\033[31mred\033[0m\r\n'; exit 1"
    )
    fleet.run_until_idle()
    for words in (("logs", job_id), ("show", job_id), ("why", job_id), ("dead",), ("list", "--all")):
        done = fleet.clawq(*words, code=None)
        assert "\x1b" not in done.stdout + done.stderr
        assert "\x07" not in done.stdout + done.stderr
    assert "red" in fleet.clawq("logs", job_id).stdout


def test_an_agent_that_takes_its_payload_file_for_its_own_spoils_nobody_elses(fleet: Fleet) -> None:
    """All jobs without a payload share one file."""
    fleet.configure("[limits]\nmax_running = 1\n")
    file = '"$CLAWQ_PAYLOAD_FILE"'
    for does in (f"rm {file}", f"rm {file}; mkdir {file}", f"rm {file}; mkfifo {file}", f"echo 7 > {file}"):
        fleet.script("--max-attempts", "1", does)
        fleet.script(f"cat {file} >> {fleet.scratch}/seen; echo >> {fleet.scratch}/seen")
    fleet.run_until_idle()
    assert fleet.lines("seen") == ["null"] * 4


@pytest.mark.parametrize(
    ("trace", "outcome"),
    [
        ("echo something", "failed"),
        (": > $CLAWQ_RESULT_FILE", "failed"),
        ("clawq fail --class permanent", "lost"),
    ],
)
def test_an_agent_that_wipes_its_own_attempt_file_has_run_all_the_same(
    fleet: Fleet, trace: str, outcome: str
) -> None:
    """Whatever it did it would do again, free and without end."""
    wipe = ": > $CLAWQ_HOME/run/$CLAWQ_TOKEN.attempt"
    program = Path(sys.executable).with_name("clawq")
    trace = trace.replace("clawq", str(program))
    # The supervisor must not have looked in between: it is stopped meanwhile.
    stop = "kill -STOP $(cut -d' ' -f1 $CLAWQ_HOME/clawq.lock)"
    script = f"{stop}; {wipe}; {trace}; touch {fleet.scratch}/done; exit 3"
    with fleet.supervised() as supervisor:
        job_id = fleet.script("--max-attempts", "1", script)
        until((fleet.scratch / "done").exists)
        supervisor.send_signal(signal.SIGCONT)
        fleet.until_state(job_id, "dead")
    (attempt,) = fleet.json("show", job_id)["attempts"]
    # On a slow machine it may have been seen to run before it could stop its supervisor.
    assert attempt["outcome"] in (outcome, "failed")
