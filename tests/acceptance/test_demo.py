"""The demo checks itself; this holds that it passes, and that its checks can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import __main__ as demo
from demo.stage import Stage

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo_output() -> Iterator[str]:
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    home = done.stdout.partition("CLAWQ_HOME=")[2].split()[0]
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield done.stdout
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_the_demo_goes_as_it_says(demo_output: str) -> None:
    for promised in (
        "duplicate",
        "kind_queue_full",
        "low_memory",
        "KeyError: 'price'",
        "2 notes today",
        "invoice.png",
    ):
        assert promised in demo_output
    assert demo_output.index("$ clawq dead") < demo_output.rindex("$ clawq status")


def test_a_third_browser_would_be_noticed(unreachable_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(unreachable_home)
    for page in demo.PAGES:
        (unreachable_home / f"{page}.png").write_bytes(b"\x89PNG")
        with (unreachable_home / "alive.ndjson").open("a") as file:
            file.write('{"page": "x", "from": 1.0, "to": 2.0, "browser": true}\n')
    demo.browsers(stage)
    assert stage.complaints == ["3 browsers were alive at once"]
    assert "3 browsers" in capsys.readouterr().out
