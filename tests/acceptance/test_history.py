"""`clawq history` as its owner sees it: after real work, of a long time, and of nothing at all."""

from __future__ import annotations

import os

import pytest

from clawq.paths import Home
from clawq.store import counts
from clawq.store.connection import Immediate, open_db
from clawq.store.counts import HOUR_MS, MINUTE_MS, Machine
from tests.fleet import Fleet
from tests.waiting import until

DAY_MS = 24 * HOUR_MS
TITLES = ("Depth", "Oldest age", "Wait and run", "Processes", "Free memory", "Ended")
NASTY = "\x1b[2Jk[bold]\u202e"


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def long_past(home: Home) -> int:
    """A day of samples, a week of deaths; now."""
    from clawq.desk import now_ms

    db, now = open_db(home), now_ms()
    with Immediate(db):
        for minute in range(0, 24 * 60, 5):
            machine = Machine(8, 150 + minute % 100, 550, 4_000 - minute, 512, 0, 9_000)
            counts.sample(db, machine, now - DAY_MS + minute * MINUTE_MS)
        for hour in range(24):
            at = now - hour * HOUR_MS
            counts._note(db, "waited", "qa", "60000", 4, 4 * 30_000, at)
            counts._note(db, "worked", "qa", "15000", 4, 4 * 12_000, at)
            counts.note_deferrals(db, {("qa", "uid_procs"): 2, ("qa", "resource:browser"): 1}, at)
        for day in range(7):
            counts._note(db, "ended", "site.qa", "dead max_attempts", 3, 0, now - day * DAY_MS)
        counts._note(db, "ended", NASTY, "dead permanent", 1, 0, now - 2 * HOUR_MS)
    db.close()
    return now


def test_a_queue_that_never_was_says_how_to_begin(fleet: Fleet) -> None:
    said = fleet.clawq("history").stdout
    assert said.startswith("Nothing yet.\n")
    assert "`clawq run`" in said
    told = fleet.json("history")
    assert (told["samples"], told["hours"], told["deferred"], told["dead"]) == ([], [], {}, [])
    assert not os.path.exists(fleet.home.data)


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_the_page(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, width: int, locale: str) -> None:
    long_past(fleet.home)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LC_ALL", locale)
    said = fleet.clawq("history").stdout
    lines = said.splitlines()
    assert max(map(len, lines)) <= width
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert said.isascii() == (locale == "C")
    for title in TITLES:
        assert any(line.startswith(title) or f"  {title}" in line for line in lines), title
    # Two plots stand side by side where there is room for them.
    depth = next(line for line in lines if line.startswith("Depth"))
    assert ("Oldest age" in depth) == (width == 140)
    reasons = lines[lines.index("Deferrals by reason") + 2 :]
    assert [line.split()[:2] for line in reasons[:2]] == [["uid_procs", "48"], ["resource:browser", "24"]]
    dead = lines[lines.index("Dead by kind and day") + 1 :]
    assert dead[0].split()[:2] == ["KIND", "ALL"]
    assert dead[1].split()[:2] == ["site.qa", "21"]


def test_json_and_since(fleet: Fleet) -> None:
    long_past(fleet.home)
    day, hour = fleet.json("history"), fleet.json("history", "--since", "1h")
    assert 280 <= len(day["samples"]) <= 288
    assert 11 <= len(hour["samples"]) <= 12
    assert day["samples"][0]["at"].endswith("Z")
    assert day["deferred"] == {"uid_procs": 48, "resource:browser": 24}
    assert day["hours"][-1]["waited"] == {"n": 4, "mean_s": 30}
    assert sum(row["n"] for row in hour["dead"] if row["kind"] == "site.qa") == 21
    assert "is not a duration" in fleet.clawq("history", "--since", "long", code=2).stderr


def test_a_supervisor_keeps_samples_and_counts_while_it_runs(fleet: Fleet) -> None:
    supervisor = fleet.start()
    try:
        fleet.until_state(fleet.enqueue("--max-attempts", "1", "--", "false"), "dead")
        (sample,) = until(lambda: fleet.json("history")["samples"], 20)
        assert sample["max_running"] == 8
        assert sample["free_mb"] > 0
        told = fleet.json("history")
        assert told["hours"][-1]["ended"] == {"dead": 1}
        assert [(row["kind"], row["n"]) for row in told["dead"]] == [("default", 1)]
        assert "Dead by kind and day" in fleet.clawq("history").stdout
    finally:
        supervisor.terminate()
        supervisor.wait(20)
