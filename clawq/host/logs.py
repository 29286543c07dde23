"""Keeping an attempt's log small while its agent writes: the head and the tail stay, the middle is cut.

Agents write straight into the file, always at its end (O_APPEND). The tail is moved down inside the same
file, which takes no room on a disk that may be full, and the file is cut behind it: what is written from then
on goes on there, in order. Only what arrives between the last read and the cut is lost with the middle.
"""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

CHUNK = 1 << 20
LAST_TAIL = 1 << 16
"""A piece this short is moved before an agent, however fast, has written as much again."""
SHORT_READS = 16
"""So often it is looked whether something came while the last piece was moved."""

_NOTE = re.compile(
    rb"\n\.\.\. [0-9.]+ MB cut here by clawq \(([0-9]{1,18}) bytes, limits\.log_max_mb\) \.\.\.\n"
)
_NOTE_BYTES = 128


_NAME = re.compile(r"([0-9]{1,18})\.[0-9]+\.([0-9]{1,18})\.log")


def name_of(job_id: int, number: int, token: int) -> str:
    """The bare name of an attempt's log."""
    return f"{job_id}.{number}.{token}.log"


def whose(name: str) -> tuple[int, int] | None:
    """(job, token) of the attempt that a log's bare name speaks of; None for what is no log of ours."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


class Plan(NamedTuple):
    """Keep the first `head` bytes and the last `tail` ones."""

    head: int
    tail: int


def plan(size: int, max_bytes: int) -> Plan | None:
    """What to keep of a log of `size` bytes; None when it is small enough.

    A quarter of the room stays free, so that a busy log is not cut at every look.
    """
    if size <= max_bytes:
        return None
    head = max_bytes // 4
    return Plan(head, max(0, min(max_bytes // 2, size - head)))


def note(cut: int) -> bytes:
    """What stands in the log where `cut` bytes were."""
    return b"\n... %.1f MB cut here by clawq (%d bytes, limits.log_max_mb) ...\n" % (cut / (1 << 20), cut)


def trim(path: str, max_bytes: int) -> int | None:
    """Cut the middle out of a log of more than `max_bytes`: the bytes cut; None when nothing was done.

    Its time of change stays: that is the agent's sign of life. Whatever is no ordinary file is left alone.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        seen = os.fstat(file)
        keep = plan(seen.st_size, max_bytes)
        if keep is None or not stat.S_ISREG(seen.st_mode):
            return None
        cut = _move_down(file, keep)
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        return cut
    except OSError:
        return None
    finally:
        os.close(file)


def _move_down(file: int, keep: Plan) -> int:
    earlier = _NOTE.match(os.pread(file, _NOTE_BYTES, keep.head))
    before, note_bytes = (int(earlier[1]), len(earlier[0])) if earlier else (0, 0)
    tail = keep.tail
    while True:
        source = os.fstat(file).st_size - tail
        cut = source - keep.head - note_bytes
        text = note(before + cut)
        start = keep.head + len(text)
        if source <= start:
            return 0
        os.pwrite(file, text, keep.head)
        end = _copy(file, source, start, 2 * max(tail, LAST_TAIL))
        if end is not None:
            os.ftruncate(file, end)
            return cut
        tail //= 4


def _copy(file: int, source: int, target: int, most: int) -> int | None:
    """Move everything from `source` on to `target`, below it: where it ends then.

    None when it was more than `most`: the agent writes faster than this moves.
    """
    short = 0
    while short < SHORT_READS and (block := os.pread(file, CHUNK, source)):
        os.pwrite(file, block, target)
        source += len(block)
        target += len(block)
        most -= len(block)
        short += len(block) < LAST_TAIL
        if most < 0 and len(block) >= LAST_TAIL:
            return None
    return target
