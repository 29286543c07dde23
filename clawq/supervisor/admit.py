"""One pass of admission inside the turn's transaction: read, decide, write."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from clawq.host.load import HostSample
from clawq.rules import admission
from clawq.rules.admission import Limits, Park, Resource, Start, Wait
from clawq.settings import Settings
from clawq.store import attempts
from clawq.supervisor.start import Ticket, log_name


class Pass(NamedTuple):
    """What a pass did: what to spawn once it is committed, and whether the machine must be asked again."""

    tickets: list[Ticket]
    host_refused: bool


def limits_from(
    settings: Settings, paused: frozenset[tuple[str, str]], default_max_procs: int | None
) -> Limits:
    """The configuration as the admission rules read it."""
    procs, memory = settings.host.max_user_procs, settings.host.min_free_mb
    return Limits(
        max_running=settings.limits.max_running,
        max_user_procs=None if procs == "off" else default_max_procs if procs is None else procs,
        min_free_mb=None if memory == "off" else memory,
        retry_after_ms=settings.host.retry_after_ms,
        resources={name: Resource(each.limit, each.min_free_mb) for name, each in settings.resources.items()},
        tenant=settings.tenant_max_running,
        kind=lambda name: settings.kind(name).max_running,
        paused=paused,
    )


def admit(
    db: apsw.Connection,
    settings: Settings,
    limits: Limits,
    sample: HostSample | None,
    spawn_closed_until: int,
    started_since_sample: int,
    boot_id: str,
    now: int,
) -> Pass:
    """Ask every lane's head once, claim what may start, and write down why the others may not."""
    heads = attempts.heads(db)
    if not heads:
        return Pass([], host_refused=False)
    host = admission.Host(
        None if sample is None else sample.user_procs,
        None if sample is None else sample.free_mb,
        spawn_closed_until,
    )
    decisions = admission.decide(
        now,
        host,
        attempts.running(db),
        heads,
        limits,
        lambda head: attempts.following(db, head),
        started_since_sample,
    )
    tickets: list[Ticket] = []
    host_refused = False
    token = attempts.next_token(db, now)
    for decision in decisions:
        match decision:
            case Start(head):
                ticket = _claim(db, settings, head.job_id, token, boot_id, now)
                if ticket is not None:
                    attempts.note_start(db, decision, now)
                    tickets.append(ticket)
                    token += 1
            case Wait(_, reason):
                attempts.note_wait(db, decision, limits, now)
                host_refused = host_refused or reason in admission.HOST_REASONS
            case Park():
                attempts.park(db, decision, limits, now)
    if tickets:
        attempts.keep_token(db, token - 1)
    return Pass(tickets, host_refused)


def _claim(
    db: apsw.Connection, settings: Settings, job_id: int, token: int, boot_id: str, now: int
) -> Ticket | None:
    claim = attempts.claim(db, job_id, token, now)
    if claim is None:
        return None
    kind = settings.kind(claim.kind, claim.band_name)
    timeout_ms = kind.timeout_ms if claim.timeout_ms is None else claim.timeout_ms
    log = log_name(claim, token)
    attempts.open_attempt(
        db,
        claim,
        token,
        now,
        boot_id=boot_id,
        lease_ms=kind.lease_ms,
        grace_ms=kind.grace_ms,
        timeout_ms=timeout_ms,
        heartbeat=kind.heartbeat,
        log=log,
    )
    return Ticket(claim, token, log, kind, timeout_ms)
