"""One may start, then two in all, then four: and when the next step comes."""

from __future__ import annotations

import pytest

from clawq.rules.ramp import allowance, next_step


@pytest.mark.parametrize(
    ("elapsed", "step", "allowed", "next_at"),
    [
        (0, 2_000, 1, 2_000),
        (1_999, 2_000, 1, 2_000),
        (2_000, 2_000, 2, 4_000),
        (6_500, 2_000, 8, 8_000),
        pytest.param(-5_000, 2_000, 1, 2_000, id="the clock was set back"),
        pytest.param(3, 0, 8, 4, id="no step counts as one of a millisecond"),
        (0, 1, 1, 1),
        pytest.param(1, 1, 2, 2, id="nor is a millisecond taken for less"),
        pytest.param(10**12, 1, 1 << 30, 10**12 + 1, id="and it ends somewhere"),
    ],
)
def test_starts_allowed_double_with_each_step(elapsed: int, step: int, allowed: int, next_at: int) -> None:
    assert (allowance(elapsed, step), next_step(elapsed, step)) == (allowed, next_at)
