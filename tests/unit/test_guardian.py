"""Tests that are killed leave no supervisor and no agent behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.fleet import ROOT
from tests.waiting import until

KILLED = """
import os, time
from tests.fleet import Fleet

def test_it(home):
    fleet = Fleet(home)
    with fleet.supervised():
        fleet.enqueue("--", "sleep", "600")
        time.sleep(600)
"""


def test_what_tests_that_were_killed_have_begun_is_ended(tmp_path: Path) -> None:
    (tmp_path / "test_killed.py").write_text(KILLED)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*argv, str(tmp_path)], env=env, stdout=subprocess.DEVNULL) as tests:

        def agent() -> int | None:
            for child in psutil.Process(tests.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if child.cmdline() == ["sleep", "600"]:
                        return child.pid
            return None

        pid = until(agent, 30)
        tests.send_signal(signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 20)
