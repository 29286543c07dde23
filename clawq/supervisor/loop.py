"""The supervisor's loop. One turn, in this order:

1. *Wake*: a datagram, an agent's end, a signal, or the next due time. Signals only left notes.
2. *Signals* become a way of stopping.
3. *Configuration*: a changed clawq.toml is compiled by whoever meets it first; once a second is soon enough.
4. *Look* at every agent: its locked file, its signs of life, its clocks, what it left behind. Facts only.
5. *Measure* the machine, at most once a second while something waits, else once a minute.
6. *Record*, in one transaction: starts seen, ends and what becomes of their jobs, kills and why, what is due,
   what came too late, leases, and one pass of admission.
7. *Act*, once that is committed: signal, spawn, forget what ended. If the commit failed, nothing was done and
   nothing is remembered, and the next turn finds the same facts again.
8. *Chores*: schedules that are due, and one step of tidying up what ended long ago.
9. *Sleep* until the earliest time that anything above named.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial

from clawq import __version__, config
from clawq.errors import ClawqError, ConfigError
from clawq.host import load, platform
from clawq.host.instance import Instance
from clawq.paths import Home, as_utf8
from clawq.rules.liveness import renew_every
from clawq.store import config_row
from clawq.store.connection import BUSY_MS, SchemaMoved, open_db, storage_errors
from clawq.store.wal import Wal
from clawq.supervisor import outputs
from clawq.supervisor.adopt import take_over
from clawq.supervisor.chores import Chores
from clawq.supervisor.end import clear_spent, forget, is_to_end, signal_if_due
from clawq.supervisor.environ import Environments
from clawq.supervisor.ground import Displaced, Ground
from clawq.supervisor.look import Findings, look, see_outside
from clawq.supervisor.notices import Notices
from clawq.supervisor.probes import Probes
from clawq.supervisor.record import Written, record
from clawq.supervisor.rounds import Rounds
from clawq.supervisor.start import NotStarted, Ticket, prepare_run_folder, start
from clawq.supervisor.state import (
    DRAIN,
    HANDOVER,
    NOW,
    RUN,
    UPGRADE,
    WAYS_TO_STOP,
    State,
    mono_ms,
    wall_ms,
)
from clawq.supervisor.voice import Say, Voice
from clawq.supervisor.waits import deserted, remember
from clawq.supervisor.wake import Wakeups

IDLE_MS = 1_000
"""The longest sleep: the wall clock and the configuration are read again at least this often."""
COUNT_MS = 1_000
MINUTE_MS = 60_000
FIRST_MINUTE_MS = 5_000
"""The first sample comes once a start has settled: measuring is the dearest thing that a turn does."""
RECHECK_MS = 2_000
"""Between looks at a machine that refused a start."""
AFTER_FAILURE_MS = 1_000
RAMP_OVER_MS = 120_000
"""By then it allows more than anybody runs."""
WAKE_MS = 10_000
"""A jump of the wall clock against the monotonic one that means sleep."""
HANDOVER_BUSY_MS = 300
"""A supervisor that was asked to go does not wait long for a locked database: the next one finds it all."""


class Supervisor:
    """Owns the lock, the connection and the agents of one home, from `run` until it stops.

    The times in it are ms of the monotonic clock.
    """

    def __init__(
        self, home: Home, instance: Instance, say: Say, until_idle: bool = False, observe: bool = False
    ) -> None:
        self.home = home
        self.instance = instance
        self.voice = Voice(say)
        self.base_env = {as_utf8(name): as_utf8(value) for name, value in os.environ.items()}
        self.environments = Environments(self.base_env)
        db = open_db(home, owner=True)
        try:
            with storage_errors(home.db):
                in_force = config.refresh(db, home, wall_ms())
                self.state = State(
                    home,
                    db,
                    in_force,
                    config_row.identity(db),
                    boot_id=platform.boot_id(),
                    until_idle=until_idle,
                    probes=Probes(home),
                    notices=Notices(home),
                    observe=observe,
                    default_max_procs=load.default_max_user_procs(),
                )
                prepare_run_folder(home)
                platform.become_subreaper()
                self.ground = Ground(home, instance)
                self.wakeups = Wakeups(home)
                be_patient = partial(db.set_busy_handler, self.wakeups.lock_wait(self._lock_patience_ms))
                be_patient()
        except BaseException:
            db.close()
            raise
        self.state.sample_at = mono_ms() + FIRST_MINUTE_MS
        self.rounds = Rounds(self.state)
        self.renew_at = 0
        self.record_at = 0
        self.sleep_until = 0
        self.data_version = -1
        self.clock_offset = wall_ms() - mono_ms()
        if instance.was_left_open:
            self.state.ramp_since = wall_ms()
        self.wal = Wal(db, home.db, be_patient)
        self.spent: set[int] = set()
        self.last_start = 0
        self.chores = Chores(home, say)

    def run(self) -> int:
        """Turn until asked to stop or, with ``until_idle``, until nothing is left to do. The exit code.

        Raises StorageError when a newer program has migrated the database meanwhile.
        """
        agents = self.state.agents
        try:
            with storage_errors(self.home.lock):
                self.instance.announce(__version__, self.state.mode, wall_ms())
            with storage_errors(self.home.db):
                take_over(self.state, self.wakeups)
            self.voice.say(f"running, {len(agents)} agents taken over, home {self.home.data}")
            while not self._turn():
                self.wakeups.sleep((self.sleep_until - mono_ms()) / 1000)
            self.voice.say(f"stopped, {len(agents)} agents live on" if agents else "stopped")
        finally:
            self.state.probes.stop()
            self.state.notices.stop()
            self.wakeups.close()
            # One that came last: whoever asked it to end does not want it to start again.
            self._take_signals()
            self.wal.close()
            clear_spent(self.home, self.spent, self.last_start + IDLE_MS, self.last_start)
            self.state.db.close()
            self.instance.close()
        return 0

    @property
    def stands_aside(self) -> bool:
        """Did it end for a newer program, to be started again as that?"""
        return self.state.mode == UPGRADE

    def _turn(self) -> bool:
        """One turn; True when it was the last."""
        mono = mono_ms()
        self.sleep_until = mono + IDLE_MS
        self._take_signals()
        self._notice_wake(mono)
        try:
            with storage_errors(self.home.db):
                self.instance.tick()
                self._reload(mono)
                findings = look(list(self.state.agents.values()), self.home, wall_ms(), mono)
                if findings.look_again is not None:
                    self.sleep_until = min(self.sleep_until, findings.look_again)
                findings.deserted = deserted(self.state.agents.values(), self.home, self.wakeups)
                again = self.rounds.look(findings, mono)
                if again is not None:
                    self.sleep_until = min(self.sleep_until, again)
                self.state.probes.poll(mono)
                self._look_for_news(mono)
                written = self._record(findings, mono)
        except (Displaced, SchemaMoved):
            raise
        except ClawqError as error:
            self.voice.complain(str(error), mono)
            self.sleep_until = mono + AFTER_FAILURE_MS
            self.record_at = 0
            return self.state.mode in (HANDOVER, UPGRADE)
        if written is not None:
            self._remember(written, mono)
        self._signal_agents(mono)
        if written is not None:
            if written.tickets:
                self.ground.check()  # it may have been stopped since the commit, and replaced
            for ticket in written.tickets:
                self._spawn(ticket)
            self.state.probes.committed(written.ask, self.state.settings, self.base_env, mono)
            self.state.notices.committed(written.tell)
        self.state.notices.begin(self.base_env, self.state.settings, mono)
        self._tend_wal(mono)
        spent_at = clear_spent(self.home, self.spent, mono, self.last_start)
        if spent_at is not None:
            self.sleep_until = min(self.sleep_until, spent_at)
        self._plan_sleep(mono)
        self._do_chores(mono)
        return self._may_end(written is not None and written.idle)

    def _look_for_news(self, mono: int) -> None:
        """What people are to be told, and what came of telling them."""
        notices = self.state.notices
        notices.poll(mono)
        state = self.state
        notices.look_at_alerts(state.db, state.settings, os.getpid(), state.mode, wall_ms(), mono)
        for complaint in notices.complaints:
            self.voice.say(complaint)
        notices.complaints.clear()

    def _take_signals(self) -> None:
        for number in self.wakeups.signals:
            if number == signal.SIGINT:
                self._stop(NOW if self.state.mode == DRAIN else DRAIN)
            else:
                self._stop(HANDOVER)
        self.wakeups.signals.clear()

    def _stop(self, mode: str) -> None:
        if mode not in WAYS_TO_STOP:
            mode = HANDOVER  # of another version, perhaps: asked to end, and nobody asked for the agents
        if mode == self.state.mode or (mode == UPGRADE and self.state.mode != RUN):
            return
        self.state.mode = mode
        self.record_at = 0
        with suppress(OSError):  # readers of the lock file see the old mode
            self.instance.announce(__version__, mode, wall_ms())
        running = len(self.state.agents)
        if mode == DRAIN and running:
            self.voice.say(f"finishing {running} running, starting nothing new; again to end them")
        elif mode == NOW and running:
            self.voice.say(f"ending {running} agents")
        elif mode == UPGRADE:
            self.voice.say("standing aside for a newer clawq")

    def _may_end(self, idle: bool) -> bool:
        if self.state.mode in (HANDOVER, UPGRADE):
            return True
        telling = self.state.notices.busy
        if self.state.mode in (DRAIN, NOW):
            return not self.state.agents and not (telling and self.state.mode == DRAIN)
        return idle and self.state.until_idle and not telling

    def _reload(self, mono: int) -> None:
        if not self.ground.look(mono):
            return
        try:
            config.refresh(self.state.db, self.home, wall_ms())
            error = config_row.load(self.state.db)[3]
            self.voice.say(
                f"{error}; the last good configuration stays" if error else "configuration read again"
            )
        except ConfigError as error:
            self.voice.complain(f"{error}; the last good configuration stays", mono)
        self.ground.follows()
        self.record_at = 0

    def _lock_patience_ms(self) -> int:
        return HANDOVER_BUSY_MS if self.state.mode == HANDOVER else BUSY_MS

    def _record(self, findings: Findings, mono: int) -> Written | None:
        """The turn's transaction; None when nothing happened that it could record or act on."""
        state = self.state
        now = wall_ms()
        due = mono >= min(self.record_at, state.sample_at) or now >= state.next_due
        renew = bool(state.agents) and mono >= self.renew_at
        if not (
            due
            or renew
            or findings
            or state.not_started
            or state.probes.owes(mono)
            or state.notices.owes(mono)
            or self._others_wrote()
        ):
            return None
        self.ground.check()
        self.rounds.measure(mono)
        return record(state, findings, renew, now, mono)

    def _others_wrote(self) -> bool:
        """Since this was asked last: a turn that has a reason of its own does not pay for the answer."""
        before, self.data_version = self.data_version, int(str(self.state.db.pragma("data_version")))
        return before != self.data_version

    def _notice_wake(self, mono: int) -> None:
        """The wall clock went on while ours stood still: everything due meanwhile is due at once.

        Or somebody has set it back: nothing that we hold back waits for a moment that is a day away now.
        """
        now = wall_ms()
        jump = now - mono - self.clock_offset
        if jump > WAKE_MS:
            self.state.ramp_since, self.state.ramp_started = now, 0
            for agent in self.state.agents.values():
                agent.slept(jump, now)
            self.state.notices.slept(mono)
            self.record_at = self.renew_at = 0
        elif jump < -WAKE_MS:
            self.state.not_after(now)
            self.record_at = 0
        self.clock_offset = now - mono

    def _remember(self, written: Written, mono: int) -> None:
        """Make what was committed true in memory too."""
        state, now = self.state, wall_ms()
        if state.ramp_since is not None and now - state.ramp_since > RAMP_OVER_MS:
            state.ramp_since, state.ramp_started = None, 0
        if written.settings is not None:
            state.form, state.settings = written.settings
        state.not_started = []
        state.set_back = False
        state.next_due = written.next_due
        if written.spawn_failed:
            state.spawn_closed_until = now + state.settings.host.retry_after_ms
        remember(state.agents, written.waiting, written.resumed, self.wakeups, mono)
        for agent in written.gone:
            state.agents.pop(agent.token, None)
            self.wakeups.unwatch(agent.token)
            outputs.tidy(agent, state.settings)
            forget(agent, self.home, self.spent)
        for agent in written.started:
            agent.running = True
        for agent, reason in written.kill:
            agent.kill_reason, agent.kill_at = reason, now
        for agent in written.disowned:
            agent.disowned = True
        if written.renewed:
            lease = min((agent.lease_ms for agent in state.agents.values()), default=IDLE_MS)
            self.renew_at = mono + renew_every(lease, state.settings.alerts.quiet_ms)
        if written.counted:
            state.count_at = mono + COUNT_MS
        if written.sampled:
            state.sample_at = mono + MINUTE_MS
        self.record_at = self._next_record(written, now, mono)
        if written.stop is not None:
            self._stop(written.stop)

    def _next_record(self, written: Written, now: int, mono: int) -> int:
        """When a transaction is owed even if nothing happens."""
        if written.more:
            return mono
        at = mono + max(0, min(written.next_due, written.changes_at or written.next_due) - now)
        if written.host_refused:
            closed_for = max(0, self.state.spawn_closed_until - now)
            at = min(at, mono + max(closed_for, RECHECK_MS))
        return min(at, self.state.count_at) if written.uncounted else at

    def _signal_agents(self, mono: int) -> None:
        """TERM and KILL to those whose reason is committed, in every turn: the second needs no news."""
        agents = self.state.agents.values()
        first = [agent for agent in agents if is_to_end(agent) and not agent.term_sent]
        if first:
            see_outside(first, self.home)
        for agent in agents:
            signal_if_due(agent, mono)
            if agent.kill_after is not None and agent.verdict is None:
                self.sleep_until = min(self.sleep_until, agent.kill_after)

    def _spawn(self, ticket: Ticket) -> None:
        state = self.state
        outcome = start(ticket, state.settings, self.home, self.environments, mono_ms())
        if isinstance(outcome, NotStarted):
            self.voice.say(f"job {ticket.claim.job_id} was not started: {outcome.error}")
            state.not_started.append(outcome)
            if outcome.no_room:
                with suppress(OSError):
                    prepare_run_folder(self.home)  # somebody may have tidied it away
            return
        state.agents[outcome.token] = outcome
        state.ramp_started += 1
        self.last_start = mono_ms()
        lease_part = mono_ms() + renew_every(outcome.lease_ms, state.settings.alerts.quiet_ms)
        self.renew_at = min(self.renew_at, lease_part) if len(state.agents) > 1 else lease_part
        self.rounds.started(mono_ms())
        # One more turn at once: the agent may have told already that it runs, or that it ended.
        self.sleep_until = 0

    def _tend_wal(self, mono: int) -> None:
        """After what was committed is remembered: a disk that fails here takes nothing of it back."""
        try:
            with storage_errors(self.home.db):
                self.wal.tend(mono)
        except ClawqError as error:
            self.voice.complain(str(error), mono)

    def _do_chores(self, mono: int) -> None:
        try:
            with storage_errors(self.home.db):
                due_in = self.chores.turn(self.state, mono)
        except ClawqError as error:
            self.voice.complain(str(error), mono)
            return
        if due_in is not None:
            self.sleep_until = min(self.sleep_until, mono + due_in)

    def _plan_sleep(self, mono: int) -> None:
        if self.state.not_started:
            self.sleep_until = mono
        self.sleep_until = min(self.sleep_until, self.record_at)
        if self.state.agents:
            self.sleep_until = min(self.sleep_until, self.renew_at)
        for again in (self.state.probes.look_again, self.state.notices.look_again):
            if again is not None:
                self.sleep_until = min(self.sleep_until, again)
