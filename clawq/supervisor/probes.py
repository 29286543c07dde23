"""Asking a kind's probe about its unknown jobs: did it happen?

A probe is an errand: it has no token, and is no attempt. Each job is asked about once for each time it
becomes unknown; a probe that did not get to answer (no room, a supervisor that stopped) is asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from clawq.paths import Home
from clawq.placeholders import fill
from clawq.rules import retry
from clawq.settings import Kind, Settings
from clawq.store import probes
from clawq.store.probes import Due
from clawq.supervisor.environ import environment
from clawq.supervisor.errands import AT_ONCE, Answer, Errand, Errands, Order
from clawq.supervisor.settle import Draw, policy_of
from clawq.supervisor.start import payload_file, placeholder_values

HAPPENED, DID_NOT = 0, 1

Key = tuple[int, int]
"""(job, number of the attempt that left it unknown)."""


class Probes:
    """Every probe of one supervisor: poll() looks, record() writes, committed() starts, stop() ends."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.errands: Errands[Key] = Errands(home.run, "probe")
        self.answers: dict[Key, Answer] = {}
        """Not yet committed."""

    @property
    def asked(self) -> dict[Key, Errand]:
        return self.errands.under_way

    @property
    def look_again(self) -> int | None:
        return self.errands.look_again

    def poll(self, mono: int) -> None:
        """Look at each once: take the answers of those that ended, end those that hang. After reap()."""
        for key, answer in self.errands.poll(mono).items():
            if answer is not None:
                self.answers[key] = answer

    def owes(self, mono: int) -> bool:
        """Whether there is something for record()."""
        closed_until = self.errands.closed_until
        return bool(self.answers) or (closed_until is not None and mono >= closed_until)

    def record(
        self, db: apsw.Connection, settings: Settings, starting: bool, now: int, draw: Draw
    ) -> list[Due]:
        """Inside the turn's transaction: write the answers down; whom to ask next, once it is committed.

        `starting`: new ones may be asked.
        """
        for key, answer in self.answers.items():
            if probes.forget(db, *key):
                _settle(db, settings, key, answer, now, draw)
        for key in self.asked:
            if not probes.is_due(db, *key):
                self.errands.abandon(key, "nobody asks any more")
        return self._choose(db, settings, self.errands.room if starting else 0)

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
                return wanted[:room]

    def committed(
        self, wanted: list[Due], settings: Settings, base_env: Mapping[str, str], mono: int
    ) -> None:
        """What record() wrote is on disk: forget the answers, and ask those that it chose."""
        self.answers.clear()
        if self.errands.is_closed(mono):
            return
        self.errands.closed_until = None
        for due in wanted:
            self._ask(due, settings, base_env, mono)

    def stop(self) -> None:
        """End all at once. Their jobs are asked about by the next supervisor."""
        self.errands.stop()

    def end_leftovers(self) -> None:
        """End the probes of a supervisor that was killed, and remove the files of all."""
        self.errands.end_leftovers()

    def _ask(self, due: Due, settings: Settings, base_env: Mapping[str, str], mono: int) -> None:
        claim, kind = due.job, _kind(settings, due)

        def prepare(path: str) -> Order:
            files = {"heartbeat": "", "result": ""}
            files["payload"] = payload_file(self.home, f"{path}.payload", claim.payload)
            assert kind.reconcile is not None
            argv = fill(kind.reconcile, placeholder_values(claim, files["payload"]))
            return Order(argv, claim.cwd, environment(claim, 0, kind, settings, files, self.home, base_env))

        failure = self.errands.begin(_key(due), f"{claim.job_id}.{due.number}", prepare, mono)
        if failure is not None:
            self.answers[_key(due)] = failure


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
