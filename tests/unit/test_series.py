"""What the figures of a queue come to as series: bounded, added up, readable by Prometheus' own parser."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from clawq import states as job
from clawq.cli import openmetrics, series
from clawq.cli.series import ALL, COUNTER, MOST
from clawq.settings import Settings
from clawq.store import counts, sqlfile, views
from clawq.store.connection import Immediate, build_schema
from clawq.store.counts import EVER, Count, Key, Told
from tests.moves import put_in
from tests.rows import put, refuse

NOW = 1_900_000_000_000
NASTY = 'a"b\\c\nd\x1b[31m\u202e'


@pytest.fixture
def settings() -> Settings:
    return Settings.from_text(sqlfile.read("default_config.json"))


@pytest.fixture
def db() -> apsw.Connection:
    made = apsw.Connection(":memory:")
    with Immediate(made):
        build_schema(made)
    return made


def document(db: apsw.Connection | None, settings: Settings) -> dict[str, Any]:
    host = {"user_procs": 130, "max_user_procs": 550, "tasks": None, "free_mb": 4_000, "min_free_mb": 512}
    host |= {"pressure": "warn", "free_disk_mb": 9_000, "min_free_disk_mb": 512}
    supervisor = {"running": True, "pid": 1, "since": NOW - 5_000, "last_tick_age_s": 0.5}
    return views.status(db, settings, NOW) | {
        "supervisor": supervisor,
        "host": host,
        "alerts": [{"reason": "unknown"}, {"reason": "unknown"}, {"reason": "held"}],
    }


def values(text: str) -> dict[tuple[str, ...], float]:
    """{(name, label values in the order of their names ...): value} as Prometheus' own parser reads them."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in parse_openmetrics(text)
        for sample in family.samples
    }


def told(db: apsw.Connection, settings: Settings) -> dict[tuple[str, ...], float]:
    return values(openmetrics.openmetrics(series.tell(document(db, settings), settings, counts.ever(db))))


def test_a_queue_that_never_was(settings: Settings) -> None:
    found = values(openmetrics.openmetrics(series.tell(document(None, settings), settings, Told({}, False))))
    assert found["clawq_jobs", "queued"] == found["clawq_retries_after_deadline_total",] == 0
    assert found["clawq_host_memory_available_bytes",] == 4_000 * 2**20
    assert found["clawq_host_memory_pressure",] == 1
    assert found["clawq_supervisor_start_time_seconds",] == (NOW - 5_000) / 1000
    assert found["clawq_alerts", "unknown"] == 1


def test_what_waits_and_what_runs(db: apsw.Connection, settings: Settings) -> None:
    put(db, NOW - 4_000, tenant="acme", band=1)
    put(db, NOW - 9_000, tenant="acme", band=1, kind="qa")
    put_in(db, job.RUNNING, NOW - 7_000, kind="qa", needs="browser")
    put_in(db, job.RUNNING, NOW - 3_000, kind="qa")
    refuse(db, "exclusive:a", tenant="acme", band=1)
    refuse(db, "exclusive:b", tenant="acme", band=1, kind="qa")
    found = told(db, settings)
    assert found["clawq_queued", "interactive", "acme"] == 2
    assert found["clawq_oldest_age_seconds", "interactive", "acme"] == 9
    assert found["clawq_leases", "qa"] == 2
    assert found["clawq_lease_age_seconds", "qa"] == 7
    assert found["clawq_lease_left_seconds", "qa"] == 113
    assert found["clawq_resource_slots_in_use", "browser"] == 1
    assert found["clawq_resource_slots", "browser"] == 2
    assert found["clawq_waiting_on", "exclusive"] == 2


def test_what_happened(db: apsw.Connection, settings: Settings) -> None:
    put_in(db, job.DEAD, NOW, kind="qa")
    put_in(db, job.EXPIRED, NOW, kind="qa")
    counts.note_deferrals(db, {("qa", "uid_procs"): 38}, NOW)
    found = told(db, settings)
    assert found["clawq_accepted_total", "qa", "queued"] == 2
    assert found["clawq_ended_total", "qa", "test", "dead"] == 1
    assert found["clawq_removed_total", "qa", "test", "expired"] == 1
    assert found["clawq_deferred_total", "qa", "uid_procs"] == 38
    assert found["clawq_started_total", "qa"] == 1
    assert found["clawq_workflows_total", "dead", "qa"] == 1


