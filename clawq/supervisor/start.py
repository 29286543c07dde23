"""From a claimed row to a running agent: its command, its environment, its files, and the spawn."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import NamedTuple

from clawq.errors import UsageError
from clawq.host import agent as host_agent
from clawq.host.agent import CannotStart, SpawnFailed
from clawq.paths import Home, as_utf8
from clawq.placeholders import fill
from clawq.settings import Kind, Settings
from clawq.store.attempts import Claim
from clawq.supervisor.agents import Agent, job_files
from clawq.supervisor.end import remove
from clawq.supervisor.environ import Environments

NULL_PAYLOAD = "null.payload"
"""One file for every job without a payload, beside the others."""
NULL = "null"


class Ticket(NamedTuple):
    """A claim that was committed: its token and log, still to be spawned."""

    claim: Claim
    token: int
    log: str
    kind: Kind
    timeout_ms: int


class NotStarted(NamedTuple):
    """A claim that did not become a process. ``no_room``: the machine's fault, it costs no attempt."""

    ticket: Ticket
    no_room: bool
    error: str


def start(
    ticket: Ticket, settings: Settings, home: Home, environments: Environments, mono: int
) -> Agent | NotStarted:
    """Spawn a claimed job's agent."""
    claim, token = ticket.claim, ticket.token
    files = job_files(home, token)
    agent = Agent(
        token=token,
        job_id=claim.job_id,
        number=claim.number,
        kind=claim.kind,
        log=f"{home.logs}/{ticket.log}",
        lease_ms=ticket.kind.lease_ms,
        grace_ms=ticket.kind.grace_ms,
        timeout_ms=ticket.timeout_ms,
        heartbeat=ticket.kind.heartbeat,
        deadline_at=claim.deadline_at,
        started=mono,
        last_sign=mono,
        owned=True,
        pid=None,
        probe=None,
    )
    agent.follow(ticket.kind)
    try:
        files["payload"] = payload_file(home, files["payload"], claim.payload)
        env = environments.of(claim, token, ticket.kind, settings, files, home)
        argv = command(claim, ticket.kind, as_utf8(files["payload"]))
        agent.pid, agent.probe = host_agent.spawn(argv, claim.cwd, env, agent.attempt_path(home), agent.log)
    except SpawnFailed as failure:
        return NotStarted(ticket, no_room=True, error=str(failure))
    except OSError as failure:
        # Its payload's file could not be written: no job is to blame for the disk.
        return NotStarted(ticket, no_room=True, error=host_agent.machine_fault(failure))
    except (CannotStart, UsageError, ValueError) as failure:
        return NotStarted(ticket, no_room=False, error=f"cannot be started: {failure}")
    return agent


def prepare_run_folder(home: Home) -> None:
    """The folders and the file that every start expects."""
    for folder in (home.run, home.logs):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    payload_file(home, "", None)


def payload_file(home: Home, own: str, payload: str | None) -> str:
    """Where an agent finds its payload: its `own` file, or for those without one a file that all share.

    Whoever takes that for his own, writes into it or removes it, spoils it for nobody that starts later.
    """
    if payload is not None:
        _write_private(own, payload)
        return own
    shared = f"{home.run}/{NULL_PAYLOAD}"
    if not _holds_null(shared):
        remove(shared)
        _write_private(shared, NULL, 0o400)
    return shared


def _holds_null(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(NULL) + 1) == NULL.encode()
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _write_private(path: str, text: str, mode: int = 0o600) -> None:
    """A file that nobody else may read."""
    # Without waiting, should somebody have put a pipe there.
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def command(claim: Claim, kind: Kind, payload_file: str) -> list[str]:
    """The argv: the job's own as it was given, or its kind's with the placeholders filled."""
    if claim.command is not None:
        return _words(claim.command)
    if kind.command is None:
        raise CannotStart(f"kind {claim.kind} has no command any more: add one to clawq.toml and retry")
    return fill(kind.command, placeholder_values(claim, payload_file))


@lru_cache(maxsize=16)
def _words(command: str) -> list[str]:
    """Of a batch all may have the same."""
    return [str(word) for word in json.loads(command)]


def placeholder_values(claim: Claim, payload_file: str) -> dict[str, object]:
    """What the placeholders of a configured command stand for."""
    return {
        "payload": claim.payload,
        "payload_file": payload_file,
        "job_id": claim.job_id,
        "attempt": claim.number,
    }
