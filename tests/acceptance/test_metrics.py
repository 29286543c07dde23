"""`clawq metrics` after real work: what happened is in the figures, before and after it was pruned."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from clawq.paths import Home
from tests.fleet import Fleet


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def figures(fleet: Fleet) -> dict[tuple[str, ...], float]:
    text = fleet.clawq("metrics").stdout
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_queue_that_never_was_has_metrics_and_is_not_made(fleet: Fleet) -> None:
    assert figures(fleet)["clawq_up",] == 0
    assert not os.path.exists(fleet.home.data)


def test_what_happened_is_counted_and_stays_counted(fleet: Fleet) -> None:
    fleet.configure(
        '[budgets.tokens]\nlimit = 100\nper = "1m"\n'
        '[kinds.qa]\ncommand = ["sh", "-c", "echo; clawq spend tokens 7"]\nneeds = ["browser"]\n'
        "[limits]\nmax_queued = 6\n"
        "[kinds.poor]\ncommand = ['false']\nmax_attempts = 2\nbackoff = '0s'\nneeds = ['shell']\n"
    )
    (fleet.scratch / "batch").write_text('{"kind": "poor", "dedupe_key": "k"}\n' * 3)
    for _ in range(3):
        fleet.enqueue("qa")
    fleet.enqueue("poor", "--dedupe-key", "k")
    fleet.clawq("cancel", fleet.enqueue("qa", "--delay", "1h"))
    fleet.enqueue("qa", "--exclusive", "one")
    fleet.enqueue("qa", "--exclusive", "one")
    fleet.clawq("enqueue", "qa", code=75)
    fleet.clawq("enqueue", "poor", "--dedupe-key", "k")
    fleet.clawq("enqueue", "--batch", fleet.scratch / "batch")
    assert [row["reason"] for row in fleet.json("status")["refused"]] == ["queue_full"]
    fleet.clawq("run", "--until-idle")
    before = figures(fleet)
    assert before["clawq_accepted_total", "qa", "queued"] == 5
    assert before["clawq_accepted_total", "qa", "scheduled"] == 1
    assert before["clawq_refused_total", "qa", "queue_full"] == 1
    assert before["clawq_duplicates_total", "poor"] == 4
    assert before["clawq_ended_total", "qa", "succeeded", "succeeded"] == 5
    assert before["clawq_ended_total", "poor", "max_attempts", "dead"] == 1
    assert before["clawq_removed_total", "qa", "cancelled", "cancelled"] == 1
    assert before["clawq_attempts_total", "poor", "failed"] == 2
    assert before["clawq_retries_total", "transient", "poor"] == 1
    assert before["clawq_retries_after_deadline_total",] == 0
    assert before["clawq_deferred_total", "qa", "exclusive"] >= 1
    assert before["clawq_resource_uses_total", "browser"] == 5
    assert before["clawq_resource_failures_total", "transient", "shell"] == 2
    assert before["clawq_resource_busy_seconds_total", "browser"] > 0
    assert before["clawq_spent_total", "tokens", "qa"] == 35
    assert before["clawq_wait_seconds_count", "qa"] == before["clawq_run_seconds_count", "qa"] == 5
    assert before["clawq_first_output_seconds_count", "qa"] == 5
    assert ("clawq_first_output_seconds_count", "poor") not in before
    assert before["clawq_first_output_seconds_sum", "qa"] >= before["clawq_wait_seconds_sum", "qa"] - 1
    fleet.clawq("prune", "--older-than", "0s")
    after = figures(fleet)
    counted = {key for key in before if key[0].endswith(("_total", "_count", "_sum", "_bucket"))}
    assert len(counted) > 30
    assert {key: after[key] for key in counted} == {key: before[key] for key in counted}


def test_the_textfile_is_whole_and_readable_by_others(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    target = fleet.scratch / "clawq.prom"
    before = os.umask(0o077)
    try:
        for _ in range(2):
            assert fleet.clawq("metrics", "--textfile", target).stdout == ""
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert "# TYPE clawq_accepted_total counter" in target.read_text()
    assert [path.name for path in fleet.scratch.glob("*prom*")] == ["clawq.prom"]


def test_a_textfile_replaces_no_device_and_no_link(fleet: Fleet, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "target")
    for each in (pipe, link, tmp_path):
        done = fleet.clawq("metrics", "--textfile", each, code=2)
        assert "is not a plain file: name the file itself" in done.stderr
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_textfile_that_cannot_be_written_is_one_line(fleet: Fleet, tmp_path: Path) -> None:
    done = fleet.clawq("metrics", "--textfile", tmp_path / "no" / "such.prom", code=2)
    assert done.stderr.count("\n") == 1
    assert "could not be written: No such file or directory" in done.stderr


def test_json_has_the_same_series(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    told = {row["name"]: row for row in fleet.json("metrics")}
    assert told["clawq_accepted_total"]["samples"] == [
        {"labels": {"kind": "default", "state": "queued"}, "value": 1}
    ]
