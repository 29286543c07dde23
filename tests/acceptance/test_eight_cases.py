"""Eight cases that a queue has to get right, as one table of state transitions: real processes, real kills.

`pytest -s` prints the table as it was met.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clawq.paths import Home
from clawq.store.connection import open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.rows import check_books
from tests.waiting import until

ME = shlex.join(CLAWQ)
HOLDS = 'until [ -e "{0}/go" ]; do sleep 0.05; done'
"""An agent that runs until it is let go."""

RUNS = "queued enqueued, starting claimed, running started"
DONE = f"{RUNS}, succeeded succeeded"
AGAIN = "starting claimed, running started"
TWICE = f"{AGAIN}, succeeded succeeded"

TABLE = {
    "1 the global budget is filled": {
        "running": RUNS,
        "critical": "queued enqueued",
        "normal, on_busy = reject": "refused over_capacity, exit 75",
    },
    "2 one tenant's limit is filled": {
        "a, first": RUNS,
        "a, second": "queued enqueued",
        "b": DONE,
    },
    "3 killed after the lease, before the spawn": {
        "its next supervisor": f"queued enqueued, starting claimed, queued never_started, {TWICE}",
    },
    "4 killed after the spawn, before the outcome": {
        "an effect open": f"{RUNS}, unknown effect_open",
        "on_lost = unknown": f"{RUNS}, unknown lost",
        "on_lost = retry": f"{RUNS}, scheduled lost, queued due, {TWICE}",
    },
    "5 rate limits again and again, bounded by age": {
        "limited": f"{RUNS}, scheduled rate_limit, queued due, {AGAIN}, dead max_age",
    },
    "6 a tenant is paused with jobs queued": {
        "running already": DONE,
        "paused": "queued enqueued",
        "another tenant's": DONE,
        "resumed": DONE,
    },
    "7 a restart with jobs in every state": {
        "scheduled": "scheduled enqueued",
        "held": "held enqueued",
        "queued": "queued enqueued",
        "starting": f"queued enqueued, starting claimed, queued never_started, {TWICE}",
        "running": DONE,
        "unknown": f"{RUNS}, unknown lost",
        "succeeded": DONE,
        "dead": f"{RUNS}, dead permanent",
        "expired": "queued enqueued, expired stale",
        "cancelled": "queued enqueued, cancelled cancelled",
    },
    "8 an unknown job is reconciled": {
        "unknown": f"{RUNS}, unknown effect_open",
        "the same key, before": "duplicate",
        "reconciled": f"{RUNS}, unknown effect_open, succeeded reconciled: in the outbox",
        "the same key, after": "duplicate",
    },
}
"""case -> job -> every move it made: the state it came to, and the reason that stands beside it."""

Met = dict[str, str]


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


@pytest.fixture(scope="module")
def met() -> Iterator[dict[str, Met]]:
    """The table as it was met, printed when all cases are through."""
    table: dict[str, Met] = {}
    yield table
    lines = [
        f"\n{case}\n" + "\n".join(f"    {job}: {moves}" for job, moves in table[case].items())
        for case in table
    ]
    print("".join(lines))


def moves(fleet: Fleet, job_id: int) -> str:
    events = fleet.json("show", job_id)["events"]
    assert [event["from"] for event in events] == ["new", *(event["to"] for event in events[:-1])]
    return ", ".join(f"{event['to']} {event['reason']}" for event in events)


def enqueued(fleet: Fleet, *words: str, code: int = 0) -> Any:
    """What `enqueue --json` answers."""
    return json.loads(fleet.clawq("enqueue", "--json", *words, code=code).stdout)


def holding(fleet: Fleet, *options: str) -> int:
    return fleet.script(*options, HOLDS.format(fleet.scratch))


def let_go(fleet: Fleet) -> None:
    (fleet.scratch / "go").touch()


def crash(point: str) -> None:
    """A supervisor that dies by kill -9 at this point."""
    argv = [sys.executable, "-m", "tests.crashing", point]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


def kill_agents(fleet: Fleet, *jobs: int) -> None:
    """kill -9 of the shells and all below them, as when the machine goes down."""
    db = open_db(fleet.home)
    for job_id in jobs:
        pid = db.execute("SELECT pid FROM attempts WHERE job_id = ? AND ended_at IS NULL", (job_id,)).get
        os.killpg(int(pid), signal.SIGKILL)
    db.close()


def die(supervisor: subprocess.Popen[str]) -> None:
    supervisor.kill()
    supervisor.wait()


def global_budget(fleet: Fleet) -> Met:
    fleet.configure('[limits]\nmax_running = 1\n[kinds.now]\non_busy = "reject"\n')
    with fleet.supervised():
        running = holding(fleet)
        fleet.until_state(running, "running")
        critical = fleet.script("--band", "critical", "true")
        refused = enqueued(fleet, "now", "--", "true", code=75)
        found = {
            "running": moves(fleet, running),
            "critical": moves(fleet, critical),
            "normal, on_busy = reject": f"refused {refused['reason']}, exit 75",
        }
        let_go(fleet)
        fleet.until_state(critical, "succeeded")
    return found


def tenant_limit(fleet: Fleet) -> Met:
    fleet.configure("[tenants.a]\nmax_running = 1\n")
    with fleet.supervised():
        first = holding(fleet, "--tenant", "a")
        fleet.until_state(first, "running")
        second, other = fleet.script("--tenant", "a", "true"), fleet.script("--tenant", "b", "true")
        fleet.until_state(other, "succeeded")
        return {
            "a, first": moves(fleet, first),
            "a, second": moves(fleet, second),
            "b": moves(fleet, other),
        }


def before_the_spawn(fleet: Fleet) -> Met:
    fleet.configure('[host]\nretry_after = "1s"\n')
    job_id = fleet.script("--max-attempts", "1", f"echo run >> {fleet.scratch}/runs")
    crash("after the claim is committed")
    fleet.run_until_idle()
    assert fleet.lines("runs") == ["run"]
    assert fleet.job(job_id)["attempts"] == 1, "the claim that came to nothing was charged"
    return {"its next supervisor": moves(fleet, job_id)}


def after_the_spawn(fleet: Fleet) -> Met:
    fleet.configure('[bands.normal]\nbackoff = "1s"\n')
    supervisor = fleet.start()
    once = f'[ -e "{fleet.scratch}/once" ] || {{ touch "{fleet.scratch}/once"; sleep 60; }}'
    begun = f"{ME} effect begin mail && touch {fleet.scratch}/begun; sleep 60"
    effect, asks, again = (
        fleet.script(begun),
        fleet.script("--on-lost", "unknown", "sleep 60"),
        fleet.script("--on-lost", "retry", once),
    )
    for job_id in (effect, asks, again):
        fleet.until_state(job_id, "running")
    until((fleet.scratch / "begun").exists, 20)
    until((fleet.scratch / "once").exists, 20)
    die(supervisor)
    kill_agents(fleet, effect, asks, again)
    fleet.run_until_idle()
    return {
        "an effect open": moves(fleet, effect),
        "on_lost = unknown": moves(fleet, asks),
        "on_lost = retry": moves(fleet, again),
    }


def rate_limits(fleet: Fleet) -> Met:
    fleet.configure('[kinds.limited]\nmax_attempts = 50\nmax_age = "4s"\nbackoff = "1s"\n')
    job_id = fleet.script("limited", f"{ME} fail --class rate_limit --retry-after 2s")
    fleet.run_until_idle()
    return {"limited": moves(fleet, job_id)}


def paused(fleet: Fleet) -> Met:
    with fleet.supervised():
        running = holding(fleet, "--tenant", "a")
        fleet.until_state(running, "running")
        fleet.clawq("pause", "--tenant", "a")
        waits, other = fleet.script("--tenant", "a", "true"), fleet.script("--tenant", "b", "true")
        fleet.until_state(other, "succeeded")
        let_go(fleet)
        fleet.until_state(running, "succeeded")
        still = moves(fleet, waits)
        fleet.clawq("resume", "--tenant", "a")
        fleet.until_state(waits, "succeeded")
    return {
        "running already": moves(fleet, running),
        "paused": still,
        "another tenant's": moves(fleet, other),
        "resumed": moves(fleet, waits),
    }


def restart(fleet: Fleet) -> Met:
    fleet.configure('[host]\nretry_after = "1s"\n')
    fleet.clawq("pause", "--tenant", "p")
    jobs = {
        "scheduled": fleet.script("--delay", "1h", "true"),
        "held": fleet.script("--hold", "true"),
        "queued": fleet.script("--tenant", "p", "true"),
        "cancelled": fleet.script("--tenant", "p", "true"),
        "expired": fleet.script("--tenant", "p", "--stale-after", "1s", "true"),
    }
    fleet.clawq("cancel", jobs["cancelled"])
    supervisor = fleet.start()
    jobs |= {
        "succeeded": fleet.script("true"),
        "dead": fleet.script("exit 2"),
        "unknown": fleet.script("--on-lost", "unknown", "kill -9 $PPID; exec sleep 60"),
        "running": holding(fleet),
    }
    for state in ("expired", "succeeded", "dead", "unknown", "running"):
        fleet.until_state(jobs[state], state)
    die(supervisor)
    jobs["starting"] = fleet.script(f"echo run >> {fleet.scratch}/runs")
    crash("after the claim is committed")
    assert {name: fleet.state(job_id) for name, job_id in jobs.items()} == {name: name for name in jobs}
    with fleet.supervised():
        fleet.until_state(jobs["starting"], "succeeded")
        assert fleet.state(jobs["running"]) == "running"
        let_go(fleet)
        fleet.until_state(jobs["running"], "succeeded")
        found = {name: moves(fleet, jobs[name]) for name in TABLE["7 a restart with jobs in every state"]}
    assert fleet.lines("runs") == ["run"]
    return found


def reconciled(fleet: Fleet) -> Met:
    keyed = ("--dedupe-key", "mail7")
    script = f"{ME} effect begin mail && echo mail >> {fleet.scratch}/sent; kill -9 $PPID; exec sleep 60"
    job_id = fleet.script(*keyed, script)
    fleet.run_until_idle()
    found = {"unknown": moves(fleet, job_id)}

    def again() -> str:
        answer = enqueued(fleet, *keyed, "--", "sh", "-c", script)
        assert answer["job_id"] == job_id
        fleet.run_until_idle()
        return str(answer["outcome"])

    found["the same key, before"] = again()
    fleet.clawq("reconcile", job_id, "--succeeded", "--note", "in the outbox")
    found["reconciled"] = moves(fleet, job_id)
    found["the same key, after"] = again()
    assert fleet.lines("sent") == ["mail"]
    return found


CASES: list[Callable[[Fleet], Met]] = [
    global_budget,
    tenant_limit,
    before_the_spawn,
    after_the_spawn,
    rate_limits,
    paused,
    restart,
    reconciled,
]


@pytest.mark.parametrize(("case", "play"), list(zip(TABLE, CASES, strict=True)), ids=list(TABLE))
def test_every_job_makes_these_moves_and_no_others(
    case: str, play: Callable[[Fleet], Met], fleet: Fleet, met: dict[str, Met]
) -> None:
    met[case] = play(fleet)
    db = open_db(fleet.home)
    check_books(db)
    db.close()
    assert met[case] == TABLE[case]
