"""What is looked at now and then rather than in every turn: process trees, logs, the machine."""

from __future__ import annotations

from clawq.host import load
from clawq.store import lanes
from clawq.supervisor import outputs
from clawq.supervisor.look import Findings, measure_trees
from clawq.supervisor.state import DRAIN, RUN, State, wall_ms

SAMPLE_MS = 1_000
TREES_MS = 5_000
"""Between looks at what the agents' process trees use."""
FIRST_TREES_MS = 1_000


class Rounds:
    """All times are ms of the monotonic clock."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._trees_at = 0
        self._outputs_at = 0
        self._sampled = -SAMPLE_MS

    def look(self, findings: Findings, mono: int) -> int | None:
        """Add to the findings what is due: trees that have outgrown their kind's bounds or do nothing, logs
        without end, agents that fill the disk. When to look again, while anything runs.
        """
        state, agents = self.state, self.state.agents.values()
        if not agents:
            return None
        if mono >= self._trees_at:
            measure_trees(agents, state.home, findings, wall_ms(), mono)
            youngest = max(agent.started for agent in agents) + FIRST_TREES_MS
            self._trees_at = youngest if youngest > mono else mono + TREES_MS
        if mono >= self._outputs_at:
            self._outputs_at = outputs.tend(agents, state.settings, state.home, findings, mono)
        return min(self._trees_at, self._outputs_at)

    def started(self, mono: int) -> None:
        """An agent has been started: look at its tree soon."""
        first_look = mono + FIRST_TREES_MS
        # Of the first for a while, the last look was due long ago, and at once there is nothing to see.
        alone = len(self.state.agents) == 1
        self._trees_at = first_look if alone else min(self._trees_at, first_look)

    def measure(self, mono: int) -> None:
        """The machine, at most once a second while something waits, else for the sample of each minute."""
        state = self.state
        if mono - self._sampled < SAMPLE_MS:
            return
        if mono >= state.sample_at or (state.mode in (RUN, DRAIN) and lanes.any_queued(state.db)):
            state.sample = load.sample(state.home.data)
            self._sampled = mono
