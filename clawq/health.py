"""Whether anything needs a person: the queue's facts, the logs' and the supervisor's, judged by one rule.

`clawq status`, `clawq doctor` and the supervisor's notices all ask here, so that they say the same.
"""

from __future__ import annotations

import os

from clawq.rules import alerts
from clawq.rules.alerts import Alert
from clawq.store import alerts as store

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

    from clawq.host.instance import Supervisor
    from clawq.settings import Settings
    from clawq.store.views import Row


ENDING = ("drain", "now", "handover", "upgrade")
"""Modes of a supervisor that starts nothing any more."""


def add_silence(status: Row, logs: str, now: int) -> None:
    """``quiet_s`` of what runs: since it last wrote anything, or was seen to compute. One stat for each."""
    for row in status["running"]:
        signs = [] if row["worked_at"] is None else [row["worked_at"]]
        try:
            signs.append(os.stat(os.path.join(logs, row["log"])).st_mtime_ns // 1_000_000)
        except OSError:
            pass
        if signs:
            row["quiet_s"] = max(0.0, round((now - max(signs)) / 1000, 1))


def alarms(
    db: apsw.Connection | None,
    settings: Settings,
    status: Row,
    now: int,
    supervisor: Supervisor,
    broken: str | None,
) -> list[Alert]:
    """What is wrong, the worst first. `status` is a document of ``views.status`` after add_silence().

    `broken`: what is wrong with clawq.toml.
    """
    facts = store.facts(db, settings, status, now)
    return alerts.alerts(
        facts._replace(
            broken=broken,
            pid=supervisor.pid,
            silent_ms=supervisor.silent_ms,
            ticking=supervisor.running,
            ending=supervisor.mode in ENDING,
        )
    )
