"""Random commands, deaths and clocks against the real store, admission and records, and a model beside them.

There are no processes here. `Run` stands for an agent, which alone knows what became of it; the supervisor
learns of it as it would from the attempt's file. A supervisor that dies forgets everything, at a turn that is
rolled back, at one that is committed and not acted on, or between two turns; another takes over. A stopped
one may come back later with what it remembers.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import apsw
import hypothesis.stateful as stateful
import pytest
from hypothesis import strategies as st

from clawq import family, lease, options
from clawq import states as job
from clawq.errors import LeaseLost, Refused, WrongState
from clawq.paths import Home
from clawq.rules.classify import Evidence
from clawq.settings import Settings
from clawq.store import attempts, config_row, effects, jobs, probes, told
from clawq.store.connection import Immediate, build_schema
from clawq.store.draft import Draft
from clawq.store.intake import Intake
from clawq.supervisor.adopt import adopt
from clawq.supervisor.agents import Agent
from clawq.supervisor.evidence import Found
from clawq.supervisor.look import Ended, Findings
from clawq.supervisor.notices import Notices
from clawq.supervisor.probes import DID_NOT, HAPPENED, Answer, Probes
from clawq.supervisor.record import Written, record
from clawq.supervisor.start import Ticket
from clawq.supervisor.state import HANDOVER, NOW, RUN, State
from clawq.supervisor.waits import remember
from tests.rows import check_books, states

START = 1_900_000_000_000
MINUTE = 60_000
NOWHERE = Home("/nonexistent", "/nonexistent", "/nonexistent")
MAX_RUNNING, OF_A, OF_LAMP, OF_KEY, OF_WORKFLOW, MAX_WAITING = 4, 2, 1, 1, 2, 2
TOKENS = {"limit": 10, "per_ms": 5 * MINUTE, "per_tenant": 6}
SPENDS = 3
CONFIG: dict[str, dict[str, Any]] = {
    "limits": {
        "max_running": MAX_RUNNING,
        "max_running_per_workflow": OF_WORKFLOW,
        "max_waiting": MAX_WAITING,
    },
    "budgets": {"tokens": TOKENS},
    "kinds": {"spends": {"spends": {"tokens": SPENDS}}, "asks": {"reconcile": ["did-it"]}},
    "tenants": {"a": {"max_running": OF_A}},
    "resources": {
        "lamp": {"limit": OF_LAMP, "min_free_mb": None, "keep": False, "provider": False},
        "key": {"limit": OF_KEY, "min_free_mb": None, "keep": True, "provider": False},
        "api": {"limit": 2, "min_free_mb": None, "keep": False, "provider": True},
    },
}
ENDS = (0, 0, 1, 2, 75, 143, None)
"""Exit codes; None: gone without one."""

picks = st.integers(0, 1_000)
tenants = st.sampled_from(["a", "b"])
asked = st.fixed_dictionaries(
    {"tenant": tenants},
    optional={
        "kind": st.sampled_from(["spends", "spends", "asks"]),
        "parent": picks,
        "dedupe_key": st.sampled_from(["k", "l"]),
        "dedupe_scope": st.sampled_from(["ever", "active"]),
        "exclusive": st.sampled_from(["x", "y"]),
        "needs": st.sampled_from([["lamp"], ["api"], ["api", "lamp"], ["key"]]),
        "on_lost": st.sampled_from(["retry", "unknown"]),
        "max_attempts": st.integers(1, 3),
        "priority": st.integers(-3, 3),
        "band": st.sampled_from(job.BANDS),
        "delay": st.sampled_from(["1m", "2h"]),
        "stale_after": st.sampled_from(["10m", "1d"]),
        "deadline": st.sampled_from(["30m", "3h"]),
        "hold": st.just(True),
    },
)


@dataclass
class Run:
    """An agent as it is out there, known by its token."""

    job_id: int
    token: int
    spawned: bool = False
    over: bool = False
    code: int | None = None
    told: bool = False
    wait: str | None = None
    """Its `clawq wait`: HERE, or GONE without a word."""


HERE, GONE = "here", "gone"


@dataclass
class Known:
    """What the model says of one accepted job."""

    tenant: str
    on_lost: str | None
    key_for_ever: tuple[str, str, str] | None = None
    """(tenant, kind, key) that outlives it."""
    state: str = job.NEW
    released: bool = False
    """A person allowed, since it came to rest, that it runs again."""
    kind: str = "default"
    parent: int | None = None
    asked_by: int | None = None
    """The token of the attempt that asked for it last."""
    ends_with_parent: bool = False


class Machine(stateful.RuleBasedStateMachine):
    """Rules are what people, agents and machines do; the invariants are the promises."""

    def __init__(self) -> None:
        super().__init__()
        self.db = apsw.Connection(":memory:")
        self.db.pragma("foreign_keys", True)
        with Immediate(self.db):
            build_schema(self.db)
            body = json.loads(str(self.db.execute("SELECT body FROM config").get))
            for section, values in CONFIG.items():
                body[section] |= values
            self.db.execute("UPDATE config SET body = ?", (json.dumps(body),))
        self.intake = Intake(self.db)
        self.now, self.mono = START, 1_000
        self.jobs: dict[int, Known] = {}
        self.runs: dict[int, Run] = {}
        self.outcomes: dict[int, tuple[Any, ...]] = {}
        """token -> how its attempt was recorded to have ended."""
        self.highest = 0
        self.pauses: set[str] = set()
        self.pruned_keys: dict[tuple[str, str, str], int] = {}
        self.stopped: list[State] = []
        self.charged_back: set[int] = set()
        """Tokens of those whose wait has died: they hold their slots again, over any limit."""
        self.state = self.new_supervisor()

    # ------------------------------------------------------------------ people

    @stateful.initialize(first=st.lists(asked, min_size=2, max_size=6))
    def begin_at_work(self, first: list[dict[str, Any]]) -> None:
        for given in first:
            self.enqueue_one(given)
        self.turn_with(None)

    @stateful.rule(given=asked)
    def enqueue(self, given: dict[str, Any]) -> None:
        self.enqueue_one(given)

    @stateful.rule(
        tenant=tenants,
        kind=st.sampled_from(["spends", "asks"]),
        code=st.sampled_from([0, None]),
        answers=st.lists(st.tuples(st.sampled_from([0, 1, 2, None]), st.booleans()), max_size=3),
    )
    def some_work_comes_and_ends(
        self, tenant: str, kind: str, code: int | None, answers: list[tuple[int | None, bool]]
    ) -> None:
        """Plain jobs of the kinds that seldom get as far by chance."""
        for _ in range(2):
            self.enqueue_one({"tenant": tenant, "kind": kind, "on_lost": "unknown"})
        self.turn_with(None)
        for run in self.runs.values():
            if run.spawned and not run.over:
                run.over, run.code = True, code
        self.turn_with(None)
        self.no_job_is_lost_and_none_comes_back_by_itself()
        self.one_outcome_for_each_token()
        for answer, committed in answers:
            self.answer_of_a_probe(0, answer, committed)
            self.no_job_is_lost_and_none_comes_back_by_itself()

    def enqueue_one(self, given: dict[str, Any], run: Run | None = None) -> None:
        """From outside, or by the agent of `run`, which owns its job."""
        given = {
            name: value for name, value in given.items() if name != "dedupe_scope" or "dedupe_key" in given
        }
        kind = given.get("kind", "default")
        given = given | {"kind": kind}
        above = None if run is None else run.job_id
        if "parent" in given and self.jobs:
            above = given["parent"] = self.number(given["parent"])
        else:
            given.pop("parent", None)
        if above is not None:
            given["tenant"] = self.jobs[above].tenant
        self.intake.stamp()
        read = options.read({"command": ["true"]} | given, self.now)
        frame = self.intake.frame(kind, given.get("band"), given["tenant"])
        me = None if run is None else (run.job_id, run.token)
        parent = None if above is None else family.parent_of(self.intake, read, me)
        draft = Draft(read, kind, given["tenant"], frame, "/", "/bin", self.now, None, parent)
        holder = self.holder(given) if run is None else self.twin(run, kind)
        with Immediate(self.db):
            assert self.intake.begin()
            try:
                taken = self.intake.take(draft, self.now, True)
            except Refused:
                assert holder is None
                return
        if holder is not None:
            assert (taken.outcome, taken.job_id) == ("duplicate", holder)
            if run is not None:
                self.jobs[holder].asked_by = run.token
            return
        assert taken.outcome != "duplicate"
        assert taken.job_id not in self.jobs
        known = self.jobs[taken.job_id] = Known(given["tenant"], given.get("on_lost"))
        known.kind, known.parent = kind, above
        known.asked_by = None if run is None else run.token
        known.ends_with_parent = given.get("on_parent_end") == "cancel"
        if "dedupe_key" in given and given.get("dedupe_scope") != "active":
            known.key_for_ever = (given["tenant"], kind, given["dedupe_key"])

    def holder(self, given: dict[str, Any]) -> int | None:
        """Who has this key: an `active` one is free once its job has ended, and only then."""
        if "dedupe_key" not in given:
            return None
        key = (given["tenant"], given["kind"], given["dedupe_key"])
        if key in self.pruned_keys:
            return self.pruned_keys[key]
        found = self.db.execute(
            "SELECT id FROM jobs WHERE tenant = ? AND kind = ? AND dedupe_key = ?"
            " AND (dedupe_scope = 'ever' OR ended_at IS NULL)",
            key,
        ).fetchall()
        assert len(found) <= 1, "two jobs of one key"
        return int(found[0][0]) if found else None

    def twin(self, run: Run, kind: str) -> int | None:
        """The first child that earlier attempts asked for in the same words, unless it has failed."""
        now = states(self.db)
        for job_id, known in self.jobs.items():
            same = (known.parent, known.kind) == (run.job_id, kind)
            others = known.asked_by not in (None, run.token)
            if same and others and now[job_id] not in (job.DEAD, job.EXPIRED, job.CANCELLED):
                return job_id
        return None

    @stateful.rule(pick=picks)
    def cancel(self, pick: int) -> None:
        self.by_hand(pick, lambda job_id: jobs.cancel(self.db, job_id, self.now))

    @stateful.rule(pick=picks)
    def approve(self, pick: int) -> None:
        self.by_hand(pick, lambda job_id: jobs.approve(self.db, job_id, self.now))

    @stateful.rule(pick=picks)
    def retry(self, pick: int) -> None:
        if self.by_hand(pick, lambda job_id: jobs.retry(self.db, job_id, self.now, 1_000)):
            self.pick(pick).released = True

    @stateful.rule(pick=picks, verdict=st.sampled_from([job.SUCCEEDED, job.DEAD, job.QUEUED]))
    def reconcile(self, pick: int, verdict: str) -> None:
        if self.by_hand(pick, lambda job_id: jobs.reconcile(self.db, job_id, self.now, verdict)):
            self.pick(pick).released = True

    def by_hand(self, pick: int, change: Any) -> bool:
        if not self.jobs:
            return False
        try:
            change(self.number(pick))
        except WrongState:
            return False
        return True

    def number(self, pick: int) -> int:
        return list(self.jobs)[pick % len(self.jobs)]

    def pick(self, pick: int) -> Known:
        return self.jobs[self.number(pick)]

    @stateful.rule(
        pick=picks,
        change=st.fixed_dictionaries(
            {},
            optional={
                "priority": st.integers(-3, 3),
                "band": st.sampled_from(job.BANDS),
                "run_after": st.sampled_from([-1, 90_000]),
                "stale_at": st.sampled_from([60_000, 600_000]),
                "deadline_at": st.sampled_from([60_000, 3_600_000]),
                "max_attempts": st.integers(1, 3),
            },
        ),
    )
    def edit(self, pick: int, change: dict[str, Any]) -> None:
        moments = ("run_after", "stale_at", "deadline_at")
        change = {name: self.now + value if name in moments else value for name, value in change.items()}
        self.by_hand(pick, lambda job_id: jobs.edit(self.db, job_id, self.now, **change))

    @stateful.rule(age=st.sampled_from([-1, 60_000, 3_600_000]), most=st.integers(1, 3))
    def prune(self, age: int, most: int) -> None:
        """Only what has ended, and a key that holds for ever holds on."""
        ids, _ = jobs.prunable(self.db, self.now - age, most)
        assert jobs.prune(self.db, ids, self.now - age) == len(ids)
        for job_id in ids:
            known = self.jobs.pop(job_id)
            assert known.state in job.ENDED
            if known.key_for_ever is not None:
                self.pruned_keys[known.key_for_ever] = job_id

    @stateful.rule(tenant=tenants)
    def pause_or_resume(self, tenant: str) -> None:
        if tenant in self.pauses:
            jobs.resume(self.db, "tenant", tenant)
        else:
            jobs.pause(self.db, "tenant", tenant, self.now)
        self.pauses ^= {tenant}

    # ------------------------------------------------------------------ time

    @stateful.rule(seconds=st.sampled_from([-86_400, -60, -1, 0, 1, 31, 600, 7_200, 86_400]))
    def the_clock_jumps(self, seconds: int) -> None:
        self.now += seconds * 1_000

    # ------------------------------------------------------------------ agents

    def agent(self, pick: int) -> Run | None:
        there = [run for run in self.runs.values() if run.spawned and not run.over]
        return there[pick % len(there)] if there else None

    @stateful.precondition(lambda self: self.agent(0) is not None)
    @stateful.rule(pick=picks, code=st.sampled_from(ENDS))
    def an_agent_ends(self, pick: int, code: int | None) -> None:
        run = self.agent(pick)
        if run is not None:
            run.over, run.code = True, code

    @stateful.precondition(lambda self: self.agent(0) is not None)
    @stateful.rule(
        pick=picks,
        action=st.sampled_from(["begin", "begin", "done", "failed"]),
        scope=st.sampled_from(job.EFFECT_SCOPES),
    )
    def an_agent_does_something(self, pick: int, action: str, scope: str) -> None:
        run = self.agent(pick)
        if run is None:
            return
        if run.token in self.outcomes:
            with pytest.raises(LeaseLost):
                lease.own(self.db, (run.job_id, run.token))
            return
        with Immediate(self.db):
            tenant = lease.own(self.db, (run.job_id, run.token))
            if action == "begin":
                effects.begin(self.db, tenant, run.job_id, run.token, "mail", scope, self.now)
            else:
                effects.settle(
                    self.db, tenant, run.job_id, run.token, "mail", action, job.EFFECT_SCOPES, self.now
                )

    @stateful.precondition(lambda self: self.agent(0) is not None)
    @stateful.rule(pick=picks, word=st.sampled_from(["transient", "permanent", "rate_limit"]))
    def an_agent_tells_of_its_failure(self, pick: int, word: str) -> None:
        run = self.agent(pick)
        if run is not None and run.token not in self.outcomes:
            run.told = True
            told.tell_failure(self.db, run.token, word, None, None, None, None)

    # ------------------------------------------------------------------ probes

    @stateful.precondition(lambda self: probes.any_due(self.db))
    @stateful.rule(pick=picks, code=st.sampled_from([0, 1, 2, None]), committed=st.booleans())
    def a_probe_answers(self, pick: int, code: int | None, committed: bool) -> None:
        self.answer_of_a_probe(pick, code, committed)

    def answer_of_a_probe(self, pick: int, code: int | None, committed: bool) -> None:
        """Of a kind that has one; what cannot be committed is told again."""
        due = [each for each in probes.due(self.db, 99) if each.job.kind == "asks"]
        if not due:
            return
        asked = due[pick % len(due)]
        job_id = asked.job.job_id
        self.state.probes.answers[job_id, asked.number] = Answer(code, "")
        self.jobs[job_id].released = code in (HAPPENED, DID_NOT)
        if not committed:
            self.a_turn_that_cannot_be_committed()
            return
        self.turn_with(None)
        assert not probes.is_due(self.db, job_id, asked.number), "asked twice"
        state = states(self.db)[job_id]
        assert (state == job.UNKNOWN) == (code not in (HAPPENED, DID_NOT))
        assert state == job.SUCCEEDED or code != HAPPENED

    # ------------------------------------------------------------------ supervisors

    def new_supervisor(self) -> State:
        settings = Settings.from_text(config_row.load(self.db)[1])
        form = config_row.identity(self.db)
        return State(NOWHERE, self.db, settings, form, "boot", False, Probes(NOWHERE), Notices(NOWHERE), None)

    def take_over(self) -> None:
        self.state = self.new_supervisor()
        with Immediate(self.db):
            attempts.close_disowned(self.db, self.now)
            for row in attempts.live(self.db):
                self.state.agents[row.token] = adopt(row, NOWHERE, "boot", self.now, self.mono)

    @stateful.rule(overdue=st.sampled_from([None, None, None, "timed_out", "stalled"]))
    def turn(self, overdue: str | None) -> None:
        self.turn_with(overdue)

    def turn_with(self, overdue: str | None) -> None:
        findings = self.look(self.state)
        if overdue is not None:
            busy = [agent for agent in self.alive(self.state) if not agent.waiting]
            findings.overdue = [(agent, overdue) for agent in busy[:1]]
        written = self.record(self.state, findings)
        self.remember(self.state, written)
        self.spawn(written.tickets)

    @stateful.rule()
    def a_turn_that_cannot_be_committed(self) -> None:
        findings = self.look(self.state)
        self.db.set_commit_hook(lambda: True)
        try:
            with pytest.raises(apsw.ConstraintError):
                self.record(self.state, findings)
        finally:
            self.db.set_commit_hook(None)

    @stateful.rule(spawned=st.integers(0, 3), signalled=st.booleans())
    def it_dies_after_the_commit(self, spawned: int, signalled: bool) -> None:
        written = self.record(self.state, self.look(self.state))
        for ticket in written.tickets[:spawned]:
            self.runs[ticket.token].spawned = True
        if signalled:
            for agent, _ in written.kill:
                self.runs[agent.token].over = True
        self.take_over()

    @stateful.rule()
    def it_dies(self) -> None:
        self.take_over()

    @stateful.rule()
    def it_is_stopped_and_replaced(self) -> None:
        self.state.mode = HANDOVER
        self.stopped = [*self.stopped[-1:], self.state]
        self.take_over()

    @stateful.precondition(lambda self: self.stopped)
    @stateful.rule()
    def a_stopped_one_wakes(self) -> None:
        """Whatever it still remembers, it starts nothing, and what it records is recorded once."""
        old = self.stopped[-1]
        tokens = set(self.runs)
        written = self.record(old, self.look(old))
        assert not written.tickets
        assert set(self.runs) == tokens
        self.remember(old, written)

    @stateful.rule()
    def stop_now(self) -> None:
        self.state.mode = NOW
        self.remember(self.state, self.record(self.state, self.look(self.state)))
        self.state.mode = RUN

    def alive(self, state: State) -> list[Agent]:
        return [agent for agent in state.agents.values() if agent.verdict is None]

    def look(self, state: State) -> Findings:
        """What the attempts' files would say."""
        findings = Findings()
        for agent in state.agents.values():
            run = self.runs[agent.token]
            if run.spawned and not run.over:
                if not agent.running:
                    findings.started.append(agent)
                if agent.waiting and run.wait != HERE:
                    findings.deserted.append(agent)
                continue
            agent.verdict = agent.verdict or (
                "never_ran" if not run.spawned else "lost" if run.code is None else "ended"
            )
            seen = Evidence(
                ran=run.spawned, exit_code=run.code, kill=agent.kill_reason if run.spawned else None
            )
            findings.ended.append(Ended(agent, Found(seen)))
        return findings

    def record(self, state: State, findings: Findings) -> Written:
        self.mono += 50
        written = record(state, findings, True, self.now, self.mono)
        state.probes.answers.clear()
        self.charged_back |= {agent.token for agent in findings.deserted if agent.token in written.resumed}
        for ticket in written.tickets:
            self.check_claim(ticket)
            self.runs[ticket.token] = Run(ticket.claim.job_id, ticket.token)
        return written

    def check_claim(self, ticket: Ticket) -> None:
        assert ticket.token > self.highest, "a token was given out that is no greater than all before"
        self.highest = ticket.token
        known = self.jobs[ticket.claim.job_id]
        assert known.tenant not in self.pauses
        assert not self.open_effects(ticket.claim.job_id), "started with an effect open"
        if ticket.claim.kind == "spends":
            self.check_budget()
        rivals = [run for run in self.runs.values() if run.job_id == ticket.claim.job_id]
        assert all(run.token in self.outcomes or self.is_closed(run.token) for run in rivals)

    def check_budget(self) -> None:
        """Nobody starts beyond what any window holds."""
        since = (self.now - TOKENS["per_ms"],)
        found = self.db.execute("SELECT tenant, sum(amount) FROM spends WHERE at > ? GROUP BY tenant", since)
        spent = dict(found.fetchall())
        assert sum(spent.values()) <= TOKENS["limit"]
        assert max(spent.values()) <= TOKENS["per_tenant"]

    def open_effects(self, job_id: int) -> int:
        sql = "SELECT count(*) FROM effects WHERE job_id = ? AND state = 'begun'"
        return int(self.db.execute(sql, (job_id,)).get)

    def is_closed(self, token: int) -> bool:
        return self.db.execute("SELECT ended_at FROM attempts WHERE token = ?", (token,)).get is not None

    def remember(self, state: State, written: Written) -> None:
        for agent in written.gone:
            state.agents.pop(agent.token, None)
        for agent in written.started:
            agent.running = True
        for agent, reason in written.kill:
            agent.kill_reason = reason
            self.runs[agent.token].over = True
        for agent in written.disowned:
            agent.disowned = True
        nobody_is_watched: Any = None
        remember(state.agents, written.waiting, written.resumed, nobody_is_watched, self.mono)

    def spawn(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            self.runs[ticket.token].spawned = True
            self.state.agents[ticket.token] = Agent(
                token=ticket.token,
                job_id=ticket.claim.job_id,
                number=ticket.claim.number,
                kind=ticket.claim.kind,
                log="log",
                lease_ms=ticket.kind.lease_ms,
                grace_ms=ticket.kind.grace_ms,
                timeout_ms=ticket.timeout_ms,
                heartbeat="process",
                deadline_at=ticket.claim.deadline_at,
                started=self.mono,
                last_sign=self.mono,
                owned=True,
                pid=None,
                probe=None,
            )

    # ------------------------------------------------------------------ promises

    @stateful.invariant()
    def no_job_is_lost_and_none_comes_back_by_itself(self) -> None:
        rows = self.db.execute("SELECT id, state FROM jobs ORDER BY id").fetchall()
        assert [job_id for job_id, _ in rows] == list(self.jobs)
        for job_id, state in rows:
            known = self.jobs[job_id]
            if state != known.state:
                assert known.state != job.SUCCEEDED, "what succeeded is done for ever"
                if known.state == job.UNKNOWN or known.state in job.ENDED:
                    assert known.released, f"job {job_id} went from {known.state} to {state} by itself"
                known.state, known.released = state, False
            if self.open_effects(job_id):
                assert state in (*job.ACTIVE, job.UNKNOWN), "an open effect, and it could be run again"

    @stateful.invariant()
    def one_outcome_for_each_token(self) -> None:
        rows = self.db.execute(
            "SELECT token, job_id, outcome, exit_code, error_class, charged, ended_at FROM attempts"
            " WHERE ended_at IS NOT NULL"
        )
        for token, job_id, *end in rows.fetchall():
            new = token not in self.outcomes
            recorded = self.outcomes.setdefault(token, tuple(end))
            assert recorded == tuple(end), "an outcome was accepted twice"
            run = self.runs[token]
            assert run.job_id == job_id
            if run.spawned and end[0] == "succeeded":
                assert (run.code, run.told) == (0, False)
            nobody_knows = run.spawned and run.code is None and not run.told
            if new and nobody_knows and self.jobs[job_id].on_lost == "unknown":
                assert states(self.db)[job_id] in (job.UNKNOWN, job.CANCELLED), "tried again by itself"
            if not run.spawned:
                assert (end[0], end[3]) == ("never_started", 0)
        opened = self.db.execute("SELECT token FROM attempts ORDER BY token").fetchall()
        kept = [token for token, run in self.runs.items() if run.job_id in self.jobs]
        assert [token for (token,) in opened] == kept

    @stateful.invariant()
    def slots_are_what_the_rows_say(self) -> None:
        active = self.db.execute(
            "SELECT id, token, tenant, needs, coalesce(root_id, id), exclusive, state FROM jobs"
            " WHERE state IN ('starting', 'running', 'waiting')"
        ).fetchall()
        live = self.db.execute("SELECT job_id, token FROM attempts WHERE ended_at IS NULL").fetchall()
        assert sorted(live) == sorted((job_id, token) for job_id, token, *_ in active)
        hold = [row for row in active if row[-1] != job.WAITING and row[1] not in self.charged_back]
        assert len(hold) <= MAX_RUNNING
        assert sum(tenant == "a" for _, _, tenant, *_ in hold) <= OF_A
        assert sum("lamp" in needs.split(",") for _, _, _, needs, *_ in hold) <= OF_LAMP
        assert sum("key" in needs.split(",") for _, _, _, needs, *_ in active) <= OF_KEY
        workflows = Counter(root for *_, root, _, _ in hold)
        assert max(workflows.values(), default=0) <= OF_WORKFLOW
        names = [name for *_, name, _ in active if name is not None]
        assert len(names) == len(set(names)), "two jobs of one exclusive name"

    @stateful.invariant()
    def the_books_agree(self) -> None:
        check_books(self.db)

    @stateful.invariant()
    def no_agent_runs_beside_another_of_its_job(self) -> None:
        there = [run.job_id for run in self.runs.values() if run.spawned and not run.over]
        assert len(there) == len(set(there))

    def all_agents_get_on(self) -> None:
        for run in self.runs.values():
            run.over = run.over or run.spawned

    def teardown(self) -> None:
        """Left alone, with everything allowed, every job comes to an end or to a person."""
        for tenant in self.pauses:
            jobs.resume(self.db, "tenant", tenant)
        self.pauses.clear()
        self.now = max(self.now, START)
        for _ in range(60):
            self.all_agents_get_on()
            self.now += 7 * 3_600_000
            self.turn_with(None)
            left = set(states(self.db).values())
            if left <= {*job.ENDED, job.UNKNOWN, job.HELD}:
                break
        else:
            raise AssertionError(f"never at rest: {left}")
        self.one_outcome_for_each_token()
        self.no_job_is_lost_and_none_comes_back_by_itself()
        check_books(self.db)
        self.db.close()
