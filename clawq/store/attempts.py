"""An attempt's life in the database: claims, leases, kills, ends, and what the calendar changes.

Functions take an open connection. Those that change something expect the caller's transaction, so that one
turn of the loop is one commit. Times are epoch ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from clawq.rules.classify import End, Word
from clawq.rules.retry import Decision
from clawq.states import BANDS, split
from clawq.store.sqlfile import load

SQL = load("attempts")
BATCH = 500
"""Jobs promoted or expired in one transaction."""


class Claim(NamedTuple):
    """A job as it was claimed: what spawning needs."""

    job_id: int
    kind: str
    tenant: str
    band: int
    number: int
    command: str | None
    payload: str | None
    cwd: str
    path: str | None
    env: str | None
    timeout_ms: int | None
    deadline_at: int | None

    @property
    def band_name(self) -> str:
        return BANDS[self.band]


class Opening(NamedTuple):
    """What is written of a claim beside it."""

    token: int
    job_id: int
    number: int
    now: int
    boot_id: str
    lease_ms: int
    grace_ms: int
    timeout_ms: int
    heartbeat: str
    log: str


class Success(NamedTuple):
    """An attempt that succeeded. ``pid`` and its start time: of one that was never seen to run."""

    job_id: int
    pid: int | None
    pid_started: str | None
    peak_procs: int | None
    peak_mb: int | None
    spoke_at: int | None


class LiveAttempt(NamedTuple):
    """An attempt under way, as a new supervisor finds it."""

    token: int
    job_id: int
    number: int
    kind: str
    tenant: str
    state: str
    claimed_at: int
    started_at: int | None
    boot_id: str
    pid: int | None
    pid_started: str | None
    lease_ms: int
    grace_ms: int
    timeout_ms: int
    heartbeat: str
    kill_reason: str | None
    kill_at: int | None
    log: str
    deadline_at: int | None
    waited_ms: int


class PolicyRow(NamedTuple):
    """What a job says of its own retries; None where its kind decides."""

    kind: str
    band: int
    attempts: int
    max_attempts: int | None
    on_lost: str | None
    accepted_at: int
    deadline_at: int | None
    cancel: int
    needs: str
    limits_met: int
    forks_failed: int
    told: str | None
    begun: int = 0
    """Whether the job has begun effects that nobody has settled ..."""
    spent: int = 0
    """... the attempt has reserved or spent anything ..."""
    probing: int = 0
    """... and is the probe of a rest."""

    @property
    def band_name(self) -> str:
        return BANDS[self.band]

    @property
    def resources(self) -> list[str]:
        return split(self.needs)

    @property
    def word(self) -> Word | None:
        """What the agent told with `clawq fail`."""
        if self.told is None:
            return None
        said = json.loads(self.told)
        return Word(said["class"], said["reason"], said["resource"], said["retry_after_ms"], said["error"])


def next_token(db: apsw.Connection, now: int) -> int:
    """The next fencing token: max(last + 1, epoch ms), so that a fresh database never meets old files."""
    return max(int(db.execute(SQL["last_token"]).get) + 1, now)


def claim(db: apsw.Connection, job_ids: Sequence[int], token: int, now: int) -> dict[int, Claim]:
    """Take queued jobs: the first gets `token`, each other the next one. What became ours, by token.

    Those that are no longer there to take are left out. `open_attempts` and `keep_token` follow.
    """
    values = {"ids": json.dumps(job_ids), "token": token, "now": now}
    return {row[0]: Claim._make(row[1:]) for row in db.execute(SQL["claim"], values)}


def open_attempts(db: apsw.Connection, opened: Iterable[Opening]) -> None:
    db.executemany(SQL["open_attempt"], opened)


def keep_token(db: apsw.Connection, token: int) -> None:
    db.execute(SQL["keep_last_token"], {"token": token})


def mark_running(
    db: apsw.Connection, job_id: int, token: int, pid: int | None, pid_started: str | None, now: int
) -> bool:
    """The agent was seen to run; False when the token is no longer the job's."""
    values = {"job_id": job_id, "token": token, "pid": pid, "pid_started": pid_started, "now": now}
    db.execute(SQL["note_leader"], values)
    db.execute(SQL["mark_running"], values)
    return db.changes() > 0


def mark_unseen(db: apsw.Connection, tokens: Mapping[int, int], now: int) -> None:
    """These, {token: job}, had ended when they were first seen to have run; their end notes the leader."""
    db.execute(SQL["mark_unseen"], {"tokens": json.dumps(tokens), "now": now})


def live(db: apsw.Connection) -> list[LiveAttempt]:
    return [LiveAttempt(*row) for row in db.execute(SQL["live"])]


def close_disowned(db: apsw.Connection, now: int) -> None:
    """Close attempts whose job has moved on without them."""
    db.execute(SQL["close_disowned"], {"now": now})


