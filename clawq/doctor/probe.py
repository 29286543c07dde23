"""A job that looks around where jobs run: which PATH, which limits, which of the kinds' programs it finds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from clawq import states as job
from clawq.client import Producer
from clawq.doctor import Patient
from clawq.errors import ClawqError
from clawq.host import output
from clawq.rules.checks import BAD, OK, WARN, Check
from clawq.store import views

WITHIN_S = 20.0
_LOOK_S = 0.05
# dash, the sh of Debian, has -p for what others call -u.
_SCRIPT = """echo "path $PATH"
echo "limits $(ulimit -u 2>/dev/null || ulimit -p 2>/dev/null || echo -) processes, $(ulimit -n) open files"
for each do command -v -- "$each" >/dev/null || echo "missing $each"; done"""


def check(patient: Patient) -> list[Check]:
    """Enqueue it, in band critical, and wait for its word. Never raises what the queue refuses."""
    if not patient.supervisor.running or patient.db is None:
        return [Check("probe", WARN, "not run: no supervisor ticks", "start one with `clawq run`")]
    try:
        return _judge(_ask(patient, _programs(patient)))
    except ClawqError as error:
        return [Check("probe", BAD, output.one_line(str(error)), "")]


def _programs(patient: Patient) -> list[str]:
    kinds = (patient.settings.kind(name) for name in patient.settings.kind_names)
    return sorted({kind.command[0] for kind in kinds if kind.command and "{" not in kind.command[0]})


def _ask(patient: Patient, programs: Sequence[str]) -> tuple[str, str]:
    """(state, output) of the job when it has ended, or when nobody waits any longer."""
    own = os.environb.pop(b"PATH", None)  # a job of ours would bring it along
    try:
        with Producer(patient.home) as producer:
            receipt = producer.enqueue(
                {
                    "command": ["/bin/sh", "-c", _SCRIPT, "clawq-doctor", *programs],
                    "band": "critical",
                    "tenant": "doctor",
                    "timeout": "10s",
                    "deadline": f"{WITHIN_S:.0f}s",
                    "max_attempts": "1",
                    "cwd": "/",
                }
            )
    finally:
        if own is not None:
            os.environb[b"PATH"] = own
    job_id = int(receipt.job_id or 0)
    db, state = patient.db, str(receipt.state)
    assert db is not None
    give_up = time.monotonic() + WITHIN_S
    while time.monotonic() < give_up:
        state = views.state_of(db, job_id)
        if state in job.SETTLED:
            break
        time.sleep(_LOOK_S)
    logs = [os.path.join(patient.home.logs, row["log"]) for row in views.attempts(db, job_id)]
    return state, output.last_lines(logs[-1]) if logs else ""


def _judge(found: tuple[str, str]) -> list[Check]:
    state, text = found
    if state != job.SUCCEEDED:
        what = f"a probe job came to nothing within {WITHIN_S:.0f} s: {state}"
        return [Check("probe", BAD, what, "`clawq list --tenant doctor`, `clawq why ID`")]
    lines = [line.partition(" ") for line in text.splitlines()]
    missing = [rest for word, _, rest in lines if word == "missing"]
    checks = [
        Check("probe", OK, f"a job {'sees PATH' if word == 'path' else 'is allowed'} {rest}")
        for word, _, rest in lines
        if word in ("path", "limits")
    ]
    fix = "give its full path, or set PATH in [env]"
    return checks + [Check("probe", BAD, f"a job does not find {each!r}", fix) for each in missing]
