"""An idle supervisor writes once a minute, a sample, and measures the machine no more often than that."""

from __future__ import annotations

import os
import subprocess
import sys

from clawq.paths import Home
from tests.fleet import ROOT

TEN_MINUTES = """
from clawq.host import instance, load
from clawq.paths import find_home, make_private_dir
from clawq.supervisor import chores, loop

mono, wall = loop.mono_ms(), loop.wall_ms()
passed = 0
loop.mono_ms = lambda: mono + passed
loop.wall_ms = chores.wall_ms = lambda: wall + passed
home = find_home()
make_private_dir(home.data)
supervisor = loop.Supervisor(home, instance.acquire(home.lock), print)
commits, measured = [], []
sample = load.sample
load.sample = lambda folder: measured.append(passed) or sample(folder)
supervisor.state.db.set_commit_hook(lambda: bool(commits.append(passed)))
for passed in range(0, 600_000, 1_000):
    supervisor._turn()
print(len(commits), len(measured))
"""


def test_ten_minutes_of_nothing(home: Home) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", TEN_MINUTES], capture_output=True, text=True, timeout=60, env=env
    )
    assert done.returncode == 0, done.stderr
    commits, measured = map(int, done.stdout.split()[-2:])
    # The first turn writes too, since it may have something to take over.
    assert 10 <= commits <= 12, done.stdout
    assert 9 <= measured <= 10, done.stdout
