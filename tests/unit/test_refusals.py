"""Each refusal of a head at its edge: what is just enough, what is not, and what is said of it."""

from __future__ import annotations

import pytest

from clawq.rules.admission import Decision, Park, Start, Wait, decide
from clawq.rules.facts import (
    GROWTH_MS,
    Budget,
    Cooldown,
    Footprint,
    Head,
    Host,
    Lane,
    Limits,
    Resource,
    Running,
)

NOW = 1_000_000
RESERVE_AFTER = 1_000
LIMITS = Limits(
    max_running=8,
    retry_after_ms=60_000,
    resources={
        "q": Resource(2),
        "r": Resource(1),
        "s": Resource(1),
        "kept": Resource(1, keep=True),
        "z": Resource(1),
    },
    tenant=lambda tenant: 8,
    kind=lambda kind, band: None,
    reserve_after_ms=RESERVE_AFTER,
)
CALM = Host()


def head(job_id: int = 100, needs: str = "", band: int = 2, **more: object) -> Head:
    values = {"tenant": "t", "kind": "k", "rank": job_id, "ready_at": NOW} | more
    return Head(job_id, band, needs=needs, **values)  # type: ignore[arg-type]


def runs(job_id: int, needs: str = "", **more: object) -> Running:
    return Running(job_id, 2, "t", "other", needs, **more)  # type: ignore[arg-type]


def asked(
    *heads: Head,
    running: tuple[Running, ...] = (),
    host: Host = CALM,
    promised: dict[int, int] | None = None,
    **limits: object,
) -> list[Decision]:
    """What is decided of each, in the order of the heads given; those of one lane stand behind each other."""
    lanes: dict[Lane, list[Head]] = {}
    for each in heads:
        lanes.setdefault(each.lane, []).append(each)
    first = [lane.pop(0) for lane in lanes.values()]

    def following(before: Head) -> Head | None:
        lane = lanes[before.lane]
        return lane.pop(0) if lane else None

    rules = LIMITS._replace(**limits)  # type: ignore[arg-type]
    found = decide(NOW, host, running, first, rules, following, promised=promised or {}).decisions
    by_id = {each.head.job_id: each for each in found}
    return [by_id[each.job_id] for each in heads if each.job_id in by_id]


def said(decision: Decision) -> tuple[object, ...]:
    """In short: ``("starts",)``, or the reason and what it measured."""
    if isinstance(decision, Start):
        return ("starts",)
    return (
        (decision.reason,)
        if isinstance(decision, Park)
        else (decision.reason, decision.measured, decision.limit)
    )


STARTS = ("starts",)


@pytest.mark.parametrize(
    ("host", "limits", "answer"),
    [
        (Host(pressure=1), {"max_pressure": 1}, STARTS),
        (Host(pressure=2), {"max_pressure": 1}, ("memory_pressure", 2, 1)),
        (Host(pressure=2), {}, STARTS),
        (Host(), {"max_pressure": 1}, STARTS),
        (Host(free_disk_mb=512), {"min_free_disk_mb": 512}, STARTS),
        (Host(free_disk_mb=511), {"min_free_disk_mb": 512}, ("low_disk", 511, 512)),
        (Host(free_disk_mb=0), {}, STARTS),
        (Host(), {"min_free_disk_mb": 512}, STARTS),
        (Host(ramp_left=1), {}, STARTS),
        (Host(ramp_left=0), {}, ("ramp_up", 0, 0)),
        (CALM, {"resources": {}, "spends": lambda kind, band: (("b", 5),)}, ("never_fits", 5, None)),
    ],
)
def test_the_gates(host: Host, limits: dict[str, object], answer: tuple[object, ...]) -> None:
    assert said(asked(head(), host=host, **limits)[0]) == answer


def test_a_resource_of_no_slots_is_never_had() -> None:
    assert said(asked(head(needs="r"), resources={"r": Resource(0)})[0]) == ("never_fits", None, 0)


