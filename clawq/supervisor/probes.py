"""Asking a kind's probe about its unknown jobs: did it happen?

A probe is started like an agent, under the shell that keeps a locked file: its end and its exit code are read
there, so that whoever collects our children need not know of it. It has no token, and is no attempt. Each job
is asked about once for each time it becomes unknown; a probe that did not get to answer (no room to start it,
a supervisor that stopped) is asked anew.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import apsw

from clawq.errors import UsageError
from clawq.host import agent as host_agent
from clawq.host import attempt_file, output, processes
from clawq.host.agent import CannotStart, SpawnFailed
from clawq.host.processes import Process
from clawq.paths import Home
from clawq.placeholders import fill
from clawq.rules import retry
from clawq.settings import Kind, Settings
from clawq.store import probes
from clawq.store.probes import Due
from clawq.supervisor.end import KILL_AGAIN_MS, remove
from clawq.supervisor.settle import Draw, policy_of
from clawq.supervisor.start import NULL_PAYLOAD, environment, placeholder_values, write_private

AT_ONCE = 2
ANSWER_WITHIN_MS = 30_000
GRACE_MS = 2_000
MOST_OUTPUT = 1 << 20
"""Bytes; only the last line is kept."""
AGAIN_MS = 5_000
"""After a start for which the machine had no room."""
SWEEP_PAUSE_MS = 50
HAPPENED, DID_NOT = 0, 1
PREFIX = "probe."
AGENTS_ONLY = ("CLAWQ_TOKEN", "CLAWQ_HEARTBEAT_FILE", "CLAWQ_RESULT_FILE", "CLAWQ_DEADLINE")

Key = tuple[int, int]
"""(job, number of the attempt that left it unknown)."""


class Answer(NamedTuple):
    """``exit_code`` None: it gave none."""

    exit_code: int | None
    said: str


@dataclass(slots=True)
class Asked:
    """A probe under way. Times are ms of the monotonic clock."""

    path: str
    """Of its files in the run folder, without what tells them apart."""
    mark: str
    pid: int
    lock: int
    started: int
    leader: Process | None = None
    failure: str | None = None
    """Why it is being ended."""
    signal_at: int | None = None
    """When the next signal is due."""


class Probes:
    """Every probe of one supervisor: poll() looks, record() writes, committed() starts, stop() ends."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.asked: dict[Key, Asked] = {}
        self.answers: dict[Key, Answer] = {}
        """Not yet committed."""
        self.look_again: int | None = None
        self._closed_until: int | None = None

    def poll(self, mono: int) -> None:
        """Look at each once: take the answers of those that ended, end those that hang. After reap()."""
        self.look_again = self._closed_until
        for key, asked in list(self.asked.items()):
            if attempt_file.is_locked(asked.lock):
                self._keep_in_bounds(asked, mono)
            elif not self._sweep(asked, mono):
                self._take_answer(key, asked, mono)

    def owes(self, mono: int) -> bool:
        """Whether there is something for record()."""
        return bool(self.answers) or (self._closed_until is not None and mono >= self._closed_until)

    def record(
        self, db: apsw.Connection, settings: Settings, starting: bool, now: int, draw: Draw
    ) -> list[Due]:
        """Inside the turn's transaction: write the answers down; whom to ask next, once it is committed.

        `starting`: new ones may be asked.
        """
        for key, answer in self.answers.items():
            if probes.forget(db, *key):
                _settle(db, settings, key, answer, now, draw)
        for key, asked in self.asked.items():
            if asked.failure is None and not probes.is_due(db, *key):
                asked.failure, asked.signal_at = "nobody asks any more", 0
        room = AT_ONCE - len(self.asked) if starting else 0
        return self._choose(db, settings, room)

    def _choose(self, db: apsw.Connection, settings: Settings, room: int) -> list[Due]:
        """Those to be asked next. Where there is no probe there is nothing to wait for."""
        while True:
            wanted: list[Due] = []
            mute = 0
            for due in probes.due(db, 2 * AT_ONCE):
                if _kind(settings, due).reconcile is None:
                    mute += probes.forget(db, due.job.job_id, due.number)
                elif _key(due) not in self.asked:
                    wanted.append(due)
            if not mute:
                return wanted[: max(0, room)]

    def committed(
        self, wanted: list[Due], settings: Settings, base_env: Mapping[str, str], mono: int
    ) -> None:
        """What record() wrote is on disk: forget the answers, and ask those that it chose."""
        self.answers.clear()
        if self._closed_until is not None and mono < self._closed_until:
            return
        self._closed_until = None
        for due in wanted:
            self._ask(due, settings, base_env, mono)

    def stop(self) -> None:
        """End all at once. Their jobs are asked about by the next supervisor."""
        for asked in self.asked.values():
            asked.leader = asked.leader or host_agent.leader_of(asked.pid)
            host_agent.signal_tree(asked.leader, asked.mark, signal.SIGKILL)
            _forget(asked)
        self.asked.clear()

    def end_leftovers(self) -> None:
        """End the probes of a supervisor that was killed, and remove the files of all."""
        for name in os.listdir(self.home.run):
            if not name.startswith(PREFIX):
                continue
            path = os.path.join(self.home.run, name)
            lock = attempt_file.open_probe(path) if name.endswith(attempt_file.SUFFIX) else None
            if lock is not None:
                if attempt_file.is_locked(lock):
                    # The shell that holds the lock lives, so its number is still its own.
                    leader = host_agent.leader_of(attempt_file.read(lock).pid)
                    host_agent.signal_tree(leader, _mark(name), signal.SIGKILL)
                os.close(lock)
            remove(path)

    # ------------------------------------------------------------------ one probe

    def _ask(self, due: Due, settings: Settings, base_env: Mapping[str, str], mono: int) -> None:
        claim, kind = due.job, _kind(settings, due)
        path = os.path.join(self.home.run, f"{PREFIX}{claim.job_id}.{due.number}")
        asked = Asked(path, _mark(os.path.basename(path)), 0, -1, mono)
        files = {"payload": f"{path}.payload", "heartbeat": "", "result": ""}
        try:
            if claim.payload is None:
                files["payload"] = os.path.join(self.home.run, NULL_PAYLOAD)
            else:
                write_private(files["payload"], claim.payload)
            assert kind.reconcile is not None
            argv = fill(kind.reconcile, placeholder_values(claim, files["payload"]))
            env = environment(claim, 0, kind, settings, files, self.home, base_env)
            for name in AGENTS_ONLY:
                env.pop(name, None)
            name, _, value = asked.mark.partition("=")
            env[name] = value
            asked.pid, asked.lock = host_agent.spawn(
                argv, claim.cwd, env, path + attempt_file.SUFFIX, f"{path}.log"
            )
        except SpawnFailed:
            _forget(asked)
            self._closed_until = self.look_again = mono + AGAIN_MS
        except (CannotStart, UsageError, OSError, ValueError) as failure:
            _forget(asked)
            said = output.one_line(f"cannot be started: {failure}")
            self.answers[_key(due)] = Answer(None, said)
            self.look_again = mono
        else:
            self.asked[_key(due)] = asked
            self._look_at(mono + ANSWER_WITHIN_MS)

    def _keep_in_bounds(self, asked: Asked, mono: int) -> None:
        """Of one that lives: TERM when it takes too long or writes too much, KILL after the grace."""
        if asked.failure is None:
            if mono - asked.started >= ANSWER_WITHIN_MS:
                asked.failure = f"did not answer within {ANSWER_WITHIN_MS // 1000} s"
            elif _size(f"{asked.path}.log") > MOST_OUTPUT:
                asked.failure = "wrote more than anybody reads"
            else:
                self._look_at(asked.started + ANSWER_WITHIN_MS)
                return
            asked.signal_at = mono
        if asked.signal_at is not None and mono >= asked.signal_at:
            first = asked.leader is None
            asked.leader = asked.leader or host_agent.leader_of(asked.pid)
            number = signal.SIGTERM if first else signal.SIGKILL
            host_agent.signal_tree(asked.leader, asked.mark, number)
            asked.signal_at = mono + (GRACE_MS if first else KILL_AGAIN_MS)
        self._look_at(asked.signal_at or mono)

    def _sweep(self, asked: Asked, mono: int) -> bool:
        """End what a probe left behind; whether there was anything."""
        left = host_agent.left_behind(asked.pid, asked.mark, leader_alive=False)
        for process in left:
            processes.send(process, signal.SIGKILL)
        if left:
            self._look_at(mono + SWEEP_PAUSE_MS)
        return bool(left)

    def _take_answer(self, key: Key, asked: Asked, mono: int) -> None:
        reading = attempt_file.read(asked.lock)
        last = output.last_lines(f"{asked.path}.log").splitlines()[-1:]
        _forget(asked)
        del self.asked[key]
        if asked.failure is not None:
            self.answers[key] = Answer(None, asked.failure)
        elif reading.exit_code is None:
            self.answers[key] = Answer(None, "was killed")
        elif reading.pid is None:
            self._closed_until = mono + AGAIN_MS  # its shell could not fork
            self._look_at(self._closed_until)
        else:
            self.answers[key] = Answer(reading.exit_code, output.one_line(last[0]) if last else "")

    def _look_at(self, at: int) -> None:
        self.look_again = at if self.look_again is None else min(self.look_again, at)


