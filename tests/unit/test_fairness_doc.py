"""docs/fairness-and-limits.md is held to the rules: examples, keys, the order in which a head is asked."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawq.config.models import Limits as LimitsTable
from clawq.config.problems import model_at
from clawq.rules import admission, fairness
from clawq.rules.admission import Start, decide
from clawq.rules.facts import Head, Host, Limits, Running
from clawq.rules.fairness import Clocks
from clawq.states import BANDS

DOC = (Path(__file__).parents[2] / "docs" / "fairness-and-limits.md").read_text(encoding="utf-8")
MINUTE = 60_000


def limits(**values: object) -> Limits:
    base = Limits(
        max_running=8,
        retry_after_ms=MINUTE,
        resources={},
        tenant=lambda name: 99,
        kind=lambda name, band: None,
    )
    return base._replace(**values)  # type: ignore[arg-type]


def started(now: int, running: list[Running], heads: list[Head], rules: Limits) -> list[Head]:
    outcome = decide(now, Host(), running, heads, rules, lambda head: None)
    return [each.head for each in outcome.decisions if isinstance(each, Start)]


def reasons_in_the_order_of_the_code() -> list[str]:
    """What a head is refused with: in the source the checks stand in the order in which they are made."""

    def found() -> Iterator[tuple[int, str]]:
        for node in ast.walk(ast.parse(inspect.getsource(admission))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Wait", "Park"):
                reason = node.args[1]
                if isinstance(reason, ast.JoinedStr):
                    prefix = reason.values[0]
                    assert isinstance(prefix, ast.Constant)
                    yield node.lineno, f"{prefix.value}NAME"
                else:
                    assert isinstance(reason, ast.Constant)
                    yield node.lineno, str(reason.value)

    return list(dict.fromkeys(reason for _, reason in sorted(found())))


def test_the_reasons_stand_in_the_order_in_which_they_are_asked() -> None:
    section = DOC.split("## What a head is asked for")[1].split("\n### ")[0]
    listed = [
        reason
        for line in re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
        for reason in re.findall(r"`([a-z_]+(?::NAME)?)`", line.rpartition(": ")[2])
    ]
    assert listed == reasons_in_the_order_of_the_code()
    assert len(listed) > 15


def test_every_key_that_it_names_exists() -> None:
    named = re.findall(r"`(limits|host)\.(\w+)`", DOC)
    assert len(named) > 5
    for table, key in named:
        assert key in model_at((table,)).model_fields, (table, key)
    for key in ("max_queued_per_tenant", "max_held", "max_running_per_tenant"):
        assert f"{key}`" in DOC
        assert key in LimitsTable.model_fields


def test_the_table_of_shares_is_what_comes_out() -> None:
    rows = re.findall(r"^\| (\d+) \| ([\d-]+) \| ([\d-]+) \| ([\d-]+) \| ([\d, ]+) \|$", DOC, re.MULTILINE)
    assert len(rows) == 4
    for most, *percents, slots in rows:
        bands = [BANDS.index(name) for name in ("interactive", "normal", "bulk")]
        shares = {band: float(each) for band, each in zip(bands, percents, strict=True) if each != "-"}
        found = fairness.share_slots(shares, int(most))
        assert ", ".join(str(found[band]) for band in shares) == slots


def test_the_turns_of_weights_two_and_one() -> None:
    clocks, order = Clocks({}, {}), ""
    for n in range(30):
        heads = [Head(10 * n + k, 2, tenant, "k", "", 0) for k, tenant in enumerate("ab")]
        outcome = decide(
            0,
            Host(),
            [],
            heads,
            limits(max_running=1, weight=lambda tenant: {"a": 2.0, "b": 1.0}[tenant]),
            lambda head: None,
            clocks,
        )
        (start,) = [each.head.tenant for each in outcome.decisions if isinstance(each, Start)]
        order += start
        clocks = Clocks(clocks.at | outcome.turns.moved, clocks.present | outcome.turns.presents)
    assert " ".join(order[:9]) in DOC
    assert Counter(order) == {"a": 20, "b": 10}


@pytest.mark.parametrize("band", range(len(BANDS)))
def test_a_band_without_a_share_waits_no_longer_than_its_rise(band: int) -> None:
    """Found with critical, which borrowed for ever, having no higher band to rise to; and with bulk beside
    full shares of critical and interactive, for whom every slot that was given back was kept."""
    others = [each for each in range(len(BANDS)) if each != band][:2]
    slots = fairness.share_slots(dict(zip(others, (60, 40), strict=True)), 10)
    rules = limits(max_running=10, band_slots=slots)
    running = [
        Running(100 + n, other, "t", f"k{other}", "")
        for other in others
        for n in range(10 * other, 10 * other + slots[other])
    ]
    patient = Head(1, band, "t", "patient", "", 0, ready_at=0)
    for minute in range(200):
        now = minute * MINUTE
        ended = running.pop(0)
        fresh = [
            Head(1_000 + 10 * minute + other, other, "t", f"k{other}", "", now, ready_at=now)
            for other in others
        ]
        (head,) = started(now, running, [patient, *fresh], rules)
        if head == patient:
            assert minute <= 10 * (band + 2)  # its rise, and until a slot is given back that is not kept
            return
        assert head.band == ended.band
        running.append(Running(head.job_id, head.band, head.tenant, head.kind, ""))
    pytest.fail("it never started")


@pytest.mark.parametrize(
    ("used", "kept"),
    [
        ({}, {0: 1, 1: 1}),
        ({3: 6}, {0: 1, 1: 1}),
        ({1: 3}, {0: 1}),  # its share is used up
        ({1: 7}, {0: 1}),  # borrowing takes nothing from critical
        ({0: 2, 1: 2}, {1: 1}),
        ({0: 5}, {1: 1}),
    ],
)
def test_one_slot_of_a_share_is_kept(used: dict[int, int], kept: dict[int, int]) -> None:
    assert fairness.kept_for({0: 2, 1: 3}, used, 8) == kept


def test_a_slot_is_kept_only_when_one_is_left_for_the_others() -> None:
    assert fairness.kept_for({0: 1}, {}, 1) == {}
    assert fairness.kept_for({0: 1, 1: 1}, {}, 2) == {0: 1}
    assert fairness.kept_for({0: 6, 1: 4}, {0: 5, 1: 4}, 10) == {}
    assert fairness.kept_for({0: 6, 1: 4}, {0: 5, 1: 3}, 10) == {0: 1}
