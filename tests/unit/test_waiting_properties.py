"""How long anybody waits, and for whom: bounds worked out on paper, held against simulated loads."""

from __future__ import annotations

import itertools
from collections import Counter
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clawq.rules.admission import Decision
from tests.oracles import World
from tests.simulator import MINUTE, SECOND, Ask, Job, Simulator
from tests.sizes import examples

WEIGHTS = st.sampled_from((0.5, 1.0, 2.0, 3.0, 7.0))


# ---------------------------------------------------------------- tenants' shares


@pytest.mark.sized
@examples(40, 500)
@given(
    weights=st.dictionaries(st.sampled_from("abc"), WEIGHTS, min_size=2),
    slots=st.integers(1, 4),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    kinds=st.fixed_dictionaries({name: st.integers(1, 8) for name in "abc"}),
    resource=st.booleans(),
    before=st.lists(st.sampled_from("abc"), max_size=12),
    boost=st.sampled_from((1, 10)),
)
def test_tenants_get_starts_by_weight_to_within_one_job(
    weights: dict[str, float],
    slots: int,
    lengths: list[int],
    kinds: dict[str, int],
    resource: bool,
    before: list[str],
    boost: int,
) -> None:
    """While both are backlogged: whatever ran before, however long jobs are, however many kinds they have."""
    world = World(
        max_running=20 if resource else slots,
        resources={"r": slots},
        weights=weights,
        age_boost=boost * MINUTE,
    )
    sim = world.simulator()
    numbers = itertools.count(1)
    minutes = itertools.cycle(lengths)
    needs = "r" if resource else ""

    def job(arrives: int, tenant: str, kind: int) -> Job:
        length = next(minutes) * MINUTE
        return Job(next(numbers), arrives, length, tenant=tenant, kind=f"k{kind}", needs=needs)

    for n, tenant in enumerate(before):
        sim.add(job(n * 7 * MINUTE, tenant, 0))
    sim.run()
    both_since = sim.now + MINUTE
    backlog = 40
    for n in range(backlog):
        for tenant in weights:
            sim.add(job(both_since, tenant, n % kinds[tenant]))
    sim.run()
    had: Counter[str] = Counter()
    for _, each, _ in sim.started[len(before) :]:
        had[each.tenant] += 1
        if max(had.values()) == backlog:
            break  # nothing of that tenant waits any more
        for one, other in itertools.combinations(weights, 2):
            due = (had[one] + had[other]) * weights[one] / (weights[one] + weights[other])
            assert abs(had[one] - due) <= 1 + 1e-9, had


# ---------------------------------------------------------------- every wait is bounded


@st.composite
def floods(draw: st.DrawFn) -> list[tuple[int, str, str, str]]:
    """Lanes that never run out: (band, tenant, kind, needs)."""
    lane = st.tuples(
        st.integers(0, 3),
        st.sampled_from("abc"),
        st.sampled_from("kq"),
        st.sampled_from(("", "r", "s", "r,s")),
    )
    return draw(st.lists(lane, min_size=1, max_size=6, unique=True))


@given(
    flood=floods(),
    band=st.integers(0, 3),
    needs=st.sampled_from(("", "r", "r,s")),
    own=st.integers(0, 2),
    weights=st.dictionaries(st.sampled_from("abcv"), st.sampled_from((1.0, 2.0))),
    slots=st.integers(1, 3),
    lengths=st.lists(st.sampled_from((10, 30, 60, 240)), min_size=1, max_size=4),
    reserve_after=st.integers(0, 3),
)
@pytest.mark.sized
@examples(20, 200)
def test_every_wait_is_bounded_also_under_overload(
    flood: list[tuple[int, str, str, str]],
    band: int,
    needs: str,
    own: int,
    weights: dict[str, float],
    slots: int,
    lengths: list[int],
    reserve_after: int,
) -> None:
    """A job of a tenant whose jobs in that band all need the same starts within

        (own + 1) * (1 + sum over the band's other tenants u of (ceil(w_u / w) + 1)) * U
        U = max(band, 1) * age_boost + (groups + 1) * (reserve_after + 2 * longest)

    where `own` counts its tenant's jobs before it in that band, and `groups` the pairs (band, needs) that
    wait. In words: its group rises to critical in `band` boosts and is then served before any group that was
    served since, each of them after at most one reservation; and of its group's starts every tenant gets its
    turns.
    """
    world = World(
        max_running=slots,
        resources={"r": 1, "s": 2},
        weights=weights,
        reserve_after=reserve_after * MINUTE,
        age_boost=2 * MINUTE,
    )
    longest = max(lengths) * SECOND
    groups = len({(each[0], each[3]) for each in flood} | {(band, needs)})
    unit = max(band, 1) * world.age_boost + (groups + 1) * (world.reserve_after + 2 * longest)
    mine = weights.get("v", 1.0)
    others = {each[1] for each in flood if each[0] == band}
    turns = 1 + sum(ceil(weights.get(each, 1.0) / mine) + 1 for each in others)
    bound = (own + 1) * turns * unit

    sim = Endless(world, flood, lengths, until=MINUTE + bound).simulator
    jobs = [Job(1_000_000 + n, MINUTE, longest, band, "v", "z", needs) for n in range(own + 1)]
    sim.add(*jobs)
    sim.run(MINUTE + bound)
    assert jobs[-1].started_at is not None, f"not within {bound / MINUTE:.0f} min"


