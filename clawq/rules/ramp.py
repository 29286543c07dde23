"""How many may start when everybody could: one, then twice as many after each step.

After a crash, after a wake, and when a resource comes back from its rest. `elapsed` and `step` in ms.
"""

from __future__ import annotations

MOST_DOUBLINGS = 30


def allowance(elapsed_ms: int, step_ms: int) -> int:
    """Starts allowed in all since the ramp began."""
    return 1 << min(MOST_DOUBLINGS, max(0, elapsed_ms) // max(1, step_ms))


def next_step(elapsed_ms: int, step_ms: int) -> int:
    """ms from the ramp's beginning to the next doubling."""
    return (max(0, elapsed_ms) // max(1, step_ms) + 1) * max(1, step_ms)
