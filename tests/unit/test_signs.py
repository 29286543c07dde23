"""Signs of life are files' times, which are of the wall clock; leases are of the one that nobody sets."""

from __future__ import annotations

import os
from pathlib import Path

from clawq.host import attempt_file
from clawq.paths import Home
from clawq.supervisor.agents import Agent
from clawq.supervisor.look import look
from tests.unit.test_outputs import agent

DAY = 86_400_000
WALL = 1_900_000_000_000


def writer(folder: Path) -> Agent:
    """It runs, and its lease of a second is renewed by what it writes; it has written at 0."""
    path = str(folder / "1.attempt")
    os.write(attempt_file.create(path), b"r 1\n")  # left open, and with it locked
    made = agent(folder, 1, 0, heartbeat="output", running=True, probe=attempt_file.open_probe(path))
    writes(made, WALL)
    return made


def writes(made: Agent, wall: int) -> None:
    os.utime(made.log, ns=(wall * 1_000_000, wall * 1_000_000))


def overdue(made: Agent, home: Home, wall: int, mono: int) -> bool:
    return [reason for _, reason in look([made], home, wall, mono).overdue] == ["stalled"]


def test_a_clock_that_is_set_back_keeps_nobody_alive(home: Home, tmp_path: Path) -> None:
    made = writer(tmp_path)
    assert not overdue(made, home, WALL + 500, 500)
    assert not overdue(made, home, WALL + 900 - DAY, 900)
    assert overdue(made, home, WALL + 1_001 - DAY, 1_001)


def test_a_clock_that_is_set_ahead_ends_nobody(home: Home, tmp_path: Path) -> None:
    made = writer(tmp_path)
    assert not overdue(made, home, WALL + 500, 500)
    writes(made, WALL + 600)
    assert not overdue(made, home, WALL + 700 + DAY, 700)
    assert not overdue(made, home, WALL + 1_400 + DAY, 1_400)
    assert overdue(made, home, WALL + 1_601 + DAY, 1_601)
