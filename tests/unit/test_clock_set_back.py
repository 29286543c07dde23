"""A wall clock that is set back keeps no job from starting."""

from __future__ import annotations

import json

import apsw
import pytest

from clawq.paths import Home
from clawq.settings import Settings
from clawq.store import sqlfile
from clawq.supervisor import loop
from clawq.supervisor.state import State

NOW = 1_700_000_000_000
HOURS = 7_200_000


def test_a_ramp_and_a_closed_gate_end_when_they_would_have(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(json.loads(sqlfile.read("default_config.json")))
    state = State(home, apsw.Connection(":memory:"), settings, "", "boot", False, None)
    state.ramp_since, state.spawn_closed_until = NOW, NOW + 60_000
    supervisor = object.__new__(loop.Supervisor)
    supervisor.state, supervisor.clock_offset, supervisor.record_at = state, NOW, 5
    monkeypatch.setattr(loop, "wall_ms", lambda: NOW + 1_000 - HOURS)
    supervisor._notice_wake(1_000)
    assert (state.ramp_since, state.spawn_closed_until) == (NOW - HOURS, NOW + 60_000 - HOURS)
    assert (supervisor.clock_offset, supervisor.record_at) == (NOW - HOURS, 0)
