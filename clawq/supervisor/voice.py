"""What a supervisor says to whoever reads its terminal or its log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

REPEAT_MS = 60_000
"""The same complaint is said again after this long."""

Say = Callable[[str], None]


class Voice:
    """``say`` writes one line."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self._complaint = ("", 0)

    def complain(self, text: str, mono: int) -> None:
        """Say a problem once a minute, not once a turn. `mono`: ms of the monotonic clock."""
        last, at = self._complaint
        if text != last or mono - at > REPEAT_MS:
            self.say(text)
            self._complaint = (text, mono)


def say_on_stderr(text: str) -> None:
    """One line with the time; a terminal or log that is gone is no reason to stop."""
    try:
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} clawq: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
