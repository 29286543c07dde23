"""`clawq doctor` at a real queue: at rest, in trouble, and where nothing can be started any more."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

from clawq.cli import doctor
from clawq.paths import Home
from tests.fleet import Fleet
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["verdict"] for each in found["checks"]}


def test_a_queue_at_work(fleet: Fleet) -> None:
    fleet.configure(
        '[kinds.there]\ncommand = ["sh", "-c", "true"]\n[kinds.gone]\ncommand = ["no-such", "x"]\n'
    )
    with fleet.supervised():
        found = fleet.json("doctor")
        assert (found["ok"], found["alerts"]) == (True, [])
        wanted = "supervisor service config sqlite rights filesystem disk wal path processes room"
        assert set(verdicts(found)) == {*wanted.split(), "descriptors", "orphans", "clock", "crontab"}
        assert {name for name, verdict in verdicts(found).items() if verdict != "ok"} <= {"service", "path"}
        probed = fleet.json("doctor", "--probe", code=1)
        texts = [each["text"] for each in probed["checks"] if each["name"] == "probe"]
        assert texts[0].startswith("a job sees PATH /")
        assert re.fullmatch(
            r"a job is allowed (\d+|unlimited) processes, (\d+|unlimited) open files", texts[1]
        )
        assert texts[-1] == "a job does not find 'no-such'"
    shown = fleet.clawq("doctor").stdout
    assert shown.startswith("Worth a look\n")
    assert "\nFine\n" in shown


def test_a_queue_in_trouble(fleet: Fleet) -> None:
    fleet.configure('[kinds.later]\ncommand = ["true"]\n')
    fleet.enqueue("later")
    os.chmod(fleet.home.data, 0o755)
    fleet.configure("limits = 3\n")
    found = fleet.json("doctor", code=1)
    assert verdicts(found) | {"supervisor": "bad", "config": "bad", "rights": "warn"} == verdicts(found)
    assert [alert["reason"] for alert in found["alerts"]] == ["config", "no_supervisor"]
    shown = fleet.clawq("doctor", code=1).stdout
    assert shown.startswith("Needs a person\n")
    assert shown.endswith("2 things need a person\n")


def test_a_supervisor_that_hangs(fleet: Fleet) -> None:
    with fleet.supervised() as process:
        process.send_signal(signal.SIGSTOP)
        try:
            old = os.stat(fleet.home.lock).st_mtime - 60
            until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
            os.utime(fleet.home.lock, (old, old))
            found = fleet.json("doctor", code=1)
            (check,) = [each for each in found["checks"] if each["name"] == "supervisor"]
            assert check["text"].startswith(f"pid {process.pid} holds the lock and has been silent for 1m")
            assert f"kill -9 {process.pid}" in check["fix"]
        finally:
            process.send_signal(signal.SIGCONT)


def test_what_a_person_has_done_is_shown_and_calls_nobody(fleet: Fleet) -> None:
    with fleet.supervised():
        fleet.clawq("pause", "--kind", "default")
        fleet.enqueue("--hold", "--", "true")
        found = fleet.json("doctor")
        assert [alert["reason"] for alert in found["alerts"]] == ["paused", "held"]


def test_a_database_that_cannot_be_read(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    for suffix in ("", "-wal", "-shm"):
        Path(fleet.home.db + suffix).unlink(missing_ok=True)
    Path(fleet.home.db).write_text("not a database" * 1000)
    found = fleet.json("doctor", code=1)
    assert verdicts(found)["database"] == "bad"
    assert "sqlite" in verdicts(found)


def test_it_needs_no_process_of_its_own(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.enqueue("--", "true")
    fleet.configure('[kinds.a]\ncommand = ["true"]\n[[schedules]]\ncron = "0 7 * * *"\nkind = "a"\n')

    def no_room(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_room)
    monkeypatch.setattr(os, "posix_spawn", no_room)
    monkeypatch.setattr(subprocess, "Popen", no_room)
    found = doctor.document(doctor.examine())
    (crontab,) = [each for each in found["checks"] if each["name"] == "crontab"]
    assert crontab["text"] == "not checked: `crontab -l`: Resource temporarily unavailable"
    assert len(found["checks"]) == 15


def test_a_trigger_that_somebody_dropped_is_seen(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    db = apsw.Connection(fleet.home.db)
    db.execute("DROP TRIGGER spends_new")
    db.close()
    assert "it has lost trigger spends_new" in fleet.clawq("doctor", code=1).stdout