def test_the_ramp_counts_what_starts_in_the_same_pass() -> None:
    assert [said(each) for each in asked(head(1), head(2), host=Host(ramp_left=1))] == [
        STARTS,
        ("ramp_up", 1, 1),
    ]


@pytest.mark.parametrize(
    ("job", "procs", "free_mb"),
    [
        pytest.param(runs(1, started_at=NOW - GROWTH_MS + 1), 110, 900, id="not looked at yet"),
        pytest.param(runs(1, started_at=NOW - GROWTH_MS + 1, procs=3, mb=40), 107, 940, id="half grown"),
        pytest.param(
            runs(1, started_at=NOW - GROWTH_MS + 1, procs=12, mb=200), 100, 1_000, id="more than its like"
        ),
        pytest.param(runs(1, started_at=NOW - GROWTH_MS), 100, 1_000, id="has had its time to grow"),
    ],
)
def test_what_runs_is_still_going_to_grow(job: Running, procs: int, free_mb: int) -> None:
    host = Host(user_procs=100, free_mb=1_000)
    like = {"footprint": lambda kind: Footprint(10, 100), "running": (job,), "host": host}
    for at, answer in ((procs + 1, STARTS), (procs, ("uid_procs", procs, procs))):
        assert said(asked(head(), max_user_procs=at, **like)[0]) == answer  # type: ignore[arg-type]
    for at, answer in ((free_mb, STARTS), (free_mb + 1, ("low_memory", free_mb, free_mb + 1))):
        assert said(asked(head(), min_free_mb=at, **like)[0]) == answer  # type: ignore[arg-type]


def test_what_starts_in_the_same_pass_is_going_to_grow_too() -> None:
    like = {"footprint": lambda kind: Footprint(10, 100)}
    two = (head(1), head(2))
    full = asked(*two, host=Host(user_procs=100), max_user_procs=110, **like)
    assert [said(each) for each in full] == [STARTS, ("uid_procs", 110, 110)]
    low = asked(*two, host=Host(free_mb=1_000), min_free_mb=901, **like)
    assert [said(each) for each in low] == [STARTS, ("low_memory", 900, 901)]


CHILD = head(root_id=1)
WAITS = runs(1, waiting=True, procs=60, mb=300)


@pytest.mark.parametrize(
    ("one", "running", "answer"),
    [
        pytest.param(CHILD, (WAITS,), STARTS, id="a child of what waits"),
        pytest.param(head(), (WAITS,), ("uid_procs", 100, 100), id="no child"),
        pytest.param(CHILD, (WAITS, runs(2)), ("uid_procs", 100, 100), id="another runs, and may end"),
    ],
)
def test_what_waits_does_not_close_the_gate_for_a_child_when_nothing_else_runs(
    one: Head, running: tuple[Running, ...], answer: tuple[object, ...]
) -> None:
    assert said(asked(one, running=running, host=Host(user_procs=100), max_user_procs=100)[0]) == answer
    memory = asked(one, running=running, host=Host(free_mb=400), min_free_mb=512)[0]
    assert said(memory) == (answer if answer == STARTS else ("low_memory", 400, 512))


@pytest.mark.parametrize(("job", "uses"), [(WAITS, (60, 300)), (WAITS._replace(procs=None, mb=None), (0, 0))])
def test_what_waits_is_left_out_of_the_gate_to_the_last_process(job: Running, uses: tuple[int, int]) -> None:
    procs, mb = uses
    full = asked(CHILD, running=(job,), host=Host(user_procs=100 + procs), max_user_procs=100)[0]
    assert said(full) == ("uid_procs", 100, 100)
    low = asked(CHILD, running=(job,), host=Host(free_mb=511 - mb), min_free_mb=512)[0]
    assert said(low) == ("low_memory", 511, 512)


