"""Every way an attempt can end, with what `judge` and `after` make of it: the table of docs/results.md.

The evidence is written down, the answers are worked out: the table cannot say what the rules do not do.
"""

from __future__ import annotations

from typing import NamedTuple

from clawq.rules.classify import FREE_FORKS, FREE_LIMITS, PERMANENT_EXITS, Evidence, Standing, Word, judge
from clawq.rules.retry import Policy, after

PROVIDER = Standing(holds_provider=True)
LIMIT = Word("rate_limit")


class Seen(NamedTuple):
    """A row: what was seen, in words and as the rules get it."""

    words: str
    evidence: Evidence
    job: Standing = Standing()


SEEN = (
    Seen("exit 0", Evidence(exit_code=0)),
    Seen("exit 75 or 69", Evidence(exit_code=75)),
    Seen(f"exit {', '.join(map(str, sorted(PERMANENT_EXITS)))}", Evidence(exit_code=2)),
    Seen("any other exit code", Evidence(exit_code=1)),
    Seen("exit 129 to 159: ended by a signal, or as if", Evidence(exit_code=137)),
    Seen(
        "`clawq fail --class transient`, whatever the exit code",
        Evidence(exit_code=0, told=Word("transient")),
    ),
    Seen(
        "`clawq fail --class permanent`, whatever the exit code",
        Evidence(exit_code=1, told=Word("permanent")),
    ),
    Seen("a rate limit, holding a provider", Evidence(exit_code=1, told=LIMIT), PROVIDER),
    Seen(
        f"a rate limit, holding a provider, after {FREE_LIMITS} of them",
        Evidence(exit_code=1, told=LIMIT),
        PROVIDER._replace(limits_met=FREE_LIMITS),
    ),
    Seen("a rate limit, holding no provider", Evidence(exit_code=1, told=LIMIT)),
    Seen("output that ends in a failed fork", Evidence(exit_code=2, last_lines="sh: 1: Cannot fork")),
    Seen(
        f"output that ends in a failed fork, after {FREE_FORKS} of them",
        Evidence(exit_code=2, last_lines="sh: 1: Cannot fork"),
        Standing(forks_failed=FREE_FORKS),
    ),
    Seen("its `timeout` passed", Evidence(exit_code=143, kill="timed_out")),
    Seen("no sign of life for a whole `lease`", Evidence(exit_code=143, kill="stalled")),
    Seen("it outgrew `max_procs` or `max_mb`", Evidence(exit_code=143, kill="over_footprint")),
    Seen("it wrote fastest while the disk was nearly full", Evidence(exit_code=143, kill="filled_disk")),
    Seen("it was cancelled", Evidence(exit_code=143, kill="cancelled")),
    Seen("ended by `clawq stop --now`", Evidence(exit_code=143, kill="stopped")),
    Seen("gone without an exit code (a crash, a reboot)", Evidence()),
    Seen("gone without an exit code, after `clawq fail`", Evidence(told=Word("transient"))),
    Seen("it never ran: the machine had no room for a process", Evidence(ran=False)),
    Seen(
        f"its shell ran and it did not, after {FREE_FORKS} of them: at ever longer intervals, to `max_age`",
        Evidence(ran=False),
        Standing(forks_failed=FREE_FORKS),
    ),
)

COLUMNS = (
    "what was seen",
    "outcome",
    "error class",
    "costs an attempt",
    "then",
    'then, with on_lost = "unknown"',
)

_POLICY = Policy(
    max_attempts=3,
    backoff_ms=30_000,
    max_backoff_ms=3_600_000,
    max_age_ms=86_400_000,
    on_lost="retry",
    accepted_at=0,
    deadline_at=None,
)


def rows() -> list[tuple[str, ...]]:
    """The cells of the table, as COLUMNS names them; a first attempt of three."""
    made = []
    for seen in SEEN:
        end = judge(seen.evidence, seen.job)
        states = []
        for on_lost in ("retry", "unknown"):
            rests_until = 60_000 if end.outcome == "rate_limited" and seen.job.holds_provider else 0
            policy = _POLICY._replace(on_lost=on_lost)
            states.append(after(end, int(end.charged), policy, False, 0, 1.0, rests_until).state)
        cost = "yes" if end.charged else "no"
        made.append((seen.words, end.outcome, end.error_class or "", cost, *states))
    return made


def table() -> str:
    """The same in Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, *rows())]
    lines.insert(1, "|---" * len(COLUMNS) + "|")
    return "\n".join(lines)
