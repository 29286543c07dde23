"""Telling people: a kind's `notify` of its jobs that are dead, unknown or expired, [alerts] of alerts.

The first of a kind and state is told at once, those of the next minute together. What is told is written down
before the command is started, so that nothing is told twice; nothing here ever holds up the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import apsw

from clawq import health
from clawq.errors import UsageError
from clawq.host import output
from clawq.host.instance import Supervisor
from clawq.paths import Home
from clawq.placeholders import fill
from clawq.rules.alerts import Alert
from clawq.settings import Settings
from clawq.store import config_row, notices, views
from clawq.store.notices import STATES, Row
from clawq.supervisor.environ import environment_of_notice
from clawq.supervisor.errands import WITHIN_MS, Answer, Errands, Order

LOOK_MS = 1_000
AGAIN_MS = 60_000
"""The same kind and state, or the same reason of an alert, is told again after this long."""
ALERTS_MS = 5_000
"""Between looks at the alerts."""
OVER_MS = 600_000
"""An alert that stays away for so long is over; one that comes back sooner has never been away."""
MOST_WAITING = 100
"""Notices that wait for a place; more are only counted as told."""
UNTOLD = frozenset({"unknown", "paused"})
"""Alerts that need no notice: each unknown job has one of its own, and whoever pauses knows it."""


FLEETING = frozenset({"stuck", "full_and_idle"})
"""Alerts that a look between two moves may see: they count when the next look sees them too."""


class Notice(NamedTuple):
    """One command to run. `whose` says which `notify` it is, for complaints."""

    whose: str
    argv: list[str]
    env: Mapping[str, str] = {}
    env_file: str | None = None


class Notices:
    """Every notice of one supervisor: poll() looks, record() decides, begin() starts, stop() lets go."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.errands: Errands[int] = Errands(home.run, "notice")
        self.alerts: list[Alert] = []
        self.complaints: list[str] = []
        """To be said, each once while it lasts."""
        self._waiting: list[Notice] = []
        self._begun: dict[int, Notice] = {}
        self._failing: set[str] = set()
        self._number = 0
        self._look_at = 0
        self._alerts_at = 0
        self._leftovers_at = 0
        """When those that an earlier supervisor began have had their time."""
        self._fleeting: set[str] = set()
        """Those of FLEETING at the last look."""
        self._fresh = False
        """The alerts were looked at, and record() has not seen it."""
        self._away: dict[tuple[str, str], int] = {}
        self._silent = False
        """Nobody is told of anything, and the database knows."""

    @property
    def look_again(self) -> int | None:
        """On the monotonic clock, ms."""
        times = (self.errands.look_again, self._look_at, self._alerts_at, self._leftovers_at)
        due = [each for each in times if each]
        return min(due, default=None)

    @property
    def busy(self) -> bool:
        """Is somebody being told?"""
        return bool(self._waiting or self.errands.under_way)

    def poll(self, mono: int) -> None:
        """Look at each that runs, and complain of those that failed. After reap()."""
        if self._leftovers_at and mono >= self._leftovers_at:
            self.end_leftovers(mono)
        for number, answer in self.errands.poll(mono).items():
            notice = self._begun.pop(number)
            if answer is None:
                self._waiting.append(notice)  # it never ran
            else:
                self._judge(notice, answer)

    def look_at_alerts(
        self, db: apsw.Connection, settings: Settings, pid: int, mode: str, now: int, mono: int
    ) -> None:
        """Outside of any transaction, every few seconds, when somebody is told of alerts."""
        if settings.alerts.notify is None:
            self._alerts_at = 0
            return
        if mono < self._alerts_at:
            return
        self._alerts_at = mono + ALERTS_MS
        status = views.status(db, settings, now)
        health.add_silence(status, self.home.logs, now)
        me = Supervisor(True, pid, None, mode, 0.0)
        found = health.alarms(db, settings, status, now, me, config_row.load(db)[3])
        fleeting = {alert.reason for alert in found} & FLEETING
        first_seen = fleeting - self._fleeting
        self._fleeting = fleeting
        self.alerts = [alert for alert in found if alert.reason not in UNTOLD | first_seen]
        self._fresh = True

    def slept(self, mono: int) -> None:
        """The database does not know yet that the machine did: a look now would see what is none."""
        if self._alerts_at:
            self._alerts_at = mono + ALERTS_MS

    def owes(self, mono: int) -> bool:
        """Whether there is something for record()."""
        return self._fresh or bool(self._look_at and mono >= self._look_at)

    def record(self, db: apsw.Connection, settings: Settings, now: int, mono: int) -> list[Notice]:
        """Inside the turn's transaction: what is to be told, written down as told; for committed()."""
        if not settings.notifies:
            self._look_at = 0
            if not self._silent:
                notices.forget(db)
                self._silent = True
            return []
        self._silent = False
        more = notices.count(db, lambda kind, band: _template(settings, kind, band) is not None, now)
        rows = notices.rows(db)
        found: list[Notice] = []
        again = now + AGAIN_MS
        pending = False
        for row in rows:
            if row.word in STATES and row.pending:
                if now - row.told_at >= AGAIN_MS or row.told_at > now:
                    found += self._of_jobs(db, settings, row, now)
                else:
                    pending, again = True, min(again, row.told_at + AGAIN_MS)
        if self._fresh:
            found += self._of_alerts(db, settings, rows, now, mono)
        self._look_at = mono + LOOK_MS if more else mono + again - now if pending else 0
        return found

    def committed(self, found: list[Notice]) -> None:
        """What record() wrote is on disk: these are to be told."""
        self._fresh = False
        self._waiting += found[: MOST_WAITING - len(self._waiting)]

    def begin(self, base_env: Mapping[str, str], settings: Settings, mono: int) -> None:
        """Start those that wait, as far as there is room."""
        if self.errands.is_closed(mono):
            return
        self.errands.closed_until = None
        while self._waiting and self.errands.room:
            notice = self._waiting.pop(0)
            self._number += 1
            env = environment_of_notice(notice.env, notice.env_file, settings, self.home, base_env)
            order = Order(notice.argv, self.home.data, env)
            answer = self.errands.begin(self._number, f"{mono}.{self._number}", order.at, mono)
            if answer is not None:
                self._judge(notice, answer)
            elif self._number in self.errands.under_way:
                self._begun[self._number] = notice
            else:
                self._waiting.insert(0, notice)
                return

    def stop(self) -> None:
        """Those under way end by themselves, and are left alone by the next supervisor."""
        self.errands.release()

    def end_leftovers(self, mono: int) -> None:
        """Of an earlier supervisor: those that have had their time now, the others when they have."""
        some = self.errands.end_leftovers(WITHIN_MS)
        self._leftovers_at = mono + WITHIN_MS if some else 0

    # ------------------------------------------------------------------ what is told

    def _of_jobs(self, db: apsw.Connection, settings: Settings, row: Row, now: int) -> list[Notice]:
        job = notices.subject(db, row.job_id or 0)
        template = None if job is None else _template(settings, job.kind, job.band)
        if job is None or template is None:
            notices.over(db, row.word, row.about)
            return []
        notices.told(db, row.word, row.about, now)
        error = f": {job.error}" if job.error else ""
        text = f"{job.kind} job {job.job_id} is {row.word}{error}{_more(row.pending - 1)}"
        values = {
            "text": output.one_line(text),
            "reason": row.word,
            "kind": job.kind,
            "state": row.word,
            "job_id": job.job_id,
            "tenant": job.tenant,
        }
        kind = settings.kind(job.kind, job.band)
        whose = f"notify of {job.kind}" if kind.notify else _ALERTS
        return self._notice(Notice(whose, template, kind.env, kind.env_file), values)

    def _of_alerts(
        self, db: apsw.Connection, settings: Settings, rows: list[Row], now: int, mono: int
    ) -> list[Notice]:
        known = {(row.word, row.about): row.told_at for row in rows if row.word not in STATES}
        present = {(alert.reason, alert.about) for alert in self.alerts}
        for key in known:
            if key in present:
                self._away.pop(key, None)
            elif mono - self._away.setdefault(key, mono) >= OVER_MS:
                del self._away[key]
                notices.over(db, *key)
        found: list[Notice] = []
        template = settings.alerts.notify
        if template is None:  # not any more
            return found
        for reason in dict.fromkeys(alert.reason for alert in self.alerts):
            new = [
                each for each in self.alerts if each.reason == reason and (reason, each.about) not in known
            ]
            last = max((at for (word, _), at in known.items() if word == reason and at <= now), default=None)
            if not new or (last is not None and now - last < AGAIN_MS):
                continue
            for each in new:
                notices.told(db, reason, each.about, now)
            values = {
                "text": output.one_line(f"{new[0].line}{_more(len(new) - 1)}"),
                "reason": reason,
                "kind": "clawq",
                "state": "alert",
                "job_id": "-",
                "tenant": "-",
            }
            found += self._notice(Notice(_ALERTS, template), values)
        return found

    def _notice(self, form: Notice, values: Mapping[str, object]) -> list[Notice]:
        try:
            return [form._replace(argv=fill(form.argv, values))]
        except UsageError as error:
            self._judge(form, Answer(None, str(error)))
            return []

    def _judge(self, notice: Notice, answer: Answer) -> None:
        if answer.exit_code == 0:
            self._failing.discard(notice.whose)
        elif notice.whose not in self._failing:
            self._failing.add(notice.whose)
            said = answer.said if answer.exit_code is None else f"exit {answer.exit_code}: {answer.said}"
            self.complaints.append(f"{notice.whose} failed, {said.rstrip(': ')}")


_ALERTS = "notify of [alerts]"


def _template(settings: Settings, kind: str, band: str) -> list[str] | None:
    return settings.kind(kind, band).notify or settings.alerts.notify


def _more(count: int) -> str:
    return f"; and {count} more" if count > 0 else ""
