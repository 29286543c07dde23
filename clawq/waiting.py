"""Waiting until jobs have ended, and for a person's answer.

Outside a job it is only looking. A job that waits for those below it gives its slots away meanwhile: it is
``waiting``, a lock says that somebody is still here (``clawq.host.wait_file``), and only once the supervisor
has given the slots back does this return. Nothing here prints; the command line and the Python API call it.
"""

import os
import time

from clawq import states as job
from clawq.errors import Busy, LeaseLost, NoSuchJob, Refused, UsageError
from clawq.host import wait_file
from clawq.paths import find_home, make_private_dir
from clawq.poke import poke
from clawq.store import outcomes, waits
from clawq.store.connection import Immediate, open_db, open_readonly, storage_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import apsw

    from clawq.paths import Home

FIRST_LOOK_S = 0.01
SLOWEST_LOOK_S = 0.2
BACK_LOOK_S = 0.02
"""While it waits for its slots, which come as soon as they are free."""
TEXT_MAX = 4_096
"""Bytes of a question."""

States = dict[int, str]


def is_settled(states: States) -> bool:
    """Has each of them ended, or is unknown?"""
    return all(state in job.SETTLED for state in states.values())


def until_settled(
    wanted: "Sequence[int] | None",
    timeout_ms: int | None = None,
    tell: "Callable[[States], None]" = lambda states: None,
) -> States:
    """Block until these jobs have ended or are unknown, or the time is over: {id: state}, in the order asked.

    None for `wanted` is, inside a job, the children that its attempt asked for or got back, no questions.
    ``tell`` is called with the states at each look; what it raises ends the wait. Where all are settled
    already nothing is given away. After a timeout it may take longer: until the slots are this job's again.

    Raises NoSuchJob, StorageError; outside a job UsageError without ids; inside one LeaseLost, and Refused:
    ``not_allowed`` (not below this job), ``never_fits`` (it needs what this job keeps while it waits).
    """
    give_up = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    me = job.whoami(os.environ)
    home = find_home()
    with storage_errors(home.db):
        if me is not None:
            return _Inside(home, me, wanted, give_up, tell).wait()
        if wanted is None:
            raise UsageError("no job is named", "clawq wait ID...; without an ID only inside a job")
        return _look_on(home, list(wanted), give_up, tell)


def document(ids: "Sequence[int]") -> str:
    """How these jobs ended, as the JSON array that ``clawq wait --json`` prints."""
    home = find_home()
    with storage_errors(home.db):
        db = open_readonly(home)
        if db is None:
            return "[]"
        try:
            return outcomes.document(db, list(ids))
        finally:
            db.close()


def known(ids: "Sequence[int]") -> "dict[int, dict[str, Any]]":
    """How each of these jobs stands that is still known, as clawq.store.outcomes tells it."""
    home = find_home()
    with storage_errors(home.db):
        db = open_readonly(home)
        if db is None:
            return {}
        try:
            return outcomes.outcomes(db, list(ids))
        finally:
            db.close()


def _look_on(home: "Home", ids: list[int], give_up: float | None, tell: "Callable[[States], None]") -> States:
    db = open_readonly(home) if ids else None
    if db is None:
        if not ids:
            return {}
        raise NoSuchJob(ids[0])
    try:
        pause = FIRST_LOOK_S
        while True:
            states = _states(db, ids)
            tell(states)
            if is_settled(states) or _is_over(give_up):
                return states
            pause = _sleep(pause, give_up)
    finally:
        db.close()


def _states(db: "apsw.Connection", ids: list[int]) -> States:
    found = waits.states(db, ids)
    for job_id in ids:
        if job_id not in found:
            raise NoSuchJob(job_id)
    return {job_id: found[job_id] for job_id in ids}


def _is_over(give_up: float | None) -> bool:
    return give_up is not None and time.monotonic() >= give_up


def _sleep(pause: float, give_up: float | None) -> float:
    """The next pause."""
    time.sleep(pause if give_up is None else max(0.0, min(pause, give_up - time.monotonic())))
    return min(pause * 1.4, SLOWEST_LOOK_S)


