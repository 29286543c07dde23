"""Never lost, never twice: the machine of tests/machine.py, whose agents have children, wait and ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.stateful as stateful
import pytest
from hypothesis import strategies as st

from clawq import family
from clawq import states as job
from clawq.errors import LeaseLost, Refused
from clawq.store import family as families
from clawq.store import waits
from clawq.store.connection import Immediate
from clawq.supervisor.look import Findings
from clawq.supervisor.record import Written
from clawq.supervisor.start import Ticket
from clawq.supervisor.state import State
from clawq.waiting import is_settled
from tests.machine import GONE, HERE, MAX_RUNNING, MAX_WAITING, Known, Machine, Run, picks, tenants
from tests.rows import states
from tests.sizes import examples

needs = st.sampled_from([[], ["lamp"], ["lamp"], ["key"], ["key"]])
children = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["spends", "asks"]),
        "on_parent_end": st.sampled_from(["keep", "cancel", "cancel"]),
        "exclusive": st.sampled_from(["x", "y"]),
        "needs": needs,
        "on_lost": st.sampled_from(["retry", "unknown"]),
        "max_attempts": st.integers(1, 3),
        "deadline": st.sampled_from(["30m", "3h"]),
        "hold": st.just(True),
    },
)


class NeverLostNeverTwice(Machine):
    """Each agent is in one `clawq wait` at most."""

    @stateful.precondition(lambda self: self.agent(0) is not None)
    @stateful.rule(pick=picks, given=children)
    def an_agent_has_a_child(self, pick: int, given: dict[str, Any]) -> None:
        run = self.agent(pick)
        if run is not None:
            self.have_a_child(run, given)

    @stateful.precondition(lambda self: self.agent(0) is not None)
    @stateful.rule(pick=picks)
    def an_agent_asks_a_person(self, pick: int) -> None:
        run = self.agent(pick)
        if run is not None:
            self.ask(run)

    @stateful.precondition(lambda self: self.agent(0) is not None)
    @stateful.rule(pick=picks)
    def an_agent_waits(self, pick: int) -> None:
        run = self.agent(pick)
        if run is not None:
            self.wait(run)

    @stateful.precondition(lambda self: self.in_wait())
    @stateful.rule(pick=picks)
    def a_wait_is_over(self, pick: int) -> None:
        """Because all have ended, or after its time."""
        found = self.in_wait()
        self.end_wait(found[pick % len(found)])

    @stateful.precondition(lambda self: self.in_wait())
    @stateful.rule(pick=picks)
    def a_wait_dies(self, pick: int) -> None:
        found = self.in_wait()
        found[pick % len(found)].wait = GONE

    @stateful.precondition(lambda self: self.in_wait(GONE))
    @stateful.rule(pick=picks, dies=st.booleans())
    def another_wait_comes_between_a_look_and_its_record(self, pick: int, dies: bool) -> None:
        found = self.in_wait(GONE)
        findings = self.look(self.state)
        self.wait(found[pick % len(found)])
        written = self.record(self.state, findings)
        if dies:
            self.take_over()
        else:
            self.remember(self.state, written)
            self.spawn(written.tickets)

    @stateful.initialize(needs=needs, below=st.lists(children, min_size=1, max_size=3))
    def begin_with_a_family(self, needs: list[str], below: list[dict[str, Any]]) -> None:
        self.family({"tenant": "b", "needs": needs}, below, False, ())

    @stateful.rule(
        given=st.fixed_dictionaries({"tenant": tenants, "needs": needs}),
        below=st.lists(children, max_size=3),
        asks=st.booleans(),
        then=st.lists(st.sampled_from(["dies", "is over", "turn", "those below end"]), max_size=4),
    )
    def a_family_is_at_work(
        self, given: dict[str, Any], below: list[dict[str, Any]], asks: bool, then: list[str]
    ) -> None:
        """Who by chance alone would seldom get as far."""
        self.family(given, below, asks, then)

    def family(
        self, given: dict[str, Any], below: list[dict[str, Any]], asks: bool, then: Sequence[str]
    ) -> None:
        before = set(self.runs)
        self.enqueue_one(given)
        self.turn_with(None)
        self.turn_with(None)
        for token in set(self.runs) - before:
            run = self.runs[token]
            for each in below:
                self.have_a_child(run, each)
            if asks:
                self.ask(run)
            self.wait(run)
        self.turn_with(None)
        for step in then:
            for run in self.in_wait():
                if step == "dies":
                    run.wait = GONE
                elif step == "is over":
                    self.end_wait(run)
            if step == "those below end":
                for run in self.runs.values():
                    run.over = run.over or (run.spawned and self.jobs[run.job_id].parent is not None)
            self.turn_with(None)
            self.no_job_is_lost_and_none_comes_back_by_itself()
            self.slots_are_what_the_rows_say()

    # ------------------------------------------------------------------ what agents do

    def in_wait(self, how: str = HERE) -> list[Run]:
        return [run for run in self.runs.values() if run.wait == how and run.spawned and not run.over]

    def have_a_child(self, run: Run, given: dict[str, Any]) -> None:
        if self.is_closed(run.token):
            with pytest.raises(LeaseLost):
                family.parent_of(self.intake, {}, (run.job_id, run.token))
            return
        self.enqueue_one({"tenant": self.jobs[run.job_id].tenant} | given, run)

    def ask(self, run: Run) -> None:
        with Immediate(self.db):
            parent = families.find(self.db, run.job_id, run.token)
            if parent is None or parent.token != run.token:
                assert self.is_closed(run.token)
                return
            try:
                number = families.put_question(self.intake, parent, "Shall I?", self.now)
            except Refused:
                return
        self.jobs[number] = Known(parent.tenant, None, kind=job.ASK, parent=run.job_id, asked_by=run.token)

    def awaited(self, run: Run) -> list[int]:
        """Its children and its questions."""
        mine = [number for number, known in self.jobs.items() if known.asked_by == run.token]
        assert waits.children(self.db, run.job_id, run.token) == [
            number for number in mine if self.jobs[number].kind != job.ASK
        ]
        return mine

    def wait(self, run: Run) -> None:
        standing = waits.standing(self.db, run.job_id, run.token)
        if standing is None:
            assert self.is_closed(run.token)
            return
        ids = self.awaited(run)
        if is_settled(waits.states(self.db, ids)) or waits.never_starts(self.db, run.job_id, ids) is not None:
            return
        with Immediate(self.db):
            entered = waits.enter(self.db, run.job_id, run.token, ids, self.now)
        assert entered == (standing.state == job.RUNNING)
        if entered:
            self.charged_back.discard(run.token)
        if entered or standing.state == job.WAITING:
            run.wait = HERE

    def end_wait(self, run: Run) -> None:
        """It asks for the slots, or has them and returns."""
        standing = waits.standing(self.db, run.job_id, run.token)
        if standing is not None and standing.state == job.WAITING:
            with Immediate(self.db):
                waits.ask_back(self.db, run.job_id, run.token, self.now)
        else:
            run.wait = None

    # ------------------------------------------------------------------ promises

    def record(self, state: State, findings: Findings) -> Written:
        written = super().record(state, findings)
        for agent in findings.deserted:
            assert agent.token not in written.waiting, "nobody is in its wait, and it was not charged back"
        if written.tickets:
            hold = self.count("jobs WHERE state IN ('starting', 'running')")
            wanted = self.count("attempts WHERE ended_at IS NULL AND back_at IS NOT NULL")
            assert hold + wanted <= MAX_RUNNING, "something new started before whoever wanted its slots back"
        return written

    def count(self, what: str) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {what}").get)

    def check_claim(self, ticket: Ticket) -> None:
        super().check_claim(ticket)
        known = self.jobs[ticket.claim.job_id]
        assert known.kind != job.ASK
        if known.parent is None:
            assert list(states(self.db).values()).count(job.WAITING) < MAX_WAITING

    @stateful.invariant()
    def no_job_is_lost_and_none_comes_back_by_itself(self) -> None:
        before = {number: known.state for number, known in self.jobs.items()}
        super().no_job_is_lost_and_none_comes_back_by_itself()
        for number, known in self.jobs.items():
            above = None if known.parent is None else self.jobs.get(known.parent)
            if above is None or above.state not in job.ENDED or before[known.parent or 0] in job.ENDED:
                continue
            if known.ends_with_parent and known.state not in job.SETTLED:
                asked_at = self.db.execute("SELECT cancel_at FROM jobs WHERE id = ?", (number,)).get
                assert asked_at is not None, "its parent has ended, and it goes on"

    @stateful.invariant()
    def a_question_is_withdrawn_when_its_asker_ends(self) -> None:
        for number, state in states(self.db).items():
            if self.jobs[number].kind == job.ASK:
                assert state in (job.HELD, *job.ENDED)
                assert state != job.HELD or not self.is_closed(self.jobs[number].asked_by or 0)

    def all_agents_get_on(self) -> None:
        """Who waits does so until nothing of it moves any more."""
        now = states(self.db)
        for run in self.runs.values():
            if not run.spawned or run.over:
                continue
            if now[run.job_id] != job.WAITING:
                run.over = True
            elif run.wait == HERE and not any(self.moves(each, now) for each in self.awaited(run)):
                self.end_wait(run)

    def moves(self, number: int, now: dict[int, str]) -> bool:
        """Does it get on by itself? What waits for a person, or for what somebody keeps, may not."""
        row = self.db.execute("SELECT needs, exclusive FROM jobs WHERE id = ?", (number,)).fetchone()
        assert row is not None
        pending = now[number] in job.PENDING
        return now[number] not in (*job.SETTLED, job.HELD) and not (pending and (row[0] == "key" or row[1]))


TestNeverLostNeverTwice = NeverLostNeverTwice.TestCase
TestNeverLostNeverTwice.settings = examples(40, 400, stateful_step_count=50, deadline=None)
TestNeverLostNeverTwice = pytest.mark.sized(TestNeverLostNeverTwice)
