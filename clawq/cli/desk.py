"""The desk of an owner's command, and what it says when nobody works."""

from clawq.cli import words
from clawq.desk import Desk, Supervisor, changing, look_for_supervisor, now_ms, read_settings, reading

__all__ = [
    "Desk",
    "Supervisor",
    "changing",
    "look_for_supervisor",
    "now_ms",
    "read_settings",
    "reading",
    "warn_without_supervisor",
]


def warn_without_supervisor() -> None:
    """One line on stderr when nothing that waits can start."""
    with reading() as here:
        if not look_for_supervisor(here.home, here.now).running:
            words.note("no supervisor is running, so nothing new starts: `clawq run` is one")