class Endless:
    """Lanes that never run dry: each always has some jobs that wait."""

    DEPTH = 3

    def __init__(
        self, world: World, lanes: list[tuple[int, str, str, str]], lengths: list[int], until: int
    ) -> None:
        self.simulator = world.simulator(watch=self)
        self._numbers = itertools.count(1)
        self._lengths = itertools.cycle(lengths)
        self._until = until
        for lane in lanes:
            for _ in range(self.DEPTH):
                self._add(lane)
        self._seen = 0

    def _add(self, lane: tuple[int, str, str, str]) -> None:
        band, tenant, kind, needs = lane
        length = next(self._lengths) * SECOND
        self.simulator.add(Job(next(self._numbers), self.simulator.now, length, band, tenant, kind, needs))

    def __call__(self, sim: Simulator, decisions: list[Decision]) -> None:
        for _, job, _ in sim.started[self._seen :]:
            if job.job_id < 1_000_000 and sim.now < self._until:
                self._add(job.lane)
        self._seen = len(sim.started)


# ---------------------------------------------------------------- reservations


@st.composite
def contended(draw: st.DrawFn, band: int = 1, deadlines: bool = True, most: int = 25) -> list[Ask]:
    """Jobs of one band that fight for three resources; whatever runs is ended by its timeout or deadline."""
    found = []
    for job_id in range(1, draw(st.integers(2, most)) + 1):
        arrives = draw(st.integers(0, 60)) * 10 * SECOND
        length = draw(st.integers(1, 40)) * 10 * SECOND
        timeout = length + draw(st.sampled_from((0, 60, 300))) * SECOND
        deadline = draw(st.none() | st.integers(1, 90)) if deadlines else None
        found.append(
            Ask(
                job_id,
                arrives,
                length,
                band=band,
                tenant=draw(st.sampled_from("abc")),
                kind=draw(st.sampled_from("kq")),
                needs=draw(st.sampled_from(("", "r", "s", "t", "r,s", "s,t", "r,s,t"))),
                timeout=timeout,
                deadline_at=None if deadline is None else arrives + deadline * 10 * SECOND,
            )
        )
    return found


@st.composite
def tight(draw: st.DrawFn) -> World:
    return World(
        max_running=draw(st.integers(2, 5)),
        resources={name: draw(st.integers(1, 2)) for name in "rst"},
        weights=draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from((1.0, 3.0)))),
        reserve_after=draw(st.sampled_from((0, 60, 300))) * SECOND,
        age_boost=0,
    )


@given(world=tight(), load=contended(), below=contended(band=2, most=10))
@pytest.mark.sized
@examples(60, 1_000)
def test_a_reserved_head_starts_no_later_than_first_promised(
    world: World, load: list[Ask], below: list[Ask]
) -> None:
    """Where no job of a higher band can come before it."""
    sim = world.simulator()
    jobs = [Job(*each) for each in load]
    sim.add(*jobs, *(Job(*each._replace(job_id=n)) for n, each in enumerate(below, 1_000)))
    sim.run()
    for job in jobs:
        if job.job_id in sim.promises:
            left = job.started_at if job.state != "expired" else job.ended_at
            assert left is not None
            assert left <= sim.promises[job.job_id], job


@given(world=tight(), load=contended(deadlines=False), below=contended(band=2, deadlines=False, most=15))
@pytest.mark.sized
@examples(60, 1_000)
def test_adding_jobs_of_lower_bands_never_delays_a_reserved_one(
    world: World, load: list[Ask], below: list[Ask]
) -> None:
    def first_promised(extra: bool) -> tuple[int, int, int] | None:
        """Its number, when it was promised something, and when it started."""
        sim = world.simulator()
        jobs = {each.job_id: Job(*each) for each in load}
        sim.add(*jobs.values())
        while not sim.promises and sim.step():
            pass
        if not sim.promises:
            return None
        (chosen, *_), since = sim.promises, sim.now
        if extra:
            for n, each in enumerate(below, 1_000):
                sim.add(Job(*each._replace(job_id=n, arrives=since + each.arrives)))
        sim.run()
        started = jobs[chosen].started_at
        assert started is not None
        return chosen, since, started

    alone = first_promised(extra=False)
    assume(alone is not None)
    crowded = first_promised(extra=True)
    assert alone is not None
    assert crowded is not None
    assert alone[:2] == crowded[:2]
    assert crowded[2] <= alone[2]
