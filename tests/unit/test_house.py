"""The fixtures that every other test leans on, and what the package carries."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clawq
from clawq.paths import Home, find_home
from tests.guardian import end_what_is_left
from tests.waiting import until

REAL_HOME = os.environ.get("HOME", "")  # read at import, before any fixture


def test_no_place_of_the_real_home_is_within_reach(unreachable_home: Path, home: Home) -> None:
    with_clawq_home = find_home()
    without = find_home({key: value for key, value in os.environ.items() if key != "CLAWQ_HOME"})
    for place in (with_clawq_home, without):
        for path in (place.config, place.db, place.sock, place.lock, place.logs, place.run):
            assert path.startswith(str(unreachable_home)), path
    assert home.db == with_clawq_home.db
    assert os.environ["HOME"] != REAL_HOME


def test_the_home_of_a_test_is_short_enough_for_a_socket(home: Home) -> None:
    assert home.socket_fits


def test_until_returns_the_value_and_says_what_it_waited_for() -> None:
    assert until(lambda: [1], seconds=0) == [1]
    with pytest.raises(AssertionError, match=r"after 0 s: no bus came"):
        until(lambda: None, seconds=0, message="no bus came")
    with pytest.raises(AssertionError, match="3 left"):
        until(lambda: None, seconds=0, message=lambda: f"{1 + 2} left")


def test_what_a_failed_test_leaves_behind_is_ended_and_nothing_else(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    attempt = run / "1"
    holder = subprocess.Popen(
        ["/bin/sh", "-c", 'exec 3>>"$0"; echo "r $$" >&3; sleep 60', str(attempt)], start_new_session=True
    )
    # Named in a file that it does not hold: a pid used again, or a test's invention.
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (run / "2").write_text(f"r {bystander.pid}\n")
    try:
        until(lambda: attempt.exists() and attempt.read_text())
        end_what_is_left(tmp_path)
        assert holder.wait(10) == -9
        assert bystander.poll() is None
    finally:
        for process in (holder, bystander):
            process.kill()
            process.wait(10)


def test_the_lock_file_of_a_running_supervisor_names_who_is_ended(tmp_path: Path) -> None:
    lock = tmp_path / "clawq.lock"
    script = (
        "import fcntl, os, sys, time\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "file.write(f'{os.getpid()} 0 boot 0 0.1 enforce\\n'); file.flush()\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(lock)])
    try:
        until(lambda: lock.exists() and lock.read_text())
        end_what_is_left(tmp_path)
        assert holder.wait(10) == -9
    finally:
        holder.kill()
        holder.wait(10)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_package_says_that_it_is_typed_and_carries_its_sql() -> None:
    package = Path(clawq.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "store" / "schema.sql").stat().st_size > 0
    assert (package / "store" / "default_config.json").stat().st_size > 0


def test_only_the_store_knows_sql() -> None:
    package = Path(clawq.__file__).parent
    sql = re.compile(r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA)\b")
    outside = [path for path in package.rglob("*.py") if "store" not in path.relative_to(package).parts]
    assert len(outside) > 20
    found = [
        f"{path.relative_to(package)}:{node.lineno}: {node.value[:60]}"
        for path in outside
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and sql.search(node.value)
    ]
    assert found == []
