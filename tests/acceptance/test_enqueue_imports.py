"""What a fresh interpreter loads for `clawq enqueue`: every module more is milliseconds, all day."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawq.paths import Home
from tests.producers import CLAWQ, clawq, configure, rows

ALWAYS = {
    "apsw",
    "clawq",
    "clawq.__main__",
    "clawq.cli",
    "clawq.cli.enqueue",
    "clawq.client",
    "clawq.drafting",
    "clawq.errors",
    "clawq.states",
    "clawq.options",
    "clawq.values",
    "clawq.paths",
    "clawq.settings",
    "clawq.store",
    "clawq.store.connection",
    "clawq.store.draft",
    "clawq.store.intake",
    "clawq.store.sqlfile",
    "clawq.when",
    "__future__",
}
REFUSED = {"clawq.store.refusals", "clawq.store.drain"}
WOKEN = {"clawq.poke", "_socket"}
FORECAST = {"clawq.store.forecast"}
FULL = {"clawq.store.overload"}
JSON = {"clawq.quickjson", "_json"}
TOLD = {"clawq.verbs", "clawq.inside", "clawq.lease", "clawq.store.told", *WOKEN}
STATUS = {
    "__future__",
    "apsw",
    "clawq",
    "clawq.__main__",
    "clawq.cli",
    "clawq.cli.overview",
    "clawq.cli.words",
    "clawq.desk",
    "clawq.errors",
    "clawq.health",
    "clawq.host",
    "clawq.host.ceiling",
    "clawq.host.instance",
    "clawq.host.load",
    "clawq.host.mounts",
    "clawq.host.platform",
    "clawq.host.processes",
    "clawq.named",
    "clawq.paths",
    "clawq.quickjson",
    "clawq.rules",
    "clawq.rules.alerts",
    "clawq.rules.reasons",
    "clawq.rules.spans",
    "clawq.rules.trends",
    "clawq.settings",
    "clawq.states",
    "clawq.store",
    "clawq.store.accounts",
    "clawq.store.alerts",
    "clawq.store.config_row",
    "clawq.store.connection",
    "clawq.store.counts",
    "clawq.store.sqlfile",
    "clawq.store.today",
    "clawq.store.told",
    "clawq.store.views",
    "clawq.values",
    "clawq.when",
    *("_collections", "_json", "errno", "fcntl", "resource"),
}
"""All that `clawq status --json` loads on Linux, where it is cheap to ask the machine."""
NEVER = {
    *("apscheduler", "argparse", "asyncio", "collections", "contextlib", "ctypes", "dataclasses", "datetime"),
    *("enum", "functools", "json", "logging", "pathlib", "psutil", "pydantic", "re", "rich", "shlex"),
    *("signal", "socket", "subprocess", "tempfile", "typer", "typing"),
}

LATER = f"{(time.localtime().tm_hour + 2) % 24:02}:00"
"""A time of day that is always more than an hour away."""


def imported(*words: str, code: int = 0, stdin: bytes = b"") -> set[str]:
    """Modules that this command line loads beyond those of an interpreter that does nothing."""

    def loaded(argv: list[str]) -> tuple[int, set[str]]:
        done = subprocess.run(
            [argv[0], "-X", "importtime", *argv[1:]],
            capture_output=True,
            input=stdin,
            timeout=60,
            check=False,
        )
        lines = [line.rpartition("|") for line in done.stderr.decode().splitlines() if "import time:" in line]
        return done.returncode, {name.strip() for _, _, name in lines}

    _, nothing = loaded([sys.executable, "-c", "pass"])
    returned, everything = loaded([*CLAWQ, *words])
    assert returned == code
    return everything - nothing


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue", "--", "true"),
        ("add", "site.qa", "--json"),
        (
            *("enqueue", "site.qa", "--payload", '{"a": [1]}', "--dedupe-key", "{hour}", "--tenant", "acme"),
            *("--exclusive", "x", "--priority", "3", "--band", "bulk", "--needs", "browser", "--delay", "5m"),
            *("--stale-after", LATER, "--deadline", "2d", "--timeout", "5m", "--max-attempts", "2"),
            *("--on-lost", "retry", "--hold", "--cwd", "/", "--env", "A=1", "--print-id", "--", "true", "x"),
        ),
        ("enqueue", "--payload", "-", "--dry-run", "--", "true"),
    ],
)
def test_an_accepted_job_loads_this_and_nothing_else(home: Home, words: tuple[str, ...]) -> None:
    configure(home, '[kinds."site.qa"]\ncommand = ["true"]\n')
    clawq("enqueue", "--", "true")  # makes the database and compiles the file
    assert imported(*words, stdin=b"{}") == ALWAYS


def test_with_a_supervisor_it_also_loads_what_wakes_it(home: Home) -> None:
    clawq("enqueue", "--", "true")
    Path(home.lock).write_text("")
    Path(home.sock).write_text("")
    assert imported("enqueue", "--needs", "shell", "--", "true") == ALWAYS | WOKEN | FORECAST


def test_a_duplicate_and_a_refusal_stay_cheap(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 1\n")
    clawq("enqueue", "--dedupe-key", "k", "--", "true")
    assert imported("enqueue", "--dedupe-key", "k", "--", "true") == ALWAYS | REFUSED  # it is counted
    assert imported("enqueue", "--json", "--", "true", code=75) == ALWAYS | REFUSED


def test_what_a_full_or_busy_kind_does_stays_cheap(home: Home) -> None:
    """With a budget, a resource that comes back from its rest and shares: all that a forecast may ask."""
    configure(
        home,
        """
        [budgets.tokens]
        limit = 100
        per = "1m"
        [bands.interactive]
        share = 50
        [kinds.newest]
        queue_cap = 1
        on_full = "drop_oldest"
        [kinds.same]
        queue_cap = 1
        on_full = "coalesce"
        [kinds.light]
        [kinds.heavy]
        on_busy = "degrade"
        degrade_to = "light"
        [kinds.now]
        needs = ["shell"]
        spends = { tokens = 10 }
        on_busy = "reject"
        refuse_hopeless = true
        deadline = "1h"
        """,
    )
    for kind in ("newest", "same"):
        clawq("enqueue", kind, "--", "true")
        counted = REFUSED if kind == "same" else set()  # as a duplicate
        assert imported("enqueue", kind, "--", "true") == ALWAYS | FULL | counted
    assert imported("enqueue", "heavy", "--", "true") == ALWAYS | REFUSED
    assert imported("enqueue", "now", "--", "true", code=75) == ALWAYS | REFUSED
    Path(home.lock).write_text("")
    rows(
        home,
        "INSERT INTO cooldowns (resource, set_at, until, step_ms, passed_at) VALUES ('shell', 1, 1, 1, 1)",
    )
    ramp = {"clawq.rules", "clawq.rules.ramp"}
    assert imported("enqueue", "now", "--", "true") == ALWAYS | FORECAST | ramp


def test_what_agents_tell_is_as_cheap(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(home, "[budgets.tokens]\nlimit = 10\nper = '1h'\n")
    clawq("enqueue", "--", "true")
    Path(home.sock).write_text("")
    enqueueing = {"clawq.cli.enqueue"}
    here = (ALWAYS - enqueueing) | TOLD
    assert imported("throttle", "shell", "--for", "5m", "--json") == here | JSON | {"clawq.cli.throttle"}
    rows(home, "UPDATE jobs SET state = 'starting', token = 7 WHERE id = 1")
    monkeypatch.setenv("CLAWQ_JOB_ID", "1")
    monkeypatch.setenv("CLAWQ_TOKEN", "7")
    no_poke = here - {"_socket"}
    assert imported("spend", "tokens", "10", "--json") == no_poke | JSON | {"clawq.cli.spend"}
    assert imported("spend", "tokens", "11", code=75) == no_poke | {"clawq.cli.spend"}


def test_a_tab_is_cheaper_than_a_job(home: Home) -> None:
    configure(home, '[kinds.a]\ncommand = ["true"]\n')
    clawq("enqueue", "--", "true")
    allowed = ALWAYS | {"clawq.cli.offer", "clawq.store.offers", "clawq.store.config_row"}
    for topic in (["configured"], ["jobs", "why"], ["resources"]):
        assert imported("_offer", *topic) <= allowed - {
            "clawq.client",
            "clawq.drafting",
            "clawq.store.intake",
        }


def test_even_the_first_job_of_a_home_is_cheap(home: Home) -> None:
    assert imported("enqueue", "--", "true") == ALWAYS


def test_what_is_dear_is_never_in_the_list() -> None:
    loaded = ALWAYS | REFUSED | WOKEN | FORECAST | FULL | TOLD | STATUS
    assert not {name.partition(".")[0] for name in loaded} & NEVER


def test_importing_the_package_loads_nothing(home: Home) -> None:
    code = "import sys; before = set(sys.modules); import clawq; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert done.stdout == "['clawq']\n"


LOAD = "import sys; sys.path.insert(0, sys.argv[1]); from clawq.__main__ import _load_apsw; _load_apsw();"


@pytest.mark.parametrize(
    "fake",
    ["", "from collections import namedtuple\nconnected = 1\n", "import collections\ncollections.deque\n"],
)
def test_apsw_is_whole_however_it_was_loaded(home: Home, tmp_path: Path, fake: str) -> None:
    """Its own import of `collections` is spared, and nobody else's; an apsw that needs more gets it."""
    code = LOAD + (
        "assert 'collections' not in sys.modules and 'collections.abc' not in sys.modules;"
        "import collections.abc, apsw; print(collections.deque, collections.abc.Mapping);"
        "print('apsw', hasattr(apsw, 'Connection') or vars(apsw).get('connected'))"
    )
    if fake:
        (tmp_path / "apsw.py").write_text(fake)
    path = [*([str(tmp_path)] if fake else []), *sys.path]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
    )
    assert done.stderr == ""
    assert done.stdout.startswith("<class 'collections.deque'> <class 'collections.abc.Mapping'>\napsw ")


