"""Which facts together need a person, and which do not: one row a case."""

from __future__ import annotations

from typing import Any

import pytest

from clawq.rules import alerts
from clawq.rules.alerts import Active, Facts, Gate, Pause, Repeat, Waiting
from clawq.rules.trends import Sample

MINUTE = 60_000
HOUR = 60 * MINUTE
TICKS: dict[str, Any] = {"pid": 7, "ticking": True}


def old(reason: str | None, age_ms: int = 11 * MINUTE) -> dict[str, Any]:
    return TICKS | {"waiting": 1, "oldest": [Waiting(12, "mail", "acme", age_ms, reason)]}


def active(count: int, state: str = "running", quiet_ms: int | None = 0) -> list[Active]:
    return [Active(number, "mail", "acme", state, quiet_ms) for number in range(1, count + 1)]


def past(queued: list[int], age: list[int], took: list[float | None]) -> list[Sample]:
    """A sample every three minutes."""
    rows = zip(queued, age, took, strict=True)
    return [Sample(number * 3 * MINUTE, depth, age_ms, ms) for number, (depth, age_ms, ms) in enumerate(rows)]


RISING = list(range(10, 32, 2))
FLAT = [20, 21, 20, 19, 20, 21, 20, 20, 19, 20, 20]
AGES = [depth * MINUTE for depth in RISING]
SLOWER: list[float | None] = [
    1000.0,
    1100.0,
    1000.0,
    None,
    1200.0,
    1500.0,
    1400.0,
    2000.0,
    2500.0,
    2600.0,
    3e3,
]
STEADY: list[float | None] = [1000.0] * 11

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("nothing at all", {}, []),
    ("at rest", TICKS, []),
    ("a broken file", {"broken": "clawq.toml:3: x"}, ["config"]),
    ("silent", {"pid": 7, "silent_ms": 9000}, ["supervisor_silent"]),
    ("none, and nothing to do", {"pid": None}, []),
    ("none, and work", {"waiting": 1}, ["no_supervisor"]),
    ("none, and agents", {"active": active(1)}, ["no_supervisor"]),
    ("unknown", TICKS | {"unknown": 2}, ["unknown"]),
    ("misfits", TICKS | {"misfits": (3, 8)}, ["never_fits"]),
    ("late retries", TICKS | {"late": [4]}, ["late_retry"]),
    # --- the oldest is old while capacity is free
    ("nobody says why", old(None), ["stuck"]),
    ("not yet old", old(None, 9 * MINUTE), []),
    ("slots are free, and its reason says they are not", old("max_running"), ["stuck"]),
    ("all slots are held", old("max_running") | {"active": active(8)}, []),
    (
        "those that wait for others hold none",
        old("max_running") | {"active": active(8, "waiting")},
        ["stuck"],
    ),
    ("a ramp after a wake", old("ramp_up") | {"gates": [Gate("ramp_up", 2 * MINUTE, 4)]}, []),
    (
        "a ramp is over in two minutes",
        old("ramp_up") | {"gates": [Gate("ramp_up", 5 * MINUTE, 4)]},
        ["stuck"],
    ),
    ("its resource is full", old("resource:db") | {"full_resources": frozenset({"db"})}, []),
    ("its resource is free", old("resource:db"), ["stuck"]),
    ("its tenant is full", old("tenant_limit") | {"tenant_limits": {"acme": 2}, "active": active(2)}, []),
    ("it is not", old("tenant_limit") | {"tenant_limits": {"acme": 2}, "active": active(1)}, ["stuck"]),
    ("nobody knows of a limit", old("tenant_limit"), []),
    (
        "others' jobs do not fill it",
        old("tenant_limit")
        | {"tenant_limits": {"acme": 1}, "active": [Active(1, "mail", "other", "running", 0)]},
        ["stuck"],
    ),
    (
        "nor do its own that wait for others",
        old("tenant_limit") | {"tenant_limits": {"acme": 1}, "active": active(1, "waiting")},
        ["stuck"],
    ),
    ("nobody knows of a limit of its kind", old("kind_limit"), []),
    (
        "another gate is closed besides",
        old("ramp_up") | {"gates": [Gate("low_disk", 0, 4), Gate("ramp_up", 5 * MINUTE, 4)]},
        ["stuck"],
    ),
    ("just old enough", old(None, 10 * MINUTE), ["stuck"]),
    ("its kind is full", old("kind_limit") | {"kind_limits": {"mail": 1}, "active": active(1)}, []),
    ("it is not", old("kind_limit") | {"kind_limits": {"mail": 1}}, ["stuck"]),
    ("a rest", old("cooldown:anthropic"), []),
    ("a name that is taken", old("exclusive:x"), []),
    ("everything is paused", old(None) | {"pauses": [Pause("everything", 0, "clawq resume")]}, ["paused"]),
    ("no supervisor is reason enough", old(None) | {"pid": None, "ticking": False}, ["no_supervisor"]),
    ("it starts nothing any more", old(None) | {"ending": True}, []),
    # --- full while idle
    ("full and idle", TICKS | {"waiting": 900}, ["full_and_idle"]),
    ("held ones fill it too", TICKS | {"waiting": 890, "held": 10}, ["full_and_idle", "held"]),
    ("nearly full", TICKS | {"waiting": 899}, []),
    ("full and at work", TICKS | {"waiting": 900, "active": active(4)}, []),
    ("full and less than half at work", TICKS | {"waiting": 900, "active": active(3)}, ["full_and_idle"]),
    ("full, and nothing starts any more", TICKS | {"waiting": 900, "ending": True}, []),
    (
        "one kind came in a burst, another waits",
        TICKS | {"waiting": 900, "oldest": [Waiting(n, "k", "t", n * 59_999, "budget:b") for n in (1, 2)]},
        ["full_and_idle"],
    ),
    ("a burst", old(None, 59_000) | {"waiting": 900}, []),
    # --- gates
    ("closed for long", TICKS | {"gates": [Gate("uid_procs", 30 * MINUTE, 4)]}, ["gate_closed"]),
    ("closed for a while", TICKS | {"gates": [Gate("uid_procs", 30 * MINUTE - 1, 4)]}, []),
    ("nobody asks it", TICKS | {"ending": True, "gates": [Gate("uid_procs", HOUR, 4)]}, []),
    ("no gate", TICKS | {"gates": [Gate("max_running", HOUR, 4)]}, []),
    # --- quiet
    ("quiet", TICKS | {"active": active(1, quiet_ms=15 * MINUTE)}, ["quiet"]),
    ("not so quiet", TICKS | {"active": active(1, quiet_ms=15 * MINUTE - 1)}, []),
    ("nobody can tell", TICKS | {"active": active(1, quiet_ms=None)}, []),
    ("it waits for others", TICKS | {"active": active(1, "waiting", HOUR)}, []),
    # --- trends
    ("depth and age rise", TICKS | {"samples": past(RISING, AGES, STEADY)}, ["growing"]),
    ("depth alone", TICKS | {"samples": past(RISING, [MINUTE] * 11, STEADY)}, []),
    ("age alone", TICKS | {"samples": past(FLAT, AGES, STEADY)}, []),
    ("too short a past", TICKS | {"samples": past(RISING, AGES, STEADY)[:6]}, []),
    ("a few jobs", TICKS | {"samples": past([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2], AGES, STEADY)}, []),
    ("slower, and as many wait", TICKS | {"samples": past(FLAT, [0] * 11, SLOWER)}, ["slowing"]),
    ("slower, and more wait", TICKS | {"samples": past(RISING, [0] * 11, SLOWER)}, []),
    ("nothing ended", TICKS | {"samples": past(FLAT, [0] * 11, [None] * 11)}, []),
    # --- keys
    ("an old key", TICKS | {"repeats": [Repeat("mail", "acme", "k", 3, 26 * HOUR, MINUTE)]}, ["old_key"]),
    ("of a pruned job", TICKS | {"repeats": [Repeat("mail", "acme", "k", 3, None, MINUTE)]}, ["old_key"]),
    ("two days ago", TICKS | {"repeats": [Repeat("mail", "acme", "k", 3, None, 48 * HOUR)]}, ["old_key"]),
    ("not asked lately", TICKS | {"repeats": [Repeat("mail", "acme", "k", 3, None, 49 * HOUR)]}, []),
    # --- people
    ("held", TICKS | {"held": 1}, ["held"]),
    ("paused", TICKS | {"pauses": [Pause("tenant acme", MINUTE, "clawq resume --tenant acme")]}, ["paused"]),
]


