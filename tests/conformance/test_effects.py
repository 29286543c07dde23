"""The ledger of side effects: who may do what, what a death leaves open, and that nothing happens twice."""

from __future__ import annotations

from collections import Counter

import apsw
import hypothesis.stateful as stateful
import pytest
from hypothesis import settings as examples
from hypothesis import strategies as st

from clawq import lease
from clawq import states as job
from clawq.errors import LeaseLost
from clawq.rules import classify
from clawq.rules.classify import Evidence
from clawq.settings import Settings
from clawq.store import attempts, effects, jobs, sqlfile, views
from clawq.store.connection import Immediate, build_schema
from clawq.supervisor import settle
from clawq.supervisor.evidence import Found
from tests.claims import NOW, claim
from tests.moves import put_in
from tests.rows import check_books, put, states

SETTINGS = Settings.from_text(sqlfile.read("default_config.json"))


def begin(db: apsw.Connection, job_id: int, token: int, key: str = "mail", scope: str = "job") -> str:
    return effects.begin(db, lease.own(db, (job_id, token)), job_id, token, key, scope, NOW).answer


def say(db: apsw.Connection, job_id: int, token: int, state: str, key: str = "mail") -> str:
    tenant = lease.own(db, (job_id, token))
    return effects.settle(db, tenant, job_id, token, key, state, job.EFFECT_SCOPES, NOW + 1).answer


def end(db: apsw.Connection, job_id: int, token: int, how: classify.End, now: int = NOW) -> str:
    """As the supervisor records it; the job's state afterwards."""
    attempts.mark_running(db, job_id, token, None, None, now)
    settle.settle(
        db, SETTINGS, job_id, token, lambda *_: how, Found(Evidence(), "last words"), now, lambda: 1.0
    )
    return states(db)[job_id]


@pytest.fixture
def job_id(db: apsw.Connection) -> int:
    made = put(db, NOW)
    claim(db, made)
    return made


def test_a_key_is_begun_once_and_done_once(db: apsw.Connection, job_id: int) -> None:
    assert begin(db, job_id, 77) == effects.BEGUN
    assert begin(db, job_id, 77) == effects.UNCONFIRMED  # its own, too: it may have been interrupted
    assert say(db, job_id, 77, effects.DONE) == effects.DONE
    assert say(db, job_id, 77, effects.DONE) == effects.DONE
    assert begin(db, job_id, 77) == effects.DONE
    assert begin(db, job_id, 77, "other") == effects.BEGUN


def test_a_key_that_failed_is_free_again(db: apsw.Connection, job_id: int) -> None:
    assert begin(db, job_id, 77) == effects.BEGUN
    for _ in range(2):
        assert say(db, job_id, 77, effects.FAILED) == effects.FAILED
    assert not effects.open_keys(db, job_id)
    assert begin(db, job_id, 77) == effects.BEGUN
    assert say(db, job_id, 77, effects.DONE) == effects.DONE
    assert say(db, job_id, 77, effects.FAILED) == effects.DONE, "what happened cannot be taken back"


def test_what_was_not_begun_cannot_be_settled(db: apsw.Connection, job_id: int) -> None:
    assert say(db, job_id, 77, effects.DONE) == effects.NEVER_BEGUN
    begin(db, job_id, 77)
    say(db, job_id, 77, effects.FAILED)
    assert say(db, job_id, 77, effects.DONE) == effects.NEVER_BEGUN


def test_a_tenant_shares_a_key_and_others_have_their_own(db: apsw.Connection) -> None:
    first, second, foreign = put(db, NOW), put(db, NOW), put(db, NOW, tenant="acme")
    for token, each in enumerate((first, second, foreign), 77):
        claim(db, each, token)
    assert begin(db, first, 77, scope="tenant") == effects.BEGUN
    assert begin(db, second, 78, scope="tenant") == effects.HELD
    assert say(db, second, 78, effects.FAILED) == effects.HELD, "only who began it can say what became of it"
    assert begin(db, foreign, 79, scope="tenant") == effects.BEGUN
    assert begin(db, second, 78) == effects.BEGUN, "a job's own key is another one"
    say(db, first, 77, effects.FAILED)
    assert begin(db, second, 78, scope="tenant") == effects.BEGUN
    assert say(db, second, 78, effects.DONE) == effects.DONE, "in both scopes"
    assert begin(db, first, 77, scope="tenant") == effects.DONE
    assert not effects.open_keys(db, second)
    assert say(db, first, 77, effects.FAILED) == effects.DONE


