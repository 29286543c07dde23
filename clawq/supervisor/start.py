"""From a claimed row to a running agent: its command, its environment, its files, and the spawn."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from clawq.errors import UsageError
from clawq.host import agent as host_agent
from clawq.host.agent import CannotStart, SpawnFailed
from clawq.paths import Home, as_bytes, as_utf8, own_folder
from clawq.placeholders import fill
from clawq.settings import Kind, Settings
from clawq.store.attempts import Claim
from clawq.supervisor.agents import Agent, job_files
from clawq.supervisor.end import remove

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


def log_name(claim: Claim, token: int) -> str:
    return f"{claim.job_id}.{claim.number}.{token}.log"


def start(
    ticket: Ticket, settings: Settings, home: Home, base_env: Mapping[str, str], mono: int
) -> Agent | NotStarted:
    """Spawn a claimed job's agent."""
    claim, token = ticket.claim, ticket.token
    files = job_files(home, token)
    agent = Agent(
        token=token,
        job_id=claim.job_id,
        number=claim.number,
        kind=claim.kind,
        log=os.path.join(home.logs, ticket.log),
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
        env = environment(claim, token, ticket.kind, settings, files, home, base_env)
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
    shared = os.path.join(home.run, NULL_PAYLOAD)
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
        return [str(word) for word in json.loads(claim.command)]
    if kind.command is None:
        raise CannotStart(f"kind {claim.kind} has no command any more: add one to clawq.toml and retry")
    return fill(kind.command, placeholder_values(claim, payload_file))


def placeholder_values(claim: Claim, payload_file: str) -> dict[str, object]:
    """What the placeholders of a configured command stand for."""
    return {
        "payload": claim.payload,
        "payload_file": payload_file,
        "job_id": claim.job_id,
        "attempt": claim.number,
    }


def environment(
    claim: Claim,
    token: int,
    kind: Kind,
    settings: Settings,
    files: Mapping[str, str],
    home: Home,
    base: Mapping[str, str],
) -> dict[str, str]:
    """What the agent sees: ours without CLAWQ_ names, then [env], the kind's, the job's, and our own."""
    env = {name: value for name, value in base.items() if not name.startswith("CLAWQ_")}
    if claim.path is not None:
        env["PATH"] = claim.path
    env |= settings.env
    env |= kind.env
    if kind.env_file is not None:
        env |= read_env_file(kind.env_file)
    if claim.env is not None:
        env |= json.loads(claim.env)
    env["PATH"] = with_own_folder(env.get("PATH") or os.defpath)
    env |= {
        "CLAWQ_JOB_ID": str(claim.job_id),
        "CLAWQ_ATTEMPT": str(claim.number),
        "CLAWQ_TOKEN": str(token),
        "CLAWQ_KIND": claim.kind,
        "CLAWQ_TENANT": claim.tenant,
        "CLAWQ_PAYLOAD_FILE": as_utf8(files["payload"]),
        "CLAWQ_HEARTBEAT_FILE": as_utf8(files["heartbeat"]),
        "CLAWQ_RESULT_FILE": as_utf8(files["result"]),
    }
    if base.get("CLAWQ_HOME"):
        env["CLAWQ_HOME"] = as_utf8(home.data)
    if claim.deadline_at is not None:
        env["CLAWQ_DEADLINE"] = str(claim.deadline_at // 1000)
    return env


def with_own_folder(path: str) -> str:
    """`path` with the folder of the `clawq` that runs at its end."""
    own = own_folder()
    return path if own in path.split(os.pathsep) else f"{path}{os.pathsep}{own}"


def read_env_file(path: str) -> dict[str, str]:
    """The ``K=V`` lines of a kind's env_file; blank lines, comments, `export` and quotes are understood.

    Raises CannotStart when others may read the file, or when it is not such a file.
    """
    try:
        # A pipe under this name must not hold up the supervisor.
        with open(os.open(as_bytes(path), os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise CannotStart(f"env_file {path} is not a plain file")
            if mode & 0o077:
                raise CannotStart(f"env_file {path} may be read by others: chmod 600 it")
            lines = file.read().splitlines()
    except OSError as error:
        raise CannotStart(f"env_file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotStart(f"env_file {path} is not UTF-8") from None
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise CannotStart(f"env_file {path}:{number}: expected NAME=VALUE")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name.strip()] = value
    return found
