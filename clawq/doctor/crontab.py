"""Kinds that are enqueued twice: by [[schedules]] and by the account's crontab. The one look that forks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable

from clawq.rules import checks
from clawq.rules.checks import Check

WITHIN_S = 0.15
"""A crontab is a small file; whoever answers slower is not waited for."""
_ENQUEUE = re.compile(r"\bclawq['\"]?\s+(?:enqueue|add)\s+(.*)")


def check(scheduled: Iterable[str]) -> Check:
    """`scheduled`: the kinds in [[schedules]]. Without any nothing is asked."""
    kinds = set(scheduled)
    if not kinds:
        return checks.crontab([], 0, None)
    try:
        done = subprocess.run(
            ["crontab", "-l"], stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = error.strerror if isinstance(error, OSError) else "no answer"
        return checks.crontab([], len(kinds), f"`crontab -l`: {said}")
    text = done.stdout.decode("utf-8", "replace")
    return checks.crontab(sorted(kinds & kinds_in(text, kinds)), len(kinds), None)


def kinds_in(crontab: str, known: set[str]) -> set[str]:
    """Those of the `known` kinds that a line of the crontab enqueues."""
    found = set()
    for line in crontab.splitlines():
        if line.lstrip().startswith("#"):
            continue
        for match in _ENQUEUE.finditer(line):
            words = [word.strip("'\"") for word in match[1].partition(" -- ")[0].split()]
            found |= known.intersection(words)
    return found