def test_a_tenants_key_stays_unconfirmed_when_its_job_is_gone(db: apsw.Connection, job_id: int) -> None:
    begin(db, job_id, 77, scope="tenant")
    assert end(db, job_id, 77, classify.LOST) == job.UNKNOWN
    later = put(db, NOW)
    claim(db, later, 78)
    assert begin(db, later, 78, scope="tenant") == effects.UNCONFIRMED
    assert say(db, later, 78, effects.FAILED) == effects.UNCONFIRMED
    assert end(db, later, 78, classify.by_exit_code(0)) == job.SUCCEEDED, "it left nothing open itself"


@pytest.mark.parametrize(
    "how",
    [
        classify.by_exit_code(0),
        classify.by_exit_code(1),
        classify.by_exit_code(64),
        classify.by_exit_code(137),
        classify.LOST,
        classify.NEVER_STARTED,
        *(classify.by_kill(reason, 143) for reason in classify.KILL_REASONS),
    ],
    ids=lambda how: f"{how.outcome} {how.exit_code}",
)
def test_an_end_with_an_open_effect_is_unknown_whatever_it_was(
    db: apsw.Connection, job_id: int, how: classify.End
) -> None:
    begin(db, job_id, 77, "mail:1")
    begin(db, job_id, 77, "mail:2")
    say(db, job_id, 77, effects.DONE, "mail:2")
    assert end(db, job_id, 77, how) == job.UNKNOWN
    said = db.execute("SELECT reason, last_error FROM jobs").fetchall()[0]
    assert said[0] == "effect_open"
    assert said[1].endswith("effect begun and never confirmed: mail:1")


def test_an_agent_that_no_file_knows_of_has_run_if_it_began_something(
    db: apsw.Connection, job_id: int
) -> None:
    begin(db, job_id, 77)
    settle.record_not_started(db, SETTINGS, job_id, 77, classify.NEVER_STARTED, NOW, lambda: 1.0)
    assert states(db) == {job_id: job.UNKNOWN}
    assert db.execute("SELECT outcome, charged FROM attempts").fetchall() == [("lost", 1)]


@pytest.mark.parametrize("done", [True, False])
def test_an_end_with_all_settled_goes_by_the_usual_rules(
    db: apsw.Connection, job_id: int, done: bool
) -> None:
    begin(db, job_id, 77)
    say(db, job_id, 77, effects.DONE if done else effects.FAILED)
    assert end(db, job_id, 77, classify.by_exit_code(1)) == job.SCHEDULED
    attempts.promote(db, NOW + 86_400_000)
    claim(db, job_id, 78)
    assert begin(db, job_id, 78) == (effects.DONE if done else effects.BEGUN), "keys outlive attempts"


def test_an_attempt_that_is_over_can_neither_begin_nor_confirm(db: apsw.Connection, job_id: int) -> None:
    begin(db, job_id, 77)
    end(db, job_id, 77, classify.LOST)
    for call in (lambda: begin(db, job_id, 77, "x"), lambda: say(db, job_id, 77, effects.DONE)):
        with pytest.raises(LeaseLost):
            call()
    assert effects.open_keys(db, job_id) == ["mail"]


@pytest.mark.parametrize(
    ("verdict", "then"),
    [(job.SUCCEEDED, effects.DONE), (job.DEAD, effects.FAILED), (job.QUEUED, effects.FAILED)],
)
def test_a_persons_word_settles_what_is_open_and_nothing_else(
    db: apsw.Connection, job_id: int, verdict: str, then: str
) -> None:
    for key in ("open", "done"):
        begin(db, job_id, 77, key)
    say(db, job_id, 77, effects.DONE, "done")
    begin(db, job_id, 77, "shared", "tenant")
    end(db, job_id, 77, classify.LOST)
    jobs.reconcile(db, job_id, NOW + 9, verdict)
    found = {row["key"]: (row["state"], row["settled_at"]) for row in effects.of_job(db, job_id)}
    assert found == {"open": (then, NOW + 9), "done": (effects.DONE, NOW + 1), "shared": (then, NOW + 9)}


