"""The page of `clawq status`: what keeps work waiting is said first, in words and in colour."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawq import states as job
from clawq.cli import render
from clawq.cli.render import Page
from clawq.cli.status_page import draw

NOW = 1_000_000_000


def document(**parts: Any) -> dict[str, Any]:
    """What `look` gives for a queue at rest, with some parts replaced."""
    found: dict[str, Any] = {
        "counts": dict.fromkeys(job.STATES, 0),
        "depth": [],
        "running": [],
        "waiting_on": [],
        "refused": [],
        "resources": {},
        "budgets": {},
        "observed": {"since": None, "enqueue": [], "start": []},
        "pauses": [],
        "supervisor": {"running": True, "pid": 7, "since": NOW - 60_000, "mode": "run"},
        "host": {
            "user_procs": 100,
            "max_user_procs": 200,
            "tasks": None,
            "free_mb": 2048,
            "pressure": None,
            "free_disk_mb": 4096,
            "min_free_mb": 512,
            "min_free_disk_mb": 512,
            "max_pressure": "warn",
        },
        "alerts": [],
        "now": NOW,
        "ever": True,
    }
    host = found["host"] | parts.pop("host", {})
    return copy.deepcopy(found | parts | {"host": host})


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "page_width", lambda: 140)
    monkeypatch.setattr("clawq.cli.words.unicode_terminal", lambda: False)


def lines(page: Page) -> list[str]:
    return [line.plain for line in page.renderable().renderables]  # type: ignore[union-attr]


def shown(**parts: Any) -> list[str]:
    return lines(draw(document(**parts)))


def styles(words: str, **parts: Any) -> set[str]:
    """Of what the page says with these words."""
    found = set()
    for line in draw(document(**parts)).renderable().renderables:
        at = line.plain.find(words)  # type: ignore[union-attr]
        if at >= 0:
            found |= {str(span.style) for span in line.spans if span.start <= at < span.end and span.style}  # type: ignore[union-attr]
    return found


def resource(
    in_use: int, limit: int, cooldown: str | None = None, left: float | None = None
) -> dict[str, Any]:
    return {"in_use": in_use, "limit": limit, "cooldown": cooldown, "cooldown_s": left}


def budget(used: int, limit: int, **more: Any) -> dict[str, Any]:
    row = {"used": used, "limit": limit, "per_s": 60, "tenant_limit": None, "per_tenant": {}}
    return row | {"frees_in_s": 12.4} | more


def test_resources_at_rest_or_paused_come_first() -> None:
    resources = {
        "a": resource(0, 1),
        "b": resource(2, 2),
        "c": resource(0, 6, "resting", 250.0),
        "d": resource(1, 6, "probing", 0.0),
        "e": resource(2, 6, "returning", 0.0),
        "f": resource(1, 6),
    }
    pauses = [{"scope": "resource", "name": "f", "since": NOW}, {"scope": "kind", "name": "a", "since": NOW}]
    first = "c 0/6 rests for 4m   d 1/6 one job probes   e 2/6 coming back   f 1/6 paused"
    assert f"resources   {first}   a 0/1   b 2/2" in shown(resources=resources, pauses=pauses)
    assert styles("c 0/6", resources=resources) == {"yellow"}
    assert styles("b 2/2", resources=resources) == {"yellow"}
    assert styles("a 0/1", resources=resources) == set()


def test_budgets_nearly_used_up_come_first_with_when_they_free() -> None:
    budgets = {
        "calm": budget(79, 100),
        "near": budget(80, 100),
        "over": budget(120, 100, per_s=3_600, frees_in_s=None),
        "shared": budget(50, 100, tenant_limit=40, per_tenant={"acme": 39, "b": 1}),
    }
    first = "near 80/100 per 1m, frees in 12s   over 120/100 per 1h   shared of acme 39/40"
    assert f"budgets     {first}   calm 79/100 per 1m   shared 50/100 per 1m" in shown(budgets=budgets)
    assert styles("near 80", budgets=budgets) == {"yellow"}
    assert styles("calm", budgets=budgets) == set()


def test_nothing_is_said_of_what_there_is_not() -> None:
    labels = {line[:12].strip() for line in shown()}
    assert labels == {"supervisor", "processes", "memory", "disk", "jobs"}


@pytest.mark.parametrize(
    ("pressure", "most", "style"),
    [
        ("normal", "warn", set()),
        ("warn", "warn", {"yellow"}),
        ("critical", "warn", {"red"}),
        ("warn", "normal", {"red"}),
        ("critical", "off", {"yellow"}),
    ],
)
def test_pressure_is_red_where_the_gate_is_closed(pressure: str, most: str, style: set[str]) -> None:
    host = {"pressure": pressure, "max_pressure": most}
    assert any(
        line.startswith("memory") and line.endswith(f", pressure {pressure}") for line in shown(host=host)
    )
    assert styles(f"pressure {pressure}", host=host) == style


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ({}, "processes   ##########----------  100 of 200"),
        ({"max_user_procs": None}, "processes   100, no limit"),
        (
            {"tasks": {"in_use": 150, "limit": 200}},
            "processes   ###############-----  150 of 200 threads, 100 processes",
        ),
        ({"free_disk_mb": 512}, "disk        ####################  512 MB free, floor 512 MB"),
        ({"min_free_mb": None}, "memory      2.0 GB free, no floor"),
    ],
)
def test_gauges_are_full_where_a_gate_closes(host: dict[str, Any], said: str) -> None:
    assert said in shown(host=host)


def test_a_disk_gate_that_is_off_is_not_shown() -> None:
    assert not any(line.startswith("disk") for line in shown(host={"min_free_disk_mb": None}))


def test_ramp_up_is_said() -> None:
    waits = [{"reason": "ramp_up", "jobs": 3, "retry_after_s": None, "job_id": 1}]
    assert "ramp-up     after a crash or a wake jobs start by ones, twos and fours" in shown(waiting_on=waits)


def observed(stage: str, reason: str, count: int) -> dict[str, Any]:
    row = {"reason": reason, "kind": "k", "tenant": "t", "count": count}
    return row | {"first_at": NOW - 60_000, "last_at": NOW - 1_000}


def test_observing_says_what_enforcing_would_have_changed() -> None:
    found = {
        "since": NOW - 7_200_000,
        "enqueue": [observed("enqueue", "kind_queue_full", 180)],
        "start": [observed("start", "max_running", 200), observed("start", "uid_procs", 1)],
    }
    page = shown(observed=found)
    assert page[1] == (
        "observing   for 2h, nothing is refused: enforcing would have refused 180 jobs and put off 201 starts"
    )
    at = page.index("Enforcing would have")
    assert [line.split() for line in page[at + 1 : at + 5]] == [
        ["DONE", "REASON", "KIND", "TENANT", "COUNT", "LAST"],
        ["put", "off", "max_running", "k", "t", "200", "1s", "ago"],
        ["refused", "kind_queue_full", "k", "t", "180", "1s", "ago"],
        ["put", "off", "uid_procs", "k", "t", "1", "1s", "ago"],
    ]


def test_what_was_observed_once_is_not_shown_while_enforcing() -> None:
    found = {"since": None, "enqueue": [observed("enqueue", "kind_queue_full", 180)], "start": []}
    assert shown(observed=found) == shown()


def test_many_observed_rows_are_cut_and_counted() -> None:
    rows = [observed("start", f"resource:{n}", 100 - n) for n in range(40)]
    page = shown(observed={"since": NOW, "enqueue": [], "start": rows})
    assert page[-1] == "  and 25 more rows: --json has them"


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_page(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "page_width", lambda: columns)
    long = "n" * 60
    found = {"since": NOW, "enqueue": [observed("enqueue", long, 1)], "start": []}
    page = shown(
        budgets={long: budget(99, 100, tenant_limit=9, per_tenant={long: 9})},
        resources={long: resource(0, 1, "resting", 5.0)},
        observed=found,
    )
    assert max(map(len, page)) <= columns


def test_a_supervisor_that_began_before_the_clock_was_set_back_has_no_age_below_zero() -> None:
    since = {"running": True, "pid": 7, "since": NOW + 7_200_000, "mode": "run"}
    assert shown(supervisor=since)[0].endswith("running, pid 7, up 0s")