def test_so_many_wait_that_only_children_start() -> None:
    assert said(asked(head(), running=(WAITS,), max_waiting=1)[0]) == ("max_waiting", 1, 1)
    assert said(asked(head(), running=(WAITS,), max_waiting=2)[0]) == STARTS
    assert said(asked(CHILD, running=(WAITS,), max_waiting=1)[0]) == STARTS
    over = WAITS._replace(back_at=NOW)
    assert said(asked(head(), running=(over,), max_waiting=1)[0]) == STARTS
    lacks = asked(head(), running=(over._replace(needs="r"), runs(2, "r")), max_waiting=1)[0]
    assert said(lacks) == ("max_waiting", 1, 1)


def test_what_waits_keeps_its_name_and_what_is_to_be_kept() -> None:
    waits = runs(1, "gone,kept,r", waiting=True, exclusive="x")
    assert said(asked(head(exclusive="x"), running=(waits,))[0]) == ("exclusive:x",)
    found = asked(head(1, "kept"), head(2, "r"), running=(waits,))
    assert [said(each) for each in found] == [("resource:kept", 1, 1), STARTS]


@pytest.mark.parametrize("lacks", [(), (runs(9, "s"),)], ids=["goes on", "lacks a slot"])
@pytest.mark.parametrize(
    ("one", "limits", "reason"),
    [
        ({"kind": "new"}, {"tenant": lambda tenant: 2 if tenant == "t" else 9}, "tenant_limit"),
        (
            {"tenant": "u", "kind": "k1"},
            {"kind": lambda kind, band: 1 if kind == "k1" else None},
            "kind_limit",
        ),
        ({"tenant": "u", "root_id": 7}, {"max_running_per_workflow": 1}, "workflow_limit"),
        ({"tenant": "u", "needs": "two"}, {}, "starts"),
        ({"tenant": "u", "needs": "r"}, {}, "resource:r"),
    ],
)
def test_whose_wait_is_over_counts_again_as_what_it_is(
    lacks: tuple[Running, ...], one: dict[str, object], limits: dict[str, object], reason: str
) -> None:
    """Once: also what it kept, of which there are two."""
    back = Running(1, 2, "t", "k1", "r,s,two", root_id=7, waiting=True, back_at=NOW)
    others = lacks or (runs(9),)
    resources = LIMITS.resources | {"two": Resource(2, keep=True)}
    found = asked(head(**one), running=(back, *others), resources=resources, **limits)  # type: ignore[arg-type]
    assert said(found[0])[0] == reason


# ---------------------------------------------------------------- counts and shares


@pytest.mark.parametrize(
    ("limits", "answer"),
    [
        ({"max_running": 1}, ("max_running", 2, 1)),
        ({"tenant": lambda tenant: 1}, ("tenant_limit", 2, 1)),
        ({"kind": lambda kind, band: 1 if (kind, band) == ("other", 2) else None}, ("kind_limit", 2, 1)),
        ({"resources": {"r": Resource(1)}}, ("resource:r", 2, 1)),
        ({"max_waiting": 1}, ("max_waiting", 2, 1)),
        ({"max_user_procs": 99}, ("uid_procs", 100, 99)),
    ],
)
def test_limits_that_were_lowered_below_what_runs(
    limits: dict[str, object], answer: tuple[object, ...]
) -> None:
    running = (*(runs(n, "r") for n in (1, 2)), *(runs(n, waiting=True) for n in (3, 4)))
    of = {"resources": {"r": Resource(9)}} | limits
    one = head(kind="other", needs="r")
    assert said(asked(one, running=running, host=Host(user_procs=100), **of)[0]) == answer


def test_a_machine_that_cannot_fork_says_when_it_is_tried_again() -> None:
    assert asked(head(), host=Host(spawn_closed_until=NOW + 5)) == [
        Wait(head(), "spawn_failed", retry_at=NOW + 5)
    ]


