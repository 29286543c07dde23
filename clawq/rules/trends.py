"""Is a queue on its way somewhere? What its samples of the last half hour say, compared third by third."""

from __future__ import annotations

from clawq.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TREND_MS = 1_800_000
"""How much of the past a trend is read from."""
TREND_SAMPLES = 9
GROWN = 1.25
SLOWER = 1.5
FLAT = 0.1
FEW = 5
"""Fewer jobs than these make no trend."""


class Sample(NamedTuple):
    """The queue at one moment. ``took_ms``: execution time of what ended lately; None when nothing did."""

    at: int
    queued: int
    oldest_age_ms: int
    took_ms: float | None


def growth(samples: Sequence[Sample]) -> tuple[list[float], list[float]] | None:
    """How many wait and the oldest one's age (ms), by thirds: where both rise, more comes than is done."""
    thirds = _thirds(samples)
    if not thirds:
        return None
    depth = [_mean([each.queued for each in third]) for third in thirds]
    age = [_mean([each.oldest_age_ms for each in third]) for third in thirds]
    return (depth, age) if _rises(depth) and _rises(age) and depth[-1] >= FEW else None


def slowdown(samples: Sequence[Sample]) -> list[float] | None:
    """How long jobs take (ms), by thirds: where it is more and more while as many wait as before."""
    thirds = _thirds(samples)
    if not thirds:
        return None
    depth = [_mean([each.queued for each in third]) for third in thirds]
    took = [_mean([each.took_ms for each in third if each.took_ms is not None]) for third in thirds]
    flat = min(depth) >= FEW and max(depth) - min(depth) <= max(1.0, FLAT * max(depth))
    return took if flat and 0 < took[0] <= took[1] and took[2] >= SLOWER * took[0] else None


def length(samples: Sequence[Sample]) -> float:
    """What they tell of, in ms."""
    return min(TREND_MS, samples[-1].at - samples[0].at)


def _thirds(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    """The last TREND_MS in three parts of the same length; [] when there is too little of it."""
    lately = [each for each in samples if samples[-1].at - each.at <= TREND_MS]
    if len(lately) < TREND_SAMPLES or length(lately) < TREND_MS * 2 // 3:
        return []
    part = length(lately) / 3
    begin = lately[0].at
    return [[each for each in lately if min(2, int((each.at - begin) / part)) == which] for which in range(3)]


def _rises(parts: Sequence[float]) -> bool:
    return parts[0] < parts[1] < parts[2] and parts[2] >= GROWN * parts[0]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
