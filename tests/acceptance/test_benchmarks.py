"""`make bench` at a size that says nothing about speed: each figure is still measured."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import (
    admission,
    batch,
    contention,
    depth,
    dispatch,
    idle,
    measure,
    prune,
    startup,
    throughput,
)
from benchmarks.measure import Row


def test_the_middle_and_the_tail() -> None:
    assert measure.median([3, 1, 2]) == 2
    assert measure.median([4, 1, 2, 3]) == 2.5
    assert measure.percentile([10], 99) == 10
    assert measure.percentile(range(101), 99) == 99


def test_a_table_is_aligned_and_says_what_was_missed() -> None:
    rows = [
        Row("short", "1 ms", "1 to 2", "1"),
        Row("rather long", "10.5 ms", "9 to 12", "2 x", "<= 1 x", False),
    ]
    lines = measure.table("title", rows).splitlines()
    assert lines[0] == "title"
    assert len({line.index("ms") for line in lines[2:]}) == 1
    assert [line.endswith("MISSED") for line in lines] == [False, False, False, True]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And no neighbour from PyPI: they cost seconds."""
    monkeypatch.setattr(measure, "quick", True)
    monkeypatch.setattr(measure, "PEERS", tmp_path)


def test_a_missing_neighbour_is_named_and_changes_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--quick", "nonsense"]) == 2
    assert "startup" in capsys.readouterr().err
    assert "spoolctl missing" in bench.machine()


def test_results_are_a_table_anyone_can_read() -> None:
    text = measure.markdown("title", [Row("what", "1 ms", "0 to 2", "2 x", "<= 1 x", False)])
    assert text.splitlines()[-1] == "| what | 1 ms | 0 to 2 | 2 x | <= 1 x | **missed** |"


def test_calls_are_measured_against_a_bare_script() -> None:
    rows = {row.what: row for row in startup.run()}
    for name in ("clawq enqueue -- true", "clawq beat", "clawq effect begin KEY", "clawq status --json"):
        assert rows[name].value.endswith(" ms"), name
        assert rows[name].good is not None
    assert rows["spoolctl"].value == measure.MISSING


def test_a_batch_is_measured_against_a_bare_loop() -> None:
    rows = {row.what: row for row in batch.run()}
    assert rows["clawq enqueue --batch, one command, a payload"].good is not None
    assert rows["huey on SQLite"].value == measure.MISSING


def test_depth_compares_few_with_many() -> None:
    rows = {row.what: row for row in depth.run()}
    assert rows["clawq enqueue, 300 queued"].ratio.endswith(" x")
    assert rows["clawq why ID, 300 queued"].good is not None


def test_pruning_says_who_waited_longest() -> None:
    rows = {row.what: row for row in prune.run()}
    assert rows["... the longest"].value.endswith(" ms")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_a_supervisor_at_rest_and_with_agents_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "AGENTS", 2)
    rows = {row.what: row for row in idle.run()}
    assert rows["idle: memory"].good is not None
    assert rows["2 agents: CPU"].value.endswith(" %")


def test_everybody_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = contention.run()
    assert rows[0].value == measure.MISSING
    assert [row.ratio for row in rows if row.what.startswith("clawq enqueue: each")] == ["0 failed"]
    assert rows[-1].good is True


def test_dispatch_is_measured_with_a_live_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "ROUNDS", 3)
    rows = {row.what: row for row in dispatch.run()}
    assert "p99" in rows["clawq.enqueue() in Python"].spread
    assert "p99" in rows["clawq enqueue, its process ended"].spread
    assert (rows["task-spooler (tsp)"].value == "not installed") is (shutil.which("tsp") is None)


def test_throughput_counts_recorded_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "JOBS", 20)
    monkeypatch.setattr(throughput, "ROUNDS", 1)
    rows = {row.what: row for row in throughput.run()}
    assert rows["clawq"].value.endswith(" /s")
    assert rows["a new file, before each of them"].value.endswith(" us")
    assert ("clawq to task-spooler -n" in rows) is (shutil.which("tsp") is not None)
    assert (rows["GNU parallel"].value == "not installed") is (shutil.which("parallel") is None)


def test_a_pass_is_measured_with_few_and_with_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "FEW", 100)
    monkeypatch.setattr(admission, "MANY", 300)
    monkeypatch.setattr(admission, "ROUNDS", 10)
    rows = {row.what: row for row in admission.run()}
    assert rows["one starts, 100 queued"].ratio == ""
    assert rows["one starts, 300 queued"].ratio.endswith(" x")
    assert all(row.value.endswith(" ms") for row in rows.values())
