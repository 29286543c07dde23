"""Homes that nobody would choose: foreign files in every place, odd paths, ground that moves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from clawq.paths import Home
from tests.fleet import Fleet
from tests.producers import clawq
from tests.waiting import until

ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
"""A locale that Python does not change to UTF-8 by itself, as ISO 8859-1 is not."""


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("clawq: ")
    return lines[0]


def a_folder(path: str) -> None:
    os.mkdir(path)


def a_file(path: str) -> None:
    Path(path).touch()


def a_link_to_nothing(path: str) -> None:
    os.symlink("nowhere", path)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("clawq.lock", a_folder),
        ("clawq.lock", os.mkfifo),
        ("clawq.db", a_folder),
        ("clawq.db", os.mkfifo),
        ("run", a_file),
        ("logs", a_file),
        ("", a_file),
    ],
)
def test_a_supervisor_says_in_one_line_what_is_in_its_way(
    home: Home, name: str, make: Callable[[str], None]
) -> None:
    if name:
        os.mkdir(home.data, 0o700)
    make(os.path.join(home.data, name).rstrip("/"))
    told = one_line(clawq("run", "--until-idle", code=74))
    assert name in told


@pytest.mark.parametrize(
    ("make", "said"),
    [(a_file, "is not a folder"), (a_link_to_nothing, "is a link to nothing")],
)
@pytest.mark.parametrize(
    "words", ["status", "status --json", "list", "why 1", "enqueue -- true", "prune", "stop", "run"]
)
def test_a_home_that_is_no_folder_is_said_by_every_command(
    home: Home, make: Callable[[str], None], said: str, words: str
) -> None:
    make(home.data)
    assert f"{home.data} {said}" in one_line(clawq(*words.split(), code=74))


def test_stop_does_not_guess_where_nobody_may_look(home: Home) -> None:
    os.mkdir(home.data)
    os.symlink(home.lock, home.lock)
    assert home.lock in one_line(clawq("stop", code=74))


@pytest.mark.parametrize("verb", ["status", "events"])
def test_who_only_looks_waits_two_seconds_for_a_lock(fleet: Fleet, verb: str) -> None:
    fleet.enqueue("--", "true")
    holder = apsw.Connection(fleet.home.db)
    assert holder.pragma("locking_mode", "exclusive") == "exclusive"
    holder.execute("UPDATE meta SET value = value")
    before = time.monotonic()
    assert " is locked by " in one_line(clawq(verb, code=75))
    assert time.monotonic() - before < 8
    holder.close()


@pytest.mark.parametrize("name", ["clawq.lock", "clawq.db"])
def test_a_pipe_in_the_place_of_a_file_hangs_nobody(home: Home, name: str) -> None:
    os.mkdir(home.data, 0o700)
    os.mkfifo(os.path.join(home.data, name))
    expected = 74 if name == "clawq.db" else 0
    clawq("status", code=expected)
    clawq("list", code=expected)


@pytest.mark.parametrize("name", ["²", "7", "8"])
def test_what_is_no_attempt_file_does_not_stop_a_supervisor(home: Home, name: str) -> None:
    os.makedirs(home.run, 0o700)
    make = {"²": a_file, "7": os.mkfifo, "8": a_folder}[name]
    make(os.path.join(home.run, f"{name}.attempt"))
    clawq("run", "--until-idle")


def test_a_home_that_is_not_utf8_is_refused(unreachable_home: Path) -> None:
    env = os.environb | {b"CLAWQ_HOME": os.fsencode(unreachable_home) + b"/\xff"}
    for words in (("enqueue", "--", "true"), ("run", "--until-idle"), ("pause",)):
        assert "not UTF-8" in one_line(clawq(*words, code=74, env=_text(env)))


def test_a_relative_home_in_a_folder_that_is_gone_is_refused(unreachable_home: Path) -> None:
    gone = unreachable_home / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; for verb in status list run; do "$@" $verb; echo $?; done'
    argv = ["sh", "-c", script, "sh", sys.executable, "-P", "-m", "clawq"]
    env = os.environ | {"CLAWQ_HOME": "q", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(argv, cwd=gone, env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["2", "2", "2"]
    assert len(done.stderr.splitlines()) == 3, done.stderr


def test_words_that_are_not_utf8_are_refused(home: Home) -> None:
    clawq("enqueue", "--", "true")
    assert "not UTF-8" in one_line(clawq("list", b"--tenant=a\xff", code=2))


def test_a_supervisor_in_an_ascii_locale_passes_on_what_was_typed(home: Home, unreachable_home: Path) -> None:
    ascii_home = os.environ | ASCII | {"CLAWQ_HOME": f"{unreachable_home}/hé"}
    out = unreachable_home / "out"
    script = f'echo "é$1 $V" > {out}; cat "$CLAWQ_PAYLOAD_FILE" >> {out}'
    words = ("enqueue", "--payload", '"ß"', "--env", "V=日", "--", "sh", "-c", script, "x", "ü")
    clawq(*words, env=ascii_home)
    clawq("run", "--until-idle", env=ascii_home)
    assert out.read_text(encoding="utf-8") == 'éü 日\n"ß"'
    assert clawq("list", "--json", env=os.environ | {"CLAWQ_HOME": f"{unreachable_home}/hé"}).stdout != "[]\n"


def test_a_supervisor_whose_path_is_not_utf8_runs(home: Home) -> None:
    env = os.environb | {b"PATH": os.environb[b"PATH"] + b":/a\xff"}
    clawq("enqueue", "--", "true", env=_text(env))
    clawq("run", "--until-idle", env=_text(env))


@pytest.mark.parametrize("name", ["clawq.db", "clawq.lock"])
def test_a_supervisor_ends_when_its_database_or_lock_was_taken_away(fleet: Fleet, name: str) -> None:
    fleet.enqueue("--", "true")
    supervisor = fleet.start()
    os.unlink(os.path.join(fleet.home.data, name))
    assert supervisor.wait(timeout=20) == 74
    assert f"{name} was removed or replaced" in fleet.said()


def test_a_supervisor_that_lost_its_lock_leaves_the_next_ones_socket_alone(fleet: Fleet) -> None:
    first = fleet.start()
    os.unlink(fleet.home.lock)
    with fleet.supervised():
        first.wait(timeout=20)
        assert os.path.exists(fleet.home.sock)


def test_an_env_file_that_is_a_pipe_does_not_hold_up_the_supervisor(fleet: Fleet) -> None:
    fleet.configure('[kinds.k]\ncommand = ["true"]\nenv_file = "pipe"\n')
    os.mkfifo(os.path.join(fleet.home.data, "pipe"), 0o600)
    job_id = fleet.enqueue("k")
    fleet.run_until_idle()
    assert "not a plain file" in fleet.job(job_id)["last_error"]


def test_a_disk_that_is_full_when_a_supervisor_starts_is_said(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.enqueue("--", "true")
    limited = 'ulimit -f 0; trap "" XFSZ; exec "$@"'
    argv = ["sh", "-c", limited, "sh", sys.executable, "-m", "clawq", "run", "--until-idle"]
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()})
    assert (done.returncode, one_line(done)[:7]) == (74, "clawq: ")


def test_term_is_heard_while_another_process_holds_the_database(fleet: Fleet) -> None:
    supervisor = fleet.start()
    fleet.enqueue("--", "sleep", "2")
    until(lambda: fleet.json("status")["running"])
    holder = apsw.Connection(fleet.home.db)
    holder.execute("BEGIN IMMEDIATE")
    until(lambda: fleet.json("status")["supervisor"]["last_tick_age_s"] > 1)  # it waits for us
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(timeout=4)
    holder.execute("ROLLBACK")
    holder.close()
    fleet.run_until_idle()
    assert fleet.state(1) == "succeeded"


def _text(env: dict[bytes, bytes]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
