"""The last lines an agent wrote, made safe to show: no control characters, no endless lines."""

from __future__ import annotations

import os
import re

TAIL_BYTES = 8_192
TAIL_LINES = 10
TAIL_CHARS = 2_000
LINE_CHARS = 300
READER_BYTES = 262_144
"""Of the output that a reader of an agent program's results gets to see."""

# CSI and OSC sequences first, so that their parameters do not stay behind as text; then what is left.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]")
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)
# Half of a character: JSON can write one ("\ud83d", a sentence cut in an emoji), SQLite takes none.
_HALVES = re.compile(r"[\ud800-\udfff]")


def plain(text: str) -> str:
    """`text` without escape sequences and control characters; newlines and tabs stay."""
    return _HALVES.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n"))))


def one_line(text: str) -> str:
    """`text` on one line that is safe to show, at most LINE_CHARS long."""
    return " ".join(plain(text).split())[:LINE_CHARS]


def end_of(path: str, most: int) -> str:
    """The last `most` bytes of a log as they are; empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # an agent may have put a pipe there
    except OSError:
        return ""
    try:
        size = os.fstat(descriptor).st_size
        raw = os.pread(descriptor, most, max(0, size - most))
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return raw.decode("utf-8", "replace")


def last_lines(path: str) -> str:
    """The last lines of a log, at most TAIL_LINES and TAIL_CHARS; empty when it cannot be read."""
    lines = plain(end_of(path, TAIL_BYTES)).splitlines()
    kept = [line[:LINE_CHARS] for line in lines if line.strip()][-TAIL_LINES:]
    return "\n".join(kept)[-TAIL_CHARS:]
