"""Faults that people met with queues of agents, done to a real supervisor. docs/faults.md lists them all."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from clawq.paths import Home
from clawq.store.connection import open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.rows import put
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Iterator[Fleet]:
    fleet = Fleet(home)
    yield fleet
    (fleet.scratch / "go").touch()


def outcomes(fleet: Fleet, job_id: int) -> list[str]:
    return [each["outcome"] for each in fleet.json("show", job_id)["attempts"]]


# ---------------------------------------------------------------- all at once


def test_all_that_is_due_after_a_crash_comes_step_by_step_and_can_be_looked_at(fleet: Fleet) -> None:
    """A stampede after boot or wake, in which even `list` timed out."""
    first = fleet.start()
    first.kill()
    first.wait()
    now = time.time_ns() // 1_000_000
    db = open_db(fleet.home)
    with db:
        for _ in range(300):
            put(db, now - 60_000, state="scheduled", command=["sleep", "0.1"])
    db.close()
    with fleet.supervised():
        until(lambda: fleet.json("status")["counts"].get("queued"))
        assert len(fleet.json("list", "--limit", 500)) == 300
        assert fleet.json("why", 300)["blocked_by"][0]["reason"] == "ramp_up"
        until(lambda: fleet.json("status")["counts"].get("succeeded", 0) >= 2)
    db = open_db(fleet.home)
    starts = [at for (at,) in db.execute("SELECT claimed_at FROM attempts ORDER BY claimed_at")]
    db.close()
    assert starts[1] - starts[0] > 1_500, "one, and the next ones only after a while"


# ---------------------------------------------------------------- agents that hang


def test_a_login_prompt_is_answered_by_nobody_and_ends_at_once(fleet: Fleet) -> None:
    """An agent that asked for a password where nobody could see it, for ever."""
    job_id = fleet.script("--max-attempts", "1", "printf 'Password: ' > /dev/tty && read it < /dev/tty")
    # The supervisor has a terminal; what it starts has none.
    code = f"import pty; pty.spawn({[*CLAWQ, 'run', '--until-idle']!r})"
    argv = [sys.executable, "-c", code]
    subprocess.run(
        argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60, check=True
    )
    assert fleet.state(job_id) == "dead"
    assert "/dev/tty" in fleet.job(job_id)["last_error"]


def test_chatter_on_stderr_keeps_nobody_alive_who_should_beat(fleet: Fleet) -> None:
    """A hung agent whose progress bar went on for ever."""
    fleet.configure('[kinds.k]\nheartbeat = "agent"\nlease = "1s"\ngrace = "1s"\nmax_attempts = 1\n')
    job_id = fleet.enqueue("k", "--", "sh", "-c", "while :; do echo waiting >&2; sleep 0.1; done")
    fleet.run_until_idle()
    assert outcomes(fleet, job_id) == ["stalled"]


def test_a_silent_agent_that_works_is_not_ended_for_its_old_log(fleet: Fleet) -> None:
    """A busy agent was killed, with the last line of its log a few seconds old."""
    fleet.configure('[kinds.k]\nlease = "1s"\nmax_attempts = 1\n')
    job_id = fleet.enqueue("k", "--", "sleep", "2.2")
    fleet.run_until_idle()
    assert outcomes(fleet, job_id) == ["succeeded"]


def test_an_agent_that_does_not_exit_after_its_result_is_ended_and_the_result_kept(fleet: Fleet) -> None:
    """One that had said all it had to say, and stayed, with its slot."""
    says = """printf '{"pages": 3}' > "$CLAWQ_RESULT_FILE"; exec sleep 60"""
    job_id = fleet.script("--max-attempts", "1", "--timeout", "1s", says)
    fleet.run_until_idle()
    assert outcomes(fleet, job_id) == ["timed_out"]
    assert fleet.json("show", job_id)["result"] == {"pages": 3}


def test_a_new_attempt_does_not_inherit_the_last_heartbeat(fleet: Fleet) -> None:
    """A new claim met the old heartbeat and was killed at once."""
    fleet.configure(
        '[kinds.k]\nheartbeat = "agent"\nlease = "1s"\ngrace = "1s"\nmax_attempts = 2\nbackoff = "1s"\n'
    )
    # The first one stalls; the second finds a heartbeat of long ago and works for less than a lease.
    old = 'touch -t 202001010000 "$CLAWQ_HEARTBEAT_FILE"'
    script = f'{old}; if [ "$CLAWQ_ATTEMPT" = 1 ]; then exec sleep 60; fi; sleep 0.6'
    job_id = fleet.enqueue("k", "--", "sh", "-c", script)
    fleet.run_until_idle()
    assert outcomes(fleet, job_id) == ["stalled", "succeeded"]


# ---------------------------------------------------------------- retries


def test_a_refused_login_or_bill_is_not_tried_again(fleet: Fleet) -> None:
    """401, 402 and 403 were tried again until the provider shut everybody out."""
    fleet.configure('[kinds.k]\nclassify = "claude"\nbackoff = "1s"\n')
    ids = []
    for word in ("authentication_failed", "billing_error", "oauth_org_not_allowed"):
        said = f'{{"type": "result", "is_error": true, "error": "{word}", "result": "API Error"}}'
        ids.append(fleet.enqueue("k", "--", "sh", "-c", f"echo '{said}'; exit 1"))
    fleet.run_until_idle()
    assert [(fleet.state(job_id), len(outcomes(fleet, job_id))) for job_id in ids] == [("dead", 1)] * 3


def test_a_long_retry_after_is_waited_for_without_a_slot(fleet: Fleet) -> None:
    """Two hours of Retry-After were slept inside the run, with its slots."""
    fleet.configure("[limits]\nmax_running = 1\n[resources.api]\nlimit = 1\nprovider = true\n")
    limited = fleet.script(
        "--needs", "api", f"{' '.join(CLAWQ)} fail --class rate_limit --retry-after 2h; exit 1"
    )
    beside = fleet.script("true")
    with fleet.supervised():
        fleet.until_state(limited, "scheduled", "queued")
        fleet.until_state(beside, "succeeded")
        assert outcomes(fleet, limited) == ["rate_limited"]
        assert fleet.json("status")["resources"]["api"]["in_use"] == 0


# ---------------------------------------------------------------- what nobody sees


def test_the_dead_of_days_are_counted_by_kind_and_day(fleet: Fleet) -> None:
    """Jobs dead for days, and an alert that nobody saw."""
    fleet.configure("[kinds.digest]\nmax_attempts = 1\n")
    ids = [fleet.enqueue("digest", "--", "false") for _ in range(3)]
    fleet.run_until_idle()
    db = open_db(fleet.home)
    with db:
        db.execute("UPDATE jobs SET ended_at = ended_at - 2 * 86400000 WHERE id = ?", (ids[0],))
    db.close()
    counted = fleet.clawq("dead").stdout.partition("Dead by kind and day\n")[2].splitlines()
    assert counted[1].split() == ["digest", "2", "1"], counted
    assert fleet.json("status")["counts"]["dead"] == 3
