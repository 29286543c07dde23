"""`clawq doctor`: is all well? Every check in a line, every alert with what to do; exit 1 for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from clawq import __version__, desk, health
from clawq import states as job
from clawq.cli import params, words
from clawq.doctor import Patient, crontab, machine, places, probe, programs
from clawq.errors import ClawqError
from clawq.host import instance
from clawq.host.instance import Supervisor
from clawq.paths import find_home
from clawq.rules import checks
from clawq.rules.alerts import Alert
from clawq.rules.checks import BAD, OK, WARN, Check
from clawq.store import checkup, views
from clawq.store.checkup import Seen

if TYPE_CHECKING:
    from clawq.cli.render import Page
    from clawq.settings import Settings

COVERED = frozenset({"config", "no_supervisor", "supervisor_silent"})
"""Alerts that a check says too, so that the page says them once."""


class ServiceFile(NamedTuple):
    """What stands in the service's file, without asking its manager."""

    file: str | None
    installed: bool
    differs: bool | None
    path: str | None
    problem: str | None


class Found(NamedTuple):
    checks: list[Check]
    alerts: list[Alert]

    @property
    def more(self) -> list[Alert]:
        """Alerts that no check says."""
        return [alert for alert in self.alerts if alert.reason not in COVERED]

    @property
    def needs_person(self) -> bool:
        bad = any(each.verdict == BAD for each in self.checks)
        return bad or any(alert.needs_person for alert in self.alerts)


def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="Also run a small job, to see what jobs see: PATH, limits.")
    ] = False,
    as_json: params.AsJson = False,
) -> int:
    """Check the supervisor, the service, the machine and the queue. Exit 1 when something needs a person."""
    found = examine(probe)
    if as_json:
        words.write_json(document(found))
    else:
        page(found).print()
    return 1 if found.needs_person else 0


def document(found: Found) -> dict[str, Any]:
    """For programs."""
    return {
        "ok": not found.needs_person,
        "checks": [each._asdict() for each in found.checks],
        "alerts": [{"reason": each.reason, "text": each.text, "fix": each.fix} for each in found.alerts],
    }


def examine(with_probe: bool = False) -> Found:
    """Look at everything. A database that cannot be opened is a finding, and no end of the others."""
    try:
        with desk.reading() as here:
            return _examine(here, with_probe)
    except ClawqError as error:
        home = find_home()
        found = _examine(desk.Desk(home, None, desk.now_ms()), False)
        return found._replace(checks=[_failure("database", error), *found.checks])


def _examine(here: desk.Desk, with_probe: bool) -> Found:
    settings, broken = here.settings()
    status = views.status(here.db, settings, here.now)
    health.add_silence(status, here.home.logs, here.now)
    supervisor = here.supervisor()
    alerts = health.alarms(here.db, settings, status, here.now, supervisor, broken)
    holder = instance.read(here.home.lock) if supervisor.pid is not None else None
    seen = Seen(0, frozenset(), {}, None) if here.db is None else checkup.look(here.db)
    version = holder.version if holder else ""
    patient = Patient(here.home, here.db, settings, supervisor, version, seen, here.now)
    service = _service_file()
    waiting = status["counts"][job.QUEUED] + status["counts"][job.SCHEDULED]
    looks: list[tuple[str, Callable[[], list[Check]]]] = [
        ("supervisor", lambda: [_supervisor(supervisor, version, waiting, here.now)]),
        ("service", lambda: [_service(service, supervisor.running)]),
        ("config", lambda: [_config(here, broken)]),
        ("places", lambda: places.check(patient)),
        ("path", lambda: programs.check(patient, service.path)),
        ("machine", lambda: machine.check(patient)),
        ("crontab", lambda: [crontab.check(_scheduled(settings))]),
    ]
    if with_probe:
        looks.append(("probe", lambda: probe.check(patient)))
    found: list[Check] = []
    for name, look in looks:
        try:
            found += look()
        except (ClawqError, OSError) as error:
            found.append(_failure(name, error))
    return Found(found, alerts)


def _supervisor(found: Supervisor, version: str, waiting: int, now: int) -> Check:
    up_s = 0.0 if found.since is None else max(0, now - found.since) / 1000
    silent_s = found.last_tick_age_s or 0.0
    return checks.supervisor(found.pid, found.running, silent_s, up_s, version, __version__, waiting)


def _config(here: desk.Desk, broken: str | None) -> Check:
    import os

    return checks.config(here.home.config, os.path.lexists(here.home.config), broken)


def _service_file() -> ServiceFile:
    from clawq.cli import service

    try:
        return ServiceFile(*service.written(service.plan_here()), None)
    except (ClawqError, OSError) as error:
        return ServiceFile(None, False, None, None, words.line(str(error)))


def _service(found: ServiceFile, ticking: bool) -> Check:
    return checks.service(found.file, found.installed, found.differs, found.problem, ticking)


def _scheduled(settings: Settings) -> list[str]:
    return [each.kind for each in settings.schedules]


def _failure(name: str, error: Exception) -> Check:
    if isinstance(error, ClawqError):
        what, _, fix = str(error).partition(": ")
        return Check(name, BAD, what, fix) if fix else Check(name, BAD, what)
    return Check(name, WARN, f"could not be looked at: {error}")


def page(found: Found) -> Page:
    """For people: what needs one comes first."""
    from clawq.cli.render import BAD as RED
    from clawq.cli.render import GOOD, QUIET, WAITS, Page

    drawn = Page()
    urgent = [alert for alert in found.more if alert.needs_person]
    known = [alert for alert in found.more if not alert.needs_person]
    for verdict, title, style, alerts in (
        (BAD, "Needs a person", RED, urgent),
        (WARN, "Worth a look", WAITS, known),
        (OK, "Fine", GOOD, []),
    ):
        said = [each for each in found.checks if each.verdict == verdict]
        if not said and not alerts:
            continue
        drawn.gap()
        drawn.line((title, style))
        for alert in alerts:
            drawn.pair("alert", alert.text, (f": {alert.fix}" if alert.fix else "", QUIET))
        for check in said:
            drawn.pair(check.name, check.text, (f": {check.fix}" if check.fix else "", QUIET))
    drawn.gap()
    drawn.line(_verdict(found))
    return drawn


def _verdict(found: Found) -> tuple[str, str]:
    from clawq.cli.render import BAD as RED
    from clawq.cli.render import GOOD, WAITS

    bad = sum(each.verdict == BAD for each in found.checks)
    bad += sum(alert.needs_person for alert in found.more)
    warned = sum(each.verdict == WARN for each in found.checks)
    if bad:
        return f"{_things(bad)} a person", RED
    if warned:
        return f"nothing needs a person; {warned} worth a look", WAITS
    return "all is well", GOOD


def _things(count: int) -> str:
    return "1 thing needs" if count == 1 else f"{count} things need"