@pytest.mark.parametrize(("facts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_needs_a_person(facts: dict[str, Any], expected: list[str]) -> None:
    found = alerts.alerts(Facts(**facts))
    assert [alert.reason for alert in found] == expected
    for alert in found:
        assert alert.text
        assert alert.fix
        assert not alert.text.endswith((".", ":"))


def test_only_what_a_person_has_brought_about_calls_nobody() -> None:
    facts = Facts(held=1, unknown=1, pauses=[Pause("everything", MINUTE, "clawq resume")])
    assert [(each.reason, each.needs_person) for each in alerts.alerts(facts)] == [
        ("unknown", True),
        ("paused", False),
        ("held", False),
    ]


def test_two_of_a_reason_are_told_apart_and_the_oldest_is_named() -> None:
    facts = Facts(
        **TICKS,
        oldest=[Waiting(number, "k", "t", age * MINUTE, None) for number, age in ((8, 11), (7, 12), (9, 11))],
        active=active(2, quiet_ms=HOUR),
        gates=[Gate("low_disk", HOUR, 1)],
        pauses=[Pause("kind k", MINUTE, "clawq resume --kind k")],
        repeats=[Repeat("mail", "acme", "k", 3, None, MINUTE)],
        late=[1, 2, 3, 4, 5, 6],
    )
    found = alerts.alerts(facts)
    assert [(each.reason, each.about) for each in found] == [
        ("late_retry", ""),
        ("stuck", ""),
        ("gate_closed", "low_disk"),
        ("quiet", "1"),
        ("quiet", "2"),
        ("old_key", "acme/mail"),
        ("paused", "kind k"),
    ]
    said = [each.line for each in found]
    assert said[0].startswith("6 jobs tried again after the deadline: 1, 2, 3, 4, 5 ...: look")
    assert said[1].startswith("job 7 has waited 12m while 6 of 8 slots are free: `clawq why 7`")
    assert said[2].endswith(
        "low_disk, 1 job waiting: free disk space: `clawq prune` removes ended jobs with their logs"
    )
    assert said[6] == "kind k is paused, for 1m: `clawq resume --kind k`"


def test_the_words_name_the_job_the_time_and_the_command() -> None:
    (stuck,) = alerts.alerts(Facts(**old(None, 75 * MINUTE)))
    assert stuck.line.startswith("job 12 has waited 1h15m while 8 of 8 slots are free: `clawq why 12`")
    (quiet,) = alerts.alerts(Facts(**TICKS | {"active": active(1, quiet_ms=20 * MINUTE)}))
    assert quiet.text == "job 1 (mail) has neither written nor computed for 20m"
    (growing,) = alerts.alerts(Facts(**TICKS | {"samples": past(RISING, AGES, STEADY)}))
    assert growing.text.startswith(
        "more comes than is done: 13 to 27 jobs waiting, the oldest 13m to 27m, in 30m"
    )