def test_slots_that_other_bands_keep() -> None:
    six = tuple(runs(n) for n in range(6))
    slots = {0: 1, 1: 1}
    assert said(asked(head(), running=six, band_slots=slots)[0]) == ("band_share", 6, 6)
    assert said(asked(head(), running=six[:5], band_slots=slots)[0]) == STARTS
    assert said(asked(head(band=1), running=six, band_slots=slots)[0]) == STARTS
    seven = (*six, runs(7))
    assert said(asked(head(band=1), running=seven, band_slots=slots)[0]) == ("band_share", 7, 7)
    assert said(asked(head(band=0), running=seven, band_slots=slots)[0]) == STARTS


def test_each_start_counts_once_in_its_workflow_of_which_the_root_is_one() -> None:
    heads = (head(7, band=1), *(head(n, root_id=7) for n in (8, 9)))
    found = asked(*heads, max_running_per_workflow=2)
    assert [said(each) for each in found] == [STARTS, STARTS, ("workflow_limit",)]


@pytest.mark.parametrize(("band", "borrows"), [(0, False), (1, True), (2, True)])
def test_who_borrows_goes_after_those_within_their_share(band: int, borrows: bool) -> None:
    """Critical work is held back by a share of its own only."""
    heads = [head(1, band=band, kind="first"), head(2, band=3, kind="share")]
    found = decide(NOW, CALM, [], heads, LIMITS._replace(band_slots={3: 1}), lambda each: None).decisions
    assert [each.head.job_id for each in found] == ([2, 1] if borrows else [1, 2])


# ---------------------------------------------------------------- rests and budgets


@pytest.mark.parametrize(
    ("rest", "answer"),
    [
        (Cooldown(NOW + 1, False, 1), Wait(head(needs="q,r"), "cooldown:r", retry_at=NOW + 1)),
        (Cooldown(NOW, False, 1), Start(head(needs="q,r"))),
        (Cooldown(NOW, True, 9), Wait(head(needs="q,r"), "cooldown:r", 0, 9)),
        (Cooldown(NOW, False, 0), Wait(head(needs="q,r"), "cooldown:r", 0, 0)),
    ],
)
def test_a_resource_that_rests(rest: Cooldown, answer: Decision) -> None:
    assert asked(head(needs="q,r"), cooldowns={"r": rest}) == [answer]


def test_only_so_many_probe_it_in_one_pass() -> None:
    heads = [head(n, "q") for n in (1, 2, 3)]
    found = asked(*heads, cooldowns={"q": Cooldown(NOW, False, 2)}, resources={"q": Resource(9)})
    assert [said(each) for each in found] == [STARTS, STARTS, ("cooldown:q", 2, 2)]


def spends(kind: str, band: int) -> tuple[tuple[str, int], ...]:
    """Of band 2 alone: as many as the kind's name says."""
    return (("b", int(kind)),) if band == 2 and kind.isdigit() else ()


@pytest.mark.parametrize(
    ("budget", "answer"),
    [
        (Budget(10, None, 5, {}), STARTS),
        (Budget(10, None, 6, {}), ("budget:b", 6, 10)),
        (Budget(99, 6, 9, {"t": 1}), STARTS),
        (Budget(99, 6, 9, {"t": 2, "u": 9}), ("budget:b", 2, 6)),
        (Budget(5, 5, 0, {}), STARTS),
        (Budget(4, None, 0, {}), ("never_fits", 5, 4)),
        (Budget(99, 4, 0, {}), ("never_fits", 5, 4)),
    ],
)
def test_what_a_budget_has_left(budget: Budget, answer: tuple[object, ...]) -> None:
    (found,) = asked(head(kind="5"), spends=spends, budgets={"b": budget._replace(frees_at=NOW + 7)})
    assert said(found) == answer
    assert not isinstance(found, Wait) or found.reason == "never_fits" or found.retry_at == NOW + 7


