"""What a supervisor does beside its turns: jobs at the times of ``[[schedules]]``.

A chore comes after what a turn has committed is done and remembered, so that its failure takes nothing back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clawq.paths import Home
from clawq.supervisor.state import RUN, State, wall_ms

if TYPE_CHECKING:
    from clawq.supervisor.schedule import Clock


class Chores:
    """``say`` is for what a person should be able to read later."""

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self.home = home
        self.say = say
        self._clock: Clock | None = None

    def turn(self, state: State) -> int | None:
        """Do what is due. In how many ms something else is, if that is known; raises ClawqError."""
        if state.mode != RUN:
            return None
        return self._keep_schedules(state, wall_ms())

    def _keep_schedules(self, state: State, now: int) -> int | None:
        configured = state.settings.schedules
        if self._clock is None:
            if not configured:
                return None
            from clawq.supervisor.schedule import Clock  # APScheduler: only whoever has schedules pays

            self._clock = Clock(self.home, self.say)
        return self._clock.turn(state.db, state.form, configured, now)
