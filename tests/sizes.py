"""How much of a test is run: short in `make test`, in full in `make soak`.

For tests that say the same with less: their marker is `sized`, so that `make soak` runs them again in full. A
case that says something of its own is not cut but marked `soak`.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis

FULL = os.environ.get("SOAK") == "1"


def sized(short: int, full: int) -> int:
    return full if FULL else short


def examples(short: int, full: int, **others: Any) -> hypothesis.settings:
    """Of a Hypothesis property."""
    return hypothesis.settings(max_examples=sized(short, full), **others)