def test_what_a_start_takes_of_a_budget_is_gone_for_the_others_of_the_pass() -> None:
    mine, next_of_mine, other = head(1, kind="5"), head(2, kind="5"), head(3, kind="5", tenant="u")
    whole = asked(mine, next_of_mine, spends=spends, budgets={"b": Budget(9, None, 0, {})})
    assert [said(each) for each in whole] == [STARTS, ("budget:b", 5, 9)]
    parts = asked(mine, next_of_mine, other, spends=spends, budgets={"b": Budget(99, 9, 0, {})})
    assert [said(each) for each in parts] == [STARTS, ("budget:b", 5, 9), STARTS]


LATE = NOW - RESERVE_AFTER


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        pytest.param({"ready_at": LATE}, ("budget:b", 13, 10), id="has waited long enough"),
        pytest.param({"ready_at": LATE + 1}, STARTS, id="has not"),
        pytest.param({"ready_at": LATE, "gated_at": LATE + 1}, STARTS, id="for nobody could have started"),
        pytest.param({"ready_at": LATE, "needs": "r"}, STARTS, id="lacks a slot besides"),
        pytest.param({"ready_at": LATE, "tenant": "full"}, STARTS, id="has no place besides"),
    ],
)
def test_who_has_waited_for_a_budget_keeps_its_amount(
    first: dict[str, object], answer: tuple[object, ...]
) -> None:
    heads = (head(1, kind="8", **first), head(2, kind="3"))  # type: ignore[arg-type]
    found = asked(
        *heads,
        running=(runs(9, "r"),),
        tenant=lambda tenant: 0 if tenant == "full" else 8,
        spends=spends,
        budgets={"b": Budget(10, None, 5, {})},
    )
    assert [said(each) for each in found] == [("budget:b", 5, 10), answer]


def test_who_lacks_its_tenants_part_alone_keeps_nothing_of_the_others() -> None:
    heads = (head(1, kind="4", ready_at=LATE), head(2, kind="2"), head(3, kind="4", tenant="u"))
    found = asked(*heads, spends=spends, budgets={"b": Budget(9, 8, 5, {"t": 5})})
    assert [said(each) for each in found] == [("budget:b", 5, 8), ("budget:b", 9, 8), STARTS]


# ---------------------------------------------------------------- reservations


def reserving(needs: str = "r,s", **more: object) -> Head:
    return head(1, needs, short_since=LATE, kind="reserves", **more)


def promise(decision: Decision) -> int | None:
    assert isinstance(decision, Wait)
    return decision.promised_at


HOLDS_R = runs(9, "r", ends_by=NOW + 500)


@pytest.mark.parametrize(
    ("deadline", "answer"), [(None, ("reserved", 1, 1)), (NOW + 501, ("reserved", 1, 1)), (NOW + 500, STARTS)]
)
def test_a_reservation_holds_all_that_its_head_needs_but_against_who_ends_before(
    deadline: int | None, answer: tuple[object, ...]
) -> None:
    found = asked(reserving(), head(2, "s", deadline_at=deadline), running=(HOLDS_R,))
    assert [said(each) for each in found] == [("resource:r", 1, 1), answer]
    assert promise(found[0]) == NOW + 500


@pytest.mark.parametrize(
    ("first", "running"),
    [
        pytest.param(
            reserving()._replace(short_since=LATE + 1), (HOLDS_R,), id="not refused for long enough"
        ),
        pytest.param(reserving()._replace(short_since=None), (HOLDS_R,), id="nor for slots at all"),
        pytest.param(reserving("s,z"), (), id="rests, which is no lack of slots"),
        pytest.param(
            reserving("kept,s"),
            (runs(9, "kept", waiting=True),),
            id="nobody knows when what waits gives back",
        ),
    ],
)
def test_who_reserves_nothing(first: Head, running: tuple[Running, ...]) -> None:
    found = asked(first, head(2, "s"), running=running, cooldowns={"z": Cooldown(NOW + 9, False, 1)})
    assert said(found[1]) == STARTS
    assert promise(found[0]) is None


