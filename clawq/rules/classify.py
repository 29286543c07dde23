"""From how an attempt ended to its outcome and error class."""

from __future__ import annotations

from typing import NamedTuple

TRANSIENT_EXITS = frozenset({69, 75})
PERMANENT_EXITS = frozenset({2, 64, 65, 66, 77, 78, 126, 127})
"""sysexits that say "this cannot work", bad usage, and a program that cannot be run."""
SIGNAL_EXITS = range(129, 160)
"""128 + signal: a shell cannot tell its agent's death by a signal from an exit with that number."""

_MEANING = {126: "cannot be run", 127: "no such program"}


class End(NamedTuple):
    """How one attempt ended. ``own_word``: the agent itself said so, hence the outcome is known."""

    outcome: str
    error_class: str | None
    exit_code: int | None
    signal: int | None
    charged: bool
    own_word: bool
    error: str | None


def by_exit_code(exit_code: int) -> End:
    """The end of an attempt that recorded `exit_code`."""
    if exit_code == 0:
        return End("succeeded", None, 0, None, charged=True, own_word=True, error=None)
    if exit_code in SIGNAL_EXITS:
        number = exit_code - 128
        error = f"ended by signal {number}"
        return End("failed", "transient", exit_code, number, charged=True, own_word=False, error=error)
    error_class = "permanent" if exit_code in PERMANENT_EXITS else "transient"
    meaning = _MEANING.get(exit_code)
    error = f"exit {exit_code}" + (f" ({meaning})" if meaning else "")
    return End("failed", error_class, exit_code, None, charged=True, own_word=True, error=error)


def by_kill(reason: str, exit_code: int | None) -> End:
    """The end of an attempt that clawq ended for `reason`, which was recorded before the first signal."""
    outcome, error_class, charged, error = _KILLS[reason]
    return End(outcome, error_class, exit_code, None, charged, own_word=False, error=error)


_KILLS: dict[str, tuple[str, str | None, bool, str]] = {
    "timed_out": ("timed_out", "timeout", True, "timed out"),
    "deadline": ("timed_out", "timeout", True, "its deadline passed"),
    "stalled": ("stalled", "stalled", True, "no sign of life for a whole lease"),
    "over_footprint": ("over_footprint", "transient", True, "outgrew max_procs or max_mb"),
    "cancelled": ("cancelled", None, True, "cancelled"),
    "stopped": ("lost", "lost", False, "ended by `clawq stop --now`"),
}
KILL_REASONS = tuple(_KILLS)

LOST = End("lost", "lost", None, None, charged=True, own_word=False, error="gone without an exit code")
NEVER_STARTED = End(
    "never_started", "transient", None, None, charged=False, own_word=True, error="it never ran"
)


def cannot_start(error: str) -> End:
    """The end of an attempt that was claimed and cannot be started as it is."""
    return End("failed", "permanent", None, None, charged=True, own_word=True, error=error)