def renew(db: apsw.Connection, beats: dict[int, int], worked: dict[int, int] | None = None) -> None:
    """Renew all leases in one statement; `beats` maps a token to its last sign of life, `worked` to when it
    was last seen to compute."""
    db.execute(SQL["renew"], {"beats": json.dumps(beats), "worked": json.dumps(worked or {})})


def intend_kill(db: apsw.Connection, token: int, reason: str, now: int) -> bool:
    """Record why an agent will be ended; False when another reason stands already."""
    return db.execute(SQL["intend_kill"], {"token": token, "reason": reason, "now": now}).get is not None


def cancel_requests(db: apsw.Connection) -> list[tuple[int, int]]:
    """(job id, token) of each attempt under way that somebody asked to cancel."""
    return [(job_id, token) for job_id, token in db.execute(SQL["cancel_requests"])]


def policy(db: apsw.Connection, job_id: int, token: int) -> PolicyRow | None:
    """What the job says of its retries; None when the token is no longer its own."""
    row = db.execute(SQL["policy"], {"job_id": job_id, "token": token}).fetchone()
    return None if row is None else PolicyRow._make(row)


def finish(
    db: apsw.Connection,
    job_id: int,
    token: int,
    end: End,
    decision: Decision,
    output_tail: str,
    peak: tuple[int, int] | None,
    now: int,
    *,
    retry_by: int | None = None,
    result: str | None = None,
    note: str | None = None,
    spoke_at: int | None = None,
    leader: tuple[int | None, str | None] | None = None,
    fork_failed: bool = False,
) -> bool:
    """Accept an attempt's end; False when the token is no longer the job's: only the attempt was closed.

    `leader` is (pid, its start time) of one that had ended when it was first seen to have run. `retry_by`: no
    retry starts later. `result` is JSON. `note` is said beside the attempt's error and is none
    of the job's.
    """
    values: dict[str, Any] = {
        **end._asdict(),
        "charged": int(end.charged),
        "end_reason": end.reason,
        "free_limit": int(end.outcome == "rate_limited" and not end.charged),
        "free_fork": int(fork_failed and not end.charged),
        "ran": int(end.ran),
        "state": decision.state,
        "reason": decision.reason,
        "run_after": decision.run_after,
        "retry_by": retry_by,
        "result": result,
        "spoke_at": spoke_at,
        "noted_error": "; ".join(text for text in (end.error, note) if text) or None,
        "job_id": job_id,
        "token": token,
        "started_at": None if leader is None else now,
        "pid": leader and leader[0],
        "pid_started": leader and leader[1],
        "output_tail": output_tail or None,
        "peak_procs": peak and peak[0],
        "peak_mb": peak and peak[1],
        "now": now,
    }
    db.execute(SQL["finish"], values)
    accepted = db.changes() > 0
    db.execute(SQL["close_attempt"], values)
    return accepted


def succeed(db: apsw.Connection, ended: Mapping[int, Success], now: int) -> None:
    """Accept ends, by token, as `finish` does, of which there is nothing to tell but success."""
    tokens = {token: end.job_id for token, end in ended.items()}
    db.execute(SQL["succeed"], {"tokens": json.dumps(tokens), "now": now})
    db.executemany(SQL["close_succeeded"], [(token, now, *end[1:]) for token, end in ended.items()])


def promote(db: apsw.Connection, now: int) -> int:
    """Queue what has become due; how many (BATCH means that more may be waiting)."""
    return len(db.execute(SQL["promote"], {"now": now, "most": BATCH}).fetchall())


def expire(db: apsw.Connection, now: int) -> int:
    """End what was not started in time; how many (BATCH means that more may be waiting)."""
    due = db.execute(SQL["expirable"], {"now": now, "most": BATCH}).fetchall()
    each = [{"job_id": job_id, "now": now} for (job_id,) in due]
    # One by one: the end of one may already have ended others of them, which were its children.
    return len(db.executemany(SQL["expire"], each).fetchall())


def next_due(db: apsw.Connection) -> int:
    """When the calendar alone next changes something, epoch ms (far away when nothing is due)."""
    return int(db.execute(SQL["next_due"]).get)


def not_after(db: apsw.Connection, now: int) -> None:
    """The clock was set back: what waits for its next attempt began to do so now.

    A first start stays when it was asked for: that a person meant the time of day and no length of time
    nobody can tell any more.
    """
    db.execute(SQL["retries_not_after"], {"now": now})


def stop_request(db: apsw.Connection) -> str | None:
    """``handover``, ``drain`` or ``now``; None when nobody asked."""
    value = db.execute(SQL["stop_request"]).get
    return None if value is None else str(value)


def keep_path(db: apsw.Connection, path: str) -> None:
    """Tell producers without a PATH of their own where the supervisor would look for a program."""
    db.execute(SQL["keep_path"], {"path": path})


def ask_stop(db: apsw.Connection, mode: str) -> None:
    """`mode` as stop_request() gives it."""
    db.execute(SQL["ask_stop"], {"mode": mode})


def forget_stop(db: apsw.Connection) -> None:
    db.execute(SQL["forget_stop"])
