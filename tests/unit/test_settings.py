"""The settings that the rest of clawq reads: whose value counts, and what reading them costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawq import settings
from clawq.config.compiler import check_text, dump
from clawq.settings import COMPILE, NO_FILE, REFUSE, USE, Settings, identity, verdict

DEAR = [
    *("re", "json", "typing", "dataclasses", "enum", "pathlib", "contextlib", "functools", "collections"),
    *("logging", "subprocess", "socket", "argparse", "datetime", "tomllib", "pydantic"),
]


def read(text: str) -> Settings:
    checked = check_text(text, "/etc/clawq.toml")
    assert checked.problems == ()
    assert checked.body is not None
    return Settings.from_text(dump(checked.body))


def test_an_empty_file_is_the_documented_setup() -> None:
    found = read("")
    limits, host = found.limits, found.host
    assert (limits.max_running, limits.max_running_per_tenant, limits.max_held) == (8, 8, 50)
    assert (limits.max_queued, limits.max_queued_per_tenant) == (1000, 500)
    assert limits.retention_ms == 30 * 86_400_000
    assert (limits.max_running_per_workflow, limits.reserve_after_ms, limits.age_boost_ms) == (
        4,
        300_000,
        600_000,
    )
    assert (host.max_user_procs, host.min_free_mb, host.retry_after_ms) == (None, 512, 60_000)
    assert (host.max_pressure, host.min_free_disk_mb) == ("warn", 512)
    assert (found.mode, found.band_shares, found.budgets, found.tenant_weight("any")) == (
        "enforce",
        {},
        {},
        1.0,
    )
    assert {name: each.limit for name, each in found.resources.items()} == {
        "browser": 2,
        "local_model": 1,
        "shell": 4,
    }
    assert found.kind_names == ["default"]
    kind = found.kind("default")
    assert (kind.band, kind.priority, kind.needs, kind.heartbeat, kind.on_lost) == (
        "normal",
        0,
        [],
        "process",
        "retry",
    )
    assert (kind.lease_ms, kind.timeout_ms, kind.grace_ms, kind.max_attempts) == (
        120_000,
        7_200_000,
        10_000,
        3,
    )
    assert (kind.backoff_ms, kind.max_backoff_ms, kind.max_age_ms) == (30_000, 3_600_000, 86_400_000)
    assert (kind.command, kind.deadline, kind.stale_after, kind.max_running, kind.queue_cap) == (None,) * 5
    assert (kind.env, kind.env_file) == ({}, None)
    assert (kind.on_full, kind.on_busy, kind.degrade_to, kind.refuse_hopeless) == (
        "reject",
        "queue",
        None,
        False,
    )
    assert (kind.spends, kind.max_procs, kind.max_mb) == ({}, None, None)


LAYERS = """
[bands.bulk]
timeout = "5m"
max_attempts = 1
env = { A = "band", B = "band" }
[kinds.nightly]
band = "bulk"
timeout = "none"
env = { A = "kind" }
[kinds.plain]
lease = "30s"
"""


def test_the_kind_counts_before_its_band_and_both_before_the_default() -> None:
    nightly = read(LAYERS).kind("nightly")
    assert (nightly.band, nightly.timeout_ms, nightly.max_attempts, nightly.lease_ms) == (
        "bulk",
        0,
        1,
        120_000,
    )
    assert nightly.env == {"A": "kind", "B": "band"}


def test_the_jobs_own_band_brings_its_defaults() -> None:
    found = read(LAYERS)
    assert found.kind("plain").timeout_ms == 7_200_000
    in_bulk = found.kind("plain", "bulk")
    assert (in_bulk.band, in_bulk.timeout_ms, in_bulk.max_attempts, in_bulk.lease_ms) == (
        "bulk",
        300_000,
        1,
        30_000,
    )
    assert found.kind("nightly", "normal").max_attempts == 3


def test_a_kind_that_is_gone_from_the_file_has_the_defaults() -> None:
    found = read(LAYERS)
    gone = found.kind("gone")
    assert (gone.name, gone.band, gone.command, gone.max_attempts) == ("gone", "normal", None, 3)
    assert found.kind("gone", "bulk").max_attempts == 1
    assert "gone" not in found.kind_names


def test_a_tenant_without_a_table_has_everyones_limits() -> None:
    found = read("[limits]\nmax_running = 5\nmax_queued_per_tenant = 7\n[tenants.acme]\nmax_running = 2\n")
    assert (found.tenant_max_running("acme"), found.tenant_max_queued("acme")) == (2, 7)
    assert (found.tenant_max_running("other"), found.tenant_max_queued("other")) == (5, 7)
    assert found.tenants == {"acme": {"max_running": 2}}


def test_a_resources_own_floor_and_a_gate_switched_off() -> None:
    found = read(
        '[host]\nmin_free_mb = "off"\n[resources.browser]\nmin_free_mb = 1024\n[resources.gpu]\nlimit = 1\n'
    )
    assert found.host.min_free_mb == "off"
    assert (found.resources["browser"].limit, found.resources["browser"].min_free_mb) == (2, 1024)
    assert (found.resources["gpu"].limit, found.resources["gpu"].min_free_mb) == (1, None)


OVERLOAD = """
mode = "observe"
[limits]
max_running_per_workflow = 2
reserve_after = "1m"
age_boost = "30s"
[host]
max_pressure = "off"
min_free_disk_mb = "off"
[budgets.tokens]
limit = 1000
per = "1m"
per_tenant = 400
[budgets.pages]
limit = 3
per = "1h"
[bands.interactive]
share = 60
on_busy = "reject"
spends = { pages = 1 }
[bands.bulk]
share = 12.5
on_full = "drop_oldest"
[tenants.acme]
weight = 2
[tenants.other]
weight = 0.5
[kinds.a]
spends = { tokens = 100 }
on_busy = "degrade"
degrade_to = "b"
refuse_hopeless = true
max_procs = 60
max_mb = 4000
[kinds.b]
spends = {}
on_busy = "queue"
"""


def test_what_happens_under_load() -> None:
    found = read(OVERLOAD)
    assert found.mode == "observe"
    limits, host = found.limits, found.host
    assert (limits.max_running_per_workflow, limits.reserve_after_ms, limits.age_boost_ms) == (
        2,
        60_000,
        30_000,
    )
    assert (host.max_pressure, host.min_free_disk_mb) == ("off", "off")
    assert found.band_shares == {"interactive": 60, "bulk": 12.5}
    weights = [found.tenant_weight(name) for name in ("acme", "other", "any")]
    assert weights == [2.0, 0.5, 1.0]
    assert {(each.name, each.limit, each.per_ms, each.per_tenant) for each in found.budgets.values()} == {
        ("tokens", 1000, 60_000, 400),
        ("pages", 3, 3_600_000, None),
    }
    assert sorted(found.budgets) == ["pages", "tokens"]


def test_a_band_has_defaults_for_what_happens_under_load_too() -> None:
    found = read(OVERLOAD)
    chat, bulk = found.kind("default", "interactive"), found.kind("default", "bulk")
    assert (chat.on_busy, chat.on_full, chat.spends) == ("reject", "reject", {"pages": 1})
    assert (bulk.on_busy, bulk.on_full, bulk.spends) == ("queue", "drop_oldest", {})
    a = found.kind("a", "interactive")
    assert (a.on_busy, a.degrade_to, a.refuse_hopeless, a.max_procs, a.max_mb) == (
        "degrade",
        "b",
        True,
        60,
        4000,
    )
    # What a kind spends is taken whole: neither added to its band's nor mixed with it.
    assert a.spends == {"tokens": 100}
    assert found.kind("b", "interactive").spends == {}


def test_identity_changes_with_everything_that_may_change_the_text(tmp_path: Path) -> None:
    file = tmp_path / "clawq.toml"
    assert identity(str(file)) == identity(str(tmp_path / "no" / "such" / "folder")) == NO_FILE
    seen = [""]

    def is_news() -> None:
        seen.append(identity(str(file)))
        assert seen[-1] not in seen[:-1], seen

    file.write_text("a = 1")
    is_news()
    assert identity(str(file)) == seen[-1]
    file.write_text("a = 10")
    is_news()
    # The same size and time of writing, as `cp -p` and some editors leave them: another file.
    other = tmp_path / "other"
    other.write_text("a = 11")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)
    is_news()
    file.chmod(0o400)
    is_news()


def test_a_link_to_nothing_is_not_the_same_as_no_file(tmp_path: Path) -> None:
    (tmp_path / "clawq.toml").symlink_to(tmp_path / "not mounted")
    assert identity(str(tmp_path / "clawq.toml")) != NO_FILE


@pytest.mark.parametrize(
    ("seen", "row", "broken", "expected"),
    [
        (NO_FILE, NO_FILE, None, USE),
        (NO_FILE, "0:", None, COMPILE),  # the defaults of another clawq
        ("1", "1", None, USE),
        ("2", "1", None, COMPILE),
        (NO_FILE, "1", None, COMPILE),
        ("2", "1", "2", USE),  # broken, and known to be: the last good form
        ("1", "1", "2", COMPILE),  # the good one is back
        ("3", "1", "2", COMPILE),
        ("2", NO_FILE, "2", REFUSE),  # there never was a good one
        (NO_FILE, NO_FILE, "2", COMPILE),  # the broken one is gone
    ],
)
def test_verdict(seen: str, row: str, broken: str | None, expected: str) -> None:
    assert verdict(seen, row, broken) == expected


def test_importing_settings_loads_nothing_dear() -> None:
    script = f"import sys\nimport clawq.settings\nprint(*[name for name in {DEAR} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True, cwd=_root()
    )
    assert done.stdout.split() == []


def _root() -> str:
    return os.path.dirname(os.path.dirname(settings.__file__))