def test_a_refused_reconciliation_settles_nothing(db: apsw.Connection, job_id: int) -> None:
    begin(db, job_id, 77)
    with pytest.raises(Exception, match="only a job that is unknown"):
        jobs.reconcile(db, job_id, NOW, job.SUCCEEDED)
    assert effects.open_keys(db, job_id)


def test_pruning_leaves_what_happened_for_the_tenant(db: apsw.Connection, job_id: int) -> None:
    for key, scope in (("own", "job"), ("shared", "tenant"), ("free", "tenant")):
        begin(db, job_id, 77, key, scope)
        say(db, job_id, 77, effects.FAILED if key == "free" else effects.DONE, key)
    assert end(db, job_id, 77, classify.by_exit_code(0)) == job.SUCCEEDED
    assert jobs.prune(db, [job_id], NOW + 1) == 1
    assert db.execute("SELECT key, scope FROM effects").fetchall() == [("shared", "tenant")]
    later = put(db, NOW)
    claim(db, later, 78)
    assert begin(db, later, 78, "shared", "tenant") == effects.DONE


def test_an_unknown_job_keeps_its_dedupe_key(db: apsw.Connection) -> None:
    made = put(db, NOW, dedupe_key="k", dedupe_scope="active")
    db.execute("INSERT INTO dedupe VALUES ('default', 'default', 'k', ?, 1)", (made,))
    claim(db, made)
    begin(db, made, 77)
    end(db, made, 77, classify.by_exit_code(0))
    assert db.execute("SELECT job_id FROM dedupe").fetchall() == [(made,)]
    jobs.reconcile(db, made, NOW, job.SUCCEEDED)
    assert db.execute("SELECT job_id FROM dedupe").fetchall() == []


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "perhaps"},
        {"scope": "world"},
        {"state": "done", "settled_at": None},
        {"state": "begun", "settled_at": 5},
        {"key": None},
        {"begun_at": "now"},
    ],
    ids=str,
)
def test_the_database_refuses_what_an_effect_cannot_be(
    db: apsw.Connection, columns: dict[str, object]
) -> None:
    row: dict[str, object] = {"scope": "job", "tenant": "t", "job_id": 1, "key": "k", "state": "begun"}
    row |= {"token": 1, "begun_at": 1, "settled_at": None} | columns
    with pytest.raises(apsw.ConstraintError):
        db.execute(f"INSERT INTO effects ({', '.join(row)}) VALUES ({', '.join(':' + n for n in row)})", row)


def test_what_is_shown_of_a_job(db: apsw.Connection, job_id: int) -> None:
    begin(db, job_id, 77, "a")
    say(db, job_id, 77, effects.DONE, "a")
    begin(db, job_id, 77, "b", "tenant")
    assert views.show(db, SETTINGS, "/logs", job_id)["effects"] == [
        {"key": "a", "scope": "job", "state": "done", "attempt": 1, "begun_at": NOW, "settled_at": NOW + 1},
        {"key": "b", "scope": "tenant", "state": "begun", "attempt": 1, "begun_at": NOW, "settled_at": None},
    ]
    other = put_in(db, job.UNKNOWN)
    assert effects.open_of(db, [other, job_id]) == {
        job_id: [{"key": "b", "scope": "tenant", "begun_at": NOW}]
    }


KEYS = ("mail", "pay")
ENDS = (
    classify.by_exit_code(0),
    classify.by_exit_code(1),
    classify.by_exit_code(64),
    classify.by_exit_code(137),
    classify.LOST,
    classify.by_kill("timed_out", 137),
    classify.by_kill("cancelled", 143),
)
Space = tuple[str, int | str, str]
"""What a key means: ("job", id, key) or ("tenant", name, key)."""


