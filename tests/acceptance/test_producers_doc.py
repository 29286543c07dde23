"""docs/producers.md: its programs are refused, wait as told, and get in; its tables are the code's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import clawq
from clawq import errors
from clawq.paths import Home
from tests.fleet import ROOT, Fleet
from tests.producers import rows
from tests.waiting import until

DOC = (ROOT / "docs" / "producers.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```(sh|python|js) example\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE))
SUFFIX = {"sh": "sh", "python": "py", "js": "mjs"}
RUNS = {"sh": "sh", "python": sys.executable, "js": "node"}
SMALL = """
[limits]
max_running = 1
[host]
retry_after = "1s"
[kinds."site.qa"]
command = ["true"]
queue_cap = 1
"""


@pytest.fixture
def fleet(home: Home, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """With `clawq` on the PATH, as a producer has it."""
    fleet = Fleet(home)
    tools = fleet.scratch / "tools"
    tools.mkdir()
    (tools / "clawq").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m clawq "$@"\n')
    (tools / "clawq").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    fleet.configure(SMALL)
    return fleet


def start(fleet: Fleet, language: str, url: str) -> subprocess.Popen[str]:
    program = shutil.which(RUNS[language])
    if program is None:
        pytest.skip(f"{RUNS[language]} is not installed: its example was not run")
    path = fleet.scratch / f"check.{SUFFIX[language]}"
    path.write_text(EXAMPLES[language])
    return subprocess.Popen(
        [program, path, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=fleet.scratch
    )


def refusals(fleet: Fleet) -> int:
    return sum(row["count"] for row in fleet.json("status")["refused"])


@pytest.mark.parametrize("language", RUNS)
def test_who_waits_as_long_as_it_is_told_gets_in(fleet: Fleet, language: str) -> None:
    gate = fleet.scratch / "gate"
    with fleet.supervised():
        blocker = fleet.script(f"until [ -e {gate} ]; do sleep 0.05; done")
        fleet.until_state(blocker, "running")
        fleet.enqueue("site.qa")
        producer = start(fleet, language, "https://example.com/?a=1&b='2'")
        until(lambda: refusals(fleet) or producer.poll() is not None, 20, "it was never refused")
        gate.touch()
        out, err = producer.communicate(timeout=60)
    assert (producer.returncode, err.replace("clawq: kind 'site.qa' is full", "")[:1]) in [(0, ""), (0, ":")]
    told = json.loads(out)
    assert told["outcome"] in ("queued", "admitted")
    assert refusals(fleet) >= 1
    assert clawq.job(told["job_id"])["job"]["dedupe_key"] == "https://example.com/?a=1&b='2'"


@pytest.mark.parametrize("language", RUNS)
def test_what_is_refused_for_good_is_not_tried_again(fleet: Fleet, language: str) -> None:
    fleet.configure(SMALL + 'needs = ["browser"]\n')
    fleet.script("true")
    rows(fleet.home, "UPDATE config SET body = json_set(body, '$.resources.browser.limit', 0)")
    producer = start(fleet, language, "x")
    _, err = producer.communicate(timeout=60)
    assert producer.returncode == (65 if language == "sh" else 1)
    assert "this job could never start" in err
    assert refusals(fleet) == 1


def test_a_batch_leaves_what_may_be_sent_again(fleet: Fleet) -> None:
    (script,) = re.findall(r"^```sh batch\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    path = fleet.scratch / "batch.sh"
    path.write_text(script)
    (fleet.scratch / "urls").write_text("a\nb\nc\n")
    done = subprocess.run(["sh", path], cwd=fleet.scratch, capture_output=True, text=True, timeout=60)
    assert done.returncode == 75
    again = [json.loads(line)["dedupe_key"] for line in fleet.lines("again")]
    assert again == ["b", "c"]
    assert (done.stdout, len(done.stderr.splitlines())) == ("", 2)


def test_the_answer_shown_has_the_real_keys(fleet: Fleet) -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    fleet.enqueue("site.qa")
    told = json.loads(fleet.clawq("enqueue", "site.qa", "--json", code=75).stdout)
    assert list(json.loads(shown)) == list(told)
    assert json.loads(shown)["reason"] == told["reason"]
    first, _, _ = DOC.partition("## What to do")
    cells = re.findall(r"^\| (`.*?) \|", first, re.MULTILINE)
    keys = {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
    assert keys == set(told)


def test_the_table_has_every_reason_with_its_exit_code() -> None:
    table = {
        reason: int(code)
        for code, reasons in re.findall(r"^\| (\d+) \| (`.*?) \|", DOC, re.MULTILINE)
        for reason in re.findall(r"`(\w+)`", reasons)
    }
    real = dict.fromkeys(errors.REFUSED_FOR_GOOD, 65) | dict.fromkeys(errors.REFUSED_FOR_NOW, 75)
    for other in (errors.UsageError, errors.LeaseLost, errors.StorageError, errors.ConfigError):
        real[other.reason] = other.exit_code
    assert table == real


def test_every_language_is_there() -> None:
    assert set(EXAMPLES) == set(RUNS)
    assert Path(ROOT / "docs" / "producers.md").stat().st_size > 1_000
