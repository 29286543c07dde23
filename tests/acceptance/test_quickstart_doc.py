"""docs/quickstart.md, typed from top to bottom: what it says happens, happens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawq.paths import Home
from tests.producers import LAUNCHER, ROOT, clawq
from tests.waiting import until

TEXT = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## \d\. (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.M | re.S)


def typed(section: str, number: int = 0) -> str:
    """What a shell says to a block of that section."""
    done = subprocess.run(["sh", "-e"], input=blocks(section, "sh")[number], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), section
    return done.stdout


@pytest.fixture
def supervised(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    program = tmp_path / "clawq"
    program.write_text(f"#!{sys.executable}\n{LAUNCHER}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    running = subprocess.Popen(["clawq", "run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: Path(home.sock).exists())
    try:
        yield home
    finally:
        clawq("stop", "--now", code=None)
        running.wait(20)


def test_from_the_first_job_to_a_dead_one(supervised: Home) -> None:
    first, _, logs = blocks("The first job", "sh")[0].splitlines()
    subprocess.run(["sh", "-ec", first], check=True)
    until(lambda: subprocess.run(["sh", "-c", logs], capture_output=True).stdout == b"hello\n")

    (kinds,) = blocks("A kind, and a limit", "toml")
    Path(supervised.config).write_text(kinds)
    typed("A kind, and a limit")
    until(lambda: "deferred once" in typed("A kind, and a limit", 1))
    (shown,) = blocks("A kind, and a limit", "console")
    told = clawq("why", "4").stdout.splitlines()
    assert [re.sub(r"\d+s", "3s", line) for line in told[:4]] == shown.splitlines()

    (schedule,) = blocks("On a schedule", "toml")
    Path(supervised.config).write_text(kinds + schedule)
    assert "OK" in clawq("config", "check").stdout

    fails, asks = blocks("When something fails", "sh")[0].splitlines()
    subprocess.run(["sh", "-ec", fails], check=True)
    until(lambda: "no price in line 17" in subprocess.check_output(["sh", "-ec", asks], text=True))
