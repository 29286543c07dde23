"""A fleet under a supervisor that is killed again and again: every job runs once and ends once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from clawq.paths import Home
from tests.waiting import until

CLAWQ = [sys.executable, "-m", "clawq"]
JOBS = 120  # after each kill -9 starts ramp up from one
CODES = (0, 0, 0, 3)
"""The exit codes of the agents, in turn."""


def supervise(log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [*CLAWQ, "run", "--until-idle"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_any_moment_every_job_still_runs_once_and_ends_once(
    seed: int, home: Home, unreachable_home: Path
) -> None:
    chance = random.Random(seed)
    ran = unreachable_home / "ran"
    lines = []
    for number in range(JOBS):
        code = CODES[number % len(CODES)]
        pause = chance.choice((0, 0, 0.02, 0.1, 0.5))
        script = f"echo $CLAWQ_JOB_ID >>{ran}; sleep {pause}; exit {code}"
        lines.append(json.dumps({"command": ["/bin/sh", "-c", script], "max_attempts": 1}))
    batch = unreachable_home / "batch"
    batch.write_text("\n".join(lines) + "\n")
    subprocess.run([*CLAWQ, "enqueue", "--batch", str(batch)], check=True, capture_output=True, timeout=120)

    log = unreachable_home / "run.log"
    kills = 0
    give_up = time.monotonic() + 240
    while True:
        supervisor = supervise(log)
        try:
            supervisor.wait(chance.uniform(0.05, 1.2))
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
            kills += 1
            assert time.monotonic() < give_up, log.read_text()[-2000:]
            continue
        assert supervisor.returncode == 0, log.read_text()[-2000:]
        break

    listed = subprocess.run([*CLAWQ, "list", "--limit", "10000", "--json"], check=True, capture_output=True)
    jobs = json.loads(listed.stdout)
    assert kills > 5
    assert len(jobs) == JOBS
    assert Counter(ran.read_text().split()) == Counter(str(job["id"]) for job in jobs)
    for job in jobs:
        code = CODES[(job["id"] - 1) % len(CODES)]
        assert (job["state"], job["exit_code"]) == ("dead" if code else "succeeded", code), job


@pytest.mark.soak
def test_twenty_producers_at_once_lose_nothing(home: Home, unreachable_home: Path) -> None:
    ran = unreachable_home / "ran"
    supervisor = subprocess.Popen([*CLAWQ, "run"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    script = (
        f'i=0; while [ $i -lt 20 ]; do {" ".join(CLAWQ)} enqueue -- sh -c "echo x >>{ran}"; i=$((i+1)); done'
    )
    try:
        producers = [
            subprocess.Popen(["/bin/sh", "-c", script], env={**os.environ, "PYTHONPATH": os.getcwd()})
            for _ in range(20)
        ]
        assert [producer.wait(240) for producer in producers] == [0] * 20
        until(lambda: ran.exists() and len(ran.read_text().split()) == 400, 120, "all 400 jobs ran")
    finally:
        subprocess.run([*CLAWQ, "stop", "--now"], timeout=30)
        supervisor.wait(10)