def test_a_lack_of_counts_alone_reserves_nothing_but_keeps_what_was_promised() -> None:
    one, other = head(1, "s", tenant="full", short_since=LATE), head(2, "s")
    of = {"tenant": lambda tenant: 0 if tenant == "full" else 8}
    assert [said(each)[0] for each in asked(one, other, **of)] == ["tenant_limit", "starts"]
    found = asked(one, other, promised={1: NOW + 5}, **of)
    assert [said(each)[0] for each in found] == ["tenant_limit", "reserved"]
    assert promise(found[0]) == NOW


def test_who_lacks_a_count_stands_in_nobodys_way_to_reserve() -> None:
    heads = (head(1, "r", tenant="full", short_since=LATE), head(2, "r", short_since=LATE))
    found = asked(*heads, running=(HOLDS_R,), tenant=lambda tenant: 0 if tenant == "full" else 8)
    assert [promise(each) for each in found] == [None, NOW + 500]


@pytest.mark.parametrize("due", [LATE, None])
def test_only_the_first_that_waits_for_a_resource_reserves(due: int | None) -> None:
    """Also where that one is not due yet."""
    found = asked(
        reserving("r")._replace(short_since=due), head(2, "r,s", short_since=LATE), running=(HOLDS_R,)
    )
    assert [promise(each) for each in found] == [None if due is None else NOW + 500, None]


def test_a_promise_is_of_the_slot_that_is_free_first_and_the_next_of_the_next() -> None:
    two = (runs(8, "q", ends_by=NOW + 300), runs(9, "q", ends_by=NOW + 100))
    assert promise(asked(reserving("q"), running=two)[0]) == NOW + 100
    assert promise(asked(reserving("q,r"), running=(*two, HOLDS_R))[0]) == NOW + 500
    assert (
        promise(asked(reserving("r,s"), running=(HOLDS_R, runs(8, "s", ends_by=NOW + 200)))[0]) == NOW + 500
    )
    unknown = (two[0], runs(9, "q"))
    assert promise(asked(reserving("q"), running=unknown)[0]) == NOW + 300
    assert promise(asked(reserving("q"), running=(runs(8, "q"), runs(9, "q")))[0]) is None
    assert promise(asked(reserving("q,r"), running=(runs(8, "q"), runs(9, "q"), HOLDS_R))[0]) is None


def test_no_two_are_promised_the_place_of_one() -> None:
    both = runs(9, "r,s", ends_by=NOW + 500)
    heads = (reserving("r"), head(2, "s", short_since=LATE))
    assert [promise(each) for each in asked(*heads, running=(both,))] == [NOW + 500, None]
    apart = (HOLDS_R, runs(8, "s", ends_by=NOW + 200))
    assert [promise(each) for each in asked(*heads, running=apart)] == [NOW + 500, NOW + 200]


def test_who_would_end_before_one_promise_and_perhaps_not_before_another() -> None:
    heads = (reserving("q,r"), head(2, "q,s", short_since=LATE), head(3, "q,z", deadline_at=NOW + 500))
    found = asked(*heads, running=(HOLDS_R, runs(8, "s")), promised={1: NOW, 2: NOW})
    assert [promise(each) for each in found[:2]] == [NOW + 500, None]
    assert said(found[2]) == ("reserved", 2, 2)


def test_what_starts_in_the_pass_is_relied_on_by_its_deadline() -> None:
    found = asked(head(2, "r", band=1, deadline_at=NOW + 50), reserving("r"))
    assert [said(each)[0] for each in found] == ["starts", "resource:r"]
    assert promise(found[1]) == NOW + 50


@pytest.mark.parametrize(
    ("others", "promised"), [((), NOW + 400), ((runs(8, "s"),), None)], ids=["goes on", "lacks a slot itself"]
)
def test_whose_wait_is_over_is_relied_on_once_it_goes_on(
    others: tuple[Running, ...], promised: int | None
) -> None:
    back = runs(9, "r,s", waiting=True, back_at=NOW, ends_by=NOW + 400)
    assert promise(asked(reserving("r"), running=(back, *others))[0]) == promised
