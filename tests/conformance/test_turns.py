"""What a turn's transaction puts off, so that no claim waits for it to be spawned."""

from __future__ import annotations

import json

import apsw
import pytest

from clawq.paths import Home
from clawq.settings import Settings
from clawq.store import config_row, sqlfile
from clawq.supervisor.look import Findings
from clawq.supervisor.record import PUT_OFF_MS, Written, record
from tests.claims import NOW, passing
from tests.rows import put


@pytest.mark.parametrize("mono", [0, PUT_OFF_MS])
def test_counts_and_samples_wait_for_a_turn_that_starts_nothing(
    home: Home, db: apsw.Connection, mono: int
) -> None:
    state = passing(home, db, Settings(json.loads(sqlfile.read("default_config.json"))))
    state.form = config_row.identity(db)
    put(db, NOW)

    def turn() -> Written:
        return record(state, Findings(), False, NOW, mono)

    starts, after = turn(), turn()
    late = mono >= PUT_OFF_MS  # not for ever: there may be no such turn for hours
    assert (len(starts.tickets), starts.counted, starts.sampled) == (1, late, late)
    assert (len(after.tickets), after.counted, after.sampled) == (0, True, True)
