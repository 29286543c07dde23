"""The simulator remembers what the store remembers: one load, both of them, compared at every pass."""

from __future__ import annotations

from typing import Any

import apsw
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from clawq.rules import classify
from clawq.rules.admission import Park, Wait
from clawq.rules.facts import Budget, Cooldown, Head, Running
from clawq.rules.fairness import Turns
from clawq.rules.retry import Decision
from clawq.states import SUCCEEDED
from clawq.store import attempts, lanes, ledger
from clawq.store.connection import Immediate, build_schema
from tests.oracles import World
from tests.rows import check_books, put
from tests.simulator import OPEN, Ask, Job, Simulator
from tests.unit.test_admission_properties import happen, jobs, troubles, worlds


class Mirror(Simulator):
    """Does everything in a database too, and finds the same there before each decision."""

    db: apsw.Connection
    told: dict[Any, lanes.Told]

    def open(self) -> Mirror:
        self.db = apsw.Connection(":memory:")
        self.db.execute("PRAGMA foreign_keys=ON")
        with Immediate(self.db):
            build_schema(self.db)
        self.db.execute("BEGIN IMMEDIATE")
        return self

    # ---------------------------------------------------------------- what a pass is decided from

    def heads(self) -> list[Head]:
        found, self.told = lanes.heads(self.db)
        mine = super().heads()
        # The simulator notes a start in all lanes of its band and needs; the store in its own only.
        known = [sorted(head._replace(last_start_at=None) for head in heads) for heads in (found, mine)]
        assert known[0] == known[1]
        rows: Any = self.db.execute("SELECT id, parked FROM jobs WHERE parked IS NOT NULL")
        assert dict(rows) == {each.job_id: each.parked for each in self.waiting.values() if each.parked}
        return mine

    def _running(self) -> list[Running]:
        mine = list(super()._running())
        assert sorted(lanes.running(self.db, {}), key=str) == sorted(mine, key=str)
        assert lanes.clocks(self.db) == self.clocks
        return mine

    def _promised(self) -> dict[int, int]:
        told = {
            head.job_id: self.told[head.lane].promised_at
            for head in super().heads()
            if head.lane in self.told
        }
        found = {job_id: at for job_id, at in told.items() if at is not None}
        assert found == super()._promised()
        return found

    def _following(self, head: Head) -> Head | None:
        mine = super()._following(head)
        assert lanes.following(self.db, head) == mine
        return mine

    def _budgets(self) -> dict[str, Budget]:
        mine = super()._budgets()
        rules = {name: ledger.BudgetRule(*each) for name, each in self.budgets.items()}
        assert ledger.budgets(self.db, rules, self.now) == mine
        return mine

    def _cooldowns(self) -> tuple[dict[str, Cooldown], list[int | None]]:
        slots = {name: each.limit for name, each in self.limits.resources.items()}
        there = ledger.rests(self.db, slots, self.now)
        mine, changes = super()._cooldowns()
        assert there.cooldowns == mine
        return mine, changes

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
            parked=job.parked,
        )

    def _expire(self, job: Job) -> None:
        super()._expire(job)
        attempts.expire(self.db, self.now)

    def _token(self, job: Job) -> int:
        return 1_000_000 + job.job_id

    def _start(self, job: Job, would: str | None) -> None:
        head = self._as_head(job)
        token = self._token(job)
        claimed = attempts.claim(self.db, job.job_id, token, self.now)
        assert claimed is not None
        attempts.open_attempt(
            self.db,
            claimed,
            token,
            self.now,
            boot_id="boot",
            lease_ms=1,
            grace_ms=1,
            timeout_ms=job.timeout or 0,
            heartbeat="process",
            log="log",
        )
        lanes.note_start(self.db, head, self.now)
        ledger.reserve(self.db, job.tenant, token, self.limits.spends(job.kind, job.band), self.now)
        ledger.note_start(self.db, head.resources, self.rests, token)
        attempts.mark_running(self.db, job.job_id, token, None, None, self.now)
        super()._start(job, would)

    def _as_head(self, job: Job) -> Head:
        return Head(job.job_id, *job.lane, job.place[0], job.exclusive, job.root_id, job.ready_at)

    def _end(self, job: Job, tries: int) -> None:
        super()._end(job, tries)
        token = self._token(job)
        done = Decision(SUCCEEDED, "succeeded")
        assert attempts.finish(self.db, job.job_id, token, classify.by_exit_code(0), done, "", None, self.now)
        ledger.note_end(self.db, token, True, self.now)

    def _park(self, job: Job, reason: str) -> None:
        lanes.park(self.db, Park(self._as_head(job), reason), self.limits.retry_after_ms, self.now)
        super()._park(job, reason)

    def _note_wait(self, wait: Wait, told: str | None, again_at: int) -> None:
        lanes.note_wait(self.db, wait, self.told.get(wait.head.lane), self.limits.retry_after_ms, self.now)
        super()._note_wait(wait, told, again_at)

    def _keep_turns(self, turns: Turns) -> None:
        lanes.keep_turns(self.db, turns)
        super()._keep_turns(turns)

    def cool(self, resource: str, until: int, step_ms: int = 2_000) -> None:
        ledger.cool(self.db, resource, until, step_ms, self.now)
        super().cool(resource, until, step_ms)


@given(world=worlds(), load=jobs(), trouble=troubles())
@hypothesis_settings(max_examples=60)
def test_simulator_and_store_agree_at_every_pass(
    world: World, load: list[Ask], trouble: list[tuple[int, int, str]]
) -> None:
    plain = world.simulator(host=OPEN)
    sim = Mirror(plain.limits, plain.budgets, plain.host).open()
    sim.add(*(Job(*each) for each in load))
    happen(sim, trouble)
    sim.run()
    assert sim.drained
    sim.db.execute("COMMIT")
    check_books(sim.db)
    sim.db.close()