class _Inside:
    """A job's own wait."""

    def __init__(
        self,
        home: "Home",
        me: "tuple[int, int]",
        wanted: "Sequence[int] | None",
        give_up: float | None,
        tell: "Callable[[States], None]",
    ) -> None:
        self.home = home
        self.job_id, self.token = self.me = me
        self.wanted = wanted
        self.give_up = give_up
        self.tell = tell
        self.path = wait_file.path_of(home.run, self.token)
        self.lock = -1
        self.asked_back = False
        self.joined = False

    def wait(self) -> States:
        db = open_db(self.home)
        try:
            return self._wait(db)
        finally:
            db.close()
            wait_file.let_go(self.lock)

    def _wait(self, db: "apsw.Connection") -> States:
        if waits.standing(db, *self.me) is None:
            raise LeaseLost(self.job_id)
        ids = list(waits.children(db, *self.me) if self.wanted is None else self.wanted)
        self._check(db, ids)
        pause = FIRST_LOOK_S
        while True:
            # Each look is a snapshot of its own: nothing is held while this sleeps.
            states, standing = _states(db, ids), waits.standing(db, *self.me)
            if standing is None:
                raise LeaseLost(self.job_id)
            self.tell(states)
            if is_settled(states) or _is_over(self.give_up):
                if standing.state != job.WAITING or (self.asked_back and not standing.wants_back):
                    return states
                self.asked_back = self.asked_back or self._do(db, waits.ask_back)
                time.sleep(BACK_LOOK_S)
                continue
            if standing.state == job.RUNNING or (standing.state == job.WAITING and not self.joined):
                # At first, and after another wait of this job was over or has died before this one.
                self._hold()
                self.joined = self._do(db, waits.enter, ids) or self.joined
            pause = _sleep(pause, self.give_up)

    def _check(self, db: "apsw.Connection", ids: list[int]) -> None:
        missing = waits.missing(db, ids)
        if missing is not None:
            raise NoSuchJob(missing)
        stranger = waits.stranger(db, self.job_id, ids)
        if stranger is not None:
            raise Refused(
                "not_allowed",
                f"job {stranger} is not below job {self.job_id}, which can wait for those only that are",
                "a person can wait for it, outside of a job",
            )
        never = waits.never_starts(db, self.job_id, ids)
        if never is not None:
            raise Refused(
                "never_fits",
                f"job {never[0]} needs {never[1]}, which would be kept from it while job {self.job_id} waits",
                "wait for it after this job has ended, or do without it there",
            )

    def _hold(self) -> None:
        if self.lock >= 0:
            if wait_file.is_the_one(self.lock, self.path):
                return
            wait_file.let_go(self.lock)
        make_private_dir(self.home.run)
        self.lock = wait_file.hold(self.path)

    def _do(self, db: "apsw.Connection", change: "Callable[..., object]", *more: object) -> bool:
        """In a transaction of its own, and the supervisor is told; false when the database is locked."""
        try:
            with storage_errors(self.home.db), Immediate(db):
                change(db, *self.me, *more, time.time_ns() // 1_000_000)
        except Busy:
            return False
        poke(self.home, b"w")
        return True


class Answer:
    """A person's: ``job_id`` is the question's, ``state`` succeeded (approved), cancelled (denied, or
    withdrawn), expired, or held (nobody has answered in time)."""

    __slots__ = ("job_id", "state")

    def __init__(self, job_id: int, state: str) -> None:
        self.job_id = job_id
        self.state = state

    @property
    def approved(self) -> bool:
        return self.state == job.SUCCEEDED

    @property
    def timed_out(self) -> bool:
        return self.state not in job.SETTLED


def ask(text: str, timeout_ms: int | None = None) -> Answer:
    """Inside a job: put a question to a person, and wait for the answer as for a child.

    Raises UsageError (outside a job too), LeaseLost, Refused (``held_full``), and what opening it raises.
    """
    give_up = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    from clawq.lease import must_be_inside

    must_be_inside("ask")
    job_id = put(text)
    left = None if give_up is None else max(0, int((give_up - time.monotonic()) * 1000))
    return Answer(job_id, until_settled([job_id], left)[job_id])


def put(text: str) -> int:
    """Inside a job: put a question, without waiting for the answer; its number. Raises as ``ask`` does."""
    from clawq.client import Producer
    from clawq.lease import must_be_inside
    from clawq.store import family

    me = must_be_inside("ask")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError("the question is not UTF-8", "ask in plain words") from None
    if not text.strip() or "\0" in text or size > TEXT_MAX:
        raise UsageError("the question is empty or too long", f"ask in 1 to {TEXT_MAX} bytes of text")
    with Producer() as producer, storage_errors(producer.home.db):
        now = time.time_ns() // 1_000_000
        producer.follow_config(now)
        with Immediate(producer.intake.db):
            parent = family.find(producer.intake.db, *me)
            if parent is None or parent.token != me[1]:
                raise LeaseLost(me[0])
            job_id = family.put_question(producer.intake, parent, text, now)
    return job_id
