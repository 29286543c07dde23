"""`make bench` at a size that says nothing about speed: each figure is still measured."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import admission, dispatch, enqueue, measure, throughput
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


def test_enqueue_is_measured_against_a_bare_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "ROUNDS", 2)
    rows = enqueue.run()
    assert [row.value.endswith(" ms") for row in rows] == [True, True, True]
    assert rows[-1].target
    assert rows[-1].good is not None


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
    assert (rows["GNU parallel"].value == "not installed") is (shutil.which("parallel") is None)


def test_a_pass_is_measured_with_few_and_with_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "FEW", 100)
    monkeypatch.setattr(admission, "MANY", 300)
    monkeypatch.setattr(admission, "ROUNDS", 10)
    rows = {row.what: row for row in admission.run()}
    assert rows["one starts, 100 queued"].ratio == ""
    assert rows["one starts, 300 queued"].ratio.endswith(" x")
    assert all(row.value.endswith(" ms") for row in rows.values())
