"""The supervisor's loop. One turn, in this order:

1. *Wake*: a datagram, an agent's end, a signal, or the next due time. Signals only left notes.
2. *Signals* become a way of stopping.
3. *Configuration*: a changed clawq.toml is compiled by whoever meets it first; once a second is soon enough.
4. *Look* at every agent: its locked file, its signs of life, its clocks, what it left behind. Facts only.
5. *Measure* the machine, only when something waits and at most once a second.
6. *Write*, in one transaction: starts seen, ends and what becomes of their jobs, kills and why, what is due,
   what came too late, leases, and one pass of admission.
7. *Act*, once that is committed: signal, spawn, forget what ended. If the commit failed, nothing was done and
   nothing is remembered, and the next turn finds the same facts again.
8. *Sleep* until the earliest time that anything above named.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import apsw

from clawq import __version__, config, settings
from clawq.errors import ClawqError, ConfigError
from clawq.host import load, platform
from clawq.host.instance import Instance
from clawq.host.load import HostSample
from clawq.paths import Home
from clawq.rules import classify, retry
from clawq.settings import Settings
from clawq.store import attempts, config_row
from clawq.store.connection import Immediate, open_db, storage_errors
from clawq.supervisor import settle
from clawq.supervisor.admit import admit, limits_from
from clawq.supervisor.adopt import adopt, clear_run_folder, exit_watch
from clawq.supervisor.agents import Agent
from clawq.supervisor.end import forget, signal_if_due
from clawq.supervisor.look import Ended, Findings, look
from clawq.supervisor.start import NotStarted, Ticket, prepare_run_folder, start
from clawq.supervisor.wake import Wakeups

IDLE_MS = 1_000
"""The longest sleep: the wall clock and the configuration are read again at least this often."""
SAMPLE_MS = 1_000
RECHECK_MS = 2_000
"""Between looks at a machine that refused a start."""
RENEWALS_PER_LEASE = 4
AFTER_FAILURE_MS = 1_000

Say = Callable[[str], None]


@dataclass(slots=True)
class Written:
    """What a committed turn asks to be done."""

    tickets: list[Ticket] = field(default_factory=list)
    gone: list[Agent] = field(default_factory=list)
    started: list[Agent] = field(default_factory=list)
    kill: list[tuple[Agent, str]] = field(default_factory=list)
    lost_title: list[Agent] = field(default_factory=list)
    renewed: bool = False
    host_refused: bool = False
    more: bool = False
    spawn_failed: bool = False
    next_due: int = 0
    idle: bool = False


class Supervisor:
    """Owns the lock, the connection and the agents of one home, from `run` until it stops."""

    def __init__(self, home: Home, instance: Instance, until_idle: bool, say: Say) -> None:
        self.home = home
        self.instance = instance
        self.until_idle = until_idle
        self.say = say
        self.mode = "run"
        self.db = open_db(home, checkpoints=True)
        try:
            self.settings = _load_settings(self.db, home)
            self.boot_id = platform.boot_id()
            self.base_env = dict(os.environ)
            self.default_max_procs = load.default_max_user_procs()
            self.agents: dict[int, Agent] = {}
            self.not_started: list[NotStarted] = []
            self.sample: HostSample | None = None
            self.sampled = -SAMPLE_MS
            self.started_since_sample = 0
            self.spawn_closed_until = 0
            self.config_seen = settings.identity(home.config)
            self.config_looked = 0
            self.config_form = ""
            self.renew_at = 0
            self.write_at = 0
            self.data_version = -1
            self.sleep_until = 0
            self.last_complaint = ("", 0)
            prepare_run_folder(home)
            platform.become_subreaper()
            self.wakeups = Wakeups(home)
        except BaseException:
            self.db.close()
            raise

    def run(self) -> int:
        """Turn until asked to stop or, with ``until_idle``, until nothing is left to do. The exit code."""
        self.instance.announce(__version__, self.mode, wall_ms())
        try:
            with storage_errors(self.home.db):
                self._take_over()
            self.say(f"running, {len(self.agents)} agents taken over, home {self.home.data}")
            while not self._turn():
                self.wakeups.sleep((self.sleep_until - mono_ms()) / 1000)
            self.say(f"stopped, {len(self.agents)} agents live on" if self.agents else "stopped")
        finally:
            self.wakeups.close()
            self.db.close()
            self.instance.close()
        return 0

    def _take_over(self) -> None:
        """Adopt every attempt that the database calls live, and clear what no attempt needs any more."""
        now, mono = wall_ms(), mono_ms()
        with Immediate(self.db):
            attempts.forget_stop(self.db)
            attempts.close_disowned(self.db, now)
            rows = attempts.live(self.db)
        for row in rows:
            agent = adopt(row, self.home, self.boot_id, now, mono)
            self.agents[row.token] = agent
            watch = exit_watch(agent)
            if watch is not None:
                self.wakeups.watch(row.token, watch)
        clear_run_folder(self.home, self.agents)

    def _turn(self) -> bool:
        """One turn; True when it was the last."""
        self.instance.tick()
        mono = mono_ms()
        self.sleep_until = mono + IDLE_MS
        self._take_signals()
        try:
            with storage_errors(self.home.db):
                self._reload(mono)
                findings = look(list(self.agents.values()), self.home, wall_ms(), mono)
                if findings.look_again is not None:
                    self.sleep_until = min(self.sleep_until, findings.look_again)
                if not self._must_write(findings, mono):
                    self._signal_agents(mono)
                    return self._may_end(idle=False)
                self._measure(mono)
                written = self._write(findings, wall_ms(), mono)
        except ClawqError as error:
            self._complain(str(error), mono)
            self.sleep_until = mono + AFTER_FAILURE_MS
            self.write_at = 0
            return self.mode == "handover"
        self._act(written, mono)
        return self._may_end(written.idle)

    def _may_end(self, idle: bool) -> bool:
        if self.mode == "handover":
            return True
        if self.mode in ("drain", "now"):
            return not self.agents
        return idle and self.until_idle

    def _take_signals(self) -> None:
        for number in self.wakeups.signals:
            if number == signal.SIGINT:
                self._stop("now" if self.mode == "drain" else "drain")
            else:
                self._stop("handover")
        self.wakeups.signals.clear()

    def _stop(self, mode: str) -> None:
        if mode == self.mode:
            return
        self.mode = mode
        self.write_at = 0
        self.instance.announce(__version__, mode, wall_ms())
        if mode == "drain" and self.agents:
            self.say(f"finishing {len(self.agents)} running, starting nothing new; again to end them")
        elif mode == "now" and self.agents:
            self.say(f"ending {len(self.agents)} agents")

    def _reload(self, mono: int) -> None:
        if mono - self.config_looked < IDLE_MS:
            return
        self.config_looked = mono
        seen = settings.identity(self.home.config)
        if seen == self.config_seen:
            return
        try:
            self.settings = config.refresh(self.db, self.home, wall_ms())
            error = config_row.load(self.db)[3]
            self.say(f"{error}; the last good configuration stays" if error else "configuration read again")
        except ConfigError as error:
            self._complain(f"{error}; the last good configuration stays", mono)
        self.config_seen = seen
        self.write_at = 0

    def _take_newer_form(self) -> None:
        """A producer may have compiled a newer file than ours: its job's kind may be in that one only."""
        form = config_row.identity(self.db)
        if form != self.config_form:
            self.settings = Settings.from_text(config_row.load(self.db)[1])
            self.config_form = form

    def _must_write(self, findings: Findings, mono: int) -> bool:
        """Has anything happened, in the database or outside, that a transaction could record or act on?"""
        version = int(self.db.pragma("data_version"))
        changed, self.data_version = version != self.data_version, version
        return changed or bool(findings) or bool(self.not_started) or mono >= self.write_at

    def _measure(self, mono: int) -> None:
        if mono - self.sampled < SAMPLE_MS or self.mode != "run" or not attempts.any_queued(self.db):
            return
        self.sample = load.sample()
        self.sampled = mono
        self.started_since_sample = 0

    def _write(self, findings: Findings, now: int, mono: int) -> Written:
        written = Written()
        with Immediate(self.db):
            self._take_newer_form()
            self._write_findings(findings, written, now)
            self._write_requests(written, now)
            done = attempts.expire(self.db, now) + attempts.promote(self.db, now)
            written.more = done >= attempts.BATCH
            self._renew(written, now, mono)
            paused = attempts.pauses(self.db)
            if self.mode == "run":
                closed_until = self.spawn_closed_until
                if written.spawn_failed:
                    closed_until = now + self.settings.host.retry_after_ms
                done_pass = admit(
                    self.db,
                    self.settings,
                    limits_from(self.settings, paused, self.default_max_procs),
                    self.sample,
                    closed_until,
                    self.started_since_sample,
                    self.boot_id,
                    now,
                )
                written.tickets, written.host_refused = done_pass
            written.next_due = attempts.next_due(self.db)
            if self.until_idle and not written.tickets:
                written.idle = attempts.is_idle(self.db, paused)
        return written

    def _write_findings(self, findings: Findings, written: Written, now: int) -> None:
        for agent in findings.started:
            owned = settle.record_start(self.db, agent, now)
            (written.started if owned else written.lost_title).append(agent)
        for ended in findings.ended:
            self._write_end(ended, written, now)
        for failed in self.not_started:
            self._write_not_started(failed, written, now)
        for agent, reason in findings.overdue:
            self._intend_kill(agent, reason, written, now)

    def _write_end(self, ended: Ended, written: Written, now: int) -> None:
        agent = ended.agent
        if not agent.disowned:
            state = settle.record_end(self.db, self.settings, agent, ended.end, ended.output_tail, now, _draw)
            if state is not None and ended.end.outcome == classify.NEVER_STARTED.outcome:
                # Our shell could not fork. A claim that a dead supervisor never spawned says nothing of room.
                written.spawn_failed |= agent.owned or agent.reading.exit_code is not None
        written.gone.append(agent)

    def _write_not_started(self, failed: NotStarted, written: Written, now: int) -> None:
        end = classify.NEVER_STARTED._replace(error=failed.error)
        if failed.no_room:
            written.spawn_failed = True
        else:
            end = classify.cannot_start(failed.error)
        ticket = failed.ticket
        settle.settle(self.db, self.settings, ticket.claim.job_id, ticket.token, end, "", now, _draw)

    def _write_requests(self, written: Written, now: int) -> None:
        for _, token in attempts.cancel_requests(self.db):
            if token in self.agents:
                self._intend_kill(self.agents[token], "cancelled", written, now)
        asked = attempts.stop_request(self.db)
        if asked is not None:
            attempts.forget_stop(self.db)
            self._stop(asked)
        if self.mode == "now":
            for agent in self.agents.values():
                self._intend_kill(agent, "stopped", written, now)

    def _intend_kill(self, agent: Agent, reason: str, written: Written, now: int) -> None:
        """The reason is committed before the first signal is sent; the first reason stands."""
        if agent.kill_reason is None and agent.verdict is None and not agent.disowned:
            attempts.intend_kill(self.db, agent.token, reason, now)
            written.kill.append((agent, reason))

    def _renew(self, written: Written, now: int, mono: int) -> None:
        if not self.agents or mono < self.renew_at:
            return
        mine = {agent.token: now - (mono - agent.last_sign) for agent in self.agents.values()}
        attempts.renew(self.db, mine)
        still = {row.token for row in attempts.live(self.db)} | {agent.token for agent in written.gone}
        written.lost_title += [agent for token, agent in self.agents.items() if token not in still]
        written.renewed = True

    def _act(self, written: Written, mono: int) -> None:
        now = wall_ms()
        self.not_started = []
        if written.spawn_failed:
            self.spawn_closed_until = now + self.settings.host.retry_after_ms
        for agent in written.gone:
            self.agents.pop(agent.token, None)
            self.wakeups.unwatch(agent.token)
            forget(agent, self.home)
        for agent in written.started:
            agent.running = True
        for agent, reason in written.kill:
            if agent.kill_reason is None:
                agent.kill_reason, agent.kill_at = reason, now
        for agent in written.lost_title:
            agent.disowned = True
        self._signal_agents(mono)
        for ticket in written.tickets:
            self._spawn(ticket)
        self._plan(written, now, mono)

    def _signal_agents(self, mono: int) -> None:
        """TERM and KILL to those whose reason is committed, in every turn: the second needs no news."""
        for agent in self.agents.values():
            signal_if_due(agent, mono)
            if agent.kill_after is not None and agent.verdict is None:
                self.sleep_until = min(self.sleep_until, agent.kill_after)

    def _spawn(self, ticket: Ticket) -> None:
        outcome = start(ticket, self.settings, self.home, self.base_env, mono_ms())
        if isinstance(outcome, NotStarted):
            self.say(f"job {ticket.claim.job_id} was not started: {outcome.error}")
            self.not_started.append(outcome)
        else:
            self.agents[outcome.token] = outcome
            self.started_since_sample += 1

    def _plan(self, written: Written, now: int, mono: int) -> None:
        """When the next transaction is owed even if nothing happens, and when to wake up for it."""
        if written.renewed or not self.agents:
            self.renew_at = 0
        if self.agents and self.renew_at == 0:
            lease = min(agent.lease_ms for agent in self.agents.values())
            self.renew_at = mono + max(IDLE_MS // 2, lease // RENEWALS_PER_LEASE)
        self.write_at = mono + max(0, written.next_due - now)
        if self.agents:
            self.write_at = min(self.write_at, self.renew_at)
        if written.host_refused:
            closed_for = max(0, self.spawn_closed_until - now)
            self.write_at = min(self.write_at, mono + max(closed_for, RECHECK_MS))
        if written.more or self.not_started:
            self.write_at = mono
        if written.tickets:
            self.sleep_until = min(self.sleep_until, mono_ms() + 1)
        self.sleep_until = min(self.sleep_until, self.write_at)

    def _complain(self, text: str, mono: int) -> None:
        """Say a problem once a minute, not once a turn."""
        last, at = self.last_complaint
        if text != last or mono - at > 60_000:
            self.say(text)
            self.last_complaint = (text, mono)


def _load_settings(db: apsw.Connection, home: Home) -> Settings:
    with storage_errors(home.db):
        return config.refresh(db, home, wall_ms())


def _draw() -> float:
    return random.uniform(*retry.JITTER)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def say_on_stderr(text: str) -> None:
    """One line with the time; a terminal or log that is gone is no reason to stop."""
    try:
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} clawq: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
