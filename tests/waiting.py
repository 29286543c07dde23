"""Tests wait on conditions with a deadline, never on a guess of how long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    seconds: float = 10,
    message: str | Callable[[], str] = "the condition never held",
) -> T:
    """Return the first true value of `condition()`; fail after `seconds`.

    `message` says what was awaited; as a function it is called at the failure, to show what there
    was instead. An exception of the condition is not caught: a condition that may not exist yet has
    to say so by returning something false.
    """
    deadline = time.monotonic() + seconds
    pause = 0.01
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"after {seconds} s: {message() if callable(message) else message}")
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1)  # a condition may be a process, and what is awaited needs the core too
