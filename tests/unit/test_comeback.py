"""Who takes its slots back once its wait is over, and what is said to lack whoever cannot yet."""

from __future__ import annotations

import pytest

from clawq.rules.books import Books
from clawq.rules.comeback import come_back
from clawq.rules.facts import Limits, Resource, Running

NOW = 1_000_000
LIMITS = Limits(
    max_running=8,
    retry_after_ms=60_000,
    resources={"q": Resource(2), "r": Resource(1), "none": Resource(0)},
    tenant=lambda tenant: 8,
    kind=lambda kind, band: None,
)
BACK = Running(1, 2, "t", "k", "r", root_id=7, waiting=True, back_at=5)


def back(*running: Running, **limits: object) -> list[tuple[int, str | None]]:
    rules = LIMITS._replace(**limits)  # type: ignore[arg-type]
    return [(each.job.job_id, each.lacks) for each in come_back(Books(NOW, running, rules), running, rules)]


def other(**more: object) -> Running:
    return Running(9, 2, "u", "another", "")._replace(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "holds", "limits", "lacks"),
    [
        (BACK, other(), {}, None),
        (BACK, other(), {"max_running": 1}, "max_running"),
        (BACK, other(tenant="t"), {"tenant": lambda tenant: 1 if tenant == "t" else 8}, "tenant_limit"),
        (BACK, other(), {"tenant": lambda tenant: 1}, None),
        (
            BACK,
            other(kind="k"),
            {"kind": lambda kind, band: 1 if (kind, band) == ("k", 2) else None},
            "kind_limit",
        ),
        (BACK, other(kind="k"), {}, None),
        (BACK, other(root_id=7), {"max_running_per_workflow": 1}, "workflow_limit"),
        (BACK, other(root_id=1), {"max_running_per_workflow": 1}, None),
        (
            BACK._replace(job_id=7, root_id=None),
            other(root_id=7),
            {"max_running_per_workflow": 1},
            "workflow_limit",
        ),
        (BACK, other(needs="r"), {}, "resource:r"),
        (BACK._replace(needs="q"), other(needs="q"), {}, None),
        (BACK._replace(needs="gone"), other(needs="gone"), {}, "resource:gone"),
        (BACK, other(needs="r"), {"observing": True}, None),
    ],
)
def test_what_it_lacks(job: Running, holds: Running, limits: dict[str, object], lacks: str | None) -> None:
    assert back(job, holds, **limits) == [(job.job_id, lacks)]


def test_limits_that_were_lowered_to_nothing_let_one_go_on() -> None:
    jobs = [BACK._replace(job_id=n, needs="gone,none") for n in (1, 2)]
    none = {"max_running": 0, "tenant": lambda tenant: 0, "kind": lambda kind, band: 0}
    assert back(*jobs, max_running_per_workflow=0, **none) == [(1, None), (2, "max_running")]
    assert back(*jobs) == [(1, None), (2, "resource:gone")]
    assert back(*(each._replace(needs="none") for each in jobs)) == [(1, None), (2, "resource:none")]


def test_the_first_that_asked_comes_first_and_who_has_not_asked_waits() -> None:
    late, early = BACK._replace(back_at=9), BACK._replace(job_id=2)
    waits = BACK._replace(job_id=3, back_at=None)
    assert back(waits, late, early) == [(2, None), (1, "resource:r")]
    assert back(early, late._replace(back_at=5)) == [(1, None), (2, "resource:r")]
