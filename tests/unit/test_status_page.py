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
        "ended": [],
        "deferred": [],
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
    monkeypatch.setattr(render, "has_an_edge", lambda: True)
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


ALERT = {"reason": "stuck", "text": "job 3 has waited 12m", "fix": "`clawq why 3`"}


def running(**more: Any) -> dict[str, Any]:
    row = {"job_id": 3, "kind": "mail", "state": "running", "tenant": "acme", "attempt": 1, "pid": 77}
    row |= {"age_s": 61.0, "lease_left_s": 90.0, "beat_age_s": 30.0, "quiet_s": 45.0, "needs": ["browser"]}
    return row | {"cancel_at": None} | more


def waiting(kind: str, until: int | None) -> dict[str, Any]:
    row = {"tenant": "acme", "band": "bulk", "kind": kind, "queued": 4, "oldest_age_s": 61.0}
    return row | {"until": until}


def test_what_needs_a_person_stands_on_top_and_in_red() -> None:
    held = {"reason": "held", "text": "1 job held for a person", "fix": "see `clawq list --state held`"}
    page = shown(alerts=[ALERT, held])
    assert page[:3] == [
        "alert       job 3 has waited 12m: `clawq why 3`",
        "held        1 job held for a person: see `clawq list --state held`",
        "",
    ]
    assert styles("job 3", alerts=[ALERT, held]) == {"red"}
    assert styles("1 job held", alerts=[ALERT, held]) == {"yellow"}


def test_today_says_what_ended_by_kind_and_what_was_put_off_why() -> None:
    ended = [
        {"kind": "qa", "state": "succeeded", "count": 34},
        {"kind": "mail", "state": "succeeded", "count": 8},
        {"kind": "qa", "state": "dead", "count": 2},
    ]
    deferred = [{"reason": "uid_procs", "count": 38}, {"reason": "max_running", "count": 1}]
    page = shown(ended=ended, deferred=deferred)
    assert "today       qa 34 succeeded, 2 dead   mail 8 succeeded" in page
    assert "deferred    38 times, uid_procs   once, max_running" in page
    assert styles("qa 34", ended=ended) == {"yellow"}


def test_running_jobs_say_how_their_lease_stands() -> None:
    page = shown(running=[running(), running(job_id=4, lease_left_s=-1.0)])
    at = page.index("Running")
    assert " ".join(page[at + 1].split()) == "ID KIND STATE TENANT TRY PID FOR BEAT LEASE QUIET NEEDS"
    assert " ".join(page[at + 2].split()) == "3 mail running acme 1 77 1m 30s 1m 45s browser"
    assert page[at + 3].split()[8] == "over"
    assert styles("over", running=[running(lease_left_s=-1.0)]) == {"red"}


def test_a_narrow_page_leaves_out_the_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "page_width", lambda: 80)
    page = shown(running=[running()])
    assert "PID" not in page[page.index("Running") + 1]
    assert max(map(len, page)) <= 80


def test_what_waits_says_until_when_it_is_tried_and_promises_nothing() -> None:
    import time

    page = shown(depth=[waiting("mail", NOW + 60_000), waiting("qa", None)])
    at = page.index("Queued")
    until = time.strftime("%H:%M", time.localtime(NOW / 1000 + 60))
    assert page[at + 1].split() == ["TENANT", "BAND", "KIND", "JOBS", "OLDEST", "RETRYING", "UNTIL"]
    assert page[at + 2].split()[-1] in (until, time.strftime("%a", time.localtime(NOW / 1000 + 60)))
    assert page[at + 3].split()[-1] == "-"
    assert "UNTIL" not in "".join(shown(depth=[waiting("qa", None)]))


def test_what_was_refused_lately_is_counted_and_the_rest_forgotten() -> None:
    row = {"reason": "queue_full", "kind": "mail", "tenant": "acme", "count": 3, "last_at": NOW - 60_000}
    page = shown(refused=[row, row | {"reason": "old", "last_at": NOW - 2 * 86_400_000}])
    at = page.index("Refused in the last day")
    assert [line.split() for line in page[at + 1 :]] == [
        ["REASON", "KIND", "TENANT", "COUNT", "LAST"],
        ["queue_full", "mail", "acme", "3", "1m", "ago"],
    ]


def test_a_long_alert_keeps_its_ends() -> None:
    text = f"clawq.toml:3: no such key: expected {'x, ' * 200}y; the last good form stays in force"
    line = " ".join(shown(alerts=[{"reason": "config", "text": text, "fix": "f"}]))
    assert "clawq.toml:3: no such key" in line
    assert "... " in line
    assert "the last good form stays in force: f" in line