def test_durations_are_histograms(settings: Settings) -> None:
    counted = {
        Key(EVER, "waited", "qa", "100"): Count(3, 150),
        Key(EVER, "waited", "qa", "5000"): Count(2, 6_000),
        Key(EVER, "waited", "qa", "0"): Count(1, 90_000_000),
    }
    text = openmetrics.openmetrics(series.tell(document(None, settings), settings, Told(counted, False)))
    found = values(text)
    bucket = {
        le: n
        for (name, *labels), n in found.items()
        if name == "clawq_wait_seconds_bucket"
        for le in labels[1:]
    }
    assert [bucket[le] for le in ("0.1", "1.0", "5.0", "86400.0", "+Inf")] == [3, 3, 5, 5, 6]
    assert found["clawq_wait_seconds_count", "qa"] == 6
    assert found["clawq_wait_seconds_sum", "qa"] == pytest.approx(90_006.15)


def test_names_that_people_choose_are_bounded_and_nothing_is_lost(settings: Settings) -> None:
    counted = {Key(EVER, "started", f"kind{number}", ""): Count(number, 0) for number in range(1, 201)}
    counted |= {
        Key(EVER, "waited", f"kind{number}", "100"): Count(number, number) for number in range(1, 201)
    }
    text = openmetrics.openmetrics(series.tell(document(None, settings), settings, Told(counted, False)))
    found = values(text)
    started = {labels[0]: n for (name, *labels), n in found.items() if name == "clawq_started_total"}
    assert len(started) == MOST + 1
    assert sum(started.values()) == sum(range(201))
    assert started["kind200"] == 200
    assert "kind1" not in started
    assert sum(n for (name, *_), n in found.items() if name == "clawq_wait_seconds_count") == sum(range(201))


def test_a_configured_name_is_never_among_the_others(settings: Settings) -> None:
    counted = {Key(EVER, "used", f"r{number}", ""): Count(9, 0) for number in range(100)}
    counted[Key(EVER, "used", "shell", "")] = Count(1, 0)
    told = {
        each.name: dict(points)
        for each, points in series.tell(document(None, settings), settings, Told(counted, False))
    }
    assert told["clawq_resource_uses"]["shell",] == 1
    assert told["clawq_resource_uses"][series.OTHER,] == 9 * 51


def test_ages_under_other_are_the_worst_and_not_a_sum(db: apsw.Connection, settings: Settings) -> None:
    for number in range(60):
        put(db, NOW - 1_000 * (number + 1), tenant=f"t{number}")
    ages = {key[2]: n for key, n in told(db, settings).items() if key[0] == "clawq_oldest_age_seconds"}
    assert len(ages) == MOST + 1
    assert max(ages.values()) == 60
    assert ages[series.OTHER] <= 60


def test_no_name_can_break_the_text(settings: Settings) -> None:
    counted = {Key(EVER, "started", NASTY, ""): Count(1, 0)}
    found = list(series.tell(document(None, settings), settings, Told(counted, False)))
    assert values(openmetrics.openmetrics(found))["clawq_started_total", NASTY] == 1
    for family in parse_text(openmetrics.text(found)):
        assert family.type in ("gauge", "counter", "histogram"), family.name


def test_node_exporter_gets_types_that_it_knows(db: apsw.Connection, settings: Settings) -> None:
    put_in(db, job.DEAD, NOW)
    text = openmetrics.text(series.tell(document(db, settings), settings, counts.ever(db)))
    types = {family.name: family.type for family in parse_text(text)}
    assert types["clawq_ended"] == COUNTER
    assert types["clawq_run_seconds"] == "histogram"
    assert set(types) <= {each.name for each in ALL}
    assert "# EOF" not in text
