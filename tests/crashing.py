"""`clawq run --until-idle` that dies by kill -9 at a named point. Usage: python -m tests.crashing POINT"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from clawq.host import agent as host_agent
from clawq.host import attempt_file, instance
from clawq.paths import find_home
from clawq.store import attempts, connection
from clawq.supervisor import loop, voice


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(before: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **more: Any) -> Any:
        if before:
            die()
        value = function(*args, **more)
        die()
        return value

    return wrapped


def die_at_commit(number: int, before: bool) -> None:
    """Die at the n-th COMMIT from now on."""
    leave = connection.Immediate.__exit__
    left = [number]

    def leaving(self: Any, kind: Any, *error: Any) -> None:
        left[0] -= kind is None
        if kind is None and not left[0] and before:
            die()
        leave(self, kind, *error)
        if kind is None and not left[0]:
            die()

    connection.Immediate.__exit__ = leaving  # type: ignore[method-assign]


def dying_at_commit(after_calls: tuple[str, ...], before: bool) -> None:
    """Die at the COMMIT of the first transaction in which one of these functions of the store was called."""
    called = []

    def noticing(inner: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            called.append(True)
            return inner(*args, **more)

        return wrapped

    for name in after_calls:
        setattr(attempts, name, noticing(getattr(attempts, name)))
    leave = connection.Immediate.__exit__

    def leaving(self: Any, *error: Any) -> None:
        if called and before:
            die()
        leave(self, *error)
        if called:
            die()

    connection.Immediate.__exit__ = leaving  # type: ignore[method-assign]


def patch(module: Any, name: str, before: bool) -> None:
    setattr(module, name, dying(before, getattr(module, name)))


STARTS = ("mark_running", "mark_unseen")
ENDS = ("finish", "succeed")
POINTS: dict[str, Callable[[], None]] = {
    "before the claim is committed": lambda: dying_at_commit(("claim",), True),
    "after the claim is committed": lambda: dying_at_commit(("claim",), False),
    "before the attempt file is made": lambda: patch(attempt_file, "create", True),
    "after the attempt file is made": lambda: patch(attempt_file, "create", False),
    "before the spawn": lambda: patch(os, "posix_spawn", True),
    "right after the spawn": lambda: patch(os, "posix_spawn", False),
    "after the agent is remembered": lambda: patch(host_agent, "spawn", False),
    "before the start is committed": lambda: dying_at_commit(STARTS, True),
    "after the start is committed": lambda: dying_at_commit(STARTS, False),
    "before the end is committed": lambda: dying_at_commit(ENDS, True),
    "after the end is committed": lambda: dying_at_commit(ENDS, False),
    "before its files are removed": lambda: patch(loop, "forget", True),
    "after its files are removed": lambda: patch(loop, "forget", False),
}


def main(point: str) -> int:
    POINTS[point]()
    home = find_home()
    held = instance.acquire(home.lock)
    assert held is not None
    return loop.Supervisor(home, held, voice.say_on_stderr, until_idle=True).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