def test_a_changed_file_costs_its_compiler_once(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 10\n")
    assert "pydantic" in imported("enqueue", "--", "true")
    assert imported("enqueue", "--", "true") == ALWAYS
    configure(home, "[limits\n")
    assert "pydantic" in imported("enqueue", "--", "true") or rows(home, "SELECT error FROM config")[0][0]
    assert imported("enqueue", "--", "true") == ALWAYS


def test_status_for_scripts_loads_this_and_nothing_else(home: Home) -> None:
    """It is asked for each second by whoever has a panel: of a queue with something in every table too."""
    configure(home, "[budgets.tokens]\nlimit = 10\nper = '1h'\n[kinds.a]\ncommand = ['true']\n")
    # What asks macOS about its processes and memory.
    there = set() if sys.platform.startswith("linux") else NEVER | {"clawq.host.libc"}
    for _ in range(2):
        clawq("enqueue", "a", "--needs", "browser")
    clawq("enqueue", "--exclusive", "x", "--", "true")
    assert imported("status", "--json") - there == STATUS - there
    Path(home.lock).write_text(f"{os.getpid()} 1 boot 1 0 run\n")
    rows(home, "UPDATE jobs SET state = 'starting', token = 7 WHERE id = 1")
    rows(home, "INSERT INTO cooldowns (resource, set_at, until, step_ms) VALUES ('browser', 1, 1, 1)")
    rows(home, "INSERT INTO pauses (scope, name, since) VALUES ('all', '', 1)")
    assert imported("status", "--json") - there == STATUS - there
