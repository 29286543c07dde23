"""A provider slows down and comes back: what tests/game_day.py prints has to look like this on any day."""

from __future__ import annotations

from functools import cache

import pytest

from tests.game_day import (
    CHAT_WAITS,
    KINDS,
    LAST_ARRIVAL,
    RESTORED_AT,
    ROW,
    SLOW_FROM,
    GameDay,
    Row,
    table,
)
from tests.simulator import MINUTE

SEEDS = range(1, 5)
CAPS = {kind.name: kind.cap for kind in KINDS}


@cache
def day(seed: int, naive: bool = False) -> GameDay:
    return GameDay(seed, naive).run()


def between(found: GameDay, start: int, end: int) -> list[Row]:
    return [row for number, row in found.rows.items() if start <= number * ROW < end]


@pytest.mark.parametrize("seed", SEEDS)
def test_chat_is_answered_or_refused_at_once(seed: int) -> None:
    chats = [job for job in day(seed).jobs if job.kind == "chat"]
    firsts = {job.job_id: at for at, job, _ in reversed(day(seed).sim.started)}
    for job in chats:
        answered = firsts.get(job.job_id, job.ended_at)
        assert answered is not None
        assert answered - job.arrives <= CHAT_WAITS
    calm = between(day(seed), 0, SLOW_FROM) + between(day(seed), RESTORED_AT + ROW, LAST_ARRIVAL)
    assert sum(row.chat_answered for row in calm) >= 0.95 * sum(row.chat_came for row in calm)


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_stops_growing_at_its_cap_and_the_rest_is_refused_at_the_door(seed: int) -> None:
    rows = day(seed).rows.values()
    assert 0.7 * CAPS["digest"] <= max(row.bulk_waits for row in rows) <= CAPS["digest"]
    assert sum(row.refused for row in rows) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_retries_do_not_spike(seed: int) -> None:
    calm, slow = between(day(seed), 0, SLOW_FROM), between(day(seed), SLOW_FROM, RESTORED_AT)
    assert sum(row.rests for row in slow) > 5
    assert max(row.attempts for row in slow) < min(row.attempts for row in calm)
    assert max(row.retry_burst for row in day(seed).rows.values()) < 2 * max(row.burst for row in calm)


def test_without_backoff_and_rests_they_would() -> None:
    calm, slow = between(day(1, True), 0, SLOW_FROM), between(day(1, True), SLOW_FROM, RESTORED_AT)
    assert max(row.attempts for row in slow) > 2 * max(row.attempts for row in calm)
    assert max(row.retry_burst for row in slow) > 2 * max(row.burst for row in calm)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_queue_drains_without_a_second_surge(seed: int) -> None:
    found = day(seed)
    after = between(found, RESTORED_AT, LAST_ARRIVAL)
    depths = [row.all_wait for row in after]
    assert depths[1] < depths[0]
    assert max(depths[2:]) <= 0.6 * depths[0]
    assert depths[-1] <= 0.3 * depths[0]
    # What had begun before may still be turned away; nothing that starts afterwards is.
    assert sum(row.rests for row in after[1:]) == 0
    calm = between(found, 0, SLOW_FROM)
    assert max(row.burst for row in after) <= 2 * max(row.burst for row in calm)
    assert found.sim.drained
    assert found.sim.now <= LAST_ARRIVAL + 10 * MINUTE


def test_the_table_has_a_line_for_every_ten_minutes() -> None:
    lines = table(day(1)).splitlines()
    assert len(lines) == 1 + max(day(1).rows) + 1
    assert len({len(line) for line in lines}) == 1
    assert sum("slow" in line for line in lines) == (RESTORED_AT - SLOW_FROM) // ROW
