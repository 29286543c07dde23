"""`config show --overload`: one row or block a kind, with what it may expect of a full queue."""

from __future__ import annotations

import pytest

from clawq.cli.overload import contract, draw
from clawq.cli.render import Page
from clawq.config.compiler import check_text
from clawq.settings import Settings

FLEET = """
[limits]
max_running_per_tenant = 4
[resources.browser]
min_free_mb = 1024
[budgets.tokens]
limit = 120000
per = "1m"
per_tenant = 40000
[bands.interactive]
share = 60
on_busy = "reject"
deadline = "90s"
[bands.bulk]
share = 40
on_full = "drop_oldest"
[tenants.acme]
weight = 2
max_running = 3
[kinds.qa]
needs = ["browser"]
spends = { tokens = 8000 }
deadline = "2h"
stale_after = "12:00"
max_running = 2
max_procs = 60
max_mb = 4000
queue_cap = 20
on_busy = "degrade"
degrade_to = "light"
[kinds.light]
on_busy = "queue"
refuse_hopeless = true
stale_after = "10m"
on_full = "coalesce"
queue_cap = 40
[kinds.chat]
band = "interactive"
[kinds.digest]
band = "bulk"
on_lost = "unknown"
queue_cap = 3
"""


def settings(text: str) -> Settings:
    checked = check_text(text, "/etc/clawq.toml")
    assert checked.problems == ()
    assert checked.body is not None
    return Settings(checked.body)


