"""Which lane heads start, and why the others do not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.rules import admission, fairness
from clawq.rules.admission import Park, Start, Wait, decide
from clawq.rules.facts import Head, Host, Lane, Limits, Resource, Running
from clawq.rules.reasons import is_short_of_slots, resets_ageing

CALM = Host(user_procs=100, free_mb=8_000, spawn_closed_until=0)
LIMITS = Limits(
    max_running=8,
    max_user_procs=550,
    min_free_mb=512,
    retry_after_ms=60_000,
    resources={"browser": Resource(2, 1_024), "shell": Resource(4, None)},
    tenant=lambda tenant: 8,
    kind=lambda kind, band: None,
    paused=frozenset(),
)


def head(job_id: int, needs: str = "", band: int = 2, **columns: object) -> Head:
    values = {"tenant": "default", "kind": "default", "rank": job_id, "exclusive": None} | columns
    return Head(job_id=job_id, band=band, needs=needs, **values)  # type: ignore[arg-type]


def one_pass(
    jobs: list[Head],
    running: list[Running] | None = None,
    host: Host = CALM,
    limits: Limits = LIMITS,
    now: int = 1_000,
) -> list[admission.Decision]:
    """Decide over whole lanes, as the store would hand them out."""
    lanes: dict[Lane, list[Head]] = {}
    for each in sorted(jobs, key=lambda one: (one.rank, one.job_id)):
        lanes.setdefault(each.lane, []).append(each)

    def following(before: Head) -> Head | None:
        lane = lanes[before.lane]
        at = [each.job_id for each in lane].index(before.job_id) + 1
        return lane[at] if at < len(lane) else None

    heads = [lane[0] for lane in lanes.values()]
    return decide(now, host, running or [], heads, limits, following).decisions


def started(decisions: list[admission.Decision]) -> list[int]:
    return [each.head.job_id for each in decisions if isinstance(each, Start)]


def reasons(decisions: list[admission.Decision]) -> list[str]:
    return [each.reason for each in decisions if isinstance(each, Wait)]


def test_fills_the_free_slots_of_a_lane_in_order() -> None:
    decisions = one_pass([head(n) for n in range(1, 12)])
    assert started(decisions) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert decisions[-1] == Wait(head(9), "max_running", 8, 8)


def test_bands_are_served_in_their_order_and_priority_is_a_head_start() -> None:
    jobs = [head(1, band=3), head(2, band=0, kind="a"), head(3, rank=-60_000), head(4)]
    assert started(one_pass(jobs)) == [2, 3, 4, 1]


def test_resources_are_taken_all_or_nothing() -> None:
    holders = [Running(0, 2, "t", "k", "browser")] * 2
    decisions = one_pass([head(1, "browser,shell"), head(2, "shell")], holders)
    assert started(decisions) == [2]
    assert decisions[0] == Wait(head(1, "browser,shell"), "resource:browser", 2, 2)


def test_a_full_lane_does_not_stop_the_next_one() -> None:
    jobs = [head(1, "browser"), head(2, "browser"), head(3, "browser"), head(4)]
    assert started(one_pass(jobs)) == [1, 2, 4]


def test_limits_of_tenant_and_kind() -> None:
    limits = LIMITS._replace(
        tenant=lambda name: 1 if name == "acme" else 8, kind=lambda kind, band: 1 if kind == "q" else None
    )
    jobs = [head(1, tenant="acme"), head(2, tenant="acme"), head(3, kind="q"), head(4, kind="q")]
    decisions = one_pass(jobs, limits=limits)
    assert started(decisions) == [1, 3]
    assert sorted(reasons(decisions)) == ["kind_limit", "tenant_limit"]


def test_a_taken_exclusive_name_parks_the_head_and_asks_the_next() -> None:
    jobs = [head(1, exclusive="x"), head(2, exclusive="x"), head(3)]
    decisions = one_pass(jobs)
    assert decisions == [Start(jobs[0]), Park(jobs[1], "exclusive:x", passes_on=True), Start(jobs[2])]


@pytest.mark.parametrize(
    ("host", "needs", "reason", "measured", "limit"),
    [
        (CALM._replace(user_procs=550), "", "uid_procs", 550, 550),
        (CALM._replace(free_mb=511), "", "low_memory", 511, 512),
        (CALM._replace(free_mb=1_023), "browser", "low_memory", 1_023, 1_024),
        (CALM._replace(spawn_closed_until=1_001), "", "spawn_failed", None, None),
    ],
)
def test_host_gates_say_what_they_measured(
    host: Host, needs: str, reason: str, measured: int | None, limit: int | None
) -> None:
    (wait,) = one_pass([head(1, needs)], host=host)
    assert isinstance(wait, Wait)
    assert (wait.reason, wait.measured, wait.limit) == (reason, measured, limit)


def test_the_floor_of_a_resource_is_only_for_those_who_need_it() -> None:
    decisions = one_pass([head(1, "browser"), head(2)], host=CALM._replace(free_mb=600))
    assert started(decisions) == [2]


def test_what_just_started_counts_before_any_sample_shows_it() -> None:
    decisions = one_pass([head(n) for n in range(1, 9)], host=CALM._replace(user_procs=545))
    assert len(started(decisions)) == 3  # two processes each: 545, 547, 549, then 551


def test_gates_switched_off_or_not_measured_let_everything_through() -> None:
    off = LIMITS._replace(max_user_procs=None, min_free_mb=None)
    assert started(one_pass([head(1)], host=Host(10_000, 1), limits=off)) == [1]
    assert started(one_pass([head(1)], host=Host())) == [1]


@pytest.mark.parametrize(
    "scope", [("all", ""), ("tenant", "default"), ("kind", "default"), ("resource", "shell"), ("band", "2")]
)
def test_pauses_of_every_scope(scope: tuple[str, str]) -> None:
    limits = LIMITS._replace(paused=frozenset([scope]))
    assert reasons(one_pass([head(1, "shell")], limits=limits)) == ["paused"]


def test_a_need_that_is_not_there_any_more_never_fits() -> None:
    assert reasons(one_pass([head(1, "gone")])) == ["never_fits"]


@pytest.mark.parametrize("observing", [False, True])
def test_a_job_whose_kind_has_no_command_any_more_is_kept(observing: bool) -> None:
    limits = LIMITS._replace(has_command=lambda kind, band: kind != "gone", observing=observing)
    bare, own, other = head(1, kind="gone", bare=True), head(2, "shell", kind="gone"), head(3, bare=True)
    decisions = one_pass([bare, own, other], limits=limits)
    assert (reasons(decisions), started(decisions)) == (["never_fits"], [2, 3])


NEEDS = st.sampled_from(["", "browser", "shell", "browser,shell"])
JOBS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.sampled_from("kq"),
        NEEDS,
        st.sampled_from([None, "x", "y"]),
    ),
    max_size=40,
)


@given(jobs=JOBS, order=st.randoms(use_true_random=False))
def test_no_limit_is_passed_nothing_admissible_is_left_and_order_does_not_matter(
    jobs: list[tuple], order
) -> None:  # type: ignore[no-untyped-def, type-arg]
    heads = [
        head(n, needs, band, tenant=tenant, kind=kind, exclusive=name)
        for n, (band, tenant, kind, needs, name) in enumerate(jobs, 1)
    ]
    limits = LIMITS._replace(
        tenant=lambda name: 3, kind=lambda kind, band: 4 if kind == "q" else None, max_running=6
    )
    decisions = one_pass(heads, limits=limits)
    shuffled = list(heads)
    order.shuffle(shuffled)
    assert one_pass(shuffled, limits=limits) == decisions

    by_id = {each.job_id: each for each in heads}
    running = [by_id[job_id] for job_id in started(decisions)]
    tenants = Counter(each.tenant for each in running)
    kinds = Counter(each.kind for each in running)
    resources = Counter(name for each in running for name in each.resources)
    names = Counter(each.exclusive for each in running if each.exclusive)
    assert len(running) <= 6
    assert all(count <= 3 for count in tenants.values())
    assert kinds["q"] <= 4
    assert resources["browser"] <= 2
    assert resources["shell"] <= 4
    assert all(count == 1 for count in names.values())

    waiting = [each for each in heads if each.job_id not in started(decisions)]
    for each in waiting:
        fits = (
            len(running) < 6
            and tenants[each.tenant] < 3
            and (each.kind != "q" or kinds["q"] < 4)
            and all(resources[name] < LIMITS.resources[name].limit for name in each.resources)
            and each.exclusive not in names
        )
        assert not fits, f"{each} was admissible and left waiting"


SLOTS = ["max_running", "tenant_limit", "kind_limit", "band_share", "reserved", "resource:r"]
NOBODY_COULD = [
    "paused",
    "uid_procs",
    "low_memory",
    "memory_pressure",
    "low_disk",
    "spawn_failed",
    "ramp_up",
    "cooldown:r",
]


@pytest.mark.parametrize("reason", [*SLOTS, *NOBODY_COULD, "never_fits", "budget:b"])
def test_what_a_reason_means_for_the_wait(reason: str) -> None:
    """Only the ends of others clear a lack of slots; where nobody could start the wait does not count."""
    assert is_short_of_slots(reason) == (reason in SLOTS)
    assert resets_ageing(reason) == (reason in NOBODY_COULD)


def test_a_job_beyond_its_workflows_limit_is_parked_and_the_next_is_asked() -> None:
    jobs = [head(1, root_id=9), head(2, root_id=9), head(3, root_id=9, exclusive="x"), head(4)]
    limits = LIMITS._replace(max_running_per_workflow=1)
    assert one_pass(jobs, limits=limits) == [
        Start(jobs[0]),
        Park(jobs[1], "workflow_limit"),
        Park(jobs[2], "workflow_limit", passes_on=True),
        Start(jobs[3]),
    ]
    taken = [Running(8, 2, "t", "k", "", exclusive="x"), Running(9, 2, "t", "k", "")]
    assert one_pass(jobs[2:3], taken, limits=limits) == [Park(jobs[2], "exclusive:x")]


def test_the_rise_through_the_bands_at_its_edges() -> None:
    assert [fairness.effective_band(now, 3, 100, 10) for now in (50, 109, 110, 119, 120, 130, 999)] == [
        3,
        3,
        2,
        2,
        1,
        0,
        0,
    ]
    assert fairness.effective_band(999, 3, 0, 0) == 3
    assert [fairness.has_risen(now, 100, 10) for now in (50, 109, 110)] == [False, False, True]
    assert not fairness.has_risen(999, 0, 0)


@pytest.mark.parametrize(("root", "parked"), [(9, True), (10, False), (None, False)])
def test_children_and_their_root_count_in_one_workflow(root: int | None, parked: bool) -> None:
    limits = LIMITS._replace(max_running_per_workflow=1)
    child = Running(8, 2, "t", "k", "", root_id=9)
    (decision,) = one_pass([head(1, root_id=root)], [child], limits=limits)
    assert isinstance(decision, Park) == parked
    (decision,) = one_pass([head(9)], [child], limits=limits)  # the root itself, run again
    assert isinstance(decision, Park)


@pytest.mark.parametrize(
    ("limits", "host", "reason", "starts"),
    [
        (LIMITS._replace(max_running=0), CALM, "max_running", True),
        (LIMITS._replace(paused=frozenset({("all", "")})), CALM, "paused", False),
        (LIMITS, CALM._replace(spawn_closed_until=1_001), "spawn_failed", False),
        (LIMITS, CALM._replace(user_procs=550), "uid_procs", True),
    ],
)
def test_observing_passes_limits_but_neither_a_persons_word_nor_a_machine_that_cannot_fork(
    limits: Limits, host: Host, reason: str, starts: bool
) -> None:
    (decision,) = one_pass([head(1)], host=host, limits=limits._replace(observing=True))
    if starts:
        assert decision == Start(head(1), reason)
    else:
        assert isinstance(decision, Wait)
        assert decision.reason == reason