class NeverTwice(stateful.RuleBasedStateMachine):
    """Agents that die at any moment, and people who tell the truth: nothing happens twice.

    The model is the world outside: how often each thing really happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.db = apsw.Connection(":memory:")
        with Immediate(self.db):
            build_schema(self.db)
        self.tenants = {put(self.db, NOW, tenant=tenant): tenant for tenant in ("a", "a", "b")}
        self.now = NOW
        self.token = 100
        self.running: dict[int, int] = {}
        self.happened: Counter[Space] = Counter()
        self.ledger: dict[Space, tuple[str, int, int]] = {}
        """(state, job, token) of each key that was ever begun."""

    jobs_ = st.integers(1, 3)

    def space(self, job_id: int, scope: str, key: str) -> Space:
        return (scope, job_id if scope == "job" else self.tenants[job_id], key)

    def open_of(self, job_id: int) -> list[Space]:
        return [
            space for space, (state, owner, _) in self.ledger.items() if (state, owner) == ("begun", job_id)
        ]

    @stateful.rule(job_id=jobs_)
    def start(self, job_id: int) -> None:
        self.now += 86_400_000
        attempts.promote(self.db, self.now)
        state = states(self.db)[job_id]
        if state in (job.DEAD, job.CANCELLED):
            jobs.retry(self.db, job_id, self.now, 100)
            state = job.QUEUED
        if state != job.QUEUED:
            return
        assert self.open_of(job_id) == [], "a job with something open is never run again"
        self.token += 1
        claim(self.db, job_id, self.token, self.now)
        self.running[job_id] = self.token

    @stateful.rule(
        job_id=jobs_, key=st.sampled_from(KEYS), scope=st.sampled_from(job.EFFECT_SCOPES), acts=st.booleans()
    )
    def begin(self, job_id: int, key: str, scope: str, acts: bool) -> None:
        if job_id not in self.running:
            return
        token, space = self.running[job_id], self.space(job_id, scope, key)
        answer = begin(self.db, job_id, token, key, scope)
        state, owner, holder = self.ledger.get(space, ("failed", 0, 0))
        expected = {"failed": effects.BEGUN, "done": effects.DONE}.get(state)
        if expected is None:
            other = holder != token and self.running.get(owner) == holder
            expected = effects.HELD if other else effects.UNCONFIRMED
        assert answer == expected
        if answer == effects.BEGUN:
            self.ledger[space] = ("begun", job_id, token)
            self.happened[space] += acts

    @stateful.rule(job_id=jobs_, key=st.sampled_from(KEYS))
    def confirm(self, job_id: int, key: str) -> None:
        """The agent says what is true of what it began, in both scopes at once where that is the same."""
        mine = [s for s in self.open_of(job_id) if s[2] == key]
        truth = {bool(self.happened[space]) for space in mine}
        if job_id not in self.running or len(truth) != 1:
            return
        state = effects.DONE if truth.pop() else effects.FAILED
        assert say(self.db, job_id, self.running[job_id], state, key) == state
        for space in mine:
            self.ledger[space] = (state, job_id, self.running[job_id])

    @stateful.rule(job_id=jobs_, how=st.sampled_from(ENDS))
    def end(self, job_id: int, how: classify.End) -> None:
        if job_id not in self.running:
            return
        token = self.running.pop(job_id)
        state = end(self.db, job_id, token, how, self.now)
        assert (state == job.UNKNOWN) == bool(self.open_of(job_id))
        with pytest.raises(LeaseLost):
            begin(self.db, job_id, token)

    @stateful.rule(job_id=jobs_, again=st.booleans())
    def reconcile(self, job_id: int, again: bool) -> None:
        if states(self.db)[job_id] != job.UNKNOWN:
            return
        begun = self.open_of(job_id)
        happened = any(self.happened[space] for space in begun)
        jobs.reconcile(
            self.db, job_id, self.now, job.SUCCEEDED if happened else job.QUEUED if again else job.DEAD
        )
        for space in begun:
            self.ledger[space] = ("done" if happened else "failed", job_id, self.ledger[space][2])

    @stateful.invariant()
    def nothing_happened_twice(self) -> None:
        assert all(count <= 1 for count in self.happened.values()), self.happened

    @stateful.invariant()
    def the_ledger_knows_what_is_open(self) -> None:
        for job_id in self.tenants:
            assert bool(effects.open_keys(self.db, job_id)) == bool(self.open_of(job_id))

    def teardown(self) -> None:
        check_books(self.db)
        self.db.close()


TestNeverTwice = NeverTwice.TestCase
TestNeverTwice.settings = examples(max_examples=40, stateful_step_count=40)
