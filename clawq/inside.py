"""What a running job tells the queue: what it spends, which resource needs a rest, why it fails.

A job's agent is known by CLAWQ_JOB_ID and CLAWQ_TOKEN. What is asked for with a token that is no longer the
job's is refused and changes nothing: another attempt works on it now, or a person has ended it.
"""

import os
import time

from clawq.client import Producer
from clawq.errors import UsageError
from clawq.lease import must_be_inside, own
from clawq.poke import poke
from clawq.states import TOLD_CLASSES, whoami
from clawq.store import told
from clawq.store.connection import Immediate, storage_errors
from clawq.values import near, read_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

REST_MOST_MS = 86_400_000
SPENT_MOST = 10**15
REASON_MOST = 100
TEXT_MOST = 2_000
"""Characters; a longer text is cut, since an agent that fails must not fail at saying so."""
RETRY_AFTER_MOST_MS = 31 * 86_400_000
STEP_MS = 1_000
"""After the probe has passed the number of starts doubles each such step, which is up to twice as long: the
clients of one provider do not come back in step."""


class Spent:
    """A budget after something was told: ``recorded`` is the attempt's figure that stands, ``used`` of
    ``limit`` what the window holds (the tenant's part where that is what is overdrawn).

    ``retry_after_s``: when overdrawn, how soon the oldest part of it leaves the window.
    """

    __slots__ = ("budget", "limit", "overdrawn", "recorded", "retry_after_s", "used")

    def __init__(
        self, budget: str, recorded: int, used: int, limit: int, retry_after_s: int | None = None
    ) -> None:
        self.budget = budget
        self.recorded = recorded
        self.used = used
        self.limit = limit
        self.overdrawn = used > limit
        self.retry_after_s = retry_after_s if self.overdrawn else None


def throttle(resource: str, span_ms: int) -> int | None:
    """Let `resource` rest for so long, or no longer where it is 0; until when it rests (epoch ms) or None.

    Raises UsageError, LeaseLost (inside a job), and what opening the queue raises.
    """
    if not 0 <= span_ms <= REST_MOST_MS:
        raise UsageError("a rest is at most 1d", "throttle it again when that is over, or pause the resource")
    me = whoami(os.environ)
    with Producer() as producer, storage_errors(producer.home.db):
        now = time.time_ns() // 1_000_000
        db = _follow(producer, now)
        _known_resource(producer, resource)
        with Immediate(db):
            if me is not None:
                own(db, me)
            if span_ms:
                step_ms = STEP_MS + STEP_MS * os.urandom(1)[0] // 255
                told.cool(db, resource, now + span_ms, step_ms, now)
            else:
                told.warm(db, resource)
            until = told.rests_until(db, resource)
        poke(producer.home)
    return until


def spend(budget: str, total: object) -> Spent:
    """Record what this attempt has spent of `budget` so far, all in all. It counts, also beyond the limit.

    Raises UsageError (outside a job too), LeaseLost, and what opening the queue raises.
    """
    if not isinstance(total, int) or isinstance(total, bool) or not 0 <= total <= SPENT_MOST:
        raise UsageError(f"{total!r:.80}", f"a whole number from 0 to {SPENT_MOST} is needed")
    me = must_be_inside("spend")
    with Producer() as producer, storage_errors(producer.home.db):
        now = time.time_ns() // 1_000_000
        db = _follow(producer, now)
        known = producer.intake.budgets()
        if budget not in known:
            fix = near(budget, known) + f"there are {', '.join(known) or 'none'} in clawq.toml"
            raise UsageError(f"no budget {budget!r:.80} is configured", fix)
        limit, per_ms, per_tenant = known[budget]
        with Immediate(db):
            tenant = own(db, me)
            recorded = told.tell_spend(db, tenant, me[1], budget, total, now)
            used_by, oldest = told.window(db, budget, now - per_ms)
    used = sum(used_by.values())
    if used <= limit and per_tenant is not None and used_by.get(tenant, 0) > per_tenant:
        used, limit = used_by[tenant], per_tenant
    retry_after_s = None if oldest is None else max(1, -(-(oldest + per_ms - now) // 1000))
    return Spent(budget, recorded, used, limit, retry_after_s)


def fail(
    error_class: str,
    reason: "str | None",
    resource: "str | None",
    retry_after_ms: "int | None",
    text: "str | None",
) -> int:
    """Record why this attempt is about to fail; the job's id. It counts when the attempt ends.

    Raises UsageError (outside a job too), LeaseLost, and what opening the queue raises.
    """
    read_word("--class", error_class, TOLD_CLASSES)
    if reason is not None and (
        not 0 < len(reason) <= REASON_MOST or not reason.isprintable() or " " in reason
    ):
        raise UsageError(f"--reason {reason!r:.80}", f"one word is needed, at most {REASON_MOST} characters")
    if retry_after_ms is not None:
        retry_after_ms = min(retry_after_ms, RETRY_AFTER_MOST_MS)
    if text is not None:
        # Often a piece of some output, cut where it is: rather told with a "?" in it than refused.
        text = text[:TEXT_MOST].encode("utf-8", "replace").decode()
    me = must_be_inside("fail")
    with Producer() as producer, storage_errors(producer.home.db):
        db = _follow(producer, time.time_ns() // 1_000_000)
        if resource is not None:
            _known_resource(producer, resource)
        with Immediate(db):
            own(db, me)
            told.tell_failure(db, me[1], error_class, reason, resource, retry_after_ms, text)
    return me[0]


def _known_resource(producer: Producer, resource: str) -> None:
    known = producer.intake.resources()
    if resource not in known:
        fix = near(resource, known) + "`clawq config show` lists them"
        raise UsageError(f"no resource {resource!r:.80} is configured", fix)


def _follow(producer: Producer, now: int) -> "apsw.Connection":
    producer.follow_config(now)
    return producer.intake.db