def drawn(
    text: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    page: Page = draw(contract(settings(text), 550))
    page.print()
    return capsys.readouterr().out.splitlines()


def test_every_kind_has_its_answers() -> None:
    document = contract(settings(FLEET), 550)
    kinds = {row["kind"]: row for row in document["kinds"]}
    assert list(kinds) == ["chat", "default", "digest", "light", "qa"]
    assert kinds["qa"] == {
        "kind": "qa",
        "band": "normal",
        "may_wait": False,
        "waits": {"stale_after": "12:00", "deadline": "2h", "max_age": "1d"},
        "bounds": {
            "queue_cap": 20,
            "max_running": 2,
            "tenant_max_queued": 500,
            "tenant_max_running": 4,
            "needs": {"browser": {"limit": 2, "min_free_mb": 1024}},
            "spends": {"tokens": {"amount": 8000, "limit": 120000, "per": "1m", "per_tenant": 40000}},
            "max_procs": 60,
            "max_mb": 4000,
        },
        "full": "reject",
        "busy": "degrade",
        "degrade_to": "light",
        "refuse_hopeless": False,
        "stale": "expired",
        "late": "dead",
        "lost": "retry",
        "max_attempts": 3,
    }
    # What a band says holds for the kinds of that band.
    chat, digest = kinds["chat"], kinds["digest"]
    assert (chat["may_wait"], chat["busy"], chat["waits"]["deadline"]) == (False, "reject", "90s")
    assert (digest["full"], digest["lost"], digest["stale"], digest["late"]) == (
        "drop_oldest",
        "unknown",
        None,
        None,
    )


def test_without_a_cap_of_its_own_a_kind_is_refused_whatever_it_says() -> None:
    full = '[bands.bulk]\non_full = "drop_oldest"\n[kinds.a]\nband = "bulk"\n'
    full += '[kinds.b]\nband = "bulk"\nqueue_cap = 2\n'
    found = {row["kind"]: row["full"] for row in contract(settings(full), None)["kinds"]}
    assert found == {"a": "reject", "b": "drop_oldest", "default": "reject"}


def test_what_bounds_all_of_them_together() -> None:
    queue = contract(settings(FLEET), 550)["queue"]
    assert (queue["max_queued"], queue["kept_for_critical"], queue["max_held"]) == (1000, 100, 50)
    assert queue["shares"] == {
        "interactive": {"percent": 60, "slots": 5},
        "bulk": {"percent": 40, "slots": 3},
    }
    assert queue["tenants"] == {"acme": {"weight": 2.0, "max_running": 3, "max_queued": 500}}
    assert queue["host"] == {
        "max_user_procs": 550,
        "min_free_mb": 512,
        "max_pressure": "warn",
        "min_free_disk_mb": 512,
        "retry_after": "1m",
    }


def test_a_narrow_page_has_a_block_for_each_kind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drawn(FLEET, 80, capsys, monkeypatch)
    start = lines.index("qa  band normal")
    assert lines[start : start + 10] == [
        "qa  band normal",
        "  may wait  no: it becomes light",
        "  bounds    waiting: 20 (500 a tenant); running: 2 (4 a tenant); browser: 2",
        "            slots, 1024 MB free; tokens: 8000 in 1m of 120000 (40000 a tenant);",
        "            tree: 60 processes, 4000 MB",
        "  full      refused: kind_queue_full, and when to try again",
        "  busy      taken as light, and told so; see there",
        "  stale     expired, when not started by 12:00",
        "  late      not ended in 2h: dead, or expired if it never started",
        "  lost      tried again, 3 attempts in all within 1d",
    ]
    text = "\n".join(lines)
    for said in (
        "may wait  no\n",
        "may wait  yes, for 10m",
        "may wait  yes, as long as it takes",
        "busy      refused: over_capacity",
        "busy      waits its turn; refused when it could not start in time:\n            would_expire",
        "full      takes the place of its tenant's oldest that never started",
        "full      joins one that waits and is alike",
        "full      refused: queue_full or tenant_queue_full",
        "lost      unknown: a person says",
        "1000 at once, the last 100 of them only for critical jobs",
    ):
        assert said in text


def test_a_wide_page_has_one_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drawn(FLEET, 140, capsys, monkeypatch)
    rows = [line.split() for line in lines]
    assert rows[1] == ["KIND", "BAND", "MAY", "WAIT", "FULL", "BUSY", "STALE", "LATE", "LOST", "BOUNDS"]
    assert rows[2][:5] == ["chat", "interactive", "no", "refused", "refused"]
    (qa,) = [line for line in lines if line.startswith("  qa ")]
    assert qa.split()[:13] == (
        [
            "qa",
            "normal",
            "no",
            "refused",
            "as",
            "light",
            "12:00:",
            "expired",
            "2h:",
            "dead",
            "3",
            "tries",
            "in",
        ]
    )
    # Whatever bounds it stands under each other in the last column, and nothing of it is cut.
    column = lines[1].index("BOUNDS")
    start = lines.index(qa)
    end = next(n for n in range(start + 1, len(lines)) if lines[n][:column].strip() or not lines[n])
    bounds = " ".join(line[column:].strip() for line in lines[start:end])
    for bound in (
        "waiting: 20 (500 a tenant)",
        "browser: 2 slots, 1024 MB free",
        "tree: 60 processes, 4000 MB",
    ):
        assert bound in bounds
    assert "8000 in 1m of 120000 (40000 a tenant)" in bounds


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140, 200, 300])
@pytest.mark.parametrize("text", ["", FLEET], ids=["no file", "a fleet"])
def test_it_fits_the_page_and_hides_nothing(
    width: int, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drawn(text, width, capsys, monkeypatch)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    shown = " ".join(" ".join(lines).split())
    assert "~" not in shown
    assert "\u2026" not in shown
    for bound in ("8 at once", "50 for a person", "550 processes", "memory pressure above warn"):
        assert bound in shown


def test_gates_that_are_off_are_said_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    off = '[host]\nmax_user_procs = "off"\nmin_free_mb = "off"\nmax_pressure = "off"\n'
    lines = drawn(off, 80, capsys, monkeypatch)
    assert "host        no start at less than 512 MB of free disk" in lines
    lines = drawn(f'{off}min_free_disk_mb = "off"\n', 80, capsys, monkeypatch)
    assert "host        every gate is off" in lines


def test_observing_is_said_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert contract(settings('mode = "observe"'), None)["mode"] == "observe"
    first, *_ = drawn('mode = "observe"', 80, capsys, monkeypatch)
    assert first == 'mode = "observe": nothing below is enforced, all of it is recorded'
