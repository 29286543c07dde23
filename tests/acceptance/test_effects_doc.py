"""docs/effects.md: its agents are run and killed, its tables and its page are what clawq says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from clawq import verbs
from clawq.cli import effect
from clawq.paths import Home
from tests.fleet import ROOT, Fleet

DOC = (ROOT / "docs" / "effects.md").read_text(encoding="utf-8")
AGENTS = dict(re.findall(r"^```(sh|python) agent\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE))
RUNS = {"sh": "sh", "python": sys.executable}


@pytest.fixture
def fleet(home: Home, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """With the programs that the examples call: `send-mail` does what the file `mood` says."""
    fleet = Fleet(home)
    tools = fleet.scratch / "tools"
    tools.mkdir()
    for name, script in {
        "clawq": f'PYTHONPATH={ROOT} exec {sys.executable} -m clawq "$@"',
        "send-mail": f"echo $1 >> {fleet.scratch}/sent; . {fleet.scratch}/mood",
        "write-report": f"echo $1 >> {fleet.scratch}/reports; . {fleet.scratch}/report",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    mood(fleet, "exit 0")
    (fleet.scratch / "report").write_text("exit 0\n")
    for name, text in AGENTS.items():
        (fleet.scratch / f"agent.{name}").write_text(text)
    fleet.configure('[kinds.mail]\nbackoff = "1s"\n')
    return fleet


def mood(fleet: Fleet, script: str) -> None:
    (fleet.scratch / "mood").write_text(script + "\n")


def run(fleet: Fleet, name: str) -> str:
    job_id = fleet.enqueue("mail", "--", RUNS[name], fleet.scratch / f"agent.{name}", "7")
    fleet.run_until_idle()
    return fleet.state(job_id)


@pytest.mark.parametrize("name", RUNS)
class TestExamples:
    def test_a_mail_is_sent_and_confirmed(self, fleet: Fleet, name: str) -> None:
        assert run(fleet, name) == "succeeded"
        assert (fleet.lines("sent"), fleet.lines("reports")) == (["7"], ["7"])
        assert [each["state"] for each in fleet.json("show", 1)["effects"]] == ["done"]

    def test_a_retry_only_does_what_was_left(self, fleet: Fleet, name: str) -> None:
        (fleet.scratch / "report").write_text(f"[ $(wc -l < {fleet.scratch}/reports) = 2 ]\n")
        assert run(fleet, name) == "succeeded"
        assert (fleet.lines("sent"), fleet.lines("reports")) == (["7"], ["7", "7"])

    def test_one_that_is_killed_while_it_sends_is_not_repeated(self, fleet: Fleet, name: str) -> None:
        mood(fleet, "kill -9 $PPID; exec sleep 60")
        assert run(fleet, name) == "unknown"
        assert (fleet.lines("sent"), fleet.lines("reports")) == (["7"], [])


def test_what_was_surely_not_sent_is_tried_again(fleet: Fleet) -> None:
    mood(fleet, f"[ $(wc -l < {fleet.scratch}/sent) = 2 ]")
    assert run(fleet, "sh") == "succeeded"
    assert [each["state"] for each in fleet.json("show", 1)["effects"]] == ["done"]


def test_an_exception_leaves_it_open(fleet: Fleet) -> None:
    mood(fleet, "exit 1")
    assert run(fleet, "python") == "unknown"


def test_the_page_of_unknown_jobs_is_the_real_one(fleet: Fleet) -> None:
    mood(fleet, "kill -9 $(ps -o ppid= $PPID) $PPID; exec sleep 60")
    assert run(fleet, "sh") == "unknown"
    block = re.search(r"^\$ clawq unknown\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    assert block
    steady = [re.sub(r"\d+[smh] ago", "3m ago", text) for text in (block[1], fleet.clawq("unknown").stdout)]
    assert re.sub(r"^\d+  ", "12  ", steady[1]) == steady[0]


def test_the_tables_name_every_exit_code_and_answer() -> None:
    codes = {
        int(code) for code in re.findall(r"^\| ([\d, ]+) \|", DOC, re.MULTILINE) for code in code.split(", ")
    }
    declared = {int(code) for code, _ in verbs.EFFECT.exits}
    assert codes - {0} == declared - {0, 1, 2}
    assert {effect.SKIP, effect.UNCONFIRMED, effect.HELD} <= codes
    for word in ("begun", "done", "unconfirmed", "held"):
        assert f"`{word}`" in DOC


def test_the_configuration_shown_is_accepted(fleet: Fleet) -> None:
    block = re.search(r"^```toml\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    assert block
    fleet.configure(block[1])
    kind = json.loads(fleet.clawq("config", "show", "--json").stdout)
    assert "check-sent" in json.dumps(kind)
    assert Path(fleet.home.config).exists()
