"""Whose log is looked at when, and who is ended for the disk's sake."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawq.host import load
from clawq.paths import Home
from clawq.settings import Settings
from clawq.store import sqlfile
from clawq.supervisor import outputs
from clawq.supervisor.agents import Agent
from clawq.supervisor.look import Findings

SETTINGS = Settings.from_text(sqlfile.read("default_config.json"))
MB = 1 << 20


def agent(folder: Path, token: int, mb: int, **more: object) -> Agent:
    """One that started at 0 and has written so many MB, all of them holes."""
    log = folder / f"{token}.log"
    with open(log, "wb") as file:
        file.truncate(mb * MB)
    made = Agent(
        token=token,
        job_id=token,
        number=1,
        kind="default",
        log=str(log),
        lease_ms=1_000,
        grace_ms=1_000,
        timeout_ms=0,
        heartbeat="process",
        deadline_at=None,
        started=0,
        last_sign=0,
        owned=True,
        pid=None,
        probe=None,
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def overdue(agents: list[Agent], home: Home, mono: int) -> list[tuple[int, str]]:
    findings = Findings()
    outputs.tend(agents, SETTINGS, home, findings, mono)
    return [(each.token, reason) for each, reason in findings.overdue]


@pytest.fixture
def nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "free_disk_mb", lambda folder: 100)


@pytest.mark.usefixtures("nearly_full")
class TestADiskThatIsNearlyFull:
    def test_who_filled_it_before_the_first_look_is_ended_and_its_log_cut(
        self, home: Home, tmp_path: Path
    ) -> None:
        loud, quiet = agent(tmp_path, 1, 40), agent(tmp_path, 2, 0)
        assert overdue([loud, quiet], home, 500) == [(1, "filled_disk")]
        assert loud.over == "wrote 80 MB/s while the disk was nearly full"
        assert Path(loud.log).stat().st_size < 4 * MB

    def test_while_one_is_being_ended_nobody_else_has_to_go(self, home: Home, tmp_path: Path) -> None:
        going = agent(tmp_path, 1, 40, kill_reason="filled_disk")
        assert overdue([going, agent(tmp_path, 2, 40)], home, 500) == []

    @pytest.mark.parametrize("more", [{"kill_reason": "timed_out"}, {"disowned": True}, {"verdict": "ended"}])
    def test_who_goes_anyway_is_not_ended_again(
        self, home: Home, tmp_path: Path, more: dict[str, object]
    ) -> None:
        assert overdue([agent(tmp_path, 1, 40, **more)], home, 500) == []

    def test_what_it_wrote_long_ago_is_no_reason(self, home: Home, tmp_path: Path) -> None:
        loud = agent(tmp_path, 1, 40, log_bytes=40 * MB, log_looked=0)
        assert overdue([loud], home, 500) == []


def test_a_log_that_grows_fast_is_looked_at_sooner(home: Home, tmp_path: Path) -> None:
    def next_look(mb: int) -> int:
        return outputs.tend([agent(tmp_path, mb, mb)], SETTINGS, home, Findings(), 1_000) - 1_000

    assert next_look(0) == outputs.LOOK_MS
    assert next_look(10) == outputs.LOOK_MS
    # 100 MB in the first second: cut to 48 MB, and twice 64 MB are 80 MB away.
    assert 700 < next_look(100) < 900
    assert next_look(10_000) == outputs.SOONEST_MS


def test_who_is_being_ended_is_still_kept_small(home: Home, tmp_path: Path) -> None:
    going = agent(tmp_path, 1, 500, kill_reason="timed_out")
    assert overdue([going], home, 500) == []
    assert Path(going.log).stat().st_size < 64 * MB
