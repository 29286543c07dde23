"""The order of the heads, at its edges: whole slots, tenants' clocks, who goes before whom and why."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from clawq.rules.facts import Head
from clawq.rules.fairness import NO_CLOCKS, Clocks, Order, Turns, effective_band, kept_for, share_slots

NOW, BOOST = 1_000_000, 1_000


@pytest.mark.parametrize(
    ("shares", "most", "slots"),
    [
        pytest.param({0: 14}, 10, {0: 1}, id="what is left over has the larger remainder"),
        pytest.param({0: 25}, 10, {0: 3}, id="a tie with what is left over is the share's"),
        pytest.param({1: 25, 2: 25}, 10, {1: 3, 2: 2}, id="a tie of two is the higher band's"),
        pytest.param({1: 15, 2: 65}, 10, {1: 1, 2: 7}, id="or that of the larger share"),
        pytest.param({0: 10, 1: 12}, 10, {0: 1, 1: 1}, id="whole slots take part with nothing"),
        pytest.param({0: 100, 1: 50}, 3, {0: 3, 1: 1}, id="more than there is is rounded down"),
    ],
)
def test_shares_in_whole_slots(shares: dict[int, float], most: int, slots: dict[int, int]) -> None:
    assert share_slots(shares, most) == slots


@pytest.mark.parametrize(
    ("most", "free", "used", "kept"),
    [
        (8, 8, {}, {0: 1, 1: 1}),
        (8, 8, {0: 1}, {1: 1}),
        (2, 8, {}, {0: 1}),
        (1, 8, {}, {}),
        (8, 1, {}, {0: 1}),
        (3, 8, {0: 1}, {1: 1}),
        (2, 8, {0: 1}, {}),
        (4, 8, {0: 3}, {1: 1}),
    ],
)
def test_a_slot_stays_free_while_that_leaves_one_for_the_others(
    most: int, free: int, used: dict[int, int], kept: dict[int, int]
) -> None:
    assert kept_for({0: 1, 1: 1}, used, most, free) == kept


def test_the_shortest_boost_there_can_be() -> None:
    assert effective_band(102, 3, 100, 1) == 1


# ---------------------------------------------------------------- tenants' clocks


def test_a_start_moves_the_band_to_the_tenants_clock_and_that_by_its_weight() -> None:
    turns = Turns(NO_CLOCKS)
    assert turns.clock((2, "a")) == 0.0
    turns.charge((2, "a"), 2.0, out_of_turn=False)
    assert (turns.moved, turns.presents) == ({(2, "a"): 0.5}, {2: 0.0})
    turns.charge((2, "a"), 2.0, out_of_turn=False)
    assert (turns.moved, turns.presents) == ({(2, "a"): 1.0}, {2: 0.5})


def test_who_comes_back_starts_at_the_present() -> None:
    turns = Turns(Clocks({(2, "a"): 1.0}, {2: 5.0}))
    assert turns.clock((2, "a")) == turns.clock((2, "new")) == 5.0


@pytest.mark.parametrize(("at", "moved"), [(0.25, 1.0), (5.0, 5.0)])
def test_out_of_turn_the_present_stays_and_no_clock_goes_back(at: float, moved: float) -> None:
    turns = Turns(Clocks({(2, "a"): at}, {}))
    turns.charge((2, "a"), 1.0, out_of_turn=True)
    assert (turns.moved, turns.presents) == ({(2, "a"): moved}, {})


# ---------------------------------------------------------------- who goes before whom


def head(job_id: int, band: int = 2, waited: int = 0, needs: str = "", **more: object) -> Head:
    values = {"tenant": "t", "kind": f"k{job_id}", "rank": job_id, "ready_at": NOW - waited} | more
    return Head(job_id, band, needs=needs, **values)  # type: ignore[arg-type]


def order(
    *heads: Head, turns: Turns | None = None, promised: Iterable[int] = (), borrows: Iterable[int] = ()
) -> Order:
    known = dict.fromkeys(promised, NOW)
    return Order(NOW, heads, turns or Turns(NO_CLOCKS), BOOST, known, set(borrows).__contains__)


def left(asked: Order) -> list[int]:
    found = []
    while (each := asked.pop()) is not None:
        found.append(each.job_id)
    return found


def test_a_start_begins_the_wait_of_its_like_anew() -> None:
    asked = order(head(1, 3, waited=9 * BOOST), head(2, 3, waited=9 * BOOST), head(3, 2))
    first = asked.pop()
    assert first is not None
    asked.charge(first, 1.0)
    assert (first.job_id, left(asked)) == (1, [3, 2])


@pytest.mark.parametrize("starts", [(NOW - 1, NOW - 8 * BOOST), (NOW - 8 * BOOST, NOW - 1)])
def test_the_last_start_of_its_like_counts_whichever_lanes_it_was(starts: tuple[int, int]) -> None:
    """Both are asked in their own band, behind one of a higher band, for one of them was served just now."""
    lanes = [head(n, 3, waited=9 * BOOST, last_start_at=at) for n, at in enumerate(starts, 1)]
    assert left(order(*lanes, head(3, 3, waited=9 * BOOST), head(4, 2))) == [4, 1, 2, 3]


def test_those_that_rose_go_by_how_long_their_like_have_waited() -> None:
    """Number 2 came last of all, and 1 has waited longest: what both wait for is served first."""
    heads = [
        head(1, 0, waited=9 * BOOST, needs="r", rank=9),
        head(2, 0, waited=2 * BOOST, needs="r", rank=10),
        head(3, 0, waited=5 * BOOST, needs="s"),
    ]
    for given in (heads, heads[::-1]):
        assert left(order(*given)) == [1, 2, 3]


def test_who_was_promised_its_slots_goes_first_and_borrows_nothing() -> None:
    heads = [head(1), head(2), head(3, 3)]
    assert left(order(*heads, promised=[2])) == [2, 1, 3]
    assert left(order(*heads, promised=[2], borrows=[2])) == [2, 3, 1]
    assert left(order(*heads, borrows=[2])) == [3, 1, 2]


def test_one_that_comes_later_is_not_put_before_those_that_were_asked() -> None:
    asked = order(head(5), head(6))
    assert asked.pop() is not None
    asked.add(head(1))
    assert left(asked) == [1, 6]


@pytest.mark.parametrize(
    ("others", "present"),
    [
        pytest.param([(3, "b", 0.0)], {2: 5.0}, id="another band's clocks say nothing"),
        pytest.param([(2, "b", 0.0), (2, "c", 9.0)], {}, id="one that is behind is enough"),
        pytest.param([(2, "b", 5.0)], {2: 5.0}, id="level is not behind"),
    ],
)
def test_a_start_is_out_of_turn_while_another_tenant_of_the_band_is_behind(
    others: list[tuple[int, str, float]], present: dict[int, float]
) -> None:
    clocks = {(2, "a"): 5.0} | {(band, tenant): at for band, tenant, at in others}
    turns = Turns(Clocks(clocks, {}))
    heads = [head(n, band, tenant=tenant) for n, (band, tenant, _) in enumerate(others, 2)]
    asked = order(head(1, tenant="a"), *heads, turns=turns, promised=[1])
    first = asked.pop()
    assert first is not None
    asked.charge(first, 1.0)
    assert (first.tenant, turns.presents) == ("a", present)
