"""What an agent left in its result file, read without trust: it may be huge, no file at all, or garbage."""

from __future__ import annotations

import json
import os
import stat
from typing import Any, NamedTuple

MOST_BYTES = 65_536
MOST_DEPTH = 100
"""Of arrays in arrays: enough for anybody, and less than what parsers give up at."""


class Result(NamedTuple):
    """``text`` is valid JSON in ASCII, or None; ``value`` the same, parsed; ``note`` says what was wrong."""

    text: str | None = None
    value: Any = None
    note: str | None = None


NOTHING = Result()


def read(path: str) -> Result:
    """Read at most MOST_BYTES. A file that is not there or empty is no result, and nothing wrong."""
    if not os.path.lexists(path):
        return NOTHING  # nearly all leave none, and to fail to open it costs three times as much
    try:
        # Neither waiting for a pipe's other end, nor following a link to a device.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return NOTHING
    except OSError as error:
        what = "it is a link" if os.path.islink(path) else error.strerror
        return Result(note=f"the result file was not read: {what}")
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            return Result(note="the result file was not read: it is not a plain file")
        raw = os.read(descriptor, MOST_BYTES + 1)
    except OSError as error:
        return Result(note=f"the result file was not read: {error.strerror}")
    finally:
        os.close(descriptor)
    if len(raw) > MOST_BYTES:
        return Result(note=f"the result file was not read: {seen.st_size} bytes, at most {MOST_BYTES} are")
    return parse(raw)


def parse(raw: bytes) -> Result:
    """From the bytes of the file."""
    if not raw.strip():
        return NOTHING
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_not_json)
        if _is_deep(value):
            return Result(note=f"the result file is not kept: more than {MOST_DEPTH} levels deep")
        # A number beyond what a float holds was read as infinite, for which JSON has no word.
        return Result(json.dumps(value, allow_nan=False), value)
    except (ValueError, RecursionError):
        return Result(note="the result file is not kept: it is not JSON")


def _not_json(word: str) -> None:
    raise ValueError(word)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return False
        level = inner
    return True
