"""The rules over a simulated store, and the supervisor's own pass over the real one: the same load, the same
starts, and the same memory after every pass.

Nothing that one side decides is told to the other: whatever differs between the two is a fault of the
store's, of the pass that reads and writes it, or of the simulator that the other tests rely on.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.host.load import HostSample
from clawq.paths import Home
from clawq.rules import classify
from clawq.rules.retry import Decision
from clawq.settings import Settings
from clawq.states import BANDS, SUCCEEDED
from clawq.store import attempts, lanes, ledger, sqlfile, told
from clawq.store.connection import Immediate, build_schema
from clawq.supervisor.admit import admit, budget_rules
from clawq.supervisor.state import State
from tests.claims import passing
from tests.oracles import World
from tests.rows import check_books, put
from tests.simulator import MINUTE, OPEN, Ask, Job, Simulator
from tests.sizes import examples
from tests.unit.test_admission_properties import happen, jobs, troubles, worlds

LANES = """
    SELECT band, tenant, kind, needs, reason, measured, limit_value AS "limit", since, retry_at, clears_at,
        last_start_at, gated_at, short_job, short_since, promised_at FROM lanes"""


def configured(world: World) -> Settings:
    body = json.loads(sqlfile.read("default_config.json"))
    body["limits"] |= {
        "max_running": world.max_running,
        "max_running_per_tenant": world.max_running,
        "max_running_per_workflow": world.workflow,
        "reserve_after_ms": world.reserve_after,
        "age_boost_ms": world.age_boost,
    }
    body["host"] = {
        "max_user_procs": 100,
        "min_free_mb": "off",
        "max_pressure": "off",
        "min_free_disk_mb": "off",
        "retry_after_ms": MINUTE,
    }
    plain = body["resources"]["browser"]
    body["resources"] = {name: {**plain, "limit": slots} for name, slots in world.resources.items()}
    body["tenants"] = {name: {"max_running": most} for name, most in world.tenants.items()}
    for name, weight in world.weights.items():
        body["tenants"].setdefault(name, {})["weight"] = weight
    body["kinds"] |= {name: {"max_running": most} for name, most in world.kinds.items()}
    for name, amounts in world.spends.items():
        body["kinds"].setdefault(name, {})["spends"] = dict(amounts)
    body["budgets"] = {name: rule._asdict() for name, rule in world.budgets.items()}
    body["bands"] = {BANDS[band]: {"share": share} for band, share in world.shares.items()}
    return Settings(body)


class Twin(Simulator):
    """Everything that happens to its jobs happens in a database too, and each decides for itself."""

    db: apsw.Connection
    state: State
    tokens: dict[int, int]

    def open(self, world: World, home: Home) -> Twin:
        self.db = apsw.Connection(":memory:")
        self.db.execute("PRAGMA foreign_keys=ON")
        with Immediate(self.db):
            build_schema(self.db)
        self.db.execute("BEGIN IMMEDIATE")
        self.state = passing(home, self.db, configured(world))
        self.tokens = {}
        return self

    def close(self) -> None:
        self.db.execute("COMMIT")
        check_books(self.db)
        self.db.close()

    # ---------------------------------------------------------------- one pass on each side

    def _pass(self) -> None:
        settings = self.state.settings
        settings.limits.max_running_per_workflow = self.limits.max_running_per_workflow
        self.state.sample = HostSample(self.host.user_procs, None, None, None)
        self.db.execute("DELETE FROM pauses")
        self.db.executemany("INSERT INTO pauses VALUES (?, ?, 0)", sorted(self.limits.paused))
        done = admit(self.state, settings, 0, self.now)
        for ticket in done.tickets:
            claim = ticket.claim
            self.tokens[claim.job_id] = ticket.token
            assert attempts.mark_running(self.db, claim.job_id, ticket.token, None, None, self.now)
        before = len(self.started)
        super()._pass()
        mine = [each.job.job_id for each in self.started[before:]]
        assert [ticket.claim.job_id for ticket in done.tickets] == mine
        if self.brought_back:
            assert done.changes_at == self.now
        self._compare()

    def _compare(self) -> None:
        rows: Any = self.db.execute("SELECT id, parked FROM jobs WHERE parked IS NOT NULL")
        assert dict(rows) == {each.job_id: each.parked for each in self.waiting.values() if each.parked}
        theirs = [each._replace(token=0) for each in lanes.running(self.db, {})]
        assert sorted(theirs, key=str) == sorted(self._running(), key=str)
        heads, told = lanes.heads(self.db)
        assert sorted(heads) == sorted(self.heads())
        promised = {head.job_id: told[head.lane].promised_at for head in heads if head.lane in told}
        assert {job_id: at for job_id, at in promised.items() if at is not None} == self._promised()
        known = self.db.execute(LANES).fetchall()
        assert {row[:4]: row[4:] for row in known} == {
            lane: tuple(asdict(memory).values()) for lane, memory in self.memory.items()
        }
        assert lanes.clocks(self.db) == self.clocks
        counted = self.db.execute("SELECT job_id, reason, count, last_at FROM deferrals").fetchall()
        assert {row[:2]: row[2:] for row in counted} == {
            (job_id, reason): (self.deferred[job_id][reason], at)
            for (job_id, reason), at in self._counted.items()
        }
        assert ledger.budgets(self.db, budget_rules(self.state.settings), self.now) == self._budgets()
        slots = {name: each.limit for name, each in self.limits.resources.items()}
        assert ledger.rests(self.db, slots, self.now).cooldowns == self._cooldowns()[0]

    # ---------------------------------------------------------------- what happens

    def _queue(self, job: Job) -> None:
        super()._queue(job)
        put(
            self.db,
            self.now,
            id=job.job_id,
            band=job.band,
            tenant=job.tenant,
            kind=job.kind,
            needs=job.needs,
            exclusive=job.exclusive,
            root_id=job.root_id,
            rank=job.place[0],
            deadline_at=job.deadline_at,
            timeout_ms=job.timeout or 0,
            parked=job.parked,
        )

    def _expire(self, job: Job) -> None:
        super()._expire(job)
        attempts.expire(self.db, self.now)

    def _end(self, job: Job, tries: int) -> None:
        super()._end(job, tries)
        token = self.tokens[job.job_id]
        done = Decision(SUCCEEDED, "succeeded")
        assert attempts.finish(self.db, job.job_id, token, classify.by_exit_code(0), done, "", None, self.now)
        ledger.note_end(self.db, token, True, self.now)

    def cool(self, resource: str, until: int, step_ms: int = 2_000) -> None:
        told.cool(self.db, resource, until, step_ms, self.now)
        super().cool(resource, until, step_ms)


@st.composite
def crowds(draw: st.DrawFn) -> list[Ask]:
    """Few lanes, names and workflows, so that jobs wait for both at once and are parked again and again."""
    return [
        each._replace(
            arrives=each.arrives // 4,
            band=2,
            tenant="a",
            needs=draw(st.sampled_from(("", "r"))),
            exclusive=draw(st.sampled_from((None, "x", "y"))),
            root_id=draw(st.sampled_from((None, 1_001, 1_002))),
        )
        for each in draw(jobs(most=25))
    ]


def agree(
    home: Home,
    world: World,
    load: list[Ask],
    trouble: list[tuple[int, int, str]],
    workflows: list[tuple[int, int]],
) -> None:
    plain = world.simulator(host=OPEN)
    sim = Twin(plain.limits, plain.budgets, plain.host).open(world, home)
    sim.add(*(Job(*each) for each in load))
    happen(sim, trouble)
    for when, most in workflows:
        sim.limit_workflows(when * MINUTE, most)
    sim.run()
    assert sim.drained
    sim.close()


LIMITS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=2)


@pytest.mark.sized
@pytest.mark.parametrize("kind_of_load", [jobs(), crowds()], ids=["any load", "crowds"])
def test_simulator_and_store_agree_after_every_pass(
    home: Home, kind_of_load: st.SearchStrategy[list[Ask]]
) -> None:
    @given(world=worlds(), load=kind_of_load, trouble=troubles(), workflows=LIMITS)
    @examples(25, 600)
    def check(
        world: World,
        load: list[Ask],
        trouble: list[tuple[int, int, str]],
        workflows: list[tuple[int, int]],
    ) -> None:
        agree(home, world, load, trouble, workflows)

    check()