def _settle(db: apsw.Connection, settings: Settings, key: Key, answer: Answer, now: int, draw: Draw) -> None:
    """What an answer means for its job, which is still unknown."""
    job_id, number = key
    row = probes.policy(db, job_id)
    if row is None:
        return
    said = f": {answer.said}" if answer.said else ""
    if answer.exit_code == HAPPENED:
        probes.it_happened(db, job_id, f"its probe says that it happened{said}", now)
    elif answer.exit_code == DID_NOT:
        policy = policy_of(row, settings.kind(row.kind, row.band_name))
        end = probes.last_end(db, job_id, number)
        decision = retry.after_probe(end, row.attempts, policy, bool(row.cancel), now, draw())
        reason = f"{decision.reason}; its probe says that it did not happen{said}"
        probes.it_did_not(db, job_id, decision, reason, now)
    elif answer.exit_code is not None:
        probes.nobody_knows(db, job_id, f"its probe could not tell: exit {answer.exit_code}{said}", now)
    else:
        probes.nobody_knows(db, job_id, f"its probe {answer.said}", now)


def _key(due: Due) -> Key:
    return due.job.job_id, due.number


def _kind(settings: Settings, due: Due) -> Kind:
    return settings.kind(due.job.kind, due.job.band_name)


def _mark(name: str) -> str:
    """The entry of the environment that a probe's processes are known by."""
    return f"CLAWQ_PROBE={name.removesuffix(attempt_file.SUFFIX)}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _forget(asked: Asked) -> None:
    if asked.lock >= 0:
        os.close(asked.lock)
    for suffix in (attempt_file.SUFFIX, ".log", ".payload"):
        remove(asked.path + suffix)
