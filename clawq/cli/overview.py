"""The document of `clawq status`, and `clawq status --json` itself, which scripts ask for each second.

For them alone `typing`, `json` and `re` are not loaded here, nor by anything that is imported here.
"""

from __future__ import annotations

from clawq import desk, health, paths
from clawq import states as job
from clawq.cli import words
from clawq.settings import Settings, gate
from clawq.store import accounts, today, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawq.desk import Desk

Document = dict[str, "Any"]


def main(argv: list[str]) -> int:
    """``clawq status --json``."""
    words.write_json(public(look()))
    return 0


def look() -> Document:
    """The document of ``status --json``, times in ms, with ``pauses``, ``now`` and ``ever`` besides."""
    with desk.reading() as here:
        return look_from(here, *here.settings())


def look_from(here: Desk, settings: Settings, broken: str | None) -> Document:
    """The same, from a desk that is open; `broken` says what is wrong with clawq.toml."""
    document = views.status(here.db, settings, here.now)
    found = here.supervisor()
    supervisor = document["supervisor"] = found._asdict()
    if supervisor["mode"] == "run" and document["observed"]["since"] is not None:
        supervisor["mode"] = "observe"
    queued = document["counts"][job.QUEUED]
    if queued and not supervisor["running"]:
        # What the lanes were told is only as good as whoever would tell them something new.
        document["waiting_on"] = [{"reason": "no_supervisor", "jobs": queued, "retry_after_s": None}]
    document["host"] = _host(settings, here.home.data)
    document["now"] = here.now
    document["ever"] = here.db is not None
    document["ended"], document["deferred"] = today.today(here.db, _midnight(here.now))
    health.add_silence(document, here.home.logs, here.now)
    alerts = health.alarms(here.db, settings, document, here.now, found, broken)
    document["alerts"] = [{"reason": each.reason, "text": each.text, "fix": each.fix} for each in alerts]
    return document


PUBLIC = (
    "supervisor",
    "counts",
    "depth",
    "running",
    "waiting_on",
    "refused",
    "ended",
    "deferred",
    "resources",
    "budgets",
    "observed",
    "host",
    "alerts",
)
_PRIVATE = {
    "running": ("log", "worked_at", "exclusive", "cancel_at"),
    "waiting_on": ("job_id",),
    "depth": ("until",),
}
_PRIVATE_HOST = ("min_free_mb", "min_free_disk_mb", "max_pressure")


def public(document: Document) -> Document:
    """Without what only the page needs."""
    public = {key: document[key] for key in PUBLIC}
    for table, private in _PRIVATE.items():
        public[table] = [
            {key: value for key, value in row.items() if key not in private} for row in document[table]
        ]
    public["host"] = {key: value for key, value in document["host"].items() if key not in _PRIVATE_HOST}
    return public


def _midnight(now: int) -> int:
    """The last local one, epoch ms."""
    import time

    year, month, day = time.localtime(now / 1000)[:3]
    return int(time.mktime((year, month, day, 0, 0, 0, 0, 0, -1))) * 1000


def _host(settings: Settings, folder: str) -> Document:
    """What the gates look at, and where they close. `folder` lies on the disk that they ask about."""
    from clawq.host import load

    limit = settings.host.max_user_procs
    found: Document = {
        "user_procs": None,
        "max_user_procs": gate(limit),
        "tasks": None,
        "free_mb": None,
        "pressure": None,
        "free_disk_mb": None,
        "min_free_mb": gate(settings.host.min_free_mb),
        "min_free_disk_mb": gate(settings.host.min_free_disk_mb),
        "max_pressure": settings.host.max_pressure,
    }
    try:
        if limit is None:
            found["max_user_procs"] = load.default_max_user_procs()
        sample = load.sample(paths.nearest(folder))
        found.update(user_procs=sample.user_procs, free_mb=sample.free_mb, free_disk_mb=sample.free_disk_mb)
        if limit is None and sample.tasks is not None:
            found["tasks"] = sample.tasks._asdict()
        found["pressure"] = accounts.pressure(sample.pressure)
    except Exception:  # a machine in trouble is when people ask: whatever cannot be measured is left out
        pass
    return found
