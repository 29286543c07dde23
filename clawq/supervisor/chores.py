"""What a supervisor does beside its turns: jobs at the times of ``[[schedules]]``, and tidying up.

A chore comes after what a turn has committed is done and remembered, so that its failure takes nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from clawq.paths import Home
from clawq.retention import Sweep
from clawq.supervisor.state import RUN, State, wall_ms

if TYPE_CHECKING:
    from clawq.supervisor.schedule import Clock

FIRST_SWEEP_MS = 60_000
"""After a start there is enough to do."""
SWEEP_MS = 600_000
STEP_MS = 50
"""Between two steps of a sweep: others want to write too."""


class Chores:
    """``say`` is for what a person should be able to read later."""

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self.home = home
        self.say = say
        self._clock: Clock | None = None
        self._sweep: tuple[Sweep, Iterator[None]] | None = None
        self._sweep_at: int | None = None

    def turn(self, state: State, mono: int) -> int | None:
        """Do what is due. In how many ms something else is, if that is known; raises ClawqError."""
        if state.mode != RUN:
            return None
        soon = self._tidy_up(state, mono)
        due_in = self._keep_schedules(state, wall_ms())
        return min((each for each in (soon, due_in) if each is not None), default=None)

    def _tidy_up(self, state: State, mono: int) -> int | None:
        """One step of a sweep."""
        if self._sweep_at is None:
            self._sweep_at = mono + FIRST_SWEEP_MS
        if mono < self._sweep_at:
            return None
        if self._sweep is None:
            sweep = Sweep(state.db, self.home, state.settings.limits, wall_ms())
            self._sweep = sweep, sweep.steps()
        sweep, steps = self._sweep
        self._sweep, self._sweep_at = None, mono + SWEEP_MS  # should this step fail
        try:
            next(steps)
        except StopIteration:
            self._tell(sweep)
            return None
        self._sweep, self._sweep_at = (sweep, steps), mono + STEP_MS
        return STEP_MS

    def _tell(self, sweep: Sweep) -> None:
        if sweep.crowded_jobs:
            self.say(
                f"{sweep.crowded_jobs} ended jobs pruned early: the database outgrew limits.retention_mb"
            )
        if sweep.crowded_logs:
            self.say(f"{sweep.crowded_logs} logs deleted early: together they outgrew limits.retention_mb")
        if sweep.failure is not None:
            self.say(f"a log could not be deleted: {sweep.failure.filename} ({sweep.failure.strerror})")

    def _keep_schedules(self, state: State, now: int) -> int | None:
        configured = state.settings.schedules
        if self._clock is None:
            if not configured:
                return None
            from clawq.supervisor.schedule import Clock  # APScheduler: only whoever has schedules pays

            self._clock = Clock(self.home, self.say)
        return self._clock.turn(state.db, state.form, configured, now)
