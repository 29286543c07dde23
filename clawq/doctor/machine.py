"""What the account may have, what attempts left behind, and the clock."""

from __future__ import annotations

import os

from clawq.doctor import Patient
from clawq.host import ceiling, load, strays
from clawq.rules import checks
from clawq.rules.checks import Check


def check(patient: Patient) -> list[Check]:
    limits, asked = patient.settings.limits, patient.settings.host.max_user_procs
    pid = patient.supervisor.pid
    sample = load.sample(patient.home.data)
    in_use, gate = load.process_gate(sample, asked, load.default_max_user_procs())
    apart = frozenset({os.getpid(), *([pid] if pid else [])})
    left = strays.strays(patient.home.run, patient.seen.tokens, apart) if patient.db is not None else []
    return [
        checks.ceiling(asked, gate, ceiling.process_ceiling(), in_use),
        checks.room(limits.max_running, patient.seen.footprints, gate, in_use),
        checks.descriptors(strays.descriptor_limit(pid), limits.max_running),
        checks.orphans(left),
        checks.clock(_ahead_ms(patient), _jump_ms(patient)),
    ]


def _ahead_ms(patient: Patient) -> int:
    newest = patient.seen.newest
    try:
        if patient.supervisor.pid is not None:
            newest = max(newest, os.stat(patient.home.lock).st_mtime_ns // 1_000_000)
    except OSError:
        pass
    return newest - patient.now


def _jump_ms(patient: Patient) -> int | None:
    pid, since = patient.supervisor.pid, patient.supervisor.since
    return None if pid is None or since is None else strays.wall_ahead_ms(pid, since, patient.now)
