"""Claims and ends for tests of the store, as the supervisor makes them."""

from __future__ import annotations

import apsw

from clawq import states as job
from clawq.paths import Home
from clawq.rules import classify
from clawq.rules.retry import Decision
from clawq.settings import Settings
from clawq.store import attempts
from clawq.supervisor.notices import Notices
from clawq.supervisor.probes import Probes
from clawq.supervisor.state import State

NOW = 1_000_000


def passing(home: Home, db: apsw.Connection, settings: Settings) -> State:
    """What a supervisor that was just started knows, for passes without its loop."""
    return State(
        home,
        db,
        settings,
        form="",
        boot_id="boot",
        until_idle=False,
        probes=Probes(home),
        notices=Notices(home),
        default_max_procs=None,
    )


def claim(
    db: apsw.Connection, job_id: int, token: int = 77, now: int = NOW, timeout_ms: int = 0
) -> attempts.Claim:
    claimed = attempts.claim(db, [job_id], token, now)[token]
    opening = attempts.Opening(
        token,
        job_id,
        claimed.number,
        now,
        boot_id="boot",
        lease_ms=1_000,
        grace_ms=10,
        timeout_ms=timeout_ms,
        heartbeat="process",
        log="log",
    )
    attempts.open_attempts(db, [opening])
    attempts.keep_token(db, token)
    return claimed


def finish(db: apsw.Connection, job_id: int, token: int = 77, now: int = NOW) -> None:
    """The agent ran and succeeded."""
    assert attempts.mark_running(db, job_id, token, None, None, now)
    done = Decision(job.SUCCEEDED, "succeeded")
    assert attempts.finish(db, job_id, token, classify.by_exit_code(0), done, "", None, now)
