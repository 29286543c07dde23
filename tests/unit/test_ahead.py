"""The next lines are read while others are written: in order, one step ahead, errors where they belong."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from clawq.cli.ahead import Ahead
from tests.waiting import until


def ahead(items: Iterator[Any]) -> Any:
    return Ahead(items)  # which does not look at them


def test_everything_comes_in_order_and_then_the_end() -> None:
    chunks = ahead(iter(range(100)))
    found = []
    for chunk in chunks:
        chunks.ask()
        chunks.ask()  # is no second step
        found.append(chunk)
    assert found == list(range(100))


def test_it_is_one_step_ahead_and_only_when_it_is_asked() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    chunks = ahead(items())
    assert next(chunks) == 0
    assert made == [0]
    chunks.ask()
    until(lambda: made == [0, 1])
    assert next(chunks) == 1
    assert made == [0, 1]


def test_an_error_comes_behind_what_was_read_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the disk")

    chunks = ahead(items())
    assert next(chunks) == 1
    with pytest.raises(ValueError, match="the disk"):
        next(chunks)


def test_signals_are_left_to_whoever_writes() -> None:
    def items() -> Iterator[tuple[int, set[int]]]:
        yield threading.get_ident(), signal.pthread_sigmask(signal.SIG_BLOCK, [])

    ((thread, blocked),) = ahead(items())
    assert thread != threading.get_ident()
    assert {signal.SIGINT, signal.SIGTERM} <= blocked
